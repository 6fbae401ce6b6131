"""The identity of a subscriber, and the name of the queue that keeps its messages.

A durable subscription belongs to a container-id and a link name. A router passes an attach on under its own
container-id and a link name that holds both of the client (`enmasse.amqp.termini.passed_on_name`), so behind a router
both are read from there: the subscription is the same whichever router the client comes through.

Names of queues are those of Artemis, `<container>.<link>`, unless two identities would share one: then parts of the
name are percent-escaped. A `.` or `%` of the container-id is, so that the first `.` separates it from the link name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from enmasse.amqp.termini import passed_on_parts
from enmasse.identity.owned import owned, owner

VOLATILE, GLOBAL = ":shared-volatile", ":global"
_LIKE_SUFFIX = re.compile("(:|%(?:25)*3A)(?=(?:shared-volatile|global)$)")
"""Separator of the end of a link name that looks like a suffix of ours, escaped or not."""


class Identity(NamedTuple):
    """Owner and name of a subscription."""

    container: str
    link: str


def identity(container: str, link: str, through_router: bool) -> Identity:
    """Return the client's container-id and its own name for the link."""
    parts = passed_on_parts(link) if through_router else None
    return Identity(container, link) if parts is None else Identity(parts[1], parts[0])


def queue_name(who: Identity, *, durable: bool, shared: bool, everywhere: bool) -> str:
    """Return the name of the queue of a subscription.

    `shared` drops what follows a `|` in the link name; `everywhere` (capability `global`) leaves the container-id out,
    but for its user (enmasse/identity/owned.py).
    """
    link = _LIKE_SUFFIX.sub(_escaped_once, who.link.split("|")[0] if shared else who.link)
    if everywhere:
        link = owned(owner(who.container).principal, link)
    if not everywhere and who.container:
        name = f"{_escaped(who.container)}.{link}"
    else:
        name = link if shared and everywhere else _escaped(link)  # without a `.`: no container-id is in it
    if shared:
        if not durable:
            name += VOLATILE
        if everywhere:
            name += GLOBAL
    return name


def name_of_stored(name: str, container: str | None) -> str:
    """Return the name by which the queue of a stored subscription is found: earlier versions escaped nothing.

    `container` is that of the client that made the subscription.
    """
    if container is None or not name.startswith(f"{container}.") or name.endswith(GLOBAL):
        return name
    return _escaped(container) + name[len(container) :]


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace(".", "%2E")


def _escaped_once(found: re.Match[str]) -> str:
    return "%3A" if found[1] == ":" else f"%25{found[1][1:]}"
