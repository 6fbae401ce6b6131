"""The network of tests does what its names say."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.network import Network, Node, StallingProxy, network
from tests.kit.waiting import DEADLINE, wait_for

pytestmark = pytest.mark.needs("ip")
MUCH = 64 << 10
"""Bytes that a slow link needs longer for than a quick one."""


@pytest.fixture
def net() -> Iterator[Network]:
    with network() as made:
        yield made


@contextlib.contextmanager
def echoing(node: Node) -> Iterator[int]:
    """A server at a node that answers each byte by the same."""
    with node.inside():
        listening = socket.create_server((node.address, 0))

    def serve(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            while data := peer.recv(65536):
                peer.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def connected(node: Node, address: str, port: int, seconds: float = DEADLINE) -> socket.socket:
    with node.inside():
        return socket.create_connection((address, port), seconds)


def is_answered(peer: socket.socket, seconds: float) -> bool:
    """Return whether a further byte is answered in time."""
    peer.sendall(b"x")
    peer.settimeout(seconds)
    try:
        return bool(peer.recv(65536))
    except TimeoutError:
        return False
    finally:
        peer.settimeout(DEADLINE)


def unread(peer: socket.socket) -> bytes:
    """Return what has come and was not read."""
    with contextlib.suppress(BlockingIOError):
        return peer.recv(65536, socket.MSG_DONTWAIT | socket.MSG_PEEK)
    return b""


def test_nodes_reach_each_other_and_nobody_else(net: Network) -> None:
    a, b = net.node("a"), net.node("b")
    with echoing(b) as port:
        with connected(a, b.address, port) as peer:
            assert is_answered(peer, DEADLINE)
            assert peer.getsockname()[0] == a.address
        with pytest.raises(OSError):
            socket.create_connection((b.address, port), 1)  # from outside
        with network() as other, pytest.raises(OSError):
            connected(other.node("c"), b.address, port, 1)  # with the address of a


@pytest.mark.parametrize("way", ["from a to b", "from b to a", "the link of b"])
def test_a_cut_link_loses_everything_until_it_is_mended(net: Network, way: str) -> None:
    a, b, c = net.node("a"), net.node("b"), net.node("c")
    ends = {"from a to b": (a, b), "from b to a": (b, a)}.get(way)
    with echoing(b) as port, connected(a, b.address, port) as peer, connected(c, b.address, port) as third:
        assert is_answered(peer, DEADLINE) and is_answered(third, DEADLINE)
        b.unplug() if ends is None else net.cut(*ends)
        assert not is_answered(peer, 1)
        assert is_answered(third, DEADLINE if ends is not None else 1) is (ends is not None), "others are not concerned"
        b.plug() if ends is None else net.mend(*ends)
        wait_for(lambda: unread(peer), "the answer comes again, as TCP sends it again")


def test_only_one_direction_is_cut(net: Network) -> None:
    """What is sent arrives, though no acknowledgement of TCP comes back."""
    a, b = net.node("a"), net.node("b")
    with a.inside():
        receiving = socket.socket(type=socket.SOCK_DGRAM)
        receiving.bind((a.address, 0))
    with b.inside():
        sending = socket.socket(type=socket.SOCK_DGRAM)
        sending.bind((b.address, 0))
    receiving.settimeout(DEADLINE)
    net.cut(a, b)
    sending.sendto(b"from b", receiving.getsockname())
    assert receiving.recv(100) == b"from b"
    sending.settimeout(1)  # limit: nothing is to arrive
    receiving.sendto(b"from a", sending.getsockname())
    with pytest.raises(TimeoutError):
        sending.recv(100)
    receiving.close()
    sending.close()


def test_a_slow_link_takes_its_time(net: Network) -> None:
    """At 128 kbit/s 64 KiB need four seconds, less what the bucket lets through at once; time is a lower bound only."""
    a, b = net.node("a"), net.node("b")
    with echoing(b) as port, connected(a, b.address, port) as peer:
        a.slow(128_000)
        begun = time.monotonic()
        peer.sendall(bytes(MUCH))
        left = MUCH
        while left:
            left -= len(peer.recv(left))
        assert time.monotonic() - begun > 2
        a.quick()
        assert is_answered(peer, DEADLINE)


def test_stopped_processes_keep_their_connections(net: Network) -> None:
    a, b = net.node("a"), net.node("b")
    program = (
        "import socket, sys\n"
        "listening = socket.create_server((sys.argv[1], 4711))\n"
        "print('listens', flush=True)\n"
        "peer = listening.accept()[0]\n"
        "while data := peer.recv(100): peer.sendall(data)\n"
    )
    process = b.start(sys.executable, "-c", program, b.address, log=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "listens\n"
    with connected(a, b.address, 4711) as peer:
        assert is_answered(peer, DEADLINE)
        b.stop()
        assert not is_answered(peer, 1)
        b.go_on()
        wait_for(lambda: unread(peer), "the answer comes")


def test_a_clock_jumps_and_time_since_the_start_does_not(net: Network, tmp_path: Path) -> None:
    a = net.node("a").with_own_clock(tmp_path / "clock")
    program = "import sys, time\nfor line in sys.stdin: print(time.time(), time.monotonic(), flush=True)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        env={**a._times()},
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None

    def ahead() -> tuple[float, float]:
        """Return how far both clocks of the process are ahead of ours."""
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        clock, since = map(float, process.stdout.readline().split())
        return clock - time.time(), since - time.monotonic()

    for seconds in (0, 86_400, -3_600):
        a.jump(seconds)
        clock, since = ahead()
        assert abs(clock - seconds) < 30 and abs(since) < 30
    process.stdin.close()
    process.wait(DEADLINE)
    process.stdout.close()


@pytest.mark.parametrize("direction", [StallingProxy.TO_SERVER, StallingProxy.TO_CLIENT])
def test_a_stalling_proxy_keeps_bytes_back(net: Network, direction: int) -> None:
    a, b = net.node("a"), net.node("b")
    with echoing(b) as port:
        proxy = StallingProxy(b, (b.address, port))
        with connected(a, b.address, proxy.port) as peer:
            assert is_answered(peer, DEADLINE)
            proxy.stall(direction)
            assert not is_answered(peer, 1)
            proxy.flow(direction)
            wait_for(lambda: unread(peer), "what was kept back comes")
        proxy.close()


def test_nothing_is_left(tmp_path: Path) -> None:
    with network() as made:
        node = made.node("a")
        process = node.start("sleep", "1000")
        name = made.name
        assert name in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    assert process.poll() is not None
    assert name not in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
