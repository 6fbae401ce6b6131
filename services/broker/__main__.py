"""`python -m services.broker --config FILE.json`: see README.md."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import msgspec

from enmasse import process, settings
from enmasse.health import Health
from services.broker.core.broker import Broker
from services.broker.core.settings import check
from services.broker.metrics import metrics
from services.broker.server import Server, clock
from services.broker.storage.paging import Pager
from services.broker.storage.store import Store, StoreError


class BrokerSettings(settings.Settings, frozen=True, kw_only=True):
    """`data_dir` null: nothing survives the process. `global_max_size` in bytes, -1 = no limit. `page_dir`: where
    payloads go that need not survive but do not fit in memory. `settings`: address settings for `#`."""

    listen: settings.HostPort
    data_dir: str | None = None
    global_max_size: int = 256 << 20
    page_dir: str | None = None
    settings: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self.settings)


async def run(config: BrokerSettings, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    health = Health(config.health)
    await health.start()
    health.set(False, "recovering")
    try:
        store = Store.open(Path(config.data_dir), loop=loop) if config.data_dir is not None else None
        pager = Pager(Path(config.page_dir)) if config.page_dir is not None else None
        broker = Broker(
            config.name,
            clock=clock,
            store=store,
            pager=pager,
            global_max_size=config.global_max_size,
            memory_limit=memory_limit(config.global_max_size),
            defaults=config.settings,
        )
    except (StoreError, OSError) as error:
        raise process.Fatal(f"broker {config.name}: {error}") from None
    server = Server(broker, loop)
    health.metrics = lambda: metrics(broker, server.clients)
    host, port = settings.host_port(config.listen)
    try:
        port = await server.listen(host, port)
    except OSError as error:
        raise process.cannot_listen(config.listen, error, "listen") from None
    # Queues hold many long-lived objects: the collector need not walk through them again and again.
    gc.freeze()
    gc.set_threshold(25_000, 20, 50)
    health.endpoints = {"amqp": f"{host}:{port}"}
    health.set(True)
    try:
        await stop.wait()
    finally:
        health.set(False, "stopping")
        await server.close()
        await health.close()


def memory_limit(global_max_size: int) -> int:
    """Bytes of payloads kept in memory although they could be read from disk."""
    return 64 << 20 if global_max_size < 0 else max(1 << 20, min(64 << 20, global_max_size // 2))


if __name__ == "__main__":
    process.start(BrokerSettings, run, use_uvloop=True)
