"""One caller leaves others their share of a console: jobs, requests, long bodies; streams are in test_listing.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
from aiohttp import web

from enmasse.api.types import Job
from enmasse.identity.principal import Principal
from services.console.door.access import Caller
from services.console.door.peer_limits import (
    CONNECTIONS_KEY,
    EARLY_BYTES,
    LONG_BODIES,
    REQUESTS_OF_CALLER,
    Connections,
)
from services.console.errors import RequestError
from services.console.jobs import jobs as jobs_module
from services.console.jobs.jobs import MOST, MOST_OF_CALLER, Jobs, Running
from services.console.rest.api import problems
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

EVE, BOB = (Caller("bearer", Principal(name)) for name in ("eve", "bob"))
PURGE = Job(id="", address="a", operation="purge", state="running")


@asyncio_test
async def test_a_user_has_some_of_the_jobs_and_others_get_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "AT_ONCE", 0)
    jobs, go_on = Jobs(), asyncio.Event()

    async def work(running: Running) -> None:
        while not running.stopped and not go_on.is_set():
            await asyncio.sleep(0)

    async def begin(caller: Caller) -> Running:
        return await jobs.begin(caller, PURGE, work, lambda _: None)

    mine = [await begin(EVE) for _ in range(MOST_OF_CALLER)]
    with pytest.raises(RequestError, match=f"eve has {MOST_OF_CALLER} jobs under way") as refused:
        await begin(EVE)
    answer = refused.value.answer()
    assert (answer.status, answer.headers["Retry-After"]) == (429, "2")
    assert (await begin(BOB)).is_running
    mine[0].stopped = True
    await until(lambda: not mine[0].is_running, "one has been cancelled")
    assert (await begin(EVE)).is_running
    with contextlib.ExitStack() as stack:
        while len([each for each in jobs.all() if each.is_running]) < MOST:
            await begin(Caller("bearer", Principal(f"user{len(jobs.all())}")))
        refusal = stack.enter_context(pytest.raises(RequestError, match=f"there are {MOST} jobs"))
        await begin(Caller("bearer", Principal("last")))
    assert refusal.value.answer().status == 503
    go_on.set()
    await jobs.close()


@asyncio_test
async def test_jobs_of_one_user_do_not_push_out_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "KEPT", 10)

    async def work(running: Running) -> None:
        pass

    def done(job: Job) -> None:
        pass

    jobs = Jobs()
    for user, count in ("bob", 3), ("eve", 30):
        for _ in range(count):
            await jobs.begin(EVE, Job(id="", address="a", operation="purge", state="running", user=user), work, done)
    assert [each.first.user for each in jobs.all()] == ["bob"] * 3 + ["eve"] * 7


class Peer(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def status(self) -> tuple[int, str]:
        """Return the status and the header Retry-After of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        lines = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        await self.reader.readexactly(int(lines["content-length"]))
        return int(head.split()[1]), lines.get("retry-after", "")


class Served:
    """A server whose handler counts a request to the user of the header `User`, reads its body, and waits for `go_on`
    at the path /wait."""

    def __init__(self, port: int, waiting: list[str], go_on: asyncio.Event) -> None:
        self.port, self.waiting, self.go_on = port, waiting, go_on

    async def ask(self, user: str, path: str = "/", length: int = 0, body: bytes = b"") -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nUser: {user}\r\nContent-Length: {length}\r\n\r\n"
        writer.write(head.encode() + body)
        return Peer(reader, writer)


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[Served]:
    connections, waiting, go_on = Connections(), list[str](), asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        caller = Caller("bearer", Principal(request.headers["User"]))
        connections.claim(request, caller)
        waiting.append(request.path)
        body = await connections.read_body(request, caller)
        if request.path == "/wait":
            await go_on.wait()
        return web.Response(text=json.dumps(len(body)))

    application = web.Application(middlewares=[problems, connections.middleware], client_max_size=1 << 30)
    application[CONNECTIONS_KEY] = connections
    application.add_routes([web.post("/", handle), web.post("/wait", handle)])
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    assert runner.server is not None
    make = runner.server
    server = await asyncio.get_running_loop().create_server(lambda: connections.guarded(make()), "127.0.0.1", 0)
    try:
        yield Served(server.sockets[0].getsockname()[1], waiting, go_on)
    finally:
        go_on.set()
        server.close()
        await runner.cleanup()


@asyncio_test
async def test_requests_of_a_caller_leave_connections_for_others() -> None:
    async with served() as there:
        held = [await there.ask("eve", "/wait") for _ in range(REQUESTS_OF_CALLER)]
        await until(lambda: len(there.waiting) == REQUESTS_OF_CALLER, "all are under way")
        assert await (await there.ask("eve")).status() == (429, "2")
        assert await (await there.ask("bob")).status() == (200, "")
        held[0].writer.close()
        await until(lambda: held[0].reader.at_eof() or held[0].writer.is_closing())

        async def room() -> bool:
            return (await (await there.ask("eve")).status())[0] == 200

        await until(room, "one has ended")
        there.go_on.set()
        assert {(await each.status())[0] for each in held[1:]} == {200}
        assert await (await there.ask("eve")).status() == (200, "")


@asyncio_test
async def test_long_bodies_of_a_caller_leave_memory_for_others() -> None:
    length, most = EARLY_BYTES + 1, LONG_BODIES[1]
    async with served() as there:
        held = [await there.ask("eve", length=length, body=b"x") for _ in range(most)]
        await until(lambda: len(there.waiting) == most, "all are being read")
        assert await (await there.ask("eve", length=length, body=b"x")).status() == (429, "2")
        assert await (await there.ask("eve", length=3, body=b"abc")).status() == (200, "")
        assert await (await there.ask("bob", length=length, body=b"x" * length)).status() == (200, "")
        held[0].writer.write(b"x" * (length - 1))
        assert await held[0].status() == (200, "")
        assert await (await there.ask("eve", length=length, body=b"x" * length)).status() == (200, "")
