"""Number and bytes of a user's wills: none keeps the wills of others out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from enmasse.amqp.messages.message import Message
from enmasse.control import ControlError
from enmasse.identity.authors import Author
from enmasse.identity.space_plans import EndingSpaces, SpacePlans
from enmasse.model.feeds import PermissionChanges, ReachedSpace
from enmasse.model.tenants.plans import SpaceLimits
from enmasse.stores import Change
from services.mqtt_lwt import keeper as keepers
from services.mqtt_lwt.keeper import Keeper
from services.mqtt_lwt.records import Records
from services.mqtt_lwt.requests import Request
from services.mqtt_lwt.will_publisher import WillPublisher
from services.mqtt_lwt.wills import WillBook
from tests.kit.running import asyncio_test
from tests.mqtt_lwt.test_publisher import without_users


class Store:
    """A store whose writes succeed at once."""

    def write(self, changes: Iterable[Change]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class Wills:
    """A keeper, and how many wills each user gets."""

    def __init__(self) -> None:
        failures: list[Exception] = []
        self.book, records = WillBook(5), Records(cast(Any, Store()))
        publisher = WillPublisher(self.book, records, without_users(), failures.append)
        self.plans, self.ending = SpacePlans(), EndingSpaces()
        self.keeper = Keeper(
            self.book, records, publisher, failures.append, asyncio.get_running_loop(), self.plans, self.ending
        )
        self._number = 0

    def put(self, author: Author, key: str, size: int = 1) -> None:
        message = Message(body=b"x" * size)
        request = Request("will", f"client:{key}", "a", 1, 0, message, author)
        self.keeper.request(request, 1, lambda: None)

    def fill(self, author: Author, size: int = 1) -> int:
        """Put wills until one is refused; return how many were taken."""
        taken = 0
        while True:
            self._number += 1
            try:
                self.put(author, f"{author}-{self._number}", size)
            except ControlError as refused:
                assert refused.condition == "amqp:resource-limit-exceeded"
                return taken
            taken += 1

    def clear(self, key: str) -> None:
        self.keeper.request(Request("will-clear", f"client:{key}"), 1, lambda: None)


ALICE, ELSEWHERE, BOB = Author("alice"), Author("alice", space="other"), Author("bob")


@asyncio_test
async def test_a_user_has_as_many_wills_as_are_left_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "MAX_WILLS", 64)
    wills = Wills()
    wills.put(ALICE, "first")
    assert 1 + wills.fill(ALICE) == 32
    wills.put(ALICE, "first")  # another will of a client that has one
    assert (wills.fill(ELSEWHERE), wills.fill(BOB)) == (16, 8)
    wills.clear("first")
    wills.put(BOB, "of bob")
    assert wills.book.number.of("bob") == 9


@asyncio_test
async def test_the_bytes_of_a_users_wills_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "MAX_BYTES", 1 << 20)
    wills = Wills()
    alice = wills.fill(ALICE, 1 << 12) << 12
    assert alice < 0.6 * (1 << 20)
    assert wills.fill(BOB, 1 << 12) > 50


@asyncio_test
async def test_a_space_has_as_many_wills_as_its_plan_states() -> None:
    wills = Wills()
    wills.plans.configure({"other": ReachedSpace(plan="small", limits=SpaceLimits(wills=9))})
    wills.put(ELSEWHERE, "first")
    assert 1 + wills.fill(Author("carol", space="other")) == 9
    with pytest.raises(ControlError, match="9 of 9 wills of the plan 'small' are used: end one of them, or ask for"):
        wills.put(ELSEWHERE, "second")
    for author in (BOB, Author("alice", space="third")):
        for number in range(30):
            wills.put(author, f"{author}-{number}")
    wills.plans.configure({"other": ReachedSpace(plan="small", limits=SpaceLimits(wills=3))})
    wills.put(ELSEWHERE, "first")  # a smaller plan drops nothing, nor does it refuse what takes the place of another
    assert (wills.book.number.of_space("other"), wills.fill(ELSEWHERE)) == (9, 0)
    assert wills.book.number.of_spaces == {"other": 9, "third": 30}


@asyncio_test
async def test_the_wills_of_a_removed_space_are_removed_and_no_more_accepted() -> None:
    wills = Wills()
    for author in (ALICE, ELSEWHERE, Author("alice", space="third")):
        wills.put(author, f"of {author.space}")
    turned = wills.book.lose("client:of other", 1, 0)
    wills.put(ELSEWHERE, "second of other")
    wills.ending.take(PermissionChanges(spaces={"third": ReachedSpace()}, ending={"other": "1"}))
    wills.keeper.end_spaces()
    await asyncio.sleep(0)
    assert wills.book.number.of_spaces == {"other": 1, "third": 1} and wills.keeper.ended() == {}
    wills.book.remove(*turned.due)  # as its publisher does, because no address takes it
    assert wills.keeper.ended() == {"other": "1"}
    with pytest.raises(ControlError, match="the address space of the client was removed"):
        wills.put(ELSEWHERE, "late")
    wills.ending.take(PermissionChanges(spaces={"third": ReachedSpace()}, ending={"other": "2"}))
    assert wills.keeper.ended() == {}, "another removal of the name"
    wills.ending.take(PermissionChanges(spaces={"third": ReachedSpace(), "other": ReachedSpace()}))
    wills.put(ELSEWHERE, "of the new space")


@asyncio_test
async def test_users_of_a_space_leave_room_for_other_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "MAX_WILLS", 64)
    wills = Wills()
    assert sum(wills.fill(Author(f"user{number}", space="other")) for number in range(9)) == 32
    assert wills.fill(BOB) == 16


@asyncio_test
async def test_nothing_is_kept_of_a_user_without_wills() -> None:
    wills = Wills()
    wills.put(ALICE, "first")
    wills.clear("first")
    assert (wills.book.number.of("alice"), wills.book.bytes.of("alice")) == (0, 0)
    assert not wills.book.number._of_users and not wills.book.number.of_spaces
