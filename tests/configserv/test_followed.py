"""Processes of the data plane follow the feeds of a real configuration service (enmasse/aio/feeds.py)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.feeds import FeedsClient
from enmasse.model.feeds import AddressChanges, FollowedFeed, PlacementChanges
from enmasse.model.names import AddressName
from tests.configserv.running import FLAVORS, Configserv
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


@asynccontextmanager
async def following(service: Configserv, *feeds: FollowedFeed[Any]) -> AsyncIterator[FeedsClient]:
    host, port = str(service.settings["listen"]).split(":")
    client = FeedsClient(host, int(port), "gateway", feeds)
    task = asyncio.ensure_future(client.run())
    try:
        yield client
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def service(tmp_path: Path) -> Any:
    service = Configserv(tmp_path)
    service.write("flavors.json", FLAVORS)
    service.write("addresses.json", {"a": {"type": "anycast"}})
    yield service.start()
    service.stop()


def test_snapshots_come_typed_and_again_after_the_service_was_killed(service: Configserv) -> None:
    @asyncio_test
    async def run() -> None:
        got: list[AddressChanges] = []
        feed = FollowedFeed("addresses/changes", AddressChanges, got.append)
        placements = FollowedFeed("placements/changes", PlacementChanges, lambda _: None)
        async with following(service, feed, placements) as client:
            await until(lambda: got)
            assert got[0].addresses[AddressName("a")].type == "anycast"
            assert client.connected
            assert not client.complete, "nobody has reported placements"
            service.write("addresses.json", {"t": {"type": "topic", "flavor": "t", "mqttDefault": True}})
            await until(lambda: got[-1].addresses.keys() == {"t"})
            assert got[-1].addresses[AddressName("t")].mqtt_default
            assert got[-1].revision > got[0].revision
            service.write("addresses.json", {"t": {"type": "topic", "flavor": "t"}})
            await until(lambda: got[-1].remarked == ["t"])
            await asyncio.to_thread(service.kill)
            await until(lambda: not client.connected)
            service.write("addresses.json", {"b": {"type": "multicast"}})
            await asyncio.to_thread(service.start)
            await until(lambda: got[-1].addresses.keys() == {"b"})
            assert client.connected
            assert got[-1].remarked == ["t"]

    run()


def test_a_snapshot_that_is_refused_changes_nothing_and_the_next_one_comes(service: Configserv) -> None:
    @asyncio_test
    async def run() -> None:
        got: list[AddressChanges] = []

        def received(body: AddressChanges) -> None:
            if "bad" in body.addresses:
                refused.set()
                raise ValueError("not this one")
            got.append(body)

        refused = threading.Event()
        async with following(service, FollowedFeed("addresses/changes", AddressChanges, received)) as client:
            await until(lambda: got)
            assert client.complete
            service.write("addresses.json", {"bad": {"type": "anycast"}})
            await until(refused.is_set)
            service.write("addresses.json", {"good": {"type": "anycast"}})
            await until(lambda: got[-1].addresses.keys() == {"good"})
            assert all("bad" not in body.addresses for body in got)
            assert client.connected

    run()
