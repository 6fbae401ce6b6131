"""Trace context in AMQP messages (W3C, Trace Context: AMQP protocol, draft of 2019; and what clients really send).

`traceparent` and `tracestate` are in the message annotations, else in the application properties. Clients write them as
text there; the draft has a binary `traceparent` and a map as `tracestate`. Both are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.scan import front_end
from enmasse.amqp.messages.sections import Sections

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MAX_STATE: Final = 8192
"""Characters of a `tracestate` that is read."""
_NAME = TRACEPARENT.encode()
_SHORT = 2048  # bytes up to which a search is faster than finding the end of the sections before the body
_UNSAMPLED = re.compile(rb"traceparent\xa17[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][02468ace]")
_BINARY_SIZE = 29  # version, 0, trace-id, 1, parent-id, 2, flags


def look(payload: bytes) -> bool | None:
    """Return whether a message may have trace context: None if it has none, False if its sender has not sampled it. The
    one look at a message that is not traced: nothing is decoded. True may be wrong; `carrier` decides."""
    at = payload.find(_NAME)
    if at < 0:
        return None
    if len(payload) > _SHORT:
        try:
            if at >= front_end(payload):
                return None
        except AmqpError:
            return True
    return _UNSAMPLED.match(payload, at) is None


def look_at_all(payloads: Sequence[bytes]) -> bool:
    """Return False if none of the messages, which came or left together, has trace context: one search for all."""
    return _NAME in b"".join(payloads)


def carrier(sections: Sections) -> dict[str, str]:
    """Return the trace context of a message as text, empty without one. Raises AmqpError for a front that cannot be
    decoded. The values are what the sender wrote: only their form on AMQP has been checked."""
    for values in (sections.annotations, sections.application_properties):
        found = context_of(values)
        if found:
            return found
    return {}


def context_of(values: dict[Any, Any]) -> dict[str, str]:
    """Return `traceparent` and perhaps `tracestate` of annotations or properties as text, empty without the first."""
    parent = _parent_text(values.get(TRACEPARENT))
    if parent is None:
        return {}
    state = _state_text(values.get(TRACESTATE))
    return {TRACEPARENT: parent} if state is None else {TRACEPARENT: parent, TRACESTATE: state}


def _parent_text(value: Any) -> str | None:
    if isinstance(value, str):
        return str(value)
    if not isinstance(value, bytes):
        return None
    if len(value) == _BINARY_SIZE and (value[1], value[18], value[27]) == (0, 1, 2):
        return f"{value[0]:02x}-{value[2:18].hex()}-{value[19:27].hex()}-{value[28]:02x}"
    return value.decode("ascii", "replace")


def _state_text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = ",".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    return str(value) if isinstance(value, str) and len(value) <= MAX_STATE else None
