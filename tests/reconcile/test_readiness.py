"""What is reported of addresses: only what is news, counted, and what was lost stays visible for a while."""

from __future__ import annotations

import pytest

from enmasse.model.feeds import Readiness
from enmasse.model.names import AddressName
from enmasse.reconcile import ReadinessBook, readiness
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

A, B, C = (AddressName(name) for name in "abc")
READY = Readiness(ready=True)
NOT_READY = Readiness(ready=False, message="on its way")


def test_only_what_differs_is_reported() -> None:
    book = ReadinessBook("made again")
    calls: list[int] = []
    book.on_change = lambda: calls.append(1)
    book.put(A, READY)
    book.put(B, NOT_READY)
    book.put(A, Readiness(ready=True))
    assert (len(calls), len(book), book.not_ready) == (2, 2, 1)
    assert book.take() == {"a", "b"}
    assert book.take() == set()
    book.put(B, READY)
    book.put(C, None)
    assert (book.take(), book.not_ready) == ({"b"}, 0)
    book.put(A, None)
    assert book.reports(book.take()) == {}
    assert book.reports(None) == {"b": READY}


def test_thousands_of_the_same_state_are_one_object() -> None:
    book = ReadinessBook("made again")
    for round_ in range(3):
        for number in range(1000):
            book.put(AddressName(f"a{number}"), Readiness(ready=False, message=f"{round_}"))
    states = book.reports(None)
    assert len({id(state) for state in states.values()}) == 1
    assert book.not_ready == 1000


@asyncio_test
async def test_what_was_lost_is_shown_until_it_was_reported() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readiness, "SHOWN", 0.01)
        book = ReadinessBook("made again")
        book.put(A, READY)
        book.take()
        book.lose([A])
        shown = book.get(A)
        assert shown is not None and (shown.ready, shown.message) == (False, "made again")
        book.lose([A])  # once more, while it is shown
        book.put(A, NOT_READY)
        book.put(A, Readiness(ready=True, consumers=2))
        assert book.get(A) == Readiness(ready=False, message="made again", consumers=2)
        patch.setattr(readiness, "SHOWN", 1000.0)
        assert book.take() == {"a"}
        await until(lambda: book.get(A) == Readiness(ready=True, consumers=2))
        assert book.take() == {"a"}


@asyncio_test
async def test_what_was_lost_is_not_hidden_before_it_was_reported() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readiness, "SHOWN", 0.01)
        slow, quick = ReadinessBook("made again"), ReadinessBook("made again")
        for book in (slow, quick):  # in this order they look whether the time is over
            book.put(A, READY)
            book.lose([A])
        quick.take()
        await until(lambda: quick.get(A) == READY)
        assert slow.get(A) != READY, "nobody has seen it yet"
        slow.take()
        await until(lambda: slow.get(A) == READY)


def test_a_state_that_has_gone_is_gone_also_if_something_was_lost() -> None:
    book = ReadinessBook("made again")
    book.put(A, None)
    assert book.get(A) is None and len(book) == 0
