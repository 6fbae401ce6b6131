"""What the running suite says of itself, and what its processes hold."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import psutil

from enmasse.testing import Suite

MEMORY = 250 << 20
"""Bytes that a process may hold when a fault is over: a broker of this soak keeps 2 MiB of messages in memory."""
DESCRIPTORS = 60
"""Files and sockets that a process may have open beyond what it had at the beginning."""


def status(suite: Suite) -> dict[str, Any]:
    """The status JSON; of a suite that does not answer, that of one that is not ready."""
    try:
        url = f"http://127.0.0.1:{8079 + suite.offset}/api/status"
        with urllib.request.urlopen(urllib.request.Request(url, headers=suite.operator_headers), timeout=20) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, ValueError):
        return {"ready": False, "components": [], "addresses": [], "errors": []}


def not_ready(now: dict[str, Any]) -> str:
    """What is not ready, in a line."""
    parts = [f"{c['name']}: {c['detail'] or 'not ready'}" for c in now["components"] if not c["ready"]]
    parts += [f"{a['name']}: {a['phase']} {a['message']}".strip() for a in now["addresses"] if not a["ready"]]
    return "; ".join(parts) or ("" if now["ready"] else "does not answer")


@dataclass
class Watch:
    """Memory and descriptors of the suite's processes, by component."""

    first: dict[str, int] = field(default_factory=dict)
    """Descriptors of each at the first look."""
    highest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each: the most bytes, the most descriptors seen."""

    def look(self, now: dict[str, Any]) -> tuple[int, int, list[str]]:
        """The largest process in bytes, the most descriptors, and what is beyond bounds."""
        problems = []
        most_memory = most_files = 0
        for component in now["components"]:
            name = component["name"]
            try:
                process = psutil.Process(component["pid"])
                memory, files = int(process.memory_info().rss), int(process.num_fds())
            except (psutil.Error, TypeError):
                continue
            first = self.first.setdefault(name, files)
            before = self.highest.get(name, (0, 0))
            self.highest[name] = max(before[0], memory), max(before[1], files)
            most_memory, most_files = max(most_memory, memory), max(most_files, files)
            if memory > MEMORY:
                problems.append(f"{name} holds {memory >> 20} MiB")
            if files > first + DESCRIPTORS:
                problems.append(f"{name} has {files} descriptors open, {first} at the beginning")
        return most_memory, most_files, problems
