"""Properties: how bytes are cut into reads changes nothing; whatever two users do, no message is lost or doubled."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Modified, Rejected
from enmasse.amqp.connection import Connection
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.reader import Reader
from tests.amqp.engine_kit import Pair, Recorder


class Talkative(Recorder):
    """A server that answers credit at once, so that what it sends depends on what comes and on nothing else."""

    def __init__(self, window: int = 0) -> None:
        super().__init__(window)
        self.sent = 0

    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        if isinstance(link, Receiver) and not self.window:
            link.grant(10_000)

    def on_flow(self, link: Sender) -> None:
        while link.credit and self.sent < 500:
            link.send(b"r%d" % self.sent, self.sent)
            self.sent += 1
        super().on_flow(link)


def conversation() -> tuple[bytes, bytes]:
    """What a client says in an eventful life, and what it hears."""
    pair = Pair(server=Talkative(window=20))
    one, two = pair.sender("one"), pair.sender("two", snd_settle_mode=1)
    receiver = pair.receiver("three", window=30)
    for i in range(400):
        while not (one.credit and two.credit):
            pair.run()
        one.send(b"o%d" % i, i)
        if i % 3 == 0:
            two.send(b"t%d" % i, i)
        if i % 50 == 0:
            one.send(b"large" * 15_000, i)
        if i % 70 == 0:
            delivery = one.begin("p")
            delivery.write(b"piece")
            pair.run()
            delivery.abort() if i % 140 == 0 else delivery.finish()
    pair.run()
    assert len(pair.client.received) == 500
    receiver.drain_credit()
    pair.run()
    two.detach()
    pair.run()
    pair.c.close()
    pair.run()
    return pair.to_server, pair.to_client


CONVERSATION, ANSWERS = conversation()


def replay(cuts: list[int]) -> tuple[list[Any], list[Any]]:
    handler = Talkative()  # with more credit than was granted then: the turns of the two were others
    server = Connection(handler, container_id="server", is_client=False)
    pos = 0
    for cut in [*cuts, len(CONVERSATION)]:
        server.receive(CONVERSATION[pos : pos + cut])
        pos += cut
        server.take_output()
    assert server.finished and handler.events[-1] == ("close", None)
    return handler.events, [token for token, _, _ in handler.outcomes]


WHOLE = replay([])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 9, 100, 5000, 70_000]))
def test_any_cut_gives_the_same_callbacks(seed: int, size: int) -> None:
    rng = random.Random(seed)
    cuts: list[int] = []
    covered = 0
    while covered < len(CONVERSATION):
        cuts.append(rng.randint(1, size) if size > 9 or covered < 20_000 else 60_000)
        covered += cuts[-1]
    assert replay(cuts) == WHOLE


def test_fast_path_and_tables_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same conversation with the fast path closed: what it learns from is never learnt."""
    cuts = [1000] * (len(CONVERSATION) // 1000)
    fast = replay(cuts)
    monkeypatch.setattr(Reader, "learn", lambda *_: None)
    slow = replay(cuts)
    assert fast == slow


# --- two users at random ----------------------------------------------------------------------------------------------

OUTCOMES = [ACCEPTED, RELEASED, Rejected(), Modified(delivery_failed=True)]
OPERATION = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 2), st.integers(0, 3000)),
    st.tuples(st.just("send tagged"), st.integers(0, 2), st.integers(0, 600)),
    st.tuples(st.just("pass on"), st.integers(0, 2), st.integers(0, 600)),
    st.tuples(st.just("send settled"), st.integers(0, 2), st.integers(0, 300)),
    st.tuples(st.just("begin"), st.integers(0, 2), st.integers(0, 900)),
    st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 2000)),
    st.tuples(st.just("finish"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("abort"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("settle"), st.integers(0, 50), st.integers(0, 3)),
    st.tuples(st.just("grant"), st.integers(0, 2), st.integers(1, 5)),
    st.tuples(st.just("drain"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("to server"), st.just(0), st.just(0)),
    st.tuples(st.just("to client"), st.just(0), st.just(0)),
    st.tuples(st.just("run"), st.just(0), st.just(0)),
    st.tuples(st.just("reattach"), st.integers(0, 2), st.just(0)),
)


class Model:
    """Three senders of a client to a server that settles when it is asked to."""

    def __init__(self, split: int, window: int, frame_size: int) -> None:
        self.held: list[tuple[Receiver, int]] = []
        self.got: dict[str, list[bytes]] = {}
        model = self

        class Server(Recorder):
            def on_delivery(
                self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
            ) -> None:
                model.got.setdefault(link.name, []).append(payload)
                if not settled:
                    model.held.append((link, delivery_id))

        self.pair = Pair(
            client=Recorder(),
            server=Server(window=0),
            split=split,
            server_fields={"limits": Limits(incoming_window=window), "max_frame_size": frame_size},
        )
        self.generation = [0, 0, 0]
        self.links = [self.pair.sender(f"{i}.0") for i in range(3)]
        self.open: list[Any] = [None, None, None]
        self.expected: dict[str, list[bytes]] = {}
        self.counter = 0
        self.tokens: set[int] = set()
        self.bodies: dict[int, tuple[str, list[bytes]]] = {}

    def body(self, size: int) -> bytes:
        self.counter += 1
        return b"%d:" % self.counter + b"x" * size

    def do(self, operation: str, n: int, size: int) -> None:
        pair = self.pair
        link = self.links[n % 3]
        if operation in ("send", "send settled") and link.granted and not self.open[n]:
            body = self.body(size)
            settled = operation == "send settled"
            link.send(body, self.counter, settled=settled)
            self.expected.setdefault(link.name, []).append(body)
            if not settled:
                self.tokens.add(self.counter)
        elif operation == "send tagged" and link.granted and not self.open[n]:
            body = self.body(size)
            link.send(body, self.counter, tag=b"%d" % self.counter * (1 + size % 3))
            self.expected.setdefault(link.name, []).append(body)
            self.tokens.add(self.counter)
        elif operation == "pass on":
            body = self.body(size)
            credit = link.credit
            if link.pass_on(body, self.counter):
                assert credit > 0
                self.expected.setdefault(link.name, []).append(body)
                self.tokens.add(self.counter)
        elif operation == "begin" and link.granted and not self.open[n]:
            body = self.body(size)
            self.open[n] = (link.begin(self.counter), [body], self.counter)
            self.open[n][0].write(body)
        elif operation == "write" and self.open[n]:
            body = self.body(size)
            self.open[n][1].append(body)
            self.open[n][0].write(body)
        elif operation == "finish" and self.open[n]:
            delivery, parts, token = self.open[n]
            delivery.finish()
            self.open[n] = None
            self.expected.setdefault(link.name, []).append(b"".join(parts))
            self.tokens.add(token)
        elif operation == "abort" and self.open[n]:
            self.open[n][0].abort()
            self.open[n] = None
        elif operation == "settle" and self.held:
            receiver, delivery_id = self.held.pop(n % len(self.held))
            receiver.session.settle(delivery_id, OUTCOMES[size])
        elif operation == "grant":
            remote = pair.server.links.get(link.name)
            if isinstance(remote, Receiver) and remote.attached:
                remote.grant(size)
        elif operation == "drain":
            remote = pair.server.links.get(link.name)
            if isinstance(remote, Receiver) and remote.attached:
                remote.drain_credit()
        elif operation == "to server":
            pair.feed(pair.s, pair.c.take_output())
        elif operation == "to client":
            pair.feed(pair.c, pair.s.take_output())
        elif operation == "run":
            pair.run()
        elif operation == "reattach":
            self.reattach(n)

    def reattach(self, n: int) -> None:
        """Only when nothing is on its way, so that every outcome is known."""
        self.finish_all()
        self.links[n].detach(closed=False)
        self.generation[n] += 1
        self.links[n] = self.pair.sender(f"{n}.{self.generation[n]}")

    def finish_all(self) -> None:
        for n in range(3):
            if self.open[n]:
                self.do("finish", n, 0)
        for _ in range(1000):
            self.pair.run()
            if not self.held:
                break
            while self.held:
                self.do("settle", 0, 0)
        self.check()

    def check(self) -> None:
        pair = self.pair
        assert pair.c.state == "open" == pair.s.state, pair.client.events[-3:] + pair.server.events[-3:]
        assert {name: bodies for name, bodies in self.got.items() if bodies} == self.expected
        decided = [token for token, state, _ in pair.client.outcomes]
        assert sorted(decided) == sorted(self.tokens)
        assert all(state is not None and settled for _, state, settled in pair.client.outcomes)
        assert pair.s.held.assembling == 0
        (session,), (remote,) = pair.c.sessions(), pair.s.sessions()
        assert session.unsettled_out()[1] == {} == remote.unsettled_in()[1]
        assert session.outgoing.next_transfer_id == remote.incoming.next_transfer_id
        for link in self.links:
            assert link.unsettled == 0
            other = pair.server.links[link.name]
            assert isinstance(other, Receiver)
            assert link.granted == other.credit
            assert link.deliveries == other.deliveries


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(OPERATION, max_size=120),
    st.sampled_from([0, 1, 13]),
    st.sampled_from([1, 2, 5, 2048]),
    st.sampled_from([512, 2000]),
)
def test_no_message_is_lost_or_doubled(
    operations: list[tuple[str, int, int]], split: int, window: int, frame_size: int
) -> None:
    model = Model(split, window, frame_size)
    for n in range(3):
        model.do("grant", n, 5)
    model.pair.run()
    for operation, n, size in operations:
        model.do(operation, n, size)
    model.finish_all()


# --- noise ------------------------------------------------------------------------------------------------------------


def damaged(rng: random.Random, data: bytearray, flips: int) -> bytearray:
    """Flipped, dropped and repeated bytes behind the protocol header."""
    for _ in range(flips):
        at = rng.randrange(8, len(data))
        kind = rng.randrange(3)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at]
        else:
            data[at:at] = data[at : at + rng.randrange(8)]
    return data


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_damaged_conversations_never_break_the_engine(seed: int, flips: int, serves: bool) -> None:
    """The connection goes on or is closed with an error, and nothing raises, nothing is left."""
    rng = random.Random(seed)
    spoken = CONVERSATION if serves else ANSWERS
    start = rng.randrange(len(spoken) - 3000)
    data = damaged(rng, bytearray(spoken[:600] + spoken[start : start + 3000]), flips)
    handler = Talkative(window=20)
    engine = Connection(handler, container_id="us", is_client=not serves, limits=Limits(max_partial=100_000))
    if not serves:
        engine.open()
    began = False
    while data:
        cut = rng.randint(1, 700)
        engine.receive(bytes(data[:cut]))
        del data[:cut]
        if engine.state == "open" and not serves and not began:
            began = True
            session = engine.begin()
            session.attach_sender("one", None, None)
            session.attach_receiver("three", None, None).credit_window = 30
        engine.take_output()
        assert engine.held.assembling <= 200_000 and engine.unprocessed <= 70_000
    engine.transport_closed(AmqpError("amqp:connection:forced", "end of the test"))
    assert handler.names()[-1] == "close"
    assert handler.names().count("close") == 1
    assert engine.sessions() == [] and engine.held.assembling == 0 and engine.names.count == 0
