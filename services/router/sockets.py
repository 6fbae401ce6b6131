"""Listeners and connectors: the sockets of the router, made and removed at run time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from enmasse import log, process
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Limits
from enmasse.amqp.sasl import AnonymousClient, ClientMechanism, ExternalClient, PlainClient, SaslClient, SaslServer
from enmasse.amqp.sasl import anonymous as anonymous_mechanism
from enmasse.amqp.sasl import external as external_mechanism
from enmasse.amqp.transport import Hub, Peer, Server, dial, serve
from enmasse.health import Health
from services.router import PRODUCT, SIMULATES, metrics, tls
from services.router.connections import DEFAULT_CAPACITY, RouterConnection
from services.router.core import Router
from services.router.handler import RouterHandler
from services.router.management.schema import INTERNAL, NOT_IMPLEMENTED, ManagementError

_log = log.get()
MAX_BACKOFF = 5.0
CAPABILITIES = ("ANONYMOUS-RELAY", "qd.streaming-links")
_RESERVED = ("product", "version", "failover-server-list", "network-host", "port", "scheme", "hostname")


_UNSUPPORTED = {
    "saslPlugin": "saslPlugin (an authentication service)",
    "multiTenant": "multiTenant",
    "requireEncryption": "requireEncryption (use requireSsl)",
}


def port_number(port: str) -> int:
    """A port or a service name (`amqp`). Raises ValueError naming it."""
    if port.isdigit() and int(port) < 65536:
        return int(port)
    known = {"amqp": 5672, "amqps": 5671}
    if port in known:
        return known[port]
    try:
        return socket.getservbyname(port, "tcp")
    except OSError:
        raise ValueError(f"port '{port}' is neither a number nor a known service") from None


class Sockets:
    """Makes the connections of all listeners and connectors."""

    def __init__(self, router: Router, hub: Hub) -> None:
        self.router = router
        self.hub = hub
        self.handler = RouterHandler(router)
        self.ssl_profiles: dict[str, Any] = {}
        self.listeners: set[Listener] = set()
        self.connectors: set[Connector] = set()
        self._one_at_a_time = asyncio.Lock()

    def profile(self, name: str) -> dict[str, Any]:
        """Raises tls.ProfileError when there is no such sslProfile."""
        entity = self.ssl_profiles.get(name)
        if entity is None:
            raise tls.ProfileError(f"there is no sslProfile '{name}'")
        return entity.body  # type: ignore[no-any-return]

    def new_listener(self, entity: Any) -> Listener:
        return Listener(self, entity)

    def new_connector(self, entity: Any) -> Connector:
        return Connector(self, entity)

    def open_soon(self, listener: Listener, done: Callable[[ManagementError | None], None]) -> None:
        """Open a listener's port; `done` hears how that went."""

        async def opening() -> None:
            failure: ManagementError | None = None
            async with self._one_at_a_time:
                try:
                    if listener.wanted:
                        await listener.open()
                except ManagementError as error:
                    failure = error
            done(failure)

        process.spawn(opening(), f"open {listener.name}")

    def close_soon(self, listener: Listener, done: Callable[[], None]) -> None:
        async def closing() -> None:
            async with self._one_at_a_time:  # whoever opens the port next finds it free
                await listener.close()
                for _ in range(3):
                    await asyncio.sleep(0)  # uvloop closes sockets a turn later
            done()

        listener.wanted = False
        process.spawn(closing(), f"close {listener.name}")

    def amqp_connection(
        self,
        record: RouterConnection,
        body: dict[str, Any],
        *,
        is_client: bool,
        sasl: SaslServer | SaslClient | None,
        hostname: str | None = None,
    ) -> Connection:
        """The engine's connection for a socket; `body` are the attributes of its listener or connector."""
        properties: dict[str, Any] = {"product": PRODUCT, "version": SIMULATES, "qd.conn-id": record.identity}
        for key, value in (body.get("openProperties") or {}).items():
            if key not in _RESERVED and not str(key).startswith(("qd.", "x-opt-qd.")):
                properties[str(key)] = value
        if body.get("failoverUrls") and not is_client:
            properties["failover-server-list"] = _failover(str(body["failoverUrls"]))
        handshake = int(body.get("initialHandshakeTimeoutSeconds") or 0) * 1000
        limits = Limits(handshake_timeout_ms=handshake) if handshake else Limits()
        connection = Connection(
            self.handler,
            container_id=self.router.id,
            is_client=is_client,
            hostname=hostname,
            max_frame_size=max(512, int(body["maxFrameSize"])),
            channel_max=min(int(body["maxSessions"]), 32768) - 1,
            idle_timeout_ms=int(body["idleTimeoutSeconds"]) * 1000,
            sasl=sasl,
            properties=properties,
            offered_capabilities=CAPABILITIES,
            desired_capabilities=CAPABILITIES,
            limits=limits,
        )
        connection.context = record
        record.amqp = connection
        record.abort = lambda: self._abort(connection)
        record.policy_vhost = body.get("policyVhost")
        return connection

    def _abort(self, connection: Connection) -> None:
        for wire in self.hub.wires:
            if wire.connection is connection and wire.transport is not None:
                wire.transport.abort()
                return


