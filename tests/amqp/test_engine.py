"""The engine back to back with itself: sessions, links, credit, settlement, pieces."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    RELEASED,
    Disposition,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
    Transfer,
)
from enmasse.amqp.connection import Connection
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender
from tests.amqp.engine_kit import Pair, Recorder, frames


def sent_by_server(pair: Pair, kind: type) -> list[Any]:
    return [p for _, p, _ in frames(pair.to_client) if type(p) is kind]


def sent_by_client(pair: Pair, kind: type) -> list[Any]:
    return [p for _, p, _ in frames(pair.to_server) if type(p) is kind]


# --- opening and closing ----------------------------------------------------------------------------------------------


def test_open_carries_the_fields_and_the_server_may_change_its_own() -> None:
    server = Recorder()

    class Host(Recorder):
        def on_open(self, c: Connection) -> None:
            super().on_open(c)
            c.open_fields.container_id = "for-" + str(c.remote_open and c.remote_open.hostname)

    server = Host()
    pair = Pair(server=server, client_fields={"hostname": "example", "properties": {"product": "test"}})
    assert pair.c.remote_open is not None and pair.c.remote_open.container_id == "for-example"
    assert pair.s.remote_open is not None and pair.s.remote_open.properties == {"product": "test"}


def test_server_refuses_in_on_open() -> None:
    class Refusing(Recorder):
        def on_open(self, c: Connection) -> None:
            c.close(AmqpError("amqp:not-found", "no such host"))

    pair = Pair(server=Refusing(), opened=False)
    pair.c.open()
    pair.run()
    assert pair.client.events == [("open",), ("close", "amqp:not-found")]
    assert pair.c.finished and pair.s.finished


def test_close_ends_everything_in_order() -> None:
    pair = Pair()
    sender = pair.sender()
    sender.send(b"never decided", "token")
    pair.server.outcome = None
    pair.c.close(AmqpError("amqp:connection:forced", "enough"))
    pair.run()
    assert pair.server.names()[-3:] == ["detach", "end", "close"]
    assert pair.server.events[-3] == ("detach", "s", "amqp:connection:forced", False)
    assert pair.client.names()[-3:] == ["detach", "end", "close"]
    assert pair.client.outcomes == [("token", None, True)]
    assert pair.c.state == pair.s.state == "closed"


def test_socket_lost() -> None:
    pair = Pair()
    sender = pair.sender()
    sender.send(b"x", 7)
    pair.c.transport_closed()
    pair.s.transport_closed(AmqpError("amqp:connection:forced", "reset"))
    assert pair.client.outcomes == [(7, None, True)]
    assert pair.client.names()[-3:] == ["detach", "end", "close"]
    assert pair.c.transport_error is not None and pair.s.transport_error is not None
    assert pair.s.transport_error.description == "reset"
    assert pair.server.events[-1] == ("close", "amqp:connection:forced")


def test_sessions_begun_by_either_side() -> None:
    pair = Pair()
    first, second = pair.c.begin(), pair.s.begin()
    pair.run()
    assert pair.server.names().count("begin") == pair.client.names().count("begin") == 2
    # a server may attach on what it began, on a connection that it was dialled on
    pair.client.attach = lambda link: link.accept()
    link = second.attach_sender("push", Source(address="a"), Target(address="b"))
    pair.run()
    link.send(b"pushed", 1)
    pair.run()
    assert pair.client.received == [b"pushed"]
    assert pair.server.outcomes == [(1, ACCEPTED, True)]
    first.end()
    pair.run()
    assert pair.client.events[-1] == ("end", None)
    assert pair.server.events[-1] == ("end", None)
    assert len(pair.c.sessions()) == len(pair.s.sessions()) == 1
    assert pair.c.begin().channel == first.channel


def test_channel_max_is_the_lower_of_both() -> None:
    pair = Pair(server_fields={"channel_max": 1})
    pair.c.begin()
    pair.c.begin()
    with pytest.raises(AmqpError, match="more than 2 sessions"):
        pair.c.begin()
    pair.run()
    assert len(pair.s.sessions()) == 2


def test_begin_wants_an_open_connection() -> None:
    pair = Pair(opened=False)
    with pytest.raises(AmqpError, match="open connection"):
        pair.c.begin()


@pytest.mark.parametrize("ending", ["session", "connection"])
def test_nothing_is_sent_after_our_end(ending: str) -> None:
    pair = Pair(server=Recorder(outcome=None))
    link, receiver = pair.sender(), pair.receiver()
    link.send(b"before", 1)
    pair.run()
    assert link.credit and pair.remote("r").credit
    pair.c.sessions()[0].end() if ending == "session" else pair.c.close()
    assert link.credit == 0
    with pytest.raises(AmqpError, match="no credit"):
        link.send(b"after", 2)
    pair.remote("r").send(b"crosses the end", 3)
    receiver.grant(5)
    pair.run()
    assert pair.client.received == []
    assert pair.client.outcomes == [(1, None, True)]
    assert pair.server.outcomes == [(3, None, True)]
    assert pair.c.sessions() == [] == pair.s.sessions()


def test_end_of_a_session_with_many_links_and_deliveries() -> None:
    """Each token is reported once, to its own link, and before the link's end."""
    pair = Pair(server=Recorder(window=40, outcome=None))
    links = [pair.sender(f"l{i}") for i in range(50)]
    for i in range(2000):
        links[i % 50].send(b"x", i)
    pair.run()
    pair.c.sessions()[0].end()
    pair.run()
    assert sorted(token for token, _, _ in pair.client.outcomes) == list(range(2000))
    assert all(link.unsettled == 0 for link in links)


