"""The loop that all controllers share, tried with a toy: what is done is counted, nothing is timed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from enmasse.model.names import AddressName
from enmasse.network.backoff import Waits
from enmasse.reconcile import NEVER, NOW, Reconciler, Step, reconciler
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.reconcile.toy import Shelf, ToyController


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come soon: what is tested is that they come."""
    monkeypatch.setattr(reconciler, "AGAIN", Waits(0.01, 0.01))
    monkeypatch.setattr(reconciler, "REFUSED", Waits(0.01, 0.01))


@asynccontextmanager
async def working(toy: ToyController) -> AsyncIterator[ToyController]:
    task = asyncio.ensure_future(toy.reconciler.run())
    try:
        yield toy
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def equal(toy: ToyController) -> Callable[[], bool]:
    return lambda: toy.shelf.things == toy.desired and toy.actual == toy.desired


@asyncio_test
async def test_what_is_desired_comes_to_be_and_what_is_not_goes() -> None:
    shelf = Shelf()
    shelf.things = {"my-old": "x", "my-b": "other", "theirs": "y"}
    async with working(ToyController(shelf, "")) as toy:
        toy.deliver("", {"my-a": "1", "my-b": "2"})
        await until(lambda: shelf.things == {"my-a": "1", "my-b": "2", "theirs": "y"})
        await until(lambda: toy.ready("my-a") and toy.ready("my-b"))
        assert {"my-a", "my-b", "my-old"} <= set(toy.judged)
        await until(lambda: toy.book.reports(None).keys() == {"my-a", "my-b"} and toy.book.not_ready == 0)


@asyncio_test
async def test_one_changed_key_among_thousands_costs_work_for_one() -> None:
    shelf = Shelf()
    async with working(ToyController(shelf, "")) as toy:
        things = {f"my-{number}": "1" for number in range(5000)}
        toy.deliver("", things)
        await until(equal(toy))
        assert shelf.changes() == 5000, "each was made once"
        assert max(toy.batches) == 100, "at most a batch is under way"
        shelf.requests.clear()
        toy.deliver("", {**things, "my-7": "2"})
        await until(equal(toy))
        assert shelf.requests == {("put", "my-7"): 1, ("get", "my-7"): 1}


@asyncio_test
async def test_removed_and_added_again() -> None:
    shelf = Shelf()
    async with working(ToyController(shelf, "")) as toy:
        toy.deliver("", {"my-a": "1"})
        await until(equal(toy))
        toy.deliver("", {})
        await until(lambda: not shelf.things)
        toy.deliver("", {"my-a": "2"})
        await until(equal(toy))
        toy.deliver("", {})
        toy.deliver("", {"my-a": "2"})  # before anybody could look
        shelf.requests.clear()
        toy.deliver("", {"my-a": "2", "my-b": "1"})
        await until(equal(toy))
        assert ("take", "my-a") not in shelf.requests


@asyncio_test
async def test_nothing_is_deleted_before_every_source_has_delivered() -> None:
    shelf = Shelf()
    shelf.things = {"my-x-1": "1", "my-y-1": "1", "my-y-2": "1"}
    async with working(ToyController(shelf, "x", "y")) as toy:
        toy.deliver("x", {"my-x-1": "2", "my-x-2": "1"})
        await until(lambda: shelf.things.get("my-x-2") == "1" and shelf.things["my-x-1"] == "2")
        await until(lambda: toy.ready("my-x-1"))
        assert shelf.things.keys() == {"my-x-1", "my-x-2", "my-y-1", "my-y-2"}
        toy.deliver("x", {"my-x-2": "1"})
        await until(lambda: not toy.reconciler.is_pending("my-x-1"))
        assert "my-x-1" in shelf.things
        toy.deliver("y", {"my-y-2": "1"})
        await until(equal(toy))
        assert shelf.things.keys() == {"my-x-2", "my-y-2"}


@asyncio_test
async def test_an_answer_that_is_lost_leads_to_reading_everything() -> None:
    shelf = Shelf()
    async with working(ToyController(shelf, "")) as toy:
        toy.deliver("", {f"my-{number}": "1" for number in range(250)})
        await until(equal(toy))
        shelf.requests.clear()
        shelf.lose_answers = 3
        toy.deliver("", {f"my-{number}": "2" for number in range(250)})
        await until(equal(toy))
        assert toy.failures == ["no answer"] * 3
        assert toy.conversations == 4
        assert shelf.requests["list", ""] >= 1
        assert shelf.requests["put", "my-0"] <= 2, "what was done before the loss is not done again without need"


