"""MQTT devices (paho-mqtt) and AMQP applications (python-qpid-proton) on the same addresses."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from typing import Any

from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from proton import Message

from demo.report import Report
from demo.semantics import PATIENCE, accept, connect
from enmasse.testing import Suite

DEVICE = "pump-7"
QUIET = 0.5  # seconds without a message that count as "nothing comes"
SESSION = 3600  # seconds that the session of a device outlives its connection


class Device:
    """An MQTT 5 client that waits for each answer.

    `messages`: what it received. `present`: whether its session was there.
    """

    def __init__(
        self, suite: Suite, name: str, *, clean: bool = True, inflight: int = 20, user: str = "", password: str = ""
    ) -> None:
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self.present = False
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=MQTTv5, reconnect_on_failure=False)
        self.client.max_inflight_messages_set(inflight)
        self._connected, self._subscribed = threading.Event(), threading.Event()
        self._reason: Any = None
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = lambda client, data, message: self.messages.put(message)
        if user:
            self.client.username_pw_set(user, password)
        properties = make_properties(PacketTypes.CONNECT, SessionExpiryInterval=0 if clean else SESSION)
        self.client.connect("127.0.0.1", suite.mqtt_port, clean_start=clean, properties=properties)
        self.client.loop_start()
        self._wait(self._connected, "CONNACK")

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.present, self._reason = flags.session_present, reason
        self._connected.set()

    def _on_subscribe(self, client: Any, data: Any, mid: int, reasons: Any, properties: Any) -> None:
        self._reason = reasons[0]
        self._subscribed.set()

    def _wait(self, event: threading.Event, what: str) -> None:
        if not event.wait(PATIENCE):
            raise TimeoutError(f"no {what} within {PATIENCE:g} s")
        if self._reason.is_failure:
            raise RuntimeError(f"{what}: {self._reason}")

    def subscribe(self, topic: str) -> None:
        """Subscribe with QoS 1. Raises RuntimeError if it is refused, TimeoutError without an answer."""
        self._subscribed.clear()
        self.client.subscribe(topic, qos=1)
        self._wait(self._subscribed, f"SUBACK for {topic}")

    def publish(self, topic: str, payload: str, properties: Any = None) -> None:
        """Publish with QoS 1; return when the message is acknowledged."""
        self.client.publish(topic, payload, qos=1, properties=properties).wait_for_publish(PATIENCE)

    def next(self, seconds: float = PATIENCE) -> MQTTMessage | None:
        """Return the next message; None after `seconds` without one."""
        try:
            return self.messages.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Disconnect."""
        self.client.disconnect()
        self.client.loop_stop()


def make_properties(packet: int, **values: Any) -> Any:
    """Return properties of MQTT 5 for a packet."""
    properties = Properties(packet)
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def last_will(suite: Suite, report: Report) -> None:
    """Kill a device; its will must reach an AMQP application."""
    report.step("last will: a device is killed, an AMQP application is notified")
    topic = f"mytopic/status/{DEVICE}"
    application = connect(suite)
    receiver = application.create_receiver(topic, name="demo-status", credit=1)
    command = [sys.executable, "-m", "demo.device", str(suite.mqtt_port), DEVICE, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as device:
        try:
            assert device.stdout is not None
            report.check("the device is connected", device.stdout.readline().strip() == "connected")
        finally:
            device.kill()
    message = receiver.receive(timeout=PATIENCE)
    accept(application, receiver)
    report.check("its will came over AMQP", _text(message) == "gone without goodbye", _text(message))
    application.close()


def request_reply(suite: Suite, report: Report) -> None:
    """Request and reply, from a device to an AMQP service and the other way round."""
    report.step("request and reply across both protocols")
    device, application = Device(suite, DEVICE), connect(suite)
    requests = application.create_receiver("requests", name="demo-requests", credit=5)
    device.subscribe(f"mytopic/replies/{DEVICE}")
    properties = make_properties(PacketTypes.PUBLISH, ResponseTopic=f"mytopic/replies/{DEVICE}", CorrelationData=b"q1")
    asking = threading.Thread(target=device.publish, args=("requests", "6 x 7", properties))
    asking.start()
    asked = requests.receive(timeout=PATIENCE)
    accept(application, requests)
    asking.join()
    answer = application.create_sender(None, name="demo-answer")
    application.wait(lambda: answer.link.credit > 0, timeout=PATIENCE, msg="credit for the reply")
    answer.send(Message(address=asked.reply_to, body="42", correlation_id=asked.correlation_id))
    reply = device.next()
    found = (reply.payload, _correlation(reply)) if reply else None
    report.check("the device asked, the AMQP service answered", found == (b"42", b"q1"), found)

    device.subscribe(f"mytopic/ask/{DEVICE}")
    replies = application.create_receiver(None, dynamic=True, name="demo-replies", credit=5)
    address = replies.link.remote_source.address
    ask = application.create_sender(f"mytopic/ask/{DEVICE}", name="demo-ask")
    ask.send(Message(body="pressure?", reply_to=address, correlation_id="q2"))
    question = device.next()
    topic = getattr(question.properties, "ResponseTopic", "") if question else ""
    properties = make_properties(PacketTypes.PUBLISH, CorrelationData=_correlation(question))
    answering = threading.Thread(target=device.publish, args=(topic, "3.1 bar", properties))
    answering.start()
    message = replies.receive(timeout=PATIENCE)
    accept(application, replies)
    answering.join()
    report.check("the service asked, the device answered", _text(message) == "3.1 bar", topic)
    application.close()
    device.close()


def commands(suite: Suite, report: Report) -> None:
    """Send commands to a device that is offline; it must get those that have not expired."""
    report.step("commands for a device that is offline")
    topic = f"commands/{DEVICE}"
    device = Device(suite, DEVICE, clean=False)
    device.subscribe(topic)
    device.close()
    application = connect(suite)
    sender = application.create_sender(topic, name="demo-commands")
    sender.send(Message(body="too late", ttl=0.3, durable=True))
    sender.send(Message(body="open the valve", ttl=300.0, durable=True))
    time.sleep(0.4)  # the time to live itself, not a wait for something to happen
    device = Device(suite, DEVICE, clean=False)
    report.check("its session was kept", device.present)
    command = device.next()
    report.check("the command that is still valid came", command is not None and command.payload == b"open the valve")
    report.check("the expired one did not", device.next(QUIET) is None)
    device.close()
    Device(suite, DEVICE).close()  # with a clean start, which ends the session
    application.close()


def _correlation(message: Any) -> bytes:
    found: bytes = getattr(message.properties, "CorrelationData", b"")
    return found


def _text(message: Any) -> str:
    body = message.body
    return bytes(body).decode() if isinstance(body, bytes | memoryview) else str(body)


def show(suite: Suite, report: Report) -> None:
    """Show what MQTT devices and AMQP applications can do together."""
    for part in (last_will, request_reply, commands):
        part(suite, report)
