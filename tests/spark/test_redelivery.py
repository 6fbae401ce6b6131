"""The receiver process and what it makes of copies: killed receivers, brokers and routers; devices that count alike."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.spark.receiver.receivers import ReceiverError
from enmasse.spark.schema.message_columns import row
from enmasse.spark.source.source import AmqpStreamReader
from enmasse.spark.spool.segment import partition_folder, partitions_of, read_spool
from enmasse.spark.spool.spool import MappedCount, head_of
from enmasse.testing import Suite, running, wait_for
from tests.kit.marks import first_soon
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)
DEVICES = 6


def readings(count: int, start: int = 0) -> list[Message]:
    """Of devices that all count alike: every id comes six times, five times with the same body."""
    bodies = ["same", "same", "same", "same", "same", "mine"]
    return [Message(id=i, body=bodies[d], durable=True) for i in range(start, start + count) for d in range(DEVICES)]


def numbered(count: int, start: int = 0) -> list[Message]:
    """As `readings`, but each with a body of its own: so that a missing or doubled one is seen."""
    return [Message(id=i, body=f"{d} {i}", durable=True) for i in range(start, start + count) for d in range(DEVICES)]


def said(messages: list[Message]) -> Counter[tuple[str, str]]:
    return Counter((str(message.id), str(message.body)) for message in messages)


@contextmanager
def reading(url: str, address: str, folder: Path, **options: str) -> Iterator[AmqpStreamReader]:
    reader = AmqpStreamReader({"url": url, "address": address, "spool": str(folder / "spool"), **options})
    try:
        reader.started().await_address()
        yield reader
    finally:
        reader.stop()


def partitions(folder: Path) -> list[Path]:
    spool = folder / "spool"
    return [partition_folder(spool, n) for n in range(partitions_of(spool))]


def rows(folder: Path) -> Counter[tuple[str, str]]:
    """(message-id, text) of everything in the spool."""
    found: Counter[tuple[str, str]] = Counter()
    for spool in partitions(folder):
        records = [row(record) for record in read_spool(spool, 0, head_of(spool).get())]
        found.update((str(one[2]), str(one[14])) for one in records)
    return found


def stored(folder: Path) -> int:
    return sum(head_of(spool).get() for spool in partitions(folder))


def wait_rows(folder: Path, count: int) -> None:
    wait_for(f"{count} rows", lambda: stored(folder) >= count, DEADLINE)


def settled(folder: Path) -> int:
    return sum(MappedCount(spool / "settled").get() for spool in partitions(folder))


def wait_settled(folder: Path) -> None:
    """Nothing is in doubt that is not so already."""
    wait_for("everything settled", lambda: settled(folder) == stored(folder), DEADLINE)


def doubtful(folder: Path) -> int:
    path = folder / "spool" / "unsettled"
    return len(json.loads(path.read_bytes())) if path.exists() else 0


@pytest.mark.slow
def test_equal_messages_over_one_connection_are_rows_each(broker: Broker, tmp_path: Path) -> None:
    broker.queue("equal")
    with reading(broker.url, "equal", tmp_path):
        broker.send("equal", readings(50))
        broker.send("equal", readings(50))
        wait_rows(tmp_path, 100 * DEVICES)
        wait_settled(tmp_path)
    assert rows(tmp_path) == said(readings(50) * 2)


def test_equal_messages_after_a_restart_are_rows_each(broker: Broker, tmp_path: Path) -> None:
    """Everything had been settled before: nothing was in doubt, however the receiver ended."""
    broker.queue("later")
    for run in range(3):
        with reading(broker.url, "later", tmp_path) as reader:
            broker.send("later", readings(20))
            wait_rows(tmp_path, (run + 1) * 20 * DEVICES)
            wait_settled(tmp_path)
            if run == 1:
                reader.started().processes[0].process.kill()
    assert rows(tmp_path) == said(readings(20) * 3)
    assert doubtful(tmp_path) == 0


def test_receivers_killed_in_the_middle_lose_and_double_nothing(broker: Broker, tmp_path: Path) -> None:
    broker.queue("middle")
    for start in range(0, 200, 50):
        broker.send("middle", numbered(50, start))
    for least in (1, 300, 700):
        with reading(broker.url, "middle", tmp_path, credit="20") as reader:
            wait_rows(tmp_path, least)
            reader.started().processes[0].process.kill()
    with reading(broker.url, "middle", tmp_path):
        wait_rows(tmp_path, 200 * DEVICES)
        wait_settled(tmp_path)
    assert rows(tmp_path) == said(numbered(200))


def test_several_receivers_share_a_queue(broker: Broker, tmp_path: Path) -> None:
    """Equal messages that several of them get at the same time are rows of their own."""
    broker.queue("several")
    with reading(broker.url, "several", tmp_path, receivers="3", credit="20"):
        broker.send("several", readings(60))
        wait_rows(tmp_path, 60 * DEVICES)
        wait_settled(tmp_path)
    assert rows(tmp_path) == said(readings(60))
    assert all(head_of(spool).get() for spool in partitions(tmp_path))
    assert broker.depth("several") == 0 and doubtful(tmp_path) == 0


def test_receivers_of_a_topic_need_a_subscription(broker: Broker, tmp_path: Path) -> None:
    broker.manage("createAddress", "news", "MULTICAST")
    said = 'option "receivers": .* "subscription"'
    with pytest.raises(ReceiverError, match=said), reading(broker.url, "news", tmp_path, receivers="2"):
        pass


@pytest.mark.slow
def test_one_of_several_receivers_killed_with_another_number_of_them_afterwards(broker: Broker, tmp_path: Path) -> None:
    """A copy may come to another one than the message did, or to one of another number."""
    broker.queue("fewer")
    for start in range(0, 200, 50):
        broker.send("fewer", numbered(50, start))
    for least, receivers, victim in ((1, 2, 1), (200, 3, 0), (400, 3, 2), (600, 1, 0), (900, 2, 0)):
        with reading(broker.url, "fewer", tmp_path, credit="20", receivers=str(receivers)) as reader:
            wait_rows(tmp_path, least)
            processes = reader.started().processes
            processes[victim].process.kill()
            for each in processes:
                each.process.wait(DEADLINE)
            with pytest.raises(ReceiverError, match="the receiver ended with -9"):
                reader.reportLatestOffset()
    with reading(broker.url, "fewer", tmp_path, receivers="2"):
        wait_rows(tmp_path, 200 * DEVICES)
        wait_settled(tmp_path)
    assert rows(tmp_path) == said(numbered(200))


KILLED = """
import os, signal
from enmasse.aio.client_links import ClientReceiver
from enmasse.spark.receiver import spool_receiver
accept_all = ClientReceiver.accept_all
left = {after}
def killed(self, deliveries):
    global left
    accept_all(self, deliveries[:left])
    if left < len(deliveries):
        os.kill(os.getpid(), signal.SIGKILL)
    left -= len(deliveries)
