"""Names of brokers: stable, and legal as names of files and processes."""

from __future__ import annotations

import hashlib
import re
from ipaddress import IPv6Address

from enmasse.model.names import AddressName
from enmasse.process.service_table import SERVICES

_LEGAL = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_OTHERS = frozenset(name for name, service in SERVICES.items() if service.numbered)
"""Flavors whose brokers would have the names of other processes of the suite (`router-0`)."""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def slug(text: str, length: int) -> str:
    """Return `text` in lower case, with `-` for all but letters, digits, `.`, `_` and `-`, cut to `length`."""
    return re.sub(r"[^a-z0-9._-]", "-", text.lower())[:length].strip("._-") or "x"


def base(flavor: str) -> str:
    """Return the prefix of the names of a flavor's brokers, with a hash if sanitising changed the flavor's name."""
    if _LEGAL.fullmatch(flavor) and flavor not in _OTHERS:
        return flavor
    return f"{slug(flavor, 40)}-{_digest(flavor)}"


def pooled(flavor: str, index: int) -> str:
    """Return the name of the `index`-th broker of a flavor's pool, counted from 0."""
    return f"{base(flavor)}-{index}"


def by_hand(host: str, port: int) -> str:
    """Return the name of a broker managed by hand: its endpoint, so that flavors that name the same one share it."""
    if ":" in host:
        host = f"[{IPv6Address(host).exploded}]"  # `::` would separate the address from the queue
    return f"{host.lower()}:{port}"


def is_by_hand(broker: str) -> bool:
    """Return True if the broker of this name is managed by hand: only such names contain a colon."""
    return ":" in broker


def dedicated(flavor: str, address: AddressName) -> str:
    """Return the name of the broker of one address of a `DEDICATED` flavor."""
    return f"{base(flavor)}-{slug(address, 30)}-{_digest(address)}"