def _failover(urls: str) -> list[dict[str, str]]:
    """failoverUrls (`amqps://host:port, host2`) as the open's failover-server-list."""
    found = []
    for url in urls.split(","):
        scheme, colon, rest = url.strip().partition("://")
        rest = rest if colon else scheme
        host, _, port = rest.partition(":")
        entry = {"network-host": host, "port": port or "5672"}
        if colon and scheme == "amqps":
            entry["scheme"] = scheme
        found.append(entry)
    return found


def _capacity(body: dict[str, Any]) -> int:
    return int(body.get("linkCapacity") or 0) or DEFAULT_CAPACITY


class Listener:
    """A port that is listened on, for AMQP or for HTTP."""

    def __init__(self, sockets: Sockets, entity: Any) -> None:
        self.body: dict[str, Any] = entity.body
        self.name: str = entity.name
        self.identity: str = entity.identity
        self.port: int | None = None  # once it is open
        self.wanted = True  # not deleted yet
        self._sockets = sockets
        self._server: Server | None = None
        self._http: Health | None = None

    async def open(self) -> None:
        """Raises ManagementError: 500 when the port cannot be had, 501 for what would leave the port less protected
        than was asked for."""
        body = self.body
        host = body["host"] or "0.0.0.0"  # noqa: S104
        where = f"listener '{self.name}' on {body['host'] or '*'}:{body['port']}"
        unsupported = next((text for name, text in _UNSUPPORTED.items() if body[name]), None)
        if body["sslProfile"] and not body["requireSsl"]:
            unsupported = "sslProfile without requireSsl (TLS only for those who want it)"
        if unsupported is not None:
            raise ManagementError(NOT_IMPLEMENTED, f"{where}: {unsupported} is not supported by this router")
        try:
            port = port_number(body["port"])
            context = None
            if body["sslProfile"] and body["requireSsl"]:
                context = tls.server_context(
                    body["sslProfile"],
                    self._sockets.profile(body["sslProfile"]),
                    authenticate=body["authenticatePeer"] and "EXTERNAL" in (body["saslMechanisms"] or "EXTERNAL"),
                )
            if body["http"]:
                self._http = _Http(self._sockets.router, body, host, port)
                await self._http.start()
                self.port = int(self._http.address.rpartition(":")[2])
            else:
                self._server = await serve(self._sockets.hub, host, port, self._accept, ssl=context)
                self.port = self._server.port
        except (OSError, ValueError, tls.ProfileError, process.Fatal) as error:
            self._http = None
            raise ManagementError(INTERNAL, f"{where}: {getattr(error, 'strerror', None) or error}") from None
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
            capacity=_capacity(body),
        )
        record.denied = not sockets.router.policy.socket_accepted()
        record.tls = ("TLS", "") if peer.tls else None
        return sockets.amqp_connection(record, body, is_client=False, sasl=self._sasl(peer.certificate))

    def _sasl(self, user: str | None) -> SaslServer:
        """Mechanisms of the listener. Names and passwords come with the authentication service, later."""
        wanted = (self.body["saslMechanisms"] or "").split() or ["ANONYMOUS", "EXTERNAL"]
        must = bool(self.body["authenticatePeer"])
        mechanisms: dict[str, Any] = {}
        if "EXTERNAL" in wanted and user is not None:
            mechanisms["EXTERNAL"] = external_mechanism(lambda: user)
        if "ANONYMOUS" in wanted and not must:
            mechanisms["ANONYMOUS"] = anonymous_mechanism
        return SaslServer(mechanisms, required=must)


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


