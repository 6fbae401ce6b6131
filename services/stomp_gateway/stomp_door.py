"""Ports for STOMP clients, and the connections that they have."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from enmasse.bridge.client_door import ClientDoor
from enmasse.bridge.gateway_ports import GatewayListener, GatewayPorts
from enmasse.identity.refused import Refusals
from enmasse.network.small_reads import SmallReads
from enmasse.process.late_imports import imported
from services.stomp_gateway.settings import StompListener
from services.stomp_gateway.stomp_clients import LOGIN_SECONDS, StompClients
from services.stomp_gateway.stomp_sockets import StompSocket

if TYPE_CHECKING:
    from services.stomp_gateway.stomp_web import StompWebPeer, StompWebServer

OVER_WEB: Final = frozenset(("stompws", "stompwss"))


class StompDoor(ClientDoor["StompSocket | StompWebPeer"]):
    """As ClientDoor."""

    def __init__(
        self, clients: StompClients, most: int, refusals: Refusals, allowed_origins: Collection[str] = ()
    ) -> None:
        super().__init__(GatewayPorts(("stomps", "stompwss")), most, LOGIN_SECONDS, refusals)
        self.clients = clients
        self._allowed_origins = set(allowed_origins)
        self._web: StompWebServer | None = None
        self._new_web_peer: Callable[..., StompWebPeer]

    def allow(self, origins: Collection[str]) -> None:
        """Have these origins of web pages from now on."""
        self._allowed_origins.clear()
        self._allowed_origins.update(origins)

    async def open(self, listener: GatewayListener) -> None:
        """Open the sockets of a listener. Raises ListenerError."""
        if listener.kind in OVER_WEB and self._web is None:  # aiohttp costs a fifth of a second, and 12 MiB
            module = await imported("services.stomp_gateway.stomp_web")
            self._web = module.StompWebServer(self.clients, self._allowed_origins)
            self._new_web_peer = module.StompWebPeer
        await super().open(listener)

    def _make(
        self, listener: StompListener, sock: socket.socket, number: int, known: Callable[[], None], *, tls: bool
    ) -> tuple[StompSocket | StompWebPeer, asyncio.BaseProtocol]:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._web is not None and listener.kind in OVER_WEB:
            peer = self._new_web_peer(number, listener.space, self._web_ended, known)
            return peer, self._web.accept(peer)
        connection = StompSocket(self.clients, self.connections.discard, known, number, listener.space)
        return connection, connection if tls else SmallReads(connection)

    def _web_ended(self, peer: StompWebPeer) -> None:
        self.connections.discard(peer)
        if self._web is not None:
            self._web.forget(peer)

    async def _close_servers(self) -> None:
        if self._web is not None:
            await self._web.close()
