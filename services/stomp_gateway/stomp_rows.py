"""Rows of the gateway's live state (enmasse/live_state.py, docs/contracts.md): its clients and their subscriptions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from enmasse.aio.live_follower import LiveLink
from enmasse.clock import Clock
from enmasse.identity.refused import Refusals
from enmasse.live_state import LivePublisher, Row, Rows
from services.stomp_gateway.stomp_client import StompClient
from services.stomp_gateway.stomp_clients import StompClients


class StompRows:
    """Offers the source `$live/<name>` to `followers`, whose links come through the router."""

    def __init__(
        self, name: str, clients: StompClients, refusals: Refusals, followers: set[LiveLink], clock: Clock
    ) -> None:
        self._clients = clients
        self.rows = Rows(name, "stomp_gateway", time.time)
        refusals.seen = self.rows.event
        self.publisher = LivePublisher(self.rows, self.look, lambda: followers, clock)
        self._marks: dict[str, tuple[Any, ...]] = {}
        self._links: dict[str, set[str]] = {}

    def look(self) -> Iterator[None]:
        """Bring the rows up to date."""
        if not len(self.rows):
            self._marks.clear()
            self._links.clear()
        seen: set[str] = set()
        for n, client in enumerate(list(self._clients.clients.values())):
            seen.add(client.name)
            mark = client.bytes_in, client.bytes_out, client.in_flight, len(client.subscriptions)
            if self._marks.get(client.name) != mark:
                self._marks[client.name] = mark
                self.rows.put("connections", client.name, self._row(client))
                self._look_at_links(client)
            if n % 10 == 9:
                yield
        for gone in self._marks.keys() - seen:
            del self._marks[gone]
            self.rows.drop("connections", gone)
            for link in self._links.pop(gone, ()):
                self.rows.drop("links", link)

    def _row(self, client: StompClient) -> Row:
        return {
            "protocol": "stomp",
            "version": client.version,
            "client": client.client_id or client.name,
            "user": client.user,
            "peer": client.peer.name,
            "tls": client.peer.tls,
            "opened": round(self.rows.wall() - (self._clients.now() - client.opened), 1),
            "subscriptions": len(client.subscriptions),
            "inFlightIn": client.in_flight,
            "inFlightOut": sum(len(each.unacknowledged) for each in client.subscriptions.values()),
            "in": client.messages_in,
            "out": client.messages_out,
            "packetsIn": client.frames_in,
            "packetsOut": client.frames_out,
            "bytesIn": client.bytes_in,
            "bytesOut": client.bytes_out,
        }

    def _look_at_links(self, client: StompClient) -> None:
        links = set()
        for each in client.subscriptions.values():
            link = f"{client.name}/{each.id}"
            links.add(link)
            name = client.lanes.topics.full(each.local)
            self.rows.put(
                "links",
                link,
                {
                    "connection": client.name, "name": each.id, "address": name, "stated": each.stated,
                    "names": [name], "dir": "out", "qos": None, "count": each.messages, "bytes": each.bytes,
                },
            )  # fmt: skip
        for gone in self._links.get(client.name, links) - links:
            self.rows.drop("links", gone)
        self._links[client.name] = links
