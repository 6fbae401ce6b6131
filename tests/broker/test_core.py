"""The broker core by itself: order, counts, time, limits, and what happens when the disk fails."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from proton import symbol

from enmasse.amqp.errors import AmqpError
from services.broker import server
from services.broker.core.broker_address import BrokerAddress
from services.broker.core.errors import BrokerError
from services.broker.core.publisher import publish, publish_run
from services.broker.core.settings import AddressSettings, SettingsError, SettingsRepository, check
from services.broker.core.subscription import Identity, identity, queue_name
from services.broker.core.verdict import Verdict
from services.broker.core.wildcards import NameTree, matches, specificity
from services.broker.storage import files
from services.broker.storage.paging import Pager
from tests.broker.sansio import Core, QueueConsumer, decoded, encoded, more, outlet, taken


# -- names -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pattern", "name", "covers"),
    [
        ("a/b", "a/b", True), ("a/b", "a", False), ("a/+", "a/b", True), ("a/+", "a", False), ("a/+", "a/b/c", False),
        ("a/#", "a", True), ("a/#", "a/b/c", True), ("#", "a/b", True), ("a/#/z", "a/z", True),
        ("a/#/z", "a/b/c/z", True),
        ("a/#/z", "a/b", False), ("+/+", "a/b", True), ("+", "a/b", False), ("a/b+", "a/bc", False), ("a+", "a+", True),
        ("#/#", "a", True), ("a//b", "a//b", True), ("a/+/b", "a//b", True), ("+/x", "+/x", True), ("a", "+", False),
    ],
)  # fmt: skip
def test_wildcards(pattern: str, name: str, covers: bool) -> None:
    assert matches(pattern, name) is covers


LEVELS = st.lists(st.sampled_from(["a", "b", "", "+", "#", "a+"]), min_size=1, max_size=4).map("/".join)


@settings(max_examples=300, deadline=None)
@given(st.sets(LEVELS, max_size=8), st.sets(LEVELS, max_size=4), LEVELS)
def test_names_are_found_by_pattern(names: set[str], gone: set[str], pattern: str) -> None:
    tree = NameTree()
    for name in sorted(names | gone):
        tree.add(name)
    for name in gone:
        tree.remove(name)
        tree.remove(name)
    tree.remove("never/there")
    found = tree.covered(pattern)
    assert len(found) == len(set(found))
    assert set(found) == {name for name in names - gone if matches(pattern, name)}


@pytest.mark.parametrize("count", [50, 400])
def test_an_address_costs_work_for_one_address(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(tmp_path)
    broker = core.broker
    names = [f"t/{n}" for n in range(count)]
    for name in names:
        broker.catalogue.create_address(name, frozenset({"MULTICAST"}))
        broker.catalogue.create_queue(f"{name}/level", f"s{name}", "MULTICAST", durable=True)
    looked: list[str] = []
    apply = BrokerAddress.apply

    def counted(self: BrokerAddress, settings: AddressSettings) -> None:
        looked.append(self.name)
        apply(self, settings)

    monkeypatch.setattr(BrokerAddress, "apply", counted)
    for name in names:
        broker.catalogue.put_settings(name, {"maxDeliveryAttempts": 3})
        broker.catalogue.put_settings(f"{name}/#", {"maxSizeBytes": 5})
    assert all(address.limit == 5 for address in broker.catalogue.addresses.values())
    for name in names:
        broker.catalogue.remove_settings(f"{name}/#")
        broker.catalogue.remove_settings(f"{name}/+/#")
        broker.catalogue.delete_address(name, force=True)
    assert len(looked) <= 7 * count
    assert not broker.catalogue.addresses and not broker.catalogue.queues


def test_many_wildcards_do_not_take_forever() -> None:
    assert not matches("/".join(["#"] * 40) + "/x", "/".join("a" * 400))


def test_the_more_specific_match_wins() -> None:
    repository = SettingsRepository({"maxDeliveryAttempts": 1})
    ordered = ["#", "a/#", "a/+/c", "a/b/#", "a/b/c"]
    assert sorted(ordered, key=specificity)[0] == "#"
    for number, match in enumerate(("#", "a/#", "a/b/c"), 2):
        repository.put(match, {"maxDeliveryAttempts": number})
    assert [repository.get(n).max_delivery_attempts for n in ("x", "a", "a/b", "a/b/c")] == [2, 3, 3, 4]
    assert repository.get("x") is repository.get("y"), "equal settings are one object"
    assert repository.remove("a/#")
    assert repository.get("a/b").max_delivery_attempts == 2
    with pytest.raises(SettingsError, match="maxSizeBytes"):
        check({"maxSizeBytes": -5})
    assert check({"deadLetterAddress": "x", "expiryAddress": None}) == {"DLA": "x"}


def test_subscription_identities() -> None:
    assert identity("router", "sub@client", True) == Identity("client", "sub")
    assert identity("router", "a@b@client", True) == Identity("client", "a@b")
    assert identity("c", "sub@client", False) == Identity("c", "sub@client")
    assert identity("router", "nothing", True) == Identity("router", "nothing")
    who = Identity("c", "n|2")
    assert queue_name(who, durable=True, shared=False, everywhere=False) == "c.n|2"
    assert queue_name(who, durable=True, shared=True, everywhere=False) == "c.n"
    assert queue_name(who, durable=False, shared=True, everywhere=True) == "n:shared-volatile:global"


# -- queues ------------------------------------------------------------------------------------------------------------
def test_consumers_take_turns_by_credit() -> None:
    core = Core()
    q = core.queue()
    a, b = core.consumer(q, 2), core.consumer(q, 10)
    for n in range(6):
        core.send(n)
    assert taken(a) == [0, 2]
    assert taken(b) == [1, 3, 4, 5]
    core.send(6)
    assert taken(a) == []
    more(a, 1)
    core.send(7)
    assert sorted([*taken(a), *taken(b)]) == [6, 7]


def test_what_comes_back_keeps_its_place() -> None:
    core = Core()
    q = core.queue()
    a = core.consumer(q, 4)
    for n in range(6):
        core.send(n)
    messages = [token for _, token in outlet(a).take()]
    q.release(a, [messages[2], messages[0]])
    b = core.consumer(q, 10)
    assert taken(b) == [0, 2, 4, 5]


def test_selectors_do_not_hold_each_other_up() -> None:
    core = Core()
    q = core.queue()
    red = core.consumer(q, 1, "colour = 'red'")
    blue = core.consumer(q, 5, "colour = 'blue'")
    for n, colour in enumerate(["red", "red", "blue", "green", "red", "blue"]):
        core.send(n, properties={"colour": colour})
    assert taken(red) == [0]
    assert taken(blue) == [2, 5]
    more(red, 5)
    assert taken(red) == [1, 4]
    assert taken(core.consumer(q, 5)) == [3]


def test_a_search_goes_on_where_it_was_among_priorities() -> None:
    core = Core()
    q = core.queue()
    for n in range(2000):
        core.send(n, properties={"n": n}, priority=4 if n % 2 else 7)
    found = core.consumer(q, 3, "n >= 1997")
    for _ in range(20):
        core.broker.run_pending()
    assert taken(found) == [1998, 1997, 1999]
    assert not core.broker._pending, "nothing is left to look for"


def test_a_volatile_subscription_keeps_what_the_store_forgets(tmp_path: Path) -> None:
    """The durable one acknowledges first, and the payload is no longer in memory."""
    core = Core(tmp_path / "data", memory_limit=0, pager=Pager(tmp_path / "pages"))
    core.broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    kept = core.broker.catalogue.create_queue("t", "kept", "MULTICAST", durable=True)
    passing = core.broker.catalogue.create_queue("t", "passing", "MULTICAST", durable=False)
    core.send("news", "t", durable=True)
    core.commit()
    first = core.consumer(kept, 1)
    kept.accept(first, [token for _, token in outlet(first).sent])
    core.commit()
    assert taken(first) == ["news"]
    assert taken(core.consumer(passing, 1)) == ["news"]


def test_a_long_search_lets_others_have_their_turn() -> None:
    core = Core()
    q = core.queue()
    for n in range(2000):
        core.send(n, properties={"n": n})
    turns: list[int] = []
    core.broker.on_pending = lambda: turns.append(1)
    found = core.consumer(q, 3, "n >= 1990")
    assert taken(found) == []
    while len(turns) < 50 and not (got := taken(found)):
        core.broker.run_pending()
    assert got == [1990, 1991, 1992]
    assert len(turns) >= 3


def test_a_drain_is_answered_after_everything_was_sent() -> None:
    core = Core()
    q = core.queue()
    for n in range(3):
        core.send(n)
    consumer = core.consumer(q)
    outlet(consumer).drain = True
    more(consumer, 10)
    assert (taken(consumer), outlet(consumer).credit, outlet(consumer).drain) == ([0, 1, 2], 0, False)


def test_redelivery_delay_grows_up_to_its_limit() -> None:
    core = Core()
    core.broker.catalogue.put_settings(
        "q",
        {"redeliveryDelay": 100, "redeliveryMultiplier": 2.0, "maxRedeliveryDelay": 300, "maxDeliveryAttempts": -1},
    )
    q = core.queue()
    consumer = core.consumer(q, 100)
    core.send("x")
    for expected in (100, 200, 300, 300):
        ((_, message),) = outlet(consumer).take()
        q.modify(consumer, [message], failed=True, elsewhere=False)
        core.tick(expected - 1)
        assert taken(consumer) == []
        core.tick(1)
        assert len(outlet(consumer).sent) == 1


def test_expired_ones_are_never_sent_and_are_found_while_waiting() -> None:
    core = Core()
    q = core.queue()
    core.send("short", ttl=1)
    core.send("long", ttl=100)
    core.now += 1001
    consumer = core.consumer(q, 5)
    assert taken(consumer) == ["long"]
    assert (q.expired, q.count) == (1, 1)
    outlet(consumer).credit = 0
    core.send("short", ttl=1)
    core.tick(2000)
    assert (q.expired, q.count, len(list(q.messages()))) == (2, 1, 0)


def test_a_scheduled_message_may_expire_first() -> None:
    core = Core()
    q = core.queue()
    core.send("x", ttl=1, annotations={"x-opt-delivery-delay": 5000})
    assert (q.count, len(q.schedule)) == (1, 1)
    core.tick(2000)
    assert (q.count, q.expired) == (0, 1)
    assert core.broker.ledger.size == 0


def test_a_dead_letter_keeps_the_first_place_it_came_from() -> None:
    core = Core()
    core.broker.catalogue.put_settings("q", {"DLA": "dead1"})
    core.broker.catalogue.put_settings("dead1", {"DLA": "dead2"})
    core.queue()
    for name in ("dead1", "dead2"):
        core.queue(name)
    core.send("x")
    for name in ("q", "dead1"):
        queue = core.broker.catalogue.queues[name]
        consumer = core.consumer(queue, 1)
        queue.reject(consumer, [token for _, token in outlet(consumer).take()])
    ((payload, _),) = outlet(core.consumer(core.broker.catalogue.queues["dead2"], 1)).take()
    assert decoded(payload).annotations["x-opt-ORIG-ADDRESS"] == "q"


def test_dead_letter_queues_may_be_made_for_each_address() -> None:
    core = Core()
    core.broker.catalogue.put_settings("#", {"DLA": "dead", "autoCreateDeadLetterResources": True})
    for name in ("it's", "b"):
        q = core.queue(name)
        core.send(name, to=name)
        consumer = core.consumer(q, 1)
        q.reject(consumer, [token for _, token in outlet(consumer).take()])
    counts = {name: queue.count for name, queue in core.broker.catalogue.queues.items() if name.startswith("DLQ.")}
    assert counts == {"DLQ.it's": 1, "DLQ.b": 1}


def test_extreme_values_of_a_message() -> None:
    core = Core()
    deadlines: list[int] = []
    core.broker.on_deadline = deadlines.append
    q = core.queue()
    core.send("x", ttl=4294967.295, annotations={"x-opt-delivery-time": 2**62})
    core.send("x", annotations={"x-opt-delivery-delay": -5}, expiry_time=2**52)
    core.send("x", properties={"_AMQ_DUPL_ID": "k" * 100_000})
    core.send("x", properties={"_AMQ_DUPL_ID": "k" * 100_000})
    core.send("x", properties={"_AMQ_DUPL_ID": 7})
    assert (q.count, len(q.schedule)) == (4, 1)
    assert len(taken(core.consumer(q, 10))) == 3
    core.tick(1000)


def test_a_message_that_cannot_be_decoded_harms_nobody() -> None:
    """Well formed in front, rubbish in the application properties: selectors do not match, dead letters still move."""
    core = Core()
    core.broker.catalogue.put_settings("q", {"DLA": "dead"})
    q = core.queue()
    core.queue("dead")
    route = core.broker.catalogue.route("q", None)
    assert route is not None
    rubbish = b"\x00\x53\x73\xc0\x01\x00" + b"\x00\x53\x74\xc1\x05\x02\xa1\x7f\x00\x00" + b"\x00\x53\x77\x40"
    publish(core.broker, route, rubbish, core, 1)
    assert taken(core.consumer(q, 1, "a = 1")) == []
    consumer = core.consumer(q, 1)
    ((_, message),) = outlet(consumer).take()
    q.reject(consumer, [message])
    assert core.broker.catalogue.queues["dead"].count == 1
    for bad in (
        b"\x00",
        b"\x00\x53\x70\xc0",
        b"\x00\x53\x70\xd0\xff\xff\xff\xff\x00",
        b"rubbish",
        b"\x00\x53\x73\xc0\x09",
    ):
        with pytest.raises(AmqpError):
            publish(core.broker, route, bad, core, 2)
    assert q.count == 0


def test_an_unusual_encoding_of_the_header_is_understood() -> None:
    core = Core()
    q = core.queue()
    route = core.broker.catalogue.route("q", None)
    assert route is not None
    long_descriptor = (
        b"\x00\x80" + (0x70).to_bytes(8, "big") + b"\xd0" + b"\x00\x00\x00\x07\x00\x00\x00\x02" + b"\x41\x50\x07"
    )
    publish(core.broker, route, long_descriptor + b"\x00\x53\x77\xa1\x01x", core, 1)
    ((payload, _),) = outlet(core.consumer(q, 1)).take()
    message = decoded(payload)
    assert (message.durable, message.priority, message.body) == (True, 7, "x")


def test_the_window_of_duplicates_is_bounded() -> None:
    core = Core()
    core.broker.catalogue.put_settings("q", {"iDCacheSize": 3})
    q = core.queue()
    for key in ("a", "b", "c", "d", "b", "a"):
        core.send(key, properties={"_AMQ_DUPL_ID": key})
    assert q.count == 5, "b is remembered, a is not any more"


def test_a_queues_address_without_its_queue_gives_messages_back() -> None:
    core = Core()
    core.broker.catalogue.create_address("a", frozenset({"ANYCAST"}))
    core.broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    assert core.send("x", to="a") is Verdict.RELEASE
    assert core.send("x", to="t") is Verdict.ACCEPT
    assert core.broker.ledger.size == 0


def test_levels_follow_their_topic() -> None:
    core = Core()
    broker = core.broker
    broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    broker.catalogue.put_settings("t", {"maxSizeBytes": 10, "addressFullMessagePolicy": "FAIL"})
    broker.catalogue.create_queue("t/+/x", "s", "MULTICAST", durable=False)
    core.send("x" * 20, to="t/a/x")
    with pytest.raises(BrokerError, match=r'AMQ229102: Address "t" is full\.'):
        core.send("x", to="t/b")
    with pytest.raises(BrokerError, match="AMQ229218"):
        broker.catalogue.create_address("t/+", frozenset({"MULTICAST"}))
    with pytest.raises(BrokerError, match="AMQ229205"):
        broker.catalogue.delete_address("t")
    broker.catalogue.delete_address("t", force=True)
    assert (broker.catalogue.addresses, broker.catalogue.queues, broker.ledger.size) == ({}, {}, 0)


# -- undeliverable here ------------------------------------------------------------------------------------------------
def refuse(consumer: QueueConsumer, *, failed: bool = False) -> int:
    """What the consumer has got is modified, undeliverable here; how many these are."""
    messages = [message for _, message in outlet(consumer).take()]
    consumer.queue.modify(consumer, messages, failed=failed, elsewhere=True)
    return len(messages)


def test_an_exclusion_ends_with_its_message() -> None:
    core = Core()
    q = core.queue()
    first, second = core.consumer(q, 3), core.consumer(q)
    for n in range(3):
        core.send(n)
    assert refuse(first) == 3
    more(first, 3)
    more(second, 3)
    assert taken(first) == []
    q.accept(second, [message for _, message in outlet(second).take()])
    assert q.count == len(q.exclusions) == 0
    core.send("next")
    assert q.simple, "the short way of dispatching is taken again"


@pytest.mark.parametrize(
    "other", ["none", "one with another selector", "a router's without consumers", "one in reserve"]
)
def test_without_another_consumer_it_is_a_dead_letter(other: str) -> None:
    core = Core(defaults={"DLA": "dead"})
    q, dead = core.queue(exclusive=other == "one in reserve"), core.queue("dead")
    consumer = core.consumer(q, 3)
    if other != "none":
        core.consumer(
            q,
            0 if other == "a router's without consumers" else 5,
            "color = 'red'" if other == "one with another selector" else None,
            relay=other == "a router's without consumers",
        )
    core.send("x")
    assert refuse(consumer) == 1
    assert (q.count, q.killed, dead.count, len(q.exclusions)) == (0, 1, 1, 0)
    assert taken(core.consumer(dead, 1)) == ["x"]


def test_a_dead_letter_that_is_refused_is_not_lost() -> None:
    core = Core(defaults={"DLA": "q"})
    q = core.queue()
    consumer = core.consumer(q, 3)
    core.send("x")
    assert refuse(consumer, failed=True) == 1
    assert (q.count, taken(consumer)) == (1, [])
    q.detach(consumer)
    assert taken(core.consumer(q, 1)) == ["x"]


@pytest.mark.parametrize("dead_letter", [True, False])
def test_when_the_last_other_consumer_leaves(dead_letter: bool) -> None:
    core = Core(defaults={"DLA": "dead"} if dead_letter else {})
    q, dead = core.queue(), core.queue("dead")
    refusing, other = core.consumer(q, 1), core.consumer(q)
    core.send("x")
    assert refuse(refusing) == 1
    assert q.count == 1
    more(other, 1)
    assert taken(other) == ["x"]
    q.detach(other)
    more(refusing, 5)
    assert taken(refusing) == []
    assert (q.count, dead.count) == ((0, 1) if dead_letter else (1, 0))
    if not dead_letter:
        assert taken(core.consumer(q, 1)) == ["x"], "it waited for another consumer"


@pytest.mark.parametrize("count", [1, 3])
def test_a_routers_link_gets_it_again_counted_for_nobody_knows_who_is_behind(count: int) -> None:
    core = Core(defaults={"maxDeliveryAttempts": 4})
    q = core.queue()
    link = core.consumer(q, 1000, relay=True)
    for n in range(count):
        core.send(n)
    for attempts in range(4):
        assert [decoded(payload).delivery_count for payload, _ in outlet(link).sent] == [attempts] * count
        refuse(link, failed=attempts % 2 == 0)
    assert (q.count, q.killed, len(outlet(link).sent)) == (0, count, 0)


def test_what_fails_without_end_is_tried_ever_more_rarely() -> None:
    core = Core(defaults={"maxDeliveryAttempts": -1})
    q = core.queue()
    link = core.consumer(q, 100_000, relay=True)
    core.send("x")
    tries = 0
    for _ in range(6000):
        while found := refuse(link):
            tries += found
        core.tick(100)
    assert (q.count, q.killed) == (1, 0)
    assert 10 + 600 // 10 <= tries < 100, "every ten seconds in the end"


def test_another_router_gets_it_until_its_consumers_leave() -> None:
    core = Core()
    q = core.queue()
    one, two = core.consumer(q, 10, relay=True), core.consumer(q, 0, relay=True)
    core.send("x")
    more(two, 1)
    refuse(one)
    (message,) = [message for _, message in outlet(two).take()]
    assert taken(one) == []
    q.release(two, [message])
    assert taken(one) == [], "that one may have credit in a moment"
    q.flow(two)
    assert taken(one) == ["x"]


@pytest.mark.parametrize("jump", [-3_000_000_000, -900_000, 0, 3_600_000, 10**11])
def test_a_clock_that_is_set_changes_no_time_to_live_and_no_delay(tmp_path: Path, jump: int) -> None:
    core = Core(tmp_path, defaults={"expiryAddress": "late", "redeliveryDelay": 20_000})
    core.now = 4_000_000_000
    q, late = core.queue(), core.queue("late")
    core.send("short", durable=True, ttl=10)
    core.send("delayed", durable=True, annotations={symbol("x-opt-delivery-delay"): 15_000})
    core.skew = jump
    wall = core.now + jump
    core.send("until", durable=True, expiry_time=(wall + 10_000) / 1000)
    core.send("at", durable=True, annotations={symbol("x-opt-delivery-time"): wall + 15_000})
    core.commit()
    core.tick(9_000)
    consumer = core.consumer(q, 10)
    found = outlet(consumer).take()
    assert [decoded(payload).body for payload, _ in found] == ["short", "until"]
    q.release(consumer, [message for _, message in found])
    outlet(consumer).take()
    q.modify(consumer, [message for _, message in found], failed=True, elsewhere=False)
    core.tick(2_000)
    core.commit()
    assert (late.count, q.count) == (2, 2), "expired, and delayed"
    assert taken(consumer) == []
    annotations = decoded(outlet(core.consumer(late, 1)).take()[0][0]).annotations
    assert annotations[symbol("x-opt-ACTUAL-EXPIRY")] == core.now + jump
    core.tick(5_000)
    assert taken(consumer) == ["delayed", "at"]


def test_times_on_disk_are_those_of_the_wall(tmp_path: Path) -> None:
    core = Core(tmp_path)
    core.queue()
    core.skew = 10**10
    core.send("x", durable=True, ttl=10)
    core.send("y", durable=True, annotations={symbol("x-opt-delivery-delay"): 15_000})
    core.commit()
    core.now, core.skew = 777, core.now + core.skew - 777  # another boot, the same time of the day
    core.restart()
    q = core.broker.catalogue.queues["q"]
    assert [message.expires for message in q.messages()] == [10_777]
    core.tick(14_999)
    assert q.count == 1
    core.tick(2)
    assert taken(core.consumer(q, 5)) == ["y"]


def test_the_process_has_a_clock_that_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    before = server.clock()
    monkeypatch.setattr(time, "time", lambda: 5.0)
    assert before <= server.clock() < before + 60_000
    assert server.wall() == 5000


# -- the disk ----------------------------------------------------------------------------------------------------------
def test_accepted_after_the_commit_only(tmp_path: Path) -> None:
    core = Core(tmp_path)
    core.queue()
    assert core.send("x", durable=True) is Verdict.WAIT
    assert core.accepted == []
    core.commit()
    assert core.accepted == [1]
    assert core.send("x") is Verdict.ACCEPT


def test_one_copy_on_disk_for_all_subscriptions(tmp_path: Path) -> None:
    core = Core(tmp_path)
    core.broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    for name in ("s1", "s2"):
        core.broker.catalogue.create_queue("t", name, "MULTICAST", durable=True)
    core.broker.catalogue.create_queue("t", "volatile", "MULTICAST", durable=False, temporary=True)
    core.send("x", to="t", durable=True)
    core.commit()
    core.restart()
    queues = core.broker.catalogue.queues
    assert {name: queue.count for name, queue in queues.items()} == {"s1": 1, "s2": 1}
    assert core.broker.ledger.size == core.broker.catalogue.addresses["t"].size == len(encoded("x", durable=True))
    consumer = core.consumer(queues["s1"], 1)
    queues["s1"].accept(consumer, [token for _, token in outlet(consumer).take()])
    core.commit()
    core.restart()
    assert {name: queue.count for name, queue in core.broker.catalogue.queues.items()} == {"s1": 0, "s2": 1}


class _FailingFile:
    def __init__(self, file: Any, disk: FailingDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        if self._disk.broken:
            raise OSError(5, "Input/output error")
        self._file.sync()


class FailingDisk(files.RealFiles):
    """A disk whose syncs fail while it is `broken`."""

    broken = False

    def open(self, path: Path, *, create: bool = False) -> Any:
        return _FailingFile(super().open(path, create=create), self)


def test_nobody_gets_what_is_not_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FailingDisk()
    monkeypatch.setattr(files, "FILES", disk)
    core = Core(tmp_path)
    q, other = core.queue(), core.queue("other")
    consumer, idle = core.consumer(q, 10), core.consumer(other, 10)
    core.send("a", durable=True)
    core.send("b", durable=False)
    core.send("c", durable=False, to="other")
    core.send("d", durable=True)
    assert (taken(consumer), taken(idle)) == ([], ["c"])
    assert (q.count, core.broker.catalogue.addresses["q"].count, q.delivering) == (3, 3, 0)
    disk.broken = True
    core.commit()
    assert (core.accepted, core.failed) == ([], [1, 4])
    assert taken(consumer) == ["b"], "what was accepted and need not be stored is not lost with the others"
    assert (q.count, core.broker.ledger.size) == (1, q.bytes + other.bytes)
    disk.broken = False
    core.send("e", durable=True)
    core.send("f", durable=True, to="other")
    assert taken(consumer) == []
    core.commit()
    assert (taken(consumer), taken(idle), core.accepted) == (["e"], ["f"], [5, 6])


def test_the_order_of_arrival_is_kept(tmp_path: Path) -> None:
    core = Core(tmp_path)
    q = core.queue()
    picky, consumer = core.consumer(q, 1, "n < 0"), core.consumer(q)
    for n in range(40):
        core.send(n, durable=n % 3 == 0, properties={"n": n})
        if n % 7 == 0:
            core.commit()
            assert taken(picky) == []
    core.commit()
    core.send(-1, durable=True, properties={"n": -1})
    core.send(-2, durable=False, properties={"n": -2})
    core.commit()
    assert taken(picky) == [-1]
    more(consumer, 50)
    assert taken(consumer) == [*range(40), -2]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("runs", [False, True])
def test_a_queue_may_go_while_its_messages_are_on_their_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool, runs: bool
) -> None:
    disk = FailingDisk()
    monkeypatch.setattr(files, "FILES", disk)
    core = Core(tmp_path)
    core.broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    names = ("gone",) if runs else ("gone", "kept", "passing")
    queues = {
        n: core.broker.catalogue.create_queue("t", n, "MULTICAST", durable=n != "passing", auto_delete=True)
        for n in names
    }
    core.commit()
    route = core.broker.catalogue.route("t", None)
    assert route is not None
    if runs:
        publish_run(core.broker, route, [encoded(n, durable=True) for n in range(3)], core, 1)
    else:
        for n in range(3):
            core.send(n, "t", durable=True)
    core.broker.catalogue.consumer_left(queues["gone"])
    assert "gone" in core.broker.catalogue.queues, "it has messages"
    core.broker.catalogue.destroy_queue("gone")
    disk.broken = fails
    core.commit()
    disk.broken = False
    core.commit()
    assert (core.accepted, core.failed) == (([], [1, 2, 3]) if fails else ([1, 2, 3], []))
    for name in names[1:]:
        assert taken(core.consumer(queues[name], 5)) == ([] if fails else [0, 1, 2])
        core.broker.catalogue.destroy_queue(name, remove_consumers=True)
    assert (core.broker.ledger.size, core.broker.ledger.resident, core.broker.catalogue.addresses["t"].count) == (
        0,
        0,
        0,
    )
    assert core.store is not None and len(core.store.live.index) == 0


def test_what_nobody_waits_for_is_stored_when_the_disk_is_well_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settled by its sender, or a dead letter: nobody else has it."""
    disk = FailingDisk()
    monkeypatch.setattr(files, "FILES", disk)
    core = Core(tmp_path)
    core.broker.catalogue.put_settings("q", {"DLA": "dead"})
    q, dead = core.queue(), core.queue("dead")
    consumer = QueueConsumer(q, 1)
    core.send("x", durable=True)
    core.commit()
    q.attach(consumer)
    q.flow(consumer)
    disk.broken = True
    q.reject(consumer, [token for _, token in outlet(consumer).take()])
    route = core.broker.catalogue.route("dead", None)
    assert route is not None
    assert publish(core.broker, route, encoded("y", durable=True, ttl=100), None, 9) is Verdict.WAIT
    reader = core.consumer(dead, 5)
    for _ in range(3):
        core.commit()
    assert (taken(reader), dead.count, core.accepted, core.failed) == ([], 2, [1], [])
    disk.broken = False
    core.commit()
    assert taken(reader) == ["x", "y"]
    core.restart()
    dead = core.broker.catalogue.queues["dead"]
    assert sorted(taken(core.consumer(dead, 5))) == ["x", "y"]
    assert dead.expiries.count == 1


