"""The store goes away: nothing is accepted that could be lost, it is said why, and everything goes on afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.subserv.request_bodies import STORE_AWAY
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.redis_server import RedisServer
from tests.subserv.harness import RequestError, world


@asyncio_test
async def test_redis_is_away(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis")
    try:
        async with world(tmp_path, store={"kind": "redis", "url": server.url}) as w:
            gateway = await w.gateway()
            await gateway.open("c")
            await gateway.subscribe("c", "news/a")
            epoch = gateway.epochs["c"]
            await gateway.packets(["c", epoch, "in", 1, "d1"])
            server.kill()
            await until(lambda: not w.health()["ready"])
            assert "redis" in w.health()["detail"]
            asked = (
                gateway.open("other"),
                gateway.subscribe("c", "news/b"),
                gateway.packets(["c", epoch, "in", 2, "d2"], ["c", epoch, "in-", 1]),
            )
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(answer, RequestError) and answer.failure["reason"] == 0x88, answer
                assert answer.failure["description"] == STORE_AWAY  # and not where the store is
            await w.publish_to("news/kept", b"kept", retain=True)  # the broker has it
            server.start()
            await until(lambda: w.health()["ready"])
            await until(lambda: w.health()["counts"]["retained"] == 1)
            assert await w.diverts() == ["mqtt.c|news/a"]
            assert not (await gateway.open("other"))["present"]
            await gateway.close("c")
            opened = await gateway.open("c")
            assert opened["received"] == [[1, "d1"]]
            assert [each["filter"] for each in opened["subscriptions"]] == ["news/a"]
    finally:
        server.kill()
