"""The process: listeners open, requests joined to the router, until a signal ends it."""

from __future__ import annotations

import asyncio
from typing import Final

from enmasse.bridge.gateway_process import GatewayProcess
from enmasse.bridge.space_lanes import SpaceLanes
from enmasse.process import runner
from services.coap_gateway import metrics
from services.coap_gateway.coap_door import CoapDoor
from services.coap_gateway.coap_requests import CoapRequests
from services.coap_gateway.coap_rows import CoapRows
from services.coap_gateway.settings import CoapGatewaySettings

SERVICE: Final = "coap_gateway"


async def serve(settings: CoapGatewaySettings, stop: runner.Stop) -> None:
    """Run a gateway until `stop` is set. The ports are open from the beginning; requests wait until the router and the
    configuration are reached. Raises process.Fatal."""
    requests = CoapRequests(settings.max_body, settings.max_memory, settings.max_remembered)
    process = GatewayProcess(settings, SERVICE, SpaceLanes, requests.visitors)
    door = CoapDoor(requests)
    rows = CoapRows(settings.name, requests, process.refusals, process.followers, asyncio.get_running_loop())
    process.bridge.run(door.run(), "the look at what is due")
    async with process.running(
        door,
        settings.listeners,
        lambda: metrics.families(requests, process.bridge, process.counters),
        lambda: len(requests.memory.endpoints),
        rows.publisher,
    ):

        async def take(changed: CoapGatewaySettings) -> None:
            await door.have(changed.listeners)

        stop.on_settings(take)
        await stop.wait()
