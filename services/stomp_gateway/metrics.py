"""The gateway's metrics (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from enmasse.bridge.bridge import Bridge
from enmasse.bridge.lanes import Counters
from enmasse.metrics import counter, gauge, labelled, largest, of_space, single
from services.stomp_gateway.stomp_door import StompDoor
from services.stomp_gateway.stomp_transactions import StompSpace

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MAX_USERS: Final = 200
"""Users with series of their own."""


def families(door: StompDoor, bridge: Bridge[StompSpace], counters: Counters) -> Iterator[Metric]:
    """Yield the metrics of a gateway."""
    clients = door.clients
    yield gauge("stomp_connections", "STOMP connections that are open now.", single(len(door.connections)))
    users = Counter(client.user for client in clients.clients.values())
    yield gauge(
        "enmasse_connections",
        "Connections of clients, by protocol and user.",
        [({"protocol": "stomp", **labelled("user", user)}, sum(n)) for user, n in largest(users, MAX_USERS, float)],
    )
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
    yield gauge(
        "stomp_waiting_messages",
        "From clients, waiting for credit.",
        [(of_space(space), each.publishing.waiting) for space, each in bridge.spaces.items()],
    )
    yield counter("stomp_repeated_total", "Messages that were sent once more.", single(counters.repeated))
    refused = [({"operation": operation}, count) for operation, count in sorted(bridge.access.refused.items())]
    yield counter("stomp_not_allowed_total", "What clients had no permission for.", refused)
    yield from bridge.refusals.families()
    if bridge.logins is not None:
        yield gauge("stomp_logins_waiting", "Logins that have no answer yet.", single(bridge.logins.waiting))
        found = [({"outcome": outcome}, count) for outcome, count in sorted(bridge.logins.outcomes.items())]
        yield counter("stomp_logins_total", "Logins of clients.", found)
