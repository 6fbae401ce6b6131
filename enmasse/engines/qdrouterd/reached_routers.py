"""Routes of a Qpid Dispatch router to others of its network, from its management."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

NODE: Final = "org.apache.qpid.dispatch.router.node"
FIELDS: Final = ("id", "routerLink", "nextHop", "cost")
_SELF: Final = "(self)"


def routes(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the other routers that are reached, with the cost and the next router on the way. Dispatch lists one for a
    minute after it was lost."""
    found = {}
    for row in rows:
        id, hop = str(row["id"]), row.get("nextHop")
        if hop != _SELF and (hop is not None or row.get("routerLink") is not None):
            cost = row.get("cost")  # an integer of AMQP, which JSON does not know
            found[id] = {"cost": None if cost is None else int(cost), "next": id if hop is None else str(hop)}
    return found
