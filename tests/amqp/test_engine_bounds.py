"""What a peer can make one connection hold, counted: pieces, streams, tables, output."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Source,
    Target,
    Transfer,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.delivery import Outgoing
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.receiver import Partial
from enmasse.amqp.sasl.layer import SaslServer, anonymous
from tests.amqp.engine_kit import AMQP, SASL, Pair, Raw, Recorder, attach, by_tables, condition_of, frame, frames


def piece(handle: int, delivery_id: int | None, **fields: Any) -> Transfer:
    tag = None if delivery_id is None else b"t"
    return Transfer(handle=handle, delivery_id=delivery_id, delivery_tag=tag, more=True, **fields)


def test_hundreds_of_unfinished_messages_share_one_bound() -> None:
    """The link that goes beyond it is lost, with what it had begun, and no other."""
    limits = Limits(max_partial=1_000_000, max_message_size=100_000_000)
    raw = Raw("begun", Recorder(window=10), limits=limits)
    for handle in range(300):
        raw.feed(frame(0, attach(f"l{handle}", handle, sending=True)))
        raw.feed(frame(0, piece(handle, handle), b"x" * 100))
    assert raw.connection.held.assembling == 300 * 164
    answers: list[Any] = []
    turns = 0
    while not answers:
        turns += 1
        assert turns < 1000
        for handle in range(300):
            if not answers:
                answers += [a for a in raw.feed(frame(0, piece(handle, None), b"x" * 100)) if type(a) is Detach]
    assert [condition_of(a) for a in answers] == ["amqp:resource-limit-exceeded"]
    assert 900_000 < raw.connection.held.assembling <= 1_000_000
    raw.feed(frame(0, Close()))
    assert raw.connection.held.assembling == 0


def test_empty_pieces_and_single_bytes_are_counted() -> None:
    raw = Raw("attached", Recorder(window=10), limits=Limits(max_partial=10_000))
    raw.feed(frame(0, piece(0, 0)))
    for _ in range(1000):
        assert not any(type(a) is Detach for a in raw.feed(frame(0, piece(0, None))))
    assert raw.connection.held.assembling == 0
    counts = 0
    while not any(type(a) is Detach for a in raw.feed(frame(0, piece(0, None), b"x"))):
        counts += 1
    assert counts == 10_000 // 65


def test_frames_in_crumbs() -> None:
    """A frame that arrives byte by byte is kept once, and joined once."""
    raw = Raw("attached", Recorder(window=10))
    whole = frame(0, Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), b"x" * 60_000)
    for i in range(len(whole)):
        raw.connection.receive(whole[i : i + 1])
        assert raw.connection.unprocessed <= len(whole)
    assert raw.handler.received == [b"x" * 60_000]
    assert raw.connection.unprocessed == 0


@pytest.mark.parametrize("head", [b"\xff\xff\xff\xff", b"\x00\x10\x00\x01\x02\x00\x00"])
@pytest.mark.parametrize("stage", ["sasl", "header", "begun"])
def test_a_size_that_comes_alone_is_no_promise_to_keep_what_follows(stage: str, head: bytes) -> None:
    """Before the 8 bytes of a frame's head are there nothing is known of it, so no more than these is waited for."""
    if stage == "begun":
        connection = Raw("begun").connection
    else:
        sasl = SaslServer({"ANONYMOUS": anonymous}) if stage == "sasl" else None
        connection = Connection(Recorder(), container_id="server", is_client=False, sasl=sasl)
        connection.receive(SASL if sasl else AMQP)
    connection.receive(head)
    connection.receive(b"\x00" * 100_000)
    assert connection.unprocessed == 0
    assert connection.state in ("closing", "closed")


