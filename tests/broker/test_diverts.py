"""Diverts: one queue with many filters, what is never diverted, restarts, what one more costs."""

from __future__ import annotations

import json
import random
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from services.broker.core import broker
from services.broker.core.connections import ConnectionInfo, Connections
from services.broker.core.errors import BrokerError
from services.broker.core.messages.leading_sections import readable
from services.broker.core.publishing.verdict import Verdict
from services.broker.core.queues import backlog
from services.broker.core.queues.queue import Queue
from services.broker.core.routing import route_table
from services.broker.management.node import ManagementNode
from services.broker.selector import SelectorError
from tests.broker.disks import FailingDisk, LossyFiles, PowerCutError, TearingFiles
from tests.broker.sansio import Core, decoded, encoded, outlet, taken
from tests.kit.marks import first_soon

ANNOTATIONS = 0x72


def session(core: Core, *patterns: str, name: str = "$sub/b/session", **options: Any) -> Queue:
    """A queue with an address of its own, and diverts of topics to it."""
    queue = core.queue(name, **options)
    for pattern in patterns:
        divert(core, pattern, name)
    return queue


def divert(core: Core, pattern: str, to: str = "$sub/b/session", filter: str | None = None, **options: Any) -> None:
    core.broker.catalogue.diverts.create(f"{to}|{pattern}", pattern, to, filter=filter, **options)


def topic(core: Core, *names: str) -> None:
    for name in names:
        core.broker.catalogue.create_address(name, frozenset({"MULTICAST"}))


def test_one_queue_gets_each_message_once_and_in_order() -> None:
    core = Core()
    topic(core, "t", "u")
    queue = session(core, "t/+/temperature", "t/#", "u")
    for n, name in enumerate(["t/a/temperature", "u", "t", "u/x", "t/b/humidity", "t/b/temperature"]):
        core.send(n, name)
    assert taken(core.consumer(queue, 10)) == [0, 1, 2, 4, 5]
    assert (core.broker.catalogue.addresses["t"].count, core.broker.catalogue.addresses["u"].count) == (4, 1)


def test_each_divert_has_a_filter_of_its_own() -> None:
    core = Core()
    topic(core, "t")
    queue = session(core)
    divert(core, "t/#", filter="n > 10")
    divert(core, "t/a", filter="n < 2")
    divert(core, "t/b")
    for n in (0, 5, 20):
        for name in ("t/a", "t/b", "t/c"):
            core.send(f"{name} {n}", name, properties={"n": n})
    assert taken(core.consumer(queue, 10)) == ["t/a 0", "t/b 0", "t/b 5", "t/a 20", "t/b 20", "t/c 20"]


def test_subscribers_and_diverts_share_a_message() -> None:
    core = Core()
    topic(core, "t")
    queue = session(core, "t/#")
    subscriber = core.broker.catalogue.create_queue("t/+", "s", "MULTICAST", durable=True)
    filtered = core.broker.catalogue.create_queue("t/a", "f", "MULTICAST", durable=True, filter="colour = 'red'")
    core.send(1, "t/a", properties={"colour": "red"})
    core.send(2, "t/a", properties={"colour": "blue"})
    core.send(3, "t/a")
    assert core.broker.catalogue.addresses["t"].count == 3
    assert [taken(core.consumer(q, 9)) for q in (queue, subscriber, filtered)] == [[1, 2, 3], [1, 2, 3], [1]]


def test_diverts_come_and_go() -> None:
    core = Core()
    topic(core, "t")
    diverts = core.broker.catalogue.diverts
    queue = session(core)
    diverts.create("d", "t/a", queue.name, filter="n = 1")
    diverts.create("d", "t/other", "nowhere")  # there is one of this name
    core.send("x", "t/a", properties={"n": 0})
    core.send("y", "t/a", properties={"n": 1})
    diverts.update("d", filter="n = 0")
    core.send("z", "t/a", properties={"n": 0})
    diverts.destroy("d")
    core.send("gone", "t/a", properties={"n": 0})
    assert taken(core.consumer(queue, 5)) == ["y", "z"]
    with pytest.raises(BrokerError, match="AMQ229012: No binding for divert d"):
        diverts.destroy("d")
    with pytest.raises(BrokerError, match="AMQ229231: Divert Does Not Exist: d"):
        diverts.update("d", filter=None)
    with pytest.raises(BrokerError, match="AMQ229203: Address Does Not Exist: nowhere"):
        divert(core, "t/a", "nowhere")
    with pytest.raises(BrokerError, match="AMQ229015"):
        diverts.create("", "t/a", queue.name)
    with pytest.raises(BrokerError, match="the routing type of a divert is one of"):
        divert(core, "t/a", routing_type="BOTH")
    with pytest.raises(SelectorError):
        divert(core, "t/b", filter="n =")
    assert not diverts.by_name


