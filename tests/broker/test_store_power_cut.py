"""A broker process on a disk that loses or tears what is not synced, killed under acknowledged load."""

from __future__ import annotations

import contextlib
import random
import threading
from functools import partial
from pathlib import Path

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection

from .harness import DEADLINE, BrokerProcess, until

SENDERS = 4


class _Load:
    """Senders with one message outstanding each, and a consumer, until their connections are lost."""

    def __init__(self, url: str, first: int) -> None:
        self.accepted: set[int] = set()
        self.consumed: set[int] = set()
        self.next = first
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(self._send, url)) for _ in range(SENDERS)]
        self._threads.append(threading.Thread(target=self._run, args=(self._consume, url)))
        for thread in self._threads:
            thread.start()

    def _run(self, work: object, url: str) -> None:
        assert callable(work)
        with contextlib.suppress(Exception):  # the connection goes with the broker
            work(BlockingConnection(url, timeout=DEADLINE))

    def _send(self, c: BlockingConnection) -> None:
        sender = c.create_sender("q")
        while True:
            with self._lock:
                number, self.next = self.next, self.next + 1
            delivery = sender.send(Message(id=number, durable=True, body=b"%08d" % number * (1 + number % 300)))
            if delivery.remote_state == Delivery.ACCEPTED:
                self.accepted.add(number)

    def _consume(self, c: BlockingConnection) -> None:
        receiver = c.create_receiver("q", credit=1)
        while True:
            number = int(receiver.receive(timeout=DEADLINE).id)
            if number % 3 == 0:
                self.consumed.add(number)  # from here on it may be gone
                receiver.accept()
            else:
                receiver.release(delivered=False)

    def has_accepted(self, count: int) -> bool:
        return len(self.accepted) >= count

    def join(self) -> None:
        for thread in self._threads:
            thread.join(2 * DEADLINE)
            assert not thread.is_alive()


@pytest.mark.parametrize("disk", [pytest.param("lossy", marks=pytest.mark.slow), "tearing"])
def test_what_was_accepted_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "power_cut"))
    monkeypatch.setenv("ENMASSE_FILES", disk)
    rng = random.Random(disk)
    broker = BrokerProcess(tmp_path)
    broker.start()
    with broker.manage() as m:
        m.queue("q")
    accepted: set[int] = set()
    consumed: set[int] = set()
    first = 0
    for _ in range(3):
        load = _Load(broker.url, first)
        target = rng.randrange(50, 250)
        until(partial(load.has_accepted, target), "messages to be accepted")
        broker.kill()
        load.join()
        accepted |= load.accepted
        consumed |= load.consumed
        first = load.next
        broker.start()
    monkeypatch.delenv("ENMASSE_FILES")
    broker.kill()
    broker.start()  # on a real disk: what the other one left
    found: list[int] = []
    with broker.manage() as m:
        held = m.count("q")
    with broker.connect() as c:
        receiver = c.create_receiver("q", credit=100)
        for _ in range(held):
            message = receiver.receive(timeout=DEADLINE)
            number = int(message.id)
            assert bytes(message.body) == b"%08d" % number * (1 + number % 300)
            found.append(number)
            receiver.accept()
    broker.stop()
    assert len(set(found)) == len(found)
    assert accepted - consumed <= set(found)
    assert set(found) <= set(range(first))
