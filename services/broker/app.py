"""The process: recovers, listens, serves until it is asked to stop."""

from __future__ import annotations

import asyncio
import gc
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from enmasse.engines import EMBEDDED, mark
from enmasse.http.health import Health
from enmasse.identity.processes.credentials import Peers, peers_at
from enmasse.logs import log
from enmasse.process import runner, settings
from enmasse.tracing import setup as tracing
from services.broker.core.broker import Broker
from services.broker.core.limits.broker_limits import BrokerLimits, CapacityPolicy
from services.broker.core.limits.settings import check
from services.broker.kept_shares import KeptShares
from services.broker.metrics import families
from services.broker.server import BrokerServer, steady_clock, wall
from services.broker.storage.paging import Pager
from services.broker.storage.recovered_content import Progress
from services.broker.storage.store import Store, StoreError

_log = log.get()


class BrokerSettings(settings.ServiceSettings, frozen=True, kw_only=True):
    """`data_dir` null: nothing survives the process. `page_dir`: where payloads go that need not survive but do not fit
    in memory. `settings`: address settings for `#`. `peers`: file of the processes that may connect; None: every client
    may do everything. The others are BrokerLimits."""

    listen: settings.HostPort
    data_dir: str | None = None
    page_dir: str | None = None
    global_max_size: int = 256 << 20
    capacity: int = -1
    capacity_policy: CapacityPolicy = "FAIL"
    max_subscriptions: int = -1
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    peers: str | None = None

    def __post_init__(self) -> None:
        check(self.settings)


class _Stopped(Exception):
    """Asked to stop before everything was there."""


async def run(config: BrokerSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises StoreError if the data directory cannot be used, OSError if a port cannot."""
    loop = asyncio.get_running_loop()
    traces = tracing.start(config, "broker", "store", "deliver")
    health = Health(config.health, metrics_secret=config.metrics_secret)
    await health.start()
    health.set(False, "recovering")

    def progress(done: float) -> None:
        health.detail = f"recovering: {100 * done:.0f} %"
        if stop.is_set():
            raise _Stopped

    try:
        # In a thread: a million messages take seconds, in which others want to know how far it is.
        broker, store = await asyncio.to_thread(recover, config, loop, progress)
    except _Stopped:
        await health.close()
        return
    except mark.OtherEngine as error:
        raise runner.Fatal("broker.data.other-engine", f"broker {config.name}: {config.data_dir} {error}") from None
    except (StoreError, OSError) as error:
        raise runner.Fatal("broker.data.not-usable", f"broker {config.name}: {error}") from None
    if store is not None:
        store.start_housekeeping()
    if config.peers is None:
        _log.info("broker.peers.absent")
    peers = peers_at(config.peers)
    following = runner.spawn(peers.follow(), "file of peers") if isinstance(peers, Peers) else None
    server = BrokerServer(broker, loop, peers, traces)
    health.metrics = lambda: chain(
        families(broker, server.clients, server.live.oldest, config.metrics_addresses),
        () if traces is None else traces.families(),
    )
    host, port = settings.host_port(config.listen)
    try:
        port = await server.listen(host, port)
    except OSError as error:
        raise runner.cannot_listen(config.listen, error, "listen") from None
    health.endpoints = lambda: {"amqp": f"{host}:{port}"}
    health.set(True)
    health.check = lambda: health_of(broker, server.hub.trouble)
    try:
        await stop.wait()
    finally:
        health.check = None
        health.set(False, "stopping")
        if following is not None:
            following.cancel()
        await server.close()
        if traces is not None:
            await traces.close()
        await health.close()


def recover(config: BrokerSettings, loop: asyncio.AbstractEventLoop, progress: Progress) -> tuple[Broker, Store | None]:
    """The broker with everything that is on its disk, and the store, if it has one.
    Raises StoreError, OtherEngine, OSError and what `progress` raises."""
    # No object made here is garbage: the collector need not walk through them, neither now nor later.
    gc.disable()
    try:
        store = None
        if config.data_dir is not None:
            mark.claim(Path(config.data_dir), EMBEDDED)
            store = Store.open(Path(config.data_dir), loop=loop, progress=lambda done: progress(done / 2))
        broker = Broker(
            config.name,
            clock=steady_clock(),
            wall=wall,
            store=store,
            pager=Pager(Path(config.page_dir)) if config.page_dir is not None else None,
            limits=msgspec.convert(config, BrokerLimits, from_attributes=True),
            memory_limit=memory_limit(config.global_max_size),
            defaults=config.settings,
            progress=lambda done: progress((1 + done) / 2),
        )
        if config.data_dir is not None:
            keep_shares(broker, Path(config.data_dir))
        return broker, store
    finally:
        gc.freeze()
        gc.set_threshold(25_000, 20, 50)
        gc.enable()


def keep_shares(broker: Broker, directory: Path) -> None:
    """Put the shares of the run before in the storage of address spaces in force, and store those that come."""
    shares = KeptShares(directory)
    broker.catalogue.share_storage(shares.read())
    broker.ledger.spaces.keep = shares.write


def health_of(broker: Broker, note: str = "") -> tuple[bool, str]:
    """Return whether all is well, and what a person should know, with a `note` on connections."""
    store = broker.store
    troubles = [store.trouble] if store is not None and store.trouble else []
    stalled = [f"queue {name}: {reason}" for name, reason in broker.stalls.reasons().items()]
    troubles += stalled[:3] + ([f"{len(stalled) - 3} more queues stand still"] if len(stalled) > 3 else [])
    notes = [note, store.losses.report() if store is not None else ""]
    unknown = [
        f"{queue.count} in {name}" for name, queue in broker.catalogue.queues.items() if queue.id in broker.unknown
    ]
    if unknown:
        notes.append(
            f"the definitions of {len(unknown)} queues are damaged; their messages are kept: {', '.join(unknown[:3])};"
            " move them (moveMessages), or put CATALOGUE back from a backup and restart the broker"
        )
    return not troubles, "; ".join(filter(None, troubles + notes))


def memory_limit(global_max_size: int) -> int:
    """Bytes of payloads kept in memory although they could be read from disk."""
    return 64 << 20 if global_max_size < 0 else max(1 << 20, min(64 << 20, global_max_size // 2))
