"""A suite with two address spaces beside the default one, equal names everywhere; and its MQTT clients (paho)."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import ssl
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from enmasse.testing import Suite, free_port, wait_for
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import DEADLINE
from tests.system.conftest import QUEUE, TOPIC
from tests.system.users import allow, entry

ALL = ("default", "one", "two")
PASSWORD = "the same"
ADDRESSES = {
    "news": {"type": "topic", "flavor": TOPIC},
    "rest": {"type": "topic", "flavor": TOPIC, "mqttDefault": True},
    "jobs": {"type": "queue", "flavor": QUEUE},
    "direct": {"type": "anycast"},
    "cast": {"type": "multicast"},
}


LISTENERS = (("amqp", "one"), ("mqtt", "one"), ("mqtts", "two"), ("ws", "two"), ("wss", "one"))
"""Protocols and spaces of the listeners that have clients of one space alone."""
PORTS: dict[str, int] = {}
"""PROTOCOL@SPACE → port of such a listener."""


class Named(ssl.SSLContext):
    """Client's TLS that names a host (SNI)."""

    host = "localhost"

    def wrap_socket(self, sock: socket.socket, *arguments: Any, **more: Any) -> ssl.SSLSocket:
        """Begin TLS, with this host."""
        return super().wrap_socket(sock, *arguments, **{**more, "server_hostname": self.host})


def user(space: str, name: str = "alice") -> str:
    """Return what a client states to be this user of a space."""
    return name if space == "default" else f"{name}@{space}"


def write_spaces(config: Path, users: dict[str, Any]) -> None:
    """Give each space the same addresses and users."""
    (config / "spaces.json").write_text(json.dumps({"one": {}, "two": {}}))
    for folder in (config, config / "spaces" / "one", config / "spaces" / "two"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "addresses.json").write_text(json.dumps(ADDRESSES))
        (folder / "users.json").write_text(json.dumps(users))
        (folder / "users.json").chmod(0o600)


@contextlib.contextmanager
def suite_with_spaces(folder: Path) -> Iterator[Suite]:
    """Run a suite whose spaces have equal addresses and users, as long as the block."""
    ports = {f"{protocol}@{space}": free_port() for protocol, space in LISTENERS}
    listen = [f"--listen={each.replace('@', f'=127.0.0.1:{port}@')}" for each, port in ports.items()]
    with running_with_spaces(folder, {}, addresses=ADDRESSES, options=("--tls", "auto", *listen)) as suite:
        PORTS.update(ports)
        write_spaces(suite.config, {"alice": entry(PASSWORD, allow("#", "$SYS/#", "$subctrl", "$lwt", "$sub/#"))})
        try:
            suite.up()
            for space in ALL:
                wait_for(f"the addresses of {space}", partial(_serves, suite, space))
            yield suite
        finally:
            assert suite.down() == 0


def _serves(suite: Suite, space: str) -> bool:
    with contextlib.suppress(AssertionError), Device(suite, space, f"probe-{space}") as device:
        for topic in ("news/probe", "rest/probe", "jobs", "cast", "direct"):
            device.subscribe(topic)
        device.publish("jobs", "probe")
        return device.receive()[1] == "probe"
    return False


def _reason(given: Properties | None) -> str:
    return str(getattr(given, "ReasonString", ""))


class Device:
    """A client of MQTT 5 of the user alice of a space."""

    def __init__(
        self, suite: Suite, space: str, client_id: str = "device", *, clean: bool = True, expiry: int = 0,
        will: tuple[str, str, int, bool] | None = None, transport: str = "tcp", name: str | None = None,
        port: int | None = None, host: str | None = None,
    ) -> None:  # fmt: skip
        self.space = space
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self.gone = threading.Event()
        self._answers: dict[int, list[int]] = {}
        self._answered = threading.Condition()
        self._connected: queue.Queue[tuple[int, bool]] = queue.Queue()
        self._client = client = Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5, transport=transport,
            reconnect_on_failure=False,  # it would take over the client that has taken it over
        )  # fmt: skip
        client.username_pw_set(user(space) if name is None else name, PASSWORD)
        if host is not None:  # named by TLS
            tls = Named(ssl.PROTOCOL_TLS_CLIENT)
            tls.check_hostname, tls.host = False, host
            tls.load_verify_locations(suite.data / "tls" / "ca.crt")
            client.tls_set_context(tls)
        client.on_message = lambda c, data, message: self.messages.put(message)
        client.on_connect = lambda c, data, flags, reason, given: self._connected.put(
            (reason.value, flags.session_present)
        )
        self.reasons: queue.Queue[str] = queue.Queue()
        """Reason strings of SUBACK, PUBACK and DISCONNECT; empty if it has none."""
        client.on_disconnect = lambda c, data, flags, reason, given: self._left(given)
        client.on_subscribe = lambda c, data, mid, codes, given: self._answer(
            mid, [code.value for code in codes], given
        )
        client.on_publish = lambda c, data, mid, reason, given: self.reasons.put(_reason(given))
        if will is not None:
            topic, payload, qos, retain = will
            client.will_set(topic, payload, qos, retain)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = expiry
        if port is None:
            port = suite.mqtt_port if transport == "tcp" else 8083 + suite.offset
        if transport != "tcp":
            client.ws_set_options("/mqtt")
        client.connect("127.0.0.1", port, 60, clean_start=clean, properties=properties)
        client.loop_start()
        code, self.present = self._connected.get(timeout=DEADLINE)
        if code:
            self.lose()
        assert code == 0, code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _left(self, given: Properties | None) -> None:
        self.gone.set()
        self.reasons.put(_reason(given))

    def _answer(self, mid: int, codes: list[int], given: Properties | None) -> None:
        self.reasons.put(_reason(given))
        with self._answered:
            self._answers[mid] = codes
            self._answered.notify_all()

    def subscribe(self, filter: str, qos: int = 1) -> int:
        """Subscribe; return the code of SUBACK."""
        _, mid = self._client.subscribe(filter, options=SubscribeOptions(qos))
        assert mid is not None
        with self._answered:
            assert self._answered.wait_for(lambda: mid in self._answers, DEADLINE)
            (code,) = self._answers.pop(mid)
        assert code < 0x80, f"{filter} in {self.space}: {code:#x}"
        return code

    def publish(self, topic: str, payload: str, qos: int = 1, retain: bool = False, response: str = "") -> None:
        """Publish, and wait until it is acknowledged."""
        properties = None
        if response:
            properties = Properties(PacketTypes.PUBLISH)
            properties.ResponseTopic = response
        self._client.publish(topic, payload, qos, retain, properties=properties).wait_for_publish(DEADLINE)

    def message(self) -> MQTTMessage:
        return self.messages.get(timeout=DEADLINE)

    def receive(self) -> tuple[str, str]:
        """Return topic and payload of the next message."""
        found = self.message()
        return found.topic, found.payload.decode()

    def until(self, fence: str) -> list[tuple[str, str]]:
        """Return what comes before a payload."""
        found = []
        while (one := self.receive())[1] != fence:
            found.append(one)
        return found

    def close(self) -> None:
        """Leave with DISCONNECT."""
        self._client.disconnect()
        self._client.loop_stop()

    def lose(self) -> None:
        """Lose the connection: the client reads and writes no more, and its socket is closed."""
        self._client.loop_stop()
        if (socket := self._client.socket()) is not None:
            socket.close()
