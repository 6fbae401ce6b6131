"""A client of AMQP on a connection that a gateway has made for it."""

from __future__ import annotations

import asyncio

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler


class RelayedClient(Handler, asyncio.Protocol):
    """Opens its connection. `router`: the container that has answered; `error`: why the connection was closed."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.router = ""
        self.error: AmqpError | None = None
        self.gone = False
        self._transport = transport
        self._connection = Connection(self, container_id="the client", is_client=True)
        self._connection.open()
        transport.set_protocol(self)
        transport.write(self._connection.take_output())

    def on_open(self, c: Connection) -> None:
        assert c.remote_open is not None
        self.router = c.remote_open.container_id

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self.error = error

    def data_received(self, data: bytes) -> None:
        self._connection.receive(data)
        self._transport.write(self._connection.take_output())

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True

    def close(self) -> None:
        self._transport.abort()
