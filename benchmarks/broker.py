"""The embedded broker against Artemis: durable messages of 1 KiB, accepted when they are on disk.

One producer and one consumer, pipelined; one message outstanding; latency at fixed rates. Both brokers are driven by
the same load generator, on the same file system, in turn.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.artemis import artemis
from benchmarks.harness import Server, free_port, load, running, side_by_side
from benchmarks.manage import create_queue

COMMON = ["--size", "1024", "--durable"]


@contextlib.contextmanager
def embedded() -> Iterator[Server]:
    port, scratch = free_port(), Path(tempfile.mkdtemp())
    settings = {
        "name": "bench-broker",
        "health": f"127.0.0.1:{free_port() + 1}",
        "listen": f"127.0.0.1:{port}",
        "data_dir": str(scratch / "data"),
    }
    (scratch / "broker.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "services.broker", "--config", str(scratch / "broker.json")]
    with running("embedded broker", command, port, scratch=scratch) as server:
        yield server


def main(rounds: int = 5, count: int = 100_000) -> None:
    with embedded() as ours, artemis() as theirs:
        for server in (ours, theirs):
            create_queue(server.port, "bench")
            load(server, ["bench"], COMMON, count // 2)  # warm up: Artemis compiles while it runs

        def run(server: Server, options: list[str], count: int) -> dict[str, Any]:
            return load(server, ["bench"], [*COMMON, *options], count)

        side_by_side(
            "broker, durable 1 KiB, one producer and one consumer, pipelined",
            rounds,
            lambda: run(ours, ["--window", "500"], count),
            lambda: run(theirs, ["--window", "500"], count),
            "rate",
            3.0,
            (ours.name, theirs.name),
        )
        side_by_side(
            "broker, durable 1 KiB, one outstanding",
            rounds,
            lambda: run(ours, ["--window", "1"], count // 20),
            lambda: run(theirs, ["--window", "1"], count // 20),
            "rate",
            1.0,
            (ours.name, theirs.name),
        )
        for rate in (2_000, 5_000):
            options = ["--rate", str(rate), "--latency", "--window", "1000"]
            for key in ("p50_us", "p99_us"):
                side_by_side(
                    f"broker, durable 1 KiB at {rate}/s: {key}",
                    rounds,
                    lambda: run(ours, options, rate * 4),
                    lambda: run(theirs, options, rate * 4),
                    key,
                    1.0,
                    (ours.name, theirs.name),
                    lower_is_better=True,
                )


if __name__ == "__main__":
    main()
