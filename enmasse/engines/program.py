"""How the supervisor runs a process: its description, its program, and the probe of its health."""

from __future__ import annotations

import asyncio
import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from enmasse.engines import EMBEDDED


@dataclass(frozen=True, slots=True)
class Spec:
    """One process to run. `name`: unique in the suite; `kind`: folder of services/; `settings`: its --config file."""

    name: str
    kind: str
    settings: dict[str, Any]
    wanted_endpoints: frozenset[str] = field(default=frozenset())
    """host:port that its health must list before it counts as ready: opened after its start."""
    engine: str = EMBEDDED
    """The product that the process runs."""

    @property
    def health_port(self) -> int:
        """Return the port of the service's health endpoint."""
        return int(self.settings["health"].rpartition(":")[2])

    @property
    def leave_within(self) -> float:
        """Return the seconds that the process may take to hand its clients on before it ends; 0: it does not."""
        return float(self.settings.get("leave_within", 0))


@dataclass(frozen=True, slots=True)
class ChildHealth:
    """Health of a process. `endpoints`: name → host:port that it serves; `counts`: name → number; `routes`: of a
    router, other router → cost and next router; `hung`: there is a process that accepts the question and does not
    answer it."""

    ready: bool
    detail: str
    endpoints: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    routes: dict[str, Any] = field(default_factory=dict)
    hung: bool = False


class HealthProbe(Protocol):
    """Health probe of one running child."""

    async def ask(self) -> ChildHealth:
        """Probe once, within seconds; raises nothing but cancellation."""

    def close(self) -> None:
        """End probing."""


class Program(Protocol):
    """Program of a child: one of our services, or an external program."""

    def prepare(self, spec: Spec, folder: Path) -> list[str]:
        """Write the program's files into `folder`, or where the spec states. Return the command. Raises OSError.

        One word of the command begins with the path of a file in `folder`, by which a new supervisor recognises
        children of a killed one.
        """

    def probe(self, spec: Spec) -> HealthProbe:
        """Return the health probe of a process."""


class LazyProbe:
    """Probe `name` of `module`, created with these arguments on first use, so that its library is imported after the
    processes have been started.
    """

    def __init__(self, module: str, name: str, *arguments: str) -> None:
        self._module, self._name, self._arguments = module, name, arguments
        self._probe: Any = None

    async def ask(self) -> ChildHealth:
        """Ask the probe, which is made with the first question."""
        if self._probe is None:
            module = await asyncio.to_thread(importlib.import_module, self._module)
            self._probe = getattr(module, self._name)(*self._arguments)
        health: ChildHealth = await self._probe.ask()
        return health

    def close(self) -> None:
        """Close the probe, if it was made."""
        if self._probe is not None:
            self._probe.close()


def foreign(*command: str) -> list[str]:
    """Return a command that runs an external program and ends it with its parent. (-P: no imports from the current
    directory.)"""
    return [sys.executable, "-P", "-m", "enmasse.process.startup", *command]
