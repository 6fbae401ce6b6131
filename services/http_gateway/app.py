"""The process: listeners open, the API joined to the router, until a signal ends it."""

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
from services.http_gateway import metrics
from services.http_gateway.api.event_requests import Streaming
from services.http_gateway.api.http_clients import HttpClients
from services.http_gateway.api.http_space import HttpSpace
from services.http_gateway.api.locked_deliveries import Locks
from services.http_gateway.api.posting import Posting
from services.http_gateway.api.receiving import Receiving
from services.http_gateway.api.requests_of_clients import HttpRequests
from services.http_gateway.http_door import HttpDoor
from services.http_gateway.http_live_rows import LiveHttpGateway
from services.http_gateway.settings import HttpGatewaySettings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SERVICE: Final = "http_gateway"
CLOSING: Final = 3.0
"""Seconds in which messages get their outcomes before the connections go."""


async def serve(settings: HttpGatewaySettings, stop: runner.Stop) -> None:
    """Run a gateway until `stop` is set. The ports are open from the beginning; requests get 503 until the router and
    the configuration are reached. Raises process.Fatal."""
    stop.patience = settings.leave_within
    credential = own(settings)
    counters = Counters()
    clients = HttpClients(settings.allowed_origins)
    refusals = Refusals(time.monotonic)
    followers: set[LiveLink] = set()
    traces = tracing.start(settings, "http-gateway", "deliver", "send")
    bridge: Bridge[HttpSpace] = Bridge(
        settings.name,
        settings.routers,
        host_port(settings.configserv),
        credential,
        make=lambda _, space: HttpSpace(space, counters),
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
    posting = Posting(clients, settings.max_body, settings.max_memory)
    receiving = Receiving(clients, Locks(settings.name))
    streaming = Streaming(clients)
    door = HttpDoor(HttpRequests(clients, posting, receiving, streaming), settings.max_connections)

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
        counts=lambda: {"clients": len(door.connections)},
    )
    await health.start()
    live = LiveHttpGateway(settings.name, clients, streaming, refusals, followers, asyncio.get_running_loop())
    live.publisher.start()
    bridge.start()
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
