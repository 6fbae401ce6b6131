"""Requests of a source or target, read alike by router and broker: capabilities and subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enmasse.amqp.codec.types import Symbol

MESSAGE_IDENTITY = "message-identity"
"""Capability of a receiver's link, desired and offered: the delivery-tag names the message, also with the next delivery
of it. The broker's; with rcv-settle-mode second it does so unasked."""
MOVES = "message-moves"
"""Property of links by which an administrator moves messages from broker to broker (docs/contracts.md, "Moves between
brokers"): which messages a receiver wants, in JSON, true at a sender, and true in the broker's answer."""
SENDER = "enmasse.sender"
"""Property of a link to a broker, which routers set and never pass on: whose messages come over it (binary,
enmasse/identity/senders.py), or true: the last bytes of each delivery-tag say it."""
SPACE = "x-opt-enmasse-space"
"""Property of a link to a broker, which routers set and never pass on: the address space of the client, if it is not
the default one. Messages of such an anonymous link state names of that space, and a temporary queue belongs to it."""
CLIENT = "enmasse.of-client"
"""Property of a link to a broker, which routers set and never pass on for a client: user, container-id and host:port of
the client, for events of refusals; an empty list for a process of the suite, which logs its own."""
NAMED_TRANSACTIONS = "named-transactions"
"""Capability of a link to a broker's coordinator, which routers desire and the broker offers them: the global id of a
declare is the id of the transaction."""
FOR_OWNER = "x-opt-enmasse-for-owner"
"""Property of a link of a process that acts for clients, true: its name is a `passed_on_name`, which says whose the
subscription is. Routers never pass it on."""
CONSUMER = "x-opt-consumer"
"""Key in the info of a rejection's error, which routers set for brokers: the consumer behind the router."""


def passed_on_name(link: str, container: str) -> str:
    """Return the name of a link that a router passes on for a client: `<link>@<container>`.

    `%` and `@` in the container-id are escaped as `%25` and `%40`, so that the last `@` separates the two. A
    container-id without them is unchanged. The client's name of a link may be empty.
    """
    return f"{link}@{container.replace('%', '%25').replace('@', '%40')}"


def passed_on_parts(name: str) -> tuple[str, str] | None:
    """Return link name and container-id of the client in a `passed_on_name`; None if the name is another one."""
    link, separator, container = name.rpartition("@")
    if not separator or not container:
        return None
    return link, container.replace("%40", "@").replace("%25", "%")


def stated(properties: Mapping[Any, Any], sender: bytes, space: str, client: list[str]) -> dict[Any, Any]:
    """Return the properties of a link to a broker: what a client states of the facts that routers set is replaced by
    what is true. `sender` empty: none; `space` empty: the default one; `client`: see CLIENT."""
    found = {name: value for name, value in properties.items() if name not in (SENDER, SPACE, FOR_OWNER, CLIENT)}
    found[Symbol(CLIENT)] = client
    if sender:
        found[Symbol(SENDER)] = sender
    if space:
        found[Symbol(SPACE)] = space
    return found


def capabilities(terminus: Any) -> frozenset[str]:
    """Return the capabilities of a source or target, in small letters; none for a coordinator, or for no terminus."""
    return frozenset(str(c).lower() for c in (getattr(terminus, "capabilities", None) or ()))


def subscription_kind(source: Any) -> str:
    """Return the kind of subscription a source asks for, which only a topic has: a `durable` or a `shared`
    subscription; "" for neither."""
    if source.durable or source.expiry_policy == "never":
        return "durable"
    return "shared" if "shared" in capabilities(source) else ""