class Connector:
    """Dials until told to stop; `status` is CONNECTING, SUCCESS or FAILED, `message` says more."""

    def __init__(self, sockets: Sockets, entity: Any) -> None:
        self.body: dict[str, Any] = entity.body
        self.name: str = entity.name
        self.identity: str = entity.identity
        self.status = "CONNECTING"
        self.message: str | None = None
        self._sockets = sockets
        self._task: asyncio.Task[None] | None = None
        self._record: RouterConnection | None = None

    def start(self) -> None:
        self._sockets.connectors.add(self)
        if self.body["role"] in ("inter-router", "edge"):
            self.message = "a mesh of several routers is not supported yet: kept and reported, not dialled"
            return
        self._task = process.spawn(self._run(), f"connector {self.name}")

    def stop(self) -> None:
        """The connection goes with the connector."""
        self._sockets.connectors.discard(self)
        if self._task is not None:
            self._task.cancel()
        if self._record is not None and not self._record.closed:
            self._record.amqp.close()
            self._record.amqp.wake()

    async def _run(self) -> None:
        delay = 0.0
        while True:
            lost: asyncio.Event = asyncio.Event()
            record = self._new_record(lost)
            try:
                port = port_number(self.body["port"])
                await dial(self._sockets.hub, self.body["host"], port, self._connection(record), ssl=self._ssl())
            except (OSError, ValueError, tls.ProfileError) as error:
                self.status = "FAILED"
                self.message = f"{self.body['host']}:{self.body['port']}: {getattr(error, 'strerror', None) or error}"
            else:
                self._record = record
                await lost.wait()
                self._record = None
                if self.status == "SUCCESS":
                    delay = 0.0
                    self.status = "CONNECTING"
                else:
                    self.status = "FAILED"
                error_text = record.amqp.transport_error or "closed by the peer"
                self.message = f"{self.body['host']}:{self.body['port']}: {error_text}"
            delay = min(MAX_BACKOFF, max(0.1, delay * 2))
            await asyncio.sleep(delay)

    def _new_record(self, lost: asyncio.Event) -> RouterConnection:
        body = self.body
        record = RouterConnection(
            self._sockets.router,
            name=self.name,
            role=body["role"],
            direction="out",
            host=f"{body['host']}:{body['port']}",
            capacity=_capacity(body),
        )
        record.on_opened = lambda: self._opened(record)
        record.on_closed = lost.set
        return record

    def _opened(self, record: RouterConnection) -> None:
        self.status = "SUCCESS"
        self.message = (
            f"[C{record.identity}] Connection Opened: dir=out host={record.host} container_id={record.container}"
        )

    def _connection(self, record: RouterConnection) -> Connection:
        body = self.body
        wanted = (body["saslMechanisms"] or "").split()
        mechanisms: list[ClientMechanism] = []
        if body["sslProfile"] and self._sockets.profile(body["sslProfile"]).get("certFile"):
            mechanisms.append(ExternalClient())
        if body["saslUsername"]:
            mechanisms.append(PlainClient(body["saslUsername"], body["saslPassword"] or ""))
        mechanisms.append(AnonymousClient())
        if wanted:
            mechanisms = [m for m in mechanisms if m.name in wanted]
        record.mechanism = mechanisms[0].name if mechanisms else None
        record.tls = ("TLS", "") if body["sslProfile"] else None
        return self._sockets.amqp_connection(
            record, body, is_client=True, sasl=SaslClient(mechanisms, body["host"]), hostname=body["host"]
        )

    def _ssl(self) -> ssl.SSLContext | None:
        name = self.body["sslProfile"]
        if not name:
            return None
        return tls.client_context(name, self._sockets.profile(name), verify_hostname=self.body["verifyHostname"])
