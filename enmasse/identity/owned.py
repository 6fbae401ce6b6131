"""Names of what clients own (MQTT sessions and wills, AMQP containers), so that no user reaches another's, in whichever
address space.

The text is a key towards the services that keep what clients own. In the default space it names no space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.model.names import DEFAULT_SPACE, SPACE, space_error, space_of

MARK: Final = "~"
"""First character of the names of users' clients."""
IN: Final = "@"
"""Separates the user from the address space, unless that is the default one: `~USER@SPACE/CLIENT`."""
MAX_PREFIX: Final = 3 * 255 + 2 + 64
"""The most characters that `owned` puts in front of a client's own id: a user name has up to 255 bytes, a space 63."""

_SUBSCRIBERS: Final = ("mqtt.", "share.")
_HASH: Final = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{32})?")
_RENAMED: Final = re.compile(r"^%[0-9]+\.")
"""Prefix that the broker puts before the name of a subscription when another queue is to have that name."""


class Owner(NamedTuple):
    """A user in an address space, and the id that the user's client has chosen."""

    user: str
    client: str
    space: str = DEFAULT_SPACE

    @property
    def principal(self) -> Principal:
        """Return the user. The groups are not known."""
        return Principal(self.user, space=self.space)


def owned(principal: Principal, client: str) -> str:
    """Return the name of a principal's client: `~USER/CLIENT`, or `~USER@SPACE/CLIENT`, with the user percent-escaped.
    The anonymous user has no name there; its clients in the default space are called by the id itself, or `~/CLIENT` if
    that begins with `~`. No two triples of user, space and client have the same name."""
    name, _, space = principal
    within = "" if space == DEFAULT_SPACE else IN + space
    if name == ANONYMOUS:
        return f"{MARK}{within}/{client}" if within or client.startswith(MARK) else client
    return f"{MARK}{quote(name, safe='', errors='surrogatepass')}{within}/{client}"


def queue_prefix(principal: Principal) -> str:
    """Return how the ids of the queues of a user's subscriptions by `$subctrl` begin; empty: the anonymous user's of
    the default space, of which none begins with `~`, but with `~%2F`."""
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
    stated, slash, client = name[1:].partition("/")
    user, mark, space = stated.partition(IN)
    if not name.startswith(MARK) or not slash or (mark and space_error(space) is not None):
        return Owner(ANONYMOUS, name)
    try:
        found = unquote(user, errors="surrogatepass") if user else ANONYMOUS
    except UnicodeDecodeError:  # escapes of a part of a character
        return Owner(ANONYMOUS, name)
    return Owner(found, client, space or DEFAULT_SPACE)


def space_of_subscription(kind: str, client: str, names: Sequence[str]) -> str:
    """Return the address space of a subscription: of its client, else of what its filters match. `kind`: as in
    enmasse/model/sessions.py."""
    if kind in ("mqtt", "amqp"):
        return owner(client).space
    return space_of(names[0]) if names else DEFAULT_SPACE


def space_of_queue(address: str) -> str:
    """Return the address space of a broker's address, or of the queue of a subscription, also of one that the
    subscription service has made for a session; empty: the name is a hash and does not tell."""
    if address.startswith(SPACE):
        return space_of(address)
    if not address.startswith("$sub/"):
        return owner_of_subscription(address).space
    id = address.rpartition("/")[2].partition("@")[0]
    for prefix in _SUBSCRIBERS:
        id = id.removeprefix(prefix)
    return "" if _HASH.fullmatch(id) else owner(unquote(id, errors="surrogatepass")).space
