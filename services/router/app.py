"""The process of the router: reads the settings, opens the sockets, and runs until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from enmasse.aio.feeds import FeedsClient
from enmasse.aio.transport import Hub
from enmasse.amqp.codec.errors import CONNECTION_FORCED, AmqpError
from enmasse.http.health import Health
from enmasse.identity.processes import credentials
from enmasse.identity.processes.credentials import Peers
from enmasse.logs import log
from enmasse.model import feeds
from enmasse.network import trickle
from enmasse.process import runner
from enmasse.process.settings import host_port
from enmasse.text import endpoint
from enmasse.tracing import setup as tracing
from services.router import config, metrics
from services.router.client_share import ClientShare
from services.router.config import RouterSettings
from services.router.handing_on import MovingConnections, is_moved
from services.router.live_rows import LiveRouter
from services.router.management.assembly import all_tables
from services.router.management.node import ManagementAgent
from services.router.mesh_log import log_notice
from services.router.network.maker import ConnectionMaker
from services.router.network.sockets import Sockets
from services.router.routing.users import Users


class LoopClock:
    """Time and timers of the running event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.time = loop.time
        self._loop = loop

    def call_soon(self, what: Callable[[], None]) -> Any:
        """Call `what` in the next turn of the loop."""
        return self._loop.call_soon(what)

    def call_later(self, delay: float, what: Callable[[], None]) -> Any:
        """Call `what` after `delay` seconds."""
        return self._loop.call_later(delay, what)


def open_listeners(sockets: Sockets) -> dict[str, str]:
    """Return name → host:port of the listeners that are open now; the agent creates and deletes them."""
    return {
        listener.config.name: endpoint(listener.config.host or "0.0.0.0", listener.port or 0)  # noqa: S104 - shown, not bound
        for listener in sockets.listeners
    }


def readiness(
    sockets: Sockets, client_ports: Sequence[int], trouble: str, users: Users | None = None
) -> tuple[bool, str]:
    """Return whether clients can connect, and why not, or else what `trouble` there has been."""
    if users is not None and not users.directory.known:
        return False, "waits for the users of the configuration service"
    missing = set(client_ports) - {listener.port for listener in sockets.listeners}
    ports = ", ".join(map(str, sorted(missing)))
    return not missing, f"waits for its agent to open {ports}" if missing else trouble


async def leave(sockets: Sockets, moving: MovingConnections, within: float, hurry: asyncio.Event) -> None:
    """Accept no further clients, and close those that are connected, a few at a time. Returns after `within` seconds at
    the latest, and once `hurry` is set."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for listener in [each for each in sockets.listeners if each.is_for_client_programs]:
        await sockets.close(listener)
    log.get().info("router.leave.began", connections=moving.number)
    left = await trickle.empty(moving, within, hurry, loop.time)
    seconds = round(loop.time() - began, 1)
    log.get().info("router.leave.ended", moved=moving.moved, left=left, seconds=seconds)


async def serve(settings: RouterSettings, stop: runner.Stop) -> None:
    """Run the router until `stop` is set. Raises process.Fatal for an invalid configuration."""
    loop = asyncio.get_running_loop()
    attributes = config.router_attributes(settings)
    router = config.make_router(attributes, LoopClock(loop))
    hub = Hub(loop)
    hub.per_turn = True
    own = credentials.own(settings)  # a bad file ends the process; connectors read it each time
    peers = None if settings.peers is None else Peers(settings.peers)
    users, following = None, []
    if peers is not None:
        following.append(runner.spawn(peers.follow(), "file of peers"))
    if settings.configserv is not None:
        users = Users(router, time.time)
        permissions = feeds.FollowedFeed("permissions/changes", feeds.PermissionChanges, users.take)
        client = FeedsClient(
            *host_port(settings.configserv),
            settings.name,
            [permissions],
            allowances=users.enforcer.allowances,
            credential=own,
        )
        following.append(runner.spawn(client.run(), "feed of permissions"))
        following.append(runner.spawn(users.audit.run(), "audit of logins"))
    traces = tracing.start(settings, "router", "send", "deliver", begins=True)
    sockets = Sockets(
        ConnectionMaker(router, hub, peers, settings.credential, users, credentials.relay_key_of(own), traces)
    )
    health = Health(
        settings.health,
        lambda: chain(
            metrics.families(router, settings.metrics_addresses),
            router.refusals.families(),
            () if traces is None else traces.families(),
        ),
        endpoints=lambda: open_listeners(sockets),
        counts=lambda: {"clients": sum(map(is_moved, router.connections.values()))},
        routes=lambda: router.network.engine.topology.routes(),
        metrics_secret=settings.metrics_secret,
    )
    tables = all_tables(router, sockets, attributes)
    share = ClientShare(router)
    ManagementAgent(router, tables).share_clients = share.take
    router.network.on_notice = log_notice
    live = LiveRouter(router)
    await health.start()
    await config.load(settings, tables)
    router.watch.start()
    live.publisher.start()
    health.check = lambda: readiness(sockets, settings.client_ports, hub.trouble, users)
    # Existing objects live as long as the process: exclude them from collection, and collect others rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    stop.patience = settings.shutdown_delay + settings.leave_within
    await stop.wait()
    if settings.shutdown_delay and not stop.hurry.is_set():
        health.check = lambda: (False, "ends in a moment: connect to another router")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.shutdown_delay):
                await stop.hurry.wait()
    if settings.leave_within and router.network.is_several and share.routers != 1 and not stop.hurry.is_set():
        share.leaving = True
        moving = MovingConnections(router)
        health.check = lambda: (False, moving.progress)
        await leave(sockets, moving, settings.leave_within, stop.hurry)
    health.check = None
    health.set(False, "stopping")
    if users is not None:
        users.audit.write_repeated()
    router.refusals.write_repeated()
    for task in following:
        task.cancel()
    for connector in list(sockets.connectors):
        sockets.disconnect(connector)
    for open_listener in list(sockets.listeners):
        await sockets.close(open_listener)
    for connection in list(router.connections.values()):
        if is_moved(connection):
            connection.amqp.hand_on(AmqpError(CONNECTION_FORCED, "the router ends"), int(loop.time() * 1000))
        else:
            connection.amqp.close()
            connection.amqp.wake()
    deadline = loop.time() + 2.0
    while router.connections and loop.time() < deadline:
        await asyncio.sleep(0.02)
    if traces is not None:
        await traces.close()
    await health.close()
