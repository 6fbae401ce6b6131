"""The account of unsettled messages as a receiver uses it: its own, or that of all receivers of a query.

One receiver has its account itself. Of several, the first has the account of all; the others ask it over a socket pair
that the reader made when it started them: frames of a length (4 bytes, big-endian) and a MessagePack array, in order.
A receiver that ends without saying so ends the others: what it had stored by then is known only when all are started
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from enmasse.spark.errors import QueryError
from enmasse.spark.receiver.unsettled import Unsettled

ENDED = "amqp source: another receiver of the query has ended"
Decided = Callable[[int, int], None]
"""Called with delivery-id and verdict of a message that was to be decided LATER."""


class AccountError(QueryError):
    """Another receiver of the query has ended."""


class Account(Protocol):
    """Account as one receiver sees it: the methods of enmasse.spark.receiver.unsettled.Unsettled for that receiver."""

    decided: Decided

    @property
    def compares(self) -> bool:
        """Whether claims need keys."""

    def connected(self, reports: bool) -> None:
        """Note a new connection."""

    async def claim(self, claims: Sequence[tuple[int, bytes]]) -> list[int]:
        """Return what becomes of messages."""

    def stored(self, records: Sequence[tuple[int, int]], count: int) -> None:
        """Note what has become a record."""

    def settled(self, delivery_ids: Iterable[int]) -> None:
        """Note what will not be redelivered."""

    async def lost(self) -> None:
        """Note that the connection is gone. Raises OSError."""

    async def keep(self, end: int) -> None:
        """Keep the keys of records before `end`. Raises OSError."""


class OwnAccount:
    """Account in this process, of the first receiver."""

    def __init__(self, unsettled: Unsettled) -> None:
        self._unsettled = unsettled
        self.decided: Decided = lambda delivery_id, verdict: None

    @property
    def compares(self) -> bool:
        """Whether claims need keys."""
        return self._unsettled.compares

    def connected(self, reports: bool) -> None:
        """Note a new connection."""
        self._unsettled.connected(0, reports)

    async def claim(self, claims: Sequence[tuple[int, bytes]]) -> list[int]:
        """Return what becomes of messages."""
        return self._unsettled.claim(0, claims)

    def stored(self, records: Sequence[tuple[int, int]], count: int) -> None:
        """Note what has become a record."""
        self._unsettled.stored(0, records, count)

    def settled(self, delivery_ids: Iterable[int]) -> None:
        """Note what will not be redelivered."""
        self._unsettled.settled(0, delivery_ids)

    async def lost(self) -> None:
        """Note that the connection is gone. Raises OSError."""
        self._unsettled.lost(0)

    async def keep(self, end: int) -> None:
        """Keep the keys of records before `end`. Raises OSError."""
        self._unsettled.keep(0, end)


class SocketFrames:
    """Frames over one end of a socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, file: int) -> SocketFrames:
        """Return the frames over a socket that was inherited."""
        return cls(*await asyncio.open_connection(sock=socket.socket(fileno=file)))

    def send(self, *frame: Any) -> None:
        """Send a frame; nothing happens if the other end is gone, which `next` tells."""
        data = msgspec.msgpack.encode(frame)
        with contextlib.suppress(ConnectionError):
            self._writer.write(len(data).to_bytes(4, "big") + data)

    async def next(self) -> list[Any]:
        """Return the next frame. Raises AccountError if the other end is gone."""
        try:
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            frame: list[Any] = msgspec.msgpack.decode(await self._reader.readexactly(length))
            return frame
        except (asyncio.IncompleteReadError, ConnectionError):
            raise AccountError(ENDED) from None

    async def close(self) -> None:
        """Send what waits, and close."""
        with contextlib.suppress(ConnectionError):
            self._writer.close()
            await self._writer.wait_closed()


