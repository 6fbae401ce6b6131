"""Transactions in the core, with a clock and a disk set by hand: their time, a disk that fails, times to live."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from services.broker.core import transactions
from services.broker.core.errors import BrokerError
from services.broker.core.limits.space_storage import StorageShare
from services.broker.core.publisher import Posted
from services.broker.core.queues.outcomes import Outcomes
from services.broker.core.transactions import LIFE, OPEN_OF_SPACE, Retirement, Transaction, TransactionUser
from services.broker.storage.journal import file_operations
from tests.broker.disks import FailingDisk
from tests.broker.sansio import Core, QueueConsumer, encoded, outlet, taken

ALICE, BOB = (TransactionUser("!!one/", name) for name in (b"alice", b"bob"))


class Work:
    """One transaction of a core; `answers` has what ended it, None for a commit."""

    def __init__(self, core: Core, user: TransactionUser = ALICE) -> None:
        self.core = core
        self.answers: list[BrokerError | None] = []
        self.expired: list[str] = []
        self.it: Transaction = core.broker.transactions.declare(
            b"t", user, lambda error: self.expired.append(error.condition)
        )

    def post(self, body: str, to: str = "q", **fields: Any) -> None:
        broker = self.core.broker
        route = broker.catalogue.route(to, None)
        assert route is not None
        broker.transactions.post(self.it, Posted(broker, route, encoded(body, **fields), "", b"", False))

    def accept(self, consumer: QueueConsumer) -> None:
        messages = [token for _, token in outlet(consumer).take()]
        queue = consumer.queue

        def apply(mine: list[Any]) -> None:
            queue.outcomes.accept(consumer, mine)

        retirement = Retirement(queue, consumer, messages, apply, lambda: None, lambda message: False)
        self.core.broker.transactions.retire(self.it, retirement)

    def commit(self) -> None:
        self.core.broker.transactions.commit(self.it, self.answers.append)


def test_time_rolls_back(tmp_path: Path) -> None:
    core = Core(tmp_path)
    q, other = core.queue(), core.queue("other")
    core.send("in", durable=True)
    core.commit()
    consumer = core.consumer(q, 1)
    work = Work(core)
    work.accept(consumer)
    work.post("out", "other", durable=True)
    core.tick(LIFE - 1)
    assert (work.expired, q.dispatcher.delivering, core.broker.transactions.due) == ([], 1, core.now + 1)
    core.tick(1)
    assert work.expired == ["amqp:transaction:timeout"]
    assert (q.waiting(), q.attempts, other.count) == (1, {next(iter(q.attempts)): 1}, 0)
    assert (len(core.broker.transactions), core.broker.transactions.due) == (0, 0)


def test_a_disk_that_fails_keeps_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither answered nor seen until all of it is written, whatever fails before; a death before leaves nothing."""
    disk = FailingDisk()
    monkeypatch.setattr(file_operations, "FILES", disk)
    core = Core(tmp_path)
    q, other = core.queue(), core.queue("other")
    core.send("in", durable=True)
    core.commit()
    with core.broker.group(0):  # it states the format, for which the disk must be well
        pass
    work = Work(core)
    work.accept(core.consumer(q, 1))
    reader = core.consumer(other, 5)
    work.post("durable", "other", durable=True)
    work.post("not", "other")
    disk.broken = True
    work.commit()
    for _ in range(3):
        core.commit()
        assert (work.answers, taken(reader), other.count) == ([], [], 2)
    disk.broken = False
    core.commit()
    assert (work.answers, taken(reader)) == ([None], ["durable", "not"])
    core.restart()
    queues = core.broker.catalogue.queues
    assert (queues["q"].count, taken(core.consumer(queues["other"], 5))) == (0, ["durable"])


def test_what_was_not_committed_to_disk_never_was(tmp_path: Path) -> None:
    core = Core(tmp_path)
    q = core.queue()
    core.queue("other")
    core.send("in", durable=True)
    core.commit()
    work = Work(core)
    work.accept(core.consumer(q, 1))
    work.post("out", "other", durable=True)
    work.commit()
    assert work.answers == []
    core.commit()
    assert work.answers == [None]
    core.restart()
    queues = core.broker.catalogue.queues
    assert (queues["q"].count, queues["other"].count) == (0, 1)


def test_a_time_to_live_runs_from_the_sending(tmp_path: Path) -> None:
    core = Core(tmp_path)
    q = core.queue()
    work = Work(core)
    work.post("late", durable=True, ttl=1)
    work.post("in time", durable=True, ttl=100)
    core.tick(5000)
    work.commit()
    core.commit()
    assert taken(core.consumer(q, 5)) == ["in time"]


@pytest.mark.parametrize("how", ["commit", "roll back", "time"])
def test_nothing_is_held_after_the_end(how: str) -> None:
    core = Core()
    q = core.queue()
    core.send("in")
    work = Work(core)
    work.accept(core.consumer(q, 1))
    work.post("out")
    if how == "commit":
        work.commit()
        assert work.answers == [None]
    elif how == "roll back":
        core.broker.transactions.roll_back(work.it)
    else:
        core.tick(LIFE)
    assert (len(core.broker.transactions), core.broker.transactions._shares, q.held) == (0, {}, {})
    assert taken(core.consumer(q, 5)) == ["out" if how == "commit" else "in"]
    assert core.broker.ledger.size == len(encoded("out" if how == "commit" else "in"))


