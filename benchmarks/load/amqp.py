"""AMQP load that is not the limit: frames are made and counted in bulk with numpy, not one by one.

The usual clients cost more per message than a router does, so what they measure is themselves. Here the frames of a
burst are one array: delivery-ids, tags and time stamps are written as columns, and answers are counted by
looking at every frame's size and code at a stride. Both sides of a comparison are driven by this same program.

One process is one peer: `python -m benchmarks.load.amqp send|receive …` prints one JSON object when it has ended.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import socket
import struct
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.load.common import Bytes, barrier, latencies, parser, run
from enmasse.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    decode_performative,
    encode_performative,
)
from enmasse.amqp.types import Symbol

TRANSFER = 0x14
DISPOSITION = 0x15
FLOW = 0x13
NEVER = 2**31 - 1
WINDOW = 2**31 - 1


def frame(channel: int, body: bytes) -> bytes:
    """One AMQP frame (section 2.3)."""
    return struct.pack(">IBBH", len(body) + 8, 2, 0, channel) + body


def sasl_init(args: argparse.Namespace) -> SaslInit | None:
    """Return how to log in by the options; None: without SASL."""
    if args.user:
        return SaslInit(mechanism=Symbol("PLAIN"), initial_response=f"\0{args.user}\0{args.password}".encode())
    return SaslInit(mechanism=Symbol("ANONYMOUS")) if args.sasl else None


class Peer:
    """One connection with one session and one link, driven by hand."""

    def __init__(self, host: str, port: int, container: str, init: SaslInit | None = None) -> None:
        self.socket = socket.create_connection((host, port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
        self.buffer = b""
        if init is not None:  # pipelined: protocol header and sasl-init at once (section 5.3)
            body = encode_performative(init)
            self.socket.sendall(b"AMQP\x03\x01\x00\x00" + struct.pack(">IBBH", len(body) + 8, 2, 1, 0) + body)
            self._expect_header(3)
            while True:
                code, body, _ = self._next_frame()
                if code == 0x44:
                    outcome = decode_performative(body, 0, len(body))[0]
                    if outcome.code:
                        raise ConnectionError(f"the login is refused with code {outcome.code}")
                    break
        self.socket.sendall(b"AMQP\x00\x01\x00\x00")
        self._send(Open(container_id=container, hostname=host, max_frame_size=65536, channel_max=0))
        self._send(Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        self._expect_header(0)
        self._await(0x10)
        self._await(0x11)

    def attach(self, role_receiver: bool, address: str, settled: bool) -> Any:
        """Attach the one link; returns the peer's attach."""
        attach = Attach(
            name=f"load-{address}-{'r' if role_receiver else 's'}-{time.time_ns()}",
            handle=0,
            role=role_receiver,
            snd_settle_mode=1 if settled else 0,
            rcv_settle_mode=0,
            source=Source(address=address),
            target=Target(address=address),
            initial_delivery_count=None if role_receiver else 0,
        )
        self._send(attach)
        return self._await(0x12)

    def flow(self, delivery_count: int, credit: int, incoming: int) -> bytes:
        return frame(
            0,
            encode_performative(
                Flow(
                    next_incoming_id=incoming,
                    incoming_window=WINDOW,
                    next_outgoing_id=0,
                    outgoing_window=WINDOW,
                    handle=0,
                    delivery_count=delivery_count,
                    link_credit=credit,
                )
            ),
        )

    def close(self) -> None:
        try:
            self._send(Close())
            self.socket.close()
        except OSError:
            pass

    def _send(self, performative: Any) -> None:
        self.socket.sendall(frame(0, encode_performative(performative)))

    def _fill(self, size: int) -> None:
        while len(self.buffer) < size:
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the peer closed the connection")
            self.buffer += data

    def _expect_header(self, protocol: int) -> None:
        self._fill(8)
        header, self.buffer = self.buffer[:8], self.buffer[8:]
        if header != b"AMQP" + bytes([protocol, 1, 0, 0]):
            raise ConnectionError(f"unexpected protocol header {header!r}")

    def _next_frame(self) -> tuple[int, bytes, int]:
        self._fill(8)
        (size,) = struct.unpack_from(">I", self.buffer)
        self._fill(size)
        body, self.buffer = self.buffer[8:size], self.buffer[size:]
        return (body[2] if body else 0), body, size

    def _await(self, wanted: int) -> Any:
        while True:
            code, body, _ = self._next_frame()
            if code == wanted:
                return decode_performative(body, 0, len(body))[0]
            if code in (0x16, 0x17, 0x18):
                raise ConnectionError(f"refused: {decode_performative(body, 0, len(body))[0]!r}")


