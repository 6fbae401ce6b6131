"""Differences of the four address types, shown with python-qpid-proton."""

from __future__ import annotations

import threading
from typing import Any

from proton import Message, Terminus, symbol
from proton.reactor import Container, ReceiverOption
from proton.utils import BlockingConnection

from demo.report import Report
from enmasse.testing import Suite

PATIENCE = 120.0  # seconds that a slow machine is given; nothing is measured by it


class Durable(ReceiverOption):
    """A durable subscription of a topic."""

    def apply(self, receiver: Any) -> None:
        """Set what makes the receiver's source a durable subscription."""
        receiver.source.durability = Terminus.DELIVERIES
        receiver.source.expiry_policy = Terminus.EXPIRE_NEVER
        receiver.source.capabilities.put_object(symbol("topic"))


def connect(suite: Suite, container_id: str = "", user: str | None = None, password: str | None = None) -> Any:
    """Return a blocking connection with the suite."""
    container = Container()
    if container_id:
        container.container_id = container_id
    return BlockingConnection(suite.url, timeout=PATIENCE, container=container, user=user, password=password)


def accept(connection: Any, receiver: Any) -> None:
    """Accept what came last and see it out: the blocking client writes only while it waits for something."""
    receiver.accept()
    connection.wait(lambda: connection.conn.transport.pending() <= 0, timeout=PATIENCE, msg="the outcome to be written")


def anycast_and_queue(suite: Suite, report: Report) -> None:
    """Send without a receiver: anycast gives no credit, a queue stores."""
    report.step("anycast waits for a receiver, a queue does not")
    connection = connect(suite)
    direct = connection.create_sender("anycast", name="demo-anycast")
    stored = connection.create_sender("myqueue", name="demo-queue")
    connection.wait(lambda: stored.link.credit > 0, timeout=PATIENCE, msg="credit for the queue")
    stored.send(Message(body="for later", durable=True))
    report.check("the queue accepted a message without a consumer", True)
    report.check("the anycast sender has no credit", direct.link.credit == 0, f"credit {direct.link.credit}")
    other = connect(suite)
    receiver = other.create_receiver("anycast", name="demo-anycast-r", credit=10)
    connection.wait(lambda: direct.link.credit > 0, timeout=PATIENCE, msg="credit for anycast")
    report.check("with a receiver there it has", direct.link.credit > 0, f"credit {direct.link.credit}")
    sending = threading.Thread(target=direct.send, args=(Message(body="now"),))
    sending.start()
    got = receiver.receive(timeout=PATIENCE)
    accept(other, receiver)
    sending.join()
    report.check("and the message arrived", got.body == "now")
    consumer = other.create_receiver("myqueue", name="demo-queue-r", credit=1)
    report.check(
        "the queue kept the message for a later consumer", consumer.receive(timeout=PATIENCE).body == "for later"
    )
    accept(other, consumer)
    for c in (connection, other):
        c.close()


def multicast(suite: Suite, report: Report) -> None:
    """Send to three receivers; each gets every message."""
    report.step("multicast: every receiver gets every message")
    receivers = []
    for i in range(3):
        connection = connect(suite)
        receivers.append((connection, connection.create_receiver("broadcast", name=f"demo-broadcast-{i}", credit=10)))
    connection = connect(suite)
    sender = connection.create_sender("broadcast", name="demo-broadcast-s")
    connection.wait(lambda: sender.link.credit > 0, timeout=PATIENCE, msg="credit for multicast")
    sent: list[Exception] = []

    def send() -> None:
        try:
            for i in range(5):
                sender.send(Message(body=f"news {i}"))
        except Exception as error:
            sent.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    bodies: list[list[Any]] = [[] for _ in receivers]
    for _ in range(5):  # round by round: a message is settled once every receiver has it
        for i, (connected, receiver) in enumerate(receivers):
            bodies[i].append(receiver.receive(timeout=PATIENCE).body)
            accept(connected, receiver)
    sending.join()
    expected = [f"news {i}" for i in range(5)]
    report.check("three receivers, five messages each", not sent and all(b == expected for b in bodies), bodies[0])
    for c in [connection, *(c for c, _ in receivers)]:
        c.close()


def topic(suite: Suite, report: Report) -> None:
    """Send to a durable subscriber that is away, which finds the messages later."""
    report.step("topic: a durable subscriber finds what came while it was away")
    away = connect(suite, "demo-subscriber")
    away.create_receiver("mytopic", name="demo-durable", options=Durable(), credit=0)
    away.conn.close()  # the connection goes, the subscription stays
    away.close()
    connection = connect(suite)
    sender = connection.create_sender("mytopic", name="demo-topic-s")
    for i in range(5):
        sender.send(Message(body=f"edition {i}", durable=True))
    back = connect(suite, "demo-subscriber")
    receiver = back.create_receiver("mytopic", name="demo-durable", options=Durable(), credit=10)
    bodies = []
    for _ in range(5):
        bodies.append(receiver.receive(timeout=PATIENCE).body)
        receiver.accept()
    report.check("five messages waited", bodies == [f"edition {i}" for i in range(5)], bodies)
    receiver.close()  # unsubscribe
    for c in (connection, back):
        c.close()


def show(suite: Suite, report: Report) -> None:
    """Show the four types of addresses."""
    for part in (anycast_and_queue, multicast, topic):
        part(suite, report)
