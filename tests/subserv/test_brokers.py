"""Brokers: two of them, topics that move, restarts, leftovers, what is missing; shared subscriptions; refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from enmasse.control import ControlConnection, listen
from enmasse.testing import free_port
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.subserv.harness import SUITE, Gateway, World, world


async def settled(w: World, expected: dict[str, list[str]]) -> None:
    """Broker → names of the diverts there, in the end."""

    async def there() -> bool:
        return {broker: await w.diverts(broker) for broker in expected} == expected

    await until(there)


def addresses(reply: dict[str, list[dict[str, str]]]) -> list[str]:
    """Without the suite's id."""
    return [SUITE.sub("", source["address"]) for source in reply["sources"]]


@asyncio_test
async def test_two_brokers(tmp_path: Path) -> None:
    async with world(tmp_path, brokers=2) as w:
        w.homes["alarms"] = "b2"
        await w.publish()
        gateway = await w.gateway()
        await _on_both(w, gateway)
        await _moved(w, gateway)
        await _added(w, gateway)
        await _leftovers(w, gateway)
        await _broker_away(w, gateway)


async def _on_both(w: World, gateway: Gateway) -> None:
    await gateway.open("c")

    async def on_both() -> bool:
        return addresses(await gateway.subscribe("c", "#")) == ["$sub/b1/mqtt.c", "$sub/b2/mqtt.c"]

    await until(on_both)  # the placements come by another way than requests
    await w.publish_to("news/1", b"1")
    await w.publish_to("alarms/2", b"2", broker="b2")
    assert (await w.take("$sub/b1/mqtt.c", 1))[0].body == b"1"
    assert (await w.take("$sub/b2/mqtt.c", 1))[0].body == b"2"


async def _moved(w: World, gateway: Gateway) -> None:
    """The old queue is a source until it is empty."""
    await w.publish_to("alarms/2", b"waits", broker="b2")
    w.homes["alarms"] = "b1"
    gateway.commands.clear()
    await w.publish()
    await settled(w, {"b1": ["mqtt.c|alarms/#", "mqtt.c|news/#"], "b2": []})
    assert addresses(await gateway.subscribe("c", "news/x")) == ["$sub/b1/mqtt.c", "$sub/b2/mqtt.c"]
    await gateway.unsubscribe("c", "news/x")
    assert [m.body for m in await w.take("$sub/b2/mqtt.c", 1)] == [b"waits"]
    one = [{"address": f"$sub/b1/mqtt.c@{await w.suite()}"}]
    await until(lambda: any(s == "sources" and body["sources"] == one for s, body in gateway.commands))
    await until(lambda: w.no_queues("b2"))


async def _added(w: World, gateway: Gateway) -> None:
    """An address that comes later, on a broker where the session has nothing."""
    w.addresses["late"] = {"type": "topic", "flavor": "t"}
    w.homes["late"] = "b2"
    gateway.commands.clear()
    await w.publish()
    await settled(w, {"b1": ["mqtt.c|alarms/#", "mqtt.c|news/#"], "b2": ["mqtt.c|late/#"]})
    await until(lambda: any(subject == "sources" and len(body["sources"]) == 2 for subject, body in gateway.commands))


async def _leftovers(w: World, gateway: Gateway) -> None:
    """While subserv is away: a queue is lost, a divert is lost, others are left over; what is not ours stays."""
    suite = await w.suite()
    w.kill()
    b1, b2 = await w.manage("b1"), await w.manage("b2")
    await b2.invoke("broker", "destroyDivert", f"mqtt.c@{suite}|late/#")
    await b2.invoke("broker", "destroyQueue", f"$sub/b2/mqtt.c@{suite}", True, True)
    await b1.invoke("broker", "destroyDivert", f"mqtt.c@{suite}|news/#")
    ended = gateway.epochs["c"] - 1  # a number of the session that the client had before
    for user, id in ((f"subserv:{suite}:{ended}", f"mqtt.old@{suite}"), ("somebody", "theirs")):
        queue = f'{{"name":"$sub/b1/{id}","address":"$sub/b1/{id}","routing-type":"ANYCAST","user":"{user}"}}'
        await b1.invoke("broker", "createQueue", queue)
    await b1.invoke(
        "broker",
        "createDivert",
        f"mqtt.old@{suite}|x",
        "",
        "x",
        f"$sub/b1/mqtt.old@{suite}",
        False,
        None,
        None,
        "ANYCAST",
    )
    w.launch()
    await w.ready()
    await settled(w, {"b1": ["mqtt.c|alarms/#", "mqtt.c|news/#"], "b2": ["mqtt.c|late/#"]})

    async def left() -> bool:
        return await w.queues("b1") == ["$sub/b1/mqtt.c", "$sub/b1/theirs"]

    await until(left)
    assert await gateway.come_again() == []