def template(size: int, settled: bool, durable: bool) -> tuple[bytes, int, int, int]:
    """A transfer frame with 4-byte delivery-id and tag; returns (frame, id offset, tag offset, payload offset)."""
    head = b"\x00\x53\x70\xc0\x02\x01\x41" if durable else b""  # header: durable
    data = b"\x00\x53\x75\xb0" + struct.pack(">I", size) + b"\x00" * size
    fields = (
        b"\x43" + b"\x70\x00\x00\x00\x00" + b"\xa0\x04\x00\x00\x00\x00" + b"\x43" + (b"\x41" if settled else b"\x42")
    )
    body = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 5]) + fields
    whole = frame(0, body + head + data)
    at = 8 + 6 + 1 + 1
    return whole, at, at + 4 + 2, 8 + len(body) + len(head) + 8


def burst(proto: Bytes, spots: tuple[int, int, int], first: int, count: int, due: NDArray[Any] | None) -> bytes:
    """`count` transfers with ids from `first`; the payload begins with the time (ns) each was due."""
    frames = np.tile(proto, (count, 1))
    ids = (np.arange(first, first + count, dtype=np.uint64) & 0xFFFFFFFF).astype(">u4").view(np.uint8).reshape(count, 4)
    frames[:, spots[0] : spots[0] + 4] = ids
    frames[:, spots[1] : spots[1] + 4] = ids
    times = due if due is not None else np.full(count, time.monotonic_ns(), dtype=np.int64)
    frames[:, spots[2] : spots[2] + 8] = times.astype(">i8").view(np.uint8).reshape(count, 8)
    return frames.tobytes()


def runs(buffer: bytes, code: int) -> tuple[int, int, int]:
    """Leading frames of one size and code, counted at a stride: (how many, their size, the bytes they take)."""
    if len(buffer) < 8:
        return 0, 0, 0
    (size,) = struct.unpack_from(">I", buffer)
    if size > len(buffer) or size < 12 or buffer[10] != code:
        return 0, size, 0
    whole = len(buffer) // size
    if whole > 1:
        grid = np.frombuffer(buffer, np.uint8, whole * size).reshape(whole, size)
        same = (grid[:, :4] == grid[0, :4]).all(axis=1) & (grid[:, 10] == code)
        whole = whole if same.all() else int(np.argmin(same))
    return whole, size, whole * size


def send(args: argparse.Namespace) -> dict[str, Any]:
    """Send `count` messages as credit and window allow; counts what the peer accepted. Raises ConnectionError."""
    peer = Peer(args.host, args.port, f"load-send-{args.tag}", sasl_init(args))
    peer.attach(False, args.address, args.presettled)
    whole, *spots = template(args.size, args.presettled, args.durable)
    proto = np.frombuffer(whole, np.uint8)
    places = (spots[0], spots[1], spots[2])
    sock = peer.socket
    sock.setblocking(False)
    pending = memoryview(b"")
    sent = settled = limit = accepted = 0
    interval = 1e9 / args.rate if args.rate else 0.0
    start = time.monotonic_ns()
    began = 0
    ready_told = False
    while settled < args.count:
        room = min(limit - sent, args.count - sent, args.window - (sent - settled), 512)
        now = time.monotonic_ns()
        if limit and not ready_told:
            ready_told = True
            barrier(args, "ready")
            start = began = time.monotonic_ns()
            now = start
        due = None
        if interval:
            room = min(room, int((now - start) / interval) + 1 - sent)
            if room > 0:
                due = (start + interval * np.arange(sent, sent + room)).astype(np.int64)
        if room > 0 and not pending:
            pending = memoryview(burst(proto, places, sent, room, due))
            sent += room
            if args.presettled:
                settled += room
        timeout = None
        if interval and sent < args.count and limit > sent:
            timeout = max(0.0, (start + interval * sent - time.monotonic_ns()) / 1e9)
        if sent == 0 and peer.buffer:
            timeout = 0  # the first credit may have come together with the attach
        readable, writable, _ = select.select([sock], [sock] if pending else [], [], timeout)
        if writable:
            with contextlib.suppress(BlockingIOError):
                pending = pending[sock.send(pending) :]
        if readable or peer.buffer:
            data = sock.recv(1 << 18) if readable else b""
            if readable and not data:
                raise ConnectionError("the peer closed the connection")
            buffer = peer.buffer + data
            at = 0
            while len(buffer) - at >= 8:
                (size,) = struct.unpack_from(">I", buffer, at)
                if len(buffer) - at < size:
                    break
                code = buffer[at + 10] if size > 10 else 0
                if code in (DISPOSITION, FLOW) or code in (0x16, 0x17, 0x18):
                    p = decode_performative(buffer, at + 8, at + size)[0]
                    if code == DISPOSITION:
                        many = (p.last if p.last is not None else p.first) - p.first + 1
                        settled += many
                        if type(p.state).__name__ == "Accepted":
                            accepted += many
                    elif code == FLOW:
                        if p.handle is not None:
                            limit = (p.delivery_count or 0) + p.link_credit
                    else:
                        raise ConnectionError(f"refused: {p!r}")
                at += size
            peer.buffer = buffer[at:]
    ended = time.monotonic_ns()
    while pending:
        select.select([], [sock], [])
        pending = pending[sock.send(pending) :]
    if args.presettled:
        accepted = sent
    usage = time.process_time()
    barrier(args, "done")
    peer.close()
    return {"sent": sent, "settled": settled, "accepted": accepted, "seconds": (ended - began) / 1e9, "cpu": usage}


