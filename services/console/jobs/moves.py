"""Moves from a queue of one broker to a queue of another (docs/contracts.md, "Moves between brokers").

The source holds each message until the target has stored its copy. Copies are named by delivery-tags, by which the
target recognises a repeated one: if a broker is killed, the same messages are carried again, and stored once.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import msgspec
from proton import symbol

from enmasse.amqp.termini import MOVES
from enmasse.control import ControlConnection, ControlError, Delivery, Outcome
from enmasse.control.errors import LinkClosed
from enmasse.control.link import ControlLink, ControlReceiver, ControlSender
from enmasse.model.moves import MoveOrder
from services.console.errors import RequestError
from services.console.following.followers import Live
from services.console.jobs.jobs import Running

WINDOW = 200
"""Messages under way: these may be in both queues if the console is killed."""
AWAY = 60.0
"""Seconds a broker may be away before the move fails."""
AGAIN = 0.5
STALLED = 30.0
"""Seconds without an outcome after which the move fails."""
COUNTED = 10 * WINDOW
"""Names of counted messages that are remembered, because a lost broker may send them a second time."""
OPENING = 10.0
LOOK, ENDING = 0.2, 2.0
"""Seconds between two looks whether the job is to stop, and for outcomes when it is."""


async def carry(live: Live, source: str, target: str, queue: str, to: str, order: MoveOrder, job: Running) -> None:
    """Move messages from `queue` at the broker `source` to `to` at `target`, until these are all or the job is to stop.
    A broker that is lost is waited for, also at another endpoint. Raises RequestError."""
    first, known = job.done, dict[bytes, None]()
    moved, since = job.done, time.monotonic()
    while not job.stopped:
        left = None if order.limit is None else order.limit - (job.done - first)
        if left is not None and left <= 0:
            return
        try:
            here, there = await live.node(source).reached(), await live.node(target).reached()
            carrier = _Carrier(job, known, f"{queue[:200]!r} to {to[:200]!r}")
            text = msgspec.json.encode(msgspec.structs.replace(order, limit=left)).decode()
            if await carrier.run(here, there, queue, to, text):
                return
        except RequestError as error:
            if error.id != "console.service.unavailable" or _late(since):
                raise
        if job.done != moved:
            moved, since = job.done, time.monotonic()
        elif _late(since):
            raise RequestError("console.service.unavailable", "a broker was lost; look, and repeat")
        await asyncio.sleep(AGAIN)


def _late(since: float) -> bool:
    return time.monotonic() - since > AWAY


class _Carrier:
    """One pair of links. `known`: names of messages that are counted."""

    def __init__(self, job: Running, known: dict[bytes, None], what: str) -> None:
        self._job = job
        self._known = known
        self._what = what
        self._under_way = 0
        self._refusal: str | None = None
        self._changed = asyncio.Event()
        self._sender: ControlSender | None = None

    async def run(self, source: ControlConnection, target: ControlConnection, queue: str, to: str, order: str) -> bool:
        """Carry messages to the end. Return False if a connection was lost. Raises RequestError."""
        links: list[ControlLink] = []
        try:
            sender = self._sender = target.sender(to, configure=partial(_state, True))
            links.append(sender)
            async with asyncio.timeout(OPENING):
                await sender.opened()
            _check(sender, to)
            receiver = source.receiver(queue, window=0, configure=partial(_state, order))
            links.append(receiver)
            receiver.on_message = self._received
            for link in links:
                link.on_closed = self._ended
            async with asyncio.timeout(OPENING):
                await receiver.opened()
            _check(receiver, queue)
            receiver.window = WINDOW
            receiver.grant(WINDOW)
            await self._settled(receiver, sender)
        except (ControlError, TimeoutError) as error:
            if isinstance(error, TimeoutError) or _is_lost(error, source, target):
                return False
            raise RequestError("console.change.refused", f"{self._what} is refused: {error}") from None
        finally:
            for link in reversed(links):
                link.close()
        return True

    async def _settled(self, receiver: ControlReceiver, sender: ControlSender) -> None:
        """Wait for the end. Raises ControlError, RequestError."""
        moved = time.monotonic()
        while True:
            self._changed.clear()
            if sender.error is not None:
                raise sender.error
            if receiver.closed and receiver.error is not None and receiver.error.condition != "detached":
                raise receiver.error
            if not self._under_way and (receiver.closed or self._job.stopped or self._refusal):
                break
            try:
                async with asyncio.timeout(LOOK):
                    await self._changed.wait()
                moved = time.monotonic()
            except TimeoutError:
                idle = time.monotonic() - moved
                if self._job.stopped and idle > ENDING:
                    break  # the target takes nothing: messages under way stay held, and go back with the link
                if self._under_way and idle > STALLED:
                    text = f"{self._what}: no message was taken for {STALLED:.0f} seconds: the queue may be full"
                    raise RequestError("console.service.failed", text) from None
        if self._refusal is not None:
            raise RequestError("console.change.refused", f"{self._what}: the other broker refuses: {self._refusal}")

    def _received(self, delivery: Delivery) -> None:
        if self._job.stopped or self._refusal is not None or self._sender is None or self._sender.closed:
            delivery.release()
            return
        tag = delivery.tag
        self._under_way += 1
        self._sender.send(delivery.data, partial(self._answered, delivery, tag), tag=tag)

    def _answered(self, delivery: Delivery, tag: bytes, outcome: Outcome) -> None:
        self._under_way -= 1
        if outcome.accepted:
            delivery.accept()
            if tag not in self._known:
                self._job.done += 1
                self._known[tag] = None
                while len(self._known) > COUNTED:
                    del self._known[next(iter(self._known))]
        elif outcome.state:
            delivery.release()
            self._refusal = outcome.description or repr(outcome)
        # without a state the link was lost: whether the target has the copy is unknown, so the message stays held
        self._changed.set()

    def _ended(self, _: LinkClosed) -> None:
        self._changed.set()


def _state(value: Any, link: Any) -> None:
    link.properties = {symbol(MOVES): value}


def _check(link: ControlLink, queue: str) -> None:
    """Raise RequestError if the broker has no moves between brokers."""
    if link.remote_properties.get(MOVES) is not True:
        text = f"the broker of {queue[:200]!r} cannot exchange messages with other brokers: it is Artemis, or too old"
        raise RequestError("console.change.refused", text)


def _is_lost(error: ControlError, source: ControlConnection, target: ControlConnection) -> bool:
    return not (source.is_open and target.is_open) or error.condition.startswith("amqp:connection")
