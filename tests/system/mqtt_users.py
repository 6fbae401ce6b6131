"""MQTT clients that log in, packet by packet."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from enmasse.identity.processes.scram import ScramClient
from enmasse.mqtt import encode, reasons
from enmasse.mqtt.packets import (
    NONE,
    V5,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Will,
)
from enmasse.mqtt.reader import Reader
from enmasse.testing import Suite, wait_for
from tests.kit.waiting import DEADLINE

PATIENCE = DEADLINE
CODES = {5: {"bad": 0x86, "forbidden": 0x87, "away": 0x88}, 4: {"bad": 4, "forbidden": 5, "away": 3}}
"""CONNACK by version."""


class Device:
    """A client that is logged in, or was refused: `answer` is its CONNACK."""

    def __init__(
        self, port: int, client_id: str, user: str | None, password: str | None, *, version: int = V5,
        clean: bool = True, will: Will | None = None, source: str = "127.0.0.1", expiry: int | None = 3600,
        properties: Properties | None = None,
    ) -> None:  # fmt: skip
        self.version = version
        self.answer: ConnAck
        self.messages: list[Publish] = []
        self.reason: int | None = None
        """Of DISCONNECT."""
        self._number = 0
        self._reader = Reader(server=False, version=version)
        self._packets: list[Packet] = []
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(source, 0))
        if properties is None:
            properties = Properties(session_expiry=expiry) if version == V5 else NONE
        self.send(
            Connect(
                client_id, clean, 0, user, None if password is None else password.encode(), will, properties, version
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def connected(self, after: type[Any] | None = None) -> Self:
        """Wait for CONNACK, with packets of the kind `after` before it."""
        packet = self._packet()
        while after is not None and isinstance(packet, after):
            packet = self._packet()
        assert isinstance(packet, ConnAck), packet
        self.answer = packet
        return self

    @classmethod
    def by_scram(
        cls, port: int, client_id: str, user: str, password: str, mechanism: str, *, first: bool = True
    ) -> Self:
        """Connect with enhanced authentication. `first`: CONNECT has the first message of the mechanism."""
        scram = ScramClient(user, password, mechanism)
        initial = scram.start()
        properties = Properties(auth_method=mechanism, auth_data=initial if first else None)
        device = cls(port, client_id, None, None, properties=properties)
        response = None if first else initial
        while isinstance(packet := device._packet(), Auth):
            assert (packet.reason, packet.properties.auth_method) == (reasons.CONTINUE_AUTHENTICATION, mechanism)
            if response is None:
                response = scram.respond(packet.properties.auth_data or b"")
            given = Properties(auth_method=mechanism, auth_data=response)
            device.send(Auth(reasons.CONTINUE_AUTHENTICATION, given))
            response = None
        assert isinstance(packet, ConnAck)
        device.answer = packet
        if not packet.reason:
            assert packet.properties.auth_method == mechanism
            scram.finish(packet.properties.auth_data)  # the server's proof
        return device

    def send(self, *packets: Packet) -> None:
        self._socket.sendall(b"".join(encode.encode(each, self.version, of_client=True) for each in packets))

    def close(self) -> None:
        """Leave with DISCONNECT: the session stays."""
        self.send(Disconnect())
        self._socket.close()

    def lose(self) -> None:
        """Lose the connection."""
        self._socket.close()

    def subscribe(self, *filters: str, qos: int = 1) -> list[int]:
        self._number += 1
        self.send(Subscribe(self._number, tuple(Subscription(each, qos) for each in filters)))
        return list(self._next(SubAck).codes)

    def publish(
        self, topic: str, payload: bytes = b"x", qos: int = 1, retain: bool = False, properties: Properties = NONE
    ) -> int:
        """Publish; with QoS 1 return the reason of PUBACK."""
        self._number += 1
        self.send(Publish(topic, payload, qos, retain, packet_id=self._number if qos else 0, properties=properties))
        return int(self._next(PubAck).reason) if qos else 0

    def publish_once(self, topic: str, payload: bytes) -> None:
        """Publish a retained message with QoS 2."""
        self._number += 1
        self.send(Publish(topic, payload, 2, True, packet_id=self._number))
        self._next(PubRec)
        self.send(PubRel(self._number))
        self._next(PubComp)

    def receive(self) -> bytes:
        """Return the payload of the next message, acknowledged."""
        message = self.message()
        if message.qos:
            self.send(PubAck(message.packet_id))
        return message.payload

    def message(self) -> Publish:
        """Return the next message, not acknowledged."""
        while not self.messages:
            self._take(self._packet())
        return self.messages.pop(0)

    def until_closed(self) -> int | None:
        """Return the reason of DISCONNECT, None without one, once the connection is closed."""
        while True:
            try:
                self._take(self._packet())
            except ConnectionError:
                return self.reason

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.messages.append(packet)
        elif isinstance(packet, Disconnect):
            self.reason = packet.reason
        else:
            raise AssertionError(packet)

    def _next(self, kind: type[Any]) -> Any:
        while True:
            packet = self._packet()
            if isinstance(packet, kind):
                return packet
            self._take(packet)

    def _packet(self) -> Packet:
        while not self._packets:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("closed")
            self._packets = self._reader.feed(data)
        return self._packets.pop(0)


class Front:
    """Makes the devices of a test, and closes them at its end."""

    def __init__(self, suite: Suite, stack: contextlib.ExitStack) -> None:
        self._suite = suite
        self._stack = stack

    def device(
        self, client_id: str, user: str | None = None, password: str | None = None, *, port: int = 0, **more: Any
    ) -> Device:
        """Return a client that is connected; `port`: of one of several gateways."""
        device = Device(port or self._suite.mqtt_port, client_id, user, password, **more)
        return self._stack.enter_context(device).connected()

    def code(self, user: str | None, password: str | None, **more: Any) -> int:
        """The answer to a CONNECT."""
        with Device(self._suite.mqtt_port, "", user, password, **more) as device:
            return int(device.connected().answer.reason)

    def wait_code(self, wanted: int, user: str | None, password: str | None, **more: Any) -> None:
        wait_for(f"CONNACK {wanted} of {user}", lambda: self.code(user, password, **more) == wanted)


@contextlib.contextmanager
def front(suite: Suite) -> Iterator[Front]:
    with contextlib.ExitStack() as stack:
        yield Front(suite, stack)


def closed(devices: Sequence[Device]) -> Callable[[], bool]:
    return lambda: all(each.until_closed() is not None for each in devices)
