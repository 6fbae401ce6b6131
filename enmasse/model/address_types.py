"""The types of addresses and their traits: the table that services ask, instead of comparing the words.

A further type is a row here, if its traits are among these (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

AddressType = Literal["queue", "topic", "anycast", "multicast"]
StoredType = Literal["queue", "topic"]
"""The form of an address on a broker."""
FlavorType = Literal["queue", "topic", "router"]
"""`router` is read only, of what earlier versions have stored: it had no effect."""


class Traits(NamedTuple):
    """Properties that distinguish a type from the others."""

    entity: StoredType | None = None
    """The form in which a broker stores it; None: routers pass messages on and store nothing."""
    fan_out: bool = False
    """Each receiver gets each message; otherwise one of them does."""
    levels: bool = False
    """The names below its name belong to it, as topics of MQTT and of subscriptions. Routers lead whole links to its
    broker; messages for all its names use one link, the anonymous one. Without levels routers have a waypoint, or the
    receivers, at exactly its name."""
    takes_dead_letters: bool = False
    """`deadletter` and `expiry` of other addresses may name it. Its messages can be looked at and moved."""
    flavor: StoredType | None = None
    """The type of its flavors; None: it has none, routers carry it."""

    @property
    def stored(self) -> bool:
        """Return True if brokers store its messages."""
        return self.entity is not None

    @property
    def broadcast(self) -> bool:
        """Return True if each attached receiver gets each message, and there may be none."""
        return self.fan_out and self.entity is None

    @property
    def distribution(self) -> str:
        """Return how a router distributes its messages."""
        return "multicast" if self.fan_out else "balanced"


TYPES: Mapping[AddressType, Traits] = {
    "queue": Traits(entity="queue", flavor="queue", takes_dead_letters=True),
    "topic": Traits(entity="topic", flavor="topic", fan_out=True, levels=True),
    "anycast": Traits(),
    "multicast": Traits(fan_out=True),
}


def type_of(entry: Mapping[str, Any]) -> AddressType | None:
    """Return the type that an entry of addresses.json states, in either notation; None if it states none."""
    if (written := entry.get("type")) is not None:
        return next((name for name in TYPES if name == written), None)
    stored, fan_out = entry.get("store_and_forward"), entry.get("multicast")
    return next((name for name, has in TYPES.items() if stored is has.stored and fan_out is has.fan_out), None)
