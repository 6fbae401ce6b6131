"""Queues that are the suite's own, and others: of stores that were lost, of other suites, of earlier versions."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from enmasse.model.sessions import Subscription
from enmasse.stores import Change, SqliteSettings
from services.subserv import broker_names, records
from services.subserv.records import SessionRecord
from services.subserv.suite_queues import MAX_LIVES, SuiteIdentity
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.stores.opened import opened
from tests.subserv.harness import World, world

UNKNOWN = "brokers have queues of sessions that the store does not know (b1: "


async def lost(w: World) -> bool:
    """Whether the service reports queues that its store does not know."""
    health = w.health()
    return not health.get("ready") and UNKNOWN in health.get("detail", "")


@pytest.mark.parametrize("how", ["deleted", "truncated"])
@asyncio_test
async def test_an_empty_store_beside_the_data_of_a_broker_is_reported_and_nothing_is_deleted(
    tmp_path: Path, how: str
) -> None:
    async with world(tmp_path) as w:
        store, copy = tmp_path / "subserv.db", tmp_path / "copy"
        gateway = await w.gateway()
        await gateway.open("c")
        (source,) = (await gateway.subscribe("c", "news/#"))["sources"]
        await w.publish_to("news/1", b"waits")
        assert w.process is not None
        w.process.terminate()
        w.process.wait()
        shutil.copy(store, copy)
        store.unlink()
        if how == "truncated":
            store.touch()
        w.launch()
        await until(lambda: lost(w))
        assert "(b1: 2)" in w.health()["detail"], "the session's queue and the feed of retained messages"
        gateway = await w.gateway("gw-2")
        assert not (await gateway.open("c"))["present"]
        (other,) = (await gateway.subscribe("c", "news/#"))["sources"]
        await w.publish_to("news/2", b"for both")
        assert await w.depth(other["address"]) == 1
        assert await w.depth(source["address"]) == 2
        w.kill()
        for each in tmp_path.glob("subserv.db*"):
            each.unlink()
        shutil.copy(copy, store)
        w.launch()
        await until(lambda: lost(w))  # by the queues of the store that was empty
        gateway = await w.gateway("gw-3")
        assert (await gateway.open("c"))["present"]
        assert [m.body for m in await w.take(source["address"], 2)] == [b"waits", b"for both"]


@asyncio_test
async def test_sessions_that_are_newer_than_a_restored_store_keep_their_messages(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gateway = await w.gateway()
        await gateway.open("old")
        await gateway.subscribe("old", "news/#")
        (tmp_path / "backup").mkdir()
        await until((tmp_path / "backup" / "subserv.db").exists)
        await gateway.open("new")
        (source,) = (await gateway.subscribe("new", "news/#"))["sources"]
        await gateway.subscribe("old", "alarms/#")
        await w.publish_to("news/1", b"waits")
        w.kill()
        for each in tmp_path.glob("subserv.db*"):
            each.unlink()
        shutil.copy(tmp_path / "backup" / "subserv.db", tmp_path / "subserv.db")
        for _ in range(2):  # the second start knows it, too
            w.launch()
            await until(lambda: lost(w))
            assert "(b1: 1)" in w.health()["detail"]
            assert await w.depth(source["address"]) == 1
            w.kill()
        w.launch()
        await until(lambda: lost(w))
        gateway = await w.gateway("gw-2")
        assert (await gateway.open("old"))["present"]
        assert not (await gateway.open("new"))["present"]
        assert (await gateway.subscribe("new", "news/#"))["sources"] == [source]
        await w.restart()
        assert w.health()["ready"], w.health()
        assert [m.body for m in await w.take(source["address"], 1)] == [b"waits"]


@asyncio_test
async def test_two_suites_on_one_broker_keep_each_others_sessions_and_retained_messages(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with world(tmp_path / "one") as one:
        two = World(tmp_path / "two", None)
        one.by_hand = two.by_hand = {"b1": {"host": "127.0.0.1", "port": one.brokers["b1"].port, "byHand": True}}
        try:
            await one.publish()
            await two.start(0)
            sources = []
            for w in (one, two):
                gateway = await w.gateway()
                await gateway.open("c")
                sources += (await gateway.subscribe("c", "news/#"))["sources"]
            await one.publish_to("news/1", b"for both", retain=True)
            for w in (one, two):
                await until(partial(has_retained, w))
                await w.restart()
                assert w.health()["ready"], w.health()
            assert len({source["address"] for source in sources}) == 2
            for source in sources:
                assert [m.body for m in await one.take(source["address"], 1)] == [b"for both"]
        finally:
            await two.stop()


def has_retained(w: World) -> bool:
    return bool(w.health()["counts"]["retained"])


async def earlier(w: World, store: Path) -> None:
    """What a version left that had no id of the suite in its names: a session, a shared subscription, an ended session,
    and a retained message that was not stored yet."""
    created = (1 << 32) + 7
    record = SessionRecord(
        client="c", created=created, epoch=created, protocol=5, expiry=2**32 - 1, connected=False, gateway="", peer="",
        will=False, since=0.0,
    )  # fmt: skip
    filters = [Subscription(filter="news/#", qos=1), Subscription(filter="$share/g/news/#", qos=1)]
    share = broker_names.share_id("g", "news/#")
    async with opened(SqliteSettings(str(store))) as made:
        await made.write(
            [
                Change(records.STATE, "start", b"1"),
                records.put(records.SESSIONS, "c", record),
                *(records.put(records.FILTERS, records.filter_key("c", each.filter), each) for each in filters),
            ]
        )
    management = await w.manage()
    for id, number in (("retained", 0), ("mqtt.c", created), (share, 0), ("mqtt.ended", created - 1)):
        name = f"$sub/b1/{id}"
        queue = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, "user": f"subserv:{number}"}
        await management.invoke("broker", "createQueue", json.dumps(queue))
        pattern = "#" if id == "retained" else "news/#"
        divert = f"{id}|{pattern}"
        await management.invoke(
            "broker", "createDivert", divert, divert, pattern, name, False,
            '"m.x-opt-retain-message" = TRUE' if id == "retained" else None, None, "ANYCAST",
        )  # fmt: skip
    await w.publish_to("news/1", b"waits", retain=True)


@asyncio_test
async def test_queues_of_earlier_versions_are_taken_over(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.kill()
        for each in tmp_path.glob("subserv.db*"):
            each.unlink()
        management = await w.manage()
        for name in await management.invoke("broker", "getQueueNames"):
            if name.startswith("$sub/"):
                await management.invoke("broker", "destroyQueue", name, True, True)
        await earlier(w, tmp_path / "subserv.db")
        w.launch()
        await w.ready()
        share = broker_names.share_id("g", "news/#")
        await until(lambda: w.health()["counts"]["retained"] == 1)

        async def gone() -> bool:
            names_ = await management.invoke("broker", "getQueueNames")
            suites = sorted(name for name in names_ if name.startswith("$sub/"))
            return suites == ["$sub/b1/mqtt.c", f"$sub/b1/retained.feed@{await w.suite()}", f"$sub/b1/{share}"]

        await until(gone)
        assert w.health()["ready"]
        gateway = await w.gateway()
        reply = await gateway.open("c")
        assert reply["present"]
        assert [source["address"] for source in reply["sources"]] == ["$sub/b1/mqtt.c", f"$sub/b1/{share}"]
        connection = await w.connection()
        for source in reply["sources"]:
            delivery = await anext(connection.receiver(source["address"], window=1))
            assert bytes(delivery.message.body) == b"waits"
            delivery.accept()
        await gateway.close("c", expiry=0)
        await gateway.open("c")
        (source,) = (await gateway.subscribe("c", "news/#"))["sources"]
        assert source["address"] == f"$sub/b1/mqtt.c@{await w.suite()}"
        await w.restart()
        assert w.health()["ready"]


def test_numbers_of_other_timelines_are_not_known() -> None:
    first = SuiteIdentity()
    first.begin("s", (), 0, (), 1000)
    given = [first.next() for _ in range(5)]
    restored, later = SuiteIdentity(), SuiteIdentity()
    restored.begin("s", [(1000, 1000)], given[1], (), 9000)
    assert [restored.is_known(number) for number in given] == [True, True, False, False, False]
    later.begin("s", [(1000, given[1]), (9000, 9000)], restored.next(), (), 500)
    assert [later.is_known(number) for number in given] == [True, True, False, False, False]
    assert later.next() > 9001, "a clock that was set back changes nothing"
    assert not later.is_known(0) and not later.has_earlier
    many = SuiteIdentity()
    many.begin("s", [(each, each) for each in range(10, 10 * MAX_LIVES + 10, 10)], 0, (), 10**9)
    assert many.is_known(15) and not many.is_known(25)
