"""Options of a request that count. Pure."""

from __future__ import annotations

from typing import Final

from enmasse.wire_formats.coap_messages import (
    ACCEPT,
    BLOCK1,
    BLOCK2,
    PROXY_SCHEME,
    PROXY_URI,
    URI_HOST,
    URI_PATH,
    URI_PORT,
    URI_QUERY,
    CoapMessage,
    fault,
)
from services.coap_gateway.coap_answers import CoapAnswer

_KNOWN: Final = frozenset((URI_HOST, URI_PORT, URI_PATH, URI_QUERY, ACCEPT, BLOCK1, BLOCK2))
"""Critical options that mean something here."""


def understood(message: CoapMessage) -> CoapMessage:
    """Return a request without the elective options that count as unknown. Raises CoapAnswer for critical ones."""
    found = []
    before = -1
    for number, value in message.options:
        wrong = fault(number, value, before)
        before = number
        if number & 1:
            if number in (PROXY_URI, PROXY_SCHEME):
                raise CoapAnswer("5.05", "this is no proxy")
            if wrong or number not in _KNOWN:
                raise CoapAnswer("4.02", f"the option {number} {wrong or 'is not known here'}")
        if not wrong:
            found.append((number, value))
    return message._replace(options=tuple(found))
