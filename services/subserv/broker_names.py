"""Names of what the service makes on brokers. Pure.

A subscriber has an id: `mqtt.<client>` a session, `share.<group>.<hash>` a shared subscription, else the subscription
id of an AMQP client, all percent-escaped, followed by `@` and the suite's id. Ids of queues that earlier versions have
made have no such end. On a broker its queue and address are `$sub/<broker>/<id>`.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from enmasse.identity.owned import owned, owner, queue_prefix
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.model.names import session_prefix
from enmasse.text import whole_number

NOBODY = Principal(ANONYMOUS)
"""The anonymous user of the default space."""
MARK = "subserv"
"""`user` of the service's queues, followed by `:` and the number of what it was made for."""
FEED = "retained.feed"
"""In place of an id: the queue from which the service takes retained messages. Routers refuse it to
clients by the part before the dot."""
EARLIER_FEED = "retained"
"""As FEED, made by earlier versions."""
MAX_ID = 200
"""Characters of an escaped name; a longer one is replaced by its hash."""
_TAKEN = ("mqtt.", "share.", EARLIER_FEED)


def session_id(client: str) -> str:
    """Return the id of a client's session."""
    return "mqtt." + _escaped(client)


def share_id(group: str, filter: str, user: Principal = NOBODY) -> str:
    """Return the id of the subscription that a group of a user's clients shares. A group's name has no `/`."""
    if user != NOBODY:
        group = owned(user, group)
    digest = hashlib.sha256(f"{group}/{filter}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"share.{_escaped(group)}.{digest}"


def amqp_id(subscription: str) -> str:
    """Return the id of an AMQP client's subscription. No session, shared subscription or feed has the same id."""
    found = owner(subscription)
    if found.principal != NOBODY:  # routers read from the name whose it is
        return queue_prefix(found.principal) + _escaped(found.client)
    name = _escaped(subscription)
    return f"%{ord(name[0]):02X}{name[1:]}" if name.startswith(_TAKEN) else name


def of_suite(id: str, suite: str) -> str:
    """Return `<id>@<suite>`; an escaped id has no `@`."""
    return f"{id}@{suite}"


def suite_of(id: str) -> str:
    """Return the suite's id in an id; empty: an earlier version has made the queue."""
    return id.partition("@")[2]


def plain(id: str) -> str:
    """Return an id without the suite's, as users see it."""
    return id.partition("@")[0]


def queue_name(broker: str, id: str) -> str:
    """Queue and address of a subscriber on a broker."""
    return f"{session_prefix(broker)}/{id}"


def id_of(broker: str, queue: str) -> str | None:
    """Return the id in the name of a queue on this broker; None if it is no subscriber's."""
    prefix = session_prefix(broker) + "/"
    return queue[len(prefix) :] if queue.startswith(prefix) and len(queue) > len(prefix) else None


def divert_name(id: str, pattern: str) -> str:
    """An id has no `|`, because it is escaped."""
    return f"{id}|{pattern}"


def divert_parts(name: str) -> tuple[str, str] | None:
    """Return id and pattern; None if the name is not one of ours."""
    id, bar, pattern = name.partition("|")
    return (id, pattern) if bar and id and pattern else None


def mark(id: str, created: int) -> str:
    """Return the `user` of a queue: `subserv:<suite>:<number>`, which earlier versions do not take for their own."""
    return ":".join((MARK, *filter(None, (suite_of(id),)), str(created)))


def marked(user: str) -> int | None:
    """Return the number in `user`; None if no subscription service has made the queue."""
    name, *_, number = user.split(":") if ":" in user else ("", "")
    return whole_number(number) if name == MARK else None


def _escaped(text: str) -> str:
    name = quote(text, safe="", errors="surrogatepass")
    return name if len(name) <= MAX_ID else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
