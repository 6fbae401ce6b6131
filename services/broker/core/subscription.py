"""The identity of a subscriber, and the name of the queue that keeps its messages.

A durable subscription belongs to a container-id and a link name. A router passes an attach on under its own
container-id with the link name `<name>@<client's container-id>`, so behind a router both are read from there: the
subscription is the same whichever router the client comes through.
"""

from __future__ import annotations

from typing import NamedTuple


class Identity(NamedTuple):
    container: str
    link: str


def identity(container: str, link: str, through_router: bool) -> Identity:
    """The client's container-id and its own name for the link."""
    if through_router:
        name, at, client = link.rpartition("@")
        if at and name and client:
            return Identity(client, name)
    return Identity(container, link)


def queue_name(who: Identity, *, durable: bool, shared: bool, everywhere: bool) -> str:
    """As Artemis names it: `<container>.<link>`; `shared` drops what follows a `|` in the name; `everywhere`
    (capability `global`) leaves the container out."""
    name = who.link if everywhere or not who.container else f"{who.container}.{who.link}"
    if shared:
        name = name.split("|")[0]
        if not durable:
            name += ":shared-volatile"
        if everywhere:
            name += ":global"
    return name