def test_a_divert_waits_for_its_topic() -> None:
    core = Core()
    catalogue = core.broker.catalogue
    queue = session(core, "t/#")
    assert catalogue.route("t/a", None) is None
    for n in range(2):
        topic(core, "t")
        core.send(n, "t/a")
        catalogue.delete_address("t")
    assert taken(core.consumer(queue, 5)) == [0, 1]


def test_a_divert_ends_with_its_destination() -> None:
    core = Core()
    topic(core, "t")
    catalogue = core.broker.catalogue
    session(core, "t/a", "t/b")
    session(core, "t/a", name="$sub/b/other")
    session(core, "t/#", name="$sub/b/third")
    catalogue.destroy_queue("$sub/b/session", remove_consumers=True, auto_delete_address=True)
    catalogue.delete_address("$sub/b/other", force=True)
    assert set(catalogue.diverts.by_name) == {"$sub/b/third|t/#"}
    assert set(catalogue.addresses) == {"t", "$sub/b/third"}
    assert core.send("x", "t/a") is Verdict.ACCEPT
    assert catalogue.queues["$sub/b/third"].count == 1


def test_wildcards_divert_topics_only() -> None:
    core = Core()
    catalogue = core.broker.catalogue
    topic(core, "t", "$internal")
    for name in ("q", "DLQ", "ExpiryQueue"):
        core.queue(name)
    catalogue.create_temporary("reply", "MULTICAST", "")
    everything = session(core, "#", "+", name="$sub/b/everything")
    session(core, "#", "+/+/+", "$sub/#", "$sub/b/session")
    for name in ("q", "DLQ", "ExpiryQueue", "$sub/b/everything", "$internal/x", "reply"):
        core.send(name, name)
    core.send("t", "t")
    divert(core, "q", everything.name)
    divert(core, "$internal/#", everything.name)
    core.send("q", "q")
    core.send("$internal", "$internal/x")
    assert taken(core.consumer(everything, 9)) == ["$sub/b/everything", "t", "q", "$internal"]
    assert taken(core.consumer(catalogue.queues["$sub/b/session"], 9)) == ["t"]
    assert [catalogue.queues[name].count for name in ("q", "DLQ", "ExpiryQueue")] == [2, 1, 1]


def test_a_divert_leads_to_another_address() -> None:
    core = Core()
    topic(core, "t", "copies")
    catalogue = core.broker.catalogue
    all_of_it, errors = core.queue("copy"), core.queue("errors")
    copies = catalogue.create_queue("copies/#", "copies", "MULTICAST", durable=True)
    divert(core, "t/#", "copy")
    divert(core, "t/+", "errors", filter="level = 'error'")
    divert(core, "t/#", "copies")
    core.send(1, "t/a", properties={"level": "info"}, durable=True)
    core.send(2, "t/b", properties={"level": "error"}, durable=True)
    core.send(3, "copy")
    found = [taken(core.consumer(queue, 5)) for queue in (all_of_it, errors, copies)]
    assert found == [[1, 2, 3], [2], [1, 2]]
    assert (catalogue.addresses["t"].count, catalogue.addresses["copy"].count) == (2, 1)
    catalogue.delete_address("errors", force=True)
    assert core.send(4, "t/a", properties={"level": "error"}) is Verdict.ACCEPT


@pytest.mark.parametrize(
    ("routing_type", "sent", "found"),
    [("ANYCAST", None, "q"), ("MULTICAST", None, "s"), ("STRIP", None, "qs"), ("PASS", "MULTICAST", "s")],
)
def test_routing_types(routing_type: str, sent: str | None, found: str) -> None:
    core = Core()
    catalogue = core.broker.catalogue
    topic(core, "t")
    catalogue.create_address("both", frozenset({"ANYCAST", "MULTICAST"}))
    catalogue.create_queue("both", "q", "ANYCAST", durable=True)
    catalogue.create_queue("both", "s", "MULTICAST", durable=True)
    divert(core, "t", "both", routing_type=routing_type)
    route = catalogue.route("t", sent)
    assert route is not None
    assert {queue.name for queue in route.targets} == set(found)


