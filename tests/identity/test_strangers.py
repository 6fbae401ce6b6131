"""Peers that send as much as they can and do not log in, at every port on which a running suite listens."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from enmasse.amqp.codec.frames import HEADER
from enmasse.testing import Suite, running
from tests.identity.kit import AMQP_HEADER, SASL_HEADER
from tests.identity.test_running_suite import ADDRESSES, USERS, inner_ports, other_ports, port_of, processes, settings
from tests.kit.waiting import DEADLINE, wait_for

FEW, PEERS = 16, 64
MOST, MOST_TLS = 64 << 10, 96 << 10
"""Bytes that a peer may cost, and one with TLS: its own state and buffers come on top."""
TIMES = 3
SENT = 4 << 20
"""Bytes that each peer tries to send."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("suite"), ADDRESSES, options=("--tls", "auto")) as started:
        (started.config / "users.json").write_text(json.dumps(USERS))
        started.up()
        started.wait_ready()
        yield started


def masked(size: int) -> bytes:
    """Return the head of a WebSocket frame with `size` bytes."""
    return b"\x82\xff" + size.to_bytes(8, "big") + b"\0\0\0\0"


UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
UPGRADE_AMQP = UPGRADE.replace(b"Protocol: mqtt", b"Protocol: amqp")
LENGTH = b"%b %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n"
CHUNKED = LENGTH.replace(b"Content-Length: 4000000\r\n", b"Transfer-Encoding: chunked\r\n") + b"400000\r\n"
CONNECT = b"\x10\xc4\xbf\x02\x00\x04MQTT\x05\x06\x00\x3c"
"""Of a CONNECT with 40 KiB, the first bytes: a will with a topic and a long payload is to follow."""

PARTS: dict[str, tuple[tuple[bytes, ...], ...]] = {
    "amqp": (
        (SASL_HEADER + HEADER(8192, 2, 1, 0),),
        (SASL_HEADER + HEADER(16384, 2, 1, 0),),
        (AMQP_HEADER + HEADER(65536, 2, 0, 0),),
        (AMQP_HEADER + HEADER(1 << 30, 2, 0, 0),),
    ),
    "mqtt": ((CONNECT + b"\0\0\0\1a\0\0\1t\xbf\x00",), (b"\x10\xff\xff\xff\x7f",)),
    "ws": (
        (UPGRADE, masked(4 << 20) + CONNECT),
        (UPGRADE, masked(40 << 10)),
        (b"GET /mqtt HTTP/1.1\r\nX: ",),
        (UPGRADE_AMQP, masked(4 << 20) + SASL_HEADER),
        (UPGRADE_AMQP, masked(16) + SASL_HEADER + HEADER(8192, 2, 1, 0), masked(7000)),
    ),
    "console": (
        (LENGTH % (b"POST", b"/api/v1/login"),),
        (CHUNKED % (b"POST", b"/api/v1/login"),),
        (LENGTH % (b"PUT", b"/api/v1/addresses/a"),),
        (LENGTH % (b"POST", b"/api/v1/addresses/orders/messages"),),
        (LENGTH % (b"POST", b"/api/v1/addresses/orders/remove"),),
        (LENGTH % (b"POST", b"/api/v1/config"),),
        (LENGTH % (b"POST", b"/api/force"),),
        (LENGTH % (b"GET", b"/"),),
        (b"GET / HTTP/1.1\r\nX: ",),
    ),
    "http": (
        (LENGTH % (b"POST", b"/api/v1/config"),),
        (LENGTH % (b"POST", b"/api/force"),),
        (b"POST /api/suite HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",),
        (b"GET /metrics HTTP/1.1\r\nX: ",),
    ),
}
"""By protocol: kinds of beginnings, which any bytes follow. Of several parts each but the first is sent once something
has come back."""
ALMOST = 40
"""Kilobytes of what COMPLETE begins: less than a whole packet."""
COMPLETE = (PARTS["mqtt"][0][-1], PARTS["ws"][1][-1])


@dataclass
class Door:
    """A port: protocol, and whether it has TLS."""

    protocol: str
    tls: bool = False


OF_GATEWAYS = {"mqtt": Door("mqtt"), "mqtts": Door("mqtt", True), "ws": Door("ws"), "wss": Door("ws", True)}


def doors(suite: Suite) -> dict[int, Door]:
    """Return the table of all ports."""
    of_clients = {5672: "amqp", 1883: "mqtt", 8083: "ws"}
    found = {port + suite.offset: Door(protocol) for port, protocol in of_clients.items()}
    with_tls = {5671: "amqp", 8883: "mqtt", 8084: "ws"}
    found |= {port + suite.offset: Door(protocol, tls=True) for port, protocol in with_tls.items()}
    found |= {port: Door("amqp") for port in inner_ports(suite)}
    for port in other_ports(suite) - found.keys():
        found[port] = Door("http")
    found[8080 + suite.offset] = Door("console")
    for kind, given in settings(suite).values():
        if kind == "authserv":
            found[port_of(given["listen"])] = Door("amqp")
        for each in given.get("listeners", ()):
            if each.get("kind") in OF_GATEWAYS:
                found[each["port"]] = OF_GATEWAYS[each["kind"]]
    return found


def listeners(suite: Suite) -> dict[int, psutil.Process]:
    """Return the ports on which processes of the suite listen."""
    return {
        c.laddr.port: process
        for process in processes(suite)
        for c in process.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN
    }


def test_every_port_is_in_the_table(suite: Suite) -> None:
    assert listeners(suite).keys() <= doors(suite).keys()


