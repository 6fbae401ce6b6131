"""Deliveries in runs: a receiver that takes what came together by one call, a sender that sends many by one."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Disposition, Modified, Received, Source
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender
from tests.amqp.engine_kit import Pair, Recorder, frames

Run = tuple[str, int, list[bytes]]


class Runs(Recorder):
    """Takes runs on links whose name begins with "r"; settles each when it comes, unless `settling` is off."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.runs: list[Run] = []
        self.settled: list[bool] = []
        self.settling = True

    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        if isinstance(link, Receiver) and link.name.startswith("r"):
            link.on_run = self.on_run

    def on_run(self, link: Receiver, first: int, payloads: list[bytes], settled: bool) -> None:
        self.events.append(("run", link.name, len(payloads)))
        self.runs.append((link.name, first, payloads))
        self.settled.append(settled)
        self.received += payloads
        if self.settling:
            link.settle_run(first, len(payloads))


def dispositions(pair: Pair) -> list[tuple[int, Any]]:
    return [(p.first, p.last) for _, p, _ in frames(pair.to_client) if type(p) is Disposition]


@pytest.mark.parametrize("split", [0, 7, 200])
def test_a_run_is_every_delivery_once_and_in_order(split: int) -> None:
    server = Runs(window=1000)
    pair = Pair(server=server, split=split)
    sender = pair.sender("r1")
    sent = [b"%03d" % i for i in range(300)]
    for payload in sent:
        sender.send(payload, payload)
    pair.run()
    assert server.received == sent
    assert pair.client.outcomes == [(payload, ACCEPTED, True) for payload in sent]
    ids = [first + n for _, first, payloads in server.runs for n in range(len(payloads))]
    assert ids == sorted(set(ids))
    assert pair.remote("r1").unsettled == 0


def test_runs_end_where_something_else_comes() -> None:
    """The first delivery of a session comes by the tables; another link, a settled or a strange one ends a run."""
    server = Runs(window=1000)
    pair = Pair(server=server)
    one, two, plain = pair.sender("r1"), pair.sender("r2"), pair.sender("s")
    one.send(b"first")
    pair.run()
    server.events.clear()
    one.send(b"a")
    one.send(b"b")
    two.send(b"c")
    one.send(b"d")
    plain.send(b"e")
    one.send(b"f")
    one.send(b"g", settled=True)
    one.send(b"h")
    one.send(b"i", message_format=7)
    one.send(b"j")
    two.send(b"k" * 200_000)
    two.send(b"l")
    pair.run()
    assert [event[:2] for event in server.events if event[0] in ("run", "delivery")] == [
        ("run", "r1"),
        ("run", "r2"),
        ("run", "r1"),
        ("delivery", "s"),
        ("run", "r1"),
        ("delivery", "r1"),
        ("run", "r1"),
        ("delivery", "r1"),
        ("run", "r1"),
        ("delivery", "r2"),
        ("run", "r2"),
    ]
    assert b"".join(server.received).replace(b"k", b"") == b"firstabcdefghijl"
    assert server.runs[0][2] == [b"a", b"b"]
    assert len(pair.client.outcomes) == 12


def test_a_run_is_settled_or_is_not() -> None:
    """The first settled delivery comes by the tables. Settled ones use credit and give it back at once."""
    server = Runs(window=10)
    server.settling = False
    pair = Pair(server=server)
    sender = pair.sender("r1")
    sender.send(b"first", settled=True)
    sender.send(b"of the tables too")
    pair.run()
    assert sender.send_run([b"a", b"b"], None) == 2
    assert sender.send_run([b"c", b"d"], "cd") == 2
    assert sender.send_run([b"e"], None) == 1
    pair.run()
    assert [payloads for _, _, payloads in server.runs] == [[b"a", b"b"], [b"c", b"d"], [b"e"]]
    assert server.settled == [True, False, True]
    assert sender.unsettled == pair.remote("r1").unsettled == 2
    for _ in range(10):
        assert sender.send_run([b"x"] * 5, None) == 5
        pair.run()
    assert (sender.unsettled, sender.credit) == (2, 8)


