"""Sessions as gateways see them: take-over, epochs, packet ids, expiry, gateways that vanish."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.subserv.harness import Gateway, RequestError, World, world


@asyncio_test
async def test_sessions(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        one, two = await w.gateway("gw-0"), await w.gateway("gw-1")
        await _taken_over(w, one, two)
        await _taken_over_from_a_silent_one(one, two)
        await _handed_over(one, two)
        await _packet_ids(w, one)
        await _clean(w, one)
        await _expires(w, one)
        await _gateway_vanishes(w, one)


async def _taken_over(w: World, one: Gateway, two: Gateway) -> None:
    first = await one.open("t", will=True)
    await one.subscribe("t", "news/t")
    second = await two.open("t")
    assert second["present"] and second["epoch"] > first["epoch"]
    assert second["previous_will"] == "pending"
    assert ("takeover", {"client": "t", "epoch": first["epoch"]}) in one.commands
    with pytest.raises(RequestError, match="stale-epoch"):
        await one.ask("unsubscribe", {"client": "t", "epoch": first["epoch"], "filters": ["news/t"]})
    assert await one.packets(["t", first["epoch"], "in", 1, "x"]) == ["t"]
    assert [each["filter"] for each in second["subscriptions"]] == ["news/t"]
    await two.close("t", expiry=0)


async def _taken_over_from_a_silent_one(one: Gateway, two: Gateway) -> None:
    one.obeys = False
    first = await one.open("s")
    await one.packets(["s", first["epoch"], "in", 3, "dup"])
    second = await two.open("s")
    assert second["present"] and second["received"] == [[3, "dup"]]
    one.obeys = True
    await two.close("s", expiry=0)


async def _handed_over(one: Gateway, two: Gateway) -> None:
    """Before it is opened, by a gateway that has no room for it until then."""

    async def handed_over(client: str) -> int:
        found = await two.ask("handover", {"client": client, "gateway": two.name})
        return int(found["epoch"])

    first = await one.open("h", will=True)
    await one.subscribe("h", "news/h")
    assert await handed_over("unknown") == 0
    assert await handed_over("h") == first["epoch"]
    assert ("takeover", {"client": "h", "epoch": first["epoch"]}) in one.commands
    assert await one.packets(["h", first["epoch"], "in", 1, "x"]) == ["h"]
    assert await handed_over("h") == 0, "it is connected nowhere"
    second = await two.open("h")
    assert second["present"] and second["previous_will"] == "pending"
    assert [each["filter"] for each in second["subscriptions"]] == ["news/h"]
    assert await handed_over("h") == 0, "it is at this gateway"
    await two.close("h", expiry=0)


async def _packet_ids(w: World, one: Gateway) -> None:
    epoch = (await one.open("p"))["epoch"]
    source = "$sub/b1/mqtt.p"
    await one.packets(
        ["p", epoch, "in", 1, "d1"],
        ["p", epoch, "in", 2, "d2"],
        ["p", epoch, "out", 1, "00", source],
        ["p", epoch, "out", 2, "01", source],
        ["p", epoch, "out", 3, "02", source],
    )
    await one.packets(["p", epoch, "in-", 1], ["p", epoch, "rel", 2], ["p", epoch, "out-", 3])
    await w.restart()
    await until(lambda: one.connection.is_open)
    await _again(one, "s")  # which it has not closed
    await one.close("p", sent=[[9, 1, "09", source]])
    opened = await one.open("p")
    assert opened["received"] == [[2, "d2"]]
    assert opened["sent"] == [
        [1, 2, "00", source, "published", ""],
        [2, 2, "01", source, "released", ""],
        [9, 1, "09", source, "published", ""],
    ]
    await one.close("p", expiry=0)
    opened = await one.open("p")
    assert not opened["present"] and not opened["received"] and not opened["sent"]
    await one.close("p", expiry=0)


async def _again(gateway: Gateway, *stale: str) -> None:
    """The links went with subserv: attaches again, and tells what it holds."""
    assert await gateway.come_again() == list(stale)
    for client in stale:
        del gateway.epochs[client]


async def _clean(w: World, one: Gateway) -> None:
    await one.open("k")
    await one.subscribe("k", "news/k")
    await w.publish_to("news/k", b"old")
    assert await w.depth("$sub/b1/mqtt.k") == 1
    await one.close("k")
    opened = await one.open("k", clean=True, expiry=0)
    assert not opened["present"] and opened["sources"] == []
    await one.subscribe("k", "news/k")
    assert await w.depth("$sub/b1/mqtt.k") == 0
    await one.close("k")
    await until(w.nothing)


async def _expires(w: World, one: Gateway) -> None:
    await one.open("e", expiry=1)
    await one.subscribe("e", "news/e", "$share/g/news/e")
    assert len(await w.queues()) == 2
    await one.close("e")
    await until(w.nothing)
    assert not (await one.open("e"))["present"]
    await one.close("e", expiry=0)


async def _gateway_vanishes(w: World, one: Gateway) -> None:
    three = await w.gateway("gw-3")
    await three.open("v", clean=True, expiry=0)
    await three.subscribe("v", "news/v")
    await three.open("stays")
    three.kill()
    await until(w.nothing)
    assert (await one.open("stays"))["present"]
    await one.close("stays", expiry=0)


@asyncio_test
async def test_a_gateway_that_comes_again_keeps_its_clients(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        one = await w.gateway()
        await one.open("c", clean=True, expiry=0)
        await one.subscribe("c", "news/#")
        await one.open("forgotten")
        del one.epochs["forgotten"]
        await w.restart()
        one.kill()
        await one.attach()
        one.epochs["unknown"] = 5
        assert await one.hello() == ["unknown"]
        await w.publish_to("news/x", b"kept")
        assert [m.body for m in await w.take("$sub/b1/mqtt.c", 1)] == [b"kept"]
        assert (await one.open("forgotten"))["present"]
