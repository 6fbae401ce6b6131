"""The listeners and connectors of a router: made and removed while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from enmasse import process
from enmasse.aio.transport import Hub
from services.router.network.configuration import ConnectorConfig, ListenerConfig, SslProfile
from services.router.network.connectors import Connector
from services.router.network.listeners import Listener, ListenError
from services.router.network.maker import ConnectionMaker
from services.router.routing.router import Router


class Sockets:
    """All listeners that are open, all connectors that dial, and the SSL profiles they use."""

    def __init__(self, router: Router, hub: Hub) -> None:
        self.listeners: set[Listener] = set()
        self.connectors: set[Connector] = set()
        self._maker = ConnectionMaker(router, hub)
        self._one_at_a_time = asyncio.Lock()

    def profile(self, name: str) -> SslProfile:
        """Raises tls.ProfileError if there is none of this name."""
        return self._maker.profile(name)

    def set_profile(self, profile: SslProfile) -> None:
        self._maker.profiles[profile.name] = profile

    def remove_profile(self, name: str) -> None:
        self._maker.profiles.pop(name, None)

    def new_listener(self, config: ListenerConfig) -> Listener:
        """Not open yet."""
        return Listener(self._maker, config)

    async def open(self, listener: Listener) -> None:
        """Raises ListenError if the port cannot be had."""
        await listener.open()
        self.listeners.add(listener)

    async def close(self, listener: Listener) -> None:
        """Accept no more; connections that are open stay."""
        self.listeners.discard(listener)
        await listener.close()

    def open_soon(self, listener: Listener, done: Callable[[ListenError | None], None]) -> None:
        """Open a listener's port; `done` gets what went wrong."""

        async def opening() -> None:
            failure: ListenError | None = None
            async with self._one_at_a_time:
                try:
                    if not listener.deleted:
                        await self.open(listener)
                except ListenError as error:
                    failure = error
            done(failure)

        process.spawn(opening(), f"open {listener.config.name}")

    def close_soon(self, listener: Listener, done: Callable[[], None]) -> None:
        """As `close`; a listener that is still to be opened is not."""

        async def closing() -> None:
            async with self._one_at_a_time:  # whoever opens the port next finds it free
                await self.close(listener)
                for _ in range(3):
                    await asyncio.sleep(0)  # uvloop closes sockets a turn later
            done()

        listener.deleted = True
        process.spawn(closing(), f"close {listener.config.name}")

    def connect(self, config: ConnectorConfig) -> Connector:
        """Dial from now on, until `disconnect`."""
        connector = Connector(self._maker, config)
        self.connectors.add(connector)
        connector.start()
        return connector

    def disconnect(self, connector: Connector) -> None:
        """The connection goes with the connector."""
        self.connectors.discard(connector)
        connector.stop()
