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
from services.router.routing.traffic import FIELDS, FROM_SENDERS

_OF_LINK = ("count", "bytes", *FROM_SENDERS[2:], "unsettled", "credit", "waiting", "stuck")
_OF_CONNECTION = ("links", "in", "out", "bytesIn", "bytesOut")
_STATED = ("product", "version", "platform")
"""Properties of a peer's open that are shown."""
MAX_TEXT = 250
"""Characters of a text that a peer states."""


class _Known:
    """A connection as of the last look: ids of the links of its peer, the addresses they use (0: as sender, 1: as
    receiver), and what does not change."""

    __slots__ = ("described", "links", "mark", "uses")

    def __init__(self, described: dict[str, Any]) -> None:
        self.described = described
        self.links: list[str] = []
        self.uses: list[tuple[str, int]] = []
        self.mark: tuple[int, ...] = ()

    def is_quiet(self, connection: RouterConnection) -> bool:
        """Return True if nothing was read or written since, and nothing waits that time may change."""
        amqp = connection.amqp
        return (
            self.mark[-2:] == (amqp.bytes_in, amqp.bytes_out)
            and not connection.waiting
            and not any(session.unsettled_in()[1] or session.unsettled_out()[1] for session in amqp.sessions())
        )


class LiveRouter:
    """Offers the source `$live`. Followers are the receivers attached to it."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._node = router.addresses.subscribe(f"M0{NODE}", lambda asking, payload: None)
        self.rows = Rows(router.id, "router", time.time)
        router.refusals.seen = self.rows.event
        self.publisher = Publisher(self.rows, self.look, self._takers, router.clock, every=router.refusals.tick)
        self._connections: dict[str, _Known] = {}
        self._links: dict[str, tuple[Any, dict[str, Any]]] = {}
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
            known = connections.get(id)
            if known is None:
                known = connections[id] = _Known(self._described(connection))
            if not known.is_quiet(connection):
                self._look_at(connection, id, known)
            linked.update(known.links)
            for name, at in known.uses:
                using = users.get(name)
                if using is None:
                    using = users[name] = [0, 0]
                using[at] += 1
            yield
        for gone in connections.keys() - seen:
            del connections[gone]
            rows.drop("connections", gone)
        for gone in links.keys() - linked:
            del links[gone]
            rows.drop("links", gone)
        yield
        yield from self._look_at_addresses(users)

    def _look_at(self, connection: RouterConnection, id: str, known: _Known) -> None:
        """Look at a connection with its links."""
        received, sent = connection.ended_in, connection.ended_out
        known.links, known.uses = [], []
        for record in [] if connection.is_broker else list(connection.links.values()):
            if not record.faces_client:
                continue
            link, name, count = self._look_at_link(record, id)
            known.links.append(link)
            if record.direction == "in":
                received += count
            else:
                sent += count
            if name is not None:
                known.uses.append((name, int(record.direction == "out")))
        amqp = connection.amqp
        mark = len(known.links), received, sent, amqp.bytes_in, amqp.bytes_out
        if mark != known.mark:
            known.mark = mark
            self.rows.put("connections", id, {**known.described, **dict(zip(_OF_CONNECTION, mark, strict=True))})

    def _look_at_link(self, record: LinkRecord, connection: str) -> tuple[str, str | None, int]:
        """Look at a link; return its id, the name of its address, and the number of its deliveries."""
        traffic = self._router.traffic
        counts = traffic.look(record)
        id = str(record.identity)
        name = traffic.name(record)
        link = record.link
        now = link.unsettled, link.credit, record.undelivered, record.stuck
        known = self._links.get(id)
        if known is None or known[0] != (counts, now):
            described = known[1] if known is not None else _described(record, connection, name)
            self._links[id] = (counts, now), described
            if isinstance(record, AnonymousInLink):
                for address in record.sent_to():
                    traffic.look_at_relayed(address)
            row = {**described, **dict(zip(_OF_LINK, (*counts, *now), strict=True))}
            self.rows.put("links", id, row)
        return id, name, counts[0]

    def _described(self, connection: RouterConnection) -> dict[str, Any]:
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


def _described(record: LinkRecord, connection: str, name: str | None) -> dict[str, Any]:
    terminus = record.link.remote_target if record.direction == "in" else record.link.remote_source
    stated = getattr(terminus, "address", None) or record.owning
    return {
        "connection": connection,
        "name": record.name[:MAX_TEXT],
        "address": name,
        "stated": None if stated is None else str(stated)[:MAX_TEXT],
        "dir": record.direction,
    }
