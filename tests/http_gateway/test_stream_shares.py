"""What the streams of one user cost the others: turns, bytes that are being written, and bytes that wait."""

from __future__ import annotations

import asyncio

from services.http_gateway.api.event_stream import BEHIND, WINDOW_BYTES, EventStream, StreamKind
from services.http_gateway.api.stream_shares import KEPT, WRITING, StreamShare
from tests.amqp.engine_kit import Pair
from tests.kit.running import asyncio_test

MANY = 900


@asyncio_test
async def test_a_user_with_many_streams_takes_turns_with_one_that_has_one() -> None:
    greedy, other = StreamShare(), StreamShare()
    greedy.streams, other.streams = MANY, 1
    order: list[str] = []

    async def write(share: StreamShare, who: str) -> None:
        async with share.turn(300_000):
            order.append(who)

    writing = [asyncio.ensure_future(write(greedy, "greedy")) for _ in range(MANY)]
    await asyncio.gather(write(other, "other"), *writing)
    assert order.index("other") <= 2 and len(order) == MANY + 1


@asyncio_test
async def test_clients_that_do_not_read_hold_back_those_of_their_user_alone() -> None:
    mine, others = StreamShare(), StreamShare()
    mine.streams = others.streams = 10
    reads = asyncio.Event()
    begun: list[int] = []

    async def slow(number: int) -> None:
        async with mine.turn(WRITING // 4):
            begun.append(number)
            await reads.wait()

    writing = [asyncio.ensure_future(slow(number)) for number in range(10)]
    while len(begun) < 4:
        await asyncio.sleep(0)
    for _ in range(10):
        async with others.turn(WRITING):
            pass
    assert begun == [0, 1, 2, 3]
    for each in writing[:2]:  # clients that have left, one of them while it waits
        each.cancel()
    writing[9].cancel()
    while len(begun) < 6:
        await asyncio.sleep(0)
    assert begun == [0, 1, 2, 3, 4, 5]
    reads.set()
    await asyncio.gather(*writing, return_exceptions=True)
    assert begun == list(range(9))
    async with mine.turn(10 * WRITING):
        pass  # one that is larger than all may have goes alone


def test_what_waits_for_many_streams_of_a_user_is_bounded_together() -> None:
    """Streams of a multicast address lose their oldest messages; those of topics get less credit."""
    share, kept = StreamShare(), 0

    def count(size: int) -> None:
        nonlocal kept
        kept += size

    pair = Pair()
    streams = []
    for number in range(40):
        stream = EventStream(StreamKind.MULTICAST, share, count)
        stream.attached_by(pair.receiver(f"r{number}", window=0))
        streams.append(stream)
    pair.run()
    size = BEHIND // 10
    for _ in range(9):
        for number in range(len(streams)):
            pair.remote(f"r{number}").send(b"x" * size, settled=True)
        pair.run()
    assert share.bytes == kept <= KEPT + len(streams) * size < len(streams) * 9 * size
    assert all(stream.waiting and stream.dropped for stream in streams[-5:])
    share.streams = 1
    assert share.window(WINDOW_BYTES) == WINDOW_BYTES
    share.streams = 1000
    assert 1000 * share.window(WINDOW_BYTES) <= KEPT
