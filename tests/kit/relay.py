"""A relay before a server: what connects to the one port reaches the other one, until the relay ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from tests.kit.running import Listening, server


@contextlib.contextmanager
def relay(port: int, to: int) -> Iterator[None]:
    """Relay connections from a port of loopback to another one as long as the block; at its end they are lost."""

    async def serve(listening: Listening) -> None:
        listener = await asyncio.start_server(connected, "127.0.0.1", port)
        await listening(port)
        listener.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
            with contextlib.closing(far_writer):
                await asyncio.gather(_copied(reader, far_writer), _copied(far_reader, writer))

    with server(serve):
        yield


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