def test_what_came_before_a_detach_comes_before_it() -> None:
    server = Runs(window=1000)
    pair = Pair(server=server)
    sender = pair.sender("r1")
    sender.send(b"first")
    pair.run()
    sender.send(b"a")
    sender.send(b"b")
    sender.detach()
    pair.run()
    names = server.names()
    assert names.index("run") < names.index("detach")
    assert server.received == [b"first", b"a", b"b"]


def test_a_link_that_its_owner_detached_takes_no_run() -> None:
    server = Runs(window=1000)
    pair = Pair(server=server)
    one, two = pair.sender("r1"), pair.sender("r2")
    one.send(b"first")
    pair.run()
    server.on_delivery = lambda *_: pair.remote("r2").detach()  # type: ignore[method-assign]  # watched by the test
    pair.remote("r1").on_run = None
    pair.remote("r1").on_delivery = server.on_delivery
    two.send(b"taken")
    one.send(b"detaches the other")
    two.send(b"too late")
    pair.run()
    assert [run[2] for run in server.runs] == [[b"taken"]]


def test_settling_some_of_a_run_and_the_rest_later() -> None:
    server = Runs(window=10)
    pair = Pair(server=server)
    server.settling = False
    sender = pair.sender("r1")
    sender.send(b"first")
    pair.run()
    for i in range(9):
        sender.send(b"%d" % i)
    pair.run()
    link = pair.remote("r1")
    assert link.unsettled == 9  # "first" came by on_delivery, which settles
    ((_, first, _),) = server.runs
    link.session.settle(first + 4)
    link.settle_run(first, 9)
    link.settle_run(first, 9)  # nothing is settled twice
    pair.run()
    assert link.unsettled == 0
    assert dispositions(pair)[-1:] == [(first, first + 8)]
    assert len(pair.client.outcomes) == 10
    assert sender.credit == 10


def test_rcv_settle_mode_second_waits_for_the_sender() -> None:
    server = Runs(window=100)
    server.attach = lambda link: link.accept(rcv_settle_mode=1)
    pair = Pair(server=server)
    sender = pair.sender("r1", rcv_settle_mode=1)
    for i in range(3):
        sender.send(b"%d" % i, i)
    pair.run()
    assert [o for o in pair.client.outcomes if not o[2]] == [(i, ACCEPTED, False) for i in range(3)]
    sender.settle([0, 1, 2])
    pair.run()
    assert pair.remote("r1").unsettled == 0


def second_pair(unsettled: int) -> tuple[Pair, Sender]:
    """A sender whose peer settles in a second step and has got so many deliveries."""
    server = Recorder(window=10, outcome=None)
    server.attach = lambda link: link.accept(rcv_settle_mode=1)
    pair = Pair(server=server)
    sender = pair.sender("s", rcv_settle_mode=1)
    for i in range(unsettled):
        sender.send(b"x", i)
    pair.run()
    return pair, sender


def test_an_outcome_that_is_stated_again_is_that_of_no_other_delivery() -> None:
    """The first one counts, because it is final: a receiver that has accepted a message and then returns all that is
    not settled must not make it come again."""
    pair, _ = second_pair(6)
    session = pair.remote("s").session
    session.update_all([0, 2], ACCEPTED)
    session.settle(0)
    session.update_all([3, 5], ACCEPTED)
    session.update_all([3], RELEASED)
    session.update_all([3], ACCEPTED)
    session.update_all([5], RELEASED)
    session.update(1, Received(section_number=0, section_offset=0))
    session.update(1, RELEASED)
    session.update(1, ACCEPTED)
    pair.run()
    assert sorted(pair.client.outcomes) == [(i, RELEASED if i == 1 else ACCEPTED, False) for i in (0, 1, 2, 3, 5)]


def test_an_outcome_is_final_also_in_a_later_read() -> None:
    pair, _ = second_pair(2)
    session = pair.remote("s").session
    for state in (ACCEPTED, RELEASED, ACCEPTED):
        session.update_all([0], state)
        pair.run()
    session.update_all([0, 1], RELEASED)
    pair.run()
    assert pair.client.outcomes == [(0, ACCEPTED, False), (1, RELEASED, False)]