def test_diverts_in_a_circle_end() -> None:
    core = Core()
    queues = [core.queue(name) for name in "abc"]
    for source, target in ("ab", "bc", "ca", "aa"):
        divert(core, source, target)
    core.send("x", "a")
    assert [taken(core.consumer(queue, 5)) for queue in queues] == [["x"], ["x"], ["x"]]


def test_a_chain_is_seen_when_its_end_changes() -> None:
    core = Core()
    topic(core, "t", "u")
    catalogue = core.broker.catalogue
    first, second = core.queue("first"), core.queue("second")
    divert(core, "t/a", "u")
    core.send(0, "t/a")
    divert(core, "u", "first")
    core.send(1, "t/a")
    divert(core, "#", "second", filter="n = 1")
    core.send(2, "t/a", properties={"n": 1})
    catalogue.destroy_queue("first")
    core.send(3, "t/a", properties={"n": 1})
    assert (first.count, taken(core.consumer(second, 9))) == (0, [2, 3])
    catalogue.delete_address("u", force=True)
    core.send(4, "t/a")
    core.send(5, "t/a", properties={"n": 1})
    assert second.count == 3


# -- the address a message was sent to ---------------------------------------------------------------------------------
def sent_to(core: Core, queue: Queue) -> list[Any]:
    consumer = core.consumer(queue, 20)
    found = []
    for payload, _ in outlet(consumer).take():
        annotations = readable(payload, ANNOTATIONS) or {}
        found.append((decoded(payload).body, annotations.get("x-opt-ORIG-ADDRESS"), decoded(payload).address))
    return found


def test_a_diverted_message_names_the_address_it_was_sent_to() -> None:
    core = Core()
    topic(core, "t")
    queue = session(core, "t/#")
    core.send(1, "t/a", address="t/a")
    core.send(2, "t/a")
    core.send(3, "t/a", address="t")
    core.send(4, "t/a", address="t/a", id="an id", properties={"x": "t/a"})
    core.send(5, "t/a", id="t/a", annotations={"x-opt-ORIG-ADDRESS": "a lie", "x-opt-other": 1}, durable=True)
    core.send("t/a", "t/a", reply_to="t/a", subject="t/a")
    core.send(7, "t/a", address="t/a")
    session(core, "t/a", name="$sub/b/more")  # no longer the only queue
    core.send(8, "t/a", address="t/a")
    core.send(9, "t/a", address="t/ab")
    assert sent_to(core, queue) == [
        (1, None, "t/a"),
        (2, "t/a", None),
        (3, "t/a", "t"),
        (4, None, "t/a"),
        (5, "t/a", None),
        ("t/a", "t/a", None),
        (7, None, "t/a"),
        (8, None, "t/a"),
        (9, "t/a", "t/ab"),
    ]
    plain = core.queue("q")
    core.send("q", "q", address="elsewhere")
    assert sent_to(core, plain) == [("q", None, "elsewhere")]


def test_a_message_to_a_topic_without_diverts_is_passed_on_as_it_came() -> None:
    core = Core()
    topic(core, "t")
    subscriber = core.broker.catalogue.create_queue("t/#", "s", "MULTICAST", durable=True)
    session(core, "u/#")
    core.send(1, "t/a", address="elsewhere")
    assert sent_to(core, subscriber) == [(1, None, "elsewhere")]


