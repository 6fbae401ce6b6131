"""/metrics of the suite: the status JSON and the memory of the processes in Prometheus' text format."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from enmasse.health import metric
from enmasse.supervisor.status import Status

MAX_ADDRESSES = 1000
"""Addresses with series of their own; those above are only in the sums."""
PHASES = ("Pending", "Configuring", "Active", "Failed", "Terminating")


def render(status: Status) -> str:
    """The text of /metrics for one status."""
    components, addresses = status["components"], status["addresses"]
    labels = [{"name": c["name"], "kind": c["kind"]} for c in components]
    phases = Counter(a["phase"] for a in addresses)
    shown = addresses[:MAX_ADDRESSES]
    parts = [
        metric("enmasse_ready", "gauge", "Whether all is ready.", [({}, int(status["ready"]))]),
        metric(
            "enmasse_component_up", "gauge", "Whether the process runs and is ready.",
            zip(labels, (int(c["ready"]) for c in components), strict=True),
        ),
        metric(
            "enmasse_component_restarts_total", "counter", "How often the process was started again.",
            zip(labels, (c["restarts"] for c in components), strict=True),
        ),
        metric(
            "enmasse_component_resident_memory_bytes", "gauge", "Resident memory of the process.",
            zip(labels, (resident_bytes(c["pid"]) for c in components), strict=True),
        ),
        metric(
            "enmasse_addresses", "gauge", "Addresses by phase.",
            [({"phase": phase}, phases.get(phase, 0)) for phase in PHASES],
        ),
        metric("enmasse_config_errors", "gauge", "Errors in the configuration files.", [({}, len(status["errors"]))]),
        metric(
            "enmasse_messages", "gauge", "Messages stored, all addresses together.",
            [({}, sum(a.get("messages") or 0 for a in addresses))],
        ),
        metric(
            "enmasse_address_messages", "gauge", f"Messages stored, the first {MAX_ADDRESSES} addresses.",
            _per_address(shown, "messages"),
        ),
        metric(
            "enmasse_address_consumers", "gauge", f"Receivers attached, the first {MAX_ADDRESSES} addresses.",
            _per_address(shown, "consumers"),
        ),
    ]  # fmt: skip
    return "".join(parts)


def _per_address(addresses: list[dict[str, Any]], field: str) -> list[tuple[dict[str, str], float]]:
    known = [a for a in addresses if a.get(field) is not None]
    return [({"address": a["name"], "type": a["type"] or ""}, a[field]) for a in known]


def resident_bytes(pid: int | None) -> int:
    """Resident set size of a process in bytes; 0 where it cannot be read."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
