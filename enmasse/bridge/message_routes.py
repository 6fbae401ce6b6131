"""Routes of messages from clients: the address that takes them, and the link to it."""

from __future__ import annotations

from typing import Final

from enmasse.model.address_types import TYPES, AddressType, Traits
from enmasse.model.topic_map import TopicOwner

REPLIES: Final = Traits(fan_out=True)
"""Traits of the reply addresses of AMQP clients: a message that no client waits for is no failure."""


class Route:
    """Route of the messages of one name. `to` is their properties.to; `link` the address of the link that takes them,
    None: the anonymous relay; `wire`: name on AMQP to which one sends without the relay."""

    __slots__ = ("link", "name", "to", "traits", "type", "wire")

    def __init__(self, name: str, type: AddressType | None, link: str | None, to: str, wire: str = "") -> None:
        self.name = name
        """Name of the address, for messages to users."""
        self.type = type
        """None: an AMQP client's reply address."""
        self.traits = REPLIES if type is None else TYPES[type]
        self.link = link
        self.to = to
        self.wire = wire or link or to

    @property
    def address(self) -> str:
        """Name on AMQP to which a client of the address space replies."""
        return self.to if self.link is None else self.name


def link_of(owner: TopicOwner) -> str | None:
    """Return the address of the link that takes messages for an owner; None: the anonymous relay."""
    return None if owner.traits.levels else owner.wire