HELLO = b"\x16\x03\x01\x40\x00\x01\x01\xff\xf0\x03\x03" + bytes(8000)
"""Of a ClientHello that states 128 KiB in records of 16 KiB, the first bytes."""


def stranger(port: int, parts: tuple[bytes, ...], context: ssl.SSLContext | None) -> socket.socket | None:
    """Return a connection that has sent what the port takes; None if that was refused."""
    peer = socket.create_connection(("127.0.0.1", port), 60)
    try:
        if context is not None:
            peer = context.wrap_socket(peer, server_hostname="localhost")
        for at, part in enumerate(parts):
            if at:
                peer.recv(65536)
            peer.sendall(part)
        peer.settimeout(0)
        with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            for _ in range(ALMOST if parts[-1] in COMPLETE else SENT // 1000):
                peer.send(b"x" * 1000)
    except OSError:
        peer.close()
        return None
    return peer


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


ASKED = {"amqp": SASL_HEADER, "mqtt": b"\xc0\0", "ws": UPGRADE}
"""By protocol: what is answered at once, if only by the end of the connection. Others are HTTP."""


def ask(port: int, door: Door) -> None:
    """Wait for the answer to a further connection: what others have sent before has been read then."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE) as peer:
        asking = unverified().wrap_socket(peer, server_hostname="localhost") if door.tls else peer
        with asking, contextlib.suppress(ConnectionResetError):
            asking.sendall(ASKED.get(door.protocol, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            asking.recv(1)


def is_idle(process: psutil.Process) -> bool:
    """Return whether no thread of a process runs, or waits for a processor or a disk."""
    states = []
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            states.append((thread / "stat").read_text().rpartition(") ")[2][0])
    return all(state == "S" for state in states)


def settled(process: psutil.Process, port: int, door: Door) -> int:
    """Return how much memory a process takes once it has handled what was sent to this port: it has answered, and
    waits for more, three times with the same size."""
    sizes: list[int | None] = []

    def look() -> bool:
        sizes.append(process.memory_info().rss if is_idle(process) else None)
        if len(sizes) > 2 and sizes[-1] is not None and len(set(sizes[-3:])) == 1:
            return True
        ask(port, door)
        return False

    ask(port, door)
    wait_for(look, f"port {port} has handled what was sent to it")
    assert sizes[-1] is not None
    return sizes[-1]


def held(process: psutil.Process, port: int, peers: list[socket.socket]) -> int:
    """Return how many of these peers a process has accepted and not dropped."""
    names = {peer.getsockname() for peer in peers}
    return sum(c.laddr.port == port and tuple(c.raddr) in names for c in process.net_connections("tcp"))


def cost(
    process: psutil.Process, port: int, door: Door, make: Callable[[], socket.socket | None], most: int,
    *, stay: bool = False,
) -> float | None:  # fmt: skip
    """Return by how many bytes each of PEERS peers makes the process grow, beside a few others. `stay`: they must still
    be connected when it is measured, else None.

    A process grows for other reasons, too. So if it is more than `most`, as many further peers are weighed, TIMES at
    most, as long as the process holds as many of them as of the first ones.
    """
    with contextlib.ExitStack() as connected:

        def batch(count: int) -> list[socket.socket]:
            made = [peer for _ in range(count) if (peer := make()) is not None]
            for peer in made:
                connected.enter_context(peer)
            return made

        peers = batch(FEW)
        before, costs, most_held = settled(process, port, door), list[float](), 0
        while not costs or (costs[-1] > most and len(costs) < TIMES):
            added = batch(PEERS)
            peers += added
            after = settled(process, port, door)
            if costs and held(process, port, added) < most_held:
                break
            most_held = most_held or held(process, port, added)
            costs.append((after - before) / PEERS)
            before = after
        if stay and held(process, port, peers) < len(peers):
            return None
    return min(costs)


KINDS = [(protocol, tls, at) for protocol, parts in PARTS.items() for tls in (False, True) for at in range(len(parts))]


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", HELLO], ids=["nothing", "a part of a ClientHello"])
def test_a_stranger_without_a_client_hello_costs_little(said: bytes, suite: Suite) -> None:
    known = doors(suite)
    for port, process in listeners(suite).items():
        if (door := known[port]).tls:
            weigh = partial(cost, process, port, door, partial(quiet, port, said), MOST, stay=True)
            found = wait_for(partial(weighed, weigh), f"port {port} holds its peers until they are weighed")[0]
            assert found <= MOST, f"port {port} of {process.cmdline()}"


def weighed(weigh: Callable[[], float | None]) -> tuple[float] | None:
    """Return what was measured, also if it is nothing; None if the peers were dropped meanwhile."""
    found = weigh()
    return None if found is None else (found,)


def quiet(port: int, said: bytes) -> socket.socket:
    """Return a connection that has sent this and nothing else."""
    peer = socket.create_connection(("127.0.0.1", port), 60)
    peer.sendall(said)
    return peer


@pytest.mark.slow  # the bounds of each protocol have tests of their own; this one weighs the processes
@pytest.mark.parametrize(("protocol", "tls", "at"), KINDS)
def test_a_stranger_costs_little(protocol: str, tls: bool, at: int, suite: Suite) -> None:
    known = doors(suite)
    parts, context = PARTS[protocol][at], unverified() if tls else None
    for port, process in listeners(suite).items():
        if known[port] == Door(protocol, tls):
            most = MOST_TLS if tls else MOST
            found = cost(process, port, known[port], partial(stranger, port, parts, context), most)
            assert found is not None
            assert found <= most, f"port {port} of {process.cmdline()}"
