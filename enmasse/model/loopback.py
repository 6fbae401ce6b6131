"""Addresses that only this machine reaches, and requests of web pages to them. No sockets: names are not resolved.

A page of another site whose name was made to resolve to an address of ours (DNS rebinding) is for its browser of our
site. It states its own name in the Host header, by which we tell it.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts by which a client on this machine names it."""


def is_loopback(host: str) -> bool:
    """Return True for a loopback address, also one of IPv4 within IPv6, and for the name localhost."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def host_of(url: str) -> str | None:
    """Return the host of a URL, or of a Host header after `//`; None: it has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def may_be_rebound(host: str) -> bool:
    """Return whether a request with this Host header may come from a page of another site: it names neither loopback
    nor an address."""
    name = host_of(f"//{host}")
    try:
        return name not in NAMES and not ipaddress.ip_address(name or "")
    except ValueError:
        return True
