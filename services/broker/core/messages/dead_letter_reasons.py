"""Why a message became a dead letter: the annotation DEATH (docs/configuration.md)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple

from enmasse.amqp.codec.types import Timestamp, UInt
from enmasse.amqp.messages.scan import MESSAGE_ANNOTATIONS
from enmasse.identity.annotations import DEATH
from services.broker.core.messages.leading_sections import readable

MAX_TEXT: Final = 500
"""Characters of a text that a consumer states."""
_MOST: Final = 0xFFFFFFFF


class Reason(StrEnum):
    """Why a message was not delivered."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    TOO_OFTEN = "delivered-too-often"
    UNDELIVERABLE = "undeliverable"
    """No consumer may have it: each has modified it with undeliverable-here, or it cannot be decoded."""
    NO_ROUTE = "no-route"
    """No queue of the address took it."""
    BY_ORDER = "by-order"
    """An operator has sent it to the dead-letter address."""


class Death(NamedTuple):
    """Reason and circumstances. `condition` and `description` of the error that a consumer has stated; `consumer`: its
    container-id."""

    reason: Reason
    condition: str = ""
    description: str = ""
    consumer: str = ""


def annotation(payload: bytes, death: Death, source: str, now_ms: int) -> dict[str, Any]:
    """Return the annotation for a message that died at the address `source`, at this time (milliseconds since 1970).
    It extends that of an earlier death."""
    known = readable(payload, MESSAGE_ANNOTATIONS)
    earlier = known.get(DEATH) if isinstance(known, dict) else None
    count, first = 0, now_ms
    if isinstance(earlier, dict):
        count, first = _number(earlier.get("count"), 0), _number(earlier.get("first"), now_ms)
    value: dict[str, Any] = {"reason": str(death.reason), "source": source}
    for key, text in (
        ("condition", death.condition), ("description", death.description), ("consumer", death.consumer)
    ):  # fmt: skip
        if text:
            value[key] = text[:MAX_TEXT]
    value["count"] = UInt(min(count + 1, _MOST))
    value["first"], value["last"] = Timestamp(first), Timestamp(now_ms)
    return {DEATH: value}


def _number(value: Any, default: int) -> int:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else default
