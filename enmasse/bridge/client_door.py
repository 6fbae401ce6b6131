"""Ports of a gateway for clients, and the connections that they have."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from enmasse.bridge.gateway_ports import GatewayListener, GatewayPorts
from enmasse.identity.processes.refusals import note_handshake
from enmasse.identity.refused import Refusals
from enmasse.model.names import DEFAULT_SPACE
from enmasse.network import tls_handshake
from enmasse.network.acceptor import OfHost, oldest_of_most

TLS_SHUTDOWN: Final = 5.0
LEAVING: Final = 5.0
"""Seconds in which what is under way is answered before the gateway ends."""


class DoorConnection(OfHost, Protocol):
    """A connection of a client."""

    @property
    def number(self) -> int:
        """Connections that came later have a greater one."""

    @property
    def quiet(self) -> bool:
        """Return whether nothing of the client is under way."""

    def leave(self) -> None:
        """End once what has come is answered."""

    def abort(self) -> None:
        """End at once."""


C = TypeVar("C", bound=DoorConnection)


class ClientDoor(ABC, Generic[C]):
    """`most`: connections; of the host that has most of them the oldest gives way. `patience`: seconds for a TLS
    handshake."""

    def __init__(self, ports: GatewayPorts, most: int, patience: float, refusals: Refusals) -> None:
        self.connections: set[C] = set()
        self.ports = ports
        self._most = most
        self._patience = patience
        self._refusals = refusals
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._number = 0

    @abstractmethod
    def _make(
        self, listener: Any, sock: socket.socket, number: int, known: Callable[[], None], *, tls: bool
    ) -> tuple[C, asyncio.BaseProtocol]:
        """Return the connection of a client, and the protocol that reads its socket."""

    async def open(self, listener: GatewayListener) -> None:
        """Open the sockets of a listener. Raises ListenerError."""
        await self.ports.open(listener, partial(self._take, listener))

    async def have(self, listeners: Collection[GatewayListener]) -> None:
        """Have these listeners from now on; connections that are open stay."""
        await self.ports.have(listeners, self.open, self.ports.shut)

    def _take(
        self,
        listener: GatewayListener,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        known: Callable[[], None],
    ) -> Callable[[], None]:
        self._number += 1
        if len(self.connections) >= self._most:
            self._make_room()
        connection, made = self._make(listener, sock, self._number, known, tls=context is not None)
        self.connections.add(connection)
        task = self._loop.create_task(self._connect(sock, context, made, connection, listener.space, known))
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
        connection: C,
        space: str | None,
        known: Callable[[], None],
    ) -> None:
        refused = partial(note_handshake, self._refusals, space)
        try:
            if not await tls_handshake.accept(
                lambda: made, sock, context, refused, patience=self._patience, shutdown=TLS_SHUTDOWN
            ):
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

    def note_another(self, peer: str, space: str | None, reason: str) -> None:
        """Note a peer that speaks another protocol. `space`: of its listener."""
        self._refusals.note(
            "connect", condition="another protocol", reason=reason, peer=peer, space=space or DEFAULT_SPACE
        )

    def stop_listening(self) -> None:
        """Accept no further connections; those that are open stay."""
        self.ports.close()

    async def close(self) -> None:
        """Close the ports, and the connections once what has come from them is answered."""
        self.stop_listening()
        for connection in list(self.connections):
            connection.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING):
                while self.connections:
                    await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.abort()
        await self._close_servers()
        for task in list(self._connecting):
            task.cancel()
        pending: list[Any] = list(self._connecting)
        await asyncio.gather(*pending, return_exceptions=True)

    async def _close_servers(self) -> None:
        """Close what serves the connections, if anything does: they have ended."""
