"""Which names addresses, queues and diverts can have; the words for kinds of addresses."""

from __future__ import annotations

from services.broker.core import errors
from services.broker.core.wildcards import MAX_NAME

ANYCAST, MULTICAST = "ANYCAST", "MULTICAST"
MANAGEMENT = "activemq.management"
SUBSCRIPTIONS = "$sub/"
"""Beginning of the names of queues of the subscription service, one for each subscriber."""
_MOST_ANY = 4
"""Levels `#` of a pattern: each of them has every further level of a name compared once more."""


def check_name(name: str, longest: int = MAX_NAME) -> None:
    """Check a name. Raises BrokerError if no address, queue or divert can have it."""
    if not name or len(name) > longest or any(c < " " or c == "\x7f" for c in name):
        raise errors.bad_name(name[:80])
    if name.count("#") > _MOST_ANY and name.split("/").count("#") > _MOST_ANY:
        raise errors.too_general(name, _MOST_ANY)
