"""What comes back: failed deliveries, refusals by single consumers, dead letters."""

from __future__ import annotations

import pytest

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
        q.modify(consumer, [message], failed=True, elsewhere=False)
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
    assert q.count == len(q.selection.exclusions) == 0
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
    assert (q.count, q.killed, dead.count, len(q.selection.exclusions)) == (0, 1, 1, 0)
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
