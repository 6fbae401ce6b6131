"""Paths and parameters of requests: `/v1/ADDRESS?NAME=VALUE`, where an address may have several levels. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from enmasse.wire_formats.coap_messages import URI_PATH, URI_QUERY, CoapMessage
from services.coap_gateway.coap_answers import CoapAnswer

BASE: Final = "v1"
_NO_NAME: Final = re.compile(r"[\x00-\x20\x7f*#+/]|::")
_WILD: Final = ("+", "#")
"""Levels of a filter, which may be observed: any one level, and all further ones."""
MAX_NAME: Final = 1024


class CoapResource(NamedTuple):
    """Address and parameters of a request. `wild`: `address` has wildcards."""

    address: str
    query: dict[str, str]
    wild: bool = False


def texts(message: CoapMessage, number: int) -> list[str]:
    """Return the values of an option. Raises CoapAnswer."""
    try:
        return [value.decode() for value in message.values(number)]
    except UnicodeDecodeError:
        raise CoapAnswer("4.02", "options with text are UTF-8") from None


def resource(message: CoapMessage) -> CoapResource:
    """Return what a request is for. Raises CoapAnswer."""
    base, *levels = texts(message, URI_PATH) or [""]
    if base != BASE or not levels:
        raise CoapAnswer("4.04", "paths are /v1/ADDRESS")
    wild = any(level in _WILD for level in levels)
    name = "/".join(levels)
    if len(name) > MAX_NAME or not all(level and (level in _WILD or not _NO_NAME.search(level)) for level in levels):
        raise CoapAnswer("4.04", "no address has this name: it has empty levels, white space, *, #, +, / or ::")
    if wild and ("#" in levels[:-1] or levels[0] in _WILD):
        raise CoapAnswer("4.04", "a filter begins with the name of an address, and # is its last level")
    query: dict[str, str] = {}
    for text in texts(message, URI_QUERY):
        key, equals, value = text.partition("=")
        if not equals or key in query:
            raise CoapAnswer("4.00", f"{key[:60]}: parameters are NAME=VALUE, each once")
        query[key] = value
    return CoapResource(name, query, wild)
