"""MQTT from bytes: packets made by hand, also wrong ones, and a blocking client that sees every packet.

It knows nothing of `enmasse.mqtt`, so that an error there does not cancel itself out. `version` is 4 (3.1.1) or 5.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tests.kit.waiting import DEADLINE

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = range(1, 9)
SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(9, 16)
NAMES = "- CONNECT CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK PINGREQ PINGRESP DISCONNECT AUTH"  # fmt: skip # noqa: E501 - a table of one row
ACK_FLAGS = {PUBREL: 2, SUBSCRIBE: 2, UNSUBSCRIBE: 2}

# Properties, MQTT 5 section 2.2.2.2.
PAYLOAD_FORMAT, EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION = 0x01, 0x02, 0x03, 0x08, 0x09
SUBSCRIPTION_ID, SESSION_EXPIRY, ASSIGNED_ID, SERVER_KEEP_ALIVE = 0x0B, 0x11, 0x12, 0x13
AUTH_METHOD, AUTH_DATA, PROBLEM_INFO, WILL_DELAY, RESPONSE_INFO_ASKED, RESPONSE_INFO = (
    0x15,
    0x16,
    0x17,
    0x18,
    0x19,
    0x1A,
)
SERVER_REFERENCE, REASON, RECEIVE_MAXIMUM, ALIAS_MAXIMUM, ALIAS, MAXIMUM_QOS = 0x1C, 0x1F, 0x21, 0x22, 0x23, 0x24
RETAIN_AVAILABLE, USER, PACKET_MAXIMUM, WILDCARDS, SUBSCRIPTION_IDS, SHARED = 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A
BYTE = {PAYLOAD_FORMAT, PROBLEM_INFO, RESPONSE_INFO_ASKED, MAXIMUM_QOS, RETAIN_AVAILABLE, WILDCARDS, SUBSCRIPTION_IDS, SHARED}  # fmt: skip # noqa: E501 - a table of one row
TWO = {SERVER_KEEP_ALIVE, RECEIVE_MAXIMUM, ALIAS_MAXIMUM, ALIAS}
FOUR = {EXPIRY, SESSION_EXPIRY, WILL_DELAY, PACKET_MAXIMUM}
BINARY = {CORRELATION, AUTH_DATA}

Properties = list[tuple[int, Any]]


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 127
        out.append(low | 128 if number else low)
        if not number:
            return bytes(out)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(data)) + data


def packet(kind: int, flags: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes([kind << 4 | flags]) + varint(len(body)) + body


def properties(version: int, entries: Properties) -> bytes:
    if version < 5:
        return b""
    out = b""
    for name, value in entries:
        out += bytes([name])
        if name in BYTE:
            out += bytes([value])
        elif name in TWO:
            out += struct.pack("!H", value)
        elif name in FOUR:
            out += struct.pack("!I", value)
        elif name == SUBSCRIPTION_ID:
            out += varint(value)
        elif name == USER:
            out += text(value[0]) + text(value[1])
        else:
            out += text(value)
    return varint(len(out)) + out


@dataclass
class Will:
    topic: str | bytes
    payload: bytes = b"will"
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=list)


def connect(
    client: str | bytes,
    version: int,
    *,
    clean: bool = True,
    keep: int = 60,
    will: Will | None = None,
    user: str | bytes | None = None,
    password: bytes | None = None,
    props: Properties | None = None,
    flags: int = 0,
    name: str | bytes = "MQTT",
    level: int | None = None,
) -> bytes:
    """`flags`: bits turned over."""
    bits = clean << 1
    payload = text(client)
    if will is not None:
        bits |= 4 | will.qos << 3 | will.retain << 5
        payload += properties(version, will.properties) + text(will.topic) + text(will.payload)
    if user is not None:
        bits |= 128
        payload += text(user)
    if password is not None:
        bits |= 64
        payload += text(password)
    head = text(name) + bytes([version if level is None else level, bits ^ flags]) + struct.pack("!H", keep)
    return packet(CONNECT, 0, head, properties(version, props or []), payload)


def publish(
    topic: str | bytes,
    payload: bytes,
    version: int,
    *,
    qos: int = 0,
    pid: int = 0,
    dup: bool = False,
    retain: bool = False,
    props: Properties | None = None,
) -> bytes:
    identifier = struct.pack("!H", pid) if qos else b""
    flags = dup << 3 | qos << 1 | retain
    return packet(PUBLISH, flags, text(topic), identifier, properties(version, props or []), payload)


def ack(kind: int, pid: int, code: int | None = None) -> bytes:
    """PUBACK, PUBREC, PUBREL, PUBCOMP; `code` only in version 5."""
    return packet(kind, ACK_FLAGS.get(kind, 0), struct.pack("!H", pid), b"" if code is None else bytes([code]))


def subscribe(pid: int, filters: list[tuple[str | bytes, int]], version: int, props: Properties | None = None) -> bytes:
    entries = b"".join(text(name) + bytes([options]) for name, options in filters)
    return packet(SUBSCRIBE, 2, struct.pack("!H", pid), properties(version, props or []), entries)


def unsubscribe(pid: int, filters: list[str | bytes], version: int) -> bytes:
    return packet(UNSUBSCRIBE, 2, struct.pack("!H", pid), properties(version, []), b"".join(map(text, filters)))


def disconnect(version: int, code: int | None = None, props: Properties | None = None) -> bytes:
    if version < 5 or code is None:
        return packet(DISCONNECT, 0)
    return packet(DISCONNECT, 0, bytes([code]), properties(version, props or []))


PING = packet(PINGREQ, 0)


class Reader:
    """The fields of a packet's body, one after the other."""

    def __init__(self, body: bytes) -> None:
        self.body, self.at = body, 0

    def take(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.body), f"a packet of the server is too short: {self.body!r}"
        return self.body[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def binary(self) -> bytes:
        return self.take(self.number())

    def varint(self) -> int:
        value = shift = 0
        while True:
            one = self.byte()
            value |= (one & 127) << shift
            shift += 7
            if one < 128:
                return value

    def properties(self) -> Properties:
        end = self.varint() + self.at
        found: Properties = []
        while self.at < end:
            name = self.byte()
            value: Any
            if name in BYTE:
                value = self.byte()
            elif name in TWO:
                value = self.number()
            elif name in FOUR:
                value = int.from_bytes(self.take(4), "big")
            elif name == SUBSCRIPTION_ID:
                value = self.varint()
            elif name == USER:
                value = (self.binary().decode(), self.binary().decode())
            elif name in BINARY:
                value = self.binary()
            else:
                value = self.binary().decode()
            found.append((name, value))
        assert self.at == end, f"properties of the server end beside their length: {self.body!r}"
        return found

    def rest(self) -> bytes:
        return self.take(len(self.body) - self.at)


@dataclass
class Packet:
    """What the server sent; what a kind does not have is at its default."""

    kind: int
    flags: int
    size: int
    """Bytes of the whole packet."""
    topic: str = ""
    payload: bytes = b""
    pid: int = 0
    code: int = 0
    codes: tuple[int, ...] = ()
    present: int = 0
    """CONNACK's acknowledge flags."""
    properties: Properties = field(default_factory=list)

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    def all(self, name: int) -> list[Any]:
        return [value for found, value in self.properties if found == name]

    def get(self, name: int) -> Any:
        """The property's value; None if the packet does not have it."""
        return next(iter(self.all(name)), None)

    def __str__(self) -> str:
        return f"{NAMES.split()[self.kind]} {self.__dict__}"


def parsed(kind: int, flags: int, body: bytes, size: int, version: int) -> Packet:
    read, found = Reader(body), Packet(kind, flags, size)
    if kind == CONNACK:
        found.present, found.code = read.byte(), read.byte()
        if version == 5 and read.at < len(body):
            found.properties = read.properties()
    elif kind == PUBLISH:
        found.topic = read.binary().decode()
        found.pid = read.number() if found.qos else 0
        found.properties = read.properties() if version == 5 else []
        found.payload = read.rest()
    elif kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        found.pid = read.number()
        if version == 5 and read.at < len(body):
            found.code = read.byte()
            found.properties = read.properties() if read.at < len(body) else []
    elif kind in (SUBACK, UNSUBACK):
        found.pid = read.number()
        found.properties = read.properties() if version == 5 else []
        found.codes = tuple(read.rest())
    elif kind in (DISCONNECT, AUTH) and version == 5 and body:
        found.code = read.byte()
        found.properties = read.properties() if read.at < len(body) else []
    assert read.at == len(body), f"more bytes than {NAMES.split()[kind]} has: {body!r}"
    return found


class Raw:
    """One connection. Every answer is awaited for `SECONDS`; nothing is acknowledged by itself."""

    SECONDS = DEADLINE

    def __init__(self, host: str, port: int, version: int) -> None:
        self.version = version
        self.socket = socket.create_connection((host, port), self.SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.pids = 0
        self.aside: deque[Packet] = deque()

    def send(self, *packets: bytes) -> None:
        self.socket.sendall(b"".join(packets))

    def next(self, seconds: float | None = None) -> Packet | None:
        """The next packet; None: the server has closed. Raises TimeoutError."""
        deadline = time.monotonic() + (self.SECONDS if seconds is None else seconds)
        while True:
            found = self._taken()
            if found is not None:
                return found
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.buffer += data

    def _taken(self) -> Packet | None:
        length = shift = 0
        for at in range(1, min(len(self.buffer), 5)):
            length |= (self.buffer[at] & 127) << shift
            shift += 7
            if self.buffer[at] < 128:
                end = at + 1 + length
                if len(self.buffer) < end:
                    return None
                head, body, self.buffer = self.buffer[0], self.buffer[at + 1 : end], self.buffer[end:]
                return parsed(head >> 4, head & 15, body, end, self.version)
        return None

    def expect(self, kind: int, seconds: float | None = None) -> Packet:
        """The next packet, of this kind; messages that come before an answer wait until they are asked for."""
        if kind == PUBLISH and self.aside:
            return self.aside.popleft()
        found = self.next(seconds)
        while found is not None and found.kind == PUBLISH != kind:
            self.aside.append(found)
            found = self.next(seconds)
        assert found is not None, f"closed instead of {NAMES.split()[kind]}"
        assert found.kind == kind, f"{found} instead of {NAMES.split()[kind]}"
        return found

    def expect_any(self, *kinds: int) -> Packet:
        """The next packet that is not a message; of one of these kinds."""
        while (found := self.next()) is not None and found.kind == PUBLISH:
            self.aside.append(found)
        assert found is not None, f"closed instead of {kinds}"
        assert found.kind in kinds, f"{found} instead of {kinds}"
        return found

    def open(self, client: str | bytes, **more: Any) -> Packet:
        """CONNECT, and its accepted CONNACK."""
        self.send(connect(client, self.version, **more))
        found = self.expect(CONNACK)
        assert found.code == 0, found
        return found

    def pid(self) -> int:
        self.pids += 1
        return self.pids

    def subscribe(self, *filters: tuple[str, int] | str, props: Properties | None = None) -> Packet:
        """Its SUBACK. A filter without options: QoS 2."""
        pairs: list[tuple[str | bytes, int]] = [f if isinstance(f, tuple) else (f, 2) for f in filters]
        pid = self.pid()
        self.send(subscribe(pid, pairs, self.version, props))
        found = self.expect(SUBACK)
        assert found.pid == pid and len(found.codes) == len(pairs), found
        return found

    def publish(self, topic: str | bytes, payload: bytes, qos: int = 1, **more: Any) -> Packet | None:
        """Until it is acknowledged in full; the (first) acknowledgement."""
        pid = self.pid() if qos else 0
        self.send(publish(topic, payload, self.version, qos=qos, pid=pid, **more))
        if not qos:
            return None
        found = self.expect(PUBACK if qos == 1 else PUBREC)
        assert found.pid == pid, found
        if qos == 2 and found.code < 0x80:
            self.send(ack(PUBREL, pid))
            assert self.expect(PUBCOMP).pid == pid
        return found

    def message(self, seconds: float | None = None) -> Packet:
        """The next PUBLISH, acknowledged as its QoS demands."""
        found = self.expect(PUBLISH, seconds)
        if found.qos == 1:
            self.send(ack(PUBACK, found.pid))
        elif found.qos == 2:
            self.send(ack(PUBREC, found.pid))
            assert self.expect(PUBREL).pid == found.pid
            self.send(ack(PUBCOMP, found.pid))
        return found

    def ping(self) -> None:
        self.send(PING)
        self.expect(PINGRESP)

    def refused(self, *codes: int) -> None:
        """The server closes; in version 5 it says one of the codes before."""
        found = self.next()
        if self.version == 5 and codes:
            assert found is not None and found.kind in (DISCONNECT, CONNACK), found
            assert found.code in codes, found
            found = self.next()
        assert found is None, found

    def leave(self) -> None:
        """DISCONNECT, until the server has closed."""
        self.send(disconnect(self.version))
        while self.next() is not None:
            pass
        self.socket.close()

    def cut(self) -> None:
        """End the connection as a crash does."""
        self.socket.close()
