"""A delivery that is sent in pieces, or that waits for room (OASIS AMQP 1.0, 2.6.14)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.frames import NULL, pack_u32, performative, uint

Piece = bytes | memoryview


class Outgoing:
    """One delivery being sent: a whole message that waits for room, or pieces as they come (`Sender.begin`)."""

    __slots__ = (
        "_bytes",
        "_complete",
        "_held_back",
        "_pieces",
        "_want_pump",
        "aborted",
        "delivery_id",
        "message_format",
        "settled",
        "state",
        "tag",
        "token",
    )

    def __init__(
        self,
        want_pump: Callable[[], None],
        held_back: Callable[[bool], bool],
        token: Any,
        settled: bool,
        tag: bytes | None,
        message_format: int,
        state: bytes,
    ) -> None:
        """`want_pump` has the sender send what waits; `held_back` states whether no more is welcome."""
        self._want_pump = want_pump
        self._held_back = held_back
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
        """True while something written still waits for the peer's window or its reading: stop writing.
        `on_flow(link)` or `on_writable(connection)` is called when it has left."""
        return self._held_back(self._bytes > 0)

    def write(self, chunk: Piece) -> bool:
        """Append a piece; True if more is welcome (see `blocked`). Never refuses, so the caller holds the bound.

        What is written to an aborted delivery, or to one whose link has gone, is dropped. Raises AmqpError after
        `finish`."""
        if self.aborted:
            return False
        if self._complete:
            raise AmqpError(errors.ILLEGAL_STATE, "this delivery is finished")
        if len(chunk):
            self._pieces.append(chunk)
            self._bytes += len(chunk)
            self._want_pump()
        return not self.blocked

    def finish(self) -> None:
        """Mark the delivery as complete: the last frame is sent as soon as possible."""
        if not self._complete:
            self._complete = True
            self._want_pump()

    def abort(self) -> None:
        """Take it back: the peer forgets what it has got. No outcome will come."""
        if self._complete and not self._bytes and self.delivery_id >= 0:
            return  # gone already
        self.cut()
        self._want_pump()

    # --- for its sender -----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Abort: only the last frame, which aborts the delivery, is still sent."""
        self._pieces.clear()
        self._bytes = 0
        self._complete = True
        self.aborted = True

    def fill(self, payload: bytes) -> None:
        """Give the whole payload at once, and complete the delivery."""
        if payload:
            self._pieces.append(payload)
            self._bytes = len(payload)
        self._complete = True

    @property
    def head(self) -> Piece:
        """The first piece that waits, empty without one."""
        return self._pieces[0] if self._pieces else b""

    @property
    def waiting(self) -> int:
        """Bytes that were written and have not left."""
        return self._bytes

    @property
    def ready(self) -> bool:
        """True if a frame can be made of it."""
        return self._complete or self._bytes > 0

    def next_frame(self, handle: bytes, room: int) -> tuple[list[Piece], int, bool]:
        """Return the next frame without its header: (buffers, size, last). `room` is what a frame may hold after its
        header. `delivery_id` has been set before the first. Raises AmqpError if the peer's frames are too small for the
        head of a transfer."""
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
        fields = [handle, b"\x70" + pack_u32(self.delivery_id)]
        if first:
            tag = self.tag or b""
            fields += [b"\xa0" + bytes((len(tag),)) + tag, uint(self.message_format)]
        else:
            fields += [NULL, NULL]
        fields += [b"\x41" if self.settled else b"\x42", b"\x42" if last else b"\x41"]
        if self.aborted or (first and self.state):
            fields += [
                NULL,
                self.state if first and self.state else NULL,
                NULL,
                b"\x41" if self.aborted else b"\x42",
            ]
        self.tag = None
        buffers[0] = performative(0x14, fields)
        return buffers, size + len(buffers[0]), last
