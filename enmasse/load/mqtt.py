"""MQTT load that is not the limit: packets are made, acknowledged and counted in bulk. One process drives any number of
connections. Between reads it lets packets gather for a moment: a server that writes each packet on its own would
otherwise wake it for each of them, and pay for that.

`python -m enmasse.load.mqtt publish|subscribe|connect …` prints one JSON object when it has ended:

- publish: `--count` messages over `--connections`, at most `--window` of each not acknowledged. The time runs from the
  first to the last acknowledgement (QoS 0: to the last write).
- subscribe: prints "ready" when all have their SUBACK, takes and acknowledges `--count` messages in all; the time runs
  from the first to the last.
- connect: opens `--connections`, `--at-once` at a time; prints "ready", holds them, and for each line "again" on
  stdin drops them all and connects them again; ends with the end of stdin, or another line.

In a topic, client id, user or password "{}" is the number of the connection.
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from enmasse.load.fixed_rows import alike, column, fill, numbers, packed
from enmasse.load.load_process import barrier, latencies, parser, ready, run
from enmasse.mqtt import encode
from enmasse.mqtt.packets import V5, V311, ConnAck, Connect, Packet, Properties, SubAck, Subscribe, Subscription, Will
from enmasse.mqtt.reader import Reader

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x30, 0x40, 0x50, 0x60, 0x70
BURST = 1024
"""Messages in one write of a connection."""
GATHER, LONGEST_GATHER = 0.0002, 0.005
"""Seconds between two reads, for each connection and at most; with `--latency` and `--rate` there is no pause."""
READ = 1 << 20
NEVER = 0xFFFF_FFFF


class Peer:
    """One connection; blocking until `connected`, then not."""

    def __init__(self, args: argparse.Namespace, number: int) -> None:
        self.args = args
        self.number = number
        self.buffer = b""
        self.pending = memoryview(b"")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connect_packet(self) -> bytes:
        args = self.args
        client = args.client_id.replace("{}", str(self.number)) if args.client_id else ""
        values = Properties(session_expiry=NEVER) if args.version == V5 and args.persistent else Properties()
        will = Will(args.will.replace("{}", str(self.number)), b"lost", 1) if args.will else None
        user = args.user.replace("{}", str(self.number)) if args.user else None
        password = args.password.replace("{}", str(self.number)).encode() if args.user else None
        packet = Connect(client, not args.persistent, 0, user, password, will, values, args.version)
        return encode.encode(packet, args.version, True)

    def open(self) -> None:
        """Connect and wait for the CONNACK. Raises ConnectionError."""
        self.socket.settimeout(30)
        self.socket.connect((self.args.host, self.args.port))
        self.reader = Reader(server=False, version=self.args.version)
        answer = self.ask(self.connect_packet())
        if not isinstance(answer, ConnAck) or answer.reason:
            raise ConnectionError(f"CONNECT was answered by {answer!r}")

    def ask(self, data: bytes) -> Packet:
        self.socket.sendall(data)
        while True:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            for packet in self.reader.feed(data):
                return packet

    def subscribe(self) -> None:
        args = self.args
        topic = args.topic.replace("{}", str(self.number))
        answer = self.ask(encode.encode(Subscribe(1, (Subscription(topic, args.qos),)), args.version, True))
        if not isinstance(answer, SubAck) or answer.codes[0] >= 0x80:
            raise ConnectionError(f"SUBSCRIBE {topic} was answered by {answer!r}")

    def flush(self) -> bool:
        """Whether all is written."""
        if self.pending:
            with contextlib.suppress(BlockingIOError):
                self.pending = self.pending[self.socket.send(self.pending) :]
        return not self.pending

    def write(self, data: bytes | memoryview) -> None:
        self.pending = memoryview(bytes(self.pending) + data) if self.pending else memoryview(data)
        self.flush()

    def read(self) -> None:
        data = self.socket.recv(READ)
        if not data:
            raise ConnectionError("the server closed the connection")
        self.buffer = self.buffer + data if self.buffer else data

    def runs(self) -> Iterator[PacketRows]:
        """Take the leading packets that are alike in type, flags, length and topic length. An incomplete packet
        stays."""
        while len(self.buffer) >= 2:
            size, at = length(self.buffer)
            if not at or len(self.buffer) < size:
                return
            buffer = self.buffer
            fixed = at + 2 if buffer[0] & 0xF0 == PUBLISH else at
            many = alike(buffer, size, len(buffer) // size, range(fixed))
            self.buffer = buffer[many * size :]
            yield PacketRows(buffer, size, many, at)

    def drop(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.setblocking(True)
            self.socket.sendall(b"\xe0\0")
        self.socket.close()


class PacketRows(NamedTuple):
    """The first `many` packets of `size` bytes in a text; `body`: where the variable header begins in each."""

    text: bytes
    size: int
    many: int
    body: int

    @property
    def kind(self) -> int:
        """Return the type of the packets."""
        return self.text[0] & 0xF0

    def ids(self, at: int) -> bytes:
        """Return the column of the packet ids, which are at `at` of each packet."""
        return column(self.text, self.size, self.many, at, 2)


def length(buffer: bytes) -> tuple[int, int]:
    """The size of the first packet and where its body begins; (0, 0) if that is not there yet."""
    size = shift = 0
    for at in range(1, min(5, len(buffer))):
        size |= (buffer[at] & 0x7F) << shift
        if buffer[at] < 0x80:
            return size + at + 1, at + 1
        shift += 7
    return 0, 0


def acks(head: int, ids: bytes) -> bytes:
    """Acknowledgements for a column of packet ids."""
    out = bytearray(bytes([head, 2, 0, 0]) * (len(ids) // 2))
    fill(out, 4, 2, ids, 2)
    return bytes(out)


class LoadPublisher(Peer):
    def __init__(self, args: argparse.Namespace, number: int) -> None:
        super().__init__(args, number)
        self.sent = self.complete = self.refused = 0
        self.count = args.count // args.connections + (number < args.count % args.connections)
        topic = encode.topic_field(args.topic.replace("{}", str(number)))
        values = b"\0" if args.version == V5 else b""
        flags = args.qos << 1 | args.retain
        self.proto = encode.publish(flags, topic, 1, values, b"\0" * args.size)
        self.payload_at = len(self.proto) - args.size
        self.id_at = self.payload_at - len(values) - 2
        self.same = memoryview(self.proto * BURST)
        """A burst at QoS 0 without time stamps: its packets do not differ."""

    def send(self, most: int) -> None:
        """As many messages as the window has room for."""
        args = self.args
        room = min(self.count - self.sent, most)
        if args.qos:
            room = min(room, args.window - (self.sent - self.complete))
        if room <= 0 or self.pending:
            return
        if not args.qos and not args.rate:
            self.sent += room
            self.complete += room
            self.write(self.same[: room * len(self.proto)])
            return
        rows, size = bytearray(self.proto * room), len(self.proto)
        if args.qos:
            ids = [number % 65535 + 1 for number in range(self.sent, self.sent + room)]
            fill(rows, size, self.id_at, packed(ids, 2), 2)
        if args.size >= 8:
            fill(rows, size, self.payload_at, packed([time.monotonic_ns()], 8) * room, 8)
        self.sent += room
        if not args.qos:
            self.complete += room
        self.write(bytes(rows))

    def take(self) -> None:
        for rows in self.runs():
            if rows.kind == PUBREC:
                self.write(acks(0x62, rows.ids(rows.body)))
            elif rows.kind in (PUBACK, PUBCOMP):
                self.complete += rows.many
                if rows.size > 4 and rows.text[rows.body + 2] >= 0x80:
                    self.refused += rows.many
            else:
                raise ConnectionError(f"a publisher got packet type {rows.kind >> 4}")


def publish(args: argparse.Namespace) -> dict[str, Any]:
    peers = [LoadPublisher(args, number) for number in range(args.connections)]
    poll = selectors.DefaultSelector()
    for peer in peers:
        peer.open()
        peer.socket.setblocking(False)
        poll.register(peer.socket, selectors.EVENT_READ, peer)
    barrier(args, "ready")
    began, used = time.monotonic_ns(), time.process_time()
    active = set(peers)
    start = began / 1e9
    waiting: deque[LoadPublisher] = deque(peers)
    allowed = NEVER
    total = 0
    writing: set[LoadPublisher] = set()
    while active:
        if args.rate:
            allowed = int((time.monotonic_ns() / 1e9 - start) * args.rate) + 1 - total
        for _ in range(len(waiting)):
            peer = waiting.popleft()
            before = peer.sent
            peer.send(min(BURST, max(0, allowed)))
            allowed -= peer.sent - before
            total += peer.sent - before
            if peer.pending and peer not in writing:
                writing.add(peer)
                poll.modify(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
            if (args.rate and peer.sent < peer.count) or (not args.qos and not peer.pending and peer.sent < peer.count):
                waiting.append(peer)
            if peer.complete >= peer.count and not peer.pending:
                active.discard(peer)
        if not active:
            break
        if not waiting and not args.rate:
            time.sleep(min(GATHER * args.connections, LONGEST_GATHER))
        for key, events in poll.select(0.001 if args.rate else 0 if waiting else args.timeout):
            peer = key.data
            if events & selectors.EVENT_READ:
                peer.read()
                peer.take()
            if peer.flush() and peer in writing:
                writing.discard(peer)
                poll.modify(peer.socket, selectors.EVENT_READ, peer)
            if not args.rate and peer not in waiting:
                waiting.append(peer)
            if peer.complete >= peer.count and not peer.pending:
                active.discard(peer)
    ended, used = time.monotonic_ns(), time.process_time() - used
    barrier(args, "done")
    for peer in peers:
        peer.close()
    return {
        "sent": sum(peer.sent for peer in peers),
        "complete": sum(peer.complete for peer in peers),
        "refused": sum(peer.refused for peer in peers),
        "seconds": (ended - began) / 1e9,
        "cpu": used,
    }


def subscribe(args: argparse.Namespace) -> dict[str, Any]:
    peers = [Peer(args, number) for number in range(args.connections)]
    poll = selectors.DefaultSelector()
    for peer in peers:
        peer.open()
        peer.subscribe()
        peer.socket.setblocking(False)
        poll.register(peer.socket, selectors.EVENT_READ, peer)
    ready()
    used = time.process_time()
    got = first_at = ended = 0
    ids_seen: dict[Peer, set[int]] = {peer: set() for peer in peers}
    waits: list[int] = []
    duplicates = 0
    while got < args.count or any(ids_seen.values()):
        if not args.latency:
            time.sleep(min(GATHER * args.connections, LONGEST_GATHER))
        events = poll.select(args.timeout)
        if not events and args.lossy and got:
            break
        if not events:
            raise TimeoutError(f"{got} of {args.count} messages, then none for {args.timeout:g} s")
        now = ended = time.monotonic_ns()
        first_at = first_at or now
        for key, _ in events:
            peer = key.data
            peer.read()
            for rows in peer.runs():
                if rows.kind == PUBREL:
                    ids = rows.ids(rows.body)
                    ids_seen[peer].difference_update(numbers(ids, 2))
                    peer.write(acks(PUBCOMP, ids))
                    continue
                if rows.kind != PUBLISH:
                    raise ConnectionError(f"a subscriber got packet type {rows.kind >> 4}")
                qos = rows.text[0] >> 1 & 3
                id_at = rows.body + 2 + int.from_bytes(rows.text[rows.body : rows.body + 2])
                fresh = rows.many
                if qos == 1:
                    peer.write(acks(PUBACK, rows.ids(id_at)))
                elif qos == 2:
                    ids = rows.ids(id_at)
                    peer.write(acks(PUBREC, ids))
                    found = set(numbers(ids, 2))
                    duplicates += len(found & ids_seen[peer])
                    fresh = len(found - ids_seen[peer])
                    ids_seen[peer] |= found
                got += fresh
                if args.latency:
                    stamps = column(rows.text, rows.size, rows.many, rows.size - args.size, 8)
                    waits += [now - stamp for stamp in numbers(stamps, 8)]
            if not peer.flush():
                poll.modify(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
            elif key.events & selectors.EVENT_WRITE:
                poll.modify(peer.socket, selectors.EVENT_READ, peer)
    result = {
        "received": got,
        "duplicates": duplicates,
        "seconds": (ended - first_at) / 1e9,
        "cpu": time.process_time() - used,
        **latencies(waits),
    }
    for peer in peers:
        peer.close()
    return result


def connect(args: argparse.Namespace) -> dict[str, Any]:
    seconds: list[float] = []
    while True:
        began = time.monotonic()
        peers = _connect_all(args)
        seconds.append(time.monotonic() - began)
        ready()
        if sys.stdin.readline().strip() != "again":
            break
        for peer in peers:
            peer.drop()
    for peer in peers:
        peer.close()
    return {"connections": args.connections, "seconds": seconds, "cpu": time.process_time()}


def _connect_all(args: argparse.Namespace) -> list[Peer]:
    """All connections, each with its CONNACK; `--at-once` are on their way at a time."""
    poll = selectors.DefaultSelector()
    peers: list[Peer] = []
    done = 0
    while done < args.connections:
        while len(peers) < args.connections and len(peers) - done < args.at_once:
            peer = Peer(args, len(peers))
            peer.socket.setblocking(False)
            peer.socket.connect_ex((args.host, args.port))
            poll.register(peer.socket, selectors.EVENT_WRITE, peer)
            peers.append(peer)
        events = poll.select(args.timeout)
        if not events:
            raise TimeoutError(f"{done} of {args.connections} connections, then none for {args.timeout:g} s")
        for key, event in events:
            peer = key.data
            if event & selectors.EVENT_WRITE:
                error = peer.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, "cannot connect")
                peer.socket.send(peer.connect_packet())
                poll.modify(peer.socket, selectors.EVENT_READ, peer)
                continue
            peer.read()
            size, at = length(peer.buffer)
            if at and len(peer.buffer) >= size:
                if peer.buffer[0] != 0x20 or peer.buffer[at + 1]:
                    raise ConnectionError(f"CONNECT was answered by {peer.buffer!r}")
                peer.buffer = b""
                poll.unregister(peer.socket)
                done += 1
    return peers


def main() -> None:
    options = parser(__doc__, ["publish", "subscribe", "connect"])
    options.add_argument("--topic", default="bench", help="topic or filter")
    options.add_argument("--qos", type=int, default=0, choices=[0, 1, 2])
    options.add_argument("--retain", action="store_true")
    options.add_argument("--version", type=int, default=V5, choices=[V311, V5])
    options.add_argument("--window", type=int, default=200, help="most unacknowledged messages of a connection")
    options.add_argument("--connections", type=int, default=1)
    options.add_argument("--at-once", type=int, default=200, help="connections on their way at a time")
    options.add_argument("--client-id", default="")
    options.add_argument("--user", default="", help="user name; without it clients are anonymous")
    options.add_argument("--password", default="")
    options.add_argument("--persistent", action="store_true", help="sessions that stay (needs --client-id)")
    options.add_argument("--will", default="", help="topic of a will of each connection")
    options.add_argument("--lossy", action="store_true", help="subscribe: end with what came before --timeout")
    run(options, {"publish": publish, "subscribe": subscribe, "connect": connect})


if __name__ == "__main__":
    main()
