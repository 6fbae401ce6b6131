"""Ports for STOMP clients, and the connections that they have."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from enmasse.logs import log as logs
from enmasse.network import tls, tls_handshake
from enmasse.network.acceptor import Acceptor, listening, oldest_of_most
from enmasse.text import endpoint
from services.stomp_gateway.settings import StompListener
from services.stomp_gateway.stomp_clients import LOGIN_SECONDS, StompClients
from services.stomp_gateway.stomp_sockets import SmallReads, StompSocket

log = logs.get(part="stomp")

BACKLOG: Final = 4096
TLS_SHUTDOWN: Final = 5.0
LEAVING: Final = 5.0
"""Seconds in which what is under way gets its receipts before the gateway ends."""
WITH_TLS: Final = frozenset(("stomps", "stompwss"))


class StompPortError(Exception):
    """A listener that cannot be opened: which, why, what to do."""


class StompDoor:
    """`endpoints`: kind → host:port of the listeners that are open; a second one of a kind has the name `own` if no
    other gateway listens there, else a number. `most`: connections; of the host that has most of them the oldest gives
    way."""

    def __init__(self, clients: StompClients, most: int) -> None:
        self.clients = clients
        self.connections: set[StompSocket] = set()
        self.endpoints: dict[str, str] = {}
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._acceptors: list[Acceptor] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._number = 0

    async def open(self, listener: StompListener) -> None:
        """Open the sockets of a listener. Raises StompPortError."""
        where = f"{listener.host}:{listener.port}"
        context = self._context(listener, where) if listener.kind in WITH_TLS else None
        try:
            sockets = await listening(self._loop, listener.host, listener.port, BACKLOG, shared=listener.shared)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StompPortError(
                f"cannot listen on {where} ({listener.kind}): {reason}; choose another port in the setting 'listeners'"
            ) from None
        acceptor: Acceptor

        def take(sock: socket.socket) -> Callable[[], None]:
            return self._take(sock, context, listener, lambda: acceptor.done(sock))

        acceptor = Acceptor(self._loop, sockets, take)
        self._acceptors.append(acceptor)
        self.endpoints[self._name(listener)] = endpoint(listener.host, sockets[0].getsockname()[1])

    def _name(self, listener: StompListener) -> str:
        earlier = sum(name.partition("-")[0] == listener.kind for name in self.endpoints)
        if not earlier:
            return listener.kind
        return f"{listener.kind}-{earlier + 1}" if listener.shared else "own"

    def _context(self, listener: StompListener, where: str) -> ssl.SSLContext:
        cert, key, client_ca = listener.cert, listener.key, listener.client_ca
        if not cert:
            raise StompPortError(f"the listener {where} ({listener.kind}) needs 'cert' and 'key'")
        try:
            return tls.server(cert, key, ca=client_ca, required=False).listening()
        except (OSError, ssl.SSLError) as error:
            files = " or ".join(repr(file) for file in (cert, client_ca) if file)
            raise StompPortError(f"the listener {where} ({listener.kind}): {files} cannot be used: {error}") from None

    def _take(
        self, sock: socket.socket, context: ssl.SSLContext | None, listener: StompListener, known: Callable[[], None]
    ) -> Callable[[], None]:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._number += 1
        connection = StompSocket(self.clients, self.connections.discard, known, self._number, listener.space)
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
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()

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
