"""Names of what clients own (MQTT sessions and wills, AMQP containers), so that no user reaches another's.

The text is a key towards the services that keep what clients own. There is one address space, so it has no space.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from enmasse.identity.principal import ANONYMOUS, Principal

MARK: Final = "~"
"""First character of the names of users' clients."""
MAX_PREFIX: Final = 3 * 255 + 2
"""The most characters that `owned` puts in front of a client's own id: a user name has up to 255 bytes."""

_RENAMED: Final = re.compile(r"^%[0-9]+\.")
"""Prefix that the broker puts before the name of a subscription when another queue is to have that name."""


class Owner(NamedTuple):
    """A user and the id that the user's client has chosen."""

    user: str
    client: str


def owned(principal: Principal, client: str) -> str:
    """Return the name of a principal's client: `~USER/CLIENT` with the user percent-escaped. The anonymous user's is
    the id itself, or `~/CLIENT` if that begins with `~`: no two pairs of user and client have the same name."""
    if principal.name == ANONYMOUS:
        return f"{MARK}/{client}" if client.startswith(MARK) else client
    return f"{MARK}{quote(principal.name, safe='', errors='surrogatepass')}/{client}"


def queue_prefix(principal: Principal) -> str:
    """Return how the ids of the queues of a user's subscriptions by `$subctrl` begin; empty: the anonymous user's, of
    which none begins with `~`, but with `~%2F`."""
    return quote(owned(principal, ""), safe="")


def owner_of_subscription(queue: str) -> Owner:
    """Return whose subscription has a queue of this name at the embedded broker, by its container-id
    (services/broker/core/routing/subscription.py names them); the anonymous user's, if no user is stated."""
    name = _RENAMED.sub("", queue)
    if not name.endswith(":global"):  # else the container-id is left out, and nothing is escaped
        name = name.partition(".")[0].replace("%2E", ".").replace("%25", "%")
    return owner(name)


def owner(name: str) -> Owner:
    """Return whose client has this name. Of a name that `owned` does not write: the anonymous user's, unchanged."""
    user, slash, client = name[1:].partition("/")
    if not name.startswith(MARK) or not slash:
        return Owner(ANONYMOUS, name)
    try:
        return Owner(unquote(user, errors="surrogatepass") if user else ANONYMOUS, client)
    except UnicodeDecodeError:  # escapes of a part of a character
        return Owner(ANONYMOUS, name)
