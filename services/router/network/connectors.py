"""Connectors: connections that the router makes, and makes again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from enmasse import process
from enmasse.amqp.connection import Connection
from enmasse.amqp.sasl import AnonymousClient, ClientMechanism, ExternalClient, PlainClient, SaslClient
from enmasse.amqp.transport import dial
from enmasse.backoff import ReconnectBackoff
from services.router.management import schema
from services.router.management.supported import check_connector, check_role
from services.router.network import hosts, tls
from services.router.routing.connections import RouterConnection

if TYPE_CHECKING:
    from services.router.network.sockets import Sockets


class Connector:
    """Dials until told to stop; `status` is CONNECTING, SUCCESS or FAILED, `message` says more. Raises ManagementError
    for a body that cannot be honoured."""

    def __init__(self, sockets: Sockets, entity: Any) -> None:
        self.body: dict[str, Any] = entity.body
        self.name: str = entity.name
        self.identity: str = entity.identity
        self.status = "CONNECTING"
        self.message: str | None = None
        self._sockets = sockets
        self._task: asyncio.Task[None] | None = None
        self._record: RouterConnection | None = None
        self._to = f"{self.body['host']}:{self.body['port']}"
        where = f"connector '{self.name}' to {self._to}"
        check_role(where, self.body, sockets.router.mode)
        check_connector(schema.CONNECTOR, where, self.body)

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
        clock = self._sockets.router.now
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
        record = RouterConnection(
            self._sockets.router,
            name=self.name,
            role=self.body["role"],
            direction="out",
            host=self._to,
            capacity=self._sockets.capacity(self.body),
        )
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
        body, hub = self.body, self._sockets.hub
        port = hosts.port_number(body["port"])
        host = await hosts.address(body["host"], body["socketAddressFamily"])
        name, context = body["sslProfile"], None
        if name:
            profile = self._sockets.profile(name)
            context = tls.client_context(name, profile, verify_hostname=body["verifyHostname"])
        wire = await dial(hub, host, port, self._connection(record), ssl=context, server_hostname=body["host"])
        if wire.transport is not None:
            record.tls = tls.protection(wire.transport.get_extra_info("ssl_object"))

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
        return self._sockets.amqp_connection(
            record, body, is_client=True, sasl=SaslClient(mechanisms, body["host"]), hostname=body["host"]
        )
