"""MQTT clients that come again, with sessions that last, and what they are promised while processes are killed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paho.mqtt.client import Client, MQTTv5, MQTTv311, mqtt_ms_resend_pubrel
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


class Keeping(Client):
    """Client of paho that says PUBREL again until it has PUBCOMP.

    That of paho 2.2 says PUBLISH instead if the connection is lost after PUBREL and its next attempt to connect fails
    as well: by then the packet id is free, so that is another message (v5 MQTT-4.3.3-6)."""

    def _messages_reconnect_reset_out(self) -> None:
        released = [each for each in self._out_messages.values() if each.state == mqtt_ms_resend_pubrel]
        super()._messages_reconnect_reset_out()
        for each in released:
            each.state = mqtt_ms_resend_pubrel


class Device:
    """`got`: payload → how often it came; `acknowledged`: packet ids; `packets`: what paho says of them, by time."""

    def __init__(
        self, name: str, port: int, version: int = 5, user: str = "", password: str = "", *, host: str = "localhost"
    ) -> None:
        self.got: Counter[str] = Counter()
        self.acknowledged: set[int] = set()
        self._place = (host, port)
        self._subscribed = threading.Event()
        five = version == 5
        session: dict[str, Any] = {} if five else {"clean_session": False}
        self.client = Keeping(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5 if five else MQTTv311, **session
        )
        self._login = (user, password) if user else None
        self._authenticate()
        self.client.reconnect_delay_set(1, 1)
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_log = self._on_log
        self.packets: list[tuple[float, str]] = []
        self._ids: dict[str, set[int]] = {}
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
        self.client.connect(*self._place, **more)
        self.client.loop_start()

    def publish(self, topic: str, text: str) -> None:
        self._ids[text] = {self.client.publish(topic, text, qos=2).mid}

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        self.got[message.payload.decode()] += 1
        self._ids.setdefault(message.payload.decode(), set()).add(message.mid)

    def _on_log(self, client: Any, data: Any, level: int, text: str) -> None:
        self.packets.append((time.monotonic(), text))

    def way(self, text: str) -> list[str]:
        """Return the packets of a message, with moments, and what this client connected since the first; empty if it
        does not know it."""
        marks = [mark.format(each) for each in self._ids.get(text, ()) for mark in (" m{})", "Mid: {})", "Mid: {},")]
        shown: list[str] = []
        for moment, packet in list(self.packets):
            if any(mark in packet for mark in marks) or (shown and " CONN" in packet):
                shown.append(f"{moment:.3f} {packet}")
        return shown and [f"{self.client._client_id.decode()}: {text!r}", *shown]

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
        self.client.connect(*self._place)
        self.client.loop_start()
        assert connected.wait(PATIENCE)
        self.close()


class Publisher:
    """Publishes with QoS 2 to five levels below a topic, as long as it is not told to stop."""

    def __init__(self, device: Device, topic: str, interval: float) -> None:
        self.device = device
        self._interval = interval
        self.sent: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            if len(self.sent) - len(self.device.acknowledged) >= MOST:
                continue
            text = f"{self.device.client._client_id.decode()} {len(self.sent)}"
            self.device.publish(f"{self._topic}/{len(self.sent) % 5}/state", text)
            self.sent.append(text)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@contextlib.contextmanager
def publishing(devices: list[Device], topic: str, interval: float = INTERVAL) -> Iterator[list[Publisher]]:
    publishers = [Publisher(device, topic, interval) for device in devices]
    try:
        yield publishers
    finally:
        for publisher in publishers:
            publisher.stop()


def check(reader: Device, sent: Counter[str], publishers: Sequence[Device]) -> None:
    """The reader has had each message once; if not, the error shows the way of the first others."""
    others = {text: reader.got[text] for text in sent | reader.got if reader.got[text] != sent[text]}
    ways = [line for text in [*others][:3] for device in (*publishers, reader) for line in device.way(text)]
    assert not others, "\n".join((f"{len(others)} not once, as {[*others.items()][:20]}", *ways))


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
        check(reader, sent, publishers)
        check(away, sent, publishers)
    finally:
        for device in (*publishers, reader, away):
            device.end()
