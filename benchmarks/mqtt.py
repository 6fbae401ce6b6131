"""MQTT through the whole suite (gateway, router, broker where there is one) beside mosquitto and amqtt in the same run.

100-byte messages, counted at both ends; 1, 100 and 5,000 connections, half of them publishers where there are more than
two. Losses of QoS 0 are reported. Anycast takes the router only, a topic also the broker. mosquitto and amqtt route
nothing: for them a publisher and its subscriber share a topic. Aims: as many as mosquitto, with QoS 0 of a topic three
quarters of that; five times as many as amqtt. Then connections: memory of idle ones, rate, a storm of them with wills;
QoS 2 with the stores on disk; one more subscription among many.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.harness import ROOT, free_port, line, running, summary, tell
from benchmarks.harness import Server as Process
from benchmarks.harness import peer as amqp_peer
from enmasse.testing import Suite
from enmasse.testing import running as suite_running
from tests.conformance.wire import Raw

TOPIC = "small-persisted-topic"
ADDRESSES = {"direct": {"type": "anycast"}, "news": {"type": "topic", "flavor": TOPIC}}
ROUNDS = 3
SIZES = ((2, 120_000), (100, 120_000), (5000, 40_000))
"""Connections and messages of a flow: seconds for the fastest server, so that its start does not count."""
AMQTT_SHARE = 20
"""Factor by which amqtt gets fewer messages: rates are compared, not times."""
IDLE = 5000
QUIET = 15
"""Seconds without a message after which the rest of a flow with QoS 0 is lost; they do not count as its time."""
OURS, MOSQUITTO, AMQTT = "EnMasse", "mosquitto", "amqtt"


@dataclass
class Peer:
    """A server of MQTT under test. `processes`: whose memory and CPU count."""

    name: str
    port: int
    processes: Callable[[], list[psutil.Process]]
    suite: Suite | None = None

    def cpu(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self.processes())

    def memory(self) -> int:
        return sum(int(process.memory_full_info().uss) for process in self.processes())


@contextlib.contextmanager
def enmasse() -> Iterator[Peer]:
    with tempfile.TemporaryDirectory() as folder, suite_running(Path(folder), ADDRESSES, options=()) as suite:
        suite.up()
        yield Peer(OURS, suite.mqtt_port, lambda: every_process(suite), suite)


def every_process(suite: Suite) -> list[psutil.Process]:
    assert suite.process is not None
    found: list[psutil.Process] = psutil.Process(suite.process.pid).children(recursive=True)
    return found


def gateway(suite: Suite) -> psutil.Process:
    return psutil.Process(suite.component("mqtt_gateway")["pid"])


@contextlib.contextmanager
def mosquitto() -> Iterator[Peer]:
    port, scratch = free_port(), Path(tempfile.mkdtemp())
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "max_queued_messages 0", "set_tcp_nodelay true"]
    lines += ["max_inflight_messages 0", "persistence true", f"persistence_location {scratch}/", "user root"]
    (scratch / "mosquitto.conf").write_text("\n".join(lines) + "\n")
    command = ["mosquitto", "-c", str(scratch / "mosquitto.conf")]
    with running(MOSQUITTO, command, port, scratch=scratch) as server:
        yield as_peer(server)


@contextlib.contextmanager
def amqtt() -> Iterator[Peer]:
    port, scratch = free_port() + 1, Path(tempfile.mkdtemp())
    config = {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}", "max_connections": 20000}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    (scratch / "amqtt.yaml").write_text(json.dumps(config))  # which is YAML too
    command = [str(Path(sys.executable).parent / "amqtt"), "-c", str(scratch / "amqtt.yaml")]
    with running(AMQTT, command, port, scratch=scratch) as server:
        yield as_peer(server)


def as_peer(server: Process) -> Peer:
    return Peer(server.name, server.port, lambda: [psutil.Process(server.process.pid)])


def generator(what: str, peer: Peer, *options: object) -> subprocess.Popen[str]:
    # amqtt speaks 3.1.1 only
    command = [sys.executable, "-m", "enmasse.load.mqtt", what, "--port", str(peer.port), "--version", "4"]
    command += [str(option) for option in options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


@contextlib.contextmanager
def ended(*processes: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def flow(peer: Peer, address: str, qos: int, connections: int, count: int) -> dict[str, float]:
    """From publishers to as many subscribers; messages a second at the subscribers, CPU of all processes a message."""
    share = max(1, connections // 2)
    anycast = address == "direct"
    wide = "direct/#" if peer.suite is not None and anycast else f"{address}/{{}}"
    options = ["--qos", qos, "--connections", share, "--count", count]
    lossy = ["--lossy", "--timeout", QUIET] if qos == 0 else []
    subscriber = generator("subscribe", peer, *options, *lossy, "--topic", wide)
    with ended(subscriber):
        assert line(subscriber) == "ready"
        publisher = generator("publish", peer, *options, "--topic", f"{address}/{{}}", "--barrier")
        with ended(publisher):
            assert line(publisher) == "ready"
            before = peer.cpu()
            tell(publisher)
            got = json.loads(line(subscriber))
            used = peer.cpu() - before
            line(publisher)
            tell(publisher)
            load = got["cpu"] + json.loads(line(publisher))["cpu"]
    received = got["received"]
    result = {
        "rate": received / got["seconds"],
        "cpu_us": used / received * 1e6,
        "load_us": load / received * 1e6,  # of the generators: far less than `cpu_us`, or they are the limit
    }
    return {**result, "lost_percent": 100 - 100 * got["received"] / count} if qos == 0 else result


def to_amqp(peer: Peer, qos: int, count: int) -> dict[str, float]:
    """MQTT in, AMQP out: one publisher, one receiver at the router."""
    assert peer.suite is not None and peer.suite.process is not None
    router = Process("router", 5672 + peer.suite.offset, peer.suite.process, sasl=False)
    receiver = amqp_peer("receive", router, "direct", "r", ["--size", "100", "--count", str(count)])
    with ended(receiver):
        line(receiver)
        options = ["--qos", qos, "--count", count, "--topic", "direct", "--barrier"]
        publisher = generator("publish", peer, *options)
        with ended(publisher):
            line(publisher)
            before, began = peer.cpu(), time.monotonic()
            tell(publisher)
            got = json.loads(line(receiver))
            seconds, used = time.monotonic() - began, peer.cpu() - before
    return {"rate": got["received"] / seconds, "cpu_us": used / got["received"] * 1e6}


Results = dict[str, list[dict[str, float]]]


def compare(
    title: str,
    runs: dict[str, Callable[[], dict[str, float]]],
    aims: dict[str, float],
    rounds: int = ROUNDS,
    known: Results | None = None,
) -> Results:
    """Each in turn, `rounds` times, the order turned over; prints rates and what part of each peer's rate ours is. A
    peer that fails is a row with the reason. `known`: results of peers that are not run again."""
    results: Results = {name: [] for name in runs}
    failures: dict[str, str] = {}
    for turn in range(rounds):
        for name, run in list(runs.items())[:: 1 if turn % 2 == 0 else -1]:
            try:
                results[name].append(run())
            except (RuntimeError, psutil.Error) as error:
                failures[name] = f"failed in round {turn + 1}: {error}"
    print(title)
    for name, found in {**results, **(known or {})}.items():
        values = {key: summary([one[key] for one in found]) for key in (found[0] if found else {})}
        shown = "  ".join(f"{key} {value}" for key, value in values.items())
        again = "  (not run again: to it this is the same as over anycast)" if known and name in known else ""
        print(f"  {name:<12} {shown}{again}{failures.get(name, '')}")
    ours = results[OURS]
    for name, found in {**results, **(known or {})}.items():
        if name != OURS and found and len(found) == len(ours):
            ratios = [one["rate"] / other["rate"] for one, other in zip(ours, found, strict=True)]
            median, aim = statistics.median(ratios), aims.get(name)
            shown = "" if aim is None else f"   aim {aim:g}: {'reached' if median >= aim else 'MISSED'}"
            print(f"  of {name:<10} {summary(ratios, 2)}{shown}")
    sys.stdout.flush()
    return results


def flows(peers: Sequence[Peer], scale: float, sizes: Sequence[tuple[int, int]] = SIZES) -> None:
    before: dict[tuple[int, int], Results] = {}  # over anycast
    for address, anycast in (("direct", True), ("news", False)):
        for qos in (0, 1):
            for connections, count in sizes:
                aims = {AMQTT: 5.0, MOSQUITTO: 1.0 if anycast or qos else 0.75}
                runs: dict[str, Callable[[], dict[str, float]]] = {}
                known: Results = {}
                for peer in peers:
                    if peer.name == AMQTT and connections == 5000 and not anycast:
                        # it takes minutes, and a topic is the same to it as anycast
                        known = {AMQTT: before[qos, connections][AMQTT]}
                        continue
                    less = AMQTT_SHARE if peer.name == AMQTT else 1
                    much = max(int(count * scale) // less, connections // 2)

                    def run(peer: Peer = peer, much: int = much) -> dict[str, float]:
                        return flow(peer, address, qos, connections, much)

                    runs[peer.name] = run
                title = f"{'anycast' if anycast else 'topic'}, QoS {qos}, {connections} connections"
                results = compare(title, runs, aims, 1 if connections == 5000 else ROUNDS, known)
                if anycast:
                    before[qos, connections] = results


def out_to_amqp(peers: Sequence[Peer], scale: float) -> None:
    ours = next(peer for peer in peers if peer.suite is not None)
    for qos in (0, 1):
        runs: dict[str, Callable[[], dict[str, float]]] = {
            OURS: lambda qos=qos: to_amqp(ours, qos, int(40_000 * scale)),  # type: ignore[misc]  # mypy infers no type of a lambda's default
        }
        for peer in peers:
            if peer is not ours:
                less = AMQTT_SHARE if peer.name == AMQTT else 1
                count = int(40_000 * scale) // less
                runs[peer.name] = lambda p=peer, q=qos, c=count: flow(p, "direct", q, 2, c)  # type: ignore[misc]  # mypy infers no type of a lambda's default
        compare(f"MQTT in, AMQP out over anycast, QoS {qos} (the others: MQTT out)", runs, {AMQTT: 5.0})


def qos_2(peers: Sequence[Peer], scale: float) -> None:
    for connections in (2, 100):
        runs: dict[str, Callable[[], dict[str, float]]] = {}
        for peer in peers:
            if peer.name != AMQTT:
                runs[peer.name] = lambda p=peer: flow(p, "news", 2, connections, int(4000 * scale))  # type: ignore[misc]  # mypy infers no type of a lambda's default
        compare(f"topic, QoS 2, {connections} connections (mosquitto does not wait for its disk)", runs, {})


def connections(peers: Sequence[Peer], scale: float) -> None:
    """Idle memory of a connection, connections a second, and a storm: all disconnect and reconnect, with wills."""
    count = int(IDLE * min(scale, 1))
    for peer in peers:
        measured = (lambda p=peer: [gateway(p.suite)]) if peer.suite is not None else peer.processes  # type: ignore[misc]  # mypy infers no type of a lambda's default
        before = sum(int(process.memory_full_info().uss) for process in measured())
        idle = generator("connect", peer, "--connections", count)
        with ended(idle):
            line(idle)
            after = sum(int(process.memory_full_info().uss) for process in measured())
            tell(idle)  # an empty line: the end
            rate = count / json.loads(line(idle))["seconds"][0]
        kib = (after - before) / count / 1024
        aim = f"   aim 20: {'reached' if kib < 20 else 'MISSED'}" if peer.suite is not None else ""
        print(f"{peer.name}: {count} connections: {rate:,.0f} a second; {kib:.1f} KiB each, idle{aim}", flush=True)
        if peer.name == AMQTT:
            continue
        storm = generator("connect", peer, "--connections", count, "--will", "news/wills", "--client-id", "storm-{}")
        with ended(storm):
            line(storm)
            assert storm.stdin is not None
            for _ in range(2):
                storm.stdin.write("again\n")
                storm.stdin.flush()
                line(storm)
            tell(storm)
            seconds = json.loads(line(storm))["seconds"]
        print(f"{peer.name}: with wills {seconds[0]:.1f} s, after losing all {summary(seconds[1:], 1)} s", flush=True)


def subscriptions(ours: Peer, most: int = 10_000) -> None:
    """One more subscription among 100, 1,000 and 10,000 of clients with 500 each; memory of each."""
    clients: list[Raw] = []
    have, before = 0, ours.memory()

    def add(*names: str) -> None:
        nonlocal have
        if have // 500 >= len(clients):
            clients.append(Raw("127.0.0.1", ours.port, 4))
            clients[-1].open(f"bench-subscriptions-{len(clients)}")
        granted = clients[-1].subscribe(*[(name, 1) for name in names]).codes
        if granted != (1,) * len(names):
            raise RuntimeError(f"not all of {names} were granted: {granted}")
        have += len(names)

    for wanted in (100, 1000, most):
        while have < wanted - 20:
            add(*[f"news/one/{have + number}" for number in range(20)])
        times = []
        for number in range(20):
            began = time.monotonic()
            add(f"news/more/{wanted}/{number}")
            times.append((time.monotonic() - began) * 1000)
        kib = (ours.memory() - before) / have / 1024
        shown = f"{summary(times, 1)} ms; {kib:.1f} KiB each, all processes"
        print(f"one more subscription at {wanted:,}: {shown}", flush=True)
    for raw in clients:
        raw.leave()


def main(scale: float = 1.0, short: bool = False) -> None:
    """Print all comparisons; `short`: the flows of 2 and 100 connections beside mosquitto, in under five minutes."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(enmasse())
        peers = [ours, stack.enter_context(mosquitto())]
        if short:
            flows(peers, scale, SIZES[:2])
            return
        peers.append(stack.enter_context(amqtt()))
        connections(peers, scale)
        flows(peers, scale)
        out_to_amqp(peers, scale)
        qos_2(peers, scale)
        subscriptions(ours, int(10_000 * min(scale, 1)))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