# -- after a restart ---------------------------------------------------------------------------------------------------
def test_diverts_survive_a_restart(tmp_path: Path) -> None:
    core = Core(tmp_path)
    topic(core, "t")
    session(core, "t/a", "t/b", "t/gone")
    divert(core, "t/c", filter="n = 1", routing_type="ANYCAST", routing_name="r")
    core.broker.catalogue.diverts.destroy("$sub/b/session|t/gone")
    session(core, "t/#", name="$sub/b/ended")
    core.broker.catalogue.destroy_queue("$sub/b/ended", auto_delete_address=True)
    core.broker.catalogue.create_temporary("passing", "ANYCAST", "")
    divert(core, "t/#", "passing")
    core.queue("copy")
    divert(core, "t/#", "copy")
    for _ in range(2):
        core.commit()
        core.restart()
        catalogue = core.broker.catalogue
        assert set(catalogue.queues) == {"$sub/b/session", "copy"}
        found = [
            (d.pattern, d.condition.filter.text if d.condition.filter else None, d.routing_type, d.routing_name)
            for d in catalogue.diverts.to(catalogue.addresses["$sub/b/session"])
        ]
        assert found == [
            ("t/a", None, "STRIP", "$sub/b/session|t/a"),
            ("t/b", None, "STRIP", "$sub/b/session|t/b"),
            ("t/c", "n = 1", "ANYCAST", "r"),
        ]
        core.send("b", "t/b", durable=True)
        core.send("c", "t/c", durable=True, properties={"n": 1})
        core.send("d", "t/d", durable=True)
        core.commit()
        assert [taken(core.consumer(catalogue.queues[name], 9)) for name in ("$sub/b/session", "copy")] == [
            ["b", "c"],
            ["b", "c", "d"],
        ]
        for q in catalogue.queues.values():
            for consumer in list(q.consumers):
                q.outcomes.accept(consumer, list(consumer.unsettled.values()))
                q.detach(consumer)


def test_a_divert_whose_destination_is_not_there_is_ended_at_the_start(tmp_path: Path) -> None:
    """As after a crash between the records of one deletion."""
    core = Core(tmp_path)
    assert core.store is not None
    value = {
        "kind": "divert", "name": "d", "pattern": "t", "address": "gone", "filter": None, "routingType": "STRIP",
        "routingName": "d",
    }  # fmt: skip
    core.store.define(core.store.new_id(), json.dumps(value).encode())
    core.store.commit()
    core.store.flush()
    core.restart()
    assert not core.broker.catalogue.diverts.by_name
    core.queue("gone")
    core.commit()
    core.restart()
    assert not core.broker.catalogue.diverts.by_name


def test_definitions_of_older_brokers_are_read(tmp_path: Path) -> None:
    core = Core(tmp_path)
    assert core.store is not None
    old: dict[str, Any] = {
        "kind": "queue", "name": "s", "address": "t/+", "routingType": "MULTICAST", "filter": "n = 1", "noLocal": None,
        "maxConsumers": -1, "purgeOnNoConsumers": False, "exclusive": False, "autoCreated": False, "autoDelete": False,
        "user": "", "paused": False, "subscription": None,
    }  # fmt: skip
    address = {"kind": "address", "name": "t", "routingTypes": ["MULTICAST"], "autoCreated": False}
    for value in (address, old):
        core.store.define(core.store.new_id(), json.dumps(value).encode())
    core.store.commit()
    core.store.flush()
    core.restart()
    core.send("x", "t/a", properties={"n": 1})
    core.send("y", "t/a", properties={"n": 2})
    assert taken(core.consumer(core.broker.catalogue.queues["s"], 5)) == ["x"]


Sessions = dict[str, dict[str, str | None]]
"""Filters by pattern of the diverts of each session."""


