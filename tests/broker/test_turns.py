"""A broker's turns go by address space: the number of queues, jobs and links of one does not matter to another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from services.broker import server
from services.broker.core.jobs import MANY
from services.broker.core.queues.queue import Queue
from services.broker.core.turn_shares import LIGHT
from services.broker.server import BrokerServer
from tests.broker.sansio import Core
from tests.broker.test_shares import counted

HEAVY = " OR ".join(["n = 1"] * LIGHT)
MOST = 50
FEW = "!!few/q"
NAMES = [*(f"!!many/q{n}" for n in range(MOST)), FEW]


def _queues(core: Core) -> list[Queue]:
    """Many of one space, which come first, and one of another."""
    return [core.queue(name, durable=False) for name in NAMES]


def _turns(run: Callable[[], object], done: Callable[[], bool]) -> int:
    """Return how many turns it takes until this is true."""
    for turns in range(1, 10 * MOST):
        run()
        if done():
            return turns
    raise AssertionError("it does not come to an end")


def test_queues_are_dispatched_by_space() -> None:
    core = Core()
    queues = _queues(core)
    for queue in queues:
        core.consumer(queue, 10, HEAVY)
        core.send("x", queue.name, properties={"n": 1})
    run = lambda: core.broker.run_pending(lambda: True)  # noqa: E731  # a portion
    assert _turns(run, lambda: queues[-1].dispatcher.delivering > 0) == 2
    assert _turns(run, lambda: all(queue.dispatcher.delivering for queue in queues)) <= MOST


def test_jobs_are_done_by_space() -> None:
    core = Core()
    core.broker.share = counted(0)  # nothing is finished where it is begun
    queues = _queues(core)
    for queue in queues:
        core.send("x", queue.name)
        queue.disposal.purge()
    run = lambda: core.broker.jobs.run(lambda: True)  # noqa: E731  # a portion
    assert _turns(run, lambda: not queues[-1].count) == 2
    assert _turns(run, lambda: not any(queue.count for queue in queues)) <= 2 * MOST


@pytest.mark.parametrize("kind", ["expired", "due"])
def test_a_tick_does_a_share_of_work_and_the_rest_is_done_by_space(kind: str) -> None:
    """Messages of many queues expire, or are due, at once: the first queues are served in the tick."""
    core = Core()
    queues = _queues(core)
    for queue in queues:
        if kind == "expired":
            core.send("x", queue.name, ttl=0.1)
        else:
            core.send("x", queue.name, annotations={"x-opt-delivery-delay": 100})
    core.broker.share = counted(3)

    def served(queue: Queue) -> bool:
        return not queue.count if kind == "expired" else not queue.schedule

    core.tick(1000)
    assert 0 < sum(map(served, queues)) < 5
    run = lambda: core.broker.jobs.run(lambda: True)  # noqa: E731  # a portion
    assert served(queues[-1]) or _turns(run, lambda: served(queues[-1])) <= 4
    assert _turns(run, lambda: all(map(served, queues))) <= 3 * MOST


def test_links_that_look_at_queues_continue_by_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ends_after", lambda seconds: lambda: True)
    order: list[str] = []

    async def main() -> None:
        made = BrokerServer(Core().broker, asyncio.get_running_loop())
        for _ in range(MANY):
            made._later(lambda: order.append("many"), "many")
        made._later(lambda: order.append("few"), "few")
        while len(order) <= MANY:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert order.index("few") == 1
