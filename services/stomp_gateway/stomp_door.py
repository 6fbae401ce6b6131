"""Ports for STOMP clients, and the connections that they have."""

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
from services.stomp_gateway.settings import StompListener
from services.stomp_gateway.stomp_clients import LOGIN_SECONDS, StompClients
from services.stomp_gateway.stomp_sockets import SmallReads, StompSocket

log = logs.get(part="stomp")

TLS_SHUTDOWN: Final = 5.0
LEAVING: Final = 5.0
"""Seconds in which what is under way gets its receipts before the gateway ends."""


class StompDoor:
    """`most`: connections; of the host that has most of them the oldest gives way."""

    def __init__(self, clients: StompClients, most: int) -> None:
        self.clients = clients
        self.connections: set[StompSocket] = set()
        self.ports = GatewayPorts(("stomps", "stompwss"))
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._number = 0

    async def open(self, listener: StompListener) -> None:
        """Open the sockets of a listener. Raises ListenerError."""
        await self.ports.open(listener, partial(self._take, listener.space))

    def _take(
        self, space: str | None, sock: socket.socket, context: ssl.SSLContext | None, known: Callable[[], None]
    ) -> Callable[[], None]:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._number += 1
        connection = StompSocket(self.clients, self.connections.discard, known, self._number, space)
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
        connection: StompSocket,
        known: Callable[[], None],
    ) -> None:
        try:
            await tls_handshake.connect(lambda: made, sock, context, patience=LOGIN_SECONDS, shutdown=TLS_SHUTDOWN)
        except OSError as error:  # of TLS too
            log.debug("stomp-gateway.handshake.failed", error=str(error) or type(error).__name__)
            known()
            self.connections.discard(connection)
        except asyncio.CancelledError:
            self.connections.discard(connection)
            raise

    def _make_room(self) -> None:
        oldest = oldest_of_most(sorted(self.connections, key=lambda each: each.number))
        if oldest is not None:
            self.connections.discard(oldest)
            oldest.abort()

    def stop_listening(self) -> None:
        """Accept no further connections; those that are open stay."""
        self.ports.close()

    async def close(self) -> None:
        """Close the ports, and the connections once what has come from them is done."""
        self.stop_listening()
        for connection in list(self.connections):
            if hasattr(connection, "client"):
                connection.client.leave()
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
