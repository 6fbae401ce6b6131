"""MQTT with users beside MQTT without: connects a second, and processor time for a connect and for a publish, of every
process that takes part, that of the load included: where processors are busy with other work, it counts, not the rate.

    python -m benchmarks.mqtt_users [--clients N] [--messages N] [--rounds N]

Suites of this machine, one after the other. Each client has a user with a generated password (`enmasse user add
--generate`), which the authentication service sees for the first time in the first round, and remembers in the second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from enmasse.identity.proofs.passwords import hashed
from enmasse.testing import Suite, running

TICKS = os.sysconf("SC_CLK_TCK")
INVOLVED = ("mqtt_gateway-0", "authserv", "subserv", "router-0")
"""Processes that have to do with a connect."""
RULES = [{"allow": ["send", "recv"], "addresses": ["mytopic/${user}/#", "orders"]}]


def cpu(suite: Suite, *names: str) -> float:
    """Seconds of processor time that these processes of the suite have used."""
    pids = [c["pid"] for c in suite.status()["components"] if c["name"] in names]
    return sum(map(cpu_of, pids))


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def load(suite: Suite, what: str, users: bool, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "enmasse.load.mqtt", what, "--port", str(suite.mqtt_port), *more]
    if users:
        command += ["--user", "u{}", "--password", "password-of-{}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def connects(suite: Suite, clients: int, users: bool) -> None:
    process = load(suite, "connect", users, "--connections", str(clients), "--client-id", "c{}")
    assert process.stdin is not None and process.stdout is not None
    used: list[list[float]] = []
    for _ in range(3):
        before = [*(cpu(suite, name) for name in INVOLVED), cpu_of(process.pid)]
        if used:
            print("again", file=process.stdin, flush=True)
        assert process.stdout.readline() == "ready\n"
        after = [*(cpu(suite, name) for name in INVOLVED), cpu_of(process.pid)]
        used.append([b - a for a, b in zip(before, after, strict=True)])
    print("end", file=process.stdin, flush=True)
    seconds = json.loads(process.stdout.readline())["seconds"]
    for number, (took, each) in enumerate(zip(seconds, used, strict=True), 1):
        costs = ", ".join(
            f"{name} {cost / clients * 1e3:.2f}" for name, cost in zip((*INVOLVED, "load"), each, strict=True)
        )
        print(f"  round {number}: {clients / took:6.0f} connects/s; ms of a processor for a connect: {costs}")


def publishes(suite: Suite, messages: int, users: bool) -> float:
    """Microseconds of the gateway for a message of QoS 1."""
    topic = "mytopic/u{}/x"
    before = cpu(suite, "mqtt_gateway-0")
    more = ("--connections", "4", "--topic", topic, "--qos", "1", "--count", str(messages), "--timeout", "120")
    process = load(suite, "publish", users, *more)
    out, _ = process.communicate()
    assert json.loads(out)["complete"] == messages, out
    return (cpu(suite, "mqtt_gateway-0") - before) / messages * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", type=int, default=500)
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=5)
    args = options.parse_args()
    entries: dict[str, Any] = {
        f"u{n}": {"password": hashed(f"password-of-{n}", random=True).password, "permissions": RULES}
        for n in range(args.clients)
    }
    costs: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        suites = {}
        for users in (False, True):
            (Path(folder) / str(users)).mkdir()
            context = running(Path(folder) / str(users), options=())
            suites[users] = context, context.__enter__()
            if users:
                (suites[users][1].config / "users.json").write_text(json.dumps(entries))
            suites[users][1].up()
        try:
            for users, (_, suite) in suites.items():
                print("with users" if users else "without users")
                connects(suite, args.clients, users)
            for _ in range(args.rounds):
                for users, (_, suite) in suites.items():
                    costs[users].append(publishes(suite, args.messages, users))
        finally:
            for context, _ in suites.values():
                context.__exit__(None, None, None)
    for users, found in costs.items():
        name = "with" if users else "without"
        middle = statistics.median(found)
        print(f"publish, QoS 1, {name} users: gateway {middle:.1f} µs, {min(found):.1f} to {max(found):.1f}")


if __name__ == "__main__":
    main()
