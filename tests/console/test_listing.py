"""Streams of a list, without a suite."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from services.console import listing
from services.console.access import Caller
from services.console.listing import Listing, Lists
from services.console.operations import Call, Operation
from services.console.rows import Rows
from tests.kit.running import asyncio_test


class Row(msgspec.Struct):
    name: str
    count: int


@pytest.mark.parametrize("hidden", ["others", "parts"])
def test_what_a_caller_may_not_view_is_not_told_by_what_a_stream_leaves_out(
    hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While only that changes, heartbeats come as in a quiet stream, and no event."""
    monkeypatch.setattr(listing, "HEARTBEAT", 0.05)
    monkeypatch.setattr(listing, "STEP", 0.01)
    known = {"seen": 0, "hidden": 0}
    rows: Rows[Row] = Rows(lambda: known, lambda name: Row(name, known[name]))

    def shown(_: Caller, row: Row) -> Row | None:
        return None if row.name == "hidden" else Row(row.name, 0)

    of_rows = Listing(rows=rows, shown=shown, filters={}, sorts={}, kinds={})
    lists = Lists(lambda _: True)

    async def answer(call: Call) -> Any:
        return await lists.answer(of_rows, call)

    async def handle(request: web.Request) -> Any:
        return await operation.handler(Call(request, Caller("anonymous"), operation))

    operation = Operation(
        method="GET", path="/", id="list", text="", handler=answer, parameters=of_rows.parameters, watched=True
    )  # fmt: skip

    async def changing() -> None:
        while True:
            name = "hidden" if hidden == "others" else "seen"
            known[name] += 1
            rows.changed({name})
            await asyncio.sleep(0.005)

    async def main() -> None:
        application = web.Application()
        application.add_routes([web.get("/", handle)])
        async with TestClient(TestServer(application)) as client:
            answer = await client.get("/?watch=1")
            task = asyncio.create_task(changing())
            lines: list[bytes] = []
            while lines.count(b": \n") < 3:
                lines.append(await answer.content.readline())
            task.cancel()
            assert [line for line in lines if line.startswith(b"event:")] == [b"event: snapshot\n"]
            answer.close()

    asyncio_test(main)()
