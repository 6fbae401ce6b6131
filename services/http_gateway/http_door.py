"""Ports for HTTP clients, and the connections that they have."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from enmasse.bridge.gateway_ports import GatewayPorts
from enmasse.logs import log as logs
from enmasse.network import tls_handshake
from enmasse.network.acceptor import oldest_of_most
from enmasse.network.small_reads import SmallReads
from services.http_gateway.api.requests_of_clients import HttpRequests
from services.http_gateway.settings import HttpListener
from services.http_gateway.wire.peer_connection import HEAD_SECONDS, PeerConnection

log = logs.get(part="http")

TLS_SHUTDOWN: Final = 5.0
ALPN: Final = ("h2", "http/1.1")
LEAVING: Final = 5.0
"""Seconds in which answers that are under way are sent before the gateway ends."""


class HttpDoor:
    """`most`: connections; of the host that has most of them the oldest gives way."""

    def __init__(self, requests: HttpRequests, most: int) -> None:
        self.requests = requests
        self.connections: set[PeerConnection] = set()
        self.ports = GatewayPorts(("https",), ALPN)
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._number = 0

    async def open(self, listener: HttpListener) -> None:
        """Open the sockets of a listener. Raises ListenerError."""
        await self.ports.open(listener, partial(self._take, listener.space))

    def _take(
        self, space: str | None, sock: socket.socket, context: ssl.SSLContext | None, known: Callable[[], None]
    ) -> Callable[[], None]:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number += 1
        requests = self.requests
        connection = PeerConnection(
            requests.serve, requests.clients.connection, self.connections.discard, known, self._number, space
        )
        if len(self.connections) >= self._most:
            self._make_room()
        self.connections.add(connection)
        made: asyncio.BaseProtocol = connection if context is not None else SmallReads(connection)
        task = self._loop.create_task(self._connect(sock, context, made, connection, known))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

        def drop() -> None:
            task.cancel()
            connection.abort()

        return drop

    async def _connect(
        self,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        made: asyncio.BaseProtocol,
        connection: PeerConnection,
        known: Callable[[], None],
    ) -> None:
        try:
            await tls_handshake.connect(lambda: made, sock, context, patience=HEAD_SECONDS, shutdown=TLS_SHUTDOWN)
        except OSError as error:  # of TLS too
            log.debug("http-gateway.handshake.failed", error=str(error) or type(error).__name__)
            known()
            self.connections.discard(connection)
        except asyncio.CancelledError:
            self.connections.discard(connection)
            raise

    def _make_room(self) -> None:
        oldest = oldest_of_most(sorted(self.connections, key=lambda each: each.facts.number))
        if oldest is not None:
            self.connections.discard(oldest)
            oldest.abort()

    def stop_listening(self) -> None:
        """Accept no further connections; those that are open stay."""
        self.ports.close()

    async def close(self) -> None:
        """Close the ports, and the connections once their answers were sent."""
        self.stop_listening()
        for connection in list(self.connections):
            connection.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING):
                while self.connections:
                    await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.abort()
        for task in list(self._connecting):
            task.cancel()
        pending: list[Any] = list(self._connecting)
        await asyncio.gather(*pending, return_exceptions=True)
