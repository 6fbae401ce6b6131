"""Addresses without credit do not hold up the wills for others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from enmasse.control import ControlConnection, Outcome
from enmasse.control.link import ACCEPTED
from enmasse.model.addresses import Address
from enmasse.model.feeds import PermissionChanges
from enmasse.model.names import RELAYS_TO_TOPICS, AddressName
from enmasse.model.topic_map import TopicMaps
from services.mqtt_lwt import will_publisher as publishers
from services.mqtt_lwt.permits import Permits
from services.mqtt_lwt.records import Records
from services.mqtt_lwt.will_publisher import MAX_LANES, WillPublisher
from services.mqtt_lwt.wills import Will, WillBook
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

IDLE = [f"idle-{number}" for number in range(MAX_LANES)]


def without_users() -> Permits:
    permits = Permits(lambda: 0.0)
    permits.take(PermissionChanges(anonymous=True))
    return permits


class Link:
    """To an address; it has credit if somebody receives there."""

    def __init__(self, address: str) -> None:
        self.address, self.closed = address, False
        self.credit = 0 if address in IDLE else 10

    async def opened(self) -> None: ...

    async def has_credit(self) -> None:
        if not self.credit:
            await asyncio.Event().wait()

    def send(self, message: bytes, outcome: Any) -> None:
        outcome(Outcome(ACCEPTED))

    def close(self) -> None:
        self.closed = True


class Connection:
    remote_offered = (RELAYS_TO_TOPICS,)

    def sender(self, target: str, space: str = "default") -> Link:
        return Link(target)


class Store:
    def remove(self, wills: list[Will]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def messages(self, wills: list[Will]) -> list[bytes]:
        return [b"message" for _ in wills]


@asyncio_test
async def test_idle_addresses_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "PATIENCE", 0.01)
    book = WillBook(0.0)
    made = WillPublisher(book, cast(Records, Store()), without_users(), lambda _: None)
    made.addresses(TopicMaps({AddressName(name): Address(type="anycast") for name in (*IDLE, "busy")}))
    made.connected(cast(ControlConnection, Connection()))
    wills = [Will(name, name, name, 1, 0, 1) for name in (*IDLE, "busy")]
    for will in wills:
        book.restore(will, 0.0, 0.0)
    made.add(wills)
    await until(lambda: book.get("busy") is None)
    assert len(book) == len(IDLE), "the others wait for somebody who takes them"
    made.disconnected()
