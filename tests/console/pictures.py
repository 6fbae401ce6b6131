"""Pictures of the console for the docs, of a suite under load: `python -m tests.console.pictures`."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
from proton import Condition, Delivery, Message
from proton.utils import BlockingConnection

from enmasse.testing import Suite, running
from tests.console.browser import SECONDS, Console, chromium

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
ADDRESSES = {
    "orders": {**QUEUE, "deadletter": "failed"},
    "failed": QUEUE,
    "prices": {"type": "multicast"},
    "sensors": {"type": "topic", "flavor": "small-persisted-topic"},
}
MILLISECONDS = 45_000
"""For which the charts show the load."""
PAUSE = 0.002
"""Seconds between two messages of a client."""


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), ADDRESSES, options=()) as suite,
        contextlib.ExitStack() as stack,
        chromium() as browser,
    ):
        suite.up()
        reject(suite, "no customer 4711", "no price")
        for client in (producer, consumer, device):
            stack.enter_context(going_on(client, suite))
        console = Console(browser, 8080 + suite.offset)
        page = console.open("", "Overview")
        page.wait_for_timeout(MILLISECONDS)
        page.screenshot(path=PICTURES / "console-overview.png")
        for place, heading in (
            ("addresses", "Addresses"),
            ("network", "Network"),
            ("infrastructure", "Brokers and routers"),
        ):
            console.open(place, heading)
            page.wait_for_timeout(MILLISECONDS / 5)
            page.screenshot(path=PICTURES / f"console-{place}.png")
        console.open("addresses/failed", "failed")
        page.get_by_role("region", name="Messages").scroll_into_view_if_needed()
        page.wait_for_timeout(MILLISECONDS / 5)
        page.screenshot(path=PICTURES / "console-dead-letters.png")
        console.open("addresses", "Addresses")
        page.get_by_role("button", name="New address").click()
        page.get_by_role("radio").first.check()
        page.get_by_label("Name").last.fill("invoices")
        page.screenshot(path=PICTURES / "console-wizard.png")
        console.close()


def reject(suite: Suite, *reasons: str) -> None:
    """Make a dead letter of each of these reasons."""
    connection = BlockingConnection(suite.url, timeout=SECONDS, container_id="billing")
    sender = connection.create_sender("orders")
    for number, reason in enumerate(reasons, 1):
        sender.send(Message({"order": number}, id=f"order-{number}"))
        receiver = connection.create_receiver("orders", credit=1)
        receiver.receive()
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.local.condition = Condition("billing:refused", reason)
        delivery.update(Delivery.REJECTED)
        delivery.settle()
        receiver.close()
    connection.close()


@contextlib.contextmanager
def going_on(client: Callable[[Suite, threading.Event], None], suite: Suite) -> Iterator[None]:
    """Let a client run in a thread of its own."""
    end = threading.Event()
    thread = threading.Thread(target=client, args=(suite, end))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def producer(suite: Suite, end: threading.Event) -> None:
    connection = BlockingConnection(suite.url, timeout=SECONDS, container_id="shop")
    sender = connection.create_sender("orders")
    while not end.wait(PAUSE):
        sender.send(Message({"order": 1}, durable=True))
    connection.close()


def consumer(suite: Suite, end: threading.Event) -> None:
    connection = BlockingConnection(suite.url, timeout=SECONDS, container_id="warehouse")
    receiver = connection.create_receiver("orders", credit=100)
    while not end.is_set():
        receiver.receive()
        receiver.accept()
    connection.close()


def device(suite: Suite, end: threading.Event) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "kitchen", protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", suite.mqtt_port)
    client.loop_start()
    client.subscribe("sensors/#", 1)
    while not end.wait(10 * PAUSE):
        client.publish("sensors/kitchen/temperature", "21.5", 1, retain=True)
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main()
