"""What comes back: failed deliveries, refusals by single consumers, dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from proton import symbol

from services.broker.consumers import TaggedOutlet
from services.broker.storage.paging import Pager
from tests.broker.disks import FailingDisk
from tests.broker.sansio import Core, QueueConsumer, decoded, more, outlet, taken


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
        q.outcomes.modify(consumer, [message], failed=True, elsewhere=False)
        core.tick(expected - 1)
        assert taken(consumer) == []
        core.tick(1)
        assert len(outlet(consumer).sent) == 1


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
        queue.outcomes.reject(consumer, [token for _, token in outlet(consumer).take()])
    ((payload, _),) = outlet(core.consumer(core.broker.catalogue.queues["dead2"], 1)).take()
    assert decoded(payload).annotations["x-opt-ORIG-ADDRESS"] == "q"


def test_rejected_messages_behind_one_that_fails_are_delivered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core()
    core.broker.catalogue.put_settings("q", {"DLA": "dead"})
    q = core.queue()
    for n in range(3):
        core.send(n)
    consumer = core.consumer(q, 3)
    monkeypatch.setattr(core.broker.dead_letters, "move_copy", failing)
    with pytest.raises(RuntimeError, match="a fault"):
        q.outcomes.reject(consumer, [token for _, token in outlet(consumer).take()])
    q.detach(consumer)
    assert taken(core.consumer(q, 3)) == [1, 2]


def failing(*arguments: Any) -> None:
    raise RuntimeError("a fault")


@pytest.mark.parametrize("prefix", ["\0", "x" * 1024])
def test_dead_letters_whose_own_queue_cannot_be_made_go_to_the_address(prefix: str, tmp_path: Path) -> None:
    core = Core(tmp_path)
    sides: dict[str, Any] = {"autoCreateDeadLetterResources": True, "deadLetterQueuePrefix": prefix}
    sides |= {"autoCreateExpiryResources": True, "expiryQueuePrefix": prefix}
    core.broker.catalogue.put_settings("q", {"DLA": "dead", "expiryAddress": "old"} | sides)
    q = core.queue()
    for n in range(3):
        core.send(n, durable=True)
    core.send(3, durable=True, ttl=0.001)
    core.commit()
    consumer = core.consumer(q, 3)
    q.outcomes.reject(consumer, [token for _, token in outlet(consumer).take()])
    core.tick(60_000)
    core.commit()
    queues = core.broker.catalogue.queues
    assert (q.count, queues["dead"].count, queues["old"].count) == (0, 3, 1)
    assert taken(core.consumer(queues["dead"], 5)) == [0, 1, 2]


def test_dead_letter_queues_may_be_made_for_each_address() -> None:
    core = Core()
    core.broker.catalogue.put_settings("#", {"DLA": "dead", "autoCreateDeadLetterResources": True})
    for name in ("it's", "b"):
        q = core.queue(name)
        core.send(name, to=name)
        consumer = core.consumer(q, 1)
        q.outcomes.reject(consumer, [token for _, token in outlet(consumer).take()])
    counts = {name: queue.count for name, queue in core.broker.catalogue.queues.items() if name.startswith("DLQ.")}
    assert counts == {"DLQ.it's": 1, "DLQ.b": 1}


def refuse(consumer: QueueConsumer, *, failed: bool = False) -> int:
    """What the consumer has got is modified, undeliverable here; how many these are."""
    messages = [message for _, message in outlet(consumer).take()]
    consumer.queue.outcomes.modify(consumer, messages, failed=failed, elsewhere=True)
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
    q.outcomes.accept(second, [message for _, message in outlet(second).take()])
    assert q.count == len(q.exclusions) == 0
    core.send("next")
    assert q.dispatcher.simple, "the short way of dispatching is taken again"


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
    core.broker.run_pending()
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
    q.outcomes.release(two, [message])
    assert taken(one) == [], "that one may have credit in a moment"
    q.flow(two)
    assert taken(one) == ["x"]


# -- annotations of modified (AMQP 1.0, 3.4.5) -------------------------------------------------------------------------
def annotate(consumer: QueueConsumer, failed: bool = False, **annotations: Any) -> None:
    messages = [message for _, message in outlet(consumer).take()]
    given = {symbol(key): value for key, value in annotations.items()}
    consumer.queue.outcomes.modify(consumer, messages, failed=failed, elsewhere=False, annotations=given)


def notes(core: Core, consumer: QueueConsumer) -> list[tuple[Any, dict[str, Any], int]]:
    """Body, annotations and delivery count of what has come, which stays unsettled."""
    core.commit()
    while core.broker.run_pending():
        pass
    found = [decoded(payload) for payload, _ in outlet(consumer).sent]
    return [(m.body, {str(k): v for k, v in (m.annotations or {}).items()}, m.delivery_count) for m in found]


@pytest.mark.parametrize("durable", [True, False])
def test_a_modified_message_has_the_annotations_and_keeps_its_place(tmp_path: Path, durable: bool) -> None:
    core = Core(tmp_path, pager=Pager(tmp_path / "pages"), memory_limit=0)
    q = core.queue()
    core.send("a", durable=durable, annotations={symbol("kept"): 1, symbol("changed"): 1}, properties={"p": 1})
    core.send("b", durable=durable)
    core.commit()
    first = core.consumer(q, 1)
    annotate(first, failed=True, changed=2, added="x")
    more(first, 1)
    annotate(first, added="y")
    more(first, 2)
    annotated = ("a", {"kept": 1, "changed": 2, "added": "y"}, 1)
    assert notes(core, first) == [annotated, ("b", {}, 0)]
    q.detach(first)
    held = sum(message.size for message in q.messages())
    assert q.bytes == core.broker.ledger.size == core.broker.catalogue.addresses["q"].size == held
    core.commit()
    core.restart()
    q = core.broker.catalogue.queues["q"]
    found = notes(core, core.consumer(q, 5))
    assert [(body, given) for body, given, _ in found] == ([annotated[:2], ("b", {})] if durable else [])
    q.disposal.purge()
    q.outcomes.accept(q.consumers[0], list(q.consumers[0].unsettled.values())) if q.consumers else None
    assert core.broker.ledger.size == core.broker.ledger.resident == 0


def test_annotations_of_one_subscription_are_not_seen_in_another(tmp_path: Path) -> None:
    core = Core(tmp_path)
    catalogue = core.broker.catalogue
    catalogue.create_address("t", frozenset({"MULTICAST"}))
    for name in ("one", "two"):
        catalogue.create_queue("t", name, "MULTICAST", durable=True)
    for body in ("a", "b"):
        core.send(body, to="t", durable=True)
    core.commit()
    queue = catalogue.queues["one"]
    first = core.consumer(queue, 1)
    annotate(first, failed=True, mine=True)
    core.commit()
    core.restart()
    queues = core.broker.catalogue.queues
    found = {name: notes(core, core.consumer(queues[name], 5)) for name in ("one", "two")}
    assert found == {"one": [("b", {}, 0), ("a", {"mine": True}, 1)], "two": [("a", {}, 0), ("b", {}, 0)]}
    for name in ("one", "two"):
        consumer = queues[name].consumers[0]
        queues[name].outcomes.accept(consumer, list(consumer.unsettled.values()))
    assert core.broker.ledger.size == 0
    core.commit()
    core.restart()
    assert [queue.count for queue in core.broker.catalogue.queues.values()] == [0, 0]


@pytest.mark.parametrize("durable", [True, False])
def test_a_duplicate_id_among_the_annotations_of_modified_identifies_nothing(tmp_path: Path, durable: bool) -> None:
    core = Core(tmp_path)
    q = core.queue()
    core.send("a", durable=durable, properties={"_AMQ_DUPL_ID": "1"})
    core.commit()
    consumer = core.consumer(q, 1)
    annotate(consumer, _AMQ_DUPL_ID="2")
    for body, id in (("copy", "1"), ("b", "2"), ("copy", "2")):
        core.send(body, durable=durable, properties={"_AMQ_DUPL_ID": id})
    for body in ("c", "d"):
        core.send(body, durable=durable, annotations={symbol("_AMQ_DUPL_ID"): "3"})
    core.commit()
    more(consumer, 10)
    assert notes(core, consumer) == [
        ("a", {"_AMQ_DUPL_ID": "2"}, 0),
        ("b", {}, 0),
        ("c", {"_AMQ_DUPL_ID": "3"}, 0),
        ("d", {"_AMQ_DUPL_ID": "3"}, 0),
    ]
    if durable:
        core.restart()
        for id, count in (("1", 4), ("2", 4), ("3", 5)):
            core.send("later", durable=True, properties={"_AMQ_DUPL_ID": id})
            core.commit()
            assert core.broker.catalogue.queues["q"].count == count


def test_annotations_outlive_compaction_and_a_disk_that_fails(tmp_path: Path) -> None:
    disk = FailingDisk()
    core = Core(tmp_path, segment_size=4096, files=disk)
    q = core.queue()
    core.broker.catalogue.put_settings("q", {"maxDeliveryAttempts": -1})
    for n in range(100):
        core.send(n, durable=True)
        core.commit()
    consumer = core.consumer(q, 5)
    disk.broken = True
    annotate(consumer, failed=True, round=1)
    core.commit()
    disk.broken = False
    core.commit()
    more(consumer, 5)
    annotate(consumer, failed=True, round=2)
    core.commit()
    assert core.store is not None
    core.ask(q, "removeMessages", "JMSPriority = 9 OR JMSXDeliveryCount < 2")
    for n in range(200):
        core.send(f"later {n}", durable=True)
        core.commit()
        core.store.tick()
        core.store.flush()
    core.restart()
    q = core.broker.catalogue.queues["q"]
    assert notes(core, core.consumer(q, 5)) == [(n, {"round": 2}, 2) for n in range(5)]


def test_annotations_that_would_be_too_large_are_left_out(tmp_path: Path) -> None:
    core = Core(tmp_path)
    q = core.queue()
    core.send("a", durable=True)
    core.commit()
    consumer = core.consumer(q, 1)
    annotate(consumer, large="x" * 40_000)
    more(consumer, 1)
    annotate(consumer, larger="x" * 40_000)
    more(consumer, 1)
    ((body, given, _),) = notes(core, consumer)
    assert (body, list(given)) == ("a", ["large"])


def test_refused_annotations_are_reported_once_a_minute_for_each_queue(capsys: pytest.CaptureFixture[str]) -> None:
    core = Core()
    consumers = [core.consumer(core.queue(name), 1) for name in ("one", "two")]
    for name in ("one", "two"):
        core.send("a", to=name)

    def refused(consumer: QueueConsumer, times: int) -> None:
        for _ in range(times):
            annotate(consumer, large="x" * 70_000)
            more(consumer, 1)

    refused(consumers[0], 3)
    refused(consumers[1], 1)
    core.tick(59_999)
    refused(consumers[0], 1)
    core.tick(1)
    refused(consumers[0], 2)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    found = [(line["queue"], line["count"]) for line in lines if line["event"] == "broker.message.not-annotated"]
    assert found == [("one", 1), ("two", 1), ("one", 4)]


def test_a_drain_is_answered_when_what_others_have_taken_is_off_the_disk(tmp_path: Path) -> None:
    """The answer states that a message will not come any more: one whose removal is not stored may."""
    core = Core(tmp_path)
    q = core.queue()
    consumer = core.consumer(q, 1)
    core.send("x", durable=True)
    core.commit()
    q.outcomes.accept(consumer, [message for _, message in outlet(consumer).take()])
    core.broker.commit()  # has begun, and is not on disk
    answers: list[str] = []
    link: Any = SimpleNamespace(detached=False, drained=lambda: answers.append("drained"), detach=answers.append)
    TaggedOutlet(link, core.broker.when_all_stored).drained()
    assert answers == []
    core.commit()
    assert answers == ["drained"]
    assert core.store is not None
    core.store.close()
