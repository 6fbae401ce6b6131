"""Which messages of a subscription are settled, after how much that the client's host has acknowledged."""

from __future__ import annotations

import pytest

from services.http_gateway.api.event_stream import (
    ALL_NEWEST,
    MOST_NEWEST,
    NEWEST,
    RECENT,
    UNREAD,
    EventStream,
    StreamKind,
)
from services.http_gateway.api.stream_shares import StreamShare
from tests.amqp.engine_kit import Pair

TOTAL = MOST_NEWEST + 300


@pytest.mark.parametrize(
    ("size", "streams", "kept"),
    [
        (100, 1, MOST_NEWEST),
        (UNREAD // 128, 1, 128),
        (UNREAD, 1, NEWEST),
        (100, 50, ALL_NEWEST // 50),
        (100, 2000, NEWEST),
    ],
)
def test_the_newest_are_not_settled_while_they_are_recent(size: int, streams: int, kept: int) -> None:
    pair = Pair()
    link = pair.receiver(window=0)
    stream = EventStream(StreamKind.SUBSCRIPTION, StreamShare(), lambda _: None)
    stream.attached_by(link)
    link.grant(TOTAL)
    pair.run()
    for n in range(TOTAL):
        pair.remote("r").send(b"x")
        pair.run()
        stream.written([stream.take()], size * (n + 1), now=1.0)
    stream.settle(size * 10, 1.0, streams)
    assert link.unsettled == TOTAL - 10, "no more than the host has acknowledged"
    stream.settle(size * TOTAL, 1.0, streams)
    assert link.unsettled == kept
    stream.settle(size * TOTAL, 1.0 + RECENT, streams)
    assert link.unsettled == 0
