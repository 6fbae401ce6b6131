"""Ports for HTTP clients, and the connections that they have."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from enmasse.bridge.client_door import ClientDoor
from enmasse.bridge.gateway_ports import GatewayPorts
from enmasse.identity.refused import Refusals
from enmasse.network.small_reads import SmallReads
from services.http_gateway.api.requests_of_clients import HttpRequests
from services.http_gateway.settings import HttpListener
from services.http_gateway.wire.peer_connection import HEAD_SECONDS, PeerConnection

ALPN: Final = ("h2", "http/1.1")


class HttpDoor(ClientDoor[PeerConnection]):
    """As ClientDoor."""

    def __init__(self, requests: HttpRequests, most: int, refusals: Refusals) -> None:
        super().__init__(GatewayPorts(("https",), ALPN), most, HEAD_SECONDS, refusals)
        self.requests = requests

    def _make(
        self, listener: HttpListener, sock: socket.socket, number: int, known: Callable[[], None], *, tls: bool
    ) -> tuple[PeerConnection, asyncio.BaseProtocol]:
        requests, ended = self.requests, self.connections.discard
        connection = PeerConnection(
            requests.serve, requests.clients.connection, ended, known, number, listener.space, self.note_another
        )
        return connection, connection if tls else SmallReads(connection)
