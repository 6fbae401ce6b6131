"""The broker dies with a transaction's group: written in part, written and not synced, synced and not answered."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from proton import Message, ProtonException
from proton.utils import BlockingConnection

from tests.broker.harness import BrokerProcess, attach, take, until
from tests.kit.marks import first_soon
from tests.kit.processes import Process
from tests.kit.transactions import Transacted
from tests.kit.waiting import DEADLINE

EACH = 10
"""Messages that one transaction moves from queue to queue."""


def move(broker: BrokerProcess, committed: set[int]) -> None:
    """Move messages in transactions until the connection is lost, or none is left."""
    c = BlockingConnection(broker.url, timeout=DEADLINE)
    receiver, sender, work = attach(c, "in", 5 * EACH), c.create_sender("out"), Transacted(c)
    while True:
        work.begin()
        numbers = []
        for _ in range(EACH):
            message = take(receiver)
            numbers.append(message.body)
            work.send_later(sender, Message(body=message.body, durable=True))
            work.settle(receiver)
        receiver.link.flow(EACH)
        work.commit()
        committed.update(numbers)


def is_over(process: Process) -> bool:
    return process.poll() is not None


def bodies(broker: BrokerProcess, q: str) -> list[int]:
    with broker.manage() as m, broker.connect() as c:
        count = m.count(q)
        receiver = attach(c, q, count)
        return [take(receiver).body for _ in range(count)]


@pytest.mark.parametrize("total", [60, pytest.param(3400, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("point", first_soon(["half", "synced", "written"], 2))
def test_each_transaction_is_whole_or_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, total: int
) -> None:
    rng = random.Random(point)
    broker = BrokerProcess(tmp_path).start()
    with broker.manage() as m, broker.connect() as c:
        for q in ("in", "out"):
            m.queue(q)
        sender = c.create_sender("in")
        for n in range(total):
            sender.send(Message(body=n, durable=True))
    committed: set[int] = set()
    deaths = 0
    while len(committed) < total * 2 // 3:
        broker.stop()
        with monkeypatch.context() as dying:  # others are forked, which takes less
            dying.setenv("PYTHONPATH", str(Path(__file__).parent / "power_cut"))
            dying.setenv("ENMASSE_FILES", f"{point}:{rng.randrange(1, max(4, total // 60))}")
            broker.start()
        process = broker.process
        assert process is not None
        with contextlib.suppress(ProtonException):
            move(broker, committed)
        until(partial(is_over, process), "the broker to die")
        deaths += 1
        broker.start()
        left, moved = bodies(broker, "in"), bodies(broker, "out")
        assert Counter(left + moved) == Counter(range(total)), "lost or twice"
        assert committed <= set(moved)
        assert len(moved) % EACH == 0, "half a transaction"
        if point == "half":
            assert set(moved) == committed
        else:
            assert len(set(moved) - committed) == EACH, "it was stored and not answered"
            committed = set(moved)
    assert deaths > 1
    broker.stop()
