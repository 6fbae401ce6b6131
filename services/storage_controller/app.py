"""Starts the controller: with files on one machine, or in a Kubernetes cluster after it has become the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from enmasse.control import keep_connected
from enmasse.http import health
from enmasse.identity.processes.credentials import AnyCredential, own
from enmasse.process import runner, settings
from services.storage_controller.controller import ControllerSettings, StorageController
from services.storage_controller.drivers import KubernetesDriver, KubernetesSettings, LocalDriver

COMPONENT = "storage-controller"


async def serve(config: ControllerSettings, stop: asyncio.Event) -> None:
    """Run the service until `stop` is set. Raises process.Fatal if it cannot begin."""
    if isinstance(config.driver, KubernetesSettings):
        await _in_cluster(config, config.driver, stop)
        return
    credential = own(config)
    state = health.Health(config.health, metrics_secret=config.metrics_secret)
    controller = StorageController(config.name, LocalDriver(config.driver), credential, config.metrics_addresses)
    await controller.start()
    await state.start()
    await _serve(config, controller, state, stop, credential)
    await state.close()


async def _serve(
    config: ControllerSettings,
    controller: StorageController,
    state: health.Health,
    stop: asyncio.Event,
    credential: AnyCredential | None,
) -> None:
    """Act and report, as the only replica or the one that leads."""
    controller.configuration.start_reporting()
    state.metrics = controller.metrics
    state.check = controller.healthy
    host, port = settings.host_port(config.configserv)
    tasks = [
        runner.spawn(
            keep_connected(host, port, controller.configuration.session, container=config.name, credential=credential),
            "configserv",
        ),
        runner.spawn(controller.run(), "fleet"),
    ]
    try:
        await stop.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await controller.close()


async def _in_cluster(config: ControllerSettings, place: KubernetesSettings, stop: asyncio.Event) -> None:
    """Run the controller while this replica holds the lease: only the leader manages brokers and reports."""
    from enmasse.kubernetes.member import admitted

    credential = own(config)
    state = health.Health(config.health, metrics_secret=config.metrics_secret)
    await state.start()
    try:
        member = await admitted(place.namespace, place.release, COMPONENT, config.name, state, stop)
        if member is None:
            return
        driver = KubernetesDriver(place, member.api, member.events)
        state.set(False, "reads what there is")
        if await _until(driver.start(), stop):
            controller = StorageController(config.name, driver, credential, config.metrics_addresses)
            await controller.start()
            await _serve(config, controller, state, stop, credential)
        driver.close()
        await member.close()
    finally:
        await state.close()


async def _until(work: Coroutine[None, None, None], stop: asyncio.Event) -> bool:
    """Return True if the work finished before `stop` was set; otherwise it is cancelled."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    return tasks[0] in done
