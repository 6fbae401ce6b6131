"""Rows of the gateway's live state (enmasse/live_state.py, docs/contracts.md): its clients and their streams of events.

Addresses have no rows: routers and brokers count the links that the gateway has for its clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from enmasse.aio.live_follower import LiveLink
from enmasse.clock import Clock
from enmasse.identity.refused import Refusals
from enmasse.live_state import MarkedRows, Row
from services.http_gateway.api.event_requests import Streaming
from services.http_gateway.api.event_stream import EventStream
from services.http_gateway.api.http_clients import HttpClient, HttpClients


class LiveHttpGateway(MarkedRows):
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
        super().__init__(name, "http_gateway", lambda: followers, clock)
        refusals.seen = self.rows.event
        self._clients = clients
        self._streaming = streaming

    def _all(self) -> Iterator[tuple[str, str, Any, Any]]:
        for client in list(self._clients.clients.values()):
            yield "connections", client.name, (client.messages_in, client.messages_out), client
        for stream in list(self._streaming.streams):
            yield "links", str(stream.number), (stream.sent, len(stream.waiting)), stream

    def _row(self, of: HttpClient | EventStream) -> Row:
        return _connection(of) if isinstance(of, HttpClient) else _link(of)


def _connection(client: HttpClient) -> Row:
    return {
        "protocol": "http", "client": "", "user": client.login.principal.full_name, "peer": client.peer,
        "tls": client.tls, "opened": round(client.opened, 1), "in": client.messages_in, "out": client.messages_out,
        "bytesIn": client.bytes_in, "bytesOut": client.bytes_out,
    }  # fmt: skip


def _link(stream: EventStream) -> Row:
    return {
        "connection": stream.client, "name": stream.stated, "stated": stream.stated, "address": stream.address,
        "names": [stream.names], "dir": "out", "qos": None, "count": stream.sent, "bytes": stream.sent_bytes,
    }  # fmt: skip
