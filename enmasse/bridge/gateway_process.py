"""The process of a gateway whose clients are on lanes of address spaces: its parts, and how it starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from enmasse.aio.live_follower import LiveLink
from enmasse.bridge.bridge import Bridge
from enmasse.bridge.gateway_ports import GatewayPorts, ListenerError
from enmasse.bridge.gateway_settings import GatewaySettings, logins_of, tls_of
from enmasse.bridge.lanes import Counters
from enmasse.bridge.space_lanes import SpaceLanes
from enmasse.http.health import Health
from enmasse.identity.processes.credentials import own
from enmasse.identity.refused import Refusals
from enmasse.live_state import LivePublisher
from enmasse.process import runner
from enmasse.process.settings import host_port
from enmasse.tracing import setup as tracing

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CLOSING: Final = 3.0
"""Seconds in which messages get their outcomes before the connections to the router go."""

S = TypeVar("S", bound=SpaceLanes)


class ProcessClients(Protocol[S]):
    """Clients of a gateway. `bridge` is set before the first one comes."""

    bridge: Bridge[S]

    def review(self, space: str) -> None:
        """As Bridge."""

    def in_use(self) -> Collection[str]:
        """As Bridge."""


class ProcessDoor(Protocol):
    """Ports for clients."""

    @property
    def ports(self) -> GatewayPorts: ...

    async def open(self, listener: Any) -> None:
        """Open the sockets of a listener. Raises ListenerError."""

    async def close(self) -> None:
        """Close the ports, once what has come from clients is answered."""


class GatewayProcess(Generic[S]):
    """`service`: its name; `make`: state of an address space. Raises process.Fatal."""

    def __init__(
        self, settings: GatewaySettings, service: str, make: Callable[[str, Counters], S], clients: ProcessClients[S]
    ) -> None:
        self._settings = settings
        self._service = service
        credential = own(settings)
        self.counters = Counters()
        self.followers: set[LiveLink] = set()
        self.refusals = Refusals(time.monotonic)
        self._traces = tracing.start(settings, service.replace("_", "-"), "deliver", "send")
        self.bridge: Bridge[S] = Bridge(
            settings.name,
            settings.routers,
            host_port(settings.configserv),
            credential,
            make=lambda _, space: make(space, self.counters),
            review=clients.review,
            in_use=clients.in_use,
            authserv=None if settings.authserv is None else host_port(settings.authserv),
            authserv_tls=tls_of(settings, credential, service),
            logins=logins_of(settings, credential, service),
            refusals=self.refusals,
            followers=self.followers,
            traces=self._traces,
        )
        clients.bridge = self.bridge

    @contextlib.asynccontextmanager
    async def running(
        self,
        door: ProcessDoor,
        listeners: Collection[Any],
        families: Callable[[], Iterator[Metric]],
        clients: Callable[[], int],
        live: LivePublisher,
    ) -> AsyncIterator[Health]:
        """Open the ports, and at the end of the block close them, and the connections to the router after what is under
        way has its outcome. `families`: the metrics of the gateway; `clients`: how many there are. Raises
        process.Fatal."""
        bridge, settings, traces = self.bridge, self._settings, self._traces

        def metrics() -> Iterator[Metric]:
            yield from families()
            if traces is not None:
                yield from traces.families()

        health = Health(
            settings.health,
            metrics,
            metrics_secret=settings.metrics_secret,
            check=self._state,
            endpoints=lambda: door.ports.endpoints,
            counts=lambda: {"clients": clients()},
        )
        await health.start()
        bridge.start()
        live.start()
        try:
            for listener in listeners:
                await door.open(listener)
        except ListenerError as error:
            raise runner.Fatal("service.port.not-available", f"{self._service} {settings.name}: {error}") from None
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)
        yield health
        health.check = None
        health.set(False, "stopping")
        await door.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                while bridge.busy:
                    await asyncio.sleep(0.02)
        await bridge.close()
        if traces is not None:
            await traces.close()
        await health.close()

    def _state(self) -> tuple[bool, str]:
        bridge = self.bridge
        missing = bridge.missing()
        return not missing, "; ".join(filter(None, (missing or bridge.hints(), bridge.hub.trouble)))
