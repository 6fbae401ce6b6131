"""Makes the engine's connection for a socket, as its listener or connector is configured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from enmasse.aio.transport import Hub
from enmasse.amqp.codec.types import Int
from enmasse.amqp.connection import Connection
from enmasse.amqp.limits import INNER_LIMITS, Limits
from enmasse.amqp.sasl.layer import SaslClient, SaslServer
from enmasse.amqp.sole_connection import SOLE_CONNECTION
from enmasse.amqp.termini import SPACE
from enmasse.identity.processes.credentials import Peers
from enmasse.identity.processes.relayed_client import ConnectedClient
from enmasse.model.names import DEFAULT_SPACE, RELAYS_TO_TOPICS
from services.router import PRODUCT, SIMULATES
from services.router.network.delegation import LoginQueue
from services.router.network.port_settings import (
    AuthService,
    ConnectorConfig,
    EndpointConfig,
    ListenerConfig,
    SslProfile,
)
from services.router.network.tls import ProfileError
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.neighbours.network import COST
from services.router.routing.router import Router
from services.router.routing.users import Users

if TYPE_CHECKING:
    from enmasse.tracing.spans import Tracing

SESSION_FRAMES, SESSION_BYTES = 512, 8 * 1024 * 1024
"""Frames and bytes that a peer may send in one session before receivers take them: a large message without a receiver
blocks its session only beyond this, and never the other sessions of the connection."""
CONNECTION_BYTES = 32 * 1024 * 1024
"""Bytes of undelivered pieces of large messages, over all sessions, above which a connection is not read."""
CAPABILITIES = ("ANONYMOUS-RELAY", "qd.streaming-links")
ANNOTATIONS = "qd.annotations-version"
"""Property of an Open between routers."""
OFFERED = (*CAPABILITIES, SOLE_CONNECTION, RELAYS_TO_TOPICS)


class ConnectionMaker:
    """Connects sockets to the router. `profiles`: SSL profiles by name. `peers`: the processes of the suite;
    `credential`: the file with the router's own credential. `users`: those of listeners with `saslPlugin`. Each may be
    absent. `relay_key`: by which the router proves addresses of clients. `auth_services`: authentication services by
    name. `traces`: of messages on connections that were accepted, but for those of routers; brokers have their own."""

    def __init__(
        self,
        router: Router,
        hub: Hub,
        peers: Peers | None = None,
        credential: str | None = None,
        users: Users | None = None,
        relay_key: str = "",
        traces: Tracing | None = None,
    ) -> None:
        self.router = router
        self.hub = hub
        self.peers = peers
        self.credential = credential
        self.users = users
        self.profiles: dict[str, SslProfile] = {}
        self.auth_services: dict[str, AuthService] = {}
        self.entries: list[tuple[ListenerConfig, Callable[[ConnectedClient], Connection]]] = []
        """Open listeners for clients, and what makes the connection of one that a gateway passes on."""
        self.logins = LoginQueue(hub, router.id, self.profile, relay_key)
        self._traces = traces
        self._handler = RouterHandler(router)

    def profile(self, name: str) -> SslProfile:
        """Return the profile of this name. Raises tls.ProfileError if it does not exist."""
        try:
            return self.profiles[name]
        except KeyError:
            raise ProfileError(f"there is no sslProfile '{name}'") from None

    def entry(self, *, tls: bool) -> Callable[[ConnectedClient], Connection] | None:
        """Return what makes connections of relayed clients as if they were those of an open listener, with TLS if there
        is one and the client has it; None: no listener is open."""
        found = sorted(self.entries, key=lambda entry: ((entry[0].ssl_profile is not None) != tls, entry[0].name))
        return found[0][1] if found else None

    def record(self, config: EndpointConfig, host: str) -> RouterConnection:
        """Return the router's record of a connection to `host` (host:port) through this listener or connector."""
        record = RouterConnection(
            self.router,
            name=config.name,
            role=config.role,
            direction="in" if isinstance(config, ListenerConfig) else "out",
            host=host,
            capacity=config.link_capacity,
        )
        record.management = config.management
        record.cost = config.cost
        return record

    def accepted(self, record: RouterConnection, config: ListenerConfig, sasl: SaslServer) -> Connection:
        """Return the engine's connection for a socket that a listener has accepted."""
        properties = self._properties(record, config)
        if config.failover_urls:
            properties["failover-server-list"] = _failover(config.failover_urls)
        limits = _limits(
            config, own=record.is_container or record.is_neighbour, handshake_timeout=config.handshake_timeout
        )
        connection = self._make(record, config, sasl, properties, limits)
        if self._traces is not None and not record.is_neighbour:
            connection.session_type = self._traces.session
        return connection

    def dialled(self, record: RouterConnection, config: ConnectorConfig, sasl: SaslClient) -> Connection:
        """Return the engine's connection for a socket that a connector is about to open."""
        properties = self._properties(record, config)
        if record.carried != DEFAULT_SPACE:
            properties[SPACE] = record.carried
        connection = self._make(record, config, sasl, properties, _limits(config, own=True))
        connection.tenant = properties.get(SPACE, "")
        return connection

    def _properties(self, record: RouterConnection, config: EndpointConfig) -> dict[str, Any]:
        own = {"product": PRODUCT, "version": SIMULATES, "qd.conn-id": record.identity}
        if record.is_neighbour:
            return {**own, COST: Int(config.cost), ANNOTATIONS: 1}
        return {**own, **config.properties}

    def _make(
        self,
        record: RouterConnection,
        config: EndpointConfig,
        sasl: SaslServer | SaslClient,
        properties: dict[str, Any],
        limits: Limits,
    ) -> Connection:
        is_client = record.dir == "out"
        connection = Connection(
            self._handler,
            container_id=self.router.id,
            is_client=is_client,
            hostname=config.host if is_client else None,
            max_frame_size=max(512, config.max_frame_size),
            channel_max=min(config.max_sessions, 32768) - 1,
            idle_timeout_ms=config.idle_timeout * 1000,
            sasl=sasl,
            properties=properties,
            offered_capabilities=OFFERED,
            desired_capabilities=CAPABILITIES,
            limits=limits,
        )
        connection.inner = is_client or record.is_container or record.is_neighbour
        connection.context = record
        record.amqp = connection
        record.abort = lambda: self._abort(connection)
        return connection

    def _abort(self, connection: Connection) -> None:
        for wire in self.hub.wires:
            if wire.connection is connection and wire.transport is not None:
                wire.transport.abort()
                return


def _limits(config: EndpointConfig, *, own: bool, handshake_timeout: int = 0) -> Limits:
    """Return the limits of a connection. `own`: to a broker or to a peer that we dialled; it carries all clients'
    links."""
    window = config.max_session_frames or min(SESSION_FRAMES, max(64, SESSION_BYTES // config.max_frame_size))
    return _limits_of_window(window, window * config.max_frame_size, own, handshake_timeout)


@lru_cache(maxsize=64)
def _limits_of_window(frames: int, size: int, own: bool, handshake_timeout: int) -> Limits:
    limits = replace(
        INNER_LIMITS if own else Limits(),
        incoming_window=frames,
        streaming_window=size,
        max_streamed=CONNECTION_BYTES,
    )
    return replace(limits, handshake_timeout_ms=handshake_timeout * 1000) if handshake_timeout else limits


def _failover(urls: str) -> list[dict[str, str]]:
    """Convert `amqps://host:port, host2` to the failover-server-list of our Open."""
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
