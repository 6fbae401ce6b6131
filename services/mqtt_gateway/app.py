"""The process: listeners open, both halves joined, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import ssl
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from enmasse.aio.live_follower import LiveLink
from enmasse.http.health import Health
from enmasse.identity.processes.credentials import AnyCredential, own
from enmasse.identity.processes.process_certificates import Certificate
from enmasse.identity.refused import Refusals
from enmasse.model.loopback import is_loopback
from enmasse.process import runner
from enmasse.process.settings import host_port
from enmasse.tracing import setup as tracing
from services.mqtt_gateway import metrics
from services.mqtt_gateway.amqp.backend import AmqpBackend
from services.mqtt_gateway.gateway import Gateway
from services.mqtt_gateway.interfaces import Backend
from services.mqtt_gateway.live_rows import LiveGateway
from services.mqtt_gateway.network.listeners import ListenerError
from services.mqtt_gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from enmasse.tracing.spans import Tracing


async def serve(settings: GatewaySettings, stop: asyncio.Event) -> None:
    """Run a gateway. Raises process.Fatal."""
    credential = own(settings)
    refusals = Refusals(time.monotonic)
    followers: set[LiveLink] = set()
    traces = tracing.start(settings, "mqtt-gateway", "deliver", "send")
    backend = AmqpBackend(
        settings.name,
        host_port(settings.router),
        host_port(settings.configserv),
        credential,
        authserv=None if settings.authserv is None else host_port(settings.authserv),
        authserv_tls=_tls(settings, credential),
        logins=_logins(settings, credential),
        drops_unauthorized=settings.unauthorized_publish == "drop",
        refusals=refusals,
        followers=followers,
        traces=traces,
    )
    backend.start()
    await run(settings, backend, stop, refusals, followers, traces)


def _tls(settings: GatewaySettings, credential: AnyCredential | None) -> Callable[[], ssl.SSLContext | None]:
    """TLS towards the authentication service: by `authserv_ca`, or by the gateway's certificate. Raises process.Fatal
    if passwords would be sent in the clear."""
    if settings.authserv is None:
        return lambda: None
    if settings.authserv_ca is None and isinstance(credential, Certificate):
        return credential.tls
    where = f"mqtt_gateway {settings.name}"
    if settings.authserv_ca is None:
        if not is_loopback(host_port(settings.authserv)[0]):
            reason = "is not on loopback, and passwords are sent to it: give authserv_ca, or a certificate (credential)"
            raise runner.Fatal("service.setting.invalid", f"{where}: authserv: {settings.authserv} {reason}")
        return lambda: None
    try:
        context = ssl.create_default_context(cafile=settings.authserv_ca)
    except (OSError, ssl.SSLError) as error:
        reason = f"{settings.authserv_ca}: {error}; correct the file"
        raise runner.Fatal("service.setting.invalid", f"{where}: authserv_ca: {reason}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return lambda: context


def _logins(settings: GatewaySettings, credential: AnyCredential | None) -> tuple[str, int] | None:
    """Return host and port where passwords are checked. Raises process.Fatal if they would be sent in the clear, or
    without a credential."""
    if settings.logins is None:
        return None
    found = host_port(settings.logins)
    if credential is None or not (isinstance(credential, Certificate) or is_loopback(found[0])):
        reason = "passwords are sent there: give a certificate (credential), or on loopback a secret"
        where = f"mqtt_gateway {settings.name}: logins: {settings.logins}"
        raise runner.Fatal("service.setting.invalid", f"{where}: {reason}")
    return found


async def run(
    settings: GatewaySettings,
    backend: Backend,
    stop: asyncio.Event,
    refusals: Refusals | None = None,
    followers: set[LiveLink] | None = None,
    traces: Tracing | None = None,
) -> None:
    """Run until `stop` is set. The ports are open from the beginning; clients are refused, and try again, until the
    backend is ready. Raises process.Fatal for a port that cannot be opened."""
    gateway = Gateway(settings.limits, backend, settings.allowed_origins, refusals)

    def families() -> Iterator[Metric]:
        yield from metrics.families(gateway.front)
        yield from backend.families()
        if traces is not None:
            yield from traces.families()

    health = Health(
        settings.health,
        families,
        metrics_secret=settings.metrics_secret,
        check=backend.state,
        endpoints=lambda: gateway.listeners.endpoints,
        counts=lambda: {"clients": len(gateway.front.clients)},
    )
    await health.start()
    live = LiveGateway(
        settings.name,
        gateway.front,
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
    reporting = runner.spawn(gateway.report(), "reports of counters")
    await stop.wait()
    reporting.cancel()
    health.check = None
    health.set(False, "stopping")
    await gateway.close()
    await backend.close()
    if traces is not None:
        await traces.close()
    await health.close()
