"""The process: settings, connections to the store, the router and the configuration service."""

from __future__ import annotations

import asyncio
import gc

from enmasse.control import ControlConnection, ControlError, ControlLink, keep_connected, keep_connected_to
from enmasse.http import health
from enmasse.identity.processes.credentials import AnyCredential, own
from enmasse.logs import log
from enmasse.process import runner, settings
from enmasse.process.places import SILENCE
from enmasse.stores import StoreError, StoreSettings, make_store
from services.subserv.control import ADDRESS, MAX_LINKS, SubscriptionControl
from services.subserv.service import SubscriptionService

CONTAINER = "subscription-service"
"""Container-id by which the router knows where the links to `$mqtt/sessions` and `$subctrl` go."""
AGAIN = 0.25
"""Seconds until these are attached again: the router may not have the addresses yet."""


LOAD_AGAIN = 1.0
"""Seconds until a store that could not be read is read again."""


class SubservSettings(settings.RoutedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The service's settings (docs/contracts.md, "A service as a process")."""

    store: StoreSettings


class Routed:
    """The connection to the router: `$mqtt/sessions`, `$mqtt/control` and `$subctrl`."""

    def __init__(self, service: SubscriptionService) -> None:
        self.serving = False
        """`$mqtt/control` is attached."""
        self._service = service
        self._control = SubscriptionControl(service)

    def prepare(self, connection: ControlConnection) -> None:
        """Let the service take the links of gateways and clients from the start."""
        connection.on_attach = self._attached

    def _attached(self, link: ControlLink) -> None:
        if link.remote_target == ADDRESS or link.remote_source == ADDRESS:
            self._control.attached(link)
        else:
            self._service.gateways.attached(link)

    async def session(self, connection: ControlConnection) -> None:
        """Serve over a connection to the router; run by keep_connected."""
        self._service.gateways.reachable()
        returning = runner.spawn(self._service.returning.run(connection), "messages that return to their queues")
        try:
            while True:
                ended = asyncio.Event()
                try:
                    await self._control.attach(connection, ended.set)
                    self.serving = True
                    await ended.wait()
                except ControlError as error:
                    log.get().debug("subserv.router.attach-failed", reason=str(error))
                self.serving = False
                await asyncio.sleep(AGAIN)
        finally:
            returning.cancel()
            self.serving = False
            self._service.gateways.unreachable()


async def serve(config: SubservSettings, stop: asyncio.Event) -> None:
    """Run the service until `stop` is set. Raises process.Fatal if a port cannot be had."""
    gc.set_threshold(50_000, 20, 100)  # a collection looks at every session: rarely, because nothing here is circular
    credential = own(config)
    store = make_store(config.store)
    service = SubscriptionService(store, credential)
    routed = Routed(service)
    state = health.Health(config.health, service.metrics, counts=service.counts, metrics_secret=config.metrics_secret)
    state.check = lambda: service.healthy(routed.serving)
    await state.start()
    store.start()
    work = runner.spawn(_run(service, routed, config, credential), "subscription service")
    try:
        await stop.wait()
    finally:
        work.cancel()
        await asyncio.wait([work])
        service.close()
        await store.close()
        await state.close()


async def _run(
    service: SubscriptionService, routed: Routed, config: SubservSettings, credential: AnyCredential | None
) -> None:
    while not service.loaded:
        await service.store.ready()
        try:
            await service.load()
        except Exception as error:
            if not isinstance(error, StoreError):
                log.get().error("subserv.store.refused", exc_info=error)
            service.unreadable = str(error)
            await asyncio.sleep(LOAD_AGAIN)
    configserv = settings.host_port(config.configserv)
    await asyncio.gather(
        service.run(),
        keep_connected(*configserv, service.follow, container=config.name, credential=credential),
        keep_connected_to(
            config.routers,
            routed.session,
            container=CONTAINER,
            prepare=routed.prepare,
            credential=credential,
            idle=SILENCE,
            max_links=4096 + 2 * MAX_LINKS,
        ),
    )
