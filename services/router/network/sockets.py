"""Listeners and connectors of a router, created and removed while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from enmasse.process import runner
from services.router.network.connectors import Connector
from services.router.network.listeners import Listener, ListenError
from services.router.network.maker import ConnectionMaker
from services.router.network.port_settings import ConnectorConfig, ListenerConfig


class Sockets:
    """All open listeners, all dialling connectors, and the SSL profiles they use."""

    def __init__(self, maker: ConnectionMaker) -> None:
        self.listeners: set[Listener] = set()
        self.connectors: set[Connector] = set()
        self.profile = maker.profile
        self.profiles = maker.profiles
        self.auth_services = maker.auth_services
        self._maker = maker
        self._one_at_a_time = asyncio.Lock()

    @property
    def knows_peers(self) -> bool:
        """True if listeners can authenticate processes of the suite."""
        return self._maker.peers is not None

    @property
    def knows_users(self) -> bool:
        """True if the router follows the users of the configuration service."""
        return self._maker.users is not None

    @property
    def has_credential(self) -> bool:
        """True if connectors can authenticate as this router."""
        return self._maker.credential is not None

    def new_listener(self, config: ListenerConfig) -> Listener:
        """Return a listener that is not open yet."""
        return Listener(self._maker, config)

    async def open(self, listener: Listener) -> None:
        """Open the listener's port. Raises ListenError if that fails."""
        await listener.open()
        self.listeners.add(listener)
        self._note_entries()

    async def close(self, listener: Listener) -> None:
        """Stop accepting; open connections stay."""
        self.listeners.discard(listener)
        self._note_entries()
        await listener.close()

    def _note_entries(self) -> None:
        self._maker.entries = [(each.config, each.accept_client) for each in self.listeners if each.is_for_clients]

    def open_soon(self, listener: Listener, done: Callable[[ListenError | None], None]) -> None:
        """Open a listener's port in the background; `done` gets the error, None on success."""

        async def opening() -> None:
            failure: ListenError | None = None
            async with self._one_at_a_time:
                try:
                    if not listener.deleted:
                        await self.open(listener)
                except ListenError as error:
                    failure = error
            done(failure)

        runner.spawn(opening(), f"open {listener.config.name}")

    def close_soon(self, listener: Listener, done: Callable[[], None]) -> None:
        """`close` in the background; a pending open is cancelled."""

        async def closing() -> None:
            async with self._one_at_a_time:  # so that the port is free for the next listener
                await self.close(listener)
                for _ in range(3):
                    await asyncio.sleep(0)  # uvloop closes sockets a turn later
            done()

        listener.deleted = True
        runner.spawn(closing(), f"close {listener.config.name}")

    def connect(self, config: ConnectorConfig) -> Connector:
        """Dial until `disconnect`."""
        connector = Connector(self._maker, config)
        self.connectors.add(connector)
        connector.start()
        return connector

    def disconnect(self, connector: Connector) -> None:
        """Stop a connector and close its connection."""
        self.connectors.discard(connector)
        connector.stop()
