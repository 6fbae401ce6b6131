"""The whole suite on Artemis brokers: what clients were promised holds over the SIGKILL of every process in the way."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from enmasse.testing import Suite, running, wait_for
from tests import one_program
from tests.artemis import ENVIRONMENT
from tests.load import Consumer, Producer, subscribe
from tests.system.seeing import carrier, component, wait_address, wait_process

UNIQUE = {"type": "queue", "flavor": "small-persisted-queue", "duplicates": "message-id"}
PATIENCE = 240.0


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield from _suite(tmp_path_factory)


def _suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("artemis"), options=("--broker", "artemis")) as found:
        found.up(300)
        one_program.check_files(found.config)
        yield found
        assert found.down() == 0


def kill(suite: Suite, name: str) -> None:
    """Returns when it runs again."""
    one = component(suite, name)
    os.kill(one["pid"], signal.SIGKILL)
    wait_process(suite, name, one["pid"])


class Device:
    """An MQTT 5 client that comes again, with a session that lasts. `got`: payload → how often it came."""

    def __init__(self, name: str, port: int) -> None:
        self.got: Counter[str] = Counter()
        self.subscribed = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_message = self._on_message
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        properties: Any = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        self.client.connect("localhost", port, clean_start=False, properties=properties)
        self.client.loop_start()

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        self.got[message.payload.decode()] += 1

    def subscribe(self, topic: str, qos: int) -> None:
        wait_for("SUBACK", lambda: self._tried(topic, qos), PATIENCE)

    def _tried(self, topic: str, qos: int) -> bool:
        self.client.subscribe(topic, qos)
        return self.subscribed.wait(10)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def test_one_program_for_every_engine(suite: Suite) -> None:
    one_program.check(suite.url, f"mqtt://127.0.0.1:{suite.mqtt_port}")


def test_qos_2_is_exactly_once_over_the_death_of_subserv_and_router(suite: Suite) -> None:
    """More messages than a link has credit for at first: Artemis does not settle, so the gateway does."""
    device, reader = Device("device", suite.mqtt_port), Device("reader", suite.mqtt_port)
    acknowledged: list[Any] = []
    device.client.on_publish = lambda *news: acknowledged.append(news)
    sent, stop = 0, threading.Event()

    def publish() -> None:
        nonlocal sent
        while not stop.wait(0.01):
            device.client.publish(f"mytopic/{sent % 5}/state", str(sent), qos=2)
            sent += 1

    publishing = threading.Thread(target=publish)
    try:
        reader.subscribe("mytopic/+/state", 2)
        publishing.start()
        wait_for("more than a window arrives", lambda: len(reader.got) > 300, PATIENCE)
        for name in ("subserv", "router-0"):
            before = len(reader.got)
            kill(suite, name)
            wait_for("messages arrive", lambda before=before: len(reader.got) > before + 50, PATIENCE)  # type: ignore[misc]
        stop.set()
        publishing.join()
        wait_for("all are acknowledged", lambda: len(acknowledged) >= sent, PATIENCE)
        wait_for("all have come", lambda: len(reader.got) >= sent, PATIENCE)
        assert reader.got == Counter(map(str, range(sent)))
    finally:
        stop.set()
        device.close()
        reader.close()


def test_nothing_accepted_is_lost_when_brokers_are_killed_under_load(suite: Suite) -> None:
    """A queue, and a durable subscription whose client is away."""
    subscribe(suite.url, "mytopic", "artemis")
    away = Consumer(suite.url, "mytopic", container_id="artemis", subscription="durable")
    producers = [Producer(suite.url, name) for name in ("myqueue", "mytopic")]
    worker = Consumer(suite.url, "myqueue")
    for client in (worker, *producers):
        client.start()
    for _ in range(2):
        for producer in producers:
            producer.wait_accepted(100)
        for name in ("myqueue", "mytopic"):
            kill(suite, carrier(suite, name)["name"])
    for producer in producers:
        producer.enough()
        producer.wait_end()
    away.start()
    for producer, consumer in zip(producers, (worker, away), strict=True):
        consumer.wait_all(producer)
        assert producer.accepted == consumer.seen.keys() == set(range(producer.sent))
    for client in (worker, away, *producers):
        client.stop()


def test_what_artemis_has_not_is_refused(suite: Suite) -> None:
    suite.edit("addresses.json", {"unique": UNIQUE})
    unique = wait_address(suite, "unique", phase="Failed", ready=False)
    assert "duplicates" in unique["message"] and "artemis" in unique["message"]
    suite.edit("addresses.json", {}, remove=["unique"])
