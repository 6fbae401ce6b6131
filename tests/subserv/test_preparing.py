"""Topics that move: what leads to subscribers is bound at the new broker before messages go there, and stays bound at
the old one until it has no more of them."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.subserv.harness import World, world

Told = Callable[[World], Awaitable[None]]


def prepare(w: World, epoch: int, *, old: str | None = "active") -> None:
    """`news` is on b1 (in this state; None: no more), and b2 is prepared for it."""
    entries: list[dict[str, Any]] = [{"broker": "b2", "state": "prepared", "type": "topic", "epoch": epoch}]
    place(w, [*([{"broker": "b1", "state": old, "type": "topic"}] if old else []), *entries])


def place(w: World, entries: list[dict[str, Any]], barrier: int | None = None) -> None:
    """`barrier`: an epoch with which b2 is prepared for `alarms`, too."""
    where = {name: {"host": "127.0.0.1", "port": broker.port} for name, broker in w.brokers.items()}
    alarms: list[dict[str, Any]] = [{"broker": "b1", "type": "topic"}]
    if barrier is not None:
        alarms.append({"broker": "b2", "state": "prepared", "type": "topic", "epoch": barrier})
    w.configserv.place({"news": entries, "alarms": alarms}, where)


async def bound(w: World, epoch: int) -> None:
    await until(lambda: w.configserv.bound.get("news") == {"b2": epoch}, "the report")


async def make(w: World) -> None:
    """The topic is made on b2."""
    await (await w.manage("b2")).invoke("broker", "createAddress", "news", "MULTICAST")


@asyncio_test
async def test_what_is_reported_as_bound_is_bound(tmp_path: Path) -> None:
    async with world(tmp_path, brokers=2) as w:
        gateway = await w.gateway()
        await gateway.open("early")
        await gateway.subscribe("early", "news/#", "alarms/#")
        assert await w.queues("b2") == []
        prepare(w, 7)
        await bound(w, 7)
        assert await w.diverts("b2") == ["mqtt.early|news/#"], "before it says so"
        # From now on a subscription is answered only when it is bound there, too.
        await w.publish_to("news/1", b"kept", retain=True)
        await gateway.open("late")
        await gateway.subscribe("late", "news/+")
        assert await w.diverts("b2") == ["mqtt.early|news/#", "mqtt.late|news/+"]
        assert [each.body for each in await w.take("$sub/b1/mqtt.late", 1)] == [b"kept"]
        assert await w.depth("$sub/b2/mqtt.late") == 0, "a retained message comes once"
        await make(w)
        await w.publish_to("news/2", b"new", broker="b2")
        for client in ("early", "late"):
            assert [each.body for each in await w.take(f"$sub/b2/mqtt.{client}", 1)] == [b"new"]


@asyncio_test
async def test_a_service_that_is_stopped_reports_later(tmp_path: Path) -> None:
    async with world(tmp_path, brokers=2) as w:
        gateway = await w.gateway()
        await gateway.open("c")
        await gateway.subscribe("c", "news/#")
        assert w.process is not None
        w.process.send_signal(signal.SIGSTOP)
        prepare(w, 8)
        await w.publish_to("news/1", b"old")
        assert not w.configserv.bound
        w.process.send_signal(signal.SIGCONT)
        await bound(w, 8)
        assert await w.diverts("b2") == ["mqtt.c|news/#"]


@asyncio_test
async def test_a_service_that_is_killed_while_it_binds_reports_after_its_start(tmp_path: Path) -> None:
    async with world(tmp_path, brokers=2) as w:
        gateway = await w.gateway()
        await gateway.open("c")
        await gateway.subscribe("c", "news/#")
        prepare(w, 9)
        w.kill()
        w.configserv.bound = {}
        w.launch()
        await bound(w, 9)
        assert await w.diverts("b2") == ["mqtt.c|news/#"]


@asyncio_test
async def test_a_broker_that_has_lost_everything_is_bound_anew(tmp_path: Path) -> None:
    """As one in memory that has restarted: the controller prepares it once more."""
    async with world(tmp_path, brokers=2) as w:
        gateway = await w.gateway()
        await gateway.open("c")
        await gateway.subscribe("c", "news/#")
        prepare(w, 10)
        await bound(w, 10)
        assert w.process is not None
        w.process.send_signal(signal.SIGSTOP)  # hears of both at once
        management = await w.manage("b2")
        (queue,) = [name for name in await management.invoke("broker", "getQueueNames") if "mqtt.c@" in name]
        await management.invoke("broker", "destroyQueue", queue, True, True)
        assert await w.diverts("b2") == []
        prepare(w, 11)
        w.process.send_signal(signal.SIGCONT)
        await bound(w, 11)
        assert await w.diverts("b2") == ["mqtt.c|news/#"]


async def _removed(w: World) -> None:
    w.configserv.publish(
        "addresses", {"schema": 1, "addresses": {"alarms": w.addresses["alarms"]}, "leaving": ["news"]}
    )
    place(w, [{"broker": "b1", "state": "draining", "type": "topic"}], 99)


async def _retyped(w: World) -> None:
    w.configserv.addresses(w.addresses | {"news": {"type": "queue", "flavor": "q"}})
    place(w, [{"broker": "b1", "state": "draining", "type": "topic"}], 99)


async def _moved(w: World) -> None:
    prepare(w, 12)
    await bound(w, 12)
    await make(w)
    place(w, [{"broker": "b2", "type": "topic"}, {"broker": "b1", "state": "draining", "type": "topic"}], 99)


@pytest.mark.parametrize("change", [_removed, _retyped, _moved])
@asyncio_test
async def test_a_broker_that_a_topic_leaves_stays_bound_until_it_has_no_more_of_it(
    tmp_path: Path, change: Told
) -> None:
    async with world(tmp_path, brokers=2) as w:
        gateway = await w.gateway()
        await gateway.open("c")
        await gateway.subscribe("c", "news/#")
        await change(w)
        await until(lambda: w.configserv.bound.get("alarms") == {"b2": 99}, "the change to be taken in")
        await w.publish_to("news/1", b"late")
        assert [each.body for each in await w.take("$sub/b1/mqtt.c", 1)] == [b"late"]
        place(w, [{"broker": "b2", "type": "topic"}] if change is _moved else [])

        async def unbound() -> bool:
            return "mqtt.c|news/#" not in await w.diverts("b1")

        await until(unbound, "the end of the divert")


@pytest.mark.parametrize("newest", [b"new", b""])
@asyncio_test
async def test_what_comes_late_from_the_old_broker_replaces_nothing(tmp_path: Path, newest: bytes) -> None:
    """The old broker is away when the topic moves, with a retained message that nobody has read yet."""
    async with world(tmp_path, brokers=2) as w:
        gateway = await w.gateway()
        await w.publish_to("news/1", b"first", retain=True)
        await gateway.open("a")
        await gateway.subscribe("a", "news/#")
        assert [each.body for each in await w.take("$sub/b1/mqtt.a", 1)] == [b"first"]
        prepare(w, 13)
        await bound(w, 13)
        await make(w)
        assert w.process is not None
        w.process.send_signal(signal.SIGSTOP)
        await w.publish_to("news/1", b"old", retain=True)
        w.brokers["b1"].kill()
        place(w, [{"broker": "b2", "type": "topic"}, {"broker": "b1", "state": "draining", "type": "topic"}])
        w.process.send_signal(signal.SIGCONT)
        await w.publish_to("news/1", newest, retain=True, broker="b2")
        await gateway.open("b")

        async def subscribed() -> bool:
            """The newest has been stored."""
            return (await w.depth("$sub/b2/mqtt.a")) == 1

        await until(subscribed, "the message")
        w.brokers["b1"].start()
        await w.ready()
        await gateway.subscribe("b", "news/#")  # bound at both: what they had has been read
        found = [each.body for each in await w.take("$sub/b2/mqtt.b", 1)] if newest else []
        assert found == ([newest] if newest else [])
        if not newest:
            assert await w.depth("$sub/b2/mqtt.b") == 0
