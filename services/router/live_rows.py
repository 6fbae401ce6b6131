"""Rows of the router's live state (enmasse/live_state.py, docs/contracts.md): connections, clients' links, addresses.

A look visits connections and the links of clients and services. Links to brokers, of which there are two for each
queue, are not visited, nor are addresses without a link.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from enmasse.amqp.termini import SPACE
from enmasse.identity.principal import ANONYMOUS
from enmasse.identity.processes.roles import GATEWAYS
from enmasse.live_state import NODE, LivePublisher, Rows
from enmasse.process.process_usage import UsageRow
from services.router.routing.addresses.destination import Destination
from services.router.routing.addresses.traffic import FIELDS, FROM_SENDERS
from services.router.routing.anonymous import AnonymousInLink
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.peers import PeerRights
from services.router.routing.router import Router


def _numbers(*fields: str) -> bytes:
    """Return a pattern for the end of a row: numbers with these names."""
    return b",".join(b'"%b":%%d' % field.encode() for field in fields) + b"}"


# A row is written by hand as the JSON that followers get: making an object of it first costs three times as much.
_OF_LINK = _numbers("count", "bytes", *FROM_SENDERS[2:], "unsettled", "credit", "waiting", "stuck")
_OF_CONNECTION = _numbers("links", "in", "out", "bytesIn", "bytesOut")
_OF_ADDRESS = b"{" + _numbers(*FIELDS, "producers", "consumers")
_NOTHING = (0,) * len(FIELDS)
_STATED = ("product", "version", "platform", SPACE)
"""Properties of a peer's open that are shown."""
MAX_TEXT = 250
"""Characters of a text that a peer states."""


class _Known:
    """A connection as of the last look: identities of the links of its peer, the addresses they use (0: as sender, 1:
    as receiver), and what does not change."""

    __slots__ = ("described", "id", "links", "mark", "uses")

    def __init__(self, id: str, described: bytes) -> None:
        self.id = id
        self.described = described
        self.links: list[int] = []
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
        self.publisher = LivePublisher(self.rows, self.look, self._takers, router.clock, every=router.refusals.tick)
        self._connections: dict[int, _Known] = {}
        self._links: dict[int, tuple[Any, bytes, str]] = {}
        self._users: dict[str, list[int]] = {}
        """Address → links of senders and of receivers that use it; without those that no link uses."""
        self._others: set[str] = set()
        """Other routers that have rows."""
        self._generation = -1
        self._usage = UsageRow()

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
        connections = self._connections
        for n, connection in enumerate(list(router.connections.values())):
            if connection.closed or connection.opened_at is None:
                self._drop(connection.identity)
                continue
            known = connections.get(connection.identity)
            if known is None:
                described = _begun(self._described(connection))
                known = connections[connection.identity] = _Known(str(connection.identity), described)
            elif known.is_quiet(connection):
                if n % 32 == 31:
                    yield
                continue
            self._look_at(connection, known)
            yield
        for gone in connections.keys() - router.connections.keys():
            self._drop(gone)
        yield
        self._look_at_routers()
        yield from self._look_at_addresses()

    def _look_at_routers(self) -> None:
        """Set the row of the router itself, and those of others of the network that a path leads to."""
        self.rows.put("about", self._router.id, self._usage.row())
        routes = self._router.network.engine.topology.routes()
        for gone in self._others - routes.keys():
            self.rows.drop("routers", gone)
        self._others = set(routes)
        for router, row in routes.items():
            self.rows.put("routers", router, row)

    def _drop(self, connection: int) -> None:
        """Drop the rows of a connection that has ended."""
        known = self._connections.pop(connection, None)
        if known is not None:
            self._change(known, [], [])
            self.rows.drop("connections", known.id)

    def _change(self, known: _Known, links: list[int], uses: list[tuple[str, int]]) -> None:
        """Note the links of a connection, and the addresses that they use."""
        for gone in set(known.links).difference(links):
            self.rows.drop("links", self._links.pop(gone)[2])
        for before_or_now, more in ((known.uses, -1), (uses, 1)):
            for name, at in before_or_now:
                using = self._users.setdefault(name, [0, 0])
                using[at] += more
                self._router.traffic.changed.add(name)
        for name, _ in known.uses:
            if self._users.get(name) == [0, 0]:
                del self._users[name]
        known.links, known.uses = links, uses

    def _look_at(self, connection: RouterConnection, known: _Known) -> None:
        """Look at a connection with its links. Those of a gateway do not count at addresses: its clients do."""
        received, sent = connection.ended_in, connection.ended_out
        links: list[int] = []
        uses: list[tuple[str, int]] = []
        counts = not (isinstance(connection.rights, PeerRights) and connection.rights.role in GATEWAYS)
        for record in [] if connection.is_broker else list(connection.links.values()):
            if not record.faces_client:
                continue
            name, count = self._look_at_link(record, known.id)
            links.append(record.identity)
            if record.direction == "in":
                received += count
            else:
                sent += count
            if name is not None and counts:
                uses.append((name, int(record.direction == "out")))
        if links != known.links or uses != known.uses:
            self._change(known, links, uses)
        amqp = connection.amqp
        mark = len(links), received, sent, amqp.bytes_in, amqp.bytes_out
        if mark != known.mark:
            known.mark = mark
            self.rows.put("connections", known.id, msgspec.Raw(known.described + _OF_CONNECTION % mark))

    def _look_at_link(self, record: LinkRecord, connection: str) -> tuple[str | None, int]:
        """Look at a link; return the name of its address, and the number of its deliveries."""
        traffic = self._router.traffic
        name, counts = traffic.look(record)
        link = record.link
        now = *counts, link.unsettled, link.credit, record.undelivered, record.stuck
        known = self._links.get(record.identity)
        if known is None:
            known = None, _begun(_described(record, connection, name)), str(record.identity)
        before, described, id = known
        if before != now:
            self._links[record.identity] = now, described, id
            if isinstance(record, AnonymousInLink):
                for address in record.sent_to():
                    traffic.look_at_relayed(address)
            self.rows.put("links", id, msgspec.Raw(described + _OF_LINK % now))
        return name, counts[0]

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

    def _look_at_addresses(self) -> Iterator[None]:
        """Set the rows of addresses that are used otherwise than before, or that traffic has come to."""
        traffic, rows, users = self._router.traffic, self.rows, self._users
        changed, traffic.changed = traffic.changed, set()
        for n, name in enumerate(changed):
            producers, consumers = users.get(name, (0, 0))
            total = traffic.totals.get(name, _NOTHING)
            rows.put("addresses", name, msgspec.Raw(_OF_ADDRESS % (*total, producers, consumers)))
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


def _begun(described: dict[str, Any]) -> bytes:
    """Return the beginning of a row, to which numbers are added."""
    return msgspec.json.encode(described)[:-1] + b","


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
