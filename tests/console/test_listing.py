"""Streams of a list, without a suite."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import ClientResponse, ClientSession, TCPConnector, web

from enmasse.identity.principal import Principal
from enmasse.model.names import DEFAULT_SPACE
from services.console.door.access import Caller
from services.console.errors import RequestError
from services.console.following.rows import Rows
from services.console.rest import listing
from services.console.rest.api_operations import Call, Operation
from services.console.rest.listing import WATCHERS, WATCHERS_OF_CALLER, Listing, Lists
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

SMALL = 4096
"""Bytes of the buffers of sockets: what a client does not read shows at once."""


class Row(msgspec.Struct):
    name: str
    count: int
    filler: str = ""


class Served:
    """A list behind a port. `transports`: of the streams, in the order of their requests."""

    def __init__(self, lists: Lists, port: int, transports: list[asyncio.Transport]) -> None:
        self.lists = lists
        self.port = port
        self.transports = transports

    async def stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Ask for a stream over a connection that takes a few kilobytes until somebody reads."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=client, limit=SMALL)
        before = len(self.transports)
        writer.write(b"GET /?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(self.transports) > before, "the request is there")
        return reader, writer


class Always:
    """Logins that do not end."""

    def ended(self, caller: Caller) -> str | None:
        return None

    def left(self, caller: Caller) -> float:
        return float("inf")


@asynccontextmanager
async def served(rows: Rows[Row], shown: Callable[[Caller, Row], Row | None] | None = None) -> AsyncIterator[Served]:
    """Serve the rows. The header `User` names the caller."""
    of_rows: Listing[Row] = Listing(
        rows=rows, shown=shown or (lambda _, row: row), filters={}, sorts={}, kinds={}
    )  # fmt: skip
    lists = Lists(Always())
    transports: list[asyncio.Transport] = []

    async def answer(call: Call) -> Any:
        return await lists.answer(of_rows, call)

    async def handle(request: web.Request) -> Any:
        assert isinstance(request.transport, asyncio.Transport)
        transports.append(request.transport)
        user = request.headers.get("User")
        caller = Caller("anonymous", None if user is None else Principal(user))
        try:
            return await operation.handler(Call(request, caller, operation))
        except RequestError as error:
            return error.answer()

    operation = Operation(
        method="GET", path="/", id="list", text="", handler=answer, parameters=of_rows.parameters, watched=True
    )  # fmt: skip
    application = web.Application()
    application.add_routes([web.get("/", handle)])
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    listener.bind(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    try:
        yield Served(lists, listener.getsockname()[1], transports)
    finally:
        lists.close()
        await runner.cleanup()
        listener.close()


async def events(reader: asyncio.StreamReader) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a stream."""
    name, rest = "", b""
    while part := await reader.read(65536):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b"event: "):
                name = line[7:].decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])


class _Logged:
    """Keeps the events of a logger."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))


FEW, FILLER = 300, "x" * 2000
"""Rows that are larger together than everything between console and client can keep."""
CHANGES = 34
"""Of each row."""


def test_a_client_that_does_not_read_gets_each_row_once_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand changes while it does not read cost the console no memory, and reach it as the newest rows."""
    monkeypatch.setattr(listing, "STEP", 0.01)
    known = dict.fromkeys((f"{number:03d}" for number in range(FEW)), 0)
    rows: Rows[Row] = Rows(lambda: known, lambda name: Row(name, known[name], FILLER))

    async def main() -> None:
        async with served(rows) as there:
            slow, slow_writer = await there.stream()
            (transport,) = there.transports
            await until(lambda: transport.get_write_buffer_size() > 0, "the client is behind")
            other, other_writer = await there.stream()
            seen: dict[str, int] = {}
            kept = 0
            following = events(other)
            for change in range(1, 1 + CHANGES):
                for name in known:
                    known[name] = change
                    rows.changed({name}, other_keys=False)
                while set(seen.values()) != {change}:  # it gets each change, or the test ends here
                    _, data = await anext(following)
                    seen.update((row["name"], row["count"]) for row in data["items"])
                kept = max(kept, transport.get_write_buffer_size())
            assert kept < 2 * listing.FIRST * len(FILLER)
            assert there.lists.watching.count == 2
            heard: dict[str, int] = {}
            sizes: list[tuple[str, int]] = []
            async for kind, data in events(slow):
                heard.update((row["name"], row["count"]) for row in data["items"])
                sizes.append((kind, len(data["items"])))
                if set(heard.values()) == {CHANGES}:
                    break
            assert len(heard) == FEW and sizes[0][0] == "snapshot"
            assert sum(size for _, size in sizes) <= 2 * FEW, sizes
            slow_writer.close()
            other_writer.close()
            await until(lambda: there.lists.watching.count == 0, "the streams have ended")

    asyncio_test(main)()


