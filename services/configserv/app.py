"""Composition of the service: with files of this machine, or in a Kubernetes cluster, where one replica leads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence

from enmasse.api.types import Change
from enmasse.control import listen
from enmasse.http.health import Health
from enmasse.identity.processes.credentials import peers_at
from enmasse.identity.processes.roles import Listener
from enmasse.model.configuration import Applied
from enmasse.model.merged import FilePart
from enmasse.model.names import AddressName
from enmasse.process import settings
from services.configserv import editing
from services.configserv.drivers import Driver, FilesDriver, KubernetesDriver, KubernetesSettings
from services.configserv.loading import Loading
from services.configserv.resources.endpoint_exports import EndpointExports
from services.configserv.resources.object_status_writer import StatusWriter
from services.configserv.resources.object_views import CustomResources
from services.configserv.service import ConfigService, ConfigservSettings
from services.configserv.state.state_map import StateMap
from services.configserv.state.store import ConfigStore
from services.configserv.status_maps import StatusMaps
from services.configserv.tenants import space_users

CONTAINER = "configuration-service"
COMPONENT = "configserv"
MAX_CONNECTIONS, MAX_LINKS = 256, 64
MAX_REPORT = 32 * 1024 * 1024
"""Bytes of a report at most; 10,000 addresses take one or two million."""


SWITCH = 0.0005
"""Seconds after which threads give way to each other: a check of many entries in one must not hold up the others."""


async def serve(config: ConfigservSettings, stop: asyncio.Event) -> None:
    """Run the service until `stop` is set. Raises process.Fatal if its port or its data cannot be used."""
    sys.setswitchinterval(SWITCH)
    health = Health(config.health, metrics_secret=config.metrics_secret)
    await health.start()
    try:
        if config.driver is not None:
            await _in_cluster(config, config.driver, health, stop)
        else:
            assert config.config_dir is not None and config.data_dir is not None
            store = ConfigStore(config.data_dir)
            service = ConfigService(
                store, config.reporters, health, config.binders, config.holders, domain=config.domain
            )
            loading = Loading(service.compute, service.save, service.take)
            await _serve(config, service, health, FilesDriver(config.config_dir), loading, stop)
    finally:
        await health.close()


async def _serve(
    config: ConfigservSettings,
    service: ConfigService,
    health: Health,
    driver: Driver,
    loading: Loading,
    stop: asyncio.Event,
) -> None:
    health.metrics = service.metrics
    service.configuring.change = lambda change, space: changed(driver, service, change, space)
    service.on_left = lambda: loading.configure(driver.contents)
    driver.start(loading.configure)
    await loading.settled()  # before any connection is served: the first snapshot is of the present files
    host, port = settings.host_port(config.listen)
    listener = await listen(
        host,
        port,
        service.accepted,
        container=CONTAINER,
        peers=None if (peers := peers_at(config.peers)) is None else (Listener.CONFIGSERV, peers),
        max_connections=MAX_CONNECTIONS,
        max_links=MAX_LINKS,
        max_message_size=MAX_REPORT,
    )
    health.endpoints = lambda: {"amqp": f"{listener.host}:{listener.port}"}
    await stop.wait()
    driver.close()
    service.on_left = lambda: None
    loading.close()
    service.close()
    await listener.close()


async def changed(driver: Driver, service: ConfigService, change: Change, space: str) -> dict[str, str]:
    """Change entries of an address space, or only check that. Return name → etag of those that are set. Raises
    editing.Refused, drivers.NotWritable, OSError."""
    found: dict[str, str] = {}

    def edit(sources: Sequence[FilePart], home: str) -> dict[str, bytes]:
        texts, etags = editing.checked(change, driver.contents, sources, home, service.applied, space, service.left)
        found.update(etags)
        return {} if change.check else texts

    change_file = driver.check if change.check else driver.edit
    await change_file(editing.file_of(change.kind, space, service.applied), edit)
    if change.kind == "spaces" and not change.check:
        for name in change.remove:
            await driver.remove_files(name)
    return found


async def _in_cluster(
    config: ConfigservSettings, place: KubernetesSettings, health: Health, stop: asyncio.Event
) -> None:
    """Run one of several replicas: only the leader listens, reads and writes."""
    from enmasse.kubernetes.member import admitted

    member = await admitted(place.namespace, place.release, COMPONENT, config.name, health, stop)
    if member is None:
        return
    store = StateMap(member.api, f"{member.lease}-state", member.labels, users=place.users is not None)
    await store.open()
    service = ConfigService(
        store, config.reporters, health, config.binders, config.holders, domain=config.domain, in_cluster=True
    )
    resources = None
    if place.custom_resources is not None:
        resources = CustomResources(
            place.custom_resources,
            member.api,
            lambda space, name: space_users.user(service.applied.state, space, name),
            users=place.users is not None,
        )
    driver = KubernetesDriver(place, member.api, resources, had_users=store.has_users)

    def force(name: str, addresses: Iterable[AddressName]) -> None:
        service.force(addresses, None, None, f"configmap/{name}")

    driver.on_orders = lambda orders: store.carry_out(orders, force)

    writer = exports = None
    if resources is not None:
        writer = StatusWriter(resources, service)
        exports = EndpointExports(resources, place.namespace, place.release, writer.changed)
        writer.problems = lambda: exports.problems
        resources.on_spaces = lambda: show()

    def show() -> None:
        maps.changed()
        if writer is not None and exports is not None:
            writer.changed()
            exports.changed()

    def take(applied: Applied) -> None:
        service.take(applied)
        show()

    loading = Loading(service.compute, service.save, take)
    maps = StatusMaps(
        member.api,
        member.labels,
        config_maps=driver.config_maps,
        status=service.status,
        origins=lambda: service.origins,
    )
    service.on_status = show
    await _serve(config, service, health, driver, loading, stop)
    maps.close()
    if writer is not None and exports is not None:
        writer.close()
        exports.close()
    await member.close()
