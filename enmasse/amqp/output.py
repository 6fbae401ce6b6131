"""Output of a connection: frames that wait for the next flush, and whether the peer reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.frames import HEADER
from enmasse.amqp.codec.performatives import Close, Detach, End, encode_performative

MANY = 2048  # buffers of output in one turn
_SPILL = 256 * 1024  # output that is handed to the socket before the turn ends


def _ignore() -> None: ...


class Output:
    """The output of one connection. Append to `buffers` by hand, then call `spill` if it is much, and `wake`."""

    __slots__ = (
        "_spilled",
        "agreed",
        "blocked",
        "buffers",
        "dirty",
        "due",
        "max_frame",
        "on_dirty",
        "on_spill",
        "sent",
        "shut",
    )

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        """The largest frame we send; never larger than the peer wants, once that is `agreed`."""
        self.agreed = False
        self.buffers: list[bytes | memoryview] = []
        self.due: dict[int, None] = {}
        """Channels of sessions that have dispositions or flows to send at the next flush."""
        self.dirty = False
        """The skin knows that there is output."""
        self.blocked = False
        """The peer does not read."""
        self.shut = False
        """The local close is sent, or the connection has ended: no further performative is sent."""
        self.sent = True
        """Something has left since this was set to False."""
        self.on_dirty: Callable[[], None] = _ignore
        self.on_spill: Callable[[], None] | None = None
        self._spilled = 0

    def wake(self) -> None:
        """There is output: the skin flushes at the end of the read or of this turn of the loop."""
        if not self.dirty:
            self.dirty = True
            self.on_dirty()

    def touch(self, channel: int) -> None:
        """The session on this channel has something to send at the next flush."""
        self.due[channel] = None
        if not self.dirty:
            self.wake()

    def put(self, data: bytes) -> None:
        """Append an encoded frame."""
        self.buffers.append(data)
        if not self.dirty:
            self.wake()

    def send(self, channel: int, performative: Any) -> None:
        """One frame without payload. Raises AmqpError if it does not fit into the peer's frames."""
        if self.shut:
            return
        body = encode_performative(performative)
        size = len(body) + 8
        if size > self.max_frame and type(performative) in (Detach, End, Close) and performative.error:
            # The text may come from another peer, which must not be able to break this connection with it.
            body = encode_performative(replace(performative, error=performative.error.shortened()))
            size = len(body) + 8
        if size > self.max_frame and self.agreed:
            raise AmqpError(
                errors.FRAME_SIZE_TOO_SMALL,
                f"{type(performative).__name__} of {size} bytes, the peer takes frames of {self.max_frame}",
            )
        self.put(HEADER(size, 2, 0, channel) + body)

    def spill(self, size: int) -> None:
        """A lot of output: hand it over before the turn ends, so that the socket can block when it is too much."""
        self._spilled += size
        if self._spilled < _SPILL and len(self.buffers) <= MANY:
            return
        self._spilled = 0
        if self.on_spill is not None:
            self.on_spill()
        else:
            self.blocked = True

    def take(self) -> bytes:
        """Remove and return all bytes, joined."""
        self._spilled = 0
        buffers = self.buffers
        if not buffers:
            return b""
        data = b"".join(buffers) if len(buffers) > 1 else bytes(buffers[0])
        buffers.clear()
        self.sent = True
        return data

    def let_go(self) -> None:
        """Release the hooks of the transport: they are not called again."""
        self.on_dirty = _ignore
        self.on_spill = None
