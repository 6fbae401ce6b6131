"""Connectors: connections that the router makes, and makes again."""

from __future__ import annotations

import asyncio

from enmasse import process
from enmasse.aio.transport import dial
from enmasse.amqp.connection import Connection
from enmasse.amqp.sasl import AnonymousClient, ClientMechanism, ExternalClient, PlainClient, SaslClient
from enmasse.backoff import ReconnectBackoff
from services.router.network import hosts, tls
from services.router.network.configuration import NEIGHBOURS, ConnectorConfig
from services.router.network.maker import ConnectionMaker
from services.router.routing.connection import RouterConnection


class Connector:
    """Dials until it is stopped; `status` is CONNECTING, SUCCESS or FAILED, `message` gives the details."""

    def __init__(self, maker: ConnectionMaker, config: ConnectorConfig) -> None:
        self.config = config
        self.status = "CONNECTING"
        self.message: str | None = None
        self._maker = maker
        self._task: asyncio.Task[None] | None = None
        self._record: RouterConnection | None = None
        self._to = f"{config.host}:{config.port}"

    def start(self) -> None:
        if self.config.role in NEIGHBOURS:
            self.message = "a mesh of several routers is not supported yet: kept and reported, not dialled"
            return
        self._task = process.spawn(self._run(), f"connector {self.config.name}")

    def stop(self) -> None:
        """The connection goes with the connector."""
        if self._task is not None:
            self._task.cancel()
        if self._record is not None and not self._record.closed:
            self._record.amqp.close()
            self._record.amqp.wake()

    async def _run(self) -> None:
        clock = self._maker.router.now
        backoff = ReconnectBackoff(clock())
        while True:
            lost: asyncio.Event = asyncio.Event()
            record = self._new_record(lost)
            try:
                await self._dial(record)
            except (OSError, ValueError, tls.ProfileError) as error:
                self.status = "FAILED"
                self.message = f"{self._to}: {getattr(error, 'strerror', None) or error}"
            else:
                self._record = record
                await lost.wait()
                self._record = None
                if self.status == "SUCCESS":
                    backoff.lost(clock(), clock() if record.opened_at is None else record.opened_at)
                    self.status = "CONNECTING"
                else:
                    self.status = "FAILED"
                error_text = record.amqp.transport_error or "closed by the peer"
                self.message = f"{self._to}: {error_text}"
            await asyncio.sleep(backoff.wait_from(clock()))

    def _new_record(self, lost: asyncio.Event) -> RouterConnection:
        record = self._maker.record(self.config, self._to)
        record.on_opened = lambda: self._opened(record)
        record.on_closed = lost.set
        return record

    def _opened(self, record: RouterConnection) -> None:
        self.status = "SUCCESS"
        self.message = (
            f"[C{record.identity}] Connection Opened: dir=out host={record.host} container_id={record.container}"
        )

    async def _dial(self, record: RouterConnection) -> None:
        """Returns once the socket, and TLS, is up."""
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
            record.tls = tls.protection(wire.transport.get_extra_info("ssl_object"))

    def _connection(self, record: RouterConnection) -> Connection:
        config = self.config
        mechanisms: list[ClientMechanism] = []
        if config.ssl_profile and self._maker.profile(config.ssl_profile).cert_file:
            mechanisms.append(ExternalClient())
        if config.sasl_username:
            mechanisms.append(PlainClient(config.sasl_username, config.sasl_password or ""))
        mechanisms.append(AnonymousClient())
        if config.sasl_mechanisms:
            mechanisms = [m for m in mechanisms if m.name in config.sasl_mechanisms]
        return self._maker.dialled(record, config, SaslClient(mechanisms, config.host))
