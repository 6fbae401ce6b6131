"""Outcomes that clients state of messages that they have locked: from a request, and at the lock."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final, Literal

import msgspec

from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Error, Modified, Rejected
from enmasse.amqp.codec.types import Symbol
from services.http_gateway.api.http_problems import Answered
from services.http_gateway.api.locked_deliveries import Locks
from services.http_gateway.wire.http_exchange import BodyTooLarge, BodyTooSlow, HttpExchange

ROUND_TRIP: Final = 10.0
"""Seconds for a broker to give what it has, or to settle."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.-]{1,253}\.[A-Za-z0-9_-]{22}")
_OUTCOMES: Final = ("released", "modified", "rejected", "accepted")


class OutcomeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome, or renewal, that a client states of a lock. `user`: its full name, `address`: as the path has it, both
    of the request."""

    token: str
    user: str
    address: str
    action: Literal["renewed", "released", "modified", "rejected", "accepted"]
    undeliverable_here: bool = False
    condition: str = ""
    description: str = ""

    @property
    def state(self) -> Any:
        """The outcome on AMQP."""
        if self.action == "rejected":
            return Rejected(error=Error(condition=Symbol(self.condition), description=self.description))
        if self.action == "modified":
            return Modified(delivery_failed=True, undeliverable_here=self.undeliverable_here)
        return RELEASED if self.action == "released" else ACCEPTED


def check_form(token: str) -> None:
    """Raise Answered if a text cannot be a token, such as one that was cut off: no gateway is asked then."""
    if not _TOKEN.fullmatch(token):
        text = f"{token[:40]!r} is not the token of a delivery: use the whole `location` that came with the message"
        raise Answered(400, text)


def gone() -> Answered:
    """Return the answer to a token without a lock, whoever's it was."""
    return Answered(410, "the lock was lost: the message is settled, or is given to a receiver again")


async def stated(exchange: HttpExchange) -> dict[str, Any]:
    """Return the outcome that a request states, as fields of OutcomeRequest. Raises Answered."""
    if exchange.head.method != "POST":
        return {"action": "renewed" if exchange.head.method == "PUT" else "accepted"}
    try:
        found = json.loads(await exchange.body(1 << 16))
    except (ValueError, RecursionError, BodyTooLarge, BodyTooSlow):
        found = None
    name = found.get("outcome") if isinstance(found, dict) else None
    if name not in _OUTCOMES:
        raise Answered(400, f'expected {{"outcome": …}} with one of {", ".join(_OUTCOMES)}')
    if name != "rejected":
        return {"action": name, "undeliverable_here": found.get("undeliverable_here") is True}
    condition, text = found.get("condition", "amqp:internal-error"), found.get("description", "")
    if not isinstance(condition, str) or not condition.isascii() or not isinstance(text, str):
        raise Answered(400, "condition and description are strings")
    return {"action": name, "condition": condition[:200], "description": text[:1000]}


async def settle(locks: Locks, asked: OutcomeRequest) -> float:
    """Settle, or renew, a lock of this gateway; return its seconds if it was renewed. Raises Answered."""
    found = locks.tokens.get(asked.token)
    if found is None or found.owner != asked.user or found.address != asked.address:
        raise gone()
    if asked.action == "renewed":
        locks.renew(found)
        return found.seconds
    locks.take(found)
    found.fetch.settle(found, asked.state)
    assert found.settled is not None
    try:
        async with asyncio.timeout(ROUND_TRIP):
            final = await asyncio.shield(found.settled)
    except TimeoutError:
        raise Answered(504, "the broker did not settle the message in time", outcome="unknown") from None
    if not final:
        raise Answered(504, "the link was lost before the broker settled the message", outcome="unknown")
    locks.ended[asked.action] += 1
    return 0.0
