"""Ports of a gateway: their settings, sockets and TLS, and the names under which they are shown."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from msgspec import Struct

from enmasse.logs import log
from enmasse.network import tls
from enmasse.network.acceptor import Acceptor
from enmasse.network.port_sockets import listening
from enmasse.text import endpoint

BACKLOG: Final = 4096

Take = Callable[[socket.socket, ssl.SSLContext | None, Callable[[], None]], Callable[[], None]]
"""Takes a client that has connected; the callable is to be called once it is known, or gone. Returns what drops it."""


class GatewayListener(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port of some `kind`. `cert`, `key`: files in PEM, for TLS. `client_ca`: file in PEM with the authority of
    clients' certificates; None: clients are not asked for one. `shared`: other gateways listen there too. `space`:
    address space of all clients of this port; None: each says which."""

    kind: str
    host: str
    port: int
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    shared: bool = False
    space: str | None = None


class ListenerError(Exception):
    """A listener that cannot be opened: which, why, what to do."""


class GatewayPorts:
    """`endpoints`: kind → host:port of the listeners that are open; a second one of a kind has the name `own` if no
    other gateway listens there, else a number: `mqtt-2`. `with_tls`: kinds."""

    def __init__(self, with_tls: Collection[str], alpn: Collection[str] = ()) -> None:
        self.endpoints: dict[str, str] = {}
        self._with_tls = with_tls
        self._alpn = tuple(alpn)
        self._loop = asyncio.get_running_loop()
        self._acceptors: dict[GatewayListener, Acceptor] = {}
        self._names: dict[GatewayListener, str] = {}
        """Listener that is open → its name in `endpoints`."""

    async def open(self, listener: GatewayListener, take: Take) -> None:
        """Open the sockets of a listener. Raises ListenerError."""
        where = f"{listener.host}:{listener.port}"
        context = self._context(listener, where) if listener.kind in self._with_tls else None
        try:
            sockets = await listening(self._loop, listener.host, listener.port, BACKLOG, shared=listener.shared)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ListenerError(
                f"cannot listen on {where} ({listener.kind}): {reason}; choose another port in the setting 'listeners'"
            ) from None
        acceptor: Acceptor

        def taken(sock: socket.socket) -> Callable[[], None]:
            return take(sock, context, lambda: acceptor.done(sock))

        acceptor = Acceptor(self._loop, sockets, taken)
        self._acceptors[listener] = acceptor
        self.show(listener, endpoint(listener.host, sockets[0].getsockname()[1]))

    def show(self, listener: GatewayListener, where: str) -> None:
        """Show a listener that is open."""
        name = self._names[listener] = self._name(listener)
        self.endpoints[name] = where

    def _name(self, listener: GatewayListener) -> str:
        kind = listener.kind
        if kind not in self.endpoints:
            return kind
        numbered = (f"{kind}-{number}" for number in itertools.count(2))
        return next(name for name in numbered if name not in self.endpoints) if listener.shared else "own"

    async def have(
        self,
        wanted: Collection[GatewayListener],
        open_one: Callable[[GatewayListener], Awaitable[None]],
        shut: Callable[[GatewayListener], None],
    ) -> None:
        """Open and close listeners until these are open, new ones first. Connections that are open stay. What cannot be
        opened is logged, and tried again with the next call."""
        for each in wanted:
            if each not in self._names:
                try:
                    await open_one(each)
                except ListenerError as error:
                    log.get().error("process.listener.failed", reason=str(error))
        for each in [one for one in self._names if one not in wanted]:
            shut(each)
            del self.endpoints[self._names.pop(each)]

    def shut(self, listener: GatewayListener) -> None:
        """Accept no further connections at a listener but those that wait for it."""
        self._acceptors.pop(listener).finish()

    def _context(self, listener: GatewayListener, where: str) -> ssl.SSLContext:
        cert, key, client_ca = listener.cert, listener.key, listener.client_ca
        if not cert:
            raise ListenerError(f"the listener {where} ({listener.kind}) needs 'cert' and 'key'")
        try:
            return tls.server(cert, key, ca=client_ca, required=False, alpn=self._alpn).listening()
        except (OSError, ssl.SSLError) as error:
            files = " or ".join(repr(file) for file in (cert, client_ca) if file)
            raise ListenerError(f"the listener {where} ({listener.kind}): {files} cannot be used: {error}") from None

    def finish(self) -> None:
        """Accept no further connections but those that wait for it."""
        for acceptor in self._acceptors.values():
            acceptor.finish()
        self._acceptors.clear()

    def close(self) -> None:
        """Accept no further connections."""
        for acceptor in self._acceptors.values():
            acceptor.close()
        self._acceptors.clear()
