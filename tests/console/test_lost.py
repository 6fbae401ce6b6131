"""What requests get whose connection was lost between the look at it and the first link over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from enmasse.api.types import Job, NewMessage
from enmasse.control import ControlConnection
from enmasse.control.dial import connect, listen
from enmasse.model.moves import MoveOrder
from enmasse.model.names import AddressName
from enmasse.supervisor.feed import StatusFeed
from services.console.errors import RequestError
from services.console.following.configuration import Configuration
from services.console.following.kept import KeptForClients
from services.console.jobs import queue_messages
from services.console.jobs.jobs import Running
from services.console.jobs.moves import carry
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


@asynccontextmanager
async def lost() -> AsyncIterator[ControlConnection]:
    listener = await listen("127.0.0.1", 0, lambda connection: None, container="peer")
    connection = await connect("127.0.0.1", listener.port, container="console")
    connection.abort()
    await until(lambda: connection.is_gone)
    try:
        yield connection
    finally:
        await listener.close()


def reached(connection: ControlConnection) -> Any:
    async def found() -> ControlConnection:
        return connection

    return SimpleNamespace(router=SimpleNamespace(reached=found))


async def send(connection: ControlConnection) -> None:
    await queue_messages.send(reached(connection), AddressName("a"), "a", NewMessage(body="x"), None)


async def force(connection: ControlConnection) -> None:
    await Configuration._deliver(SimpleNamespace(_connection=connection), "force", b"")  # type: ignore[arg-type] # the one field that is used


async def look_at_wills(connection: ControlConnection) -> None:
    kept = KeptForClients(Mock(), reached(connection).router.reached)
    await kept.wills.renew()


@pytest.mark.parametrize("request_", [send, force, look_at_wills])
def test_it_is_unavailable(request_: Callable[[ControlConnection], Coroutine[Any, Any, None]]) -> None:
    @asyncio_test
    async def main() -> None:
        async with lost() as connection:
            with pytest.raises(RequestError) as caught:
                await request_(connection)
            assert caught.value.id == "console.service.unavailable"

    main()


@asyncio_test
async def test_a_move_waits_for_the_broker() -> None:
    looks = 0
    job = Running(Job(id="", address="q", operation="move", state="running"))

    async with lost() as connection:

        class Node:
            async def reached(self) -> ControlConnection:
                nonlocal looks
                looks += 1
                if looks > 2:
                    job.stopped = True
                return connection

        live: Any = SimpleNamespace(node=lambda name: Node())
        await carry(live, "one", "other", "q", "to", MoveOrder(), job)
    assert looks > 2


@asyncio_test
async def test_the_supervisors_order_says_that_it_was_not_taken() -> None:
    async with lost() as connection:
        feed: Any = SimpleNamespace(_connection=connection)
        assert "did not take it" in str(await StatusFeed.force(feed, ["a"]))
