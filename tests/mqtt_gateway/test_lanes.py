"""What waits in a lane: whose turn it is, in which order, how long, and who is not read meanwhile."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Error, Modified, Rejected
from enmasse.amqp.codec.types import Symbol
from enmasse.bridge import lanes
from enmasse.bridge.lanes import AT_ONCE, AT_ONCE_BYTES, MAX_WAITING, Counters, Entry, Lane, Publisher
from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.bridge.message_routes import REPLIES
from enmasse.bridge.publishing import Publishing
from enmasse.model.address_types import TYPES, AddressType
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.topic_map import TopicMap
from services.mqtt_gateway.amqp.mapping import TopicRoute
from services.mqtt_gateway.amqp.outcome_reasons import reason_of_outcome
from services.mqtt_gateway.interfaces import UNKNOWN


class FakeLink:
    """A sender's end as a lane uses it: credit by hand, outcomes by hand. (Which deliveries a real link loses with a
    connection cannot be chosen.)"""

    def __init__(self) -> None:
        self.credit = 0
        self.unsettled: list[Entry] = []
        self.sent: list[bytes] = []

    @property
    def granted(self) -> int:
        return self.credit

    def pass_on(self, payload: bytes, token: Entry | None, tag: bytes | None = None, settled: bool = False) -> bool:
        if not self.credit:
            return False
        self.send(payload, token, settled)
        return True

    def send_run(self, payloads: list[bytes], tokens: list[Entry] | None) -> int:
        sent = min(self.credit, len(payloads))
        for n in range(sent):
            self.send(payloads[n], None if tokens is None else tokens[n], tokens is None)
        return sent

    def send(self, payload: bytes, token: Entry | None = None, settled: bool = False) -> None:
        assert self.credit > 0
        self.credit -= 1
        self.sent.append(payload)
        if token is not None:
            self.unsettled.append(token)

    def settle(self, tokens: list[Entry]) -> None:
        """As Sender.settle."""


class FakeSession:
    """Attaches links that stay without an answer."""

    link: FakeLink

    def attach_sender(self, name: object, source: object, target: object, properties: object = None) -> FakeLink:
        self.link = FakeLink()
        return self.link


class Who(Publisher):
    """A session as lanes use it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.holds: list[bool] = []
        self.outcomes: list[tuple[int, int]] = []
        self.refused: list[tuple[str, MessageOutcome]] = []

    def not_taken(self, to: str, outcome: MessageOutcome, condition: str, text: str) -> None:
        self.refused.append((to, outcome))

    def sent(self, key: int, qos: int, outcome: MessageOutcome, condition: str, text: str) -> None:
        self.outcomes.append((key, reason_of_outcome(outcome, condition)))

    def hold(self) -> None:
        super().hold()
        self.holds.append(True)

    def proceed(self) -> None:
        super().proceed()
        self.holds.append(False)

    def failed(self, error: Exception) -> None:
        raise error


class Rig:
    def __init__(self, type: AddressType | None = "anycast") -> None:
        self.counters = Counters()
        self.lane = Lane("a", REPLIES if type is None else TYPES[type], self.counters)
        self.link = FakeLink()
        self.lane.link = cast(Any, self.link)

    def grant(self, n: int) -> None:
        self.link.credit += n
        self.lane.on_flow(cast(Any, self.link))

    def outcome(self, state: Any, n: int = 1) -> None:
        tokens, self.link.unsettled = self.link.unsettled[:n], self.link.unsettled[n:]
        self.lane.on_outcomes(cast(Any, self.link), tokens, state, True)

    def lose(self) -> None:
        tokens, self.link.unsettled = self.link.unsettled, []
        self.lane.on_outcomes(cast(Any, self.link), tokens, None, True)
        self.lane.on_detach(cast(Any, self.link), None)
        self.link = FakeLink()
        self.lane.link = cast(Any, self.link)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.lane.tick()


