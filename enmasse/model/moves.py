"""The order of a move from broker to broker (docs/contracts.md, "Moves between brokers")."""

from __future__ import annotations

import msgspec


class MoveOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages: these `ids`, or waiting ones that the selector `filter` takes; at most `limit`. `source`: only
    dead letters that came from this address."""

    ids: list[int] | None = None
    filter: str = ""
    limit: int | None = None
    source: str | None = None