class _Loop:
    """Remembers for when it was asked."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.soon: list[Any] = []

    def time(self) -> float:
        return 0.0

    def call_soon(self, work: Any) -> None:
        self.soon.append(work)

    def call_later(self, pause: float, work: Any) -> None:
        self.pauses.append(pause)


def test_a_failing_disk_is_not_tried_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that nobody waits for: dozens of tries a second took a whole CPU, and a line in the log each."""
    disk = FailingDisk()
    monkeypatch.setattr(files, "FILES", disk)
    core, loop = Core(tmp_path), _Loop()
    core.queue()
    core.commit()
    route = core.broker.catalogue.route("q", None)
    assert route is not None
    disk.broken = True
    publish(core.broker, route, encoded("x", durable=True), None, 1)
    server.BrokerServer(core.broker, cast(asyncio.AbstractEventLoop, loop))
    loop.pauses.clear()
    core.commit()
    assert loop.pauses == [server.TRY_AGAIN]
    core.send("y", durable=True)
    assert len(loop.soon) == 1, "who sends is told at once whether it works again"
    disk.broken = False
    core.commit()
    assert core.accepted == [1]
    assert len(taken(core.consumer(core.broker.catalogue.queues["q"], 5))) == 2


def test_one_bad_arrival_costs_the_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(tmp_path)
    q, other = core.queue(), core.queue("other")
    consumer = core.consumer(other, 5)

    def fail(*_: object) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr(outlet(core.consumer(q, 1)), "send", fail)
    core.send("a", durable=True)
    core.send("b", durable=True, to="other")
    core.commit()
    assert (taken(consumer), core.accepted) == (["b"], [1, 2])