async def _broker_away(w: World, gateway: Gateway) -> None:
    """No false success; and what was there is there again."""
    w.brokers["b2"].kill()
    reply = await gateway.subscribe("c", "late/new", "news/new")
    assert reply["codes"] == [0x83, 1] and "b2" in reply["reasons"][0], reply
    await asyncio.to_thread(w.brokers["b2"].start)
    await settled(w, {"b1": ["mqtt.c|alarms/#", "mqtt.c|news/#", "mqtt.c|news/new"], "b2": ["mqtt.c|late/#"]})
    async with asyncio.timeout(DEADLINE):
        while (await gateway.subscribe("c", "late/new"))["codes"] != [1]:
            pass
    await w.publish_to("late/new", b"once", broker="b2")
    assert await w.depth("$sub/b2/mqtt.c") == 1


@asyncio_test
@pytest.mark.slow
async def test_brokers_managed_by_hand(tmp_path: Path) -> None:
    """What a filter covers on a broker that is no Artemis is left out of it; a filter of nothing else is refused."""
    attached: list[str] = []

    def accepted(connection: ControlConnection) -> None:
        connection.on_attach = lambda link: attached.append(link.name)

    other = await listen("127.0.0.1", free_port(), accepted, container="other", properties={"product": "Other"})
    async with world(tmp_path) as w:
        gateway = await w.gateway()
        await gateway.open("c")
        w.addresses["late"] = {"type": "topic", "flavor": "t"}
        w.homes |= {"late": "other", "jobs": "away"}
        w.by_hand["other"] = {"host": "127.0.0.1", "port": other.port, "byHand": True}
        w.by_hand["away"] = {"host": "127.0.0.1", "port": free_port(), "byHand": True}
        await w.publish()

        async def refused() -> bool:
            reply = await gateway.subscribe("c", "late/x")
            return reply["codes"] == [0x83] and "it is no Artemis" in reply["reasons"][0]

        await until(refused)
        assert (await gateway.subscribe("c", "#"))["codes"] == [1]
        await settled(w, {"b1": ["mqtt.c|alarms/#", "mqtt.c|news/#"]})
        assert w.health()["ready"] and "away" not in w.health()["detail"], "no subscriber needs a queue's broker"
        w.homes["late"] = "away"
        await w.publish()
        await until(lambda: "not connected to broker away" in w.health().get("detail", ""))
        assert w.health()["ready"], "the suite does not wait for what people manage"
    assert attached == []
    await other.close()


@asyncio_test
async def test_what_a_broker_managed_by_hand_keeps_is_received_when_no_topic_is_left_there(tmp_path: Path) -> None:
    """Also after a restart; a queue is deleted when it is empty or its session has ended, and nothing else is made."""
    async with world(tmp_path, brokers=2) as w:
        w.by_hand["b2"] = {"host": "127.0.0.1", "port": w.brokers["b2"].port, "byHand": True}
        await (await w.manage("b2")).invoke("broker", "createAddress", "alarms", "MULTICAST")
        w.homes["alarms"] = "b2"
        await w.publish()
        gateway = await w.gateway()
        for client in ("c", "other"):
            await gateway.open(client)
            assert (await gateway.subscribe(client, "alarms/#"))["codes"] == [1]
            await gateway.close(client)
        await w.publish_to("alarms/a", b"kept", broker="b2")
        w.homes["alarms"] = "b1"
        await w.publish()
        await settled(w, {"b1": ["mqtt.c|alarms/#", "mqtt.other|alarms/#"], "b2": []})
        await w.restart()
        await gateway.come_again()
        at_hand = "$sub/b2/mqtt.c"
        assert at_hand in addresses(await gateway.open("c"))
        assert [message.body for message in await w.take(at_hand, 1)] == [b"kept"]
        await gateway.open("other", clean=True)
        await until(lambda: w.no_queues("b2"))
        await gateway.close("c", expiry=0)


