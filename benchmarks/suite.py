"""The suite as its users meet it: durable messages of 1 KiB from client to client, through router and broker, with each
pair of engines. `enmasse up` starts all of them; they run side by side, and one of them at a time is under load.

The pairs take turns in each round. A ratio compares a pair with qdrouterd and Artemis in the same round.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import Server, load, summary
from enmasse.testing import Suite, running

FLAVOR = {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"MEMORY": "256Mi"}}
"""Artemis gets a heap of 640 MiB."""
QUEUES = [f"bench{n}" for n in range(4)]
COMMON = ["--size", "1024", "--durable"]
OPTIONS = {
    "ours + ours": (),
    "ours + Artemis": ("--broker", "artemis"),
    "qdrouterd + ours": ("--router", "qdrouterd"),
    "qdrouterd + Artemis": ("--router", "qdrouterd", "--broker", "artemis"),
}
"""Router and broker → options of `enmasse up`."""
BASE = "qdrouterd + Artemis"


@dataclass(frozen=True)
class Load:
    """Work of the clients: on how many queues, and how; `key`: the compared figure."""

    title: str
    pairs: int
    options: tuple[str, ...]
    count: int
    key: str = "rate"


LOADS = (
    Load("1 producer and 1 consumer, pipelined", 1, ("--window", "500"), 20_000),
    Load("4 producers, 4 consumers, 4 queues, pipelined", 4, ("--window", "500"), 40_000),
    Load("one message outstanding", 1, ("--window", "1"), 1_000),
    Load("1,000/s: from client to client", 1, ("--window", "1000", "--rate", "1000", "--latency"), 3_000, "p50_us"),
)


class SuiteServer(Server):
    """A suite under load; its processor time is that of all its processes."""

    def __init__(self, name: str, suite: Suite) -> None:
        assert suite.process is not None
        super().__init__(name, 5672 + suite.offset, suite.process)

    def cpu(self) -> float:
        top = psutil.Process(self.process.pid)
        return sum(sum(process.cpu_times()[:2]) for process in (top, *top.children(recursive=True)))


def main(rounds: int = 3) -> None:
    names = [name for name in OPTIONS if "qdrouterd" not in name or shutil.which("qdrouterd")]
    if BASE not in names:
        print("no qdrouterd on PATH: only the pairs with our router are run")
    with contextlib.ExitStack() as stack:
        servers = []
        for name in names:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            addresses = {queue: {"type": "queue", "flavor": "bench"} for queue in QUEUES}
            suite = stack.enter_context(
                running(folder, addresses, {"bench": FLAVOR}, options=("--without", "mqtt", *OPTIONS[name]))
            )
            suite.edit("addresses.json", {}, remove=("myqueue", "mytopic", "myanycast", "mymulticast"))
            suite.up()
            suite.wait_ready()
            servers.append(SuiteServer(name, suite))
        for server in servers:  # Java compiles while it runs
            load(server, QUEUES, [*COMMON, "--window", "500"], 40_000)
        for one in LOADS:
            measure(one, servers, rounds)


def measure(one: Load, servers: Sequence[SuiteServer], rounds: int) -> None:
    found: dict[str, list[dict[str, Any]]] = {server.name: [] for server in servers}
    for turn in range(rounds):
        for server in [*servers[turn % len(servers) :], *servers[: turn % len(servers)]]:
            found[server.name].append(load(server, QUEUES[: one.pairs], [*COMMON, *one.options], one.count))
    print(one.title)
    for name, results in found.items():
        line = f"  {name:<20} {one.key} {summary([r[one.key] for r in results])}"
        line += "".join(
            f"  {key} {summary([r[key] for r in results])}" for key in results[0] if key not in (one.key, "rate")
        )
        if BASE in found and name != BASE:
            pairs = zip(results, found[BASE], strict=True)
            ratios = [b[one.key] / a[one.key] if one.key != "rate" else a["rate"] / b["rate"] for a, b in pairs]
            line += f"  {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) times as good"
        print(line, flush=True)


if __name__ == "__main__":
    main()
