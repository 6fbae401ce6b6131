"""Two embedded routers that are neighbours: the cost of a hop, and pairs of clients at one router and at two.

`python -m benchmarks.two_routers`. Where fewer cores are free than there are processes (two routers, and a sender and
a receiver for each pair), the rates say little; the processor time of the routers for a message says what they cost.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Server, load_pairs, running, summary
from enmasse.testing import free_port

ROUNDS, COUNT = int(os.environ.get("ROUNDS", "5")), int(os.environ.get("COUNT", "100000"))
PAIRS = 4


@contextlib.contextmanager
def router(name: str, mesh: int, *, dials: bool) -> Iterator[Server]:
    """Run a router, which dials the other one at the port `mesh` or listens there."""
    port, scratch = free_port(), Path(tempfile.mkdtemp())
    other = {"host": "127.0.0.1", "port": str(mesh), "role": "inter-router"}
    settings = {
        "name": name,
        "health": f"127.0.0.1:{free_port()}",
        "entities": [
            ["router", {"mode": "interior", "id": name}],
            ["listener", {"host": "127.0.0.1", "port": str(port), "role": "normal"}],
            ["connector" if dials else "listener", other],
        ],
    }
    (scratch / "router.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "services.router", "--config", str(scratch / "router.json")]
    with running(name, command, port, scratch=scratch) as server:
        yield server


def main() -> None:
    mesh = free_port()
    with router("a", mesh, dials=False) as a, router("b", mesh, dials=True) as b:
        names = [f"bench{number}" for number in range(PAIRS)]
        cases: dict[str, list[tuple[Server, Server, str]]] = {
            "1 pair, both clients at one router": [(a, a, "bench0")],
            "1 pair, a hop between them": [(a, b, "bench0")],
            f"{PAIRS} pairs at one router": [(a, a, name) for name in names],
            f"{PAIRS} pairs at two routers, no hop": [
                (here, here, name) for here, name in zip((a, b) * PAIRS, names, strict=False)
            ],
            f"{PAIRS} pairs at two routers, a hop for each second one": [
                (a if number % 2 else b, a if number // 2 % 2 else b, name) for number, name in enumerate(names)
            ],
        }
        found: dict[str, list[dict[str, Any]]] = {case: [] for case in cases}
        for _ in range(ROUNDS):
            for case, pairs in cases.items():
                found[case].append(load_pairs(pairs, ["--size", "100"], COUNT))
        for case, results in found.items():
            rate, cost = (
                summary([each[key] for each in results], digits) for key, digits in (("rate", 0), ("cpu_us", 1))
            )
            print(f"{case}: {rate} messages/s, {cost} us of the routers' processor time for each", flush=True)
        print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)


if __name__ == "__main__":
    main()
