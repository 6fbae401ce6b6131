"""Transport of an accepted socket with TLS: what the protocol above sees, on both loops."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path

import pytest

from enmasse.network import tls_handshake
from enmasse.network.tls_transport import LITTLE, MUCH, TlsTransport
from tests.amqp.server_kit import BOTH, run
from tests.certificates import Authority
from tests.kit.waiting import DEADLINE, until


class Seen(asyncio.Protocol):
    """What a transport tells; `pieces` are what was received."""

    def __init__(self) -> None:
        self.transport: TlsTransport | None = None
        self.pieces: list[bytes] = []
        self.ended: list[str] = []

    @property
    def there(self) -> TlsTransport:
        assert self.transport is not None
        return self.transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)

    def eof_received(self) -> None:
        self.ended.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.append("lost" if exc is None else type(exc).__name__)


async def connected(
    authority: Authority, *, shutdown: float | None = None
) -> tuple[Seen, ssl.SSLSocket, socket.socket]:
    """Return what the server sees, the client, and the client's socket below TLS, a duplicate."""
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    below = peer.dup()
    seen = Seen()
    agreeing = asyncio.create_task(
        tls_handshake.connect(lambda: seen, ours, authority.server_context(), patience=DEADLINE, shutdown=shutdown)
    )
    client = await asyncio.to_thread(authority.client_context().wrap_socket, peer, server_hostname="localhost")
    await agreeing
    return seen, client, below


@BOTH
def test_bytes_come_and_go_whole_and_in_order(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    sent = os.urandom(1 << 20)

    async def main() -> None:
        seen, client, below = await connected(authority)
        await asyncio.to_thread(client.sendall, sent[:100_000])
        await until(lambda: sum(map(len, seen.pieces)) == 100_000, "the first part")
        assert max(map(len, seen.pieces)) <= LITTLE + (17 << 10)
        seen.there.read_much()
        await asyncio.to_thread(client.sendall, sent[100_000:])
        await until(lambda: sum(map(len, seen.pieces)) == len(sent), "all of it")
        assert b"".join(seen.pieces) == sent
        assert max(map(len, seen.pieces)) <= MUCH + (17 << 10)

        def received() -> bytes:
            found = b""
            while len(found) < len(sent):
                found += client.recv(65536)
            return found

        seen.there.write(memoryview(sent))
        assert await asyncio.to_thread(received) == sent
        seen.there.abort()
        await until(lambda: seen.ended == ["lost"], "the end")
        client.close()
        below.close()

    run(loop, main)


@BOTH
def test_nothing_is_read_while_the_protocol_has_paused(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        seen, client, below = await connected(authority)
        client.sendall(b"before")
        await until(lambda: seen.pieces == [b"before"], "the first record")
        seen.there.pause_reading()
        client.sendall(b"x" * 5000)
        client.sendall(b"y" * 5000)
        assert seen.pieces == [b"before"]
        seen.there.resume_reading()
        await until(lambda: b"".join(seen.pieces[1:]) == b"x" * 5000 + b"y" * 5000, "what came meanwhile")
        seen.there.abort()
        client.close()
        below.close()

    run(loop, main)


@BOTH
def test_the_end_is_told_by_tls_in_both_directions(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        seen, client, below = await connected(authority)
        seen.there.write(b"last words")
        seen.there.close()
        seen.there.write(b"dropped")
        assert seen.there.is_closing()
        assert await asyncio.to_thread(client.recv, 100) == b"last words"
        client.sendall(b"discarded")
        assert await asyncio.to_thread(client.recv, 100) == b""
        await asyncio.to_thread(client.unwrap)
        await until(lambda: seen.ended == ["lost"], "the end")
        assert not seen.pieces
        below.close()
        seen, client, below = await connected(authority)
        await asyncio.to_thread(client.unwrap)
        await until(lambda: seen.ended == ["eof", "lost"], "the end by the client")
        below.close()

    run(loop, main)


@BOTH
def test_a_peer_that_does_not_answer_the_end_is_dropped(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        seen, client, below = await connected(authority, shutdown=0.05)
        seen.there.close()
        await until(lambda: seen.ended == ["lost"], "the end")
        client.close()
        below.close()

    run(loop, main)


@BOTH
def test_bytes_that_are_no_record_end_the_connection_with_an_alert(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        seen, client, below = await connected(authority)
        client.sendall(b"before")
        below.send(b"no record of TLS" * 10)
        await until(lambda: seen.ended == ["SSLError"], "the end")
        assert seen.pieces == [b"before"]
        with pytest.raises(ssl.SSLError, match="ALERT"):
            await asyncio.to_thread(client.recv, 100)
        client.close()
        below.close()

    run(loop, main)
