"""Metrics by address of brokers that serve none themselves, from the rows of their listings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from enmasse.control.listings import AddressRow, QueueRow
from enmasse.metrics import counter, gauge, labelled, largest
from enmasse.model.names import WireName, address_name
from services.storage_controller.brokers.broker_contents import SESSIONS, root_of, topics_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

OF_SESSIONS = SESSIONS.removesuffix("/")
"""Label of the queues of all MQTT sessions, as at the embedded broker."""


class Traffic(NamedTuple):
    """Messages of an address since the start of its broker, and what it has now."""

    messages_in: int = 0
    messages_out: int = 0
    expired: int = 0
    dead_lettered: int = 0
    messages: int = 0
    consumers: int = 0


_COUNTERS = {
    "messages_in": "Messages received that a queue has taken.",
    "messages_out": "Messages that consumers have accepted.",
    "expired": "Messages that have expired.",
    "dead_lettered": "Messages that became dead letters, or were removed without an address for these.",
}
_GAUGES = {"messages": "Messages stored now.", "consumers": "Consumers attached now; a router counts as one."}


def by_address(queues: Iterable[QueueRow], addresses: Iterable[AddressRow]) -> dict[str, Traffic]:
    """Sum the rows up: a topic has what its subscriptions and levels have. Raises ValueError if a count is not a
    number."""
    addresses = list(addresses)
    topics = topics_of(addresses)
    found: dict[str, Traffic] = {}

    def add(name: str, more: Traffic) -> None:
        before = found.get(name, Traffic())
        found[name] = Traffic(*map(sum, zip(before, more, strict=True)))

    for row in queues:
        is_session, root = row.name.startswith(SESSIONS), None
        if row.temporary == "true" or row.internalQueue == "true":
            continue
        if not is_session and row.routingType == "MULTICAST":
            root = root_of(row.address, topics)
            if root is None:
                continue
        elif not is_session and row.name != row.address:
            continue
        name = OF_SESSIONS if is_session else root or address_name(WireName(row.name))
        came = 0 if root is not None else int(row.messagesAdded)
        gone = int(row.messagesAcked), int(row.messagesExpired), int(row.messagesKilled)
        add(name, Traffic(came, *gone, max(0, int(row.messageCount)), int(row.consumerCount)))
    for address in addresses:
        root = root_of(address.name, topics)
        if root is not None and (routed := int(address.routedMessageCount)):
            add(root, Traffic(routed))
    return found


def families(brokers: Mapping[str, Mapping[str, Traffic]], most: int) -> Iterator[Metric]:
    """Yield the metrics of brokers by name, under the names of the embedded broker's (docs/metrics.md), with the label
    `broker`. `most`: addresses of a broker with series of their own."""
    rows = [
        ({**labelled("address", name), "broker": broker}, Traffic(*map(sum, zip(*some, strict=True))))
        for broker, traffic in brokers.items()
        for name, some in largest(traffic, most, lambda each: each.messages_in)
    ]
    if not rows:
        return
    for field, text in _COUNTERS.items():
        yield counter(f"enmasse_broker_{field}_total", text, [(labels, getattr(row, field)) for labels, row in rows])
    for field, text in _GAUGES.items():
        yield gauge(f"enmasse_broker_{field}", text, [(labels, getattr(row, field)) for labels, row in rows])
