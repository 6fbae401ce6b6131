"""WebSocket in tests: frames by hand, and a port that makes any client of TCP one of WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence

import aiohttp

from tests.kit.loop_thread import LoopThread
from tests.kit.waiting import DEADLINE

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIN, MASKED = 0x80, 0x80


def frame(payload: bytes, opcode: int = BINARY, *, masked: bool = True, last: bool = True) -> bytes:
    """Return a frame of a client."""
    size = len(payload)
    if size < 126:
        length = bytes((size,))
    elif size < 0x10000:
        length = b"\x7e" + size.to_bytes(2, "big")
    else:
        length = b"\x7f" + size.to_bytes(8, "big")
    first = bytes((opcode | (FIN if last else 0),))
    if not masked:
        return first + length + payload
    mask = os.urandom(4)
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return first + bytes((length[0] | MASKED,)) + length[1:] + mask + body


class RawWebSocket:
    """A client that sends what it likes. `status`: of the handshake; `head`: of the answer."""

    def __init__(self, port: int, *headers: str, path: str = "/", behind: bytes = b"") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        lines = [
            f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", *headers,
        ]  # fmt: skip
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + behind)
        self._got = b""
        while b"\r\n\r\n" not in self._got:
            self._more()
        head, _, self._got = self._got.partition(b"\r\n\r\n")
        self.head = head.decode()
        self.status = int(head.split()[1])

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionResetError("the gateway has closed the connection")
        self._got += data

    def _take(self, size: int) -> bytes:
        while len(self._got) < size:
            self._more()
        data, self._got = self._got[:size], self._got[size:]
        return data

    def rest(self) -> bytes:
        """Return what else comes until the gateway closes the connection."""
        with contextlib.suppress(ConnectionResetError):
            while True:
                self._more()
        return self._got

    def next(self) -> tuple[int, bytes]:
        """Return opcode and payload of the next frame. Raises ConnectionResetError at the end."""
        first, size = self._take(2)
        if size in (126, 127):
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return first & 0x0F, self._take(size)

    def close_code(self) -> int | None:
        """Return the code with which the gateway closes; None: it closes the socket without one."""
        try:
            while True:
                opcode, payload = self.next()
                if opcode == CLOSE:
                    return int.from_bytes(payload[:2], "big")
        except ConnectionError:
            return None

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def __enter__(self) -> RawWebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


class Tunnel:
    """`url`: of the WebSocket. `source`: the address of the client. `record`: bytes of each message that is sent at
    most, so that frames end anywhere."""

    def __init__(
        self,
        url: str,
        protocols: Sequence[str] = ("amqp",),
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        headers: Mapping[str, str] | None = None,
        source: str = "127.0.0.1",
        record: int = 1 << 16,
    ) -> None:
        self._source = source
        self._url = url
        self._protocols = protocols
        self._tls = tls
        self._server_name = server_name
        self._headers = headers or {}
        self._record = record
        self.port = 0
        self.refused: list[int] = []
        """HTTP statuses of handshakes that failed."""
        self.chosen: list[str | None] = []
        """Subprotocols that were chosen."""
        self._loop = LoopThread()
        self._loop.call(self._listen())

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(self._source, 0))) as session:
                try:
                    socket = await session.ws_connect(
                        self._url, protocols=self._protocols, headers=self._headers, ssl=self._tls or True,
                        server_hostname=self._server_name, autoping=True, max_msg_size=0,
                    )  # fmt: skip
                except aiohttp.WSServerHandshakeError as error:
                    self.refused.append(error.status)
                    return
                self.chosen.append(socket.protocol)
                sending = asyncio.ensure_future(self._send(reader, socket))
                with contextlib.suppress(ConnectionError):
                    async for message in socket:
                        writer.write(message.data)
                        await writer.drain()
                sending.cancel()

    async def _send(self, reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(self._record):
                await socket.send_bytes(data)
        await socket.close()

    def close(self) -> None:
        self._loop.loop.call_soon_threadsafe(self._server.close)
        self._loop.stop()


@contextlib.contextmanager
def tunnel(
    url: str,
    protocols: Sequence[str] = ("amqp",),
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    headers: Mapping[str, str] | None = None,
    source: str = "127.0.0.1",
    record: int = 1 << 16,
) -> Iterator[Tunnel]:
    """Give a tunnel, and close it."""
    found = Tunnel(url, protocols, tls=tls, server_name=server_name, headers=headers, source=source, record=record)
    try:
        yield found
    finally:
        found.close()
