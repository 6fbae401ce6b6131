"""What is durable reaches queues and producers when it is on disk, and what happens if the disk fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from services.broker import server
from services.broker.core.publisher import publish, publish_run
from services.broker.core.publishing.verdict import Verdict
from services.broker.storage.journal import file_operations
from services.broker.storage.paging import Pager
from tests.broker.disks import FailingDisk
from tests.broker.sansio import Core, QueueConsumer, encoded, more, outlet, taken


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
    queues["s1"].outcomes.accept(consumer, [token for _, token in outlet(consumer).take()])
    core.commit()
    core.restart()
    assert {name: queue.count for name, queue in core.broker.catalogue.queues.items()} == {"s1": 0, "s2": 1}


def test_a_volatile_subscription_keeps_what_the_store_forgets(tmp_path: Path) -> None:
    """The durable one acknowledges first, and the payload is no longer in memory."""
    core = Core(tmp_path / "data", memory_limit=0, pager=Pager(tmp_path / "pages"))
    core.broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    kept = core.broker.catalogue.create_queue("t", "kept", "MULTICAST", durable=True)
    passing = core.broker.catalogue.create_queue("t", "passing", "MULTICAST", durable=False)
    core.send("news", "t", durable=True)
    core.commit()
    first = core.consumer(kept, 1)
    kept.outcomes.accept(first, [token for _, token in outlet(first).sent])
    core.commit()
    assert taken(first) == ["news"]
    assert taken(core.consumer(passing, 1)) == ["news"]


def test_nobody_gets_what_is_not_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FailingDisk()
    monkeypatch.setattr(file_operations, "FILES", disk)
    core = Core(tmp_path)
    q, other = core.queue(), core.queue("other")
    consumer, idle = core.consumer(q, 10), core.consumer(other, 10)
    core.send("a", durable=True)
    core.send("b", durable=False)
    core.send("c", durable=False, to="other")
    core.send("d", durable=True)
    assert (taken(consumer), taken(idle)) == ([], ["c"])
    assert (q.count, core.broker.catalogue.addresses["q"].count, q.dispatcher.delivering) == (3, 3, 0)
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
    monkeypatch.setattr(file_operations, "FILES", disk)
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
    """Settled by its sender, or a dead letter: only the broker has it."""
    disk = FailingDisk()
    monkeypatch.setattr(file_operations, "FILES", disk)
    core = Core(tmp_path)
    core.broker.catalogue.put_settings("q", {"DLA": "dead"})
    q, dead = core.queue(), core.queue("dead")
    consumer = QueueConsumer(q, 1)
    core.send("x", durable=True)
    core.commit()
    q.dispatcher.attach(consumer)
    q.flow(consumer)
    disk.broken = True
    q.outcomes.reject(consumer, [token for _, token in outlet(consumer).take()])
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
    assert dead.expiries.watched == 1


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
    """A message without a waiting producer: dozens of tries a second took a whole CPU, and a line in the log each."""
    disk = FailingDisk()
    monkeypatch.setattr(file_operations, "FILES", disk)
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
    assert len(loop.soon) == 1, "a producer learns at once whether it works again"
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
    monkeypatch.setattr(file_operations, "FILES", disk)
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
    monkeypatch.setattr(file_operations, "FILES", disk)
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
    q.outcomes.reject(consumer, [message])  # moved to the dead-letter address while nothing can be written
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