@asyncio_test
async def test_what_is_refused_is_shown_and_tried_again() -> None:
    shelf = Shelf()
    shelf.refuses = {"my-b": "no room"}
    async with working(ToyController(shelf, "")) as toy:
        toy.deliver("", {"my-a": "1", "my-b": "1"})
        await until(lambda: toy.reconciler.refused == {"my-b": "no room"} and shelf.things == {"my-a": "1"})
        await until(lambda: shelf.requests["put", "my-b"] > 2)
        assert shelf.requests["put", "my-a"] == 1
        shelf.refuses = {}
        await until(equal(toy))
        assert toy.reconciler.refused == {}


@asyncio_test
async def test_refused_and_then_not_desired_any_more() -> None:
    shelf = Shelf()
    shelf.refuses = {"my-b": "no room"}
    async with working(ToyController(shelf, "")) as toy:
        toy.deliver("", {"my-b": "1"})
        await until(lambda: "my-b" in toy.reconciler.refused)
        toy.deliver("", {})
        await until(lambda: not toy.reconciler.refused)
        assert toy.judged.count("my-b") >= 2


@asyncio_test
async def test_applied_is_what_was_read_back() -> None:
    shelf = Shelf()
    shelf.forgets = {"my-a"}
    async with working(ToyController(shelf, "")) as toy:
        toy.deliver("", {"my-a": "1"})
        await until(lambda: toy.reconciler.refused == {"my-a": "is not there"})
        assert not toy.ready("my-a")
        shelf.forgets = set()
        await until(equal(toy))


@asyncio_test
async def test_the_sweep_finds_what_nobody_has_reported() -> None:
    shelf = Shelf()
    async with working(ToyController(shelf, "", sweep=0.01)) as toy:
        toy.deliver("", {"my-a": "1", "my-b": "1"})
        await until(equal(toy))
        del shelf.things["my-a"]
        shelf.things["my-c"] = "left over"
        await until(equal(toy))
        assert toy.lost == ["my-a"]
        assert (state := toy.book.get(AddressName("my-a"))) is not None and state.message == "was lost, and put back"


@asyncio_test
async def test_every_change_counts_whatever_is_under_way() -> None:
    """A key that changes while it is applied is applied again."""
    shelf = Shelf()
    async with working(ToyController(shelf, "")) as toy:
        for version in range(50):
            toy.deliver("", {f"my-{number}": str(version) for number in range(20)})
            await asyncio.sleep(0)
        await until(equal(toy))


@asyncio_test
async def test_steps_of_one_controller_come_after_changes_and_before_the_sweep() -> None:
    order: list[str] = []
    due = {"first": NEVER, "second": NEVER}

    class Recorded(ToyController):
        async def sweep(self) -> float:
            order.append("sweep")
            return await super().sweep()

    toy = Recorded(Shelf(), "")

    async def step(name: str) -> None:
        due[name] = NEVER
        order.append(name)
        assert all(map(toy.ready, toy.desired))

    toy.reconciler = Reconciler(
        toy,
        changed=toy.judged.extend,
        lost=toy.lost.extend,
        errors=(),
        steps=(
            Step(lambda: due["first"], lambda: step("first")),
            Step(lambda: due["second"], lambda: step("second")),
        ),
    )
    due.update(first=NOW, second=NOW)
    async with working(toy):
        toy.deliver("", {"my-a": "1"})
        await until(lambda: order == ["first", "second", "sweep"])
        due["second"] = asyncio.get_running_loop().time() + 0.01
        toy.reconciler.wake()
        await until(lambda: order == ["first", "second", "sweep", "second"])


@asyncio_test
async def test_it_ends_with_what_it_manages() -> None:
    shelf = Shelf()
    toy = ToyController(shelf, "")
    toy.deliver("", {"my-a": "1"})
    shelf.lose_answers = 1
    toy.is_gone = True
    await toy.reconciler.run()
    assert toy.conversations == 0
    toy.is_gone = False
    task = asyncio.ensure_future(toy.reconciler.run())
    await until(equal(toy))
    toy.is_gone = True
    shelf.lose_answers = 1
    toy.deliver("", {"my-a": "2"})
    await task


@asyncio_test
async def test_a_step_that_is_cancelled_loses_no_key() -> None:
    """As a connection is lost: whoever reconciles is cancelled in the middle, and runs again later."""
    shelf = Shelf()
    toy = ToyController(shelf, "")
    toy.deliver("", {f"my-{number}": "1" for number in range(300)})
    for _ in range(20):
        async with working(toy):
            await asyncio.sleep(0)
    async with working(toy):
        await until(equal(toy))