@pytest.mark.parametrize("ending", ["end", "close", "lost"])
def test_what_comes_back_from_a_dying_link_has_nowhere_to_go(ending: str) -> None:
    """A broker gives what one consumer leaves to the next: not to one that dies in the same moment."""
    credits: list[int] = []

    class Broker(Recorder):
        def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
            super().on_outcomes(link, tokens, state, settled)
            credits.extend(other.credit for other in self.links.values() if isinstance(other, Sender))

    pair = Pair(client=Recorder(outcome=None), server=Broker())
    for name in ("a", "b", "c"):
        pair.receiver(name)
        pair.remote(name).send(b"x", name)
    pair.run()
    if ending == "end":
        pair.c.sessions()[0].end()
    elif ending == "close":
        pair.c.close()
    else:
        pair.s.transport_closed()
    pair.run()
    assert sorted(token for token, _, _ in pair.server.outcomes) == ["a", "b", "c"]
    assert credits == [0] * 9


def test_the_end_of_a_connection_reaches_all_callbacks_although_some_raise() -> None:
    class Broken(Recorder):
        def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
            super().on_outcomes(link, tokens, state, settled)
            raise RuntimeError("a bug")

        def on_end(self, s: Any, error: AmqpError | None) -> None:
            super().on_end(s, error)
            raise RuntimeError("another")

    pair = Pair(client=Broken(), server=Recorder(outcome=None))
    for name in ("a", "b"):
        pair.sender(name).send(b"x", name)
    pair.c.begin()
    pair.run()
    failures: list[Exception] = []
    pair.c.handler.on_failure = failures.append
    pair.c.transport_closed()
    assert sorted(map(str, failures)) == ["a bug", "a bug", "another", "another"]
    assert [token for token, _, _ in pair.client.outcomes] == ["a", "b"]
    assert pair.client.names()[-5:] == ["detach", "detach", "end", "end", "close"]
    assert pair.c.sessions() == [] and pair.c.names.count == 0 and pair.c.finished


LINK_CALLBACKS = ["on_attach", "on_flow", "on_outcomes", "on_delivery", "on_partial", "on_drained", "on_settled"]


@pytest.mark.parametrize("broken", LINK_CALLBACKS)
@pytest.mark.parametrize("failure", [RuntimeError("a bug"), AmqpError("amqp:not-allowed", "no")])
def test_a_callback_of_a_link_that_raises_ends_that_link_only(broken: str, failure: Exception) -> None:
    """Its peer gets the reason; the other links of the session go on, and what raised is reported."""

    class Broken(Recorder):
        armed = ""

        def __getattribute__(self, name: str) -> Any:
            callback = super().__getattribute__(name)
            if name != broken or not callable(callback):
                return callback

            def call(link: Link, *arguments: Any) -> None:
                if link.name == self.armed:
                    raise failure
                callback(link, *arguments)

            return call

    server = Broken(window=10)
    pair = Pair(client=Recorder(window=10), server=server)
    failures: list[Exception] = []
    pair.s.handler.on_failure = failures.append

    def attached(link: Link) -> None:
        if isinstance(link, Receiver):
            link.streaming = True
        link.accept()

    server.attach = attached
    good, good_in = pair.sender("good"), pair.receiver("good in")
    server.armed = "bad"
    if broken in ("on_flow", "on_outcomes"):
        bad: Link = pair.receiver("bad", 10)
        if broken == "on_outcomes":
            pair.remote("bad").send(b"m", "m")
    else:
        bad = sender = pair.sender("bad")
        if broken == "on_drained":
            pair.remote("bad").drain_credit()
        elif broken == "on_settled":
            server.outcome = None
            sender.send(b"m", "m")
            pair.run()
            sender.settle(["m"])
        elif broken == "on_partial":
            sender.begin("m").write(b"piece")
        elif broken == "on_delivery":
            sender.send(b"m", "m")
    pair.run()
    server.outcome = ACCEPTED
    assert bad.over
    condition = "amqp:internal-error" if isinstance(failure, RuntimeError) else "amqp:not-allowed"
    assert ("detach", "bad", condition, True) in pair.client.events
    assert set(failures) == ({failure} if isinstance(failure, RuntimeError) else set())
    good.send(b"after", "after")
    pair.remote("good in").send(b"back", "back")
    pair.run()
    assert ("after", ACCEPTED, True) in pair.client.outcomes and b"back" in pair.client.received
    assert good.attached and good_in.attached and pair.c.state == pair.s.state == "open"


