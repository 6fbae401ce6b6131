"""Routes of messages from clients: the address that takes them, and the link to it."""

from __future__ import annotations

from typing import Final

from enmasse.identity.permissions import Rights
from enmasse.model.address_types import TYPES, AddressType, Traits
from enmasse.model.names import router_form
from enmasse.model.permission_words import Operation
from enmasse.model.topic_map import TopicMap, TopicOwner
from enmasse.text import did_you_mean

REPLIES: Final = Traits(fan_out=True)
"""Traits of the reply addresses of AMQP clients: a message that no client waits for is no failure."""
LONGEST_COMPARED: Final = 100
"""Characters of a name up to which one that is like it is looked for."""
MOST_COMPARED: Final = 200
"""Addresses up to which a name is compared with all of them: a gateway carries no messages meanwhile."""


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


def unknown_address(name: str, topics: TopicMap, operation: Operation, rights: Rights | None) -> str:
    """Return that there is no address `name`, and which one may be meant: one that the client may use for what it
    tried. `rights`: of the client, None: all."""

    def may(address: str) -> bool:
        return rights is None or rights.allows(operation, address)

    text = f"there is no address {name[:100]!r}"
    if len(name) > LONGEST_COMPARED:
        return text
    levels = router_form(name)
    if levels != name and topics.owner_of_wire(levels) is not None and may(levels):
        return f"{text}; its levels are separated by /: {levels!r}"
    known = topics.names
    hint = did_you_mean(name, filter(may, known)) if len(known) <= MOST_COMPARED else ""
    return f"{text}.{hint}" if hint else text