ClientReceiver.accept_all = killed
spool_receiver.main()
"""


@pytest.mark.parametrize("after", first_soon([25, 0]))
def test_killed_between_sync_and_settle(broker: Broker, tmp_path: Path, after: int) -> None:
    queue = broker.queue(f"between-{after}")
    messages = [*readings(5), *numbered(5)]  # equal ones too: six come again, not one of them
    broker.send(queue, messages)
    (tmp_path / "spool").mkdir()
    options = {"url": broker.url, "address": queue, "spool": str(tmp_path / "spool"), "container": "c"}
    for _ in range(2):  # the second time in the middle of the copies
        killed = subprocess.Popen([sys.executable, "-c", KILLED.format(after=after)], stdin=subprocess.PIPE, text=True)
        assert killed.stdin is not None
        print(json.dumps(options), file=killed.stdin, flush=True)
        assert killed.wait(DEADLINE) == -signal.SIGKILL
        killed.stdin.close()
    assert 0 < head_of(tmp_path / "spool").get() <= len(messages)
    with reading(broker.url, queue, tmp_path):
        wait_rows(tmp_path, len(messages))
        wait_settled(tmp_path)
        broker.send(queue, readings(5))  # and what comes now is new
        wait_rows(tmp_path, len(messages) + 5 * DEVICES)
    assert rows(tmp_path) == said(messages + readings(5))


@pytest.mark.slow
def test_a_broker_killed_again_and_again(tmp_path: Path) -> None:
    """It may have delivered, and taken note of an outcome, without having stored that."""
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    broker.queue("dies")
    try:
        for start in range(0, 300, 50):
            broker.send("dies", numbered(50, start))
        with reading(broker.url, "dies", tmp_path, credit="50") as reader:
            for least in (100, 500, 1000):
                wait_rows(tmp_path, least)
                broker.process.kill()
                broker.process.wait()
                broker.process = broker.start()
            wait_rows(tmp_path, 300 * DEVICES)
            wait_settled(tmp_path)
            assert reader.started().processes[0].process.poll() is None
        assert rows(tmp_path) == said(numbered(300))
    finally:
        broker.process.terminate()
        broker.process.wait(DEADLINE)


def send(url: str, address: str, messages: list[Message]) -> None:
    connection = BlockingConnection(url, timeout=DEADLINE)
    sender = connection.create_sender(address, name="devices")
    for message in messages:
        sender.send(message)
    connection.close()


KINDS = ("queue", "topic")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    addresses = {f"readings-{kind}": {"type": kind, "flavor": f"small-persisted-{kind}"} for kind in KINDS}
    with running(tmp_path_factory.mktemp("suite"), addresses) as found:
        found.up(DEADLINE)
        yield found


@pytest.mark.slow  # test_killed_between_sync_and_settle, and test_kill.py of the system
@pytest.mark.parametrize(("kind", "receivers"), [("topic", 2), ("queue", 1), ("queue", 2), ("topic", 1)])
def test_a_broker_and_a_router_killed_behind_the_entry_port(
    kind: str, receivers: int, suite: Suite, tmp_path: Path
) -> None:
    """When only the broker dies, the receiver's connection to the router stays up: the router ends its link."""
    address = f"readings-{kind}"
    subscription: dict[str, Any] = {"subscription": f"for-{receivers}"} if kind == "topic" else {}
    if receivers > 1:
        subscription["receivers"] = str(receivers)
    suite.wait_ready()
    with reading(suite.url, address, tmp_path, **subscription):
        pass  # the subscription is there
    send(suite.url, address, numbered(300))
    with reading(suite.url, address, tmp_path, credit="20", **subscription):
        wait_rows(tmp_path, 1)
        stop_with_unsettled(suite, address, tmp_path)
        suite.wait_ready()
        wait_rows(tmp_path, 900)
        suite.kill(suite.component("router"))
        suite.wait_ready()
        send(suite.url, address, numbered(50, 300))
        wait_rows(tmp_path, 350 * DEVICES)
        wait_settled(tmp_path)
    assert rows(tmp_path) == said(numbered(350))


def stop_with_unsettled(suite: Suite, address: str, folder: Path) -> None:
    """Stop the broker when there is something that the receiver has accepted and it has not settled, and have it dead
    then: the suite kills it too, if it was stopped for long."""

    def stopped() -> bool:
        broker = suite.component("broker", address)
        with contextlib.suppress(ProcessLookupError):
            os.kill(broker["pid"], signal.SIGSTOP)
            with contextlib.suppress(TimeoutError):
                wait_for("a row that is not settled", lambda: settled(folder) < stored(folder), 0.3)  # limit: of a try
                suite.kill(broker)
                return True
            os.kill(broker["pid"], signal.SIGCONT)
        return False

    wait_for("a broker stopped in time", stopped, DEADLINE)
