"""Much work for the messages of one client is done in shares: those of others need not wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from services.broker.core import sorting
from services.broker.core.errors import BrokerError
from services.broker.core.messages.selector_values import MAX_FRONT
from services.broker.core.publishing.verdict import ACCEPT, RELEASE, WAIT
from services.broker.core.sorting import MOST_BYTES
from services.broker.core.turn_shares import LIGHT, LIGHT_SIZE
from tests.broker.sansio import Core

HEAVY = " OR ".join(["n = 1"] * LIGHT)
COSTLY = "n LIKE '%" + "a" * 40 + "%'"


def topic(core: Core, *selectors: str, name: str = "t") -> list[Any]:
    core.broker.catalogue.create_address(name, frozenset({"MULTICAST"}))
    return [
        core.broker.catalogue.create_queue(name, f"{name}.s{n}", "MULTICAST", durable=False, filter=selector)
        for n, selector in enumerate(selectors)
    ]


def works(core: Core) -> None:
    while core.broker.jobs:
        core.broker.jobs.run(lambda: True)


@pytest.mark.parametrize(
    "selectors", [[HEAVY], [COSTLY], ["n = 1"] * LIGHT, [HEAVY, "n = 1"]], ids=["long", "like", "many", "both"]
)
def test_queues_of_a_topic_are_chosen_in_turns_of_their_own(selectors: list[str]) -> None:
    """The producer is answered afterwards, and the order is kept, also of what would be sent on at once."""
    core = Core()
    queues = topic(core, *selectors, "n = 2")
    assert [core.send(n, "t", properties={"n": 1 if selectors[0] is not COSTLY else "a" * 40}) for n in range(3)] == [
        WAIT
    ] * 3
    assert not any(queue.count for queue in queues)
    for queue in queues[:-2]:
        core.broker.catalogue.destroy_queue(queue.name)
    core.broker.catalogue.destroy_queue(queues[-1].name)
    assert core.send(3, "t", properties={"n": 1 if selectors[0] is not COSTLY else "a" * 40}) is WAIT
    works(core)
    assert core.accepted == [1, 2, 3, 4]
    assert queues[-2].count == 4
    assert core.send(4, "t", properties={"n": 5}) is (WAIT if queues[-2].condition.weight > LIGHT else ACCEPT)


def test_few_words_are_evaluated_at_once() -> None:
    core = Core()
    queues = topic(core, "n = 1", "n = 2")
    assert core.send("x", "t", properties={"n": 1}) is ACCEPT
    assert [queue.count for queue in queues] == [1, 0]


def test_properties_of_many_bytes_are_decoded_in_turns_of_their_own() -> None:
    core = Core()
    (queue,) = topic(core, "n = 1")
    assert core.send("x", "t", properties={"n": 1, "more": "x" * LIGHT_SIZE}) is WAIT
    works(core)
    assert queue.count == 1


def test_selectors_see_nothing_of_a_front_that_is_too_long() -> None:
    core = Core()
    queues = topic(core, "n = 1", "n IS NULL")
    core.send("x", "t", properties={"n": 1, "more": "x" * MAX_FRONT})
    works(core)
    assert [queue.count for queue in queues] == [0, 1]


def test_a_message_of_an_address_that_is_deleted_meanwhile_is_rejected() -> None:
    core = Core()
    topic(core, HEAVY)
    core.send("x", "t", properties={"n": 1})
    core.broker.catalogue.delete_address("t", force=True)
    works(core)
    ((delivery, error),) = core.refused
    assert delivery == 1
    assert isinstance(error, BrokerError)
    assert error.condition == "amqp:not-found"


def test_what_waits_is_bounded() -> None:
    """Messages beyond are released; senders get no more credit before that, and again when the rest is through."""
    core = Core()
    (queue,) = topic(core, HEAVY)
    owner = core.broker.catalogue.addresses["t"]
    verdicts = []
    for _ in range(10):
        verdicts.append(core.send("x" * (MOST_BYTES // 8), "t", properties={"n": 1}))
        assert owner.blocked or len(verdicts) < 5
    assert set(verdicts[:7]) == {WAIT}
    assert verdicts[8:] == [RELEASE] * 2
    works(core)
    assert not owner.blocked
    assert queue.count == verdicts.count(WAIT)
    assert core.send("x", "t", properties={"n": 1}) is WAIT


def test_what_waits_is_bounded_for_all_addresses_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "MOST_IN_ALL", MOST_BYTES)
    core = Core()
    topics = [f"t{n}" for n in range(8)]
    for name in topics:
        topic(core, HEAVY, name=name)
    owners = [core.broker.catalogue.addresses[name] for name in topics]
    verdicts = [core.send("x" * (MOST_BYTES // 8), name, properties={"n": 1}) for name in topics * 2]
    assert set(verdicts[:8]) == {WAIT}, "one of each"
    assert set(verdicts[8:]) == {RELEASE}
    assert all(owner.blocked for owner in owners)
    works(core)
    assert not any(owner.blocked for owner in owners)
    assert core.send("x", "t0", properties={"n": 1}) is WAIT


def test_senders_of_sorted_messages_go_on_after_the_disk_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is behind when the last message has its queues."""
    core = Core()
    sent = 0
    topic(core, HEAVY)
    owner = core.broker.catalogue.addresses["t"]
    while not owner.blocked:
        core.send("x" * (MOST_BYTES // 8), "t", properties={"n": 1})
        sent += 1

    def stored(first: int, count: int) -> None:
        core.accepted.append(first)
        core.broker.ledger.disk_behind = len(core.accepted) == sent

    monkeypatch.setattr(core, "stored", stored)
    works(core)
    assert owner.blocked
    core.broker.ledger.disk_behind = False
    core.broker.disk_caught_up()
    assert not owner.blocked


def counted(limit: int) -> Callable[[], Callable[[], bool]]:
    """Shares of as many looks."""

    def begin() -> Callable[[], bool]:
        left = limit

        def spent() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        return spent

    return begin


@pytest.mark.parametrize("selector", [HEAVY, "n = 1"])
def test_a_consumer_searches_in_shares(selector: str) -> None:
    core = Core()
    core.broker.share = counted(3)
    turns: list[int] = []
    queue = core.queue()
    for n in range(100):
        core.send("x", properties={"n": n // 99})
    consumer = core.consumer(queue, 10, selector)
    assert not consumer.unsettled
    while core.broker.run_pending():
        turns.append(1)
    assert len(consumer.unsettled) == 1
    assert len(turns) > 20


def test_queues_take_turns_while_there_is_time() -> None:
    core = Core()
    for name in "abc":
        queue = core.queue(name)
        core.consumer(queue, 10, HEAVY)
        core.send("x", name, properties={"n": 1})
    done = [queue for queue in core.broker.catalogue.queues.values() if queue.dispatcher.delivering]
    assert not done
    for count in (1, 2, 3):
        more = core.broker.run_pending(lambda: True)
        assert sum(queue.dispatcher.delivering for queue in core.broker.catalogue.queues.values()) == count
        assert more == (count < 3)