def test_encodings_a_peer_makes_up_do_not_pile_up() -> None:
    raw = Raw("attached", Recorder(window=1000))

    def feed(delivery_id: int, message_format: int) -> None:
        ids = b"\x43\x70" + delivery_id.to_bytes(4, "big") + b"\xa0\x01t"
        fields = ids + b"\x70" + message_format.to_bytes(4, "big") + b"\x42"
        body = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 5)) + fields
        raw.feed(frame(0, None, body + b"payload that is long enough"))

    for i in range(300, 600):
        feed(i, i)
    assert [e[4] for e in raw.handler.events if e[0] == "delivery"] == list(range(300, 600))
    counted = by_tables(raw)
    feed(600, 300)
    assert counted == []  # an encoding that has been met before
    feed(601, 599)
    assert counted == [1]  # there are too many to remember this one
    assert len(raw.handler.received) == 302


def test_links_that_come_and_go_leave_nothing() -> None:
    pair = Pair()
    for i in range(200):
        link = pair.sender(f"link {i}")
        link.send(b"x", i)
        pair.run()
        link.detach(closed=bool(i % 2))
        pair.run()
    (session,) = pair.s.sessions()
    assert session.links == [] and session.unsettled_in()[1] == {}
    assert pair.s.names.count == 0 == pair.s.names.state_size
    assert pair.sender("another").handle <= 1 and pair.remote("another").handle <= 1
    for _ in range(200):
        assert pair.c.begin().channel == 1
        pair.run()
        pair.c.sessions()[1].end()
        pair.run()
    assert len(pair.s.sessions()) == 1


def test_peer_that_does_not_read_gets_no_more() -> None:
    """With all the credit in the world: a sender that looks at `credit` stops, and goes on when the peer reads."""

    class Flood(Recorder):
        sent = 0

        def on_flow(self, link: Sender) -> None:
            while link.credit and self.sent < 100_000:
                link.send(b"x" * 1000, self.sent)
                self.sent += 1

    client = Recorder()
    pair = Pair(client=client, server=Flood())
    receiver = pair.c.begin().attach_receiver("r", Source(), Target())
    receiver.credit_window = 1_000_000
    highest = 0
    for _ in range(100_000):
        pair.s.receive(pair.c.take_output())
        highest = max(highest, sum(map(len, pair.s.output.buffers)))
        data = pair.s.take_output()
        if not data and len(client.received) == 100_000:
            break
        pair.c.receive(data)
    assert len(client.received) == 100_000
    assert highest < 1_500_000
    assert "writable" in pair.server.names()


class Forward(Recorder):
    """Passes pieces on as they come; takes them only when there is room ahead."""

    def __init__(self) -> None:
        super().__init__(window=10)
        self.out: Sender | None = None
        self.passing: tuple[Partial, Outgoing] | None = None

    def on_attach(self, link: Link) -> None:
        if isinstance(link, Receiver):
            link.streaming = True
        else:
            assert isinstance(link, Sender)
            self.out = link
        super().on_attach(link)

    def on_partial(self, link: Receiver, delivery: Partial) -> None:
        if self.passing is None:
            assert self.out is not None
            self.passing = (delivery, self.out.begin((link.session, delivery.delivery_id)))
        self.carry()

    def on_flow(self, link: Sender) -> None:
        super().on_flow(link)
        self.carry()

    def carry(self) -> None:
        if self.passing is None:
            return
        delivery, outgoing = self.passing
        if delivery.waiting and not outgoing.blocked:
            outgoing.write(delivery.take())
        if delivery.done and not delivery.waiting:
            self.passing = None
            outgoing.finish()

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        for session, delivery_id in tokens:
            session.settle(delivery_id, state)


