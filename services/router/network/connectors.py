"""Connectors: connections that the router opens, and reopens when they are lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from enmasse.aio.transport import dial
from enmasse.amqp.connection import Connection
from enmasse.amqp.sasl.layer import AnonymousClient, ClientMechanism, ExternalClient, PlainClient, SaslClient
from enmasse.identity.processes.credentials import read_credential
from enmasse.identity.processes.scram import ScramClient, of_process
from enmasse.model.names import DEFAULT_SPACE
from enmasse.network.backoff import ReconnectBackoff
from enmasse.network.reconnect import keep_connected
from enmasse.network.tls import protection
from enmasse.process import runner
from services.router.network import hosts, tls
from services.router.network.maker import ConnectionMaker
from services.router.network.port_settings import EDGE, SCRAM, ConnectorConfig
from services.router.network.secrets import password
from services.router.routing.connection import ROUTE_CONTAINER, RouterConnection
from services.router.routing.space_connections import SpaceConnections


class Connector:
    """Dials until it is stopped; `status` is CONNECTING, SUCCESS or FAILED, `message` gives the details."""

    def __init__(
        self,
        maker: ConnectionMaker,
        config: ConnectorConfig,
        first: Connector | None = None,
        space: str = DEFAULT_SPACE,
    ) -> None:
        """`first`: this is a further connection of that connector, for an address space."""
        self.config = config
        self._space = space
        self._spaces: SpaceConnections | None = None
        if first is not None:
            self._spaces = first._spaces
        elif config.role == ROUTE_CONTAINER:
            self._spaces = SpaceConnections(self._further, maker.router.clock)
        self.status = "CONNECTING"
        self.message: str | None = None
        self._maker = maker
        self._task: asyncio.Task[None] | None = None
        self._record: RouterConnection | None = None
        self._to = f"{config.host}:{config.port}"

    def start(self) -> None:
        """Start to dial. Connectors of edge routers are not dialled."""
        if self.config.role == EDGE:
            self.message = "this router is no edge router: kept and reported, not dialled"
            return
        self._task = runner.spawn(self._run(), f"connector {self.config.name}")

    def _further(self, space: str) -> Connector:
        further = Connector(self._maker, self.config, self, space)
        further.start()
        return further

    @property
    def links(self) -> int:
        """Return the number of links on the connection."""
        return 0 if self._record is None else len(self._record.links)

    def stop(self) -> None:
        """Stop dialling and close the connection, and the further ones."""
        if self._spaces is not None and self._space == DEFAULT_SPACE:
            self._spaces.close()
        if self._task is not None:
            self._task.cancel()
        if self._record is not None and not self._record.closed:
            self._record.amqp.close()
            self._record.amqp.wake()

    async def _run(self) -> None:
        clock = self._maker.router.now
        failures = (OSError, ValueError)
        await keep_connected(
            self._connected, self._live, self._failed, failures=failures, backoff=ReconnectBackoff(clock()), now=clock
        )

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncio.Event]:
        """Connect; the yielded event is set when the connection has ended. Raises OSError, ValueError."""
        opened, lost = asyncio.Event(), asyncio.Event()
        record = self._maker.record(self.config, self._to)
        record.spaces, record.carried = self._spaces, self._space

        def on_opened() -> None:
            self._opened(record)
            opened.set()

        def on_closed() -> None:
            lost.set()
            opened.set()

        record.on_opened, record.on_closed = on_opened, on_closed
        await self._dial(record)
        self._record = record
        try:
            await opened.wait()
            if lost.is_set():
                raise ConnectionError(_reason(record))
            yield lost
            self._set("CONNECTING", _reason(record))
        finally:
            self._record = None

    async def _live(self, lost: asyncio.Event) -> None:
        await lost.wait()

    async def _failed(self, error: Exception) -> None:
        self._set("FAILED", getattr(error, "strerror", None) or str(error))

    def _set(self, status: str, reason: str) -> None:
        self.status = status
        self.message = f"{self._to}: {reason}"

    def _opened(self, record: RouterConnection) -> None:
        self.status = "SUCCESS"
        self.message = (
            f"[C{record.identity}] Connection Opened: dir=out host={record.host} container_id={record.container}"
        )

    async def _dial(self, record: RouterConnection) -> None:
        """Open the socket, with TLS if configured. Files with passwords and certificates are read each time."""
        config = self.config
        port = hosts.port_number(config.port)
        host = await hosts.address(config.host, config.family)
        context = None
        if config.ssl_profile:
            profile = self._maker.profile(config.ssl_profile)
            context = tls.client_context(profile, verify_hostname=config.verify_hostname)
        connection = self._connection(record)
        wire = await dial(self._maker.hub, host, port, connection, ssl=context, server_hostname=config.host)
        if wire.transport is not None:
            record.tls = tls.protection(protection(wire.transport.get_extra_info("ssl_object")))

    def _connection(self, record: RouterConnection) -> Connection:
        config = self.config
        mechanisms: list[ClientMechanism] = []
        if config.ssl_profile and self._maker.profile(config.ssl_profile).cert_file:
            mechanisms.append(ExternalClient())
        if config.sasl_username:
            secret = password(config.sasl_password)
            mechanisms += [ScramClient(config.sasl_username, secret), PlainClient(config.sasl_username, secret)]
        elif self._maker.credential is not None and SCRAM in config.sasl_mechanisms:
            mechanisms.append(of_process(read_credential(self._maker.credential)))
        mechanisms.append(AnonymousClient())
        if config.sasl_mechanisms:
            mechanisms = [m for m in mechanisms if m.name in config.sasl_mechanisms]
        return self._maker.dialled(record, config, SaslClient(mechanisms, config.host))


def _reason(record: RouterConnection) -> str:
    """Return the reason for the end of a connection."""
    return str(record.amqp.transport_error or record.amqp.own_error or record.close_error or "closed by the peer")
