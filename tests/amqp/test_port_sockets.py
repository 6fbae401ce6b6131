"""Sockets for a port."""

from __future__ import annotations

import asyncio
import socket

from enmasse.network.port_sockets import listening


def test_sockets_that_are_accepted_send_small_writes_at_once() -> None:
    async def accepted() -> int:
        loop = asyncio.get_running_loop()
        (server,) = await listening(loop, "127.0.0.1", 0, 1)
        with server, socket.create_connection(server.getsockname()):
            sock, _ = await loop.sock_accept(server)
            with sock:
                return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert asyncio.run(accepted())