@pytest.mark.parametrize("default", [None, ACCEPTED, Modified(delivery_failed=True)])
@pytest.mark.parametrize("state", [None, Received(section_number=0, section_offset=0)])
def test_a_settlement_without_an_outcome_has_one(default: Any, state: Any) -> None:
    """What was stated before, else the default-outcome of the source, else released: also where all three are settled
    by one frame, and stated in the same one."""
    pair, sender = second_pair(4)
    sender.source = Source(default_outcome=default)
    link = pair.remote("s")
    link.session.update(1, Modified(undeliverable_here=True))
    pair.run()
    pair.client.outcomes.clear()
    link.second = False  # this end settles
    link.session.update(2, ACCEPTED)
    for i in range(4):
        link.session.settle(i, state)
    pair.run()
    other = RELEASED if default is None else default
    assert sorted((i, outcome) for i, outcome, settled in pair.client.outcomes if settled) == [
        (0, other),
        (1, Modified(undeliverable_here=True)),
        (2, ACCEPTED),
        (3, other),
    ]
    assert sender.unsettled == sender.decided == 0


def test_what_a_receiver_has_stated_counts_when_it_is_lost() -> None:
    pair, _ = second_pair(3)
    pair.remote("s").session.update(1, ACCEPTED)
    pair.run()
    pair.client.outcomes.clear()
    pair.c.transport_closed()
    assert pair.client.outcomes == [(1, ACCEPTED, True), (0, None, True), (2, None, True)]


def test_send_run_is_send_for_each() -> None:
    pair = Pair(server=Recorder(window=100))
    sender = pair.sender()
    payloads = [b"%d" % i for i in range(60)]
    assert sender.send_run(payloads, list(range(60))) == 60
    assert sender.unsettled == 60
    pair.run()
    assert pair.server.received == payloads
    assert pair.client.outcomes == [(i, ACCEPTED, True) for i in range(60)]
    assert sender.unsettled == 0


def test_send_run_stops_at_credit_frame_size_and_bytes() -> None:
    pair = Pair(server=Recorder(window=10, outcome=None), server_fields={"max_frame_size": 1024})
    sender = pair.sender()
    assert sender.send_run([b"x" * 100, b"y" * 2000, b"z"], "abc") == 1  # the second needs two frames
    sender.send(b"y" * 2000, "b")
    pair.run()
    assert sender.send_run([b"z"] * 20, list(range(20))) == 8
    assert sender.send_run([b"z"], [0]) == 0
    pair.run()
    assert len(pair.server.received) == 10
    other = pair.sender("settled", snd_settle_mode=1)
    assert other.send_run([b"z"], [0]) == 0
    wide = Pair(server=Recorder(window=1000, outcome=None))
    assert 60 < wide.sender().send_run([b"x" * 1000] * 100, list(range(100))) < 70


def test_send_run_stops_at_what_may_be_unsettled_and_at_a_peer_that_does_not_read() -> None:
    pair = Pair(server=Recorder(window=100, outcome=None), client_fields={"limits": Limits(max_unsettled=5)})
    sender = pair.sender()
    assert sender.send_run([b"z"] * 20, list(range(20))) == 5
    pair.c.set_blocked(True)
    assert pair.sender("other").send_run([b"z"], [0]) == 0


def test_send_run_at_the_wrap_of_delivery_ids() -> None:
    pair = Pair(server=Recorder(window=100))
    sender = pair.sender()
    start = 0xFFFFFFFF - 3
    outgoing = pair.c.sessions()[0].outgoing
    outgoing.next_id = start
    outgoing.stop = (start + 1000) & 0xFFFFFFFF
    pair.s.sessions()[0].incoming.begin(start)
    assert sender.send_run([b"%d" % i for i in range(10)], list(range(10))) == 3
    assert sender.send(b"3", 3) == 0xFFFFFFFF
    assert sender.send_run([b"%d" % i for i in range(4, 10)], list(range(4, 10))) == 6
    pair.run()
    assert pair.server.received == [b"%d" % i for i in range(10)]
    assert [token for token, _, _ in pair.client.outcomes] == list(range(10))
