"""Following the live state of routers, brokers and gateways: only while there is a request, stream or job."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from proton.utils import BlockingConnection, LinkDetached

from enmasse.control import Artemis, ControlConnection, Dispatch, connect
from enmasse.identity.processes.credentials import own
from enmasse.process.settings import host_port
from enmasse.testing import Suite, free_port
from services.console.app import Door
from services.console.following import followers
from services.console.settings import ConsoleSettings
from tests.console.client import Client
from tests.kit.kept import kept
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until

NAME = "second-console"
PREFIX = "org.apache.qpid.dispatch"


class Counting:
    """Counts what a console has open, at the router and at the brokers."""

    def __init__(self, settings: ConsoleSettings, brokers: list[str]) -> None:
        """`brokers`: host:port of each."""
        self._credential = own(settings)
        self._router = settings.routers["router-0"]
        self._brokers = brokers

    async def __call__(self) -> list[int]:
        """Return the links at the router, and the connections at each broker."""
        return [await self._links(), *[await self._at(broker) for broker in self._brokers]]

    async def _links(self) -> int:
        connection = await self._connected(self._router)
        try:
            node = await Dispatch(connection).opened()
            found = await node.query(f"{PREFIX}.connection", ["identity", "container"])
            ids = {row["identity"] for row in found if row["container"] == NAME}
            links = await node.query(f"{PREFIX}.router.link", ["connectionId"])
            return sum(1 for row in links if row["connectionId"] in ids) if ids else 0
        finally:
            connection.close()

    async def _at(self, broker: str) -> int:
        connection = await self._connected(broker)
        try:
            node = await Artemis(connection).opened()
            rows = json.loads(await node.invoke("broker", "listConnectionsAsJSON"))
            return sum(1 for row in rows if row["clientID"] == NAME)
        finally:
            connection.close()

    async def _connected(self, address: str) -> ControlConnection:
        return await connect(*host_port(address), container="counting", credential=self._credential)


def test_it_ends_with_the_last_stream_and_begins_with_the_next_request(
    suite: Suite, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "LINGER", 0.5)
    brokers = [f"{each['host']}:{each['port']}" for each in client.items("brokers")]
    given = json.loads((suite.data / "run" / "console.json").read_text())
    given |= {"name": NAME, "health": f"127.0.0.1:{free_port()}", "listen": f"127.0.0.1:{free_port()}"}
    settings = msgspec.convert(given, ConsoleSettings)
    count = Counting(settings, brokers)
    amqp = BlockingConnection(suite.url, timeout=DEADLINE)
    amqp.create_receiver("orders", credit=7)
    with pytest.raises(LinkDetached):
        amqp.create_sender("nowhere")
    container = amqp.container.container_id

    async def main() -> None:
        door = Door(settings)
        await door.open()
        async with ClientSession(f"http://{settings.listen}/api/v1/") as http:

            async def items(path: str) -> list[dict[str, Any]]:
                answer = await http.get(path)
                assert answer.status == 200, await answer.text()
                found: list[dict[str, Any]] = (await answer.json())["items"]
                return found

            first, second = [await http.get(f"{each}?watch=1") for each in ("addresses", "connections")]
            await until(lambda: _all(count()), "a feed of each process")
            events = await until(lambda: items(f"events?client={container}"), "the refusal")
            first.close()
            (row,) = await items(f"connections?container={container}")  # a request that ends does not end it, either
            assert row["links"] == 1
            assert all(await count())
            second.close()
            await until(lambda: _none(count()), "no feed is left")

            (row,) = await items(f"connections?container={container}")  # the first request after that sees all of it
            (link,) = await items(f"links?connection={row['id']}")
            assert (row["links"], link["address"]) == (1, "orders")
            assert all(each["connected"] for each in await items("brokers"))
            assert await items(f"events?client={container}") == events
            await until(lambda: _none(count()), "no feed is left")
        await door.close()

    try:
        with kept(amqp):
            asyncio_test(main)()
    finally:
        amqp.close()


async def _all(counts: Awaitable[list[int]]) -> bool:
    return all(await counts)


async def _none(counts: Awaitable[list[int]]) -> bool:
    return not any(await counts)
