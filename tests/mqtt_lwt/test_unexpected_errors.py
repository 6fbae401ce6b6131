"""Unexpected errors of the last-will service: the client is refused, the wills are read again, none waits forever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from enmasse.control import ControlError
from enmasse.identity.space_plans import EndingSpaces, SpacePlans
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.topic_map import TopicMaps
from enmasse.network.backoff import Backoff
from enmasse.stores import Change
from services.mqtt_lwt import will_publisher as publishers
from services.mqtt_lwt.keeper import Keeper
from services.mqtt_lwt.records import Records
from services.mqtt_lwt.requests import Request
from services.mqtt_lwt.will_publisher import WillPublisher
from services.mqtt_lwt.wills import Will, WillBook
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.mqtt_lwt.test_publisher import Connection, without_users


class Store:
    """Raises an unexpected error when it is called, or later."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.at_once = at_once
        self.reads: list[Any] = []

    def write(self, changes: Iterable[Change]) -> asyncio.Future[None]:
        if self.at_once:
            raise RuntimeError("injected")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_exception(RuntimeError("injected"))
        return done

    async def get_many(self, table: str, keys: list[str]) -> list[bytes]:
        self.reads.append(keys)
        raise RuntimeError("injected")


@pytest.mark.parametrize("at_once", [True, False])
@asyncio_test
async def test_a_request_that_fails_unexpectedly_is_not_answered_and_the_wills_are_read_again(at_once: bool) -> None:
    failures: list[Exception] = []
    book, records = WillBook(5), Records(cast(Any, Store(at_once=at_once)))
    publisher = WillPublisher(book, records, without_users(), failures.append)
    keeper = Keeper(book, records, publisher, failures.append, asyncio.get_running_loop(), SpacePlans(), EndingSpaces())
    refused = False
    try:
        keeper.request(Request("session-ended", "client:c"), 1, lambda: failures.append(AssertionError("answered")))
    except ControlError:
        refused = True
    await until(lambda: failures)
    assert [str(each) for each in failures] == ["injected"]
    assert refused == at_once


@asyncio_test
async def test_a_will_whose_message_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Soon(Backoff):
        def wait(self) -> float:
            return 0.001

    monkeypatch.setattr(publishers, "Backoff", Soon)
    store = Store()
    publisher = WillPublisher(WillBook(5), Records(cast(Any, store)), without_users(), lambda _: None)
    publisher.addresses(TopicMaps({AddressName("q"): Address(type="queue", flavor="f")}))
    publisher.add([Will("1", "client:c", "q", 1, 0, 10)])
    publisher.connected(cast(Any, Connection()))
    await until(lambda: len(store.reads) > 3)
    assert publisher.failures >= 3
    publisher.disconnected()
