"""Selectors: the SQL-92 subset of JMS 2.0 §3.8.1 with Artemis' identifiers, compiled to a closure."""

from __future__ import annotations

from collections.abc import Callable

Lookup = Callable[[str], object]
"""identifier -> value (str, bool, int, float) or None where the message has none (also for values of other types)"""


class SelectorError(ValueError):
    """The text is no selector; `position` is the offset of the character where it stops being one."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at position {position}")
        self.reason = reason
        self.position = position


class Selector:
    """A compiled selector. `matches(lookup)` never raises for any value the lookup returns; unknown is not a match."""

    text: str
    identifiers: frozenset[str]
    matches: Callable[[Lookup], bool]


def compile_selector(text: str) -> Selector:
    """Raises SelectorError. Equal texts share one compiled selector (bounded cache)."""
    raise NotImplementedError
