"""Listeners: ports for AMQP, or for HTTP with /healthz and /metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse import process
from enmasse.amqp.connection import Connection
from enmasse.amqp.sasl import SaslServer, anonymous, external
from enmasse.amqp.transport import Peer, Server, serve
from enmasse.health import Health
from services.router import metrics
from services.router.management import schema
from services.router.management.schema import INTERNAL, ManagementError
from services.router.management.supported import ANONYMOUS, EXTERNAL, check_listener, check_role, offered
from services.router.network import hosts, tls
from services.router.routing.connections import RouterConnection
from services.router.routing.core import Router

if TYPE_CHECKING:
    from services.router.network.sockets import Sockets


class Listener:
    """A port that is listened on, for AMQP or for HTTP. Raises ManagementError for a body that cannot be honoured."""

    def __init__(self, sockets: Sockets, entity: Any) -> None:
        self.body: dict[str, Any] = entity.body
        self.name: str = entity.name
        self.identity: str = entity.identity
        self.port: int | None = None  # once it is open
        self.wanted = True  # not deleted yet
        self._sockets = sockets
        self._server: Server | None = None
        self._http: Health | None = None
        self._profile: dict[str, Any] = {}
        self._where = f"listener '{self.name}' on {self.body['host'] or '*'}:{self.body['port']}"
        check_role(self._where, self.body, sockets.router.mode)
        try:
            check_listener(schema.LISTENER, self._where, self.body, sockets.profile)
        except tls.ProfileError as error:
            raise ManagementError(INTERNAL, f"{self._where}: {error}") from None

    async def open(self) -> None:
        """Raises ManagementError 500 when the port cannot be had."""
        body = self.body
        try:
            host = await hosts.address(body["host"], body["socketAddressFamily"])
            port = hosts.port_number(body["port"])
            context = None
            if body["sslProfile"]:
                self._profile = self._sockets.profile(body["sslProfile"])
                context = tls.server_context(body["sslProfile"], self._profile, authenticate=body["authenticatePeer"])
            if body["http"]:
                self._http = _Http(self._sockets.router, body, host, port)
                await self._http.start()
                self.port = int(self._http.address.rpartition(":")[2])
            else:
                self._server = await serve(self._sockets.hub, host, port, self._accept, ssl=context)
                self.port = self._server.port
        except (OSError, ValueError, tls.ProfileError, process.Fatal) as error:
            self._http = None
            raise ManagementError(INTERNAL, f"{self._where}: {getattr(error, 'strerror', None) or error}") from None
        self._sockets.listeners.add(self)

    async def close(self) -> None:
        """Accept no more; connections that are open stay."""
        self._sockets.listeners.discard(self)
        if self._server is not None:
            self._server.close(connections=False)
            self._server = None
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _accept(self, peer: Peer) -> Connection:
        sockets, body = self._sockets, self.body
        record = RouterConnection(
            sockets.router,
            name=self.name,
            role=body["role"],
            direction="in",
            host=peer.address,
            capacity=sockets.capacity(body),
        )
        record.denied = not sockets.router.policy.socket_accepted()
        record.tls = tls.protection(peer.ssl)
        user = tls.user_of(peer.ssl, self._profile.get("uidFormat"))
        return sockets.amqp_connection(record, body, is_client=False, sasl=self._sasl(user))

    def _sasl(self, user: str | None) -> SaslServer:
        """`user` is who the client's certificate says it is."""
        mechanisms: dict[str, Any] = {}
        for name in offered(self.body, certificates=user is not None):
            if name == EXTERNAL:
                mechanisms[EXTERNAL] = external(lambda: user)
            elif name == ANONYMOUS:
                mechanisms[ANONYMOUS] = anonymous
        return SaslServer(mechanisms, required=bool(self.body["authenticatePeer"]))


class _Http(Health):
    """An HTTP listener: /healthz and /metrics as Dispatch answers them."""

    def __init__(self, router: Router, body: dict[str, Any], host: str, port: int) -> None:
        super().__init__(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", lambda: metrics.text(router))
        self._body = body

    def answer(self, method: str, path: str) -> bytes:
        if method in ("GET", "HEAD") and path == "/healthz" and self._body["healthz"]:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
            return head + (b"OK\n" if method == "GET" else b"")
        if path == "/metrics" and self._body["metrics"]:
            return super().answer(method, path)
        return super().answer(method, "/nothing")
