"""What is there after SIGKILL. One kill serves all tests of this file but the last, which kills once more."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.testing import wait_for
from services.storage_controller import policies
from tests.broker.harness import Management, Terminus, attach, bodies, modify, nothing, take
from tests.contract.engines import Broker
from tests.load import CREDIT, Consumer, Producer

DURABLE = Terminus("topic", durable=True)


@pytest.fixture(scope="module")
def killed(broker: Broker) -> Iterator[str]:
    """Work of each kind, all acknowledged, and a SIGKILL. Gives what the names of it begin with."""
    x = f"k-{uuid.uuid4()}"
    with broker.manage() as m, broker.connect(x) as c:
        for queue in ("kept", "failed", "taken", "ring"):
            m.queue(f"{x}-{queue}", **({"ring_size": 2} if queue == "ring" else {}), user="enmasse")
        broker.topic(m, f"{x}-t")
        m.queue(f"$sub/{x}", user="subserv:1")
        m("createDivert", f"{x}|d", f"{x}|d", f"{x}-t/#", f"$sub/{x}", False, None, None, "ANYCAST")
        broker.topic(m, f"{x}-u")
        m.queue(f"$sub/{x}-u")
        m("createDivert", f"{x}|u", f"{x}|u", f"{x}-u/#", f"$sub/{x}-u", False, None, None, "ANYCAST")
        marked = {"_AMQ_DUPL_ID": "u"}
        c.create_sender(f"{x}-u/a").send(Message(body="once", durable=True, properties=marked))
        attach(c, f"{x}-t/#", 0, name="sub", options=DURABLE).detach()
        for queue in ("kept", "failed", "taken", "ring"):
            sender = c.create_sender(f"{x}-{queue}")
            for n in range(6):
                marked = {"_AMQ_DUPL_ID": f"{queue}-{n}"}
                sender.send(Message(body=n, durable=n != 3, properties=marked))
        receiver = attach(c, f"{x}-failed", 1)
        take(receiver)
        modify(receiver, failed=True)
        receiver.close()
        receiver = attach(c, f"{x}-taken", 3)
        bodies(receiver, 3)
        # Comes last: what a consumer says needs no answer, and is on disk when what follows it is.
        c.create_sender(f"{x}-t/a").send(Message(body="published", durable=True))
    broker.kill()
    broker.start()
    yield x


def test_durable_messages_are_kept_and_others_are_not(killed: str, c: BlockingConnection) -> None:
    receiver = attach(c, f"{killed}-kept", 7)
    assert bodies(receiver, 5) == [0, 1, 2, 4, 5]
    nothing(receiver)


def test_what_failed_is_counted(killed: str, c: BlockingConnection) -> None:
    message = take(attach(c, f"{killed}-failed", 1))
    assert (message.body, message.delivery_count) == (0, 1)


def test_what_was_acknowledged_may_come_again_and_the_rest_does(killed: str, c: BlockingConnection) -> None:
    receiver = attach(c, f"{killed}-taken", 7)
    found = [take(receiver).body]
    while found[-1] != 5:
        found.append(take(receiver).body)
    assert found == [0, 1, 2, 4, 5][-len(found) :]
    assert len(found) >= 2


def test_a_ring_is_one_still(killed: str, c: BlockingConnection) -> None:
    sender = c.create_sender(f"{killed}-ring")
    for n in range(6, 9):
        sender.send(Message(body=n, durable=True))
    assert bodies(attach(c, f"{killed}-ring", 2), 2) == [7, 8]


def test_a_duplicate_is_known(killed: str, c: BlockingConnection, m: Management) -> None:
    sender = c.create_sender(f"{killed}-ring")
    before = m.attribute(f"queue.{killed}-ring", "messagesAdded")
    sender.send(Message(body="again", durable=True, properties={"_AMQ_DUPL_ID": "ring-1"}))
    assert m.attribute(f"queue.{killed}-ring", "messagesAdded") == before


def test_a_repeated_publication_is_accepted_and_comes_once(killed: str, c: BlockingConnection) -> None:
    """To a level that only diverts cover, as MQTT sessions have them."""
    sender = c.create_sender(f"{killed}-u/a")
    sender.send(Message(body="once more", durable=True, properties={"_AMQ_DUPL_ID": "u"}))
    receiver = attach(c, f"$sub/{killed}-u", 2)
    assert bodies(receiver, 1) == ["once"]
    nothing(receiver)


def test_definitions_are_kept(killed: str, m: Management) -> None:
    rows = m.rows()
    assert rows[f"{killed}-kept"]["user"] == "enmasse"
    assert rows[f"{killed}-ring"]["ringSize"] == "2"
    assert rows[f"$sub/{killed}"]["user"] == "subserv:1"
    assert f"{killed}|d" in m("getDivertNames")
    assert m("getRoutingTypes", resource=f"address.{killed}-t") == ["MULTICAST"]
    assert json.loads(m("getAddressSettingsAsJSON", f"{killed}-t"))[policies.MARK_KEY] == policies.MARK


def test_subscriptions_are_kept(killed: str, broker: Broker, c: BlockingConnection) -> None:
    with broker.connect(killed) as subscriber:
        receiver = attach(subscriber, f"{killed}-t/#", 5, name="sub", options=DURABLE)
        assert bodies(receiver, 1) == ["published"]
        c.create_sender(f"{killed}-t/b").send(Message(body="after", durable=True))
        assert bodies(receiver, 1) == ["after"]
        receiver.close()
    assert bodies(attach(c, f"$sub/{killed}", 2), 2) == ["published", "after"]


@pytest.mark.slow  # the other tests of this file kill once
def test_killed_again_while_it_stores_and_delivers(broker: Broker) -> None:
    """Under load, after it has recovered once. What a consumer has accepted may come again, as above."""
    name = f"k-{uuid.uuid4()}"
    with broker.manage() as m:
        m.queue(name)
    producer, consumer = Producer(broker.url, name, rate=100), Consumer(broker.url, name)
    try:
        for client in (producer, consumer):
            client.start()
        wait_for("messages are stored and taken", lambda: len(consumer.seen) > CREDIT)
        broker.kill()
        broker.start()
        producer.wait_accepted(10)
        producer.enough()
        producer.wait_end()
        consumer.wait_all(producer)
    finally:
        for client in (producer, consumer):
            print(client.describe())
            client.abandon()
    assert producer.accepted == consumer.seen.keys() == set(range(producer.sent))