class Count(Recorder):
    """A consumer that counts a body instead of keeping it."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.done = 0

    def on_partial(self, link: Receiver, delivery: Partial) -> None:
        self.bytes += len(delivery.take())
        if delivery.done:
            self.done += 1
            link.session.settle(delivery.delivery_id)


def test_body_larger_than_every_buffer_passes_a_slow_consumer() -> None:
    """64 MiB from a producer as fast as it may, through a forwarder, to a consumer that takes little at a time."""
    size = 64 * 1024 * 1024
    limits = Limits(streaming_window=512 * 1024, max_streamed=2 * 1024 * 1024)
    forward, consumer = Forward(), Count()
    to_producer = Connection(forward, container_id="f", is_client=False, limits=limits)
    to_consumer = Connection(forward, container_id="f", is_client=False, limits=limits)
    producer_handler = Recorder()
    producer = Connection(producer_handler, container_id="p", is_client=True)
    slow = Connection(consumer, container_id="c", is_client=True, limits=Limits(incoming_window=8))
    for client, server in ((slow, to_consumer), (producer, to_producer)):
        client.open()
        server.receive(client.take_output())
        client.receive(server.take_output())
    receiver = slow.begin().attach_receiver("r", Source(address="a"), Target(), streaming=True)
    receiver.credit_window = 10
    while forward.out is None or not forward.out.credit:
        to_consumer.receive(slow.take_output())
        slow.receive(to_consumer.take_output())
    link = producer.begin().attach_sender("s", Source(), Target(address="a"))
    outgoing: Outgoing | None = None
    chunk = bytes(50_000)
    written = 0
    highest = 0
    backlog = b""  # what the consumer has not read: its socket
    for turn in range(100_000):
        if not to_producer.reading_paused:
            to_producer.receive(producer.take_output())
        if outgoing is None and link.credit:
            outgoing = link.begin("the body")
        while outgoing is not None and written < size and not outgoing.blocked:
            outgoing.write(chunk[: size - written])
            written += len(chunk[: size - written])
            if written == size:
                outgoing.finish()
        if len(backlog) < 300_000:
            backlog += to_consumer.take_output()
        slow.receive(backlog[:40_000])
        backlog = backlog[40_000:]
        if turn % 3 == 0:
            to_consumer.receive(slow.take_output())
        producer.receive(to_producer.take_output())
        held = to_producer.held.streamed + sum(map(len, to_consumer.output.buffers)) + to_producer.unprocessed
        if forward.passing:
            held += forward.passing[1].waiting
        highest = max(highest, held)
        if producer_handler.outcomes:
            break
    assert producer_handler.outcomes[0][0] == "the body" and producer_handler.outcomes[0][2]
    assert (consumer.bytes, consumer.done) == (size, 1)
    assert highest < 8 * 1024 * 1024
    assert to_producer.held.streamed == 0 and not to_producer.reading_paused


def test_untaken_pieces_shrink_the_window_and_then_stop_the_reading() -> None:
    kept: list[Partial] = []

    class Lazy(Recorder):
        def on_partial(self, link: Receiver, delivery: Partial) -> None:
            if delivery not in kept:
                kept.append(delivery)

    handler = Lazy(window=10)

    def stream(link: Link) -> None:
        assert isinstance(link, Receiver)
        link.streaming = True
        link.accept()

    handler.attach = lambda link: link.accept() if link.is_sender else stream(link)
    limits = Limits(streaming_window=4 * 65536, max_streamed=20 * 60_000)
    raw = Raw("attached", handler, limits=limits)
    paused: list[bool] = []
    raw.connection.held.on_paused = lambda: paused.append(raw.connection.reading_paused)
    flows = [a for a in raw.feed(frame(0, piece(0, 0), b"x" * 60_000)) if type(a) is Flow]
    assert flows[-1].incoming_window == 3
    for _ in range(3):
        flows += [a for a in raw.feed(frame(0, piece(0, None), b"x" * 60_000)) if type(a) is Flow]
    assert flows[-1].incoming_window == 0
    # what was on its way when the window shrank is taken, until the socket is not read any more
    assert paused == []
    answers = raw.feed(frame(0, piece(0, None), b"x" * 60_000) * 17)
    assert {type(a) for a in answers} <= {Flow} and paused == [True]
    assert kept[0].waiting == 21 * 60_000
    assert len(kept[0].take()) == 21 * 60_000
    assert raw.feed(b"")[-1].incoming_window == raw.connection.limits.incoming_window
    assert paused == [True, False]


def test_reading_stops_where_the_window_was_still_wide() -> None:
    handler = Recorder(window=10)
    kept: list[Partial] = []
    handler.on_partial = lambda link, delivery: kept.append(delivery)  # type: ignore[method-assign]  # replaced by the test

    def stream(link: Link) -> None:
        if isinstance(link, Receiver):
            link.streaming = True
        link.accept()

    handler.attach = stream
    raw = Raw("attached", handler, limits=Limits(max_streamed=300_000))
    paused: list[bool] = []
    raw.connection.held.on_paused = lambda: paused.append(raw.connection.reading_paused)
    raw.connection.receive(frame(0, piece(0, 0), b"x" * 60_000) + frame(0, piece(0, None), b"x" * 60_000) * 5)
    assert paused == [True]
    assert raw.connection.tick(10**9) is not None and raw.connection.tick(2 * 10**9) is not None
    assert raw.connection.state == "open"  # silence is our own doing
    assert len(kept[0].take()) == 360_000
    assert paused == [True, False]
    (flow,) = [p for _, p, _ in frames(raw.connection.take_output()) if type(p) is Flow][-1:]
    assert flow.incoming_window == raw.connection.limits.incoming_window


def test_detach_in_a_stream_gives_everything_back() -> None:
    handler = Recorder(window=10)
    kept: list[Partial] = []
    handler.on_partial = lambda link, delivery: kept.append(delivery)  # type: ignore[method-assign]  # replaced by the test

    def stream(link: Link) -> None:
        if isinstance(link, Receiver):
            link.streaming = True
        link.accept()

    handler.attach = stream
    raw = Raw("attached", handler)
    raw.feed(frame(0, piece(0, 0), b"x" * 60_000))
    assert raw.connection.held.streamed > 60_000
    raw.feed(frame(0, Detach(handle=0, closed=True)))
    assert kept[-1].aborted and kept[-1].done and kept[-1].take() == b""
    assert raw.connection.held.streamed == 0
    assert not raw.connection.sessions()[0].crowded


def small(stage: str = "open", handler: Recorder | None = None) -> Raw:
    """A peer that takes the smallest frames there are."""
    raw = Raw("start", handler)
    raw.feed(AMQP + frame(0, Open(container_id="raw", max_frame_size=512)))
    if stage == "begun":
        raw.feed(frame(0, Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)))
    return raw


def test_an_answer_that_does_not_fit_is_a_refusal() -> None:
    """An attach that asks for more than the peer's own frames can hold costs its link, and no more."""
    raw = small("begun")
    answers = raw.feed(frame(0, attach("large", 0, sending=False, source=Source(address="a" * 1000))))
    assert [type(a) for a in answers] == [Attach, Detach]
    assert answers[0].source is None
    assert condition_of(answers[1]) == "amqp:frame-size-too-small"
    answers = raw.feed(frame(0, attach("good", 1, sending=False)))
    assert [type(a) for a in answers] == [Attach]
    answers = raw.feed(frame(0, attach("n" * 600, 2, sending=False)))
    assert [(type(a), condition_of(a)) for a in answers if type(a) is Close] == [(Close, "amqp:frame-size-too-small")]


