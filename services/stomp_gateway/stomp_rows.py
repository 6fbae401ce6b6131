"""Rows of the gateway's live state (enmasse/live_state.py, docs/contracts.md): its clients and their subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from enmasse.aio.live_follower import LiveLink
from enmasse.clock import Clock
from enmasse.identity.refused import Refusals
from enmasse.live_state import MarkedRows, Row
from services.stomp_gateway.stomp_client import StompClient
from services.stomp_gateway.stomp_clients import StompClients
from services.stomp_gateway.stomp_subscriptions import StompSubscription


class StompRows(MarkedRows):
    """Offers the source `$live/<name>` to `followers`, whose links come through the router."""

    def __init__(
        self, name: str, clients: StompClients, refusals: Refusals, followers: set[LiveLink], clock: Clock
    ) -> None:
        super().__init__(name, "stomp_gateway", lambda: followers, clock)
        refusals.seen = self.rows.event
        self._clients = clients

    def _all(self) -> Iterator[tuple[str, str, Any, Any]]:
        for client in list(self._clients.clients.values()):
            mark = client.bytes_in, client.bytes_out, client.in_flight, len(client.subscriptions)
            yield "connections", client.name, mark, client
            for each in list(client.subscriptions.values()):
                yield "links", f"{client.name}/{each.id}", (each, each.messages), (client, each)

    def _row(self, of: StompClient | tuple[StompClient, StompSubscription]) -> Row:
        return self._connection(of) if isinstance(of, StompClient) else _link(*of)

    def _connection(self, client: StompClient) -> Row:
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


def _link(client: StompClient, subscription: StompSubscription) -> Row:
    name = client.lanes.topics.full(subscription.local)
    return {
        "connection": client.name, "name": subscription.id, "address": name, "stated": subscription.stated,
        "names": [name], "dir": "out", "qos": None, "count": subscription.messages, "bytes": subscription.bytes,
    }  # fmt: skip
