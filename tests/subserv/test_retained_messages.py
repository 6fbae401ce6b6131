"""Retained messages: who subscribes gets them first, in order, once; and SIGKILL of subserv."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import proton

from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.subserv.harness import Gateway, World, world

FOR = "x-opt-retained-for"


def copies(messages: list[Any]) -> list[tuple[str, bytes, str | None]]:
    """Topic, body, and the filter of the subscription for which each was made."""
    return [(m.address, m.body, (m.annotations or {}).get(FOR)) for m in messages]


async def subscribed(w: World, gateway: Gateway, client: str, *filters: str | dict[str, Any]) -> str:
    """Opens and subscribes; the queue's address."""
    await gateway.open(client)
    reply = await gateway.subscribe(client, *filters)
    assert set(reply["codes"]) == {1}, reply
    address: str = reply["sources"][0]["address"]
    return address


@asyncio_test
async def test_retained_messages(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gateway = await w.gateway()
        await _first_and_once(w, gateway)
        await _handling(w, gateway)
        await _deleted_and_expired(w, gateway)
        await _existing_queue(w, gateway)
        await _of_amqp(w, gateway)
        await _survive(w, gateway)


async def _first_and_once(w: World, gateway: Gateway) -> None:
    for number in (1, 2, 3):
        await w.publish_to(f"news/{number}", b"old", retain=True)
        await w.publish_to(f"news/{number}", b"%d" % number, retain=True)
    await w.publish_to("news/4", b"not retained")
    address = await subscribed(w, gateway, "r", "news/#")
    await w.publish_to("news/1", b"live", retain=True)
    found = await w.take(address, 4)
    assert copies(found) == [
        ("news/1", b"1", "news/#"),
        ("news/2", b"2", "news/#"),
        ("news/3", b"3", "news/#"),
        ("news/1", b"live", None),
    ]
    assert found[0].annotations["x-opt-retain-message"] and found[0].durable
    assert await w.depth(address) == 0
    shared = await gateway.subscribe("r", "$share/g/news/#")
    assert await w.depth(shared["sources"][1]["address"]) == 0
    address = await subscribed(w, gateway, "w", "+/2")
    assert copies(await w.take(address, 1)) == [("news/2", b"2", "+/2")]


async def _handling(w: World, gateway: Gateway) -> None:
    address = await subscribed(w, gateway, "h", {"filter": "news/1", "retain_handling": 2})
    assert await w.depth(address) == 0
    for handling, count in ((1, 0), (0, 1), (0, 2)):  # the subscription is there already
        await gateway.subscribe("h", {"filter": "news/1", "retain_handling": handling})
        assert await w.depth(address) == count
    await gateway.subscribe("h", {"filter": "news/2", "retain_handling": 1})
    assert await w.depth(address) == 3
    await gateway.close("h", expiry=0)


async def _deleted_and_expired(w: World, gateway: Gateway) -> None:
    await w.publish_to("news/3", b"", retain=True)
    await w.publish_to("news/2", b"short", retain=True, ttl=0.2)
    await until(lambda: w.health()["counts"]["retained"] == 1)
    address = await subscribed(w, gateway, "d", "news/#")
    assert copies(await w.take(address, 1)) == [("news/1", b"live", "news/#")]
    assert await w.depth(address) == 0


async def _existing_queue(w: World, gateway: Gateway) -> None:
    """The copies come before what waits already."""
    address = await subscribed(w, gateway, "x", "alarms/#")
    await w.publish_to("alarms/1", b"waits")
    await gateway.subscribe("x", "news/+")
    assert copies(await w.take(address, 2)) == [("news/1", b"live", "news/+"), ("alarms/1", b"waits", None)]


async def _of_amqp(w: World, gateway: Gateway) -> None:
    """A publisher on AMQP: text, application properties, another `to`."""
    sender = (await w.connection()).sender("news/amqp")
    message = proton.Message(body="text", properties={"a": 1, "_AMQ_DUPL_ID": "mine"}, subject="s")
    message.annotations = {proton.symbol("x-opt-retain-message"): True}
    assert (await sender.deliver(message)).accepted
    address = await subscribed(w, gateway, "a", "news/amqp")
    found = (await w.take(address, 1))[0]
    assert found.body == "text" and found.subject == "s" and found.properties["a"] == 1
    assert found.annotations["x-opt-ORIG-ADDRESS"] == "news/amqp"
    await gateway.subscribe("a", "news/amqp")
    assert await w.depth(address) == 1


async def _survive(w: World, gateway: Gateway) -> None:
    await w.restart()
    await gateway.come_again()
    address = await subscribed(w, gateway, "s", "news/1")
    assert copies(await w.take(address, 1)) == [("news/1", b"live", "news/1")]


@asyncio_test
async def test_each_subscriber_sees_every_topic_once_and_in_order(tmp_path: Path) -> None:
    """Retained publishes go on while subscribers come, and subserv is killed: copies and live messages of a topic
    together are one run of its numbers without a gap, up to the last."""
    async with world(tmp_path) as w:
        gateway = await w.gateway()
        sent = dict.fromkeys(("news/0", "news/1", "news/2"), 0)
        stop = asyncio.Event()

        async def publish() -> None:
            while not stop.is_set():
                topic = random.choice(list(sent))
                await w.publish_to(topic, b"%d" % (sent[topic] + 1), retain=True)
                sent[topic] += 1

        publishing = asyncio.create_task(publish())
        addresses = []
        for number in range(12):
            before = dict(sent)
            addresses.append((await subscribed(w, gateway, f"c{number}", "news/+"), before))
            if number == 6:
                await w.restart()
                await gateway.come_again()
        stop.set()
        await publishing
        for address, before in addresses:
            depth = await w.depth(address)
            assert depth is not None
            found = copies(await w.take(address, depth))
            for topic, last in sent.items():
                numbers = [int(body) for name, body, _ in found if name == topic]
                assert numbers == list(range(last - len(numbers) + 1, last + 1)), (address, topic, found)
                if before[topic]:
                    assert numbers and numbers[0] >= before[topic]


@asyncio_test
async def test_they_come_also_while_others_fill_the_memory_of_the_broker(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gateway = await w.gateway()
        broker = w.brokers["b1"]
        broker.kill()
        broker.settings["global_max_size"] = 20_000
        await asyncio.to_thread(broker.start)
        await until(lambda: w.health().get("ready"), "the broker is known again")
        away = await subscribed(w, gateway, "away", "news/#")
        await w.publish_to("news/kept", b"1", retain=True)
        for _ in range(30):
            await w.publish_to("news/more", bytes(1000))
        address = await subscribed(w, gateway, "late", "news/kept")
        assert copies(await w.take(address, 1)) == [("news/kept", b"1", "news/kept")]
        assert await w.depth(away) == 31