def test_long_reasons_are_shortened_where_they_do_not_fit() -> None:
    def refuse(link: Link) -> None:
        link.refuse(AmqpError("x:" + "c" * 1000, "ü" * 1000, {Symbol("k"): "v" * 1000}))

    handler = Recorder(window=10)
    handler.attach = refuse
    raw = small("begun", handler)
    answers = raw.feed(frame(0, attach("l", 0, sending=False)))
    assert [type(a) for a in answers] == [Attach, Detach]
    assert (condition_of(answers[1]), answers[1].error.description) == ("amqp:internal-error", "ü" * 100)
    raw.connection.close(AmqpError("a:b", "d" * 1000))
    closes = [p for _, p, _ in frames(raw.connection.take_output())]
    assert [(type(a), a.error.description) for a in closes] == [(Close, "d" * 200)]


def test_states_are_shortened_where_they_do_not_fit() -> None:
    """A router passes on what a receiver said to senders whose frames are smaller."""
    long = "d" * 1000
    states: list[Any] = [
        Rejected(error=Error(condition=Symbol("a:b"), description=long)),
        Modified(undeliverable_here=True, message_annotations={Symbol("x"): long}),
        Received(section_number=1, section_offset=1),
    ]
    raw = small("begun", Recorder(window=10, outcome=None))
    raw.feed(frame(0, attach("in", 0, sending=True)))
    for n in range(len(states)):
        raw.feed(frame(0, Transfer(handle=0, delivery_id=n, delivery_tag=b"t"), b"x"))
    for n in range(len(states)):
        raw.handler.links["in"].session.settle(n, states[n])
    answers = [p for _, p, _ in frames(raw.connection.take_output()) if type(p) is Disposition]
    assert [(a.first, a.settled) for a in answers] == [(0, True), (1, True), (2, True)]
    assert answers[0].state == Rejected(error=Error(condition=Symbol("a:b"), description="d" * 200))
    assert answers[1].state == Modified(undeliverable_here=True)
    assert answers[2].state == states[2]
    assert raw.connection.state == "open"


