"""The router's sockets: listeners and connectors, made and removed at run time, and the connections they carry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from enmasse import process
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import INNER_LIMITS, Limits
from enmasse.amqp.sasl import SaslClient, SaslServer
from enmasse.amqp.sole import SOLE_CONNECTION
from enmasse.amqp.transport import Hub
from services.router import PRODUCT, SIMULATES
from services.router.management.schema import ManagementError
from services.router.network import tls
from services.router.network.connectors import Connector
from services.router.network.listeners import Listener
from services.router.routing.connections import DEFAULT_CAPACITY, RouterConnection
from services.router.routing.core import Router
from services.router.routing.handler import RouterHandler

SESSION_FRAMES, SESSION_BYTES = 512, 8 * 1024 * 1024
"""What a peer may send in one session before somebody takes it: a large message that nobody takes holds its session
back only when it is larger than this, and never the others of the connection."""
CONNECTION_BYTES = 32 * 1024 * 1024
"""Untaken pieces of large messages of one connection: beyond it, which takes several sessions, it is not read."""
CAPABILITIES = ("ANONYMOUS-RELAY", "qd.streaming-links")
OFFERED = (*CAPABILITIES, SOLE_CONNECTION)


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

    @staticmethod
    def capacity(body: dict[str, Any]) -> int:
        """linkCapacity of a listener's or connector's connections."""
        return int(body["linkCapacity"] or 0) or DEFAULT_CAPACITY

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
        properties.update({str(key): value for key, value in (body["openProperties"] or {}).items()})
        if body.get("failoverUrls") and not is_client:
            properties["failover-server-list"] = _failover(str(body["failoverUrls"]))
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
            offered_capabilities=OFFERED,
            desired_capabilities=CAPABILITIES,
            limits=_limits(body, own=is_client or record.is_container),
        )
        connection.context = record
        record.amqp = connection
        record.abort = lambda: self._abort(connection)
        record.policy_vhost = body.get("policyVhost")
        record.management = body["management"]
        return connection

    def _abort(self, connection: Connection) -> None:
        for wire in self.hub.wires:
            if wire.connection is connection and wire.transport is not None:
                wire.transport.abort()
                return


def _limits(body: dict[str, Any], *, own: bool) -> Limits:
    """`own`: a connection to a broker, or to whom we have dialled; it carries the links of all clients."""
    limits: dict[str, int] = {}
    if own:
        limits = {"max_links": INNER_LIMITS.max_links, "max_link_state": INNER_LIMITS.max_link_state}
    if body.get("initialHandshakeTimeoutSeconds"):
        limits["handshake_timeout_ms"] = body["initialHandshakeTimeoutSeconds"] * 1000
    window = body["maxSessionFrames"] or min(SESSION_FRAMES, max(64, SESSION_BYTES // body["maxFrameSize"]))
    limits["incoming_window"] = window
    limits["streaming_window"] = window * body["maxFrameSize"]
    limits["max_streamed"] = CONNECTION_BYTES
    return Limits(**limits)


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
