"""Addresses without credit hold up no other wills, and wills go with their topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from enmasse.amqp.messages.message import Message
from enmasse.control import ControlConnection, Outcome
from enmasse.control.link import ACCEPTED
from enmasse.identity.space_plans import EndingSpaces, SpacePlans
from enmasse.model.addresses import Address
from enmasse.model.feeds import PermissionChanges
from enmasse.model.names import RELAYS_TO_TOPICS, AddressName
from enmasse.model.topic_map import TopicMaps
from enmasse.stores import Change
from services.mqtt_lwt import will_publisher as publishers
from services.mqtt_lwt.keeper import Keeper
from services.mqtt_lwt.permits import Permits
from services.mqtt_lwt.records import Records
from services.mqtt_lwt.requests import Request
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


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], bytes] = {}

    def write(self, changes: Iterable[Change]) -> asyncio.Future[None]:
        for change in changes:
            if change.value is not None:
                self.values[change.table, change.key] = change.value
        return Store().remove([])

    async def get_many(self, table: str, keys: Iterable[str]) -> list[bytes | None]:
        return [self.values.get((table, key)) for key in keys]


@pytest.mark.parametrize(
    ("topic", "to", "published"),
    [
        ("x", "here/x", "there/x"),  # the default has moved, perhaps before the service had the will
        ("", "here/x", "here/x"),
        ("gone/x", "gone/x", "there/gone/x"),  # the address was removed
        ("gone.x/y", "gone.x/y", "there/gone%2Ex/y"),
    ],
)
@asyncio_test
async def test_a_will_goes_with_its_topic(topic: str, to: str, published: str) -> None:
    sent: list[bytes] = []

    class Taking(Link):
        def send(self, message: bytes, outcome: Any) -> None:
            sent.append(message)
            super().send(message, outcome)

    class Reached(Connection):
        def sender(self, target: str, space: str = "default") -> Link:
            return Taking(target)

    book, records = WillBook(0.0), Records(cast(Any, Kept()))
    made = WillPublisher(book, records, without_users(), lambda _: None)
    names = ("here", "there")
    made.addresses(
        TopicMaps({AddressName(name): Address(type="topic", mqtt_default=name == "there") for name in names})
    )
    clock, ending = asyncio.get_running_loop(), EndingSpaces()
    keeper = Keeper(book, records, made, lambda _: None, clock, SpacePlans(), ending)
    for number, key in enumerate(("client:mqtt", "link:amqp")):
        message = Message(to=to, body=b"gone")
        request = Request("will", key, to, 1, 0, message, topic=topic if number == 0 and topic != to else "")
        keeper.request(request, number, lambda: None)
    made.connected(cast(ControlConnection, Reached()))
    for number in range(2):
        keeper.failed(number)
    await until(lambda: not len(book))
    of_link = [to] if to.startswith("here") else []  # an AMQP client has stated the name of no address
    assert sorted(str(Message.decode(each).to) for each in sent) == sorted([published, *of_link])
    made.disconnected()
    keeper.close()
