"""Which of the messages that come by a binding are let through."""

from __future__ import annotations

from services.broker.selector import Lookup, Selector


class Condition:
    """`filter`: the selector a message must match, None = all do. `no_local`: the container-id whose messages are not
    let through, None = there is none."""

    __slots__ = ("filter", "no_local")

    def __init__(self, filter: Selector | None = None, no_local: str | None = None) -> None:
        self.filter = filter
        self.no_local = no_local

    @property
    def open(self) -> bool:
        """Whether every message is let through."""
        return self.filter is None and self.no_local is None

    def admits(self, lookup: Lookup, origin: str) -> bool:
        """Of a message with these properties, sent from container `origin`."""
        if self.no_local is not None and self.no_local == origin:
            return False
        return self.filter is None or self.filter.matches(lookup)
