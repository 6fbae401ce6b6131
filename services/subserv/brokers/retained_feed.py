"""Retained messages from one broker, in the broker's order: its queue `$sub/<broker>/retained.feed@<suite>`.

A message is accepted when it is stored. If an unexpected error keeps it from being stored it is rejected, so that the
broker keeps it among its dead letters if there is an address for them. `mark()` sends a message of our own through the
queue: when it returns, every retained message that was acknowledged to its publisher before has been stored.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence

import proton

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.sections import Sections
from enmasse.control import ConnectionLost, ControlConnection, ControlError, Delivery, LinkClosed
from enmasse.control.errors import INTERNAL_ERROR
from enmasse.control.link import ControlReceiver, ControlSender
from enmasse.logs import log
from enmasse.stores import StoreError
from services.subserv.request_bodies import FAILED

WINDOW = 128
LARGE = 1024 * 1024 + 1
"""Bytes of a message that are kept until it is looked at: enough to see that it is too large."""
MARKER = "retained-marker"
AGAIN = 1.0
"""Seconds until messages are tried again that could not be stored."""

Store = Callable[[str, Sequence[tuple[int, bytes]]], Awaitable[None]]
"""Stores messages of a broker, each with its position. Raises StoreError."""
Positions = Iterator[int]
"""Numbers that grow, for the messages of all feeds of the process: those of a feed that replaces another one, because
its broker was replaced, are higher than all before."""


class RetainedFeed:
    """The feed of one broker, over one connection after the other."""

    def __init__(self, broker: str, store: Store, positions: Positions) -> None:
        self.broker = broker
        self.attached = False
        self.position = next(positions)
        """Position of the last message that has come; at first behind all that came over feeds before this one."""
        self.failures = 0
        """Unexpected errors: each has rejected one message, or has restarted the feed."""
        self._store = store
        self._positions = positions
        self._receiver: ControlReceiver | None = None
        self._sender: ControlSender | None = None
        self._markers: dict[str, asyncio.Future[int]] = {}
        self._numbers = itertools.count(1)
        self._own = uuid.uuid4().hex
        self._waiting: list[Delivery] = []
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def attach(self, connection: ControlConnection, address: str) -> None:
        """Attach to the feed over a connection. Raises LinkClosed, ConnectionLost."""
        self._sender = sender = connection.sender(address)
        self._receiver = receiver = connection.receiver(address, window=WINDOW)
        receiver.on_message = self._on_message
        await sender.opened()
        await receiver.opened()
        receiver.on_closed = sender.on_closed = lambda _: self._closed(connection)
        self.attached = True
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(lambda task: self._ended(task, connection))

    def _ended(self, task: asyncio.Task[None], connection: ControlConnection) -> None:
        """Handle the unexpected end of the task: attach again and read everything from the beginning."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures += 1
            log.get(broker=self.broker).error("subserv.feed.restarted", exc_info=error)
            if self._task is task:
                self._closed(connection)

    def _closed(self, connection: ControlConnection) -> None:
        """Handle a lost link, as after a deletion of the queue: read everything from the beginning."""
        if self.attached:
            self.lost()
            connection.close()

    def detach(self) -> None:
        """Close the links, over a connection that lives: what has come and is not stored goes back to the queue."""
        for link in (self._receiver, self._sender):
            if link is not None:
                link.on_closed = lambda _: None
                link.close()
        if self._receiver is not None:
            self._receiver.on_message = lambda _: None
        self.lost()

    def lost(self) -> None:
        """Note that the connection was lost."""
        self.attached = False
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._waiting = []
        markers, self._markers = self._markers, {}
        for future in markers.values():
            if not future.done():
                future.set_exception(ConnectionLost("connection lost", f"broker {self.broker}"))
                future.exception()

    def mark(self) -> asyncio.Future[int]:
        """Return a future of the position in the feed of a message that is sent now; its exception is
        ConnectionLost, if any. Raises LinkClosed."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        number = f"{self._own}:{next(self._numbers)}"
        message = proton.Message(subject=MARKER, correlation_id=number, body=None)
        try:
            if not self.attached or self._sender is None:
                raise LinkClosed("closed", "the feed is not attached")
            self._sender.send(message, lambda outcome: self._sent(number, outcome.accepted))
        except ControlError as error:
            future.set_exception(ConnectionLost(error.condition, error.description))
            future.exception()
        else:
            self._markers[number] = future
        return future

    def _sent(self, number: str, accepted: bool) -> None:
        future = None if accepted else self._markers.pop(number, None)
        if future is not None and not future.done():
            future.set_exception(ConnectionLost("refused", f"broker {self.broker} takes no messages for {MARKER}"))
            future.exception()

    def _on_message(self, delivery: Delivery) -> None:
        if len(delivery.data) > LARGE:
            delivery.data = delivery.data[:LARGE]
        self._waiting.append(delivery)
        self._work.set()

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            batch, self._waiting = self._waiting, []
            messages: list[tuple[int, bytes]] = []
            at: dict[int, int] = {}
            arrived: list[tuple[asyncio.Future[int], int]] = []
            for delivery in batch:
                marker = _marker(delivery.data)
                if marker is None:
                    self.position = next(self._positions)
                    at[id(delivery)] = self.position
                    messages.append((self.position, delivery.data))
                elif (future := self._markers.pop(marker, None)) is not None:
                    arrived.append((future, self.position))
            refused = await self._keep(messages) if messages else set()
            for delivery in batch:
                if id(delivery) in at and at[id(delivery)] in refused:
                    delivery.reject(INTERNAL_ERROR, FAILED)
                else:
                    delivery.accept()
            for future, position in arrived:
                if not future.done():
                    future.set_result(position)

    async def _keep(self, messages: Sequence[tuple[int, bytes]]) -> set[int]:
        """Store these; return the positions of those that an unexpected error has kept from being stored."""
        while True:
            try:
                await self._store(self.broker, messages)
                return set()
            except StoreError as error:
                log.get(broker=self.broker).error("subserv.retained.not-stored", reason=str(error))
                await asyncio.sleep(AGAIN)
            except Exception as error:
                if len(messages) == 1:
                    self.failures += 1
                    log.get(broker=self.broker).error("subserv.retained.not-processed", exc_info=error)
                    return {messages[0][0]}
                break
        refused: set[int] = set()
        for each in messages:
            refused |= await self._keep([each])
        return refused


def _marker(data: bytes) -> str | None:
    """Return the number of a marker; None for another message."""
    try:
        properties = Sections(data).properties
    except AmqpError:
        return None
    if properties.subject != MARKER or properties.to is not None:
        return None
    return properties.correlation_id if isinstance(properties.correlation_id, str) else None
