"""HTTP of the suite in front of clients that begin and do not go on: they are ended, and keep nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from enmasse.http.webserver import WebServer
from enmasse.supervisor import web
from enmasse.supervisor.suite import Supervisor
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
ORDER = (
    b"POST /api/scale HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer secret\r\nContent-Length: 100\r\n\r\n"
)
SECRET = "secret"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Quiet:
    """A suite that is not ready. Its status has `size` bytes; `asked`: how often it was requested."""

    operator_secret = SECRET

    def __init__(self, size: int = 0) -> None:
        self.size, self.asked = size, 0

    async def refresh(self) -> None:
        """Nothing has to be asked."""

    def status_text(self) -> bytes:
        self.asked += 1
        return b"x" * self.size

    def brief(self) -> dict[str, Any]:
        return {"schema": 1, "ready": False}


@asynccontextmanager
async def serving(suite: Quiet, **bounds: Any) -> AsyncIterator[WebServer]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = web.serve(listening, cast(Supervisor, suite), web.BOUNDS._replace(**bounds))
    yield server
    server.close()


async def connect(port: int, data: bytes) -> Streams:
    streams = await asyncio.open_connection("127.0.0.1", port)
    streams[1].write(data)
    return streams


async def rest(streams: Streams) -> bytes:
    """What comes until the connection is ended."""
    reader, writer = streams
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@asyncio_test
@pytest.mark.parametrize("half", [b"", b"G", HEAD, HEAD + b"X-Odd: " + b"x" * 2000])
async def test_half_a_head_is_not_waited_for(half: bytes) -> None:
    async with serving(Quiet(), request_seconds=0.2) as server:
        assert await rest(await connect(server.port, half)) == b""
        assert b"503" in await rest(await connect(server.port, HEAD + b"\r\n"))


@asyncio_test
async def test_half_a_body_is_not_waited_for() -> None:
    async with serving(Quiet(), request_seconds=0.2) as server:
        assert (await rest(await connect(server.port, ORDER + b'{"service"'))).startswith(b"HTTP/1.1 408")


@asyncio_test
async def test_a_second_half_is_not_waited_for() -> None:
    """A connection is for one request."""
    async with serving(Quiet()) as server:
        answer = await rest(await connect(server.port, HEAD + b"Connection: keep-alive\r\n\r\n" + HEAD))
        assert answer.startswith(b"HTTP/1.1 503") and b"Connection: close" in answer


@asyncio_test
async def test_a_head_is_bounded() -> None:
    async with serving(Quiet()) as server:
        answer = await rest(await connect(server.port, HEAD + b"X-Odd: " + b"x" * 100_000))
        assert answer == b"" or b" 431 " in answer.partition(b"\r\n")[0]


@asyncio_test
async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    suite = Quiet(64 << 20)
    async with serving(suite, answer_seconds=0.2) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(b"GET /api/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n")
            await until(lambda: suite.asked)
            assert b"503" in await rest(await connect(server.port, HEAD + b"\r\n"))
            await until(lambda: server.connections == 0)
            slow.settimeout(DEADLINE)

            def read() -> bytes:
                found = bytearray()
                with contextlib.suppress(ConnectionResetError):
                    while data := slow.recv(1 << 20):
                        found += data
                return bytes(found)

            found = await asyncio.to_thread(read)
            assert found.startswith(b"HTTP/1.1 200") and len(found) < suite.size


@asyncio_test
async def test_silent_connections_keep_nobody_out() -> None:
    async with serving(Quiet(), connections=3, request_seconds=3600) as server:
        silent = [await connect(server.port, HEAD) for _ in range(10)]
        assert b"503" in await rest(await connect(server.port, HEAD + b"\r\n"))
        for _, writer in silent:
            writer.close()


@asyncio_test
async def test_the_body_of_a_request_that_is_refused_is_not_read() -> None:
    """Its answer comes before the body does, and the connection gives way to others."""
    async with serving(Quiet(), connections=2) as server:
        order = ORDER.replace(b"Bearer secret", b"Bearer wrong").replace(b"Length: 100", b"Length: 1000000")
        slow = [await connect(server.port, order) for _ in range(2)]
        for reader, _ in slow:
            assert (await reader.readline()).startswith(b"HTTP/1.1 401")
        assert b"503" in await rest(await connect(server.port, HEAD + b"\r\n"))
        for _, writer in slow:
            writer.close()