def test_a_client_that_never_reads_is_closed_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "STALLED", 0.5)
    logged = _Logged()
    monkeypatch.setattr(listing, "_log", logged)
    rows: Rows[Row] = Rows(lambda: [f"{number:03d}" for number in range(FEW)], lambda name: Row(name, 0, FILLER))

    async def main() -> None:
        async with served(rows) as there:
            _, writer = await there.stream()
            await until(lambda: logged.events, "a line about it")
            await until(lambda: there.lists.watching.count == 0, "the stream has ended")
            assert there.transports[0].is_closing() and there.transports[0].get_write_buffer_size() == 0
            assert logged.events == [
                (
                    "console.stream.closed",
                    {
                        "who": "anonymous",
                        "path": "/",
                        "reason": "the client has not read for 0.5 s",
                        "space": DEFAULT_SPACE,
                    },
                )
            ]
            writer.close()

    asyncio_test(main)()


def test_rows_that_go_while_a_snapshot_is_sent_are_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a caller that views only parts of them."""
    monkeypatch.setattr(listing, "STEP", 0.01)
    known = {f"{number:03d}": 0 for number in range(FEW)}
    rows: Rows[Row] = Rows(lambda: known, lambda name: Row(name, known[name], FILLER) if name in known else None)

    async def main() -> None:
        async with served(rows, lambda _, row: Row(row.name, 0, row.filler)) as there:
            reader, writer = await there.stream()
            await until(lambda: there.transports[0].get_write_buffer_size() > 0, "the client is behind")
            gone = {name for name in known if name.endswith("9")}
            for name in gone:
                del known[name]
            rows.changed(gone)
            seen: set[str] = set()
            async for _, data in events(reader):
                seen = (seen | {row["name"] for row in data["items"]}) - set(data["removed"])
                if seen == known.keys():
                    break
            writer.close()

    asyncio_test(main)()


def test_streams_are_limited_by_user_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"a": 1}
    rows: Rows[Row] = Rows(lambda: known, lambda name: Row(name, known[name]))

    async def main() -> None:
        async with served(rows) as there, contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(ClientSession(connector=TCPConnector(limit=0)))

            async def asked(user: str) -> ClientResponse:
                return await client.get(f"http://127.0.0.1:{there.port}/?watch=1", headers={"User": user})

            users = [f"user{number}" for number in range(WATCHERS // WATCHERS_OF_CALLER)]
            streams = [await asked(user) for user in users for _ in range(WATCHERS_OF_CALLER)]
            assert {each.status for each in streams} == {200} and there.lists.watching.count == WATCHERS
            for user, status, id in ("user0", 429, "caller.busy"), ("another", 503, "watchers.too-many"):
                refused = await asked(user)
                assert (refused.status, refused.headers["Retry-After"]) == (status, "2")
                assert (await refused.json())["type"].endswith(f"/console.{id}")
            for each in (streams[0], streams[-1]):
                each.close()
            await until(lambda: there.lists.watching.count == WATCHERS - 2, "two have ended")
            assert [(await asked(user)).status for user in ("user0", "user0", "another")] == [200, 429, 200]

    asyncio_test(main)()


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

    async def changing() -> None:
        while True:
            name = "hidden" if hidden == "others" else "seen"
            known[name] += 1
            rows.changed({name})
            # pause: the rate of the changes
            await asyncio.sleep(0.005)

    async def main() -> None:
        async with served(rows, shown) as there:
            reader, writer = await there.stream()
            task = asyncio.create_task(changing())
            lines: list[bytes] = []
            while lines.count(b": \n") < 3:
                lines.append(await reader.readline())
            task.cancel()
            assert [line for line in lines if line.startswith(b"event:")] == [b"event: snapshot\n"]
            writer.close()

    asyncio_test(main)()
