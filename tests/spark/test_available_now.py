"""`trigger(availableNow=True)`: a query reads what is at its address when it starts, and ends."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.aio.client import connect
from enmasse.amqp.messages.message import Message as AmqpMessage
from enmasse.spark.source.source import AmqpStreamReader
from enmasse.testing import Suite, running, wait_for
from tests.kit.marks import first_soon
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    addresses = {"q": {"type": "queue", "flavor": "small-persisted-queue"}}
    addresses["t"] = {"type": "topic", "flavor": "small-persisted-topic"}
    with running(tmp_path_factory.mktemp("suite"), addresses) as found:
        found.up(DEADLINE)
        found.wait_ready()
        yield found


def numbered(count: int, start: int = 0) -> list[Message]:
    return [Message(id=f"m{i}", body=f"body {i}", durable=True) for i in range(start, start + count)]


def send(url: str, address: str, messages: list[Message]) -> None:
    connection = BlockingConnection(url, timeout=DEADLINE)
    sender = connection.create_sender(address)
    for message in messages:
        sender.send(message)
    connection.close()


def available(url: str, address: str, folder: Path, **options: str) -> list[list[Any]]:
    """The message-ids of each batch of a run, as Spark plans its batches."""
    reader = AmqpStreamReader({"url": url, "address": address, "spool": str(folder / "spool"), **options})
    try:
        reader.prepareForTriggerAvailableNow()
        at, batches = reader.initialOffset(), []
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            rows = [
                row for part in reader.partitions(at, end) for batch in reader.read(part) for row in batch.to_pylist()
            ]
            batches.append([row["message_id"] for row in rows])
            reader.commit(at)
            at = end
        return batches
    finally:
        reader.stop()


def joined(batches: list[list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(batches))


def ids(count: int) -> list[str]:
    return [f"m{i}" for i in range(count)]


def test_a_first_run_reads_all_that_a_queue_holds(broker: Broker, tmp_path: Path) -> None:
    broker.queue("all")
    broker.send("all", numbered(500))
    assert available(broker.url, "all", tmp_path, credit="7") == [ids(500)]
    assert broker.depth("all") == 0


def test_a_batch_has_its_limit_and_all_are_read(broker: Broker, tmp_path: Path) -> None:
    broker.queue("limited")
    broker.send("limited", numbered(250))
    batches = available(broker.url, "limited", tmp_path, maxrowspertrigger="100", minrowspertrigger="90")
    assert batches == [ids(250)[:100], ids(250)[100:200], ids(250)[200:]]


def test_a_spool_that_is_smaller_than_the_queue_is_filled_again_and_again(broker: Broker, tmp_path: Path) -> None:
    broker.queue("larger")
    broker.send("larger", [Message(id=f"m{i}", body="x" * 1000, durable=True) for i in range(100)])
    batches = available(broker.url, "larger", tmp_path, spoollimit="20000", credit="5")
    assert len(batches) > 1 and joined(batches) == ids(100)


def test_nothing_at_the_address_ends_the_query(broker: Broker, tmp_path: Path) -> None:
    broker.queue("empty")
    assert available(broker.url, "empty", tmp_path) == []


@pytest.mark.parametrize("options", [{}, {"subscription": "mine"}])
@pytest.mark.slow
def test_all_is_read_behind_the_entry_port(suite: Suite, tmp_path: Path, options: dict[str, str]) -> None:
    address = "t" if options else "q"
    assert available(suite.url, address, tmp_path, **options) == []  # the subscription is there
    send(suite.url, address, numbered(700))
    assert joined(available(suite.url, address, tmp_path, credit="100", **options)) == ids(700)


@pytest.mark.parametrize("place", first_soon(["broker", "entry port", "subscription"]))
def test_the_messages_that_wait_at_the_address_are_known(
    broker: Broker, suite: Suite, tmp_path: Path, place: str
) -> None:
    """Those that a full spool leaves there, but for those that are on their way to it."""
    url, address, credit = (suite.url, "q", 5) if place == "entry port" else (broker.url, "waiting", 5)
    options = {"url": url, "address": address, "spool": str(tmp_path / "spool"), "spoollimit": "20000"}
    if place == "subscription":
        options |= {"url": suite.url, "address": "t", "subscription": "waits"}
    elif place == "broker":
        broker.queue("waiting")
    reader = AmqpStreamReader({**options, "credit": str(credit)})
    try:
        receivers = reader.started()
        receivers.await_address()
        send(options["url"], options["address"], [Message(id=n, body="x" * 1000, durable=True) for n in range(600)])
        wait_for("a full spool", lambda: receivers.full, DEADLINE)

        def known() -> bool:
            left = 600 - receivers.heads()[0]
            # on their way: the credit, and what the router has beyond it, which it counts once it is known
            stated = receivers.available  # which the receiver replaces meanwhile
            return stated is not None and left - credit - 5 <= stated <= left

        wait_for("the number of those that wait", known, DEADLINE)
        assert reader.reportLatestOffset()["available"] > 500
    finally:
        reader.stop()
    if options["address"] == "q":
        assert len(joined(available(suite.url, "q", tmp_path / "left"))) > 500, "the queue is empty again"


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Have something done until the end of the block."""
    end = threading.Event()
    thread = threading.Thread(target=work, args=(end,))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.slow
def test_with_another_consumer_each_message_is_with_one_of_them_and_none_is_left(suite: Suite, tmp_path: Path) -> None:
    taken: list[Any] = []

    def compete(end: threading.Event) -> None:
        connection = BlockingConnection(suite.url, timeout=DEADLINE)
        receiver = connection.create_receiver("q", credit=10)
        for _ in range(300):
            taken.append(receiver.receive(timeout=DEADLINE).id)
            receiver.accept()
        end.wait(DEADLINE)  # with credit for ten more
        connection.close()

    send(suite.url, "q", numbered(2000))
    with beside(compete):
        found = joined(available(suite.url, "q", tmp_path, credit="50"))
    left = joined(available(suite.url, "q", tmp_path / "left"))
    assert found and sorted([*found, *taken, *left]) == sorted(ids(2000))
    assert len(left) <= 10, "what the other one held when it went"


def test_messages_that_keep_coming_do_not_keep_it_from_ending(broker: Broker, tmp_path: Path) -> None:
    broker.queue("busy")
    broker.send("busy", numbered(300))
    more: list[int] = []

    def produce(end: threading.Event) -> None:
        connection = BlockingConnection(broker.url, timeout=DEADLINE)
        sender = connection.create_sender("busy")
        while not end.is_set():
            sender.send(Message(id=f"n{len(more)}", body="x", durable=True))
            more.append(1)
        connection.close()

    with beside(produce):
        found = joined(available(broker.url, "busy", tmp_path))
    assert found[:300] == ids(300)
    assert found[300:] == [f"n{i}" for i in range(len(found) - 300)]


def test_all_is_read_with_more_credit_than_a_router_holds_unsettled(suite: Suite, tmp_path: Path) -> None:
    """A drain brings nothing while as many are unsettled as the router holds, though the queue has more."""
    asyncio.run(send_many(suite.url, 5000))
    assert sorted(joined(available(suite.url, "q", tmp_path, credit="20000"))) == sorted(ids(5000))


async def send_many(url: str, count: int) -> None:
    host, _, port = url.removeprefix("amqp://").rpartition(":")
    async with connect(host=host, port=int(port)) as client:
        sender = await client.sender("q")
        await asyncio.gather(*(sender.send(AmqpMessage("x", message_id=each)) for each in ids(count)))
