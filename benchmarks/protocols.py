"""Cost of a durable message of 100 bytes by protocol: sent to a queue and received again, in µs of processor time.

`python -m benchmarks.protocols`. Each protocol's clients are those of `enmasse bench --protocol`. Processor time of
router, broker and the protocol's gateway is divided by the messages; a busy machine changes it less than rates.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import summary
from benchmarks.mqtt_users import cpu_of
from enmasse.testing import Suite, running

ROUNDS, SECONDS = int(os.environ.get("ROUNDS", "3")), os.environ.get("SECONDS", "4")
PROTOCOLS = ("amqp", "mqtt", "stomp", "coap", "http")
QUEUE: dict[str, Any] = {"bench": {"type": "queue", "flavor": "small-persisted-queue"}}


def main() -> None:
    options = ("--with", "http", "--with", "stomp", "--with", "coap")
    with running(Path(tempfile.mkdtemp()), QUEUE, options=options) as suite:
        suite.up()
        found: dict[str, list[dict[str, float]]] = {protocol: [] for protocol in PROTOCOLS}
        for _ in range(ROUNDS):
            for protocol, rounds in found.items():
                rounds.append(_costs(suite, protocol))
        suite.down()
    print("| protocol | gateway | router | broker | together |")
    for protocol, rounds in found.items():
        columns = [summary([each.get(part, 0.0) for each in rounds]) for part in ("gateway", "router", "broker")]
        print(f"| {protocol} | {' | '.join(columns)} | {summary([sum(each.values()) for each in rounds])} |")
    print(f"load average after: {os.getloadavg()[0]:.1f}")


def _costs(suite: Suite, protocol: str) -> dict[str, float]:
    """Return gateway, router and broker → µs of processor time for a message."""
    parts = {f"{protocol}_gateway": "gateway", "router": "router", "broker": "broker"}
    components = suite.status()["components"]
    pids = [(parts[each["kind"]], each["pid"]) for each in components if each["kind"] in parts]
    before = [cpu_of(pid) for _, pid in pids]
    address = f"{suite.url}/bench"
    done = suite.command("bench", "-a", address, "--seconds", SECONDS, "--json", "--protocol", protocol)
    received = json.loads(done.stdout)["received"]
    costs: dict[str, float] = {}
    for (part, pid), then in zip(pids, before, strict=True):
        costs[part] = costs.get(part, 0.0) + (cpu_of(pid) - then) / received * 1e6
    return costs


if __name__ == "__main__":
    main()
