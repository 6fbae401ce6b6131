"""Sockets for a port: all addresses of a host, IPv4 and IPv6 beside each other."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress
from typing import Any, Final

DATAGRAMS: Final = 4 << 20
"""Bytes of datagrams that wait to be read, as far as the machine allows."""


async def listening(
    loop: asyncio.AbstractEventLoop, host: str, port: int, backlog: int, *, shared: bool = False
) -> list[socket.socket]:
    """Return sockets that listen on all addresses of `host` ("" or "*": on all there are). `shared`: other processes
    may listen there too, each gets a part of those who connect. Raises OSError if that fails."""
    return await _bound(loop, host, port, shared=shared, backlog=backlog)


async def receiving(
    loop: asyncio.AbstractEventLoop, host: str, port: int, *, shared: bool = False
) -> list[socket.socket]:
    """Return sockets of UDP that receive on all addresses of `host` ("" or "*": on all there are). `shared`: other
    processes may receive there too, each gets the datagrams of a part of the senders. Raises OSError if that fails."""
    return await _bound(loop, host, port, shared=shared, backlog=None)


async def _bound(
    loop: asyncio.AbstractEventLoop, host: str, port: int, *, shared: bool, backlog: int | None
) -> list[socket.socket]:
    """Return bound sockets. `backlog`: with it they listen; None: of UDP."""
    type_ = socket.SOCK_DGRAM if backlog is None else socket.SOCK_STREAM
    found = await loop.getaddrinfo(None if host in ("", "*") else host, port, type=type_, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError:
                continue  # the name has an address of a family that this machine does not have
            sockets.append(sock)
            bind(sock, address, shared=shared, backlog=backlog)
            sock.setblocking(False)
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, "the name has no address of this machine")
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def bind(sock: socket.socket, address: tuple[Any, ...], *, shared: bool, backlog: int | None) -> None:
    """Bind a socket, of IPv6 to that alone. `backlog`: with it the socket listens; None: of UDP. Raises OSError."""
    if backlog is None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DATAGRAMS)
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # also of the sockets that it accepts
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(address)
    if backlog is not None:
        sock.listen(backlog)