def test_clients_take_turns_however_much_one_of_them_sends() -> None:
    rig, many, few = Rig(), Who("many"), Who("few")
    for n in range(100):
        rig.lane.send(many, n, 1, b"m%d" % n)
    rig.lane.send(few, 1, 1, b"f")
    rig.grant(3)
    rig.grant(100)
    assert rig.link.sent[:4] == [b"m0", b"m1", b"m2", b"f"]
    assert len(rig.link.sent) == 101


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_that_come_together_go_as_far_as_credit_goes_and_the_rest_waits(qos: int) -> None:
    rig, many, few = Rig(), Who("many"), Who("few")
    rig.grant(3)
    rig.lane.send_run(many, range(5), qos, [b"m%d" % n for n in range(5)])
    assert rig.link.sent == [b"m0", b"m1", b"m2"]
    rig.lane.send_run(many, range(5, 300), qos, [b"m%d" % n for n in range(5, 300)])
    assert many.waiting == 297
    assert many.holds == [True]
    rig.lane.send(few, 1, 1, b"f")
    rig.grant(1000)
    assert [each for each in rig.link.sent if each != b"f"] == [b"m%d" % n for n in range(300)]
    assert rig.link.sent.index(b"f") < 30
    assert rig.counters.waiting_bytes == many.waiting == 0
    rig.outcome(ACCEPTED, len(rig.link.unsettled))
    assert many.outcomes == [(n, 0) for n in range(300)] * qos


def test_messages_of_qos_0_that_come_together_are_dropped_where_nobody_receives() -> None:
    rig, who = Rig(), Who("one")
    rig.tick(lanes.PATIENCE)
    rig.lane.send_run(who, [0, 0], 0, [b"a", b"b"])
    assert (rig.counters.dropped, who.waiting) == (2, 0)


def test_a_turn_is_some_messages_or_one_that_is_large() -> None:
    rig, one, two = Rig(), Who("one"), Who("two")
    for n in range(AT_ONCE + 1):
        rig.lane.send(one, n, 1, b"s%d" % n)
        rig.lane.send(two, n, 1, bytes(AT_ONCE_BYTES))
    rig.grant(100)
    sizes = [len(payload) for payload in rig.link.sent]
    assert [at for at, size in enumerate(sizes) if size == AT_ONCE_BYTES][:2] == [AT_ONCE, AT_ONCE + 2]
    assert len(sizes) == 2 * (AT_ONCE + 1)
    assert (one.waiting, one.waiting_bytes, two.waiting, two.waiting_bytes) == (0, 0, 0, 0)


