"""A broker and a router killed in mid-stream, and the counts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from proton import Delivery, Message
from proton.utils import BlockingConnection

from demo.report import Report
from enmasse.testing import Suite

MESSAGES = 3000
PATIENCE = 600.0  # seconds that a slow machine is given for all of it
ANSWER = 20.0  # seconds for one answer, before it is asked for over a new connection
NOT_ACCEPTED = [Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED]


def keep_trying(suite: Suite, until: float) -> Any:
    """Return a connection, however often it must be asked for. Raises the last error after `until` (time.monotonic)."""
    while True:
        try:
            return BlockingConnection(suite.url, timeout=ANSWER)
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


class Producer(threading.Thread):
    """Sender of numbered durable messages, one by one; a message that is not accepted is sent again, over a new
    connection."""

    def __init__(self, suite: Suite) -> None:
        super().__init__(daemon=True)
        self.suite = suite
        self.accepted = 0
        self.again = 0
        self.deadline = time.monotonic() + PATIENCE

    def run(self) -> None:
        """Send until all are accepted or the time is up."""
        connection: Any = None
        while self.accepted < MESSAGES and time.monotonic() < self.deadline:
            try:
                if connection is None:
                    connection = keep_trying(self.suite, self.deadline)
                    sender = connection.create_sender("orders", name=f"demo-orders-{self.accepted}-{self.again}")
                message = Message(body=self.accepted, id=str(self.accepted), durable=True)
                sender.send(message, timeout=ANSWER, error_states=NOT_ACCEPTED)
                self.accepted += 1
            except Exception:
                self.again += 1
                drop(connection)
                connection = None
        drop(connection)


class Consumer(threading.Thread):
    """Receiver that accepts messages until it has seen every number."""

    def __init__(self, suite: Suite) -> None:
        super().__init__(daemon=True)
        self.suite = suite
        self.seen: Counter[int] = Counter()
        self.deadline = time.monotonic() + PATIENCE

    def run(self) -> None:
        """Receive until every number was seen or the time is up."""
        connection: Any = None
        attempt = 0
        while len(self.seen) < MESSAGES and time.monotonic() < self.deadline:
            try:
                if connection is None:
                    attempt += 1
                    connection = keep_trying(self.suite, self.deadline)
                    receiver = connection.create_receiver("orders", name=f"demo-orders-r{attempt}", credit=50)
                message = receiver.receive(timeout=ANSWER)
                self.seen[message.body] += 1
                receiver.accept()
            except Exception:
                drop(connection)
                connection = None
        drop(connection)


def drop(connection: Any) -> None:
    """Close a connection that may be lost already."""
    try:
        if connection is not None:
            connection.close()
    except Exception:
        return


def show(suite: Suite, report: Report) -> None:
    """Kill a broker, then a router, while messages flow; check that none is lost."""
    report.step(f"SIGKILL in mid-stream: {MESSAGES} acknowledged messages to a persistent queue")
    producer, consumer = Producer(suite), Consumer(suite)
    producer.start()
    consumer.start()
    victims = [
        (MESSAGES // 3, "broker", suite.component("broker", "orders")),
        (2 * MESSAGES // 3, "router", suite.component("router")),
    ]
    with report.progress("accepted", MESSAGES) as progress:
        while producer.is_alive() or consumer.is_alive():
            progress.update(progress.task_ids[0], completed=producer.accepted)
            if victims and producer.accepted >= victims[0][0]:
                _, kind, component = victims.pop(0)
                suite.kill(component)
                report.say(f"killed the {kind} (pid {component['pid']}) after {producer.accepted} accepted")
            (producer if producer.is_alive() else consumer).join(0.02)
    twice = sum(count - 1 for count in consumer.seen.values())
    report.say(
        f"accepted {producer.accepted}, sent again without an answer {producer.again}, "
        f"received {len(consumer.seen)}, of these more than once {twice}"
    )
    report.check("every message was accepted in the end", producer.accepted == MESSAGES, producer.accepted)
    lost = MESSAGES - len(consumer.seen)
    report.check("nothing that was accepted was lost", lost == 0, f"{lost} lost")
    suite.wait_ready(300)
    report.check("everything is ready again by itself", True)
