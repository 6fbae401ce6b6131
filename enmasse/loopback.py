"""Addresses that only this machine reaches. No sockets: names are not resolved."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return True for a loopback address, also one of IPv4 within IPv6, and for the name localhost."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
