"""Networks of router processes: of ours, and of Qpid Dispatch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from services.router.mesh.topology import Topology
from tests.router.harness import PREFIX, DispatchProcess, Management, RouterProcess, free_port

ADDRESSES = [
    ["address", {"pattern": "any/#", "distribution": "balanced"}],
    ["address", {"pattern": "near/#", "distribution": "closest"}],
    ["address", {"pattern": "all/#", "distribution": "multicast"}],
    ["address", {"pattern": "stored/#", "waypoint": True}],
]

Shape = dict[str, dict[str, int]]
"""Routers in the order of their start, and whom each dials, at which cost."""


class Routers:
    """Routers by id. `stack` ends them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._by_id: dict[str, RouterProcess] = {}
        self._ports: dict[str, int] = {}
        self._management: dict[str, Management] = {}
        self._killed: set[str] = set()

    def __getitem__(self, name: str) -> RouterProcess:
        return self._by_id[name]

    def connector(self, to: str, cost: int) -> dict[str, Any]:
        """Attributes of a connector to the router `to`."""
        return {"host": "127.0.0.1", "port": str(self._ports[to]), "role": "inter-router", "cost": cost}

    def port(self, name: str) -> int:
        """Return the port of a router for others."""
        return self._ports[name]

    def start(
        self,
        name: str,
        *entities: list[Any],
        kind: str = "ours",
        dials: Mapping[str, int] | None = None,
        idle: int = 16,
    ) -> RouterProcess:
        """Start a router with a listener for others, on the port that it had if it was killed. `dials`: other routers
        with the costs of the connections. `idle`: the idle time-out of its listener, in seconds."""
        port = self._ports[name] = self._ports.get(name) or free_port()
        here = {"host": "127.0.0.1", "port": str(port), "idleTimeoutSeconds": idle}
        listener = ["listener", {"name": "mesh", **here, "role": "inter-router"}]
        connectors = [["connector", {"name": to, **self.connector(to, cost)}] for to, cost in (dials or {}).items()]
        make = DispatchProcess if kind == "theirs" else RouterProcess
        process = make([*ADDRESSES, listener, *connectors, *entities], router_id=name, default="balanced")
        self._by_id[name] = process
        if name in self._killed:
            self._killed.discard(name)
        else:
            self._stack.callback(self._end, name)
        self._management[name] = process.management()
        return process

    def _end(self, name: str) -> None:
        if name not in self._killed:
            self._management[name].close()
            self._by_id[name].stop()

    def kill(self, process: RouterProcess) -> None:
        """Kill a router with SIGKILL."""
        self._killed.add(process.id)
        process.process.kill()
        process.process.wait()

    def query(self, at: str, kind: str, *names: str) -> list[dict[str, Any]]:
        """Rows of the management of the router `at`."""
        return self._management[at].query(PREFIX + kind, *names)

    def node(self, at: str, router: str) -> dict[str, Any]:
        """The router `router` as `at` shows it."""
        return next(row for row in self.query(at, "router.node") if row["id"] == router)

    def costs(self, at: str) -> dict[str, int]:
        """The other routers that `at` reaches, with the costs of the paths."""
        rows = self.query(at, "router.node", "id", "cost")
        return {row["id"]: row["cost"] for row in rows if row["id"] != at}

    def agree(self, shape: Shape) -> bool:
        """Return True if each router has the shortest paths of its own and, for multicast, the trees of all others."""
        links: dict[str, dict[str, int]] = {name: {} for name in shape}
        for name, dials in shape.items():
            for other, cost in dials.items():
                links[name][other] = links[other][name] = cost
        for name in shape:
            topology = Topology(name, links)
            paths = {other: (cost, sorted(topology.valid_origins(other))) for other, cost in topology.costs.items()}
            rows = self.query(name, "router.node", "id", "cost", "validOrigins")
            if paths != {row["id"]: (row["cost"], sorted(row["validOrigins"] or [])) for row in rows if row["cost"]}:
                return False
        return True
