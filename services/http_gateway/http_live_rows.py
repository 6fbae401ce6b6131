"""Rows of the gateway's live state (enmasse/live_state.py, docs/contracts.md): its clients and their streams of events.

Addresses have no rows: routers and brokers count the links that the gateway has for its clients.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from enmasse.aio.live_follower import LiveLink
from enmasse.clock import Clock
from enmasse.identity.refused import Refusals
from enmasse.live_state import LivePublisher, Row, Rows
from services.http_gateway.api.event_requests import Streaming
from services.http_gateway.api.event_stream import EventStream
from services.http_gateway.api.http_clients import HttpClient, HttpClients

PART = 50
"""Rows that are looked at in a turn."""


class LiveHttpGateway:
    """Offers the source `$live/<name>` to `followers`, whose links come through the router."""

    def __init__(
        self,
        name: str,
        clients: HttpClients,
        streaming: Streaming,
        refusals: Refusals,
        followers: set[LiveLink],
        clock: Clock,
    ) -> None:
        self._clients = clients
        self._streaming = streaming
        self.rows = Rows(name, "http_gateway", time.time)
        refusals.seen = self.rows.event
        self.publisher = LivePublisher(self.rows, self.look, lambda: followers, clock)
        self._shown: dict[tuple[str, str], tuple[Any, ...]] = {}
        """Kind and id of a row → what it was made of."""

    def look(self) -> Iterator[None]:
        """Bring the rows up to date."""
        if not len(self.rows):
            self._shown.clear()
        seen = set()
        for n, client in enumerate(list(self._clients.clients.values()), 1):
            seen.add(("connections", client.name))
            self._put("connections", client.name, (client.messages_in, client.messages_out), client)
            if not n % PART:
                yield
        for n, stream in enumerate(list(self._streaming.streams), 1):
            id = str(stream.number)
            seen.add(("links", id))
            self._put("links", id, (stream.sent, len(stream.waiting)), stream)
            if not n % PART:
                yield
        for gone in self._shown.keys() - seen:
            del self._shown[gone]
            self.rows.drop(*gone)

    def _put(self, kind: str, id: str, mark: tuple[Any, ...], of: HttpClient | EventStream) -> None:
        if self._shown.get((kind, id)) != mark:
            self._shown[kind, id] = mark
            self.rows.put(kind, id, _connection(of) if isinstance(of, HttpClient) else _link(of))


def _connection(client: HttpClient) -> Row:
    return {
        "protocol": "http", "client": "", "user": client.login.principal.full_name, "peer": client.peer,
        "opened": round(client.opened, 1), "in": client.messages_in, "out": client.messages_out,
        "bytesIn": client.bytes_in, "bytesOut": client.bytes_out,
    }  # fmt: skip


def _link(stream: EventStream) -> Row:
    return {
        "connection": stream.client, "name": stream.stated, "stated": stream.stated, "address": stream.address,
        "names": [stream.names], "dir": "out", "qos": None, "count": stream.sent, "bytes": stream.sent_bytes,
    }  # fmt: skip
