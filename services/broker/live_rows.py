"""Rows of the broker's live state (enmasse/live_state.py, docs/contracts.md): queues and addresses that have changed,
connections, and links of those that are not routers. A look visits no queue at which nothing happens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final

from enmasse.aio.live_follower import LiveLink
from enmasse.clock import Clock
from enmasse.live_state import LivePublisher, Rows
from enmasse.process.process_usage import UsageRow
from services.broker.core.broker import Broker
from services.broker.core.connections import ConnectionInfo, Connections
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.space_storage import UNLIMITED
from services.broker.core.queues.queue import Queue

MAX_TEXT: Final = 250
"""Characters of a text that a peer states."""
_MOST_MARKS: Final = 4096


class Ages:
    """Times at which ids of messages were assigned, to a second for the newest ones; of messages from before the start
    of the process it is known that they are older."""

    def __init__(self, first: int, wall: float) -> None:
        self._started = wall
        self._ids = [first]
        self._times = [wall]

    def note(self, next_id: int, wall: float) -> None:
        """Note the id of the next message, once a second."""
        if next_id != self._ids[-1]:
            self._ids.append(next_id)
            self._times.append(wall)
        else:
            self._times[-1] = wall  # nothing has come since
        if len(self._ids) > _MOST_MARKS:  # of older ones every second mark will do
            half = _MOST_MARKS // 2
            self._ids[:half] = self._ids[:half:2]
            self._times[:half] = self._times[:half:2]

    def of(self, id: int) -> float:
        """Return when the message came (seconds since 1970); it may have been up to a second later."""
        at = bisect_right(self._ids, id)
        return self._times[at - 1] if at else self._started


class LiveBroker:
    """Offers the source `$live` to `followers`."""

    def __init__(
        self, broker: Broker, clients: Connections, clock: Clock, flush: Callable[[], None] = lambda: None
    ) -> None:
        self._broker = broker
        self._clients = clients
        self.followers: set[LiveLink] = set()
        self.rows = Rows(broker.name, "broker", self._wall)
        broker.refusals.seen = self.rows.event
        broker.revision.followed = lambda: len(self.rows) > 0
        self.ages = Ages(broker.next_id(0), self._wall())
        self.publisher = LivePublisher(self.rows, self.look, lambda: self.followers, clock, flush, self._note)
        self._marks: dict[str, tuple[Any, ...]] = {}
        self._links: dict[str, set[str]] = {}
        self._names: dict[str, set[str]] = {"queues": set(), "addresses": set()}
        self._busy: dict[Queue, None] = {}
        self._usage = UsageRow(self._facts)

    def _wall(self) -> float:
        return self._broker.wall() / 1000

    def _note(self) -> None:
        self.ages.note(self._broker.next_id(0), self._wall())
        self._broker.refusals.tick()

    def look(self) -> Iterator[None]:
        """Bring the rows up to date."""
        ledger, catalogue = self._broker.ledger, self._broker.catalogue
        if not len(self.rows):
            self._marks.clear()
            self._links.clear()
            self._names = {"queues": set(), "addresses": set()}
            self._busy.clear()
            changed: list[Any] = [*catalogue.queues.values(), *catalogue.addresses.values()]
        else:
            changed = [*ledger.touched, *(queue for queue in self._busy if queue not in ledger.touched)]
        for n, each in enumerate(changed):
            self._broker.revision.seen(each)
            if isinstance(each, Queue):
                self._queue(each)
            else:
                self._address(each)
            if n % 10 == 9:
                yield
        for kind, known in (("queues", catalogue.queues), ("addresses", catalogue.addresses)):
            for gone in self._names[kind] - known.keys():
                self._names[kind].discard(gone)
                self.rows.drop(kind, gone)
        yield
        self.rows.put("about", self._broker.name, self._usage.row())
        yield from self._look_at_connections()

    def _facts(self) -> dict[str, Any]:
        """Return what the broker uses of memory and disk, and how long syncs took, since its start."""
        ledger, store = self._broker.ledger, self._broker.store
        facts: dict[str, Any] = {
            "size": ledger.size,
            "capacity": ledger.capacity if ledger.capacity < UNLIMITED else None,
            "messageMemory": ledger.resident,
        }
        if store is not None:
            latency = store.latency
            facts |= {"diskUsed": store.disk_bytes, "diskFree": store.disk_free}
            facts |= {"syncs": latency.count, "syncSeconds": round(latency.total, 6)}
        return facts

    def _queue(self, queue: Queue) -> None:
        if queue.deleted:
            queue.retire()
            self._busy.pop(queue, None)
            return
        delivering = queue.dispatcher.delivering
        if queue.arriving or delivering or queue.dispatcher.stalled or queue.schedule:
            self._busy[queue] = None  # what is on its way in or out changes without a touch
        else:
            self._busy.pop(queue, None)
        self._names["queues"].add(queue.name)
        self.rows.put(
            "queues",
            queue.name,
            {
                "address": queue.address.name,
                "routingType": queue.routing_type,
                "durable": queue.durable,
                "temporary": queue.temporary,
                "owner": queue.client,
                "messages": queue.count,
                "bytes": queue.bytes,
                "delivering": delivering,
                "scheduled": len(queue.schedule),
                "consumers": len(queue.consumers),
                "in": queue.added,
                "bytesIn": queue.bytes_added,
                "out": queue.acknowledged,
                "bytesOut": queue.bytes_acknowledged,
                "rejected": queue.rejected,
                "redelivered": queue.redelivered,
                "expired": queue.expired,
                "deadLettered": queue.killed,
                "replaced": queue.replaced,
                "lost": queue.lost,
                "oldest": self.oldest(queue),
                "paused": queue.dispatcher.paused,
                "stalled": queue.dispatcher.stalled,
            },
        )

    def oldest(self, queue: Queue) -> float | None:
        """Return when the oldest message came, of those that wait or are being delivered."""
        ids = [next(iter(consumer.unsettled), None) for consumer in queue.consumers]
        ids += [queue.order.first_id()]
        known = [id for id in ids if id is not None]
        return round(self.ages.of(min(known)), 1) if known else None

    def _address(self, address: BrokerAddress) -> None:
        if self._broker.catalogue.addresses.get(address.name) is not address:
            address.retire()
            return
        self._names["addresses"].add(address.name)
        admission = self._broker.admission
        self.rows.put(
            "addresses",
            address.name,
            {
                "in": address.routed,
                "unrouted": address.unrouted,
                "messages": address.count,
                "bytes": address.size,
                "limit": address.limit if address.limit < UNLIMITED else None,
                "full": admission.full_policy(address),
                "producers": len(address.producers),
            },
        )

    def _look_at_connections(self) -> Iterator[None]:
        rows, links = self.rows, self._links
        for client in list(self._clients.all.values()):
            if not client.container:
                continue
            mark = client.traffic()
            if self._marks.get(client.id) != mark:
                self._marks[client.id] = mark
                rows.put("connections", client.id, self._connection(client, mark))
            if not client.router:
                shown = set(client.producers) | set(client.consumers)
                for id in links.get(client.id, set()) - shown:
                    rows.drop("links", id)
                links[client.id] = shown
                for producer in client.producers.values():
                    self._link(client, producer.id, producer.address, "in", producer.sent, 0, "")
                for consumer in client.consumers.values():
                    waiting = consumer.delivering()
                    self._link(client, consumer.id, consumer.address, "out", 0, waiting, consumer.queue)
            yield
        for gone in self._marks.keys() - self._clients.all.keys():
            del self._marks[gone]
            rows.drop("connections", gone)
            for id in links.pop(gone, ()):
                rows.drop("links", id)

    def _link(
        self, client: ConnectionInfo, id: str, address: str, direction: str, count: int, unsettled: int, queue: str
    ) -> None:
        self.rows.put(
            "links",
            id,
            {
                "connection": client.id,
                "address": address[:MAX_TEXT] or None,
                "queue": queue[:MAX_TEXT] or None,
                "dir": direction,
                "count": count if direction == "in" else None,
                "unsettled": unsettled,
            },
        )

    def _connection(self, client: ConnectionInfo, mark: tuple[int, ...]) -> dict[str, Any]:
        links, bytes_in, bytes_out = mark
        return {
            "protocol": "amqp",
            "container": client.container[:MAX_TEXT],
            "user": client.user[:MAX_TEXT],
            "peer": client.remote,
            "role": client.role or None,
            "opened": client.created / 1000,
            "links": links,
            "bytesIn": bytes_in,
            "bytesOut": bytes_out,
        }
