"""Sockets of UDP."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress

BUFFER = 4 << 20
"""Bytes of datagrams that wait to be read, as far as the machine allows."""


async def bound(loop: asyncio.AbstractEventLoop, host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Return sockets that receive on all addresses of `host` ("" or "*": on all there are). `shared`: other processes
    may receive there too, each gets the datagrams of a part of the senders. Raises OSError if that fails."""
    found = await loop.getaddrinfo(
        None if host in ("", "*") else host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError:
                continue  # the name has an address of a family that this machine does not have
            sockets.append(sock)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            sock.bind(address)
            sock.setblocking(False)
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, "the name has no address of this machine")
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets
