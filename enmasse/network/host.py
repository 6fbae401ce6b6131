"""Hosts, for limits that count by host. No sockets."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


@lru_cache(maxsize=4096)  # asked several times for each connection
def counted_host(address: str) -> str:
    """Return the host that an address counts for: with IPv6 its first 64 bits, of which a single peer has all
    addresses; one of IPv4 within IPv6 counts as that of IPv4. Other texts are unchanged."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)
