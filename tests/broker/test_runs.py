"""Messages that come together are stored, delivered, accepted and acknowledged together, and as if one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.broker.core.publisher import publish_run
from services.broker.core.queues.queue import Queue
from services.broker.storage.journal import file_operations
from tests.broker.disks import FailingDisk
from tests.broker.sansio import Core, encoded, more, outlet, taken


def run(core: Core, messages: list[bytes], first: int = 1, to: str = "q") -> int:
    route = core.broker.catalogue.route(to, None)
    assert route is not None
    return publish_run(core.broker, route, messages, core, first)


def durable(count: int, start: int = 0) -> list[bytes]:
    return [encoded(f"{i}", durable=True) for i in range(start, start + count)]


def sums(queue: Queue) -> tuple[Any, ...]:
    broker, address = queue.broker, queue.address
    return (
        queue.count,
        queue.bytes,
        queue.added,
        address.count,
        address.size,
        address.routed,
        broker.ledger.size,
        broker.ledger.resident,
    )


def test_a_run_is_what_its_messages_are_one_by_one(tmp_path: Path) -> None:
    together, single = Core(tmp_path / "a"), Core(tmp_path / "b")
    queues = []
    for core in (together, single):
        queues.append(core.queue())
    messages = durable(700)
    assert run(together, messages) == 700
    for i in range(700):
        single.send(f"{i}", durable=True)
    assert sums(queues[0]) == sums(queues[1])
    assert together.accepted == []
    together.commit()
    single.commit()
    assert together.accepted == single.accepted == list(range(1, 701))
    for core in (together, single):
        core.restart()
        consumer = core.consumer(core.broker.catalogue.queues["q"], 1000)
        core.broker.run_pending()
        assert taken(consumer) == [f"{i}" for i in range(700)]


def test_runs_reach_consumers_within_their_credit_and_in_turn(tmp_path: Path) -> None:
    core = Core(tmp_path)
    queue = core.queue()
    one = core.consumer(queue, 120)
    run(core, durable(100))
    assert taken(one) == [], "it is not on disk yet"
    core.commit()
    assert taken(one) == [f"{i}" for i in range(100)]
    run(core, durable(100, 100), 101)
    core.commit()
    assert taken(one) == [f"{i}" for i in range(100, 120)]
    two = core.consumer(queue, 10)
    more(one, 10)
    assert taken(two) == [f"{i}" for i in range(120, 130)]
    assert taken(one) == [f"{i}" for i in range(130, 140)]
    assert queue.count == 200
    assert queue.dispatcher.delivering == 140


def test_what_is_accepted_together_is_gone_together(tmp_path: Path) -> None:
    core = Core(tmp_path)
    queue = core.queue()
    consumer = core.consumer(queue, 300)
    run(core, durable(300))
    core.commit()
    core.broker.run_pending()
    tokens = [token for _, token in outlet(consumer).take()]
    queue.outcomes.accept(consumer, tokens[:299])
    queue.outcomes.accept(consumer, tokens[:299])  # nothing counts twice
    assert sums(queue)[:2] == (1, tokens[299].size)
    assert sums(queue)[3:5] == (1, tokens[299].size)
    core.commit()
    core.restart()
    assert taken(core.consumer(core.broker.catalogue.queues["q"], 5)) == ["299"]


@pytest.mark.parametrize(
    "fields",
    [
        {"durable": False},
        {"ttl": 5},
        {"priority": 7},
        {"properties": {"_AMQ_DUPL_ID": "x"}},
        {"annotations": {"x-opt-delivery-delay": 5}},
    ],
)
def test_a_run_ends_where_a_message_needs_care(tmp_path: Path, fields: dict[str, Any]) -> None:
    core = Core(tmp_path)
    queue = core.queue()
    odd = encoded("odd", **{"durable": True, **fields})
    assert run(core, [*durable(3), odd, *durable(2)]) == 3
    assert queue.count == 3
    assert run(core, [odd, odd]) == (2 if "priority" in fields or "durable" in fields else 0)


@pytest.mark.parametrize("stored", [True, False])
def test_what_need_not_be_stored_is_accepted_at_once(tmp_path: Path, stored: bool) -> None:
    core = Core(tmp_path if stored else None)
    queue = core.queue()
    consumer = core.consumer(queue, 70)
    messages = [encoded(f"{i}") for i in range(100)] if stored else durable(100)
    assert run(core, messages) == 100
    assert core.accepted == list(range(1, 101))
    core.broker.run_pending()
    assert taken(consumer) == [f"{i}" for i in range(70)]
    assert [message.id for message in queue.messages()] == sorted({message.id for message in queue.messages()})
    core.send("last")
    more(consumer, 100)
    assert taken(consumer) == [*(f"{i}" for i in range(70, 100)), "last"]


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_settled_run_has_no_answer_and_loses_nothing(tmp_path: Path, is_durable: bool) -> None:
    core = Core(tmp_path)
    consumer = core.consumer(core.queue(), 1000)
    route = core.broker.catalogue.route("q", None)
    assert route is not None
    messages = durable(100) if is_durable else [encoded(f"{i}") for i in range(100)]
    assert publish_run(core.broker, route, messages, None, 1) == 100
    core.send("last", durable=is_durable)
    core.commit()
    core.broker.run_pending()
    assert taken(consumer) == [*(f"{i}" for i in range(100)), "last"]
    assert len(core.accepted) == is_durable, "the last one, which was not settled"


def test_a_run_that_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    core = Core(tmp_path)
    queue = core.queue()
    size = len(durable(1)[0])
    limits: list[dict[str, Any]] = [{"maxSizeBytes": 10 * size}, {"maxSizeMessages": 10, "maxSizeBytes": -1}]
    for setting in limits:
        core.broker.catalogue.put_settings("q", setting)
        assert run(core, durable(10)) == 0
    assert queue.count == 0
    assert run(core, durable(9)) == 9
    core.broker.ledger.set_disk_policy("DISK")
    core.broker.catalogue.put_settings("q", {"maxSizeMessages": -1})
    assert run(core, durable(2)) == 0


def test_an_undecodable_message_stores_nothing_of_its_run(tmp_path: Path) -> None:
    core = Core(tmp_path)
    queue = core.queue()
    with pytest.raises(Exception, match="too early"):
        run(core, [*durable(2), b"\x00\x53\x70\xc0\xff\x05\x41"])
    assert (queue.count, core.broker.ledger.size, len(core.broker.arrivals)) == (0, 0, 0)


def test_every_message_of_a_run_that_could_not_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk()
    monkeypatch.setattr(file_operations, "FILES", disk)
    core = Core(tmp_path)
    queue = core.queue()
    run(core, durable(5))
    core.commit()
    disk.broken = True
    run(core, durable(5, 5), 6)
    core.commit()
    assert (core.accepted, core.failed) == ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10])
    assert queue.count == 5
    disk.broken = False
    run(core, durable(5, 10), 11)
    core.commit()
    core.restart()
    assert taken(core.consumer(core.broker.catalogue.queues["q"], 50)) == [f"{i}" for i in [*range(5), *range(10, 15)]]


def test_payloads_beyond_the_limit_of_memory_are_read_back(tmp_path: Path) -> None:
    core = Core(tmp_path, memory_limit=200)
    queue = core.queue()
    run(core, durable(50))
    core.commit()
    assert core.broker.ledger.resident <= 200
    core.commit()
    consumer = core.consumer(queue, 50)
    assert taken(consumer) == [f"{i}" for i in range(50)]


def test_empty_messages(tmp_path: Path) -> None:
    core = Core(tmp_path)
    queue = core.queue()
    for _ in range(3):
        route = core.broker.catalogue.route("q", None)
        assert route is not None
        core.broker.put("q", b"", durable=True)
        core.commit()
    consumer = core.consumer(queue, 2)
    assert [payload for payload, _ in outlet(consumer).take()] == [b"", b""]
