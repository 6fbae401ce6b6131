"""Nodes in network namespaces, and what happens between them: links that are cut, in one direction too, and slow ones.

Each node is a namespace of its own with the address 10.77.N.2, and a hub routes between them; nothing of that is seen
outside, so several networks may exist at once. It needs root (CAP_SYS_ADMIN) and `ip` and `tc` of iproute2. Kernels
without netem and netfilter will do: a direction is cut by a rule of the hub's routing, a link is slowed by a token
bucket. What a network does to single bytes, `StallingProxy` does.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Self

from tests.kit.waiting import DEADLINE

CLONE_NEWNET = 0x40000000
FOLDER = Path("/run/netns")
FAKETIME = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketime.so.1")
"""The library of Debian's package faketime."""
_networks = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        why = f"{' '.join(command)}: {done.stderr.strip()}"
        raise RuntimeError(f"{why}; network namespaces need root (CAP_SYS_ADMIN), and iproute2")


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Node:
    """A machine of the network. `address`: of it; `processes`: that were started there."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.address = f"10.77.{number}.2"
        self.processes: list[subprocess.Popen[str]] = []
        self.name = name
        self._network = network
        self._number = number
        self._namespace = f"{network.name}-{number}"
        self._link = f"v{number}"
        self._clock: Path | None = None

    def set_up(self) -> None:
        """Make the namespace and its link to the hub."""
        hub, here, gateway = self._network.hub, self._namespace, f"10.77.{self._number}.1"
        _run("ip", "netns", "add", here)
        _run("ip", "link", "add", self._link, "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", here)
        _run("ip", "-n", hub, "addr", "add", f"{gateway}/30", "dev", self._link)
        _run("ip", "-n", here, "addr", "add", f"{self.address}/30", "dev", "eth0")
        for where, link in ((hub, self._link), (here, "eth0"), (here, "lo")):
            _run("ip", "-n", where, "link", "set", link, "up")
        _run("ip", "-n", here, "route", "add", "default", "via", gateway)

    def remove(self) -> None:
        """Kill what runs here, and remove the namespace."""
        for process in self.processes:
            process.kill()
            process.communicate()
        _run("ip", "netns", "del", self._namespace)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that this thread makes in the block are of this node, and stay so."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        other = os.open(FOLDER / self._namespace, os.O_RDONLY)
        try:
            _enter(other)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(own)
            os.close(other)

    # processes

    def start(
        self, *command: str, log: IO[str] | int | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Run a command here. `log`: where its output goes."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self._namespace, *command],
            stdout=log, stderr=log, text=True, env={**os.environ, **(environment or {}), **self._times()},
        )  # fmt: skip
        self.processes.append(process)
        return process

    def start_service(self, kind: str, settings: Path, log: IO[str] | int | None = None) -> subprocess.Popen[str]:
        """Run a service of the suite here."""
        return self.start(sys.executable, "-m", f"services.{kind}", "--config", str(settings), log=log)

    def stop(self) -> None:
        """Stop all processes of the node (SIGSTOP): its kernel still answers, they do not."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let them continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    # the clock

    def with_own_clock(self, file: Path) -> Self:
        """Give processes that are started from now on a clock that `jump` sets, kept in this file. Time since the start
        of the machine stays true, as it does when an administrator sets the clock."""
        if not FAKETIME.exists():
            raise RuntimeError(f"{FAKETIME} is missing: install faketime")
        self._clock = file
        self.jump(0)
        return self

    def jump(self, seconds: float) -> None:
        """Set the node's clock to this many seconds from the true time."""
        assert self._clock is not None, "the node has the clock of the machine"
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{seconds:+}\n")
        fresh.rename(self._clock)

    def _times(self) -> dict[str, str]:
        if self._clock is None:
            return {}
        settings = {"TIMESTAMP_FILE": str(self._clock), "DONT_FAKE_MONOTONIC": "1", "NO_CACHE": "1"}
        return {"LD_PRELOAD": str(FAKETIME), **{f"FAKETIME_{name}": value for name, value in settings.items()}}

    # its link

    def unplug(self) -> None:
        """Cut the node off from all others."""
        _run("ip", "-n", self._network.hub, "link", "set", self._link, "down")

    def plug(self) -> None:
        """Connect it again."""
        _run("ip", "-n", self._network.hub, "link", "set", self._link, "up")

    def slow(self, bits: int) -> None:
        """Bound what the node sends and gets to so many bits a second, each; what is too much waits, or is dropped."""
        bucket = ("root", "tbf", "rate", f"{bits}bit", "burst", "16kb", "latency", "400ms")
        _run("tc", "-n", self._network.hub, "qdisc", "replace", "dev", self._link, *bucket)
        _run("tc", "-n", self._namespace, "qdisc", "replace", "dev", "eth0", *bucket)

    def quick(self) -> None:
        """Remove the bound."""
        _run("tc", "-n", self._network.hub, "qdisc", "del", "dev", self._link, "root")
        _run("tc", "-n", self._namespace, "qdisc", "del", "dev", "eth0", "root")