class Injected(Exception):
    pass


@pytest.mark.parametrize("failure", [Injected(), OSError(28, "No space left on device"), BrokerError("no", "x:y")])
@pytest.mark.parametrize("stored", [True, False])
def test_an_error_while_messages_enter_undoes_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, stored: bool
) -> None:
    core = Core(tmp_path) if stored else Core()
    q, other = core.queue(), core.queue("other")
    core.send("in", durable=True)
    core.commit()
    ids = {"properties": {"_AMQ_DUPL_ID": "once"}}
    size = core.broker.ledger.size
    enter = Posted.enter
    work = Work(core)
    work.accept(core.consumer(q, 1))
    for n, durable in enumerate((True, False, True)):
        work.post(f"{n}", "other", durable=durable, **(ids if n < 2 else {}))
    calls = []

    def failing(post: Posted) -> None:
        calls.append(post)
        if len(calls) == 3:
            raise failure
        enter(post)

    monkeypatch.setattr(Posted, "enter", failing)
    work.commit()
    monkeypatch.undo()
    core.commit()
    assert [error.condition for error in work.answers if error is not None] == ["amqp:transaction:rollback"]
    assert (other.count, core.broker.ledger.size, q.held, q.waiting()) == (0, size, {}, 1)
    assert (len(core.broker.transactions), core.broker.transactions._shares) == (0, {})
    again = Work(core)
    again.post("again", "other", durable=True, **ids)
    again.commit()
    core.commit()
    assert again.answers == [None], "its duplicate id was not used up"
    assert taken(core.consumer(other, 5)) == ["again"]
    if stored:
        core.restart()
        queues = core.broker.catalogue.queues
        assert (taken(core.consumer(queues["other"], 5)), queues["q"].waiting()) == (["again"], 1)


def test_an_outcome_that_fails_has_its_message_delivered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By then the rest of the transaction is done."""
    core = Core(tmp_path)
    q, other = core.queue(), core.queue("other")
    core.send("in", durable=True)
    core.commit()
    consumer = core.consumer(q, 1)
    work = Work(core)
    work.accept(consumer)
    work.post("out", "other", durable=True)

    def failing(*rest: object) -> None:
        raise Injected

    monkeypatch.setattr(Outcomes, "accept", failing)
    work.commit()
    core.commit()
    assert (work.answers, other.count, q.held, consumer.unsettled) == ([None], 1, {}, {})
    core.restart()
    queues = core.broker.catalogue.queues
    assert (queues["q"].waiting(), queues["other"].waiting()) == (1, 1)


@pytest.mark.parametrize("what", ["removed", "full"])
def test_a_queue_that_is_gone_or_full_by_the_commit_takes_nothing(tmp_path: Path, what: str) -> None:
    core = Core(tmp_path)
    q, first = core.queue(), core.queue("first")
    last = core.queue("last")
    core.send("in", durable=True)
    core.commit()
    work = Work(core)
    work.accept(core.consumer(q, 1))
    work.post("1", "first", durable=True)
    work.post("2", "last", durable=True)
    if what == "removed":
        core.broker.catalogue.delete_address("last", force=True)
    else:
        last.address.apply(dataclasses.replace(last.address.settings, max_size_bytes=1, full_policy="FAIL"))
    work.commit()
    core.commit()
    assert [error is None for error in work.answers] == [False]
    assert (first.count, q.waiting()) == (0, 1)


def test_a_user_leaves_half_to_the_others_of_its_space(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core()
    core.queue()
    works = [Work(core) for _ in range(OPEN_OF_SPACE // 2)]
    with pytest.raises(BrokerError, match="a user gets at most as many as are left"):
        Work(core)
    works += [Work(core, BOB) for _ in range(OPEN_OF_SPACE // 4)]
    with pytest.raises(BrokerError):
        Work(core, BOB)
    Work(core, TransactionUser("!!two/", b"alice"))
    for work in works:
        core.broker.transactions.roll_back(work.it)
    monkeypatch.setattr(transactions, "BYTES_OF_SPACE", 1000)
    Work(core).post("x" * 300)
    work = Work(core)
    with pytest.raises(BrokerError, match="bytes in open transactions"):
        work.post("x" * 300)
    Work(core, BOB).post("x" * 300)


def test_a_transaction_over_addresses_of_a_space_keeps_to_its_storage(tmp_path: Path) -> None:
    core = Core(tmp_path)
    queues = [core.queue(f"!!one/{name}") for name in "ab"]
    size = len(encoded("x" * 900, durable=True))
    core.broker.catalogue.share_storage({"one": StorageShare(3 * size, 10_000, 0)})
    for counts, wanted in (((2, 2), False), ((2, 1), True), ((1, 0), False)):
        work = Work(core)
        with contextlib.suppress(BrokerError):
            for queue, count in zip(queues, counts, strict=True):
                for _ in range(count):
                    work.post("x" * 900, queue.name, durable=True)
        work.commit()
        core.commit()
        assert [error is None for error in work.answers] == [wanted]
    assert [queue.count for queue in queues] == [2, 1]
