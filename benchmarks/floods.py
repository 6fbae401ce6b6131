"""Cost of one client's flood for the others: a well-behaved client measures its latency while another one floods.

    python -m benchmarks floods            (python -m benchmarks.floods -h: options)

Against a router and a broker of their own process, in turn: the well-behaved client sends one small message after the
other and waits until it is received; each kind of flood is made of frames that are legal by themselves, prepared in
bulk and written as fast as the server reads.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import broker, router
from benchmarks.harness import ROOT, Server, line, tell
from benchmarks.manage import create_queue
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
    decode_performative,
    encode_performative,
)
from enmasse.load.amqp import DISPOSITION, FLOW, TRANSFER, frame

WINDOW = 2**31 - 1
BEGIN = 0x11
PLACES = ("router", "broker")
VICTIM, FLOODED = "victim", "flooded"


def encoded(performative: Any, channel: int = 0) -> bytes:
    return frame(encode_performative(performative), channel)


def attach(name: str, handle: int, receiver: bool, address: str = FLOODED) -> bytes:
    return encoded(
        Attach(
            name=name,
            handle=handle,
            role=receiver,
            source=Source(address=address),
            target=Target(address=address),
            initial_delivery_count=None if receiver else 0,
        )
    )


def flow(**fields: Any) -> bytes:
    return encoded(
        Flow(next_incoming_id=0, incoming_window=WINDOW, next_outgoing_id=0, outgoing_window=WINDOW, **fields)
    )


def credit(amount: int, **fields: Any) -> bytes:
    return flow(handle=0, delivery_count=0, link_credit=amount, **fields)


# Each kind: frames that are written once, frames that are written again and again (None: see `stream`).
def _attaches() -> tuple[bytes, bytes]:
    return b"".join(attach(f"l{n}", n, n % 2 == 0) for n in range(60_000)), b""


def _attach_detach() -> tuple[bytes, bytes]:
    return b"", b"".join(attach(f"l{n}", 0, n % 2 == 0) + encoded(Detach(handle=0, closed=True)) for n in range(5000))


def _one_name() -> tuple[bytes, bytes]:
    return b"", (attach("same", 0, True) + encoded(Detach(handle=0, closed=True))) * 5000


def _refused() -> tuple[bytes, bytes]:
    pair = attach("l", 0, True, "$no/such::place") + encoded(Detach(handle=0, closed=True))
    return b"", pair * 5000


def _begins() -> tuple[bytes, bytes]:
    begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
    return b"", (encoded(End()) + encoded(begin)) * 5000


def _drains() -> tuple[bytes, bytes]:
    return attach("l", 0, True), credit(10, drain=True) * 5000


def _dispositions() -> tuple[bytes, bytes]:
    one = encoded(Disposition(role=False, first=1, last=1, settled=True, state=ACCEPTED))
    return b"", one * 10_000


def _repeated_names() -> tuple[bytes, bytes]:
    return b"".join(attach("same", n, n % 2 == 0) for n in range(60_000)), b""


KINDS: dict[str, Callable[[], tuple[bytes, bytes]]] = {
    "nothing": lambda: (b"", b""),
    "empty frames": lambda: (b"", frame(b"") * 20_000),
    "flows": lambda: (attach("l", 0, True), credit(10) * 10_000),
    "session flows with echo": lambda: (b"", flow(echo=True) * 10_000),
    "link flows with echo": lambda: (attach("l", 0, True), credit(10, echo=True) * 10_000),
    "drains": _drains,
    "dispositions": _dispositions,
    "begin, end": _begins,
    "attaches": _attaches,
    "attaches of one name": _repeated_names,
    "attach, detach": _attach_detach,
    "attach, detach of one name": _one_name,
    "attaches that are refused": _refused,
    "transfers of 0 bytes": lambda: (b"", b""),
    "connects": lambda: (b"", b""),
    "connects, silent": lambda: (b"", b""),
}


def flood(args: argparse.Namespace) -> None:
    """One process: floods until its standard input is closed; reports how many bytes and connections were accepted."""
    kind = args.kind
    once, again = KINDS[kind]()
    sent = connections = 0
    print("ready", flush=True)
    stop = select.poll()
    stop.register(sys.stdin, select.POLLIN | select.POLLHUP)
    while not stop.poll(0):
        with contextlib.suppress(OSError):
            connections += 1
            if kind == "nothing":
                stop.poll(1000)
            elif kind.startswith("connects"):
                connect(args, kind == "connects, silent")
            elif kind == "transfers of 0 bytes":
                sent += transfers(args, stop)
            else:
                sent += write(args, stop, once, again)
    print(json.dumps({"sent": sent, "connections": connections}), flush=True)


def connect(args: argparse.Namespace, silent: bool) -> None:
    with socket.create_connection((args.host, args.port)) as sock:
        if not silent:
            sock.sendall(b"AMQP\x00\x01\x00\x00" + encoded(Open(container_id="flood")) + encoded(Close()))
            while sock.recv(65536):
                pass
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def connected(args: argparse.Namespace, container: str) -> tuple[socket.socket, bytes]:
    """Return a connection with a session, and what has come after it. Raises ConnectionError."""
    sock = socket.create_connection((args.host, args.port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
    opening = Open(container_id=container, hostname=args.host, max_frame_size=65536, channel_max=0)
    sock.sendall(b"AMQP\x00\x01\x00\x00" + encoded(opening) + encoded(begin))
    buffer, at, code = b"", 8, 0
    while code != BEGIN:
        while len(buffer) < at + 8 or len(buffer) < at + int.from_bytes(buffer[at : at + 4]):
            data = sock.recv(1 << 16)
            if not data:
                raise ConnectionError("the peer closed the connection")
            buffer += data
        code, at = buffer[at + 10], at + int.from_bytes(buffer[at : at + 4])
    return sock, buffer[at:]


def write(args: argparse.Namespace, stop: select.poll, once: bytes, again: bytes) -> int:
    """Write the prepared frames as fast as they are read, and discard the answers."""
    sock, _ = connected(args, f"flood-{time.time_ns()}")
    sock.setblocking(False)
    sent = 0
    pending = memoryview(once or again)
    with sock:
        while not stop.poll(0):
            readable, writable, _ = select.select([sock], [sock] if pending else [], [], 0.5)
            with contextlib.suppress(BlockingIOError):
                if writable:
                    many = sock.send(pending)
                    sent += many
                    pending = pending[many:] or memoryview(again)
                if readable and not sock.recv(1 << 20):
                    break
    return sent


def transfers(args: argparse.Namespace, stop: select.poll) -> int:
    """Empty messages as fast as credit comes, to a consumer on the same connection. Raises ConnectionError."""
    sock, buffer = connected(args, f"flood-{time.time_ns()}")
    sock.sendall(attach("s", 0, False) + attach("r", 1, True))
    got = sent = limit = topped = 0
    sock.sendall(flow(handle=1, delivery_count=0, link_credit=100_000))
    while not stop.poll(0):
        at = 0
        while len(buffer) - at >= 11 and len(buffer) - at >= (size := struct.unpack_from(">I", buffer, at)[0]):
            code = buffer[at + 10]
            if code == TRANSFER:
                got += 1
            elif code == FLOW:
                p = decode_performative(buffer, at + 8, at + size)[0]
                if p.handle == 0:
                    limit = (p.delivery_count or 0) + (p.link_credit or 0)
            elif code != DISPOSITION and code != 0x12:
                raise ConnectionError("closed")
            at += size
        buffer = buffer[at:]
        out = b""
        if got - topped > 10_000:
            topped = got
            out = encoded(
                Flow(
                    next_incoming_id=got,
                    incoming_window=WINDOW,
                    next_outgoing_id=sent,
                    outgoing_window=WINDOW,
                    handle=1,
                    delivery_count=got,
                    link_credit=100_000,
                )
            )
        body = b"\x00\x53\x77\xa0\x00"  # an amqp-value of no bytes
        for n in range(sent, max(sent, limit)):
            tag = n.to_bytes(4, "big")
            transfer = Transfer(handle=0, delivery_id=n, delivery_tag=tag, settled=True, message_format=0)
            out += frame(encode_performative(transfer) + body)
        sent = max(sent, limit)
        if out:
            sock.sendall(out)
        if select.select([sock], [], [], 0.2)[0]:
            data = sock.recv(1 << 20)
            if not data:
                break
            buffer += data
    return got


def victim(args: argparse.Namespace) -> None:
    """One process: messages there and back, one at a time. A first line of input begins the count, a second ends it.

    Raises ConnectionError if the well-behaved client is disconnected.
    """
    sock, buffer = connected(args, "victim")
    sock.sendall(attach("s", 0, False, VICTIM) + attach("r", 1, True, VICTIM))
    sock.sendall(flow(handle=1, delivery_count=0, link_credit=1_000_000))
    waits: list[float] = []
    body = b"\x00\x53\x77\xa0\x08"
    sent = limit = 0
    got = True
    began = time.monotonic()
    stop = select.poll()
    stop.register(sys.stdin, select.POLLIN | select.POLLHUP)
    print("ready", flush=True)
    counting = False
    while True:
        if stop.poll(0):
            sys.stdin.readline()
            if counting:
                break
            counting, began = True, time.monotonic()
            waits.clear()
        if got and sent < limit:
            began, got = time.monotonic(), False
            transfer = Transfer(handle=0, delivery_id=sent, delivery_tag=sent.to_bytes(4, "big"), message_format=0)
            sock.sendall(frame(encode_performative(transfer) + body + sent.to_bytes(8, "big")))
            sent += 1
        if not select.select([sock], [], [], 0.2)[0]:
            continue
        data = sock.recv(1 << 18)
        if not data:
            raise ConnectionError("the well-behaved client was cut off")
        buffer += data
        at = 0
        while len(buffer) - at >= 8 and len(buffer) - at >= (size := struct.unpack_from(">I", buffer, at)[0]):
            p = decode_performative(buffer, at + 8, at + size)[0] if size > 8 else None
            if isinstance(p, Transfer) and p.delivery_id is not None:
                waits.append(time.monotonic() - began)
                got = True
                answer = Disposition(role=True, first=p.delivery_id, last=p.delivery_id, settled=True, state=ACCEPTED)
                sock.sendall(encoded(answer))
                time.sleep(0.001)
            elif isinstance(p, Flow) and p.handle == 0:
                limit = (p.delivery_count or 0) + (p.link_credit or 0)
            at += size
        buffer = buffer[at:]
    if not got or not waits:
        waits.append(time.monotonic() - began)
    waits.sort()
    ms = [round(1000 * waits[min(len(waits) - 1, int(q * len(waits)))], 1) for q in (0.5, 0.99, 1.0)]
    print(json.dumps({"count": len(waits), "p50": ms[0], "p99": ms[1], "max": ms[2]}), flush=True)


def process(what: str, server: Server, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.floods", what, "--port", str(server.port), *more]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


@contextlib.contextmanager
def place(name: str) -> Iterator[Server]:
    """A server of its own, with what the clients need."""
    with router.embedded() if name == "router" else broker.embedded() as server:
        if name == "broker":
            create_queue(server.port, VICTIM)
            create_queue(server.port, FLOODED)
        yield server


def measure(server: Server, kind: str, seconds: float) -> dict[str, Any]:
    before = server.rss()
    quiet = process("victim", server)
    line(quiet)
    flooder = process("flood", server, "--kind", kind)
    line(flooder)
    tell(quiet)
    time.sleep(seconds)
    tell(quiet)
    result = dict(json.loads(line(quiet)))
    tell(flooder)
    try:
        result |= json.loads(line(flooder))
    finally:
        for each in (quiet, flooder):
            each.kill()
            each.wait()
    return result | {"rss": (server.rss() - before) / 1e6}


def main(places: tuple[str, ...] = PLACES, kinds: tuple[str, ...] = tuple(KINDS), seconds: float = 5) -> None:
    print(f"{'at':<8}{'flood':<30}{'p50':>8}{'p99':>9}{'max':>9} ms   taken")
    for at in places:
        for kind in kinds:
            with place(at) as server:
                r = measure(server, kind, seconds)
            taken = f"{r['sent'] / 1e6:.1f} MB" if r["sent"] else ""
            taken += f" {r['connections']} connections, memory {r['rss']:+.0f} MB"
            print(f"{at:<8}{kind:<30}{r['p50']:>8}{r['p99']:>9}{r['max']:>9}      {taken}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["compare", "flood", "victim"], nargs="?", default="compare")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--kind", choices=list(KINDS))
    parser.add_argument("--at", choices=PLACES, nargs="+", default=PLACES)
    parser.add_argument("--kinds", choices=list(KINDS), nargs="+", default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    if options.what == "compare":
        main(tuple(options.at), tuple(options.kinds), options.seconds)
    else:
        {"flood": flood, "victim": victim}[options.what](options)
