"""Condition of a binding: which of its messages are passed on."""

from __future__ import annotations

from services.broker.core.messages.properties import marks_of
from services.broker.selector import Lookup, Selector


class Condition:
    """`filter`: the selector a message must match, None = all do. `no_local`: the container-id whose messages are not
    let through, None = all are. `marks`: a message whose bytes hold none of these texts is not let through, whatever
    else it contains; None: the filter implies no such texts."""

    __slots__ = ("_filter", "marks", "no_local", "weight")

    def __init__(self, filter: Selector | None = None, no_local: str | None = None) -> None:
        self.filter = filter
        self.no_local = no_local

    @property
    def filter(self) -> Selector | None:
        """The selector that a message must match, None: all do."""
        return self._filter

    @filter.setter
    def filter(self, filter: Selector | None) -> None:
        self._filter = filter
        self.weight = 0 if filter is None else filter.weight
        self.marks = marks_of(filter) if filter is not None else None

    @property
    def open(self) -> bool:
        """Whether every message is let through."""
        return self._filter is None and self.no_local is None

    def admits(self, lookup: Lookup, origin: str) -> bool:
        """Return whether a message with these properties, sent from container `origin`, is let through."""
        if self.no_local is not None and self.no_local == origin:
            return False
        return self._filter is None or self._filter.matches(lookup)
