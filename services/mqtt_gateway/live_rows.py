"""Rows of the gateway's live state (enmasse/live_state.py, docs/contracts.md): its clients, by their names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from enmasse.aio.live_follower import LiveLink
from enmasse.clock import Clock
from enmasse.live_state import LivePublisher, Row, Rows
from services.mqtt_gateway.address_use import AddressUse, Attached
from services.mqtt_gateway.protocol.server_state import Connected, ServerState


class LiveGateway:
    """Offers the source `$live/<name>` to `followers`, whose links come through the router. `uses` returns what clients
    do at addresses."""

    def __init__(
        self,
        name: str,
        server_state: ServerState,
        followers: set[LiveLink],
        clock: Clock,
        uses: Callable[[], Iterable[AddressUse]],
    ) -> None:
        self._server_state = server_state
        self._uses = uses
        self.rows = Rows(name, "mqtt_gateway", time.time)
        server_state.refusals.seen = self.rows.event
        self.publisher = LivePublisher(self.rows, self.look, lambda: followers, clock)
        self._marks: dict[str, tuple[Any, ...]] = {}
        self._links: dict[str, set[str]] = {}
        """Client → ids of the rows of what it is attached to."""

    def look(self) -> Iterator[None]:
        """Bring the rows up to date."""
        if not len(self.rows):
            self._marks.clear()
            self._links.clear()
            for use in self._uses():
                use.begin()
        seen: set[str] = set()
        for n, client in enumerate(list(self._server_state.clients)):
            id = client.client_id
            seen.add(id)
            mark = _mark(client)
            if self._marks.get(id) != mark:
                self._marks[id] = mark
                self.rows.put("connections", id, client.described(self.rows.wall()))
                self._look_at_links(id, client)
            if n % 10 == 9:
                yield
        for gone in self._marks.keys() - seen:
            del self._marks[gone]
            self.rows.drop("connections", gone)
            for link in self._links.pop(gone, ()):
                self.rows.drop("links", link)
        for use in list(self._uses()):
            yield from self._look_at_addresses(use)

    def _look_at_links(self, id: str, client: Connected) -> None:
        links = set()
        for each in client.attached():
            link = str(each.carried.id)
            links.add(link)
            self.rows.put("links", link, _link(id, each))
        for gone in self._links.get(id, links) - links:
            self.rows.drop("links", gone)
        self._links[id] = links

    def _look_at_addresses(self, use: AddressUse) -> Iterator[None]:
        for change in use.changes():
            if change is None:
                yield
            elif change[1] is None:
                self.rows.drop("addresses", change[0])
            else:
                now = change[1]
                row = {"out": now.carried.messages, "bytesOut": now.carried.bytes}
                self.rows.put("addresses", change[0], {**row, "producers": now.producers, "consumers": now.consumers})


def _link(client: str, attached: Attached) -> Row:
    sends = attached.qos is None
    return {
        "connection": client, "name": attached.name, "address": attached.address, "stated": attached.name,
        "names": attached.names,
        "dir": "in" if sends else "out", "qos": attached.qos,
        "count": attached.carried.messages, "bytes": attached.carried.bytes,
    }  # fmt: skip


def _mark(client: Connected) -> tuple[Any, ...]:
    return client.peer, client.bytes_in, client.bytes_out, client.kept, client.in_flight