def test_a_link_that_ends_reports_no_room_for_the_delivery_that_it_takes_back() -> None:
    """A handler that goes on with a begun delivery whenever there is room: detach, end and close must not ask it to."""

    class Streams(Recorder):
        delivery: Any = None

        def on_flow(self, link: Sender) -> None:
            super().on_flow(link)
            if self.delivery is not None:
                self.delivery.write(b"more")

    for end in ("detach", "end", "close"):
        pair = Pair(client=Streams())
        failures: list[Exception] = []
        pair.c.handler.on_failure = failures.append
        link = pair.sender()
        delivery = link.begin("begun")
        delivery.write(b"something")
        pair.run()
        assert link.credit == 0  # asked while the delivery is under way: on_flow is owed
        pair.client.delivery = delivery  # type: ignore[attr-defined]  # an attribute of this test's handler
        before = pair.client.names().count("flow")
        {"detach": link.detach, "end": pair.c.sessions()[0].end, "close": pair.c.close}[end]()
        assert pair.client.names().count("flow") == before
        pair.run()
        assert failures == [] and pair.client.outcomes == [("begun", None, True)]
        assert pair.server.received == []


def test_begun_deliveries_go_on_however_many_are_unsettled() -> None:
    """The peer makes room in its window without settling; the deliveries under way get it."""

    class Streams(Recorder):
        waits: list[Any] = []  # noqa: RUF012 - one instance

        def on_flow(self, link: Sender) -> None:
            delivery = self.waits[int(link.name[1:])] if self.waits else None
            if delivery is not None and not delivery.blocked:
                delivery.write(b"y" * 300)
                delivery.finish()

    frame_size = {"max_frame_size": 512, "limits": Limits(incoming_window=8)}
    pair = Pair(
        client=Streams(),
        server=Recorder(outcome=None),
        client_fields={"limits": Limits(max_unsettled=4)},
        server_fields=frame_size,
    )
    links = [pair.sender(f"s{i}") for i in range(4)]
    deliveries = [link.begin(i) for i, link in enumerate(links)]
    for delivery in deliveries:
        delivery.write(b"x" * 5000)
        assert delivery.blocked
    pair.client.waits = deliveries  # type: ignore[attr-defined]  # an attribute of this test's handler
    pair.run()
    assert sorted(map(len, pair.server.received)) == [5300] * 4


# --- transfers and settlement -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [0, 1, 7])
def test_messages_flow_and_are_settled_as_ranges(split: int) -> None:
    pair = Pair(split=split)
    link = pair.sender()
    for i in range(1000):
        while not link.credit:
            pair.run()
        link.send(b"message %d" % i, i)
    pair.run()
    assert pair.server.received == [b"message %d" % i for i in range(1000)]
    assert pair.client.outcomes == [(i, ACCEPTED, True) for i in range(1000)]
    assert link.unsettled == 0 and pair.remote("s").unsettled == 0
    assert len(sent_by_server(pair, Disposition)) <= 20 if not split else True


def test_payload_in_parts_and_other_kinds_of_bytes() -> None:
    pair = Pair()
    link = pair.sender()
    link.send([b"a", memoryview(b"bc"), b"d"])
    link.send(bytearray(b"ef"))
    link.send(memoryview(b"gh"), message_format=0x80013700)
    link.send(b"", tag=b"my-tag")
    pair.run()
    assert pair.server.received == [b"abcd", b"ef", b"gh", b""]
    assert [e[4] for e in pair.server.events if e[0] == "delivery"] == [0, 0, 0x80013700, 0]
    assert sent_by_client(pair, Transfer)[-1].delivery_tag == b"my-tag"
    tags = [t.delivery_tag for t in sent_by_client(pair, Transfer)]
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize(
    "outcome",
    [
        RELEASED,
        Rejected(),
        Modified(delivery_failed=True, undeliverable_here=True, message_annotations={"x-opt-why": "no"}),
    ],
)
def test_outcomes(outcome: Any) -> None:
    pair = Pair(server=Recorder(outcome=outcome))
    link = pair.sender()
    link.send(b"x", "t")
    pair.run()
    ((token, state, settled),) = pair.client.outcomes
    assert token == "t" and settled and type(state) is type(outcome)
    if isinstance(outcome, Modified):
        assert state.delivery_failed and state.undeliverable_here
        assert state.message_annotations == {"x-opt-why": "no"}


