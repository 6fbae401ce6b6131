"""MQTT clients that come again, with sessions that last, and what they are promised while processes are killed."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from enmasse.testing import Suite, wait_for
from tests.kit.waiting import DEADLINE
from tests.system.seeing import carrier

PATIENCE = DEADLINE
INTERVAL = 0.02
"""Seconds from one message of a publisher to its next."""
SOME = 50
"""Messages that arrive after each kill before the next."""
MOST = 50
"""Messages of a publisher that are not acknowledged: paho sends all it has when it is connected again, and more than
the gateway's receive maximum would have it disconnected."""


class Device:
    """`got`: payload → how often it came; `acknowledged`: packet ids."""

    def __init__(self, name: str, port: int, version: int = 5, user: str = "", password: str = "") -> None:
        self.got: Counter[str] = Counter()
        self.acknowledged: set[int] = set()
        self._port = port
        self._subscribed = threading.Event()
        five = version == 5
        session: dict[str, Any] = {} if five else {"clean_session": False}
        self.client = Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5 if five else MQTTv311, **session
        )
        self._login = (user, password) if user else None
        self._authenticate()
        self.client.reconnect_delay_set(1, 1)
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self._five = five

    def _authenticate(self) -> None:
        if self._login is not None:
            self.client.username_pw_set(*self._login)

    def connect(self) -> None:
        more: dict[str, Any] = {}
        if self._five:
            properties: Any = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3600
            more = {"clean_start": False, "properties": properties}
        self.client.connect("localhost", self._port, **more)
        self.client.loop_start()

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        self.got[message.payload.decode()] += 1

    def _on_publish(self, client: Any, data: Any, packet_id: int, reason: Any, properties: Any) -> None:
        # Also what PUBREC refuses: paho says PUBREL to it, as if it was taken.
        self.acknowledged.add(packet_id)

    def subscribe(self, topic: str, qos: int) -> None:
        wait_for("SUBACK", lambda: self._tried(topic, qos), PATIENCE)

    def _tried(self, topic: str, qos: int) -> bool:
        self.client.subscribe(topic, qos)
        return self._subscribed.wait(10)  # limit: then it subscribes once more

    def close(self) -> None:
        """Its session goes on."""
        self.client.disconnect()
        with contextlib.suppress(AttributeError):  # of paho, if its thread ends between two of its own lines
            self.client.loop_stop()

    def end(self) -> None:
        """Its session ends: it comes once more, without one."""
        self.close()
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=self.client._client_id.decode(), clean_session=True)
        self._authenticate()
        connected = threading.Event()
        self.client.on_connect = lambda *_: connected.set()
        self.client.connect("localhost", self._port)
        self.client.loop_start()
        assert connected.wait(PATIENCE)
        self.close()


class Publisher:
    """Publishes with QoS 2 to five levels below a topic, as long as it is not told to stop."""

    def __init__(self, device: Device, topic: str) -> None:
        self.device = device
        self.sent: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            if len(self.sent) - len(self.device.acknowledged) >= MOST:
                continue
            text = f"{self.device.client._client_id.decode()} {len(self.sent)}"
            self.device.client.publish(f"{self._topic}/{len(self.sent) % 5}/state", text, qos=2)
            self.sent.append(text)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@contextlib.contextmanager
def publishing(devices: list[Device], topic: str) -> Iterator[list[Publisher]]:
    publishers = [Publisher(device, topic) for device in devices]
    try:
        yield publishers
    finally:
        for publisher in publishers:
            publisher.stop()


def exactly_once(suite: Suite, topic: str, kill: Callable[[str], object], more: Sequence[str] = ()) -> None:
    """Publishers and readers of both versions; the topic's broker, the subscription service, the router and `more`
    processes are killed.

    Everything is acknowledged, and every session has everything once, also that of a client which is away.
    """
    publishers = [Device("new", suite.mqtt_port), Device("old", suite.mqtt_port, 4)]
    reader, away = Device("reader", suite.mqtt_port), Device("away", suite.mqtt_port, 4)
    for device in (*publishers, reader, away):
        device.connect()
    try:
        for device in (reader, away):
            device.subscribe(f"{topic}/+/state", 2)
        away.close()
        with publishing(publishers, topic) as work:
            wait_for("more than a link's first credit arrives", lambda: len(reader.got) > 300, PATIENCE)
            for name in (carrier(suite, topic)["name"], "subserv", "router-0", *more):
                before = len(reader.got)
                kill(name)
                wait_for("messages arrive", lambda before=before: len(reader.got) > before + SOME, PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
        sent = Counter(text for publisher in work for text in publisher.sent)
        wait_for("all is acknowledged", lambda: sum(len(d.acknowledged) for d in publishers) == len(sent), PATIENCE)
        wait_for("all has come", lambda: reader.got.keys() >= sent.keys(), PATIENCE)
        away.connect()
        wait_for("all has come later", lambda: away.got.keys() >= sent.keys(), PATIENCE)
        assert (reader.got, away.got) == (sent, sent)
    finally:
        for device in (*publishers, reader, away):
            device.end()
