"""Names of peers, as events and lists of connections have them: host:port."""

from __future__ import annotations

import asyncio
import socket


def peer_name(transport: asyncio.BaseTransport) -> str:
    """Return host:port of the peer, "?" if it has gone."""
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else str(name or "?")


def peer_of_socket(sock: socket.socket) -> str:
    """Return host:port of the peer of an accepted socket, "?" if it has gone."""
    try:
        return "{}:{}".format(*sock.getpeername()[:2])
    except (OSError, IndexError):
        return "?"