class Subscribers:
    """What the subscription service wants of a broker whose power is cut again and again: it goes on until the broker
    has it, and may retry what it has no answer of."""

    def __init__(self, directory: Path, disk: type[LossyFiles], rng: random.Random) -> None:
        self.directory = directory
        self.rng = rng
        self.disk = disk
        self.core = Core(directory, files=disk(rng), segment_size=4096)
        self.wanted: Sessions = {}
        self.sure: Sessions = {}  # what the broker has reported as stored
        topic(self.core, "t")

    def found(self) -> Sessions:
        catalogue = self.core.broker.catalogue
        found: Sessions = {name: {} for name in catalogue.queues}
        for divert in catalogue.diverts.by_name.values():
            assert divert.address.name in found, "a divert without the queue it leads to"
            filter = divert.condition.filter
            found[divert.address.name][divert.pattern] = filter.text if filter is not None else None
        return found

    def change(self) -> None:
        """Something else is wanted, of a few sessions."""
        for _ in range(self.rng.randrange(1, 6)):
            name = f"$sub/b/{self.rng.randrange(6)}"
            if self.rng.random() < 0.3:
                self.wanted.pop(name, None)
                continue
            patterns = self.wanted.setdefault(name, {})
            pattern = f"t/{self.rng.randrange(5)}"
            if self.rng.random() < 0.3:
                patterns.pop(pattern, None)
            else:
                patterns[pattern] = self.rng.choice((None, "n = 1", "n = 2"))

    def apply(self) -> None:
        catalogue = self.core.broker.catalogue
        found = self.found()
        for name in found.keys() - self.wanted.keys():
            catalogue.destroy_queue(name, remove_consumers=True, auto_delete_address=True)
        for name, patterns in self.wanted.items():
            if name not in found:
                self.core.queue(name)
            held = found.get(name, {})
            for pattern in held.keys() - patterns.keys():
                catalogue.diverts.destroy(f"{name}|{pattern}")
            for pattern, filter in patterns.items():
                if pattern not in held:
                    divert(self.core, pattern, name, filter)
                elif held[pattern] != filter:
                    catalogue.diverts.update(f"{name}|{pattern}", filter=filter)
            if self.rng.random() < 0.1:
                self.core.commit()

    def store(self) -> None:
        self.core.commit()
        self.sure = {name: dict(patterns) for name, patterns in self.wanted.items()}

    def cut(self) -> None:
        """Comes back, and has kept what was stored and is still wanted; what was ended for good stays ended."""
        while True:
            files = self.core.files
            assert isinstance(files, LossyFiles)
            files.power_cut()
            try:
                self.core = Core(self.directory, files=self.disk(self.rng), segment_size=4096)
                break
            except PowerCutError:
                continue
        found = self.found()
        for name, patterns in self.sure.items():
            for pattern, filter in patterns.items():
                if self.wanted.get(name, {}).get(pattern, "") == filter:
                    assert found[name][pattern] == filter
        for name, patterns in found.items():
            for pattern in patterns:
                assert pattern in self.sure.get(name, {}) or pattern in self.wanted.get(name, {})
        self.sure = found


@pytest.mark.parametrize("disk", [LossyFiles, TearingFiles])
@pytest.mark.parametrize("seed", first_soon(range(6), 2))
def test_sessions_survive_power_cuts(tmp_path: Path, disk: type[LossyFiles], seed: int) -> None:
    subscribers = Subscribers(tmp_path, disk, random.Random(seed))
    cuts = 0
    for _ in range(40):
        files = subscribers.core.files
        assert isinstance(files, LossyFiles)
        subscribers.change()
        files.fuse = subscribers.rng.choice((None, 0, 1, 2, 3, 5, 8))
        try:
            subscribers.apply()
            subscribers.store()
            files.fuse = None
        except PowerCutError:
            cuts += 1
            subscribers.cut()
    subscribers.apply()
    subscribers.store()
    subscribers.cut()
    assert subscribers.found() == subscribers.wanted == subscribers.sure
    assert cuts