def test_outcomes_out_of_order_and_mixed() -> None:
    pair = Pair(server=Recorder(outcome=None))
    link = pair.sender()
    ids = [link.send(b"x", i) for i in range(10)]
    pair.run()
    session = pair.s.sessions()[0]
    for i in (3, 1, 2, 7):
        session.settle(ids[i])
    session.settle(ids[5], RELEASED)
    session.settle(ids[4], RELEASED)
    session.settle(ids[4], RELEASED)  # a second time: nothing
    pair.run()
    assert pair.client.outcomes == [
        (1, ACCEPTED, True),
        (2, ACCEPTED, True),
        (3, ACCEPTED, True),
        (7, ACCEPTED, True),
        (4, RELEASED, True),
        (5, RELEASED, True),
    ]
    assert link.unsettled == 4
    link.detach()
    pair.run()
    assert pair.client.outcomes[6:] == [(i, None, True) for i in (0, 6, 8, 9)]


def test_presettled() -> None:
    pair = Pair()
    link = pair.sender(snd_settle_mode=1)
    assert link.presettled
    for i in range(300):
        while not link.credit:
            pair.run()
        link.send(b"x", i)
    pair.run()
    assert len(pair.server.received) == 300
    assert all(e[2] for e in pair.server.events if e[0] == "delivery")
    assert pair.client.outcomes == [] and link.unsettled == 0
    assert sent_by_server(pair, Disposition) == []
    mixed = pair.sender("mixed")
    mixed.send(b"y", 1, settled=True)
    mixed.send(b"z", 2)
    pair.run()
    assert [token for token, _, _ in pair.client.outcomes] == [2]


def test_rcv_settle_mode_second() -> None:
    pair = Pair()
    link = pair.sender(rcv_settle_mode=1)
    assert pair.remote("s").rcv_settle_mode == 1
    for token in ("a", "b"):
        link.send(b"x", token)
    pair.run()
    assert pair.client.outcomes == [("a", ACCEPTED, False), ("b", ACCEPTED, False)]
    assert link.unsettled == 2 and pair.remote("s").unsettled == 2
    assert not any(e[0] == "settled" for e in pair.server.events)
    link.settle(["b"])
    pair.run()
    assert ("settled", [1]) in pair.server.events
    link.settle(["a"])
    pair.run()
    assert ("settled", [0]) in pair.server.events
    assert link.unsettled == 0 and pair.remote("s").unsettled == 0


def test_second_mode_tops_credit_up() -> None:
    pair = Pair(server=Recorder(window=4))
    link = pair.sender(rcv_settle_mode=1)
    for i in range(20):
        assert link.credit, i
        link.send(b"x", i)
        pair.run()
        link.settle([i])
        pair.run()
    assert len(pair.server.received) == 20


def test_states_told_again_and_again_do_not_pile_up() -> None:
    pair = Pair(server=Recorder(outcome=None))
    link = pair.sender()
    shared = "the same token"
    for _ in range(3):
        link.send(b"x", shared)
    pair.run()
    for _ in range(50):
        for delivery_id in range(3):
            pair.s.sessions()[0].update(delivery_id, RELEASED)
        pair.run()
    assert link.decided == 3
    link.settle([shared, shared])
    pair.run()
    assert link.unsettled == 1
    pair.s.sessions()[0].settle(2)
    pair.run()
    assert link.unsettled == 0 and link.decided == 0


def test_sender_settles_first() -> None:
    pair = Pair(server=Recorder(outcome=None))
    link = pair.sender()
    first = link.send(b"x", "a")
    link.send(b"y", "b")
    pair.run()
    link.settle_ids([first, 12345])
    link.settle(["b", "unknown"])
    pair.run()
    assert ("settled", [0, 1]) in pair.server.events
    assert link.unsettled == 0 and pair.client.outcomes == []


