"""Management of a suite's routers and brokers, as the operator does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from enmasse.control import Artemis, ControlConnection, connect
from enmasse.process.settings import host_port
from enmasse.testing import Suite

T = TypeVar("T")


def talk(suite: Suite, where: str, work: Callable[[ControlConnection], Coroutine[Any, Any, T]]) -> T:
    """The result of `work` on a connection of the operator to host:port."""

    async def talking() -> T:
        connection = await connect(*host_port(where), container="looking", credential=suite.operator)
        try:
            return await work(connection)
        finally:
            connection.close()
            await connection.wait_closed()

    return asyncio.run(talking())


async def managed(connection: ControlConnection) -> Artemis:
    node = Artemis(connection)
    await node.opened()
    return node


def invoke(suite: Suite, where: str, operation: str, *arguments: Any) -> Any:
    """The result of an operation of the broker at host:port."""

    async def work(connection: ControlConnection) -> Any:
        return await (await managed(connection)).invoke("broker", operation, *arguments)

    return talk(suite, where, work)