def receive(args: argparse.Namespace) -> dict[str, Any]:
    """Take and accept `count` messages; the time runs from the first to the last. Raises ConnectionError."""
    peer = Peer(args.host, args.port, f"load-receive-{args.tag}", sasl_init(args))
    peer.attach(True, args.address, args.presettled)
    sock = peer.socket
    sock.setblocking(True)
    sock.settimeout(args.timeout)
    sock.sendall(peer.flow(0, args.credit, 0))
    print("ready", flush=True)
    got = topped = 0
    first_at = 0
    delivery = -1
    waits: list[NDArray[Any]] = []
    buffer = peer.buffer
    payload_at = 0
    while got < args.count:
        data = sock.recv(1 << 18)
        if not data:
            raise ConnectionError(f"the peer closed the connection after {got} of {args.count}")
        now = time.monotonic_ns()
        first_at = first_at or now
        buffer = buffer + data if buffer else data
        fresh = 0
        while True:
            many, size, used = runs(buffer, TRANSFER)
            if many:
                if delivery < 0:
                    p = decode_performative(buffer, 8, size)[0]
                    delivery = p.delivery_id
                if args.latency:
                    payload_at = size - args.size
                    grid = np.frombuffer(buffer, np.uint8, used).reshape(many, size)
                    stamps = np.ascontiguousarray(grid[:, payload_at : payload_at + 8]).view(">i8").ravel()
                    waits.append(now - stamps.astype(np.int64))
                fresh += many
                buffer = buffer[used:]
                continue
            if len(buffer) < 8 or len(buffer) < struct.unpack_from(">I", buffer)[0]:
                break
            size = struct.unpack_from(">I", buffer)[0]
            if size > 10 and buffer[10] in (0x16, 0x17, 0x18):
                raise ConnectionError(f"closed: {decode_performative(buffer, 8, size)[0]!r}")
            buffer = buffer[size:]
        if fresh:
            got += fresh
            out = b""
            if not args.presettled:
                body = (
                    b"\x00\x53\x15\xd0"
                    + struct.pack(">II", 4 + 1 + 5 + 5 + 1 + 4, 5)
                    + b"\x41\x70"
                    + struct.pack(">I", (delivery + got - fresh) & 0xFFFFFFFF)
                    + b"\x70"
                    + struct.pack(">I", (delivery + got - 1) & 0xFFFFFFFF)
                    + b"\x41\x00\x53\x24\x45"
                )
                out = frame(0, body)
            if got - topped >= max(1, args.credit // 2):
                topped = got
                out += peer.flow(got, args.credit, got)
            if out:
                sock.sendall(out)
    ended = time.monotonic_ns()
    result: dict[str, Any] = {"received": got, "seconds": (ended - first_at) / 1e9, "cpu": time.process_time()}
    peer.close()
    return result | latencies(waits)


def main() -> None:
    options = parser(__doc__, ["send", "receive"])
    options.add_argument("--address", required=True)
    options.add_argument("--credit", type=int, default=1000)
    options.add_argument("--window", type=int, default=1000, help="most unsettled sends")
    options.add_argument("--presettled", action="store_true")
    options.add_argument("--durable", action="store_true")
    options.add_argument("--sasl", action="store_true", help="ANONYMOUS, or PLAIN if there is a user")
    options.add_argument("--user", default="")
    options.add_argument("--password", default="")
    options.add_argument("--tag", default="0")
    run(options, {"send": send, "receive": receive})


if __name__ == "__main__":
    main()
