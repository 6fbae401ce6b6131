"""The broker's metrics, by the names that Artemis gives them; as there, all of them are gauges (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from enmasse.metrics import gauge
from services.broker.core.broker import Broker
from services.broker.core.connections import Connections
from services.broker.core.queue import Queue

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_QUEUE: tuple[tuple[str, str, Callable[[Queue], int]], ...] = (
    ("message_count", "Messages stored, those scheduled and those being delivered included.", lambda q: q.count),
    ("delivering_message_count", "Messages being delivered.", lambda q: q.dispatcher.delivering),
    ("scheduled_message_count", "Messages scheduled for later.", lambda q: len(q.schedule)),
    ("persistent_size", "Bytes of the messages stored.", lambda q: q.bytes),
    ("consumer_count", "Consumers attached.", lambda q: len(q.consumers)),
    ("messages_added", "Messages received since the start.", lambda q: q.added),
    ("messages_acknowledged", "Messages acknowledged since the start.", lambda q: q.acknowledged),
    ("messages_expired", "Messages expired since the start.", lambda q: q.expired),
    ("messages_killed", "Messages given up since the start: delivered too often.", lambda q: q.killed),
    ("messages_replaced", "Messages a ring dropped for newer ones since the start.", lambda q: q.replaced),
    ("messages_lost", "Messages missing or damaged on disk.", lambda q: q.lost),
    (
        "queue_stalled",
        "1 while the queue stands still because a message cannot be read.",
        lambda q: q.dispatcher.stalled,
    ),
)


def families(broker: Broker, clients: Connections) -> Iterator[Metric]:
    """Yield the metrics of the broker, then of its queues that are not temporary."""
    label = {"broker": broker.name}
    yield from broker.refusals.families()
    yield gauge("artemis_connection_count", "Connections now.", [(label, len(clients.all))])
    yield gauge("artemis_total_connection_count", "Connections since the start.", [(label, clients.total)])
    yield gauge("artemis_address_memory_usage", "Bytes of messages in memory.", [(label, broker.ledger.resident)])
    yield gauge("artemis_message_bytes", "Bytes of all messages stored.", [(label, broker.ledger.size)])
    if broker.store is not None:
        losses = broker.store.losses
        lost = sum(losses.queues.values())
        yield gauge("artemis_disk_store_bytes", "Bytes on disk.", [(label, broker.store.disk_bytes)])
        yield gauge(
            "artemis_damaged_places", "Damaged places in files, until the report is deleted.", [(label, losses.places)]
        )
        yield gauge("artemis_lost_message_count", "Messages lost, until the report is deleted.", [(label, lost)])
    queues = [queue for queue in broker.catalogue.queues.values() if not queue.temporary]
    labels = [{"broker": broker.name, "address": queue.address.name, "queue": queue.name} for queue in queues]
    for name, help_text, value in _QUEUE:
        yield gauge(f"artemis_{name}", help_text, zip(labels, map(value, queues), strict=True))
