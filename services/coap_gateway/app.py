"""The process: listeners open, requests joined to the router, until a signal ends it."""

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
from enmasse.bridge.space_lanes import SpaceLanes
from enmasse.http.health import Health
from enmasse.identity.processes.credentials import own
from enmasse.identity.refused import Refusals
from enmasse.process import runner
from enmasse.process.settings import host_port
from enmasse.tracing import setup as tracing
from services.coap_gateway import metrics
from services.coap_gateway.coap_door import CoapDoor
from services.coap_gateway.coap_requests import CoapRequests
from services.coap_gateway.coap_rows import CoapRows
from services.coap_gateway.settings import CoapGatewaySettings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SERVICE: Final = "coap_gateway"
CLOSING: Final = 3.0
"""Seconds in which messages get their outcomes before the connection goes."""


async def serve(settings: CoapGatewaySettings, stop: asyncio.Event) -> None:
    """Run a gateway until `stop` is set. The ports are open from the beginning; requests wait until the router and the
    configuration are reached. Raises process.Fatal."""
    credential = own(settings)
    counters = Counters()
    requests = CoapRequests(settings.max_body, settings.max_memory, settings.max_remembered)
    followers: set[LiveLink] = set()
    refusals = Refusals(time.monotonic)
    traces = tracing.start(settings, "coap-gateway", "deliver", "send")
    bridge: Bridge[SpaceLanes] = Bridge(
        settings.name,
        settings.routers,
        host_port(settings.configserv),
        credential,
        make=lambda _, space: SpaceLanes(space, counters),
        review=requests.visitors.review,
        in_use=requests.visitors.in_use,
        authserv=None if settings.authserv is None else host_port(settings.authserv),
        authserv_tls=tls_of(settings, credential, SERVICE),
        logins=logins_of(settings, credential, SERVICE),
        refusals=refusals,
        followers=followers,
        traces=traces,
    )
    requests.visitors.bridge = bridge
    door = CoapDoor(requests)
    rows = CoapRows(settings.name, requests, refusals, followers, asyncio.get_running_loop())

    def families() -> Iterator[Metric]:
        yield from metrics.families(requests, bridge, counters)
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
        counts=lambda: {"clients": len(requests.memory.endpoints)},
    )
    await health.start()
    bridge.start()
    rows.publisher.start()
    bridge.run(door.run(), "the look at what is due")
    try:
        for listener in settings.listeners:
            await door.open(listener)
    except ListenerError as error:
        raise runner.Fatal("service.port.not-available", f"{SERVICE} {settings.name}: {error}") from None
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    await stop.wait()
    health.check = None
    health.set(False, "stopping")
    await door.leave()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSING):
            while bridge.busy:
                await asyncio.sleep(0.02)
    await bridge.close()
    if traces is not None:
        await traces.close()
    await health.close()
