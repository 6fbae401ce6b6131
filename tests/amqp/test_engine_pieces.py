"""The engine back to back with itself: windows, deliveries in pieces, counters that wrap."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Rejected, Transfer
from enmasse.amqp.disposition import ranges
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver
from tests.amqp.engine_kit import Pair, Raw, Recorder, attach, frame, frames


def sent_by_server(pair: Pair, kind: type) -> list[Any]:
    return [p for _, p, _ in frames(pair.to_client) if type(p) is kind]


def sent_by_client(pair: Pair, kind: type) -> list[Any]:
    return [p for _, p, _ in frames(pair.to_server) if type(p) is kind]


# --- windows and pieces -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame_size", [512, 4096, 65536])
def test_large_messages_are_split_and_joined(frame_size: int) -> None:
    pair = Pair(server_fields={"max_frame_size": frame_size}, split=5000)
    link = pair.sender()
    body = bytes(range(256)) * 4000
    link.send(body, "big")
    link.send(b"small", "small")
    while pair.c.blocked or link.sending:
        pair.run()
    pair.run()
    assert pair.server.received == [body, b"small"]
    assert [token for token, _, _ in pair.client.outcomes] == ["big", "small"]
    sizes = [len(payload) for _, p, payload in frames(pair.to_server) if type(p) is Transfer]
    assert max(sizes) < frame_size and len(sizes) >= len(body) // frame_size
    assert pair.s.held.assembling == 0


def test_window_holds_frames_back_and_links_take_turns() -> None:
    pair = Pair(server_fields={"limits": Limits(incoming_window=4), "max_frame_size": 512}, server=Recorder(window=100))
    big, other = pair.sender("big"), pair.sender("other")
    assert big.send(b"b" * 20_000, "big") == 0
    assert other.credit == 0  # the window is full
    assert other.send(b"o", "other") == -1
    pair.run()
    assert sorted(pair.server.received, key=len) == [b"o", b"b" * 20_000]
    assert pair.server.received[0] == b"o"  # did not wait for the end of the big one
    assert other.credit


def test_outgoing_in_pieces() -> None:
    pair = Pair()
    link = pair.sender()
    delivery = link.begin("pieces")
    assert delivery.write(b"one ")
    pair.run()
    link.send(b"after", "after")
    delivery.write(b"two ")
    pair.run()
    assert pair.server.received == []
    delivery.write(b"three")
    delivery.finish()
    delivery.finish()
    pair.run()
    assert pair.server.received == [b"one two three", b"after"]
    assert [token for token, _, _ in pair.client.outcomes] == ["pieces", "after"]
    with pytest.raises(AmqpError, match="finished"):
        delivery.write(b"more")


def test_aborted_deliveries() -> None:
    pair = Pair(server=Recorder(window=10))
    link = pair.sender()
    for _ in range(30):
        while not link.credit:
            pair.run()
        delivery = link.begin("lost")
        delivery.write(b"something")
        pair.run()
        delivery.abort()
        pair.run()
    unsent = link.begin("never")
    unsent.abort()
    link.send(b"whole", "kept")
    pair.run()
    assert pair.server.received == [b"whole"]
    assert pair.client.outcomes == [("kept", ACCEPTED, True)]
    assert link.unsettled == 0 == pair.remote("s").unsettled
    assert pair.s.held.assembling == 0
    assert sum(1 for t in sent_by_client(pair, Transfer) if t.aborted) == 30


PIECES = [[b"one"], [b"", b"one"], [b"", b"", b"one"], [b"on", b"", b"e"], [b"", b"on", b"e"], [b"on", b"e", b""]]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("aborted", [True, False])
@pytest.mark.parametrize("pieces", PIECES)
def test_frames_without_payload(pieces: list[bytes], aborted: bool, streaming: bool) -> None:
    """A delivery is reported in one way: as a whole, or in pieces from the first byte to the end."""
    raw = Raw("begun", Recorder(window=2))

    def accept(link: Link) -> None:
        assert isinstance(link, Receiver)
        link.streaming = streaming
        link.accept()

    raw.handler.attach = accept
    raw.feed(frame(0, attach("in", 0, sending=True)))
    link = raw.handler.links["in"]
    assert isinstance(link, Receiver)
    for delivery_id in range(5):  # more than the credit, were it not given back
        raw.handler.events.clear()
        for n, piece in enumerate(pieces):
            last = n == len(pieces) - 1
            ids: dict[str, Any] = {"delivery_id": delivery_id, "delivery_tag": b"t", "message_format": 0}
            first = ids if n == 0 else {}
            raw.feed(frame(0, Transfer(handle=0, **first, more=not last, aborted=aborted and last), piece))
        reported = [event for event in raw.handler.events if event[0] in ("partial", "delivery")]
        if reported and reported[0][0] == "partial":
            assert streaming
            assert [done for _, _, done, _ in reported] == [False] * (len(reported) - 1) + [True]
            assert reported[-1][3] is aborted
            text = b"".join(piece for _, piece, _, _ in reported)
            assert b"one".startswith(text) if aborted else text == b"one"
            link.session.settle(delivery_id)
        elif aborted:
            assert not reported
        else:
            ((_, _, _, payload, _),) = reported
            assert payload == b"".join(pieces)
        raw.feed(b"")
        assert link.unsettled == 0
    assert raw.connection.held.assembling == raw.connection.held.streamed == 0


def test_streaming_receiver_gets_pieces() -> None:
    pair = Pair()

    def stream(link: Link) -> None:
        assert isinstance(link, Receiver)
        link.streaming = True
        link.accept()

    pair.server.attach = stream
    link = pair.sender()
    link.send(b"fits in a frame", 1)
    delivery = link.begin(2)
    for piece in (b"a", b"b", b"c"):
        delivery.write(piece)
    pair.run()
    delivery.finish()
    pair.run()
    aborted = link.begin(3)
    aborted.write(b"x")
    pair.run()
    aborted.abort()
    pair.run()
    lost = link.begin(4)
    lost.write(b"y")
    pair.run()
    link.detach()
    pair.run()
    assert pair.server.received == [b"fits in a frame"]
    assert [e[1:] for e in pair.server.events if e[0] == "partial"] == [
        (b"a", False, False),
        (b"b", False, False),
        (b"c", False, False),
        (b"", True, False),
        (b"x", False, False),
        (b"", True, True),
        (b"y", False, False),
        (b"", True, True),
    ]


def test_receiver_settles_a_delivery_before_it_is_complete() -> None:
    pair = Pair(server=Recorder(outcome=None))
    link = pair.sender()
    delivery = link.begin("t")
    delivery.write(b"x")
    pair.run()
    pair.s.sessions()[0].settle(0, Rejected())
    pair.run()
    assert [type(state) for _, state, _ in pair.client.outcomes] == [Rejected]
    delivery.write(b"y" * 1000)
    delivery.finish()
    link.send(b"next", "n")
    pair.run()
    assert pair.server.received == [b"next"]
    assert pair.s.held.assembling == 0


def test_receiver_detaches_in_the_middle_of_a_delivery() -> None:
    pair = Pair()
    link = pair.sender()
    delivery = link.begin("t")
    delivery.write(b"x")
    pair.run()
    pair.remote("s").detach(AmqpError("amqp:resource-deleted", "gone"))
    delivery.write(b"y")
    pair.run()
    assert pair.client.events[-1] == ("detach", "s", "amqp:resource-deleted", True)
    assert pair.client.outcomes == [("t", None, True)]
    assert pair.s.held.assembling == 0
    again = pair.sender("again")
    again.send(b"z", "z")
    pair.run()
    assert pair.server.received == [b"z"]


def test_sender_detaches_with_deliveries_waiting() -> None:
    pair = Pair(server_fields={"limits": Limits(incoming_window=1)}, server=Recorder(outcome=None))
    link = pair.sender()
    link.send(b"gone out", 1)
    link.send(b"waits", 2)
    link.send(b"waits too", 3)
    link.detach()
    assert pair.client.outcomes == [(2, None, True), (3, None, True)]
    pair.run()
    assert pair.server.received == [b"gone out"]
    assert pair.client.outcomes[2:] == [(1, None, True)]
    other = pair.sender("other")
    other.send(b"ids are without gaps", 4)
    pair.run()
    assert pair.server.received[-1] == b"ids are without gaps"


# --- counters that wrap -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0xFFFFFFFF, 0xFFFFFFF0, 0x7FFFFFF8])
def test_ids_and_counts_wrap(start: int) -> None:
    """Both ends as they are after four billion deliveries."""
    pair = Pair(server=Recorder(window=50, outcome=None))
    link = pair.sender()
    session, remote_session, remote = pair.c.sessions()[0], pair.s.sessions()[0], pair.remote("s")
    remote.drain_credit()  # what is given back counts as deliveries, from the credit of 50 that it has
    pair.run()
    third = (start - 50) // 3
    for some in (third, third, start - 50 - 2 * third):
        remote.grant(some)
        remote.drain_credit()
        pair.run()
    remote.credit_window = 50
    session.outgoing.next_id = start
    session.outgoing.stop = (session.outgoing.stop + start) & 0xFFFFFFFF
    remote_session.incoming.begin(start)
    pair.run()
    sent = 0
    for _ in range(20):
        for _ in range(10):
            assert link.credit
            link.send(b"%d" % sent, sent)
            sent += 1
        pair.run()
        for delivery_id in list(remote_session.unsettled_in()[1]):
            remote_session.settle(delivery_id)
        pair.run()
    assert pair.server.received == [b"%d" % i for i in range(sent)]
    assert sorted(token for token, _, _ in pair.client.outcomes) == list(range(sent))
    assert link.unsettled == 0 and remote.unsettled == 0
    assert session.unsettled_out()[0] == (start + sent) & 0xFFFFFFFF
    big = b"x" * 300_000
    link.send(big, "big")
    pair.run()
    assert pair.server.received[-1] == big


def test_ranges() -> None:
    assert ranges([5]) == [(5, 5)]
    assert ranges([3, 1, 2]) == [(1, 3)]
    assert ranges([1, 2, 4, 5, 9]) == [(1, 2), (4, 5), (9, 9)]
    assert ranges([0, 0xFFFFFFFF, 1, 0xFFFFFFFE]) == [(0xFFFFFFFE, 1)]
    assert ranges([0, 0xFFFFFFFD]) == [(0xFFFFFFFD, 0xFFFFFFFD), (0, 0)]
