"""Resolves the hosts and ports of listeners and connectors."""

from __future__ import annotations

import asyncio
import socket

from enmasse.text import whole_number

_FAMILIES = {"IPv4": (socket.AF_INET, "0.0.0.0"), "IPv6": (socket.AF_INET6, "::")}  # noqa: S104 - all, when asked for


def port_number(port: str) -> int:
    """Return the port number of a number or a service name (`amqp`). Raises ValueError naming it."""
    number = whole_number(port)
    if number is not None and number < 65536:
        return number
    known = {"amqp": 5672, "amqps": 5671}
    if port in known:
        return known[port]
    try:
        return socket.getservbyname(port, "tcp")
    except OSError:
        raise ValueError(f"port '{port}' is neither a number nor a known service") from None


async def address(host: str, family: str | None) -> str:
    """Return `host`, or its address of the family `IPv4` or `IPv6` if one is requested; an empty host means all
    interfaces. Raises OSError if it has no such address."""
    if family is None:
        return host or _FAMILIES["IPv4"][1]
    wanted, everywhere = _FAMILIES[family]
    if not host:
        return everywhere
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, family=wanted, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(f"host '{host}' has no {family} address: {error.strerror}") from None
    return str(found[0][4][0])
