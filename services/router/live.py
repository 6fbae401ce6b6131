"""Rows of the router's live state (enmasse/live.py, docs/contracts.md): connections, clients' links, addresses.

A look visits connections and the links of clients and services. Links to brokers, of which there are two for each
queue, are not visited, nor are addresses without a link.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any

from enmasse.identity.principal import ANONYMOUS
from enmasse.live import NODE, Publisher, Rows
from services.router.routing.anonymous import AnonymousInLink
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.destination import Destination
from services.router.routing.peers import PeerRights
from services.router.routing.router import Router
from services.router.routing.traffic import FIELDS, FROM_SENDERS, Counts

_IN = ("count", "bytes", *FROM_SENDERS[2:])
_STATED = ("product", "version", "platform")
"""Properties of a peer's open that are shown."""
MAX_TEXT = 250
"""Characters of a text that a peer states."""
_Mark = tuple[Counts, int, int, int, int, bool]


class LiveRouter:
    """Offers the source `$live`. Followers are the receivers attached to it."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._node = router.addresses.subscribe(f"M0{NODE}", lambda asking, payload: None)
        self.rows = Rows(router.id, "router", time.time)
        router.refusals.seen = self.rows.event
        self.publisher = Publisher(self.rows, self.look, self._takers, router.clock, every=router.refusals.tick)
        self._connections: dict[str, tuple[int, ...]] = {}
        self._links: dict[str, _Mark] = {}
        self._users: dict[str, tuple[int, int]] = {}
        self._generation = -1

    def _takers(self) -> Collection[Destination]:
        return self._node.outs

    def look(self) -> Iterator[None]:
        """Bring the rows up to date."""
        router, rows = self._router, self.rows
        if not len(rows):
            self._connections.clear()
            self._links.clear()
            self._users.clear()
            router.traffic.changed.update(router.traffic.totals)
        connections, links = self._connections, self._links
        seen: set[str] = set()
        linked: set[str] = set()
        users: dict[str, list[int]] = {}
        for connection in list(router.connections.values()):
            if connection.closed or connection.opened_at is None:
                continue
            id = str(connection.identity)
            seen.add(id)
            received, sent, of_clients = connection.ended_in, connection.ended_out, 0
            if not connection.is_broker:
                for record in list(connection.links.values()):
                    if not record.faces_client:
                        continue
                    of_clients += 1
                    linked.add(str(record.identity))
                    count = self._look_at(record, id, users)
                    if record.direction == "in":
                        received += count
                    else:
                        sent += count
            amqp = connection.amqp
            mark = received, sent, amqp.bytes_in, amqp.bytes_out, of_clients
            if connections.get(id) != mark:
                connections[id] = mark
                rows.put("connections", id, self._connection(connection, mark))
            yield
        for gone in connections.keys() - seen:
            del connections[gone]
            rows.drop("connections", gone)
        for gone in links.keys() - linked:
            del links[gone]
            rows.drop("links", gone)
        yield
        yield from self._look_at_addresses(users)

    def _look_at(self, record: LinkRecord, connection: str, users: dict[str, list[int]]) -> int:
        """Look at a link; return the number of its deliveries."""
        traffic = self._router.traffic
        counts = traffic.look(record)
        id = str(record.identity)
        link = record.link
        mark = counts, link.unsettled, link.credit, record.undelivered, record.stuck, link.attached
        incoming = record.direction == "in"
        name = traffic.name(record)
        if name is not None:
            using = users.get(name)
            if using is None:
                using = users[name] = [0, 0]
            using[not incoming] += 1
        if self._links.get(id) != mark:
            self._links[id] = mark
            if isinstance(record, AnonymousInLink):
                for address in record.sent_to():
                    traffic.look_at_relayed(address)
            terminus = link.remote_target if incoming else link.remote_source
            stated = getattr(terminus, "address", None) or record.owning
            self.rows.put(
                "links",
                id,
                {
                    "connection": connection,
                    "name": record.name[:MAX_TEXT],
                    "address": name,
                    "stated": None if stated is None else str(stated)[:MAX_TEXT],
                    "dir": record.direction,
                    **dict(zip(_IN, counts, strict=True)),
                    "unsettled": link.unsettled,
                    "credit": link.credit,
                    "waiting": record.undelivered,
                    "stuck": record.stuck,
                },
            )
        return counts[0]

    def _connection(self, connection: RouterConnection, mark: tuple[int, ...]) -> dict[str, Any]:
        received, sent, bytes_in, bytes_out, links = mark
        rights = connection.rights
        role = rights.role if isinstance(rights, PeerRights) else None
        tls = connection.tls
        stated = connection.properties
        return {
            "protocol": "amqp",
            "container": connection.container[:MAX_TEXT],
            "user": (connection.amqp.user or ANONYMOUS)[:MAX_TEXT],
            "peer": connection.host,
            "role": role,
            "kind": connection.role,
            "dir": connection.dir,
            "listener": connection.name,
            "mechanism": connection.mechanism,
            "tls": None if tls is None else {"protocol": tls.protocol, "cipher": tls.cipher},
            "properties": {key: str(stated[key])[:MAX_TEXT] for key in _STATED if stated.get(key)},
            "opened": round(self.rows.wall() - self._router.now() + (connection.opened_at or 0), 1),
            "links": links,
            "in": received,
            "out": sent,
            "bytesIn": bytes_in,
            "bytesOut": bytes_out,
        }

    def _look_at_addresses(self, users: dict[str, list[int]]) -> Iterator[None]:
        """Set the rows of addresses that are used otherwise than before, or that traffic has come to."""
        traffic, rows = self._router.traffic, self.rows
        now = {name: (senders, receivers) for name, (senders, receivers) in users.items()}
        changed, traffic.changed = traffic.changed, set()
        changed.update(name for name, _ in now.items() ^ self._users.items())
        self._users = now
        for n, name in enumerate(changed):
            producers, consumers = now.get(name, (0, 0))
            total = traffic.totals.get(name, ())
            rows.put(
                "addresses",
                name,
                {**dict(zip(FIELDS, total or (0,) * 16, strict=True)), "producers": producers, "consumers": consumers},
            )
            if n % 10 == 9:
                yield
        generation = self._router.addresses.generation + self._router.link_routes.generation
        if generation != self._generation:
            self._generation = generation
            yield from self._forget_removed()

    def _forget_removed(self) -> Iterator[None]:
        """Forget addresses that are no longer configured and that no link uses."""
        router, users = self._router, self._users
        for n, name in enumerate(list(router.traffic.totals)):
            if name not in users and not router.knows(name):
                router.traffic.totals.pop(name, None)
                self.rows.drop("addresses", name)
            if n % 20 == 19:
                yield