# -- costs -------------------------------------------------------------------------------------------------------------
def calls_of(work: Any) -> int:
    """Function calls made."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def work(core: Core, queue: Queue, pattern: str) -> tuple[int, int]:
    """Function calls and bytes written for a divert that is made, found by a route, and removed."""
    assert core.store is not None
    written = 0
    define = core.store.define
    diverts = core.broker.catalogue.diverts

    def counted(id: int, value: bytes) -> None:
        nonlocal written
        written += len(value)
        define(id, value)

    def once() -> None:
        diverts.create("one more", pattern, queue.name)
        route = core.broker.catalogue.route(pattern, None)
        assert route is not None and route.targets == [queue]
        diverts.destroy("one more")

    core.store.define = counted  # type: ignore[method-assign]  # watched by the test
    try:
        return calls_of(once), written
    finally:
        core.store.define = define  # type: ignore[method-assign]  # watched by the test


def test_one_more_divert_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    core = Core(tmp_path)
    topic(core, "t")
    queues = [session(core, name=f"$sub/b/{n:04}") for n in range(10)]
    for n in range(10):
        divert(core, f"t/{n:06}/x", queues[n].name)
    few = min(work(core, queues[0], "t/123456/y") for _ in range(3))  # the store does a little more now and then
    for n in range(10, 10_000):
        divert(core, f"t/{n:06}/x", queues[n % 10].name)
    assert len(core.broker.catalogue.diverts.to(queues[0].address)) == 1000
    assert min(work(core, queues[0], "t/123456/y") for _ in range(3)) == few


def test_who_subscribes_does_not_disturb_those_who_publish_elsewhere() -> None:
    """Routes that a new divert has nothing to do with stay; those that it covers are made again."""
    core = Core()
    topic(core, "t")
    session(core, "t/#")
    routes = [core.broker.catalogue.route(f"t/{n}/x", None) for n in range(20)]
    session(core, "t/7/#", name="$sub/b/new")
    assert [n for n, route in enumerate(routes) if route is not None and route.stale] == [7]
    core.broker.catalogue.destroy_queue("$sub/b/new", auto_delete_address=True)
    assert sum(route.stale for route in routes if route is not None) == 1
    divert(core, "t/+/x")
    assert all(route.stale for route in routes if route is not None)


def test_a_filter_for_few_messages_is_not_asked_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retained messages: a divert of everything, with a filter over an annotation."""
    core = Core()
    topic(core, "t")
    queue = session(core, "t/#")
    retained = core.queue("$sub/b/retained")
    divert(core, "#", retained.name, filter='"m.x-opt-retain-message" = TRUE')
    route = core.broker.catalogue.route("t/a", None)
    assert route is not None
    asked = 0
    choose = type(route).choose

    def counted(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return choose(*arguments)

    monkeypatch.setattr(type(route), "choose", counted)
    core.send(1, "t/a", address="t/a", annotations={"x-opt-mqtt-qos": 1})
    core.send(2, "t/a", annotations={"x-opt-mqtt-qos": 0})
    core.send(b"x" * 5000 + b"x-opt-retain-message", "t/a")  # in a long body it is not looked for
    assert asked == 0
    core.send(4, "t/a", annotations={"x-opt-retain-message": True})
    core.send(5, "t/a", annotations={"x-opt-retain-message": False})
    core.send("x-opt-retain-message", "t/a")
    core.send(7, "t/a", properties={"m.x-opt-retain-message": True})
    assert asked == 4
    assert taken(core.consumer(retained, 9)) == [4, 7]
    assert queue.count == 7


@pytest.mark.parametrize("filter", ["n = 1 OR colour IS NULL", "NOT (n = 1 AND colour IS NOT NULL)", "JMSPriority > 3"])
def test_a_filter_that_may_match_any_message_is_always_asked(filter: str) -> None:
    core = Core()
    topic(core, "t")
    queue = session(core)
    divert(core, "t", filter=filter)
    core.send("x", "t")
    assert taken(core.consumer(queue, 1)) == ["x"]


# -- what a session that is away may hold ------------------------------------------------------------------------------
@pytest.mark.parametrize("head", [10_000, 4])
def test_a_ring_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: int) -> None:
    """Also of what is packed (`head`), and over a restart. Publishers and other sessions do not notice."""
    monkeypatch.setattr(backlog, "HEAD", head)
    monkeypatch.setattr(backlog, "SLICE", 3)
    core = Core(tmp_path)
    topic(core, "t")
    away = session(core, "t/#", name="$sub/b/away")
    core.broker.catalogue.update_queue(away, {"ring_size": 20})
    here = session(core, "t/#", name="$sub/b/here")
    for n in range(50):
        assert core.send(n, "t/a", durable=n % 3 != 1) is (Verdict.WAIT if n % 3 != 1 else Verdict.ACCEPT)
        if n % 7 == 0:
            core.commit()
    core.commit()
    assert (away.count, away.replaced, here.count) == (20, 30, 50)
    assert core.broker.catalogue.addresses["t"].count == 50
    core.restart()
    away = core.broker.catalogue.queues["$sub/b/away"]
    assert (away.disposal.ring_size, away.count) == (20, len([n for n in range(30, 50) if n % 3 != 1]))
    consumer = core.consumer(away, 5)
    for n in range(50, 80):
        core.send(n, "t/a")
    core.broker.run_pending()
    assert taken(consumer) == [30, 32, 33, 35, 36]
    assert [decoded(core.broker.payloads.load(m) or b"").body for m in away.messages()] == list(range(60, 80))
    assert away.dispatcher.delivering == 5


@pytest.mark.parametrize(
    "full",
    [
        {"addressFullMessagePolicy": "DROP"},
        {"addressFullMessagePolicy": "PAGE", "pageLimitBytes": 3000, "pageFullMessagePolicy": "DROP"},
    ],
)
def test_a_ring_of_bytes_and_priorities(full: dict[str, Any]) -> None:
    core = Core()
    topic(core, "t")
    core.broker.catalogue.put_settings("$sub/#", {"maxSizeBytes": 3000, "maxDeliveryAttempts": -1, **full})
    queue = session(core, "t/#")
    core.send("retained", queue.name, priority=9)
    for n in range(30):
        assert core.send(f"{n} " + "x" * 500, "t/a") is Verdict.ACCEPT
    assert queue.bytes <= 3000
    found = [body.split()[0] for body in taken(core.consumer(queue, 99))]
    assert found == ["retained", *map(str, range(30 - len(found) + 1, 30))]
    assert len(found) == 6


