"""The process: listeners open, clients joined to the router, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from enmasse.aio.live_follower import LiveLink
from enmasse.bridge.bridge import Bridge
from enmasse.bridge.gateway_ports import ListenerError
from enmasse.bridge.gateway_settings import logins_of, tls_of
from enmasse.bridge.lanes import Counters
from enmasse.bridge.moving_clients import hand_on
from enmasse.http.health import Health
from enmasse.identity.processes.credentials import own
from enmasse.identity.refused import Refusals
from enmasse.process import runner
from enmasse.process.settings import host_port
from enmasse.tracing import setup as tracing
from services.stomp_gateway import metrics
from services.stomp_gateway.settings import StompGatewaySettings
from services.stomp_gateway.stomp_clients import StompClients
from services.stomp_gateway.stomp_door import StompDoor
from services.stomp_gateway.stomp_rows import StompRows
from services.stomp_gateway.stomp_transactions import StompSpace

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SERVICE: Final = "stomp_gateway"
CLOSING: Final = 3.0
"""Seconds in which messages get their outcomes before the connections go."""


async def serve(settings: StompGatewaySettings, stop: runner.Stop) -> None:
    """Run a gateway until `stop` is set. The ports are open from the beginning; clients wait until the router and the
    configuration are reached. Raises process.Fatal."""
    stop.patience = settings.leave_within
    credential = own(settings)
    counters = Counters()
    clients = StompClients(settings.max_body, settings.max_memory)
    followers: set[LiveLink] = set()
    refusals = Refusals(time.monotonic)
    traces = tracing.start(settings, "stomp-gateway", "deliver", "send")
    bridge: Bridge[StompSpace] = Bridge(
        settings.name,
        settings.routers,
        host_port(settings.configserv),
        credential,
        make=lambda _, space: StompSpace(space, counters),
        review=clients.review,
        in_use=clients.in_use,
        authserv=None if settings.authserv is None else host_port(settings.authserv),
        authserv_tls=tls_of(settings, credential, SERVICE),
        logins=logins_of(settings, credential, SERVICE),
        refusals=refusals,
        followers=followers,
        traces=traces,
    )
    clients.bridge = bridge
    door = StompDoor(clients, settings.max_connections, settings.allowed_origins)
    rows = StompRows(settings.name, clients, refusals, followers, asyncio.get_running_loop())

    def families() -> Iterator[Metric]:
        yield from metrics.families(door, bridge, counters)
        if traces is not None:
            yield from traces.families()

    def state() -> tuple[bool, str]:
        missing = bridge.missing()
        return not missing, "; ".join(filter(None, (missing or bridge.hints(), bridge.hub.trouble)))

    health = Health(
        settings.health,
        families,
        metrics_secret=settings.metrics_secret,
        check=state,
        endpoints=lambda: door.ports.endpoints,
        counts=lambda: {"clients": len(clients.clients)},
    )
    await health.start()
    bridge.start()
    rows.publisher.start()
    try:
        for listener in settings.listeners:
            await door.open(listener)
    except ListenerError as error:
        raise runner.Fatal("service.port.not-available", f"{SERVICE} {settings.name}: {error}") from None
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    await stop.wait()
    await hand_on(door, health, settings.leave_within, stop.hurry)
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
