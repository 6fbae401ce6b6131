"""The process: listeners open, the API joined to the router, until a signal ends it."""

from __future__ import annotations

import asyncio
from typing import Final

from enmasse.bridge.gateway_process import GatewayProcess
from enmasse.bridge.lanes import Counters
from enmasse.bridge.moving_clients import hand_on
from enmasse.model.names import DEFAULT_SPACE
from enmasse.process import runner
from services.http_gateway import metrics
from services.http_gateway.api.event_requests import Streaming
from services.http_gateway.api.http_clients import HttpClients
from services.http_gateway.api.http_space import HttpSpace
from services.http_gateway.api.locked_deliveries import Locks
from services.http_gateway.api.locks_elsewhere import LocksElsewhere
from services.http_gateway.api.posting import Posting
from services.http_gateway.api.receiving import Receiving
from services.http_gateway.api.requests_of_clients import HttpRequests
from services.http_gateway.http_door import HttpDoor
from services.http_gateway.http_live_rows import LiveHttpGateway
from services.http_gateway.settings import HttpGatewaySettings

SERVICE: Final = "http_gateway"


async def serve(settings: HttpGatewaySettings, stop: runner.Stop) -> None:
    """Run a gateway until `stop` is set. The ports are open from the beginning; requests get 503 until the router and
    the configuration are reached. Raises process.Fatal."""
    stop.patience = settings.leave_within
    clients = HttpClients(settings.allowed_origins)
    locks = Locks(settings.name)
    elsewhere = LocksElsewhere(clients, locks)

    def space_of(name: str, counters: Counters) -> HttpSpace:
        return HttpSpace(name, counters, elsewhere.up if name == DEFAULT_SPACE else None)

    process = GatewayProcess(settings, SERVICE, space_of, clients)
    posting = Posting(clients, settings.max_body, settings.max_memory)
    receiving = Receiving(clients, locks, elsewhere)
    streaming = Streaming(clients)
    door = HttpDoor(HttpRequests(clients, posting, receiving, streaming), settings.max_connections, process.refusals)
    loop = asyncio.get_running_loop()
    live = LiveHttpGateway(settings.name, clients, streaming, process.refusals, process.followers, loop)
    async with process.running(
        door,
        settings.listeners,
        lambda: metrics.families(door, process.bridge, process.counters),
        lambda: len(door.connections),
        live.publisher,
    ) as health:

        async def take(changed: HttpGatewaySettings) -> None:
            clients.allowed_origins = changed.allowed_origins
            await door.have(changed.listeners)

        stop.on_settings(take)
        await stop.wait()
        await hand_on(door, health, settings.leave_within, stop.hurry)
