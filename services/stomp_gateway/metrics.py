"""The gateway's metrics (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from enmasse.bridge.bridge import Bridge
from enmasse.bridge.lanes import Counters
from enmasse.metrics import connections, counter, gauge, of_space, single
from services.stomp_gateway.stomp_door import StompDoor
from services.stomp_gateway.stomp_transactions import StompSpace

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def families(door: StompDoor, bridge: Bridge[StompSpace], counters: Counters) -> Iterator[Metric]:
    """Yield the metrics of a gateway."""
    clients = door.clients
    yield gauge("stomp_connections", "STOMP connections that are open now.", single(len(door.connections)))
    users = Counter(client.user for client in clients.clients.values())
    yield connections("stomp", users)
    yield gauge(
        "stomp_subscriptions",
        "Subscriptions of clients.",
        single(sum(len(client.subscriptions) for client in clients.clients.values())),
    )
    outcomes = [({"outcome": outcome.name.lower()}, count) for outcome, count in clients.outcomes.items()]
    yield counter("stomp_messages_total", "Messages from clients, by their outcome.", outcomes)
    errors = [({"message": message}, count) for message, count in sorted(clients.errors.items())]
    yield counter("stomp_errors_total", "ERROR frames, by their message.", errors)
    yield counter(
        "stomp_transactions_total",
        "Transactions that clients have committed, by how that ended.",
        [
            ({"outcome": outcome, **of_space(space)}, count)
            for space, each in bridge.spaces.items()
            for outcome, count in (("committed", each.committed), ("rolled back", each.rolled_back))
        ],
    )
    yield gauge("stomp_kept_bytes", "Bytes of frames that are not complete.", single(clients.kept))
    yield gauge("stomp_transaction_bytes", "Bytes of messages in open transactions.", single(clients.transacted.total))
    yield from bridge.families("stomp", counters)
    yield from bridge.login_families("stomp")
