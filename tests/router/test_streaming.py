"""Streams, with doubles of the engine's ends: what it may call in the middle of a call is not left to chance."""

from __future__ import annotations

from typing import Any, cast

import pytest

from services.router.routing.links.streaming import HIGH_WATER, Stream


class Incoming:
    """A delivery of several frames of `size` bytes; `ready` of them have come."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames = frames
        self.ready = 0
        self.settled = self.aborted = self.done = False
        self.message_format = 0

    @property
    def waiting(self) -> int:
        return sum(map(len, self.frames[: self.ready]))

    def take(self) -> bytes:
        taken = b"".join(self.frames[: self.ready])
        del self.frames[: self.ready]
        self.ready = 0
        return taken


class Out:
    """A receiver that says that there is room as soon as something has left, which is in the middle of `write`."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.got: list[bytes] = []
        self.blocked = False
        self.aborted = False
        self.finished = 0
        self.sent = 0
        self.stream_limit = 0
        self.exact = False

    def begin_stream(self, token: Any, partial: Any) -> Out:
        return self

    def write(self, chunk: bytes) -> bool:
        self.got.append(chunk)
        self.flow()
        return not self.blocked

    def finish(self) -> None:
        self.finished += 1
        self.flow()

    def stream_sent(self, token: Any) -> None:
        self.sent += 1

    def flow(self) -> None:
        if self.stream is not None:
            self.stream.resume(cast(Any, self))


@pytest.mark.parametrize("receivers", [1, 3])
def test_room_that_is_told_in_the_middle_of_a_write_repeats_and_skips_nothing(receivers: int) -> None:
    frames = [bytes((number,)) * 16_000 for number in range(30)]
    partial = Incoming(list(frames))
    stream = Stream(cast(Any, partial))
    outs = [Out() for _ in range(receivers)]
    for out in outs:
        stream.add(cast(Any, out), None)
        stream.start(cast(Any, out), None)
    for out in outs:
        out.blocked = True
    while len(partial.frames) > partial.ready and stream.held < HIGH_WATER:  # they come and nobody takes them
        partial.ready += 1
        stream.pump()
    assert stream.held >= HIGH_WATER and not any(out.got for out in outs)
    for out in outs:
        out.blocked = False
        out.flow()
    while partial.frames:
        partial.ready += 1
        partial.done = partial.ready == len(partial.frames)
        stream.pump()
    for out in outs:
        assert b"".join(out.got) == b"".join(frames)
        assert out.finished == out.sent == 1 and out.stream is None
    assert stream.held == 0 and not stream.copies
