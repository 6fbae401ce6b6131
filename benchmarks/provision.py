"""How long until addresses are there: 100, 1,000 and 10,000, a quarter of each type; memory for each; one more.

Also the cold start of `enmasse up` on what `enmasse init` writes, and the time to ready after SIGKILL of each service.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import summary
from enmasse.testing import Suite, running

KINDS: tuple[dict[str, Any], ...] = (
    {"type": "queue", "flavor": "small-persisted-queue"},
    {"type": "topic", "flavor": "small-persisted-topic"},
    {"type": "anycast"},
    {"type": "multicast"},
)


def addresses(count: int) -> dict[str, Any]:
    return {f"bench/a{i}": KINDS[i % 4] for i in range(count)}


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def memory(suite: Suite) -> int:
    """Unique memory (USS) of the supervisor and everything below it, in bytes."""
    assert suite.process is not None
    top = psutil.Process(suite.process.pid)
    return sum(int(p.memory_full_info().uss) for p in [top, *top.children(recursive=True)])


def cold_start(rounds: int) -> None:
    times = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as suite:
            times.append(suite.up())
    print(
        f"cold start to ready: {summary(times, 2)} s   aim under 3 s: {verdict(statistics.median(times) < 3)}",
        flush=True,
    )


def grow(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as suite:
        suite.up()
        before = memory(suite)
        began = time.monotonic()
        suite.edit("addresses.json", addresses(count))
        suite.wait_ready(300)
        took = time.monotonic() - began
        each = (memory(suite) - before) / count
        began = time.monotonic()
        suite.edit("addresses.json", {"one-more": KINDS[0]})
        suite.wait_ready(60)
        more = time.monotonic() - began
        line = f"{count:>6} addresses ready in {took:.1f} s ({count / took:,.0f} a second), {each / 1024:.1f} KiB each"
        if count == 10_000:
            line += f"   aim 15 s: {verdict(took <= 15)}, 25 KB: {verdict(each <= 25_000)}"
        print(f"{line}; one more in {more:.2f} s   aim 1 s: {verdict(more <= 1)}", flush=True)


def recovery(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as suite:
        suite.up()
        for kind in ("configserv", "ragent", "storage_controller", "router", "broker"):
            times = []
            for _ in range(rounds):
                began = time.monotonic()
                suite.kill(suite.component(kind))
                suite.wait_ready(60)
                times.append(time.monotonic() - began)
            print(f"ready again after SIGKILL of {kind}: {summary(times, 2)} s", flush=True)


def main(rounds: int = 5) -> None:
    cold_start(rounds)
    recovery(rounds)
    for count in (100, 1_000, 10_000):
        grow(count)


if __name__ == "__main__":
    main()