class SharedAccount:
    """Account in the process of the first receiver. `run` must run beside it."""

    compares = True

    def __init__(self, frames: SocketFrames) -> None:
        self._frames = frames
        self._replies: deque[asyncio.Future[Any]] = deque()
        self.decided: Decided = lambda delivery_id, verdict: None

    async def opened(self, count: int) -> None:
        """Report that the partition is open with its number of records; return when all are. Raises AccountError."""
        self._frames.send("opened", count)
        await self._frames.next()

    async def run(self) -> None:
        """Take replies until the other end is gone. Raises AccountError."""
        try:
            while True:
                what, *values = await self._frames.next()
                if what == "decided":
                    self.decided(*values)
                elif not (reply := self._replies.popleft()).done():
                    reply.set_result(values[0])
                    await asyncio.sleep(0)  # the caller takes note of it before a later decision about it comes
        finally:
            for reply in self._replies:
                reply.cancel()

    def connected(self, reports: bool) -> None:
        """Note a new connection."""
        self._frames.send("connected", reports)

    async def claim(self, claims: Sequence[tuple[int, bytes]]) -> list[int]:
        """Return what becomes of messages."""
        verdicts: list[int] = await self._asked("claim", claims)
        return verdicts

    def stored(self, records: Sequence[tuple[int, int]], count: int) -> None:
        """Note what has become a record."""
        self._frames.send("stored", records, count)

    def settled(self, delivery_ids: Iterable[int]) -> None:
        """Note what will not be redelivered."""
        self._frames.send("settled", list(delivery_ids))

    async def lost(self) -> None:
        """Note that the connection is gone. Raises OSError."""
        await self._written("lost")

    async def keep(self, end: int) -> None:
        """Keep the keys of records before `end`. Raises OSError."""
        await self._written("keep", end)

    async def end(self) -> None:
        """Report that this receiver ends in good order."""
        self._frames.send("end")
        await self._frames.close()

    async def _written(self, *frame: Any) -> None:
        if failed := await self._asked(*frame):
            raise OSError(failed[0], failed[1])

    async def _asked(self, *frame: Any) -> Any:
        reply = asyncio.get_running_loop().create_future()
        self._replies.append(reply)
        self._frames.send(*frame)
        return await reply


async def serve(unsettled: Unsettled, receiver: int, frames: SocketFrames) -> None:
    """Keep the account for another receiver until it ends in good order. Raises AccountError if it ends otherwise."""
    frames.send("ready")
    while True:
        what, *values = await frames.next()
        if what == "claim":
            frames.send("verdicts", unsettled.claim(receiver, values[0]))
        elif what in ("lost", "keep"):
            failed = None
            try:
                getattr(unsettled, what)(receiver, *values)
            except OSError as error:
                failed = (error.errno, error.strerror)
            frames.send("written", failed)
        elif what == "end":
            await frames.close()
            return
        else:
            getattr(unsettled, what)(receiver, *values)


async def serve_all(unsettled: Unsettled, own: OwnAccount, sockets: Sequence[SocketFrames]) -> None:
    """Keep the account for this receiver and the others until these have ended in good order. Raises AccountError if
    one ends otherwise."""

    def decided(receiver: int, delivery_id: int, verdict: int) -> None:
        if receiver:
            sockets[receiver - 1].send("decided", delivery_id, verdict)
        else:
            own.decided(delivery_id, verdict)

    unsettled.decided = decided
    clock = asyncio.create_task(_time_passes(unsettled))
    try:
        async with asyncio.TaskGroup() as group:
            for n, frames in enumerate(sockets, 1):
                group.create_task(serve(unsettled, n, frames))
    except BaseExceptionGroup as errors:  # except* of Python before 3.11.4 raises a group of what is raised in it
        found, others = errors.split(QueryError)
        if found is None or others is not None:
            raise
        raise found.exceptions[0] from None
    finally:
        clock.cancel()


async def _time_passes(unsettled: Unsettled) -> None:
    loop = asyncio.get_running_loop()
    while True:
        unsettled.passed(loop.time())
        await asyncio.sleep(1)
