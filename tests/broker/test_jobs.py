"""Operations over all messages of a queue go on in portions: others are served meanwhile, and nothing goes astray."""

from __future__ import annotations

import json
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from proton import Message, Timeout
from proton.utils import BlockingConnection

from services.broker.core.connections import Connections
from services.broker.core.errors import BrokerError
from services.broker.core.jobs import AT_ONCE, MOST, MOST_OF_CLIENT, Jobs, Work
from services.broker.core.publisher import publish_run
from services.broker.core.queues.queue import Queue
from services.broker.core.turn_shares import endless
from services.broker.management import queue_control
from services.broker.management.calls import CallContext
from tests.broker.harness import DEADLINE, BrokerProcess, Management, attach, bodies, until
from tests.broker.sansio import Core, decoded, encoded, more, outlet, taken

MANY = 3000
ODD = "odd = TRUE"


def fill(core: Core, count: int, to: str = "q", **fields: Any) -> None:
    """Messages 0, 1, 2 … in runs, as a fast sender sends them."""
    route = core.broker.catalogue.route(to, None)
    assert route is not None
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        payloads = [encoded(n, durable=True, properties={"odd": n % 2 == 1}, **fields) for n in numbers]
        assert publish_run(core.broker, route, payloads, core, start) == len(payloads)
        core.commit()


def begin(core: Core, queue: Queue, operation: str, *parameters: Any) -> list[Any]:
    """Asks for an operation; the list has its result when there is one."""
    answers: list[Any] = []
    function = queue_control.one.find(operation, list(parameters))
    work = function(CallContext(core.broker, Connections()), queue, *parameters)
    core.broker.jobs.ask(work, lambda result, error: answers.append(error or result), "console")
    return answers


def one_portion() -> bool:
    return True


def finish(core: Core) -> None:
    while core.broker.jobs:
        core.broker.jobs.run(one_portion)
        core.commit()


def waiting(core: Core, queue: Queue) -> list[Any]:
    return [decoded(core.broker.payloads.load(message) or b"").body for message in queue.messages()]


