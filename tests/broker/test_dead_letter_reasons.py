"""Dead letters carry why they died, over moves and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from proton import symbol

from enmasse.identity.annotations import BROKERS_FACTS, DEATH, FACTS, ORIGINAL_ADDRESS, ORIGINAL_QUEUE, RETAINED_BY
from services.broker.core.messages.dead_letter_reasons import Death, Reason
from services.broker.core.publisher import publish
from services.broker.core.queues.queue import Queue
from tests.broker.sansio import Core, decoded, encoded, outlet


def deaths(core: Core, name: str = "dead") -> list[dict[str, Any]]:
    """`x-opt-death` of the messages in a queue, which stay there."""
    found = []
    consumer = core.consumer(core.broker.catalogue.queues[name], 10)
    for payload, message in outlet(consumer).take():
        annotations = decoded(payload).annotations
        assert annotations is not None
        found.append(annotations[symbol("x-opt-death")])
        consumer.queue.outcomes.release(consumer, [message])
    consumer.queue.detach(consumer)
    return found


def core_with_dead_letters(directory: Path | None = None, **settings: Any) -> tuple[Core, Queue]:
    core = Core(directory)
    core.broker.catalogue.put_settings("q", {"DLA": "dead", "expiryAddress": "dead"} | settings)
    core.queue("dead")
    return core, core.queue()


def take(core: Core, queue: Queue) -> tuple[Any, Any]:
    consumer = core.consumer(queue, 1)
    ((_, message),) = outlet(consumer).take()
    return consumer, message


def reject(core: Core, queue: Queue, death: Death = Death(Reason.REJECTED)) -> None:  # noqa: B008 - a tuple
    consumer, message = take(core, queue)
    queue.outcomes.reject(consumer, [message], death)
    queue.detach(consumer)


def test_a_rejected_message_has_condition_description_and_consumer() -> None:
    core, q = core_with_dead_letters()
    core.send("x")
    core.now += 5
    reject(core, q, Death(Reason.REJECTED, "app:bad", "no such customer", "billing"))
    (death,) = deaths(core)
    assert death == {
        "reason": "rejected", "source": "q", "condition": "app:bad", "description": "no such customer",
        "consumer": "billing", "count": 1, "first": core.now, "last": core.now,
    }  # fmt: skip
    assert (q.rejected, q.killed) == (1, 1)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("way", ["rejected", "unrouted", "moved"])
def test_a_seal_does_not_leave_with_a_dead_letter(tmp_path: Path, way: str, restarted: bool) -> None:
    """Nor with a message that an operator has moved; who received it could state it again."""
    core, q = core_with_dead_letters(tmp_path)
    if way == "unrouted":
        core.broker.catalogue.put_settings("nobody", {"DLA": "dead", "sendToDLAOnNoRoute": True})
        core.broker.catalogue.create_address("nobody", frozenset({"MULTICAST"}))
    core.send("x", to="nobody" if way == "unrouted" else "q", durable=True, annotations={symbol(RETAINED_BY): b"seal"})
    core.commit()
    if way == "rejected":
        reject(core, q)
    elif way == "moved":
        assert core.ask(q, "moveMessages", "", "dead") == 1
    core.commit()
    if restarted:
        core.restart()
    consumer = core.consumer(core.broker.catalogue.queues["dead"], 1)
    ((payload, _),) = outlet(consumer).take()
    assert decoded(payload).body == "x" and symbol(RETAINED_BY) not in (decoded(payload).annotations or {})


@pytest.mark.parametrize("reason", ["expired", "delivered-too-often", "undeliverable", "by-order"])
def test_each_way_to_die_has_its_reason(reason: str) -> None:
    core, q = core_with_dead_letters(maxDeliveryAttempts=2)
    core.send("x", ttl=0.01 if reason == "expired" else 0)
    if reason == "expired":
        core.tick(60_000)
        core.broker.jobs.run(lambda: False)
    elif reason == "delivered-too-often":
        for _ in range(2):
            consumer, message = take(core, q)
            q.outcomes.modify(consumer, [message], failed=True, elsewhere=False)
            q.detach(consumer)
        assert q.redelivered == 1
    elif reason == "undeliverable":
        consumer, message = take(core, q)
        q.outcomes.modify(consumer, [message], failed=False, elsewhere=True)
    else:
        assert core.ask(q, "sendMessagesToDeadLetterAddress", None) == 1
    assert [death["reason"] for death in deaths(core)] == [reason]


def test_a_message_without_a_queue_says_so() -> None:
    core = Core()
    core.broker.catalogue.put_settings("t", {"DLA": "dead", "sendToDLAOnNoRoute": True})
    core.broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    core.queue("dead")
    core.send("x", "t")
    (death,) = deaths(core)
    assert (death["reason"], death["source"], death["count"]) == ("no-route", "t", 1)


def test_a_second_death_is_counted_and_keeps_the_time_of_the_first() -> None:
    core, q = core_with_dead_letters()
    core.send("x")
    reject(core, q, Death(Reason.REJECTED, "app:bad"))
    first = core.now
    assert core.ask(core.broker.catalogue.queues["dead"], "retryMessages") == 1
    core.now += 1000
    reject(core, q)
    (death,) = deaths(core)
    assert (death["count"], death["first"], death["last"]) == (2, first, core.now)
    assert "condition" not in death  # of the last death


def test_moves_keep_it() -> None:
    core, q = core_with_dead_letters()
    core.queue("other")
    core.send("x")
    reject(core, q)
    before = deaths(core)
    assert core.ask(core.broker.catalogue.queues["dead"], "moveMessages", None, "other") == 1
    assert deaths(core, "other") == before


@pytest.mark.parametrize("stated", [7, {"count": "many", "first": []}, {"count": -1}, {"count": 2**80, "first": True}])
def test_what_a_sender_states_as_an_earlier_death_is_no_harm(stated: Any) -> None:
    core, q = core_with_dead_letters()
    try:
        core.send("x", annotations={symbol("x-opt-death"): stated})
    except OverflowError:
        return  # proton cannot encode it
    reject(core, q)
    (death,) = deaths(core)
    assert (death["count"], death["first"]) == (1, core.now)


def test_texts_of_a_consumer_are_bounded() -> None:
    core, q = core_with_dead_letters()
    core.send("x")
    reject(core, q, Death(Reason.REJECTED, "c" * 10_000, "d" * 10_000, "e" * 10_000))
    (death,) = deaths(core)
    assert [len(death[key]) for key in ("condition", "description", "consumer")] == [500] * 3


def test_it_is_in_the_journal(tmp_path: Path) -> None:
    core, q = core_with_dead_letters(tmp_path)
    core.send("x", durable=True)
    core.commit()
    reject(core, q, Death(Reason.REJECTED, "app:bad", "why"))
    core.broker.ask_commit(urgent=True)
    core.commit()
    before = deaths(core)
    core.restart()
    assert deaths(core) == before
    assert not core.broker.catalogue.queues["q"].count


# -- what clients state ------------------------------------------------------------------------------------------------
STATED: dict[Any, Any] = {symbol(each.name + "QUEUE" * each.is_prefix): "elsewhere" for each in BROKERS_FACTS} | {
    symbol(DEATH): {"reason": "rejected", "source": "elsewhere", "count": 7}
}
OTHERS: dict[Any, Any] = {symbol("x-opt-mine"): "kept"}


def annotations_of(core: Core, queue: Queue) -> list[dict[Any, Any]]:
    return [decoded(payload).annotations for payload, _ in outlet(core.consumer(queue, 10)).take()]


@pytest.mark.parametrize("fields", [{}, {"ttl": 60}, {"durable": True}, {"properties": {"p": 1}}])
def test_a_sender_does_not_state_what_the_broker_does(fields: dict[str, Any], tmp_path: Path) -> None:
    core = Core(tmp_path)
    q = core.queue()
    for stated in ({**OTHERS, **STATED}, STATED, OTHERS, {**OTHERS, **STATED}):
        core.send("x", annotations=stated, **fields)
    core.commit()
    assert annotations_of(core, q) == [OTHERS, None, OTHERS, OTHERS]


def test_a_diverted_message_names_the_address_it_was_sent_to_whatever_it_states() -> None:
    core = Core()
    core.broker.catalogue.create_address("t", frozenset({"MULTICAST"}))
    q = core.queue("session")
    core.broker.catalogue.diverts.create("d", "t/#", "session")
    for to in ("t/a", "t/b", None):
        core.send("x", "t/a", address=to, annotations={symbol(ORIGINAL_ADDRESS): "secret"})
    named = {symbol(ORIGINAL_ADDRESS): "t/a"}
    assert annotations_of(core, q) == [None, named, named]


def test_a_consumer_does_not_state_what_the_broker_does() -> None:
    core, q = core_with_dead_letters()
    core.send("x")
    consumer, message = take(core, q)
    facts = {str(symbol(each.name)): "elsewhere" for each in FACTS} | {"x-opt-ORIG-QUEUE": "elsewhere"}
    q.outcomes.modify(consumer, [message], failed=False, elsewhere=False, annotations={**facts, "x-opt-mine": "kept"})
    q.detach(consumer)
    assert annotations_of(core, q) == [OTHERS]


def test_a_property_with_the_name_of_an_origin_is_none() -> None:
    core = Core()
    q = core.queue()
    core.send("x", properties={"_AMQ_ORIG_ADDRESS": "elsewhere", "_AMQ_ORIG_QUEUE": "elsewhere"})
    assert core.ask(q, "countMessages", "_AMQ_ORIG_ADDRESS = 'elsewhere' OR _AMQ_ORIG_QUEUE = 'elsewhere'") == 0
    assert core.ask(q, "countMessages", "_AMQ_ORIG_ADDRESS IS NULL") == 1


@pytest.mark.parametrize("operation", ["retryMessages", "workOnMessages"])
def test_dead_letters_go_back_only_to_queues_that_send_theirs_here(operation: str) -> None:
    """Also if what states another origin came before clients could not."""
    core, q = core_with_dead_letters()
    dead = core.broker.catalogue.queues["dead"]
    other = core.queue("other")
    core.send("x")
    reject(core, q)
    publish_believed(core, "dead", {symbol(ORIGINAL_QUEUE): "other", symbol(ORIGINAL_ADDRESS): "other"})
    assert dead.count == 2
    asked = [] if operation == "retryMessages" else [{"operation": "redrive"}]
    done = core.ask(dead, operation, *asked)
    assert (done if operation == "retryMessages" else done[0]) == 1
    assert (q.count, other.count, dead.count) == (1, 0, 1)


def publish_believed(core: Core, to: str, annotations: dict[Any, Any]) -> None:
    route = core.broker.catalogue.route(to, None)
    assert route is not None
    publish(core.broker, route, encoded("x", annotations=annotations), None, 0, believed=True)


@pytest.mark.parametrize("way", ["dead", "expired", "moved", "redriven", "unrouted"])
def test_a_message_that_arrives_otherwise_gets_the_time_to_live_of_the_address(tmp_path: Path, way: str) -> None:
    core, q = core_with_dead_letters(tmp_path, maxExpiryDelay=60_000)
    core.broker.catalogue.put_settings("dead", {"maxExpiryDelay": 30_000})
    core.broker.catalogue.put_settings("nobody", {"DLA": "dead", "sendToDLAOnNoRoute": True})
    core.broker.catalogue.create_address("nobody", frozenset({"MULTICAST"}))
    core.send("x", to="nobody" if way == "unrouted" else "q", durable=True)
    core.commit()
    dead = core.broker.catalogue.queues["dead"]
    if way == "expired":
        core.ask(q, "expireMessages", "")
    elif way == "moved":
        core.ask(q, "moveMessages", "", "dead")
    elif way in ("dead", "redriven"):
        core.ask(q, "sendMessagesToDeadLetterAddress", "")
    core.commit()
    if way == "redriven":
        core.ask(dead, "retryMessages")
    core.commit()
    arrived, due = (q, 60_000) if way == "redriven" else (dead, 30_000)
    assert [each.expires - core.now for portion in arrived.look(10) for each in portion] == [due]
