"""What a client of STOMP keeps in memory that does not read, or that leaves in the middle of a frame."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from enmasse.identity.login import Login
from enmasse.network.small_reads import SmallReads
from services.stomp_gateway import stomp_client
from services.stomp_gateway.stomp_client import StompClient
from services.stomp_gateway.stomp_clients import StompClients
from services.stomp_gateway.stomp_peers import StompPeer, StompWire
from services.stomp_gateway.stomp_sockets import StompSocket
from services.stomp_gateway.stomp_web import StompWebPeer, StompWebServer
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
RECEIPT = b"r" * 16_000
PAIR = b"BEGIN\ntransaction:t\nreceipt:%b\n\n\0ABORT\ntransaction:t\nreceipt:%b\n\n\0" % (RECEIPT, RECEIPT)
BODY = b"SEND\ndestination:a\ncontent-length:1000000\n\n" + bytes(900_000)


class Clients(StompClients):
    """Lets everybody in; there is nothing behind it."""

    def __init__(self) -> None:
        super().__init__(1 << 20, 256 << 20)
        self.made: list[StompClient] = []
        self.port = self.web = 0

    def connected(self, wire: StompWire, peer: StompPeer) -> StompClient:
        self.made.append(super().connected(wire, peer))
        return self.made[-1]

    async def enter(self, client: StompClient, headers: dict[str, str]) -> tuple[Login, Any]:
        login: Any = SimpleNamespace(principal=SimpleNamespace(space="", name="me", full_name="me"))
        return login, SimpleNamespace()

    def leave(self, client: StompClient) -> None:
        """There is nothing to forget."""


@asynccontextmanager
async def gateway() -> AsyncIterator[Clients]:
    clients = Clients()
    loop = asyncio.get_running_loop()
    web_server = StompWebServer(clients, ())

    def plain() -> SmallReads:
        return SmallReads(StompSocket(clients, lambda _: None, lambda: None, 1, None))

    def web() -> asyncio.Protocol:
        return web_server.accept(StompWebPeer(1, None, web_server.forget, lambda: None))

    servers = [await loop.create_server(make, "127.0.0.1", 0) for make in (plain, web)]
    clients.port, clients.web = (each.sockets[0].getsockname()[1] for each in servers)
    yield clients
    for server in servers:
        server.close()
    for each in clients.made:
        each._wire.abort()
    await web_server.close()


class Plain:
    """A client that reads when it is told to."""

    @classmethod
    @asynccontextmanager
    async def of(cls, clients: Clients) -> AsyncIterator[Plain]:
        found = cls()
        found.reader, found.writer = await asyncio.open_connection("127.0.0.1", clients.port, limit=1 << 10)
        yield found
        found.writer.transport.abort()

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self) -> bytes:
        return await self.reader.read(1 << 16)


class Web:
    """The same over WebSocket."""

    @classmethod
    @asynccontextmanager
    async def of(cls, clients: Clients) -> AsyncIterator[Web]:
        found = cls()
        url = f"http://127.0.0.1:{clients.web}/stomp"
        async with aiohttp.ClientSession() as session:
            found.socket = await session.ws_connect(url, protocols=("v12.stomp",), max_msg_size=0)
            yield found
            if (connection := found.socket._response.connection) is not None and connection.transport is not None:
                connection.transport.abort()

    socket: aiohttp.ClientWebSocketResponse

    async def write(self, data: bytes) -> None:
        await self.socket.send_bytes(data)

    async def read(self) -> bytes:
        message = await self.socket.receive()
        return message.data if isinstance(message.data, bytes) else b""


def inside(kind: type[Plain | Web], test: Callable[[Plain | Web, StompClient], Awaitable[None]]) -> None:
    @asyncio_test
    async def run() -> None:
        async with gateway() as clients, kind.of(clients) as client:
            await client.write(CONNECT)
            assert (await client.read()).startswith(b"CONNECTED")
            await test(client, clients.made[0])

    run()


KINDS = pytest.mark.parametrize("kind", [Plain, Web])


async def flood(client: Plain | Web) -> None:
    """Ask for receipts without reading them, until the gateway reads no further and the socket is full."""
    with suppress(OSError):
        for _ in range(3000):
            await client.write(PAIR)


@KINDS
def test_a_client_that_does_not_read_is_not_read(kind: type[Plain | Web]) -> None:
    async def test(client: Plain | Web, found: StompClient) -> None:
        flooding = asyncio.create_task(flood(client))
        await until(lambda: flooding.done() or not found._reading, "the gateway reads no further")
        assert not found._reading
        assert found._wire.unsent < 4 << 20
        got = 0
        while got < 2 * 3000 * len(RECEIPT):
            got += len(await client.read())
        await flooding
        await until(lambda: found._reading and found.frames_in == 1 + 2 * 3000, "all is read once it has taken that")

    inside(kind, test)


@KINDS
def test_a_client_that_takes_nothing_is_cut(kind: type[Plain | Web], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_client, "UNREAD_SECONDS", 0.2)

    async def test(client: Plain | Web, found: StompClient) -> None:
        flooding = asyncio.create_task(flood(client))
        await until(lambda: flooding.done() or found.ended, "it is cut")
        assert found.ended
        await flooding

    inside(kind, test)


@KINDS
def test_a_frame_that_does_not_end_is_forgotten_with_its_connection(kind: type[Plain | Web]) -> None:
    async def test(client: Plain | Web, found: StompClient) -> None:
        await client.write(BODY)
        await until(lambda: found._parser.kept >= 900_000)
        if isinstance(client, Plain):
            client.writer.transport.abort()
        else:
            await client.socket.close()
        await until(lambda: found.ended)
        assert not found._parser.kept

    inside(kind, test)


def test_a_client_that_has_left_is_freed_at_once() -> None:
    """Not when the garbage collector runs, which is rarely."""

    @asyncio_test
    async def run() -> None:
        gc.disable()
        try:
            async with gateway() as clients, Plain.of(clients) as client:
                await client.write(CONNECT + BODY)
                await until(lambda: clients.made[0]._parser.kept >= 900_000)
                left = weakref.ref(clients.made.pop())
                client.writer.transport.abort()
                await until(lambda: left() is None, "nothing refers to it")
        finally:
            gc.enable()

    run()
