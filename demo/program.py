"""One client program for every way to run EnMasse: `python -m demo.program AMQP_URL MQTT_URL`.

It needs the addresses that `enmasse init` writes, and imports nothing of EnMasse. Its output is the same with every
engine and in a cluster. It leaves nothing behind, so it can be run again.
"""

from __future__ import annotations

import queue
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton import Message, symbol
from proton.reactor import Container, DurableSubscription
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

PATIENCE = 120.0
"""Seconds that a slow machine is given."""
SESSION = 3600
"""Seconds that a device's session outlives its connection."""


class Durable(DurableSubscription):
    """A durable subscription: known by container-id and link name."""

    def apply(self, receiver: Any) -> None:
        """Ask for the capability too, by which brokers recognise a topic."""
        super().apply(receiver)
        receiver.source.capabilities.put_object(symbol("topic"))


def take(receiver: BlockingReceiver) -> str:
    """Return the text of the next message, which is accepted."""
    message = receiver.receive(timeout=PATIENCE)  # its body is valid while the message exists
    body = message.body
    text = bytes(body).decode() if isinstance(body, bytes | memoryview) else str(body)
    receiver.accept()
    pending = receiver.connection.conn.transport.pending
    receiver.connection.wait(lambda: pending() <= 0, timeout=PATIENCE, msg="the outcome to be written")
    return text


def given(sender: BlockingSender, text: str, *receivers: BlockingReceiver) -> list[str]:
    """Return what receivers on another connection get of a message, after it was accepted."""
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(sender.send, Message(body=text, durable=True), timeout=PATIENCE)
        got = [take(receiver) for receiver in receivers]
        sending.result()
    return got


class Device:
    """An MQTT 5 client. `messages`: those it received."""

    def __init__(self, url: str, name: str, *, will: str = "", session: int = 0) -> None:
        """`will`: its topic. `session`: seconds that the session outlives the connection; 0: always a new one."""
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self._answers: queue.Queue[Any] = queue.Queue()
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5, reconnect_on_failure=False)
        self.client.on_connect = lambda *answer: self._answers.put(answer[3])
        self.client.on_subscribe = lambda *answer: self._answers.put(answer[3][0])
        self.client.on_message = lambda client, data, message: self.messages.put(message)
        if will:
            self.client.will_set(will, "a device is lost", qos=1)
        properties: Any = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = session
        server = urlsplit(url)
        assert server.hostname is not None
        self.client.connect(server.hostname, server.port or 1883, clean_start=not session, properties=properties)
        self.client.loop_start()
        self._answer()

    def _answer(self) -> None:
        reason = self._answers.get(timeout=PATIENCE)
        if reason.is_failure:
            raise RuntimeError(str(reason))

    def subscribe(self, topic: str, qos: int) -> None:
        """Subscribe. Raises RuntimeError if it is refused, queue.Empty without an answer."""
        self.client.subscribe(topic, qos)
        self._answer()

    def publish(self, topic: str, text: str, qos: int, *, retain: bool = False) -> None:
        """Publish, and return when the message is acknowledged."""
        self.client.publish(topic, text, qos, retain).wait_for_publish(PATIENCE)

    def next(self) -> MQTTMessage:
        """Return the next message. Raises queue.Empty after PATIENCE."""
        return self.messages.get(timeout=PATIENCE)

    def leave(self) -> None:
        """Disconnect, so that no will is published."""
        self.client.disconnect()
        self.client.loop_stop()

    def lose(self) -> None:
        """Close the connection without DISCONNECT, so that the will is published."""
        self.client.loop_stop()
        connection = self.client.socket()
        assert connection is not None
        connection.close()