def test_an_attach_of_ours_that_does_not_fit_leaves_nothing() -> None:
    raw = small()
    session = raw.connection.begin()
    raw.feed(frame(0, Begin(remote_channel=session.channel, next_outgoing_id=0, incoming_window=9, outgoing_window=9)))
    for _ in range(3):
        with pytest.raises(AmqpError, match="frames of 512"):
            session.attach_sender("l", Source(address="a" * 1000), Target(address="b"))
    assert (session.links, raw.connection.names.count) == ([], 0)
    assert session.attach_sender("l", Source(address="a"), Target(address="b")).handle == 0


def many_sent(handler: Recorder) -> tuple[Raw, Sender]:
    """A peer to which 5000 deliveries were sent, none of them settled."""
    raw = Raw("begun", handler)
    raw.feed(frame(0, attach("out", 0, sending=False)))
    raw.feed(frame(0, credit(10_000)))
    sender = handler.links["out"]
    assert isinstance(sender, Sender)
    for n in range(5000):
        sender.send(b"x", ("token", n))
        if raw.connection.blocked:
            raw.connection.take_output()
    raw.connection.take_output()
    return raw, sender


def credit(deliveries: int) -> Flow:
    return Flow(
        next_incoming_id=0, incoming_window=2**30, next_outgoing_id=0, outgoing_window=1000, handle=0,
        delivery_count=0, link_credit=deliveries,
    )  # fmt: skip


@pytest.mark.parametrize(("first", "settled"), [(0, False), (6000, True)])
def test_dispositions_that_settle_nothing_end_the_session(first: int, settled: bool) -> None:
    """A frame of some thirty bytes has every unsettled delivery looked at."""
    raw, _ = many_sent(Recorder(window=10))
    disposition = frame(0, Disposition(role=True, first=first, last=first + 4999, settled=settled, state=ACCEPTED))
    frames_taken = 0
    while not any(type(a) is End for a in raw.feed(disposition)):
        frames_taken += 1
        assert frames_taken < 100
    assert frames_taken > 10


def test_two_dispositions_for_each_of_many_deliveries_are_usual() -> None:
    """A state first, the settlement later: for as many as there are."""
    handler = Recorder(window=10)
    raw, sender = many_sent(handler)
    sent = 0
    for _ in range(60):
        told_first = frame(0, Disposition(role=True, first=sent, last=sent + 4999, settled=False, state=ACCEPTED))
        runs = [Disposition(role=True, first=n, last=n + 999, settled=True, state=ACCEPTED)
                for n in range(sent, sent + 5000, 1000)]  # fmt: skip
        assert raw.feed(told_first + b"".join(frame(0, run) for run in runs)) == []
        assert sender.unsettled == 0
        sent += 5000
        raw.feed(frame(0, credit(sent + 5000)))
        for n in range(5000):
            sender.send(b"x", ("token", n))
            if raw.connection.blocked:
                raw.connection.take_output()
        raw.connection.take_output()
    assert raw.connection.state == "open"
