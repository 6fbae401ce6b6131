"""Prometheus text for /metrics, by the names Artemis' own metrics have."""

from __future__ import annotations

from collections.abc import Callable

from enmasse.health import metric
from services.broker.core.broker import Broker
from services.broker.core.connections import Connections
from services.broker.core.queue import Queue

_QUEUE: tuple[tuple[str, str, str, Callable[[Queue], int]], ...] = (
    ("message_count", "gauge", "messages held, scheduled and being delivered included", lambda q: q.count),
    ("delivering_message_count", "gauge", "messages being delivered", lambda q: q.delivering),
    ("scheduled_message_count", "gauge", "messages scheduled for later", lambda q: len(q.scheduled)),
    ("persistent_size", "gauge", "bytes of messages held", lambda q: q.bytes),
    ("consumer_count", "gauge", "consumers attached", lambda q: len(q.consumers)),
    ("messages_added", "counter", "messages that came", lambda q: q.added),
    ("messages_acknowledged", "counter", "messages acknowledged", lambda q: q.acknowledged),
    ("messages_expired", "counter", "messages that expired", lambda q: q.expired),
    ("messages_killed", "counter", "messages that could not be delivered", lambda q: q.killed),
    ("messages_lost", "counter", "messages gone from disk or damaged there", lambda q: q.lost),
    ("queue_stalled", "gauge", "1 while a message cannot be read and the queue stands still", lambda q: q.stalled),
)


def metrics(broker: Broker, clients: Connections) -> str:
    name = {"broker": broker.name}
    parts = [
        metric("artemis_connection_count", "gauge", "connections now", [(name, len(clients.all))]),
        metric("artemis_total_connection_count", "counter", "connections since the start", [(name, clients.total)]),
        metric(
            "artemis_address_memory_usage", "gauge", "bytes of payloads in memory", [(name, broker.ledger.resident)]
        ),
        metric("artemis_message_bytes", "gauge", "bytes of all messages held", [(name, broker.ledger.size)]),
    ]
    if broker.store is not None:
        parts.append(metric("artemis_disk_store_bytes", "gauge", "bytes on disk", [(name, broker.store.disk_bytes)]))
        places = broker.store.losses.places
        parts.append(
            metric("artemis_damaged_places", "gauge", "damaged places in files, not seen to", [(name, places)])
        )
    queues = [q for q in broker.catalogue.queues.values() if not q.temporary]
    labels = [{"broker": broker.name, "address": q.address.name, "queue": q.name} for q in queues]
    for short, kind, text, value in _QUEUE:
        samples = [(label, float(value(queue))) for label, queue in zip(labels, queues, strict=True)]
        parts.append(metric(f"artemis_{short}", kind, text, samples))
    return "".join(parts)