def test_update_then_settle() -> None:
    pair = Pair(server=Recorder(outcome=None))
    link = pair.sender()
    first = link.send(b"x", "a")
    pair.run()
    session = pair.s.sessions()[0]
    session.update(first, RELEASED)
    pair.run()
    assert pair.client.outcomes == [("a", RELEASED, False)]
    session.settle(first)
    pair.run()
    assert pair.client.outcomes[1:] == [("a", RELEASED, True)], "the first outcome is final"
    assert link.decided == 0


# --- credit -----------------------------------------------------------------------------------------------------------


def test_window_bounds_what_is_unsettled() -> None:
    pair = Pair(server=Recorder(window=10, outcome=None))
    link = pair.sender()
    for i in range(10):
        link.send(b"x", i)
    pair.run()
    assert link.credit == 0
    with pytest.raises(AmqpError, match="no credit"):
        link.send(b"one too many")
    session = pair.s.sessions()[0]
    for i in range(4):
        session.settle(i)
    pair.run()
    assert link.credit == 0  # half of the window is not used yet
    session.settle(4)
    pair.run()
    assert link.credit == 5


def test_credit_by_hand_and_available() -> None:
    pair = Pair()
    receiver = pair.receiver(window=0)
    remote = pair.remote("r")
    assert remote.credit == 0
    receiver.ask_queued()
    pair.run()
    assert receiver.queued is None, "a peer that does not know does not state it"
    remote.available = lambda: 17
    receiver.ask_queued()
    pair.run()
    assert receiver.queued == 17
    remote.available = None
    receiver.ask_queued()
    pair.run()
    assert receiver.queued is None, "what it no longer states is not known"
    receiver.grant(2)
    receiver.grant(1)
    pair.run()
    assert remote.credit == 3 and receiver.credit == 3
    remote.send(b"x")
    pair.run()
    assert receiver.credit == 2 == remote.credit


def test_drain() -> None:
    pair = Pair()
    receiver = pair.receiver(window=50)
    pair.remote("r").send(b"x")
    pair.run()
    receiver.drain_credit()
    pair.run()
    assert pair.client.events[-1] == ("drained", "r")
    assert receiver.credit == 0 == pair.remote("r").credit
    assert pair.remote("r").unsettled == 0 and receiver.unsettled == 0
    assert any(f.drain and f.link_credit == 0 for f in sent_by_server(pair, Flow))
    receiver.grant(1)
    pair.run()
    assert pair.remote("r").credit == 1
    receiver.drain_credit()
    pair.remote("r").send(b"last")
    pair.run()
    assert pair.client.received[-1] == b"last"
    assert pair.client.names().count("drained") == 2
    receiver.drain_credit()  # nothing to give back: at once
    assert pair.client.names().count("drained") == 3


def test_a_drain_is_not_answered_while_the_window_is_full() -> None:
    """What waits at the sender is denied room then: an answer would say that nothing waits."""

    class Server(Recorder):
        def on_flow(self, link: Sender) -> None:
            self.events.append(("flow", link.name))

    pair = Pair(server=Server(), client_fields={"limits": Limits(incoming_window=4)})
    receiver, remote = pair.receiver(window=0), pair.remote("r")
    receiver.grant(10)
    receiver.drain_credit()
    pair.run()
    for _ in range(4):
        remote.send(b"x")
    assert remote.credit == 0
    remote.drained()
    asked = pair.server.names().count("flow")
    pair.run()
    assert pair.server.names().count("flow") > asked, "there is room again"
    assert (remote.drain, remote.credit, pair.client.names().count("drained")) == (True, 6, 0)
    remote.send(b"last")
    remote.drained()
    pair.run()
    assert (len(pair.client.received), receiver.credit, pair.client.names().count("drained")) == (5, 0, 1)


def test_echo_is_answered() -> None:
    pair = Pair()
    pair.sender()
    before = len(sent_by_server(pair, Flow))
    session = pair.c.sessions()[0]
    session.send_flow(echo=True)
    session.send_flow(handle=0, delivery_count=0, echo=True)
    pair.run()
    assert len(sent_by_server(pair, Flow)) == before + 2


def test_too_many_unsettled_stop_the_credit_until_half_are_gone() -> None:
    pair = Pair(
        client=Recorder(), server=Recorder(window=1000, outcome=None), client_fields={"limits": Limits(max_unsettled=8)}
    )
    link = pair.sender()
    sent = 0
    while link.credit:
        link.send(b"x", sent)
        sent += 1
    assert sent == 8 and link.granted == 992
    pair.run()
    pair.client.events.clear()
    session = pair.s.sessions()[0]
    for i in range(4):
        session.settle(i)
    pair.run()
    assert ("flow", "s", 992) in pair.client.events
    assert link.credit