@pytest.mark.parametrize("kind", ["message", "run", "copy", "settled", "subscriptions"])
def test_what_came_while_a_write_failed_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Between the arrival and its own commit, an earlier commit that is still being written fails."""
    disk = FailingDisk()
    monkeypatch.setattr(files, "FILES", disk)
    core = Core(tmp_path)
    broker = core.broker
    core.queue()
    for name in ("s1", "s2"):
        broker.catalogue.create_queue("t", name, "MULTICAST", durable=True, auto_create_address=True)
    core.send("before", durable=True)
    core.commit()
    core.send("first", durable=True, properties={"_AMQ_DUPL_ID": "1"})
    broker.commit()  # is being written
    route = broker.catalogue.route("q", None)
    assert route is not None and core.store is not None
    if kind == "message":
        core.send("late", durable=True)
    elif kind == "run":
        publish_run(broker, route, [encoded(n, durable=True) for n in range(3)], core, 3)
    elif kind == "copy":
        core.send("first", durable=True, properties={"_AMQ_DUPL_ID": "1"})
    elif kind == "settled":
        publish(broker, route, encoded("late", durable=True), None, 9)
    else:
        core.send("late", "t", durable=True)
    disk.broken = True
    core.store.flush()
    disk.broken = False
    core.commit()
    core.commit()
    late = {"run": [3, 4, 5], "settled": []}.get(kind, [3])
    assert (core.accepted, sorted(core.failed)) == ([1], [2, *late])
    held = taken(core.consumer(broker.catalogue.queues["q"], 10))
    assert held == (["before", "late"] if kind == "settled" else ["before"])
    core.restart()
    assert taken(core.consumer(core.broker.catalogue.queues["q"], 10)) == held
    assert [core.broker.catalogue.queues[name].count for name in ("s1", "s2")] == [0, 0]


def test_what_could_not_be_written_goes_back_to_its_sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FailingDisk()
    monkeypatch.setattr(files, "FILES", disk)
    core = Core(tmp_path)
    core.broker.catalogue.put_settings("q", {"DLA": "dead"})
    q = core.queue()
    dead = core.queue("dead")
    core.send("kept", durable=True)
    core.commit()
    disk.broken = True
    core.send("lost", durable=True)
    consumer = core.consumer(q, 1)
    ((_, message),) = outlet(consumer).take()
    q.reject(consumer, [message])  # moved to the dead-letter address while nothing can be written
    core.commit()
    assert (core.accepted, core.failed) == ([1], [2])
    assert (q.count, dead.count) == (0, 1)
    disk.broken = False
    core.send("again", durable=True)
    core.commit()
    core.commit()
    assert core.accepted == [1, 3]
    core.restart()
    queues = core.broker.catalogue.queues
    assert taken(core.consumer(queues["q"], 5)) == ["again"]
    assert taken(core.consumer(queues["dead"], 5)) == ["kept"]


# -- a model -----------------------------------------------------------------------------------------------------------
class QueueMachine(RuleBasedStateMachine):
    """Random clients of one queue: every message is in one place, and the counts say so."""

    def __init__(self) -> None:
        super().__init__()
        self.core = self.begin()
        self.core.broker.catalogue.put_settings("q", {"maxDeliveryAttempts": -1})
        self.q = self.core.queue()
        self.consumers: list[QueueConsumer] = []
        self.held: dict[QueueConsumer, list[Any]] = {}
        self.sent = 0
        self.done: set[int] = set()

    def begin(self) -> Core:
        return Core()

    def durable(self) -> bool:
        """Whether the next message is."""
        return False

    def collect(self) -> None:
        for consumer in self.consumers:
            self.held[consumer] += [token for _, token in outlet(consumer).take()]

    @rule(priority=st.sampled_from([4, 4, 4, 9, 0]), odd=st.booleans(), delay=st.sampled_from([0, 0, 50]))
    def send(self, priority: int, odd: bool, delay: int) -> None:
        annotations = {"x-opt-delivery-delay": delay} if delay else None
        properties = {"odd": odd}
        self.core.send(
            self.sent, durable=self.durable(), priority=priority, properties=properties, annotations=annotations
        )
        self.sent += 1
        self.sent_some()
        self.collect()

    def sent_some(self) -> None:
        """Messages were sent."""

    @precondition(lambda self: len(self.consumers) < 4)
    @rule(
        selector=st.sampled_from([None, None, "odd = TRUE"]),
        priority=st.sampled_from([0, 0, 3]),
        credit=st.integers(0, 5),
    )
    def attach(self, selector: str | None, priority: int, credit: int) -> None:
        consumer = self.core.consumer(self.q, 0, selector, priority=priority)
        self.consumers.append(consumer)
        self.held[consumer] = []
        more(consumer, credit)
        self.collect()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), credit=st.integers(1, 5))
    def grant(self, data: st.DataObject, credit: int) -> None:
        more(data.draw(st.sampled_from(self.consumers)), credit)
        self.collect()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), outcome=st.sampled_from(["accept", "release", "failed", "elsewhere", "reject"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        held = self.held[consumer]
        chosen = [message for message in held if data.draw(st.booleans())]
        self.held[consumer] = [message for message in held if message not in chosen]
        if outcome == "accept":
            self.q.accept(consumer, chosen)
        elif outcome == "release":
            self.q.release(consumer, chosen)
        elif outcome == "reject":
            self.q.reject(consumer, chosen)
        else:
            self.q.modify(consumer, chosen, failed=outcome == "failed", elsewhere=outcome == "elsewhere")
        if outcome in ("accept", "reject"):
            self.done |= {message.id for message in chosen}
        self.collect()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        del self.held[consumer]
        self.q.detach(consumer)
        self.collect()

    @rule(milliseconds=st.integers(1, 60))
    def wait(self, milliseconds: int) -> None:
        self.core.tick(milliseconds)
        self.collect()

    @invariant()
    def everything_is_somewhere(self) -> None:
        ready = [message.id for message in self.q.messages()]
        scheduled = [message.id for message in self.q.schedule.messages()]
        held = [message.id for messages in self.held.values() for message in messages]
        everywhere = [*ready, *scheduled, *held]
        assert len(set(everywhere)) == len(everywhere), "in one place only"
        assert len(everywhere) + len(self.done) + self.q.arriving == self.sent
        assert self.q.count == len(everywhere) + self.q.arriving
        assert self.core.broker.catalogue.addresses["q"].count == self.q.count
        for consumer, messages in self.held.items():
            assert set(consumer.unsettled) == {message.id for message in messages}
        if self.q.order.levels is None:
            assert ready == sorted(ready)

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        for consumer in self.consumers:
            if outlet(consumer).credit > 0:
                wanted = [m for m in self.q.messages() if self.q.suits(consumer, m)]
                assert not wanted, "a consumer with credit and a message for it"

    def teardown(self) -> None:
        self.core.commit()
        self.collect()
        self.q.purge()
        for consumer in list(self.consumers):
            self.q.accept(consumer, self.held[consumer])
        assert (self.q.count, self.core.broker.ledger.size, self.core.broker.ledger.resident) == (0, 0, 0)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