class Network:
    """Nodes and the hub between them."""

    def __init__(self) -> None:
        self.name = f"enmasse-{os.getpid()}-{next(_networks)}"
        self.hub = f"{self.name}-hub"
        self.nodes: list[Node] = []
        self._cut: set[tuple[str, str]] = set()
        _run("ip", "netns", "add", self.hub)
        _run("ip", "netns", "exec", self.hub, "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def node(self, name: str) -> Node:
        """Return a further node."""
        found = Node(self, name, len(self.nodes) + 1)
        self.nodes.append(found)
        found.set_up()
        return found

    def cut(self, source: Node, target: Node) -> None:
        """Lose what goes from `source` to `target`; what comes back arrives."""
        self._rule("add", source, target)

    def mend(self, source: Node, target: Node) -> None:
        """Carry it again."""
        self._rule("del", source, target)

    def _rule(self, what: str, source: Node, target: Node) -> None:
        _run("ip", "-n", self.hub, "rule", what, "blackhole", "from", source.address, "to", target.address)

    def remove(self) -> None:
        """Remove all nodes, and what runs there."""
        for node in self.nodes:
            node.remove()
        _run("ip", "netns", "del", self.hub)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Give a network as long as the block."""
    made = Network()
    try:
        yield made
    finally:
        made.remove()


class Here:
    """The network of this process."""

    address = "127.0.0.1"

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """Change nothing."""
        return contextlib.nullcontext()


class StallingProxy:
    """A proxy at a node before a server. `stall` keeps bytes of one direction back, with both connections open: what a
    firewall, a full buffer or a frozen middlebox does."""

    TO_SERVER, TO_CLIENT = 0, 1

    def __init__(self, node: Node | Here, to: tuple[str, int]) -> None:
        self._node, self._to = node, to
        self._flows = [threading.Event(), threading.Event()]
        for flow in self._flows:
            flow.set()
        self._sockets: list[socket.socket] = []
        with node.inside():
            self._listening = socket.create_server((node.address, 0))
        self.port: int = self._listening.getsockname()[1]
        self._wakes, self._wakened = socket.socketpair()
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self, direction: int) -> None:
        """Pass on nothing further in this direction."""
        self._flows[direction].clear()

    def flow(self, direction: int) -> None:
        """Pass on what was kept back, and what follows."""
        self._flows[direction].set()

    def close(self) -> None:
        """Close all connections."""
        self._wakened.close()
        for flow in self._flows:
            flow.set()
        for each in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as waiting, contextlib.suppress(OSError):
            waiting.register(self._listening, selectors.EVENT_READ)
            waiting.register(self._wakes, selectors.EVENT_READ)
            while all(key.fileobj is self._listening for key, _ in waiting.select()):
                client, _ = self._listening.accept()
                with self._node.inside():
                    server = socket.create_connection(self._to, DEADLINE)
                server.settimeout(None)
                self._sockets += [client, server]
                for direction, ends in enumerate(((client, server), (server, client))):
                    threading.Thread(target=self._copy, args=(direction, *ends), daemon=True).start()

    def _copy(self, direction: int, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flows[direction].wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
