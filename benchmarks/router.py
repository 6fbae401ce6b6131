"""The embedded router against a relay on Proton's bare engine and, if there is one on PATH, against qdrouterd.

100-byte messages, acknowledged, credit 1000; one pair and eight pairs; then credit 10 at a fixed rate for latency.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Server, free_port, load, running, side_by_side


@contextlib.contextmanager
def embedded() -> Iterator[Server]:
    port, scratch = free_port(), Path(tempfile.mkdtemp())
    settings = {
        "name": "bench-router",
        "health": f"127.0.0.1:{free_port() + 1}",
        "entities": [
            ["router", {"mode": "interior", "id": "bench"}],
            ["listener", {"host": "127.0.0.1", "port": str(port), "role": "normal"}],
        ],
    }
    (scratch / "router.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "services.router", "--config", str(scratch / "router.json")]
    with running("embedded router", command, port, scratch=scratch) as server:
        yield server


@contextlib.contextmanager
def qdrouterd(program: str) -> Iterator[Server]:
    port, scratch = free_port(), Path(tempfile.mkdtemp())
    entities = [
        ["router", {"mode": "interior", "id": "bench", "workerThreads": 2}],
        ["listener", {"host": "127.0.0.1", "port": str(port), "role": "normal", "saslMechanisms": "ANONYMOUS"}],
        ["log", {"module": "DEFAULT", "enable": "warning+"}],
    ]
    (scratch / "qdrouterd.json").write_text(json.dumps(entities))
    with running("qdrouterd", [program, "-c", str(scratch / "qdrouterd.json")], port, scratch=scratch) as server:
        yield server


@contextlib.contextmanager
def proton_relay() -> Iterator[Server]:
    port = free_port()
    with running("Proton relay", [sys.executable, "-m", "benchmarks.proton_relay", str(port)], port) as server:
        yield server


def addresses(pairs: int) -> list[str]:
    return [f"bench{i}" for i in range(pairs)]


def compare(peer: Server, ours: Server, rounds: int, aim: float, count: int) -> None:
    for pairs in (1, 8):
        side_by_side(
            f"router, {pairs} pair(s), 100 bytes, acknowledged, credit 1000: against {peer.name}",
            rounds,
            lambda: load(ours, addresses(pairs), ["--size", "100"], count),
            lambda: load(peer, addresses(pairs), ["--size", "100"], count),
            "rate",
            aim,
            (ours.name, peer.name),
        )


def latency(peer: Server, ours: Server, rounds: int, rate: int, count: int) -> None:
    options = ["--size", "100", "--credit", "10", "--window", "1000", "--rate", str(rate), "--latency"]
    results: dict[str, list[dict[str, Any]]] = {}

    def measured(server: Server) -> dict[str, Any]:
        result = load(server, ["latency"], options, count)
        results.setdefault(server.name, []).append(result)
        return result

    for key in ("p50_us", "p99_us"):
        side_by_side(
            f"router, credit 10 at {rate}/s: {key} against {peer.name}",
            rounds,
            lambda: measured(ours),
            lambda: measured(peer),
            key,
            1.0,
            (ours.name, peer.name),
            lower_is_better=True,
        )


def main(rounds: int = 5, count: int = 100_000) -> None:
    program = shutil.which("qdrouterd")
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(embedded())
        compare(stack.enter_context(proton_relay()), ours, rounds, 6.0, count)
        if program is None:
            print("qdrouterd is not on PATH: not compared with it")
            return
        theirs = stack.enter_context(qdrouterd(program))
        compare(theirs, ours, rounds, 1.2, count * 4)
        latency(theirs, ours, rounds, 10_000, 50_000)
        print(f"memory: embedded {ours.rss() / 1e6:.0f} MB, qdrouterd {theirs.rss() / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