def test_a_client_with_much_waiting_is_not_read_until_half_of_it_has_left() -> None:
    rig, who = Rig(), Who("w")
    for n in range(MAX_WAITING - 1):
        rig.lane.send(who, n, 1, b"")
    assert not who.holds
    rig.lane.send(who, 1000, 1, b"")
    rig.lane.send(who, 1001, 1, b"")
    assert who.holds == [True]
    rig.grant(MAX_WAITING // 2)
    assert who.holds == [True]
    rig.grant(1)
    assert who.holds == [True, False]


def test_many_clients_together_are_bounded_too() -> None:
    rig = Rig()
    clients = [Who(str(n)) for n in range(40)]
    for who in clients:
        rig.lane.send(who, 1, 1, bytes(2 << 20))
    assert [who.held for who in clients] == [n >= 31 for n in range(40)]
    rig.lane.send(clients[0], 0, 0, b"dropped")
    assert rig.counters.dropped == 1


def test_what_is_lost_with_the_link_is_sent_again_in_front() -> None:
    rig, who = Rig(), Who("w")
    rig.grant(3)
    for n in range(5):
        rig.lane.send(who, n, 1, b"%d" % n)
    rig.outcome(ACCEPTED)
    rig.lose()
    rig.lane.send(who, 5, 1, b"5")
    rig.grant(10)
    assert rig.link.sent == [b"1", b"2", b"3", b"4", b"5"]
    rig.outcome(ACCEPTED, 5)
    assert who.outcomes == [(n, 0) for n in range(6)]


def test_what_is_lost_and_never_sent_again_has_an_unknown_outcome_the_rest_a_definite_one() -> None:
    rig, who = Rig(), Who("w")
    rig.grant(1)
    rig.lane.send(who, 1, 1, b"1")
    rig.lane.send(who, 2, 1, b"2")
    rig.lose()
    rig.tick(lanes.PATIENCE)
    assert who.outcomes == [(1, UNKNOWN), (2, 0x83)]
    assert who.waiting == 0


def test_what_is_given_back_is_tried_again_and_holds_up_its_client_only() -> None:
    rig, one, two = Rig(), Who("one"), Who("two")
    rig.grant(4)
    rig.lane.send(one, 1, 1, b"a")
    rig.lane.send(one, 2, 1, b"b")
    rig.outcome(RELEASED, 2)
    rig.lane.send(one, 3, 1, b"c")
    rig.lane.send(two, 1, 1, b"x")
    assert rig.link.sent == [b"a", b"b", b"x"]
    rig.outcome(Modified(delivery_failed=True))
    rig.grant(10)
    rig.tick()
    assert rig.link.sent[3:] == [b"a", b"b", b"c", b"x"]
    assert rig.counters.repeated == 3


def test_what_is_given_back_in_parts_keeps_its_order() -> None:
    rig, who = Rig(), Who("w")
    rig.grant(4)
    for n in range(6):
        rig.lane.send(who, n, 1, b"%d" % n)
    rig.outcome(RELEASED, 2)
    rig.outcome(RELEASED, 1)
    rig.lose()
    rig.grant(10)
    rig.tick()
    assert rig.link.sent == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_outcomes_have_reasons() -> None:
    rig, who = Rig("queue"), Who("w")
    rig.grant(10)
    conditions = ("amqp:resource-limit-exceeded", "amqp:unauthorized-access", "amqp:decode-error", "other:thing")
    for n, condition in enumerate(conditions):
        rig.lane.send(who, n, 1, b"")
        rig.outcome(Rejected(error=Error(condition=Symbol(condition))))
    rig.lane.send(who, 8, 1, b"")
    rig.outcome(Modified(undeliverable_here=True))
    rig.lane.send(who, 9, 1, b"")
    rig.outcome(Rejected(error=Error(condition=Symbol("amqp:not-found"))))
    assert who.outcomes == [(0, 0x97), (1, 0x87), (2, 0x99), (3, 0x83), (8, 0x83)]
    rig.link.credit = 0
    rig.tick(lanes.STORED_PATIENCE)
    told = [outcome.name for _, outcome in who.refused]
    assert told == ["REJECTED"] * 4 + ["MODIFIED", "UNAVAILABLE" if rig.lane.traits.stored else "RELEASED"]
    assert who.outcomes[-1] == (9, UNKNOWN), "a configured address that the router does not know yet is waited for"


def test_what_no_broker_takes_is_not_refused() -> None:
    """A refusal is final, but the broker comes again: the client has to keep the message."""
    rig, who = Rig("topic"), Who("w")
    rig.lane.send(who, 1, 2, b"")
    rig.lane.send(who, 2, 0, b"")
    rig.tick(lanes.STORED_PATIENCE)
    assert who.outcomes == [(1, UNKNOWN)]
    assert (who.waiting, rig.counters.dropped) == (0, 1)


def test_a_slow_address_uses_up_nobody_s_patience() -> None:
    """However long a message is on its way: it has no outcome, and those behind it wait."""
    rig, who = Rig(), Who("w")
    rig.grant(1)
    rig.lane.send(who, 1, 1, b"1")
    rig.lane.send(who, 2, 1, b"2")
    for packet_id in (1, 2):
        rig.tick(10 * lanes.PATIENCE)
        assert len(who.outcomes) == packet_id - 1
        rig.outcome(ACCEPTED)
        rig.grant(1)
    rig.tick(10 * lanes.PATIENCE)
    assert who.outcomes == [(1, 0), (2, 0)]
    rig.lane.send(who, 3, 1, b"3")
    rig.tick(10 * lanes.PATIENCE)
    rig.lose()
    rig.tick(lanes.PATIENCE - 1)
    assert rig.lane.waiting == 1, "it waits for a link from now on only"
    rig.tick()
    assert who.outcomes[-1] == (3, UNKNOWN)


def test_credit_that_comes_now_and_then_is_enough() -> None:
    rig, who = Rig(), Who("w")
    for n in range(10):
        rig.lane.send(who, n, 1, b"")
    for _ in range(10):
        rig.tick(lanes.PATIENCE - 1)
        rig.grant(1)
        rig.outcome(ACCEPTED)
    assert who.outcomes == [(n, 0) for n in range(10)]


def test_what_is_given_back_is_tried_a_number_of_times_however_long_a_try_takes() -> None:
    rig, who = Rig("queue"), Who("w")
    rig.grant(1000)
    rig.lane.send(who, 1, 1, b"m")
    for _ in range(lanes.STORED_PATIENCE - 1):
        rig.tick(3)
        rig.outcome(RELEASED)
        rig.tick()
    assert len(rig.link.sent) == lanes.STORED_PATIENCE
    assert not who.outcomes
    rig.outcome(RELEASED)
    rig.tick()
    assert who.outcomes == [(1, UNKNOWN)]
    assert rig.lane.waiting == 0


def test_a_link_that_is_refused_again_and_again_is_waited_for_no_longer() -> None:
    rig, who = Rig(), Who("w")
    rig.lane.on_detach(cast(Any, rig.link), None)
    rig.lane.send(who, 1, 1, b"m")
    session = FakeSession()
    for _ in range(lanes.PATIENCE):
        rig.lane.attach(cast(Any, session))
        rig.lane.on_detach(cast(Any, session.link), None)
        rig.tick()
    assert who.outcomes == [(1, 0x83)]


def test_a_multicast_address_whose_link_is_lost_may_have_receivers() -> None:
    rig, who = Rig("multicast"), Who("w")
    rig.lane.on_detach(cast(Any, rig.link), None)
    rig.lane.send(who, 1, 1, b"m")
    rig.tick(lanes.MULTICAST_PATIENCE)
    assert not who.outcomes
    rig.lane.link = cast(Any, rig.link)
    rig.grant(1)
    rig.outcome(ACCEPTED)
    assert who.outcomes == [(1, 0)]


def test_nobody_at_a_multicast_address_is_no_failure() -> None:
    rig, who = Rig("multicast"), Who("w")
    rig.lane.send(who, 1, 1, b"")
    rig.lane.send(who, 2, 0, b"")
    rig.tick(lanes.MULTICAST_PATIENCE)
    assert who.outcomes == [(1, 0x10)]
    rig.lane.send(who, 3, 0, b"")
    assert rig.counters.dropped == 2
    assert who.waiting == 0
    rig.grant(1)
    rig.lane.send(who, 4, 1, b"")
    rig.outcome(RELEASED)
    assert who.outcomes[-1] == (4, 0x10)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2)),
        st.tuples(st.just("grant"), st.integers(1, 4)),
        st.tuples(st.just("accept"), st.integers(1, 4)),
        st.tuples(st.just("release"), st.integers(1, 2)),
        st.tuples(st.just("lose"), st.just(0)),
        st.tuples(st.just("time"), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_each_message_has_one_outcome_and_a_client_s_first_sendings_are_in_order(steps: list[tuple[str, int]]) -> None:
    rig = Rig()
    clients = [Who(str(n)) for n in range(3)]
    count = 0
    everything: list[bytes] = []
    for what, n in steps:
        if what == "send":
            count += 1
            rig.lane.send(clients[n], count, 1, b"%d/%d" % (n, count))
        elif what == "grant":
            rig.grant(n)
        elif what == "accept":
            rig.outcome(ACCEPTED, n)
        elif what == "release":
            rig.outcome(RELEASED, n)
        elif what == "time":
            rig.tick()
        else:
            everything += rig.link.sent
            rig.lose()
    rig.grant(1000)
    while rig.lane.waiting or rig.link.unsettled:
        rig.outcome(ACCEPTED, 1000)
        rig.tick()
    everything += rig.link.sent
    assert sorted(packet_id for who in clients for packet_id, _ in who.outcomes) == list(range(1, count + 1))
    assert all(who.waiting == who.waiting_bytes == 0 and not who.held for who in clients)
    for n in range(3):
        mine = [int(each.split(b"/")[1]) for each in everything if each.startswith(b"%d/" % n)]
        first = list(dict.fromkeys(mine))
        assert first == sorted(first)


def test_what_a_client_sends_again_is_withdrawn_and_nothing_else() -> None:
    """Also the line of returned messages, also while a loop over the lines runs."""
    rig = Rig("queue")
    rig.grant(1)

    class Refused(Who):
        def sent(self, key: int, qos: int, outcome: MessageOutcome, condition: str, text: str) -> None:
            super().sent(key, qos, outcome, condition, text)
            rig.lane.withdraw(self)

    who, other = Refused("who"), Who("other")
    for number in range(1, 5):
        rig.lane.send(who, number, 1, b"%d" % number)
    rig.lane.send(other, 9, 1, b"other")
    rig.lane.send(who, 0, 0, b"fleeting")
    rig.outcome(Rejected(error=Error(condition=Symbol("amqp:resource-limit-exceeded"))))
    assert who.outcomes == [(1, 0x97)]
    assert (who.waiting, who.waiting_bytes) == (1, len(b"fleeting"))
    rig.grant(9)
    assert sorted(rig.link.sent[1:]) == [b"fleeting", b"other"]
    for number in range(5, 8):
        rig.lane.send(who, number, 1, b"%d" % number)
    rig.outcome(ACCEPTED)
    rig.link.credit = 0
    rig.outcome(RELEASED, 3)  # they rest
    rig.tick(lanes.STORED_PATIENCE + 1)  # given up: the first is reported, and takes the others along
    assert who.outcomes == [(1, 0x97), (5, UNKNOWN)]
    assert rig.lane.waiting == who.waiting == rig.counters.waiting_bytes == 0


def test_what_waits_takes_the_way_of_another_type_of_its_address() -> None:
    """Also what was under way when the type changed."""
    types: list[AddressType] = ["topic", "queue", "topic"]
    topics = [TopicMap({AddressName("a"): Address(type=each)}) for each in types]
    publishing, who, ways = Publishing(topics[0], TopicRoute.find), Who("c"), []
    for number, each in enumerate(topics):
        publishing.set_topics(each)
        way = publishing.way("a/b.c")
        assert way is not None
        ways.append(way)
        payload = way.route.plain(1, False, b"x")
        way.lane.send(who, number, 1, payload)
        for earlier in ways[-2:]:
            entry = Entry(who, 10 + number, 1, payload, 0, 1)
            earlier.lane.on_outcomes(cast(Any, None), [entry], RELEASED, True)
        assert publishing.waiting == way.lane.waiting == who.waiting
    assert ways[0].lane is ways[2].lane is not ways[1].lane
    assert publishing.waiting == 8


@pytest.mark.parametrize("lost", [False, True], ids=["released", "lost"])
def test_qos_2_of_a_client_that_has_left_goes_no_further_if_it_comes_back(lost: bool) -> None:
    """A message that the client sends again would come before one in front of it that is refused."""
    rig, who = Rig("queue"), Who("who")

    def back() -> list[bytes]:
        if lost:
            rig.lose()
        else:
            rig.outcome(RELEASED, 2)
        before = len(rig.link.sent)
        rig.grant(9)
        rig.tick()
        return rig.link.sent[before:]

    rig.grant(9)
    for qos in (1, 2):
        rig.lane.send(who, qos, qos, b"%d" % qos)
    assert back() == [b"1", b"2"]
    who.left = True
    assert back() == [b"1"]
    assert rig.lane.waiting == who.waiting == 0


def test_what_comes_from_another_lane_leaves_with_the_credit_that_is_there() -> None:
    rig, other, who = Rig("queue"), Rig(), Who("who")
    rig.lane.elsewhere = lambda payload: other.lane
    other.grant(9)
    rig.lane.send(who, 1, 1, b"1")
    rig.lane.reroute()
    other.lane.send(who, 2, 1, b"2")
    other.tick()
    assert (rig.link.sent, other.link.sent, who.waiting) == ([], [b"1", b"2"], 0)
