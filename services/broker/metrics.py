"""The broker's metrics (docs/metrics.md): by the names that Artemis gives them, where all of them are gauges, and by
address."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from enmasse.identity.owned import space_of_queue
from enmasse.metrics import counter, gauge, labelled, largest, of_space, single
from enmasse.model.names import DEFAULT_SPACE, in_space, space_prefix
from enmasse.process.settings import METRICS_ADDRESSES
from services.broker.core.broker import Broker
from services.broker.core.connections import Connections
from services.broker.core.history import FIELDS, OF_ADDRESSES, OF_QUEUES
from services.broker.core.limits.space_storage import UNLIMITED
from services.broker.core.queues.queue import Queue

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


_COUNTERS = (
    ("routed", "messages_in", "Messages received that a queue has taken."),
    ("bytes_routed", "bytes_in", "Bytes of the messages received that a queue has taken."),
    ("unrouted", "unrouted", "Messages received that no queue has taken."),
    ("acknowledged", "messages_out", "Messages that consumers have accepted."),
    ("bytes_acknowledged", "bytes_out", "Bytes of the messages that consumers have accepted."),
    ("rejected", "rejected", "Messages that consumers have rejected."),
    ("redelivered", "redelivered", "Deliveries that failed, after which the message was delivered again."),
    ("expired", "expired", "Messages that have expired."),
    ("killed", "dead_lettered", "Messages that became dead letters, or were removed without an address for these."),
    ("replaced", "replaced", "Messages that a queue with a limit has dropped for newer ones."),
    ("lost", "lost", "Messages missing or damaged on disk."),
)
_GAUGES = (
    ("messages", "Messages stored now."),
    ("bytes", "Bytes of the messages stored now."),
    ("consumers", "Consumers attached now; a router counts as one."),
    ("producers", "Senders attached now; a router counts as one."),
)


class _Address:
    """Counters of a configured address, with all queues and all levels below it."""

    def __init__(self) -> None:
        self.counted = [0] * len(FIELDS)
        self.messages = self.bytes = self.consumers = self.producers = 0
        self.oldest: float | None = None
        self.used = 0.0

    def add(self, other: _Address) -> None:
        self.counted = [a + b for a, b in zip(self.counted, other.counted, strict=True)]
        for name, _ in _GAUGES:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.oldest is not None:
            self.oldest = min(self.oldest or other.oldest, other.oldest)
        self.used = max(self.used, other.used)


def _shown(name: str) -> str:
    """Return the name for the labels of an address; one for all the queues of MQTT sessions of a space, `$sub/…`."""
    if not name.startswith("$"):
        return name
    return space_prefix(space_of_queue(name) or DEFAULT_SPACE) + name.partition("/")[0]


def _addresses(broker: Broker, oldest: Callable[[Queue], float | None]) -> dict[str, _Address]:
    found: dict[str, _Address] = {}
    for address in broker.catalogue.addresses.values():
        if not address.root.explicit:
            continue
        row = found.setdefault(_shown(address.root.name), _Address())
        own = _Address()
        own.counted = [getattr(address, field) if field in OF_ADDRESSES else 0 for field in FIELDS]
        own.messages, own.bytes, own.producers = address.count, address.size, len(address.producers)
        own.used = address.size / address.limit if 0 < address.limit < UNLIMITED else 0.0
        row.add(own)
    for queue in broker.catalogue.queues.values():
        of = found.get(_shown(queue.address.root.name))
        if of is None:
            continue
        own = _Address()
        own.counted = [getattr(queue, field) if field in OF_QUEUES else 0 for field in FIELDS]
        own.consumers, own.oldest = len(queue.consumers), oldest(queue)
        of.add(own)
    for name, counted in broker.history.ended.items():
        of = found.get(_shown(name))
        if of is not None:
            of.counted = [a + b for a, b in zip(of.counted, counted, strict=True)]
    return found


def by_address(broker: Broker, oldest: Callable[[Queue], float | None], most: int) -> Iterator[Metric]:
    """Yield the metrics of configured addresses, of the `most` that have received most."""
    rows = []
    for name, some in largest(_addresses(broker, oldest), most, lambda row: row.counted[0]):
        row = _Address()
        for each in some:
            row.add(each)
        rows.append((labelled("address", name), row))
    for field, name, help_text in _COUNTERS:
        at = FIELDS.index(field)
        yield counter(f"enmasse_broker_{name}_total", help_text, [(labels, row.counted[at]) for labels, row in rows])
    for name, help_text in _GAUGES:
        yield gauge(f"enmasse_broker_{name}", help_text, [(labels, getattr(row, name)) for labels, row in rows])
    yield gauge(
        "enmasse_broker_oldest_message_timestamp_seconds",
        "When the oldest message came; for one from before the start of the process, that start.",
        [(labels, row.oldest) for labels, row in rows if row.oldest is not None],
    )
    yield gauge(
        "enmasse_broker_address_used_ratio",
        "Part of the address's limit of bytes that is in use; 0 without a limit.",
        [(labels, row.used) for labels, row in rows],
    )


def of_process(broker: Broker) -> Iterator[Metric]:
    """Yield what is used of memory and disk, and how long syncs take."""
    ledger, store = broker.ledger, broker.store
    if ledger.capacity < UNLIMITED:
        yield gauge("enmasse_broker_capacity_bytes", "Bytes of messages that may be stored.", single(ledger.capacity))
        yield gauge(
            "enmasse_broker_capacity_used_ratio", "Part of it that is in use.", single(ledger.size / ledger.capacity)
        )
    if store is not None:
        yield gauge("enmasse_broker_disk_used_bytes", "Bytes of the broker's files.", single(store.disk_bytes))
        free = store.disk_free
        if free is not None:
            yield gauge("enmasse_broker_disk_free_bytes", "Bytes free on its file system.", single(free))
        yield store.latency.family("enmasse_broker_sync_seconds", "Seconds in which batches were written and synced.")


def _labels(broker: str, queue: Queue) -> dict[str, str]:
    address, space = queue.address.name, queue.address.tenant or DEFAULT_SPACE
    own = {"broker": broker, "address": in_space(space, address), "queue": in_space(space, queue.name)}
    return {**own, **of_space(space)}


def families(
    broker: Broker,
    clients: Connections,
    oldest: Callable[[Queue], float | None] = lambda queue: None,
    most: int = METRICS_ADDRESSES,
) -> Iterator[Metric]:
    """Yield the metrics of the broker, then of its queues that are not temporary, then of its addresses. `oldest`: when
    the oldest message of a queue came; `most`: addresses."""
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
    labels = [_labels(broker.name, queue) for queue in queues]
    for name, help_text, value in _QUEUE:
        yield gauge(f"artemis_{name}", help_text, zip(labels, map(value, queues), strict=True))
    yield from of_process(broker)
    yield from by_address(broker, oldest, most)
