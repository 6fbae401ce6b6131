"""Names of brokers: stable, and legal as names of files and processes."""

from __future__ import annotations

import hashlib
import re
from ipaddress import IPv6Address

from enmasse.model.names import AddressName

_LEGAL = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_OTHERS = frozenset({"router", "mqtt_gateway"})
"""Flavors whose brokers would be named as other processes of the suite are (`router-0`)."""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def slug(text: str, length: int) -> str:
    """Lower case, everything but letters, digits, `.`, `_` and `-` replaced, cut to `length`."""
    return re.sub(r"[^a-z0-9._-]", "-", text.lower())[:length].strip("._-") or "x"


def base(flavor: str) -> str:
    """What the names of a flavor's brokers begin with. A hash tells apart what sanitising would make alike."""
    if _LEGAL.fullmatch(flavor) and flavor not in _OTHERS:
        return flavor
    return f"{slug(flavor, 40)}-{_digest(flavor)}"


def pooled(flavor: str, index: int) -> str:
    """The name of the `index`-th broker of a flavor's pool, from 0."""
    return f"{base(flavor)}-{index}"


def by_hand(host: str, port: int) -> str:
    """The name of a broker that people manage: where it listens, so flavors that name the same one have one broker."""
    if ":" in host:
        host = f"[{IPv6Address(host).exploded}]"  # `::` would part a queue's name from its address's
    return f"{host.lower()}:{port}"


def is_by_hand(broker: str) -> bool:
    """Whether people manage the broker of this name: no other has a colon."""
    return ":" in broker


def dedicated(flavor: str, address: AddressName) -> str:
    """The name of the broker that one address of a `DEDICATED` flavor has for itself."""
    return f"{base(flavor)}-{slug(address, 30)}-{_digest(address)}"