OPERATIONS: dict[str, tuple[str, list[Any], Any]] = {
    "count": ("countMessages", [ODD], MANY // 2),
    "remove": ("removeMessages", [ODD], MANY // 2),
    "purge": ("purge", [], MANY),
    "move": ("moveMessages", [ODD, "other"], MANY // 2),
    "dead letters": ("sendMessagesToDeadLetterAddress", [None], MANY),
    "expire": ("expireMessages", [ODD], MANY // 2),
    "list": ("listMessages", ["odd = 7"], "[]"),
    "browse": ("browse", [MANY // 10, 10], None),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_other_queues_are_served_between_two_portions(tmp_path: Path, name: str) -> None:
    operation, parameters, expected = OPERATIONS[name]
    core = Core(tmp_path)
    core.broker.catalogue.put_settings("q", {"DLA": "other", "expiryAddress": "other"})
    queue, other, elsewhere = core.queue(), core.queue("other"), core.queue("elsewhere")
    fill(core, MANY)
    answers = begin(core, queue, operation, *parameters)
    consumer = core.consumer(elsewhere, 1000)
    turns = 0
    while not answers:
        core.send(turns, to="elsewhere", durable=True)
        core.commit()
        assert taken(consumer) == [turns], "a message passes while the operation is under way"
        core.broker.jobs.run(one_portion)
        turns += 1
    assert turns > (1 if name == "purge" else MANY // AT_ONCE)
    if expected is not None:
        assert answers == [expected]
    else:
        assert [row["messageID"] for row in json.loads(answers[0])] == [m.id for m in list(queue.messages())[-10:]]
    core.commit()
    core.restart()
    queue, other = core.broker.catalogue.queues["q"], core.broker.catalogue.queues["other"]
    left = {"purge": [], "dead letters": []}.get(name, list(range(MANY)))
    if name in ("remove", "move", "expire"):
        left = [n for n in left if n % 2 == 0]
    assert waiting(core, queue) == left
    moved = {"move": range(1, MANY, 2), "expire": range(1, MANY, 2), "dead letters": range(MANY)}.get(name, range(0))
    assert waiting(core, other) == list(moved)


def test_clients_may_do_anything_meanwhile(tmp_path: Path) -> None:
    """Consume, give back, send: what came after the request stays, what a consumer has stays with it."""
    core = Core(tmp_path)
    queue = core.queue()
    fill(core, MANY)
    consumer = core.consumer(queue, 100)
    held = [message for _, message in outlet(consumer).take()]
    answers = begin(core, queue, "removeMessages", ODD)
    sent = 0
    while not answers:
        queue.outcomes.release(consumer, held[:1])
        more(consumer, 1)
        queue.outcomes.accept(consumer, held[1:2])
        held = held[2:] + [message for _, message in outlet(consumer).take()]
        core.send(f"new {sent}", durable=True, properties={"odd": True})
        core.commit()
        sent += 1
        core.broker.jobs.run(one_portion)
    queue.outcomes.release(consumer, held)
    core.commit()
    left = waiting(core, queue)
    assert left[-sent:] == [f"new {n}" for n in range(sent)]
    odd = [n for n in left[:-sent] if n % 2]
    assert max(odd, default=0) < 100 + 2 * sent, "only what a consumer had"
    assert {n for n in range(200 + 2 * sent, MANY) if n % 2 == 0} <= set(left[:-sent])
    assert queue.count == len(left) + queue.dispatcher.delivering
    assert answers[0] + len(left) - sent + queue.acknowledged + queue.dispatcher.delivering == MANY


@pytest.mark.parametrize("gone", ["q", "other"])
def test_a_queue_that_is_deleted_ends_the_work_on_it(tmp_path: Path, gone: str) -> None:
    core = Core(tmp_path)
    queue, other = core.queue(), core.queue("other")
    fill(core, MANY)
    answers = begin(core, queue, "moveMessages", None, "other")
    core.broker.jobs.run(one_portion)
    core.commit()
    moved = other.count
    core.broker.catalogue.destroy_queue(gone, remove_consumers=True)
    finish(core)
    assert isinstance(answers[0], BrokerError) and gone in str(answers[0])
    assert waiting(core, queue) == ([] if gone == "q" else list(range(moved, MANY)))
    core.restart()
    assert core.broker.catalogue.queues.keys() == {"q", "other"} - {gone}
    left = next(iter(core.broker.catalogue.queues.values()))
    assert waiting(core, left) == (list(range(moved)) if gone == "q" else list(range(moved, MANY)))


def test_a_deleted_queue_is_gone_at_once_and_its_space_little_by_little(tmp_path: Path) -> None:
    core = Core(tmp_path)
    queue = core.queue()
    fill(core, MANY)
    core.broker.catalogue.destroy_queue("q")
    assert queue.count == 0 and "q" not in core.broker.catalogue.queues
    assert 0 < core.broker.ledger.size < MANY * 200
    again = core.queue()
    fill(core, 10)
    finish(core)
    assert core.store is not None
    assert len(core.store.live.index) == again.count == 10
    assert core.broker.ledger.size == again.bytes
    core.restart()
    assert waiting(core, core.broker.catalogue.queues["q"]) == list(range(10))


@pytest.mark.parametrize("target", [None, "late"])
def test_many_that_expire_together_leave_in_portions(tmp_path: Path, target: str | None) -> None:
    core = Core(tmp_path)
    core.broker.catalogue.put_settings("q", {"expiryAddress": target, "expiryDelay": 10_000})
    queue, late = core.queue(), core.queue("late")
    for n in range(MANY):
        core.send(n, durable=True)
    core.commit()
    core.send("young", durable=True, ttl=20)
    core.commit()
    core.tick(10_001)
    assert 0 < queue.expired < MANY
    finish(core)
    assert (queue.expired, late.count) == (MANY, MANY if target else 0)
    assert waiting(core, queue) == ["young"]
    core.tick(10_000)
    finish(core)
    assert queue.count == 0


def test_many_that_become_due_together_are_delivered_in_their_order(tmp_path: Path) -> None:
    core = Core(tmp_path)
    queue = core.queue()
    for n in range(MANY):
        core.send(n, durable=True, annotations={"x-opt-delivery-delay": 1000})
    core.commit()
    core.tick(1001)
    assert len(queue.schedule) > 0, "some are left for later turns"
    finish(core)
    assert waiting(core, queue) == list(range(MANY))


def test_a_ring_that_is_made_smaller_drops_the_oldest(tmp_path: Path) -> None:
    core = Core(tmp_path)
    queue = core.queue()
    fill(core, MANY)
    core.broker.catalogue.update_queue(queue, {"ring_size": 10})
    assert 10 < queue.count < MANY
    fill(core, 1)
    finish(core)
    assert waiting(core, queue) == [*range(MANY - 9, MANY), 0]


def test_only_so_many_are_under_way() -> None:
    jobs = Jobs(lambda: False, endless)
    answers: list[tuple[int | None, Exception | None]] = []

    def work() -> Work[int]:
        yield AT_ONCE
        return 1

    def ask(client: str, times: int = 1) -> None:
        for _ in range(times):
            jobs.ask(work(), lambda result, error: answers.append((result, error)), client)

    ask("greedy", MOST_OF_CLIENT)
    assert not answers
    ask("greedy")
    ask("other", MOST - MOST_OF_CLIENT)
    ask("last")
    (_, mine), (_, whole) = answers
    assert isinstance(mine, BrokerError) and f"{MOST_OF_CLIENT} of greedy: ask again" in str(mine)
    assert isinstance(whole, BrokerError) and f"{MOST}: ask again" in str(whole)
    jobs.run(lambda: False)
    ask("greedy")
    ask("last")
    jobs.run(lambda: False)
    assert answers[2:] == [(1, None)] * (MOST + 2)


# -- a broker's process ------------------------------------------------------------------------------------------------
def filled(directory: Path, names: list[str], count: int) -> BrokerProcess:
    core = Core(directory / "data")
    for name in names:
        core.queue(name)
        fill(core, count, name)
    core.queue("elsewhere")
    core.commit()
    assert core.store is not None
    core.store.close()
    return BrokerProcess(directory)


def ask(m: Management, queue: str, operation: str, *parameters: Any) -> None:
    properties = {"_AMQ_ResourceName": f"queue.{queue}", "_AMQ_OperationName": operation}
    m.sender.send(Message(reply_to=m.reply_to, properties=properties, body=json.dumps(parameters), correlation_id=7))


def answered(m: Management) -> Any:
    """The answer to `ask`, None if there is none yet."""
    try:
        reply = m.receiver.receive(timeout=0.001)
    except Timeout:
        return None
    m.receiver.accept()
    return json.loads(reply.body)[0]


@pytest.mark.slow
def test_messages_of_others_pass_while_a_filter_is_applied(tmp_path: Path) -> None:
    """How many pass during one operation depends on the machine: it is repeated until some have."""
    count = 15_000
    broker = filled(tmp_path, ["q"], count).start()
    with broker.manage() as m, broker.connect() as c, broker.manage() as other:
        other.queue("elsewhere.2")
        sender, receiver = c.create_sender("elsewhere"), c.create_receiver("elsewhere", credit=10)

        def passes(expected: Any, queue: str, operation: str, *parameters: Any) -> bool:
            """Return whether several messages passed during the operation."""
            ask(m, queue, operation, *parameters)
            found = 0
            while (result := answered(m)) is None:
                sender.send(Message(body=found))
                assert receiver.receive().body == found
                receiver.accept()
                assert other.count("elsewhere") <= 1, "requests of others are answered as well"
                found += 1
            assert result == expected, (operation, result)
            return found > 2

        for expected, operation in ((0, "countMessages"), ("[]", "listMessages"), (0, "removeMessages")):
            until(partial(passes, expected, "q", operation, "odd = 7"))
        ways = cycle((("q", "elsewhere.2"), ("elsewhere.2", "q")))

        def moves() -> bool:
            source, target = next(ways)
            return passes(count // 2, source, "moveMessages", "odd = TRUE", target)

        until(moves)
        passes(count // 2, "q", "removeMessages", "odd = FALSE")
    broker.stop()


def test_a_client_is_answered_in_the_order_of_its_requests(tmp_path: Path) -> None:
    broker = filled(tmp_path, ["q"], 5000).start()
    with broker.manage() as m:
        for operation in ("countMessages", "removeMessages", "countMessages"):
            ask(m, "q", operation, ODD)
        ask(m, "q", "getMessageCount")
        found: list[Any] = []
        while len(found) < 4:
            result = answered(m)
            found += [] if result is None else [result]
        assert found == [2500, 2500, 0, 2500]
    broker.stop()


@pytest.mark.parametrize("count", [4000, pytest.param(15_000, marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_a_removal_the_others_are_all_there(tmp_path: Path, count: int) -> None:
    broker = filled(tmp_path, ["answered", "killed"], count).start()
    m, other = (Management(BlockingConnection(broker.url, timeout=DEADLINE)) for _ in range(2))
    assert m("removeMessages", ODD, resource="queue.answered") == count // 2
    ask(m, "killed", "removeMessages", ODD)
    until(lambda: 0 < other.count("killed") < count, "the removal to be under way")
    broker.kill()
    broker.start()
    with broker.connect() as c, broker.manage() as m:
        for name, most in (("answered", count // 2), ("killed", count)):
            held = m.count(name)
            left = bodies(attach(c, name, held), held)
            assert len(left) <= most
            assert left == sorted(set(left))
            assert [n for n in left if n % 2 == 0] == list(range(0, count, 2))
    broker.stop()
