"""The process: listeners open, both halves joined, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from enmasse.aio.live_follower import LiveLink
from enmasse.bridge.gateway_ports import ListenerError
from enmasse.bridge.gateway_settings import logins_of, tls_of
from enmasse.http.health import Health
from enmasse.identity.processes.credentials import own
from enmasse.identity.refused import Refusals
from enmasse.process import runner
from enmasse.process.settings import host_port
from enmasse.tracing import setup as tracing
from services.mqtt_gateway import metrics
from services.mqtt_gateway.amqp.backend import AmqpBackend
from services.mqtt_gateway.gateway import Gateway
from services.mqtt_gateway.interfaces import Backend
from services.mqtt_gateway.live_rows import LiveGateway
from services.mqtt_gateway.network.amqp_relay import AmqpRelay
from services.mqtt_gateway.network.listeners import ListenerSettings
from services.mqtt_gateway.settings import MqttGatewaySettings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from enmasse.tracing.spans import Tracing


async def serve(settings: MqttGatewaySettings, stop: runner.Stop) -> None:
    """Run a gateway. Raises process.Fatal."""
    credential = own(settings)
    refusals = Refusals(time.monotonic)
    followers: set[LiveLink] = set()
    traces = tracing.start(settings, "mqtt-gateway", "deliver", "send")
    routers = settings.routers
    backend = AmqpBackend(
        settings.name,
        routers,
        host_port(settings.configserv),
        credential,
        authserv=None if settings.authserv is None else host_port(settings.authserv),
        authserv_tls=tls_of(settings, credential, "mqtt_gateway"),
        logins=logins_of(settings, credential, "mqtt_gateway"),
        drops_unauthorized=settings.unauthorized_publish == "drop",
        refusals=refusals,
        followers=followers,
        traces=traces,
    )
    backend.start()
    relay = AmqpRelay(routers, settings.name, credential)
    await run(settings, backend, stop, refusals, followers, traces, relay)


async def run(
    settings: MqttGatewaySettings,
    backend: Backend,
    stop: runner.Stop,
    refusals: Refusals | None = None,
    followers: set[LiveLink] | None = None,
    traces: Tracing | None = None,
    relay: AmqpRelay | None = None,
) -> None:
    """Run until `stop` is set. The ports are open from the beginning; clients are refused, and try again, until the
    backend is ready. Raises process.Fatal for a port that cannot be opened."""
    gateway = Gateway(settings.limits, backend, settings.allowed_origins, refusals, relay)
    stop.patience = settings.leave_within

    def families() -> Iterator[Metric]:
        yield from metrics.families(gateway.server_state, 0 if relay is None else relay.clients)
        yield from backend.families()
        if traces is not None:
            yield from traces.families()

    def counts() -> dict[str, int]:
        relayed = {"AMQP clients": relay.clients} if relay is not None and relay.clients else {}
        return {"clients": len(gateway.server_state.clients), **relayed}

    health = Health(
        settings.health,
        families,
        metrics_secret=settings.metrics_secret,
        check=backend.state,
        endpoints=lambda: gateway.listeners.ports.endpoints,
        counts=counts,
    )
    await health.start()
    live = LiveGateway(
        settings.name,
        gateway.server_state,
        set() if followers is None else followers,
        asyncio.get_running_loop(),
        backend.uses,
    )
    live.publisher.start()
    try:
        await gateway.listen(settings.listeners)
    except ListenerError as error:
        raise runner.Fatal("service.port.not-available", f"mqtt_gateway {settings.name}: {error}") from None
    # What is here stays: let the collector look at what comes after it only, and rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    reporting = runner.spawn(gateway.report(_group(settings.listeners)), "reports of counters")

    async def take(changed: MqttGatewaySettings) -> None:
        await gateway.take(changed.limits, changed.listeners, changed.allowed_origins)

    stop.on_settings(take)
    await stop.wait()
    if settings.leave_within and not stop.hurry.is_set():
        health.check = lambda: (False, gateway.leaving)
        await gateway.leave(settings.leave_within, stop.hurry)
    reporting.cancel()
    health.check = None
    health.set(False, "stopping")
    await gateway.close()
    await backend.close()
    if traces is not None:
        await traces.close()
    await health.close()


def _group(listeners: Sequence[ListenerSettings]) -> str:
    """Return the address space that all of the ports are of; empty: they are of several, or of all."""
    spaces = {each.space for each in listeners}
    return (spaces.pop() or "") if len(spaces) == 1 else ""
