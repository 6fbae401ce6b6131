"""The process: listeners open, clients joined to the router, until a signal ends it."""

from __future__ import annotations

import asyncio
from typing import Final

from enmasse.bridge.gateway_process import GatewayProcess
from enmasse.bridge.moving_clients import hand_on
from enmasse.process import runner
from services.stomp_gateway import metrics
from services.stomp_gateway.settings import StompGatewaySettings
from services.stomp_gateway.stomp_clients import StompClients
from services.stomp_gateway.stomp_door import StompDoor
from services.stomp_gateway.stomp_rows import StompRows
from services.stomp_gateway.stomp_transactions import StompSpace

SERVICE: Final = "stomp_gateway"


async def serve(settings: StompGatewaySettings, stop: runner.Stop) -> None:
    """Run a gateway until `stop` is set. The ports are open from the beginning; clients wait until the router and the
    configuration are reached. Raises process.Fatal."""
    stop.patience = settings.leave_within
    clients = StompClients(settings.max_body, settings.max_memory)
    process = GatewayProcess(settings, SERVICE, StompSpace, clients)
    door = StompDoor(clients, settings.max_connections, process.refusals, settings.allowed_origins)
    rows = StompRows(settings.name, clients, process.refusals, process.followers, asyncio.get_running_loop())
    async with process.running(
        door,
        settings.listeners,
        lambda: metrics.families(door, process.bridge, process.counters),
        lambda: len(clients.clients),
        rows.publisher,
    ) as health:

        async def take(changed: StompGatewaySettings) -> None:
            door.allow(changed.allowed_origins)
            await door.have(changed.listeners)

        stop.on_settings(take)
        await stop.wait()
        await hand_on(door, health, settings.leave_within, stop.hurry)
