"""Wildcard filters of a user are bounded over all its clients, MQTT and `$subctrl` together."""

from __future__ import annotations

from pathlib import Path

from enmasse.identity.filter_limits import MOST
from services.subserv.sessions.clients import QUOTA
from tests.kit.running import asyncio_test
from tests.subserv.harness import world
from tests.subserv.test_subctrl import Client, until_known

LEVELS = 128


def filter_of(number: int) -> str:
    return "/".join(["news", *("a" * number), "+", *("a" * (LEVELS - number - 2))])


@asyncio_test
async def test_filters_of_a_user_are_bounded(tmp_path: Path) -> None:
    most = MOST // LEVELS
    mine, more = [filter_of(number) for number in range(most)], filter_of(most)
    async with world(tmp_path) as w:
        w.configserv.publish("permissions", {"anonymous": True, "users": {}})
        gateway = await w.gateway()
        client = await Client().start(w)
        await until_known(client)
        for each in ("~eve/one", "~eve/two", "~bob/one", "same"):
            await gateway.open(each)
        assert (await gateway.subscribe("~eve/one", *mine[: most // 2]))["codes"] == [1] * (most // 2)
        assert (await gateway.subscribe("~eve/two", *mine[1:], more))["codes"] == [1] * (most - 1) + [QUOTA]
        reply = await gateway.subscribe("~eve/one", more, f"$share/g/{more}", "news/+", mine[-1], "news/a/b/#")
        assert reply["codes"] == [QUOTA, QUOTA, 1, 1, 1] and f"the most are {MOST}" in reply["reasons"][0]
        assert (await gateway.subscribe("~bob/one", more))["codes"] == [1]

        # a client without a user counts by itself, whatever it speaks
        assert (await gateway.subscribe("same", *mine[1:]))["codes"] == [1] * (most - 1)
        assert (await client.ask("subscribe", "same", mine[0])).accepted
        refused = await client.ask("subscribe", "same", more)
        assert refused.condition == "amqp:precondition-failed" and f"most are {MOST}" in refused.description
        assert (await gateway.subscribe("same", more))["codes"] == [QUOTA]
        assert (await client.ask("subscribe", "other", more)).accepted

        before = await w.diverts()
        await w.restart()
        await gateway.come_again()
        assert await w.diverts() == before
        client = await Client().start(w)
        assert (await gateway.subscribe("~eve/two", more))["codes"] == [QUOTA]
        assert (await gateway.subscribe("same", more))["codes"] == [QUOTA]

        await gateway.close("~eve/one", expiry=0)  # its first filter was its own, the others are of two
        assert (await gateway.subscribe("~eve/two", more))["codes"] == [1]
        assert (await gateway.unsubscribe("~eve/two", more))["codes"] == [0]
        assert (await gateway.subscribe("~eve/two", mine[0]))["codes"] == [1]
        assert (await client.ask("close", "same")).accepted
        assert (await gateway.subscribe("same", more))["codes"] == [1]
