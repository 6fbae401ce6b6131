"""Deletions of retained messages that are remembered: how many, until when, and what two looks at a time may do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from enmasse.control import ControlError
from enmasse.stores import Change
from services.subserv import retained_order
from services.subserv.retained_order import RetainedOrder
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


class Store:
    """Keeps what is written; `while_writing` happens before it is."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.while_writing: Callable[[], None] = lambda: None

    async def write(self, changes: Sequence[Change]) -> None:
        self.while_writing()
        for each in changes:
            if each.value is None:
                self.kept.pop(each.key, None)
            else:
                self.kept[each.key] = each.value


class Desired:
    """All names are on b1 alone."""

    def active_of_wire(self, name: str) -> list[str]:
        return ["b1"]

    carriers_of_wire = active_of_wire


class Broker:
    """A broker and its feed; one that is away cannot be asked."""

    has_feed = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.away = False
        self.conversation = self.feed = self

    async def mark(self) -> None:
        if self.away:
            raise ControlError("gone", "away")


def ordered(store: Store, *brokers: Broker) -> RetainedOrder:
    return RetainedOrder(cast(Any, store), cast(Any, Desired()), cast(Any, brokers))


async def delete(found: RetainedOrder, store: Store, name: str) -> None:
    await store.write(list(found.deleted(name, "b1")))


@asyncio_test
async def test_deletions_are_bounded_while_a_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_order, "MOST", 3)
    store = Store()
    found = ordered(store, Broker("b1"), Broker("b2"))
    for name in ("a", "b", "c", "a", "d", "e"):
        await delete(found, store, name)
    assert sorted(store.kept) == ["a", "d", "e"], "the oldest are forgotten"
    assert found.is_stale("e", "b2", None)
    assert not found.is_stale("b", "b2", None)


@asyncio_test
async def test_what_is_deleted_again_meanwhile_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_order, "REVIEW", 0)
    store, b2 = Store(), Broker("b2")
    found = ordered(store, Broker("b1"), b2)
    await delete(found, store, "a")
    again: list[Change] = []

    def delete_again() -> None:
        store.while_writing = lambda: None
        found._read.clear()
        b2.away = True
        again.extend(found.deleted("a", "b1"))

    store.while_writing = delete_again
    reviewing = asyncio.ensure_future(found.review())
    await until(lambda: "a" not in store.kept)
    await store.write(again)
    reviewing.cancel()
    assert store.kept == {"a": b"b1"}
    assert found.is_stale("a", "b2", None)


@asyncio_test
async def test_a_broker_that_was_read_is_waited_for_no_more_though_another_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retained_order, "REVIEW", 0)
    store, b3 = Store(), Broker("b3")
    b3.away = True
    found = ordered(store, Broker("b1"), Broker("b2"), b3)
    await delete(found, store, "a")
    reviewing = asyncio.ensure_future(found.review())
    await until(lambda: "b2" in found._read)
    reviewing.cancel()
    assert "b3" not in found._read
