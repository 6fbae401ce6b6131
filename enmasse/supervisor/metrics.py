"""/metrics of the suite: the status JSON, the memory of the processes, and families of its components."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from enmasse.http.client import Client
from enmasse.identity.processes.operator import BEARER
from enmasse.metrics import OTHERS, counter, gauge, labelled, largest, parse, single
from enmasse.model.feeds import PHASES
from enmasse.model.names import DEFAULT_SPACE, LocalName, full_name
from enmasse.process.process_usage import resident_bytes
from enmasse.process.settings import METRICS_ADDRESSES
from enmasse.supervisor.error_lines import INSECURE
from enmasse.supervisor.plan.services import BEHIND, RATE
from enmasse.supervisor.status import Status

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LOSSES = ("artemis_lost_message_count", "artemis_damaged_places")
TOPIC_CONSUMERS = "enmasse_mqtt_topic_consumers"
"""Family of a gateway: consumers that neither routers nor brokers count."""
PREFIXES = ("enmasse_", "mqtt_packets_")
"""Families that are taken over from components: of these names, and those that begin so. What a component counts for
itself (`enmasse_addresses` of the configuration service) is in the suite's own families."""
COUNTS = {
    "clients": "MQTT clients connected.",
    "sessions": "MQTT sessions, those of clients that are away included.",
    "subscriptions": "Subscriptions: filters of MQTT sessions, and durable ones of AMQP clients.",
    "retained": "Retained messages.",
    "wills": "Wills that are kept.",
}
"""Counts of the status → help of their families."""
OF_SPARK = {
    RATE: ("rows_per_second", "Rows that come into the pipeline in a second."),
    BEHIND: ("messages_behind", "Messages that are spooled and not processed."),
}
"""Counts of the status → end of their families' names, and their help."""
SECONDS = 2.0
"""Seconds for a component to answer."""
MAX_ANSWER = 64 << 20


def families(
    status: Status, most: int = METRICS_ADDRESSES, answers: Iterable[tuple[str, bytes]] = ()
) -> Iterator[Metric]:
    """Yield the metrics of one status (docs/metrics.md). `most`: addresses with series of their own; `answers`: of the
    components, as of `ask`."""
    components, addresses = status["components"], status["addresses"]
    labels = [{"name": c["name"], "kind": c["kind"]} for c in components]
    phases = Counter(a["phase"] for a in addresses)
    yield gauge("enmasse_ready", "1 if messages flow: see `ready` of the status.", single(int(status["ready"])))
    yield gauge(
        "enmasse_degraded", "Components that are not ready, and without which messages flow on.",
        single(len(status["degraded"])),
    )  # fmt: skip
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
    for count, (end, text) in OF_SPARK.items():
        known = [({"name": c["name"]}, c["counts"][count]) for c in components if count in c["counts"]]
        if known:
            yield gauge(f"enmasse_spark_{end}", text, known)
    yield gauge("enmasse_addresses", "Addresses by phase.", [({"phase": phase}, phases[phase]) for phase in PHASES])
    yield gauge("enmasse_config_errors", "Errors in the configuration files.", single(len(status["errors"])))
    yield gauge(
        "enmasse_insecure", "1 if clients may connect over the network like this.",
        [({"what": word}, int(word in status["insecure"])) for word in INSECURE],
    )  # fmt: skip
    stored = sum(a.get("messages") or 0 for a in addresses)
    yield gauge("enmasse_messages", "Messages stored, all addresses together.", single(stored))
    for field, name, help_text, more in (
        ("messages", "enmasse_address_messages", "Messages stored.", {}),
        ("consumers", "enmasse_address_consumers", "Receivers attached.", _consumers_of_topics(answers)),
    ):
        yield gauge(name, help_text, _by_address(addresses, field, most, more))


def ask(components: Iterable[tuple[str, str, int]], secret: str) -> list[tuple[str, bytes]]:
    """Return name and metrics of components, given by name, host and health port, in Prometheus' text format; blocks
    during the requests, which run side by side. Empty if one does not answer in time. `secret`: the operator's."""
    targets = list(components)
    with ThreadPoolExecutor(max_workers=max(1, min(8, len(targets)))) as pool:
        answers = pool.map(lambda target: _get(target[1], target[2], secret), targets)
        return [(name, answer) for (name, _, _), answer in zip(targets, answers, strict=True)]


def of_components(answers: Iterable[tuple[str, bytes]], own: Iterable[Metric]) -> bytes:
    """Return families of the components' `answers`, each series with the label `process`. Families that are among the
    suite's `own` are left out."""
    taken = {family.name for family in own}
    families: dict[str, list[bytes]] = {}
    for name, answer in answers:
        _merge(families, answer, name, taken)
    return b"".join(line + b"\n" for lines in families.values() for line in lines)


def _merge(families: dict[str, list[bytes]], answer: bytes, process: str, taken: Collection[str]) -> None:
    """Add the wanted lines of an answer: text, which is not parsed, because there may be tens of thousands of them."""
    label = b'process="%s"' % process.encode()
    lines: list[bytes] | None = None
    new = False
    for line in answer.split(b"\n"):
        if line.startswith(b"# HELP "):
            name = line.split(b" ", 3)[2].decode()
            new = name not in families
            wanted = name in LOSSES or (name.startswith(PREFIXES) and name.removesuffix("_total") not in taken)
            lines = families.setdefault(name, [line]) if wanted else None
        elif line.startswith(b"# TYPE "):
            if lines is not None and new:
                lines.append(line)
        elif line and lines is not None and not line.startswith(b"#"):
            head, brace, rest = line.partition(b"{")
            if brace:
                lines.append(b"%b{%b,%b" % (head, label, rest))
            else:
                head, _, value = line.partition(b" ")
                lines.append(b"%b{%b} %b" % (head, label, value))


def _get(host: str, port: int, secret: str) -> bytes:
    """Return what a component answers; empty if it does not."""
    client = Client(host, port, timeout=SECONDS)
    try:
        answer = client.request("GET", "/metrics", {"Authorization": f"{BEARER}{secret}"}, most=MAX_ANSWER)
    except (OSError, ValueError):
        return b""
    finally:
        client.close()
    return answer.body if answer.status == 200 else b""


def _consumers_of_topics(answers: Iterable[tuple[str, bytes]]) -> Counter[str]:
    """Return topic → subscriptions at all gateways; OTHERS: those of topics for which a gateway has no series."""
    prefix = TOPIC_CONSUMERS.encode()
    lines = [line for _, answer in answers for line in answer.split(b"\n") if line.startswith(prefix)]
    found: Counter[str] = Counter()
    for family in parse(b"\n".join([*lines, b""])):
        for sample in family.samples:
            local = sample.labels["address"]
            space = sample.labels.get("space", DEFAULT_SPACE)
            found[local if local == OTHERS else full_name(space, LocalName(local))] += int(sample.value)
    return found


def _by_address(
    addresses: list[dict[str, Any]], field: str, most: int, more: Mapping[str, int]
) -> list[tuple[dict[str, str], float]]:
    """Return the series of a number of addresses. `more`: what the status does not count."""
    types = {a["name"]: a["type"] or "" for a in addresses}
    counted = {a["name"]: a[field] for a in addresses if a.get(field) is not None}
    known = {name: counted.get(name, 0) + more.get(name, 0) for name in types if name in counted or name in more}
    shown = dict(largest(known, most, float))
    if OTHERS in more:
        shown[OTHERS] = [*shown.get(OTHERS, ()), more[OTHERS]]
    return [({**labelled("address", name), "type": types.get(name, "")}, sum(some)) for name, some in shown.items()]
