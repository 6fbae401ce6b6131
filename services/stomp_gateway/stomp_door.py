"""Ports for STOMP clients, and the connections that they have."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import ssl
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from enmasse.bridge.gateway_ports import GatewayPorts
from enmasse.logs import log as logs
from enmasse.network import tls_handshake
from enmasse.network.acceptor import oldest_of_most
from enmasse.network.small_reads import SmallReads
from services.stomp_gateway.settings import StompListener
from services.stomp_gateway.stomp_clients import LOGIN_SECONDS, StompClients
from services.stomp_gateway.stomp_sockets import StompSocket

if TYPE_CHECKING:
    from services.stomp_gateway.stomp_web import StompWebPeer, StompWebServer

log = logs.get(part="stomp")

OVER_WEB: Final = frozenset(("stompws", "stompwss"))

TLS_SHUTDOWN: Final = 5.0
LEAVING: Final = 5.0
"""Seconds in which what is under way gets its receipts before the gateway ends."""


class StompDoor:
    """`most`: connections; of the host that has most of them the oldest gives way."""

    def __init__(self, clients: StompClients, most: int, allowed_origins: Collection[str] = ()) -> None:
        self.clients = clients
        self.connections: set[StompSocket | StompWebPeer] = set()
        self._allowed_origins = allowed_origins
        self._web: StompWebServer | None = None
        self._new_web_peer: Callable[..., StompWebPeer]
        self.ports = GatewayPorts(("stomps", "stompwss"))
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._number = 0

    async def open(self, listener: StompListener) -> None:
        """Open the sockets of a listener. Raises ListenerError."""
        if listener.kind in OVER_WEB and self._web is None:  # aiohttp costs a fifth of a second, and 12 MiB
            module = await asyncio.to_thread(importlib.import_module, "services.stomp_gateway.stomp_web")
            self._web = module.StompWebServer(self.clients, self._allowed_origins)
            self._new_web_peer = module.StompWebPeer
        await self.ports.open(listener, partial(self._take, listener))

    def _take(
        self,
        listener: StompListener,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        known: Callable[[], None],
    ) -> Callable[[], None]:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._number += 1
        if len(self.connections) >= self._most:
            self._make_room()
        made: asyncio.BaseProtocol
        connection: StompSocket | StompWebPeer
        if self._web is not None and listener.kind in OVER_WEB:
            connection = self._new_web_peer(self._number, listener.space, self._web_ended, known)
            made = self._web.accept(connection)
        else:
            connection = StompSocket(self.clients, self.connections.discard, known, self._number, listener.space)
            made = connection if context is not None else SmallReads(connection)
        self.connections.add(connection)
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
        connection: StompSocket | StompWebPeer,
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

    def _web_ended(self, peer: StompWebPeer) -> None:
        self.connections.discard(peer)
        if self._web is not None:
            self._web.forget(peer)

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
            connection.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING):
                while self.connections:
                    await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.abort()
        if self._web is not None:
            await self._web.close()
        for task in list(self._connecting):
            task.cancel()
        pending: list[Any] = list(self._connecting)
        await asyncio.gather(*pending, return_exceptions=True)