def test_a_session_that_reads_loses_nothing_of_a_ring() -> None:
    core = Core()
    topic(core, "t")
    queue = session(core, "t/#", ring_size=2)
    consumer = core.consumer(queue, 100)
    for n in range(100):
        core.send(n, "t/a")
    assert taken(consumer) == list(range(100)) and queue.replaced == 0


@pytest.mark.parametrize("head", [10_000, 4])
def test_retained_copies_come_first_after_paging_and_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: int
) -> None:
    monkeypatch.setattr(backlog, "HEAD", head)
    monkeypatch.setattr(backlog, "SLICE", 3)
    core = Core(tmp_path)
    topic(core, "t")
    queue = session(core, "t/#")
    core.broker.catalogue.pause_queue(queue, True)
    for n in range(20):
        core.send(n, "t/a", durable=True)
        if n % 5 == 0:
            core.send(f"retained {n}", queue.name, durable=True, priority=9)
    core.commit()
    core.restart()
    queue = core.broker.catalogue.queues[queue.name]
    consumer = core.consumer(queue, 99)
    assert queue.dispatcher.paused and not taken(consumer)
    core.broker.catalogue.pause_queue(queue, False)
    while core.broker.run_pending():
        pass
    assert taken(consumer) == [*(f"retained {n}" for n in range(0, 20, 5)), *range(20)]


def test_what_expires_in_a_session_is_dropped_without_a_dead_letter() -> None:
    core = Core()
    topic(core, "t")
    dead = core.queue("dead")
    catalogue = core.broker.catalogue
    catalogue.put_settings("#", {"DLA": "dead", "expiryAddress": "dead"})
    catalogue.put_settings("$sub/#", {"DLA": "", "expiryAddress": "", "maxDeliveryAttempts": -1})
    queue = session(core, "t/#")
    core.send("short", "t/a", ttl=1)
    core.send("long", "t/a", ttl=1000)
    core.tick(2000)
    assert (queue.count, queue.expired, dead.count) == (1, 1, 0)
    consumer = core.consumer(queue, 1)
    for _ in range(30):
        (message,) = consumer.unsettled.values()
        queue.outcomes.modify(consumer, [message], failed=True, elsewhere=False)
        outlet(consumer).credit = 1
        queue.flow(consumer)
        core.tick(20_000)
    assert (queue.count, dead.count) == (1, 0)


NOBODY = ConnectionInfo(id="", remote="", container="", user="", created=0, close=lambda _: None)


# -- management --------------------------------------------------------------------------------------------------------
def test_a_reply_leaves_when_what_was_asked_for_is_on_disk(tmp_path: Path) -> None:
    """And those behind it wait for their turn."""
    core = Core(tmp_path)
    topic(core, "t")
    replies = core.queue("replies", durable=False)
    core.commit()
    node = ManagementNode(core.broker, Connections())
    consumer = core.consumer(replies, 99)
    name = "$sub/b/one"

    def ask(operation: str, *parameters: Any) -> None:
        properties = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation}
        node.handle(encoded(json.dumps(parameters), reply_to="replies", properties=properties), NOBODY)

    def answers() -> list[Any]:
        return [json.loads(body)[0] if body else None for body in taken(consumer)]

    ask("getDivertNames")
    assert answers() == [[]]
    ask("createQueue", json.dumps({"name": name, "address": name, "routing-type": "ANYCAST"}))
    ask("createDivert", "d", "", "t/#", name, False, None, None)
    ask("getDivertNames")
    ask("createDivert", "d2", "", "t/#", "nowhere", False, None, None)
    assert answers() == []
    core.commit()
    found = answers()
    assert found[1:3] == [None, ["d"]] and "AMQ229203" in found[3]
    core.restart()
    assert set(core.broker.catalogue.diverts.by_name) == {"d"}