def direct(sending: BlockingConnection, receiving: BlockingConnection) -> None:
    """Anycast: one of the receivers gets a message. Multicast: all get it."""
    receiver = receiving.create_receiver("anycast", credit=1)
    say("anycast", given(sending.create_sender("anycast"), "to one", receiver))
    receivers = [receiving.create_receiver("broadcast", name=f"all-{n}", credit=1) for n in range(3)]
    say("multicast", given(sending.create_sender("broadcast"), "to all", *receivers))
    for each in (receiver, *receivers):
        each.close()


def stored(sending: BlockingConnection, receiving: BlockingConnection, url: str) -> None:
    """A queue keeps messages for later consumers, a durable subscription for its own client."""
    sender = sending.create_sender("myqueue")
    for text in ("first", "second", "third"):
        given(sender, text)
    receiver = receiving.create_receiver("myqueue", credit=3)
    say("queue", [take(receiver) for _ in range(3)])
    receiver.close()

    sender = sending.create_sender("mytopic/news")
    receivers = [receiving.create_receiver(topic, credit=1) for topic in ("mytopic/news", "mytopic/#")]
    say("topic", given(sender, "to every subscriber", *receivers))
    for each in receivers:
        each.close()

    client = subscriber(url)
    client.create_receiver("mytopic/news", name="news", options=Durable())
    client.close()  # the subscription stays
    for text in ("one while away", "two while away"):
        given(sender, text)
    client = subscriber(url)
    receiver = client.create_receiver("mytopic/news", name="news", options=Durable(), credit=2)
    say("durable subscription", [take(receiver) for _ in range(2)])
    receiver.close()  # which ends the subscription
    client.close()


def subscriber(url: str) -> BlockingConnection:
    """Return a connection of the client that owns the durable subscription."""
    container = Container()
    container.container_id = "one-program"
    return BlockingConnection(url, timeout=PATIENCE, container=container)


def devices(url: str, sending: BlockingConnection, receiving: BlockingConnection) -> None:
    """MQTT: retained, will, QoS 2 to a device that was away, and both protocols on one address."""
    writer = Device(url, "one-program-writer")
    writer.publish("mytopic/state", "on", 1, retain=True)
    reader = Device(url, "one-program-reader", session=SESSION)
    reader.subscribe("mytopic/state", 1)
    kept = reader.next()
    say("retained", [kept.payload.decode(), kept.retain])
    writer.publish("mytopic/state", "", 1, retain=True)
    reader.next()

    reader.subscribe("mytopic/wills", 1)
    application = receiving.create_receiver("mytopic/wills", credit=1)
    Device(url, "one-program-pump", will="mytopic/wills").lose()
    say("will", [reader.next().payload.decode(), take(application)])

    reader.subscribe("mytopic/orders", 2)
    reader.leave()
    for n in range(10):
        writer.publish("mytopic/orders", f"order {n}", 2)
    reader = Device(url, "one-program-reader", session=SESSION)
    came = [reader.next() for _ in range(10)]
    writer.publish("mytopic/orders", "the last", 2)  # what would come twice would come before it
    last = reader.next()
    say("QoS 2", [f"{each.payload.decode()} ({each.qos})" for each in (*came, last)])

    given(sending.create_sender("mytopic/orders"), "from an application")
    say("AMQP to MQTT", [reader.next().payload.decode()])
    writer.publish("myqueue", "from a device", 2)
    consumer = receiving.create_receiver("myqueue", credit=1)
    say("MQTT to AMQP", [take(consumer)])
    for device in (writer, reader):
        device.leave()
    Device(url, "one-program-reader").leave()  # with a clean start, which ends the session


def say(what: str, found: list[Any]) -> None:
    """Print a line of the output."""
    print(f"{what}: {', '.join(map(str, found))}", flush=True)


def main(amqp: str, mqtt: str) -> None:
    """Run every part against one suite."""
    sending, receiving = (BlockingConnection(amqp, timeout=PATIENCE) for _ in range(2))
    direct(sending, receiving)
    stored(sending, receiving, amqp)
    devices(mqtt, sending, receiving)
    sending.close()
    receiving.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
