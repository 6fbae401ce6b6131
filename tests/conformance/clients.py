"""MQTT clients of others behind one interface: paho-mqtt, amqtt, mosquitto_pub and mosquitto_sub."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import paho.mqtt.client as paho
from amqtt.client import MQTTClient
from amqtt.errors import AMQTTError, ClientError
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

SECONDS = 60
LEAVING = 10
"""Seconds a program has to end after SIGTERM."""
NEVER = 0xFFFFFFFF
Result = TypeVar("Result")


@dataclass(frozen=True)
class Got:
    topic: str
    payload: bytes
    qos: int
    retain: bool


class Refused(Exception):
    """The server did not take a message or a subscription, or has closed."""


class Subscriber(Protocol):
    def next(self) -> Got:
        """The next message; raises Refused if there is none in time."""


class Driver(Protocol):
    """`name` of the client; `version` 4 or 5. `client`: a client id; a clean session unless `kept`."""

    name: str
    version: int

    def notices(self, qos: int) -> bool:
        """Whether it finds out that a message was refused."""

    def publish(self, port: int, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        """Until the server has acknowledged it (QoS 0: has read it). Raises Refused."""

    def subscribed(
        self, port: int, client: str, topic: str, qos: int, kept: bool
    ) -> contextlib.AbstractContextManager[Subscriber]:
        """Connected with a subscription that was granted; disconnects at the end. Raises Refused."""


class Paho:
    def __init__(self, version: int) -> None:
        self.version = version
        self.name = f"paho-v{version}"

    def notices(self, qos: int) -> bool:
        return True

    @contextlib.contextmanager
    def _connected(self, port: int, client: str = "", kept: bool = False, on_message: Any = None) -> Iterator[Any]:
        connected: queue.Queue[Any] = queue.Queue()
        made = paho.Client(
            CallbackAPIVersion.VERSION2,
            client,
            None if self.version == 5 else not kept,
            protocol=MQTTProtocolVersion.MQTTv5 if self.version == 5 else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        made.on_connect = lambda c, u, f, reason, p: connected.put(reason)
        made.on_message = on_message
        options: dict[str, Any] = {}
        if self.version == 5:
            options = {"clean_start": not kept, "properties": Properties(PacketTypes.CONNECT)}
            options["properties"].SessionExpiryInterval = NEVER if kept else 0
        made.connect("127.0.0.1", port, **options)
        made.loop_start()
        try:
            reason = connected.get(timeout=SECONDS)
            if reason.is_failure:
                raise Refused(str(reason))
            yield made
        finally:
            made.disconnect()
            made.loop_stop()

    def publish(self, port: int, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        done: queue.Queue[Any] = queue.Queue()
        with self._connected(port) as client:
            client.on_publish = lambda c, u, mid, reason, p: done.put(reason) if qos else None
            client.on_disconnect = lambda c, u, f, reason, p: done.put(reason)
            client.publish(topic, payload, qos, retain)
            if qos == 0:  # a SUBACK comes after the message was read
                client.on_subscribe = lambda c, u, mid, reasons, p: done.put(None)
                client.subscribe("$nothing/at/all")
            reason = done.get(timeout=SECONDS)
            if reason is not None and (reason.is_failure or (client.on_disconnect and not client.is_connected())):
                raise Refused(str(reason))

    @contextlib.contextmanager
    def subscribed(self, port: int, client: str, topic: str, qos: int, kept: bool) -> Iterator[Subscriber]:
        got: queue.Queue[Got] = queue.Queue()

        def arrived(client: Any, data: Any, m: Any) -> None:
            got.put(Got(m.topic, m.payload, m.qos, m.retain))

        with self._connected(port, client, kept, arrived) as made:
            granted: queue.Queue[Any] = queue.Queue()
            made.on_subscribe = lambda c, u, mid, reasons, p: granted.put(reasons[0])
            made.on_disconnect = lambda c, u, f, reason, p: granted.put(reason)
            made.subscribe(topic, qos)
            reason = granted.get(timeout=SECONDS)
            if reason.is_failure:
                raise Refused(str(reason))
            yield _Queued(got)


@dataclass
class _Queued:
    queue: queue.Queue[Got]

    def next(self) -> Got:
        try:
            return self.queue.get(timeout=SECONDS)
        except queue.Empty:
            raise Refused(f"no message within {SECONDS} s") from None


class Amqtt:
    """Its coroutines run on a loop in a thread."""

    name = "amqtt"
    version = 4

    def notices(self, qos: int) -> bool:
        """It waits for its time-out when the connection was closed."""
        return False

    @functools.cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        return loop

    def _do(self, what: Awaitable[Result]) -> Result:
        async def bounded() -> Result:
            return await asyncio.wait_for(what, SECONDS)

        try:
            return asyncio.run_coroutine_threadsafe(bounded(), self._loop).result()
        except (AMQTTError, ClientError, TimeoutError, asyncio.CancelledError, ConnectionError) as error:
            raise Refused(str(error)) from error

    @contextlib.contextmanager
    def _connected(self, port: int, client: str | None = None, kept: bool = False) -> Iterator[MQTTClient]:
        made = MQTTClient(client, {"auto_reconnect": False, "connection_timeout": SECONDS, "keep_alive": 60})
        self._do(made.connect(f"mqtt://127.0.0.1:{port}", cleansession=not kept))
        try:
            yield made
        finally:
            with contextlib.suppress(Refused):
                self._do(made.disconnect())

    def publish(self, port: int, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        with self._connected(port) as client:
            self._do(client.publish(topic, payload, qos, retain, ack_timeout=SECONDS))
            if qos == 0:
                self._do(client.subscribe([("$nothing/at/all", 0)]))

    @contextlib.contextmanager
    def subscribed(self, port: int, client: str, topic: str, qos: int, kept: bool) -> Iterator[Subscriber]:
        with self._connected(port, client, kept) as made:
            if self._do(made.subscribe([(topic, qos)])) == [0x80]:
                raise Refused("0x80")
            driver = self

            class Delivered:
                def next(self) -> Got:
                    found = driver._do(made.deliver_message(SECONDS))
                    if found is None or found.publish_packet is None:
                        raise Refused("no message")
                    return Got(found.topic, bytes(found.data or b""), found.qos or 0, found.publish_packet.retain_flag)

            yield Delivered()


def drained(lines: list[str]) -> Iterator[str]:
    while lines:
        yield lines.pop(0)


class Mosquitto:
    def __init__(self, version: int) -> None:
        self.version = version
        self.name = f"mosquitto-v{version}"
        self._options = ["-h", "127.0.0.1", "-V", "5" if version == 5 else "311"]

    def notices(self, qos: int) -> bool:
        """With QoS 0 it leaves at once."""
        return qos > 0

    def publish(self, port: int, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        command = ["mosquitto_pub", *self._options, "-p", str(port), "-t", topic, "-q", str(qos)]
        command += ["-s" if payload else "-n", *(["-r"] if retain else [])]
        done = subprocess.run(command, input=payload, capture_output=True, timeout=SECONDS)
        said = done.stderr.decode().strip()
        if done.returncode or said:  # it ends with 0 when the server refuses a message with a reason
            raise Refused(said)

    @contextlib.contextmanager
    def subscribed(self, port: int, client: str, topic: str, qos: int, kept: bool) -> Iterator[Subscriber]:
        command = [
            "stdbuf",
            "-oL",
            "mosquitto_sub",
            *self._options,
            "-p",
            str(port),
            "-t",
            topic,
            "-q",
            str(qos),
            "-i",
            client,
        ]
        command += ["-F", '{"topic":"%t","qos":%q,"retain":%r,"hex":"%x"}', "-d"]
        if kept:
            command += ["-c", *(["-x", str(NEVER)] if self.version == 5 else [])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        assert process.stdout is not None
        late = threading.Timer(SECONDS, process.kill)
        late.start()
        lines = iter(process.stdout)
        early: list[str] = []  # a kept session brings messages before SUBACK

        class Lines:
            def next(self) -> Got:
                for line in itertools.chain(drained(early), lines):
                    if line.startswith("{"):
                        found = json.loads(line)
                        retain = bool(found["retain"])
                        return Got(found["topic"], bytes.fromhex(found["hex"]), found["qos"], retain)
                raise Refused("mosquitto_sub has ended")

        try:
            for line in lines:
                if line.startswith("{"):
                    early.append(line)
                elif line.startswith("Subscribed (mid"):
                    if int(line.rsplit(":", 1)[1].split()[0]) >= 0x80:
                        raise Refused(line)
                    break
                elif "error" in line.lower() or "denied" in line.lower():
                    raise Refused(line)
            else:
                raise Refused("mosquitto_sub has ended")
            yield Lines()
        finally:
            late.cancel()
            process.terminate()
            try:
                process.wait(LEAVING)
            except subprocess.TimeoutExpired:  # a signal that comes while it leaves by itself can block it for good
                process.kill()
                process.wait()
            process.stdout.close()


DRIVERS: list[Driver] = [Paho(4), Paho(5), Amqtt(), Mosquitto(4), Mosquitto(5)]