def test_a_reply_states_that_the_disk_failed(tmp_path: Path) -> None:
    disk = FailingDisk()
    core = Core(tmp_path, files=disk)
    replies = core.queue("replies", durable=False)
    core.commit()
    node = ManagementNode(core.broker, Connections())
    disk.broken = True
    properties = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "createAddress"}
    node.handle(encoded('["u", "MULTICAST"]', reply_to="replies", properties=properties), NOBODY)
    core.commit()
    ((payload, _),) = outlet(core.consumer(replies, 1)).take()
    reply = decoded(payload)
    assert reply.properties == {"_AMQ_OperationSucceeded": False} and "could not be stored" in reply.body


def test_who_is_lost_again_and_again_gets_its_messages_in_order() -> None:
    core = Core()
    queue = session(core)
    core.broker.catalogue.put_settings("$sub/#", {"maxDeliveryAttempts": -1})
    for n in range(6):
        core.send(n, queue.name)
    for _ in range(40):
        consumer = core.consumer(queue, 3)
        assert taken(consumer) == [0, 1, 2]
        queue.detach(consumer)
    assert taken(core.consumer(queue, 9)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", range(8))
def test_a_ring_beside_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Random arrivals, deliveries, outcomes and restarts: at most so many wait, nothing is lost that was not the oldest
    of the lowest priority, nothing comes twice."""
    rng = random.Random(seed)
    monkeypatch.setattr(backlog, "HEAD", rng.choice((3, 10_000)))
    monkeypatch.setattr(backlog, "SLICE", 2)
    core = Core(tmp_path)
    topic(core, "t")
    size = rng.randrange(1, 12)
    core.broker.catalogue.put_settings("$sub/#", {"maxDeliveryAttempts": -1})
    session(core, "t/#", ring_size=size)
    waiting: list[tuple[int, int]] = []  # by turn: highest priority first, then the order of arrival
    number = 0

    def queue() -> Queue:
        return core.broker.catalogue.queues["$sub/b/session"]

    def settle() -> None:
        core.commit()
        while core.broker.run_pending():
            pass

    for _ in range(60):
        for _ in range(rng.randrange(0, 6)):
            priority = rng.choice((4, 4, 4, 9))
            core.send(number, "t/a", durable=True, priority=priority)
            waiting.append((-priority, number))
            number += 1
            settle()
            if len(waiting) > size:
                waiting.remove(min(waiting, key=lambda one: (-one[0], one[1])))
        consumer = core.consumer(queue(), rng.randrange(0, 4))
        settle()
        found = taken(consumer)
        waiting.sort()
        assert found == [number for _, number in waiting[: len(found)]]
        messages = list(consumer.unsettled.values())
        accepted = [message for message in messages if rng.random() < 0.7]
        gone = {decoded(core.broker.payloads.load(message) or b"").body for message in accepted}
        queue().outcomes.accept(consumer, accepted)
        waiting = [one for one in waiting if one[1] not in gone]
        queue().detach(consumer)
        settle()
        if rng.random() < 0.1:
            core.restart()
        assert queue().count == len(waiting)


def test_long_names_do_not_fill_memory() -> None:
    """Publishers may send to any name below a topic."""
    core = Core()
    topic(core, "t")
    queue = session(core, "t/#")
    core.send(0, "t/" + "x" * 60_000)
    core.send(1, "t" + "/x" * 30_000)
    divert(core, "t/+", core.queue("$sub/b/other").name)
    tracemalloc.start()
    try:
        for n in range(200):
            core.send(n, f"t/{n}" + "/x" * 2_000, address="t")
            queue.disposal.purge()
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    long = core.broker.catalogue.route("t/" + "x" * 600, None)
    assert long is not None and long.stale and len(long.targets) == 2


def test_names_of_many_levels_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "_MAX_WEIGHT", 10_000)
    core = Core()
    topic(core, "t")
    first = core.broker.catalogue.route("t/0", None)
    for n in range(100):
        core.broker.catalogue.route(f"t/{n}" + "/x" * 10, None)
    assert first is not None and first.stale


def test_more_queues_than_can_share_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "MAX_HOLDERS", 2)
    core = Core(tmp_path)
    topic(core, "t")
    queues = [session(core, "t/#", name=f"$sub/b/{n}") for n in range(3)]
    with pytest.raises(BrokerError, match="3 durable queues take messages to t"):
        core.send("refused", "t/a", durable=True)
    core.send("passing", "t/a")
    core.commit()
    assert [taken(core.consumer(queue, 5)) for queue in queues] == [["passing"]] * 3
    assert core.broker.catalogue.addresses["t"].count == 1
