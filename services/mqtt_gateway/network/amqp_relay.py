"""AMQP over WebSocket: the bytes of a client go to the router, over a connection of their own.

The gateway logs in there as itself and states the client (enmasse/identity/processes/relayed_client.py); the router
then serves the client as if it were connected there. So login, rights and all limits
are those of the router.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from enmasse.aio.transport import Hub, dial
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.sasl.layer import AnonymousClient, SaslClient
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.processes.relayed_client import RELAY, ConnectedClient, offers_to_relay, stating
from enmasse.identity.processes.scram import of_process
from enmasse.process.places import Address, Places

SECONDS: Final = 8.0
"""For the router to take a client; the client has 10 to log in."""
FAILURES: Final = (AmqpError, OSError, TimeoutError)


class NotRelayed(Exception):
    """The router does not take the client: why."""


class GoesAway(Protocol):
    """A client that is passed on."""

    def go_away(self) -> None:
        """Close the client's WebSocket: it may connect again at once."""


class AmqpRelay:
    """Passes clients on to one of the routers. `container`: the name of the gateway; `credential`: of it."""

    def __init__(self, routers: Places, container: str, credential: AnyCredential | None) -> None:
        self._routers = routers
        self._container = container
        self._credential = credential
        self._hub: Hub | None = None
        self.clients = 0
        """Clients that are passed on now, or about to be."""
        self.wires: set[GoesAway] = set()

    async def dial(self, client: ConnectedClient) -> asyncio.Transport:
        """Return a connection on which a router expects the bytes of this client. Raises NotRelayed."""
        try:
            async with asyncio.timeout(SECONDS):
                return await self._routers.dial(lambda address: self._dial(address, client), FAILURES)
        except FAILURES as error:
            raise NotRelayed(f"the router cannot be reached: {str(error) or 'it does not answer'}") from None

    async def _dial(self, address: Address, client: ConnectedClient) -> asyncio.Transport:
        """Dial one router. Raises NotRelayed, or one of FAILURES."""
        if self._hub is None:
            self._hub = Hub()
        own = self._credential
        handler = _Asking(self._hub.loop)
        connection = Connection(
            handler,
            container_id=self._container,
            is_client=True,
            hostname=address[0],
            sasl=SaslClient([AnonymousClient() if own is None else of_process(own)], address[0]),
            properties=stating(client),
            desired_capabilities=(RELAY,),
        )
        wire = None
        try:
            wire = await dial(self._hub, *address, connection, None if own is None else own.tls())
            await handler.answered
            if not offers_to_relay(handler.answered.result()):
                raise handler.refusal or NotRelayed("this router takes no AMQP over WebSocket")
            transport = wire.release()
        finally:
            if wire is not None and wire.transport is not None:
                wire.transport.abort()
        if transport is None:
            raise NotRelayed("the router has closed the connection")
        return transport


class _Asking(Handler):
    """Handler of the gateway's connection, until the client takes its place. `answered`: the router's Open; `refusal`:
    the error of its Close, as that of a router that has just started."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answered = loop.create_future()
        self.refusal: AmqpError | None = None

    def on_open(self, c: Connection) -> None:
        if not self.answered.done():
            self.answered.set_result(c.remote_open)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self.refusal = error
        if not self.answered.done():
            self.answered.set_exception(error or ConnectionResetError("it has closed the connection"))
