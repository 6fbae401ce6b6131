"""Feeds over real connections, where a test must see what is not sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from enmasse.control import ControlConnection, ControlLink, ControlReceiver, ControlSender, Delivery, connect, listen
from enmasse.model.names import AddressName
from services.configserv.feeds import ChangeFeed, PublishedFeed
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


@asynccontextmanager
async def subscribed(feed: PublishedFeed, **options: Any) -> AsyncIterator[tuple[ControlReceiver, list[Delivery]]]:
    def attach(link: ControlLink) -> None:
        assert isinstance(link, ControlSender)
        link.accept()
        feed.subscribe(link)

    def accepted(connection: ControlConnection) -> None:
        connection.on_attach = attach

    listener = await listen("127.0.0.1", 0, accepted, container="server")
    connection = await connect("127.0.0.1", listener.port, container="client")
    receiver = connection.receiver("feed", **options)
    got: list[Delivery] = []
    receiver.on_message = got.append
    try:
        yield receiver, got
    finally:
        connection.close()
        await listener.close()
        feed.close()


@asyncio_test
async def test_changes_within_the_interval_are_one_snapshot() -> None:
    value = 0
    feed = PublishedFeed("feed", "subject", lambda: b'"%d"' % value, interval=3600)
    async with subscribed(feed, window=10) as (_, got):
        await until(lambda: got)
        got[0].accept()
        for number in range(1, 10):
            value = number
            feed.changed()
        await asyncio.sleep(0)
        feed.publish()  # the interval is over
        await until(lambda: len(got) == 2)
        assert [delivery.message.body for delivery in got] == ['"0"', '"9"']


@asyncio_test
async def test_a_released_snapshot_comes_again_and_a_rejected_one_with_the_next_change() -> None:
    value = 0
    feed = PublishedFeed("feed", "subject", lambda: b"%d" % value)
    async with subscribed(feed, window=10) as (_, got):
        await until(lambda: got)
        got[0].release()
        await until(lambda: len(got) == 2)
        got[1].reject("amqp:not-implemented", "cannot read it")
        value = 1
        feed.changed()
        await until(lambda: len(got) == 3)
        assert [delivery.message.body for delivery in got] == ["0", "0", "1"]


@asyncio_test
async def test_nothing_is_built_for_nobody() -> None:
    built = 0

    def build() -> bytes:
        nonlocal built
        built += 1
        return b"{}"

    feed = PublishedFeed("feed", "subject", build)
    for _ in range(3):
        feed.changed()
    await asyncio.sleep(0)
    assert built == 0
    async with subscribed(feed, window=1) as (_, got):
        await until(lambda: got)
        assert built == 1
    await until(lambda: feed.subscribers == 0)


def tell(names: Iterable[str] | None) -> bytes:
    return b"all" if names is None else ",".join(sorted(names)).encode()


@asyncio_test
async def test_a_feed_of_changes_gives_everything_first_and_then_what_changed() -> None:
    feed = ChangeFeed("feed", "subject", tell)
    async with subscribed(feed, window=10) as (_, got):
        await until(lambda: got)
        for names in (("a",), ("b", "a")):  # before the first is settled: both are still to come
            feed.changed(map(AddressName, names))
        got[0].accept()
        await until(lambda: len(got) == 2)
        got[1].accept()
        feed.changed([AddressName("c")])
        await until(lambda: len(got) == 3)
        assert [delivery.message.body for delivery in got] == ["all", "a,b", "c"]


@asyncio_test
async def test_who_did_not_take_a_change_gets_everything_again() -> None:
    feed = ChangeFeed("feed", "subject", tell)
    async with subscribed(feed, window=10) as (_, got):
        await until(lambda: got)
        got[0].accept()
        feed.changed([AddressName("a")])
        await until(lambda: len(got) == 2)
        got[1].release()
        await until(lambda: len(got) == 3)
        got[2].accept()
        feed.changed([AddressName("b")])
        await until(lambda: len(got) == 4)
        got[3].reject("amqp:not-implemented", "cannot read it")
        feed.changed([AddressName("c")])
        await until(lambda: len(got) == 5)
        assert [delivery.message.body for delivery in got] == ["all", "a", "all", "b", "all"]


@asyncio_test
async def test_changes_within_the_interval_are_one_message() -> None:
    feed = ChangeFeed("feed", "subject", tell, interval=3600)
    async with subscribed(feed, window=10) as (_, got):
        await until(lambda: got)
        feed.changed([AddressName("a")])
        got[0].accept()
        feed.changed([AddressName("b")])
        feed.publish()  # the interval is over; what is not settled yet holds it up
        await until(lambda: len(got) == 2)
        assert [delivery.message.body for delivery in got] == ["all", "a,b"]
