"""Condition of a binding: which of its messages are passed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.broker.core.messages.selector_values import marks_of
from services.broker.selector import Lookup, Selector, compile_selector


class Condition:
    """`filter`: the selector a message must match, None = all do. `no_local`: the container-id whose messages are not
    let through, None = all are. `marks`: a message whose bytes hold none of these texts is not let through, whatever
    else it contains; None: the filter implies no such texts."""

    __slots__ = ("_filter", "marks", "no_local", "weight")

    def __init__(self, filter: Selector | None = None, no_local: str | None = None) -> None:
        self.filter = filter
        self.no_local = no_local

    @classmethod
    def of(cls, filter: str | None) -> Condition:
        """Return the condition of a selector's text; None or "": all messages. Raises SelectorError."""
        return cls(compile_selector(filter) if filter else None)

    @classmethod
    def stored(cls, definition: Mapping[str, Any]) -> Condition:
        """Return the condition in a stored definition; that of a divert has a filter only."""
        condition = cls.of(definition["filter"])
        condition.no_local = definition.get("noLocal")
        return condition

    def definition(self) -> dict[str, str | None]:
        """Return the part of a stored definition that `stored` reads."""
        return {"filter": self.text, "noLocal": self.no_local}

    @property
    def parts(self) -> tuple[str | None, ...]:
        """Everything that makes it differ from another one."""
        return self.text, self.no_local

    @property
    def text(self) -> str | None:
        """The text of the selector."""
        return None if self._filter is None else self._filter.text

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