@asyncio_test
async def test_subscriptions(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gateway = await w.gateway()
        await _codes(w, gateway)
        await _overlapping(w, gateway)
        await _shared(w, gateway)
        await _full(w, gateway)


async def _codes(w: World, gateway: Gateway) -> None:
    await gateway.open("c")
    asked = [
        "news",
        "cast/a/+",
        "jobs/#",
        "jobs/a",
        "unknown/x",
        "a/#/b",
        "$share/g/cast",
        "$share/g/jobs",
        "$share/+/x",
    ]
    reply = await gateway.subscribe("c", *asked)
    assert reply["codes"] == [1, 1, 1, 0x8F, 0x8F, 0x8F, 0x9E, 1, 0x8F]
    assert [bool(reason) for reason in reply["reasons"]] == [code >= 0x80 for code in reply["codes"]]
    reply = await gateway.unsubscribe("c", "news", "never", "cast/a/+")
    assert reply["codes"] == [0, 0x11, 0]
    await gateway.open("old", protocol=4)
    assert (await gateway.subscribe("old", "news", "unknown"))["codes"] == [1, 0x80]
    many = await gateway.subscribe("old", *(f"cast/{number}" for number in range(20_001)))
    assert many["codes"][-1] == 0x80 and many["codes"].count(1) == 19_999
    for client in ("c", "old"):
        await gateway.close(client, expiry=0)


async def _overlapping(w: World, gateway: Gateway) -> None:
    """One copy; options are replaced; nothing is missed meanwhile."""
    await gateway.open("c")
    await gateway.subscribe("c", "news/#", "news/+", "news/1")
    await w.publish_to("news/1", b"1")
    assert await w.depth("$sub/b1/mqtt.c") == 1
    await gateway.subscribe("c", {"filter": "news/#", "qos": 2, "identifier": 5})
    await gateway.unsubscribe("c", "news/1", "news/+")
    await w.publish_to("news/1", b"2")
    assert await w.depth("$sub/b1/mqtt.c") == 2
    await gateway.close("c")
    again = await gateway.open("c")
    assert again["subscriptions"] == [{"filter": "news/#", "qos": 2, "identifier": 5}]
    await gateway.unsubscribe("c", "news/#")
    assert await w.diverts() == []
    assert await w.depth("$sub/b1/mqtt.c") == 2  # until they are taken
    assert len(await w.take("$sub/b1/mqtt.c", 2)) == 2
    await until(w.no_queues)
    await gateway.close("c", expiry=0)


async def _full(w: World, gateway: Gateway) -> None:
    """Who does not take its messages holds up nobody: the oldest go. The feed of retained messages loses nothing."""
    await gateway.open("away")
    await gateway.subscribe("away", "alarms/#")
    await w.publish_to("alarms/0", b"small", retain=True)
    await until(lambda: w.health()["counts"]["retained"] == 1)
    large = b"x" * 2**20
    for number in range(80):
        await w.publish_to(f"alarms/{number}", large, retain=number == 0)
    depth = await w.depth("$sub/b1/mqtt.away")
    assert depth is not None and 32 <= depth <= 64
    last = (await w.take("$sub/b1/mqtt.away", depth))[-1]
    assert last.address == "alarms/79"
    await until(lambda: w.health()["counts"]["retained"] == 0)  # the new one is larger than a retained message may be


async def _shared(w: World, gateway: Gateway) -> None:
    await gateway.open("a")
    await gateway.open("b")
    for client in ("a", "b"):
        reply = await gateway.subscribe(client, "$share/g/news/#")
    source = reply["sources"][0]
    assert source["filter"] == "$share/g/news/#" and source["address"].startswith("$sub/b1/share.g.")
    other = await gateway.subscribe("b", "$share/h/news/#")
    await w.publish_to("news/1", b"1")
    assert [await w.depth(address) for address in addresses(other)] == [1, 1]
    await gateway.close("a", expiry=0)
    assert await w.depth(source["address"]) == 1
    await gateway.unsubscribe("b", "$share/g/news/#")
    await gateway.open("a")
    await gateway.subscribe("a", "$share/g/news/#")  # another group of that name
    assert await w.depth(source["address"]) == 0
