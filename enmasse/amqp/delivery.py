"""Deliveries in pieces: Outgoing (ours to a peer) and Partial (a peer's to us), and the head of a transfer."""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any

from enmasse.amqp import errors
from enmasse.amqp.errors import AmqpError

if TYPE_CHECKING:
    from enmasse.amqp.link import Receiver, Sender

Piece = bytes | memoryview

_U32 = Struct(">I").pack
_NULL = b"\x40"


def uint(value: int) -> bytes:
    """Shortest encoding of an unsigned 32 bit number (1.6.5)."""
    if value == 0:
        return b"\x43"
    if value < 256:
        return b"\x52" + bytes((value,))
    return b"\x70" + _U32(value)


def performative(code: int, fields: list[bytes]) -> bytes:
    """A described list of encoded fields, list8 where it fits."""
    body = b"".join(fields)
    if len(body) < 255 and len(fields) < 256:
        return b"\x00\x53" + bytes((code,)) + b"\xc0" + bytes((len(body) + 1, len(fields))) + body
    return b"\x00\x53" + bytes((code,)) + b"\xd0" + _U32(len(body) + 4) + _U32(len(fields)) + body


class Outgoing:
    """One delivery being sent: a whole message that waits for room, or pieces as they come (`Sender.begin`)."""

    __slots__ = (
        "_bytes",
        "_complete",
        "_pieces",
        "aborted",
        "delivery_id",
        "link",
        "message_format",
        "settled",
        "state",
        "tag",
        "token",
    )

    def __init__(
        self, link: Sender, token: Any, settled: bool, tag: bytes | None, message_format: int, state: bytes
    ) -> None:
        self.link = link
        self.token = token
        self.settled = settled
        self.tag = tag
        self.message_format = message_format
        self.state = state
        self.delivery_id = -1  # known once the first frame has left
        self.aborted = False
        self._pieces: deque[Piece] = deque()
        self._bytes = 0
        self._complete = False

    @property
    def blocked(self) -> bool:
        """True while something written still waits for the peer's window or its reading: write no more.
        `on_flow(link)` or `on_writable(connection)` tells when it has left."""
        if self._bytes > 0 or self.link.session.connection.blocked:
            self.link._starved = self.link.session._starved = True
            return True
        return False

    def write(self, chunk: Piece) -> bool:
        """Append a piece; True if more is welcome (see `blocked`). Never refuses, so the caller holds the bound."""
        if self._complete:
            raise AmqpError(errors.ILLEGAL_STATE, "this delivery is finished")
        if len(chunk):
            self._pieces.append(chunk)
            self._bytes += len(chunk)
            self.link._want_pump()
        return not self.blocked

    def finish(self) -> None:
        """No more pieces: the last frame leaves as soon as it may."""
        if not self._complete:
            self._complete = True
            self.link._want_pump()

    def abort(self) -> None:
        """Take it back: the peer forgets what it has got. No outcome will come."""
        if self._complete and not self._bytes and self.delivery_id >= 0:
            return  # gone already
        self._cut()
        self.link._want_pump()

    def _cut(self) -> None:
        self._pieces.clear()
        self._bytes = 0
        self._complete = True
        self.aborted = True

    def _ready(self) -> bool:
        """True if a frame can be made of it."""
        return self._complete or self._bytes > 0

    def _frame(self, handle: bytes, room: int) -> tuple[list[Piece], int, bool]:
        """The next frame without its header: (buffers, size, last). `room` is what a frame may hold after its header.
        `delivery_id` has been set before the first."""
        first = self.tag is not None
        size = 0
        buffers: list[Piece] = [b""]
        head_room = 48 + (len(self.tag) + len(self.state) if self.tag is not None else 0)
        space = room - head_room
        if space < 1:
            raise AmqpError(
                errors.FRAME_SIZE_TOO_SMALL, f"the peer's frames cannot hold a transfer of {head_room} bytes"
            )
        pieces = self._pieces
        while pieces and space > 0 and not self.aborted:
            piece = pieces.popleft()
            if len(piece) > space:
                view = memoryview(piece)
                pieces.appendleft(view[space:])
                piece = view[:space]
            buffers.append(piece)
            size += len(piece)
            space -= len(piece)
        self._bytes -= size
        last = self._complete and not self._bytes
        fields = [handle, b"\x70" + _U32(self.delivery_id)]
        if first:
            tag = self.tag or b""
            fields += [b"\xa0" + bytes((len(tag),)) + tag, uint(self.message_format)]
        else:
            fields += [_NULL, _NULL]
        fields += [b"\x41" if self.settled else b"\x42", b"\x42" if last else b"\x41"]
        if self.aborted or (first and self.state):
            fields += [
                _NULL,
                self.state if first and self.state else _NULL,
                _NULL,
                b"\x41" if self.aborted else b"\x42",
            ]
        self.tag = None
        buffers[0] = performative(0x14, fields)
        return buffers, size + len(buffers[0]), last


class Partial:
    """One delivery that comes in several frames on a streaming link. Fields are as of the last piece.

    `done`: the last piece is here. `aborted`: the sender took it back, or the link was lost: forget it.
    """

    __slots__ = (
        "_discard",
        "_frames",
        "_pieces",
        "_told",
        "_waiting",
        "aborted",
        "context",
        "delivery_id",
        "done",
        "link",
        "message_format",
        "settled",
        "size",
        "tag",
    )

    def __init__(self, link: Receiver, delivery_id: int, tag: bytes, message_format: int, settled: bool) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.settled = settled
        self.done = False
        self.aborted = False
        self.size = 0
        self.context: Any = None
        self._pieces: list[bytes] = []
        self._waiting = 0  # cost of what was not taken, as counted in Connection._partial_bytes
        self._frames = 0
        self._discard = False
        self._told = False  # on_partial was called

    @property
    def waiting(self) -> int:
        """Bytes that have come and were not taken."""
        return sum(map(len, self._pieces))

    def take(self) -> bytes:
        """What has come since the last call. The peer may send as much again: leave it to hold the peer back."""
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._release()
        return data

    def _release(self) -> None:
        """Forget what waits and give its share of the session's window back."""
        self._pieces = []
        waiting, frames = self._waiting, self._frames
        self._waiting = self._frames = 0
        session = self.link.session
        session.connection._forget_partial(waiting, frames > 0)
        if frames:
            session._consumed(frames)
