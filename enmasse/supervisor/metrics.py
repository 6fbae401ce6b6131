"""/metrics of the suite: the status JSON, the memory of the processes, and losses of the brokers."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.identity.operator import BEARER
from enmasse.metrics import counter, gauge, parse, single
from enmasse.model.feeds import PHASES
from enmasse.supervisor.lines import INSECURE
from enmasse.supervisor.status import Status

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MAX_ADDRESSES = 1000
"""Number of addresses with series of their own; further ones count only in the sums."""
LOSSES = ("artemis_lost_message_count", "artemis_damaged_places")
"""Families that are taken over from the brokers."""
COUNTS = {
    "clients": "MQTT clients connected.",
    "sessions": "MQTT sessions, those of clients that are away included.",
    "subscriptions": "Subscriptions: filters of MQTT sessions, and durable ones of AMQP clients.",
    "retained": "Retained messages.",
    "wills": "Wills that are kept.",
}
"""Counts of the status → help of their families."""
BROKER_SECONDS = 2.0
MAX_ANSWER = 64 << 10


def families(status: Status) -> Iterator[Metric]:
    """Yield the metrics of one status (docs/metrics.md)."""
    components, addresses = status["components"], status["addresses"]
    labels = [{"name": c["name"], "kind": c["kind"]} for c in components]
    phases = Counter(a["phase"] for a in addresses)
    shown = addresses[:MAX_ADDRESSES]
    yield gauge("enmasse_ready", "1 if all components and addresses are ready.", single(int(status["ready"])))
    yield gauge(
        "enmasse_component_up", "1 if the process runs and is ready.",
        zip(labels, (int(c["ready"]) for c in components), strict=True),
    )  # fmt: skip
    yield counter(
        "enmasse_component_restarts_total", "How often the process was started again.",
        zip(labels, (c["restarts"] for c in components), strict=True),
    )  # fmt: skip
    yield gauge(
        "enmasse_component_resident_memory_bytes", "Resident memory of the process.",
        zip(labels, (resident_bytes(c["pid"]) for c in components), strict=True),
    )  # fmt: skip
    for count, text in COUNTS.items():
        known = [({"name": c["name"]}, c["counts"][count]) for c in components if count in c["counts"]]
        if known:
            yield gauge(f"enmasse_mqtt_{count}", text, known)
    yield gauge("enmasse_addresses", "Addresses by phase.", [({"phase": phase}, phases[phase]) for phase in PHASES])
    yield gauge("enmasse_config_errors", "Errors in the configuration files.", single(len(status["errors"])))
    yield gauge(
        "enmasse_insecure", "1 if clients may connect over the network like this.",
        [({"what": word}, int(word in status["insecure"])) for word in INSECURE],
    )  # fmt: skip
    stored = sum(a.get("messages") or 0 for a in addresses)
    yield gauge("enmasse_messages", "Messages stored, all addresses together.", single(stored))
    yield gauge(
        "enmasse_address_messages", f"Messages stored, of the first {MAX_ADDRESSES} addresses.",
        _per_address(shown, "messages"),
    )  # fmt: skip
    yield gauge(
        "enmasse_address_consumers", f"Receivers attached, of the first {MAX_ADDRESSES} addresses.",
        _per_address(shown, "consumers"),
    )  # fmt: skip


def losses(brokers: Iterable[tuple[str, int]], secret: str) -> list[Metric]:
    """Return the losses of the brokers at these (host, health port); blocks during the requests. Brokers that do not
    answer in time are left out. `secret`: the operator's."""
    found: dict[str, Metric] = {}
    for host, port in brokers:
        with contextlib.suppress(OSError, HTTPException, ValueError):
            for family in parse(_get(host, port, "&".join(f"name[]={name}" for name in LOSSES), secret)):
                if family.name in found:
                    found[family.name].samples += family.samples
                elif family.name in LOSSES:
                    found[family.name] = family
    return list(found.values())


def _get(host: str, port: int, query: str, secret: str) -> bytes:
    connection = HTTPConnection(host, port, timeout=BROKER_SECONDS)
    try:
        connection.request("GET", f"/metrics?{query}", headers={"Authorization": f"{BEARER}{secret}"})
        return connection.getresponse().read(MAX_ANSWER)
    finally:
        connection.close()


def _per_address(addresses: list[dict[str, Any]], field: str) -> list[tuple[dict[str, str], float]]:
    known = [a for a in addresses if a.get(field) is not None]
    return [({"address": a["name"], "type": a["type"] or ""}, a[field]) for a in known]


def resident_bytes(pid: int | None) -> int:
    """Return the resident set size of a process in bytes; 0 if it cannot be read."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
