"""Filters of a source (3.5.8) that the suite knows, registered at apache.org: one table for clients, router and broker.

A further filter is a row here, and its effect in services/broker/filter_conditions.py (docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from enmasse.amqp.codec.types import Described, Symbol, ULong


class FilterType(NamedTuple):
    """A kind of filter."""

    key: str
    """Key in the filter set, which a client is free to choose, of our clients; without a descriptor the filter itself.
    """
    code: int
    symbol: str
    reads_messages: bool
    """Whether the content of messages decides, which the router does not read for anycast and multicast."""
    on_queues: bool
    """Whether it has an effect on receivers of a queue too, not on subscriptions only."""

    def entry(self, content: Any) -> dict[str, Any]:
        """Return the entry of a filter set: `Source(filter={**SELECTOR.entry("x > 1")})`."""
        return {Symbol(self.key): Described(ULong(self.code), content)}


SELECTOR: Final = FilterType(
    "jms-selector", 0x468C00000004, "apache.org:selector-filter:string", reads_messages=True, on_queues=True
)
"""A selector of JMS."""
NO_LOCAL: Final = FilterType(
    "no-local", 0x468C00000003, "apache.org:no-local-filter:list", reads_messages=False, on_queues=False
)
"""Keeps back what the same connection has sent."""
TYPES: Final = (SELECTOR, NO_LOCAL)


class SourceFilter(NamedTuple):
    """A known filter: its entry in the filter set, and `content`, what is described."""

    type: FilterType
    key: Any
    value: Any
    content: Any


def source_filters(source: Any) -> Iterator[SourceFilter]:
    """Yield the known filters of a source (None: of none), in their order."""
    filters: Mapping[Any, Any] = getattr(source, "filter", None) or {}
    for key, value in filters.items():
        described = isinstance(value, Described)
        type = _type(value.descriptor if described else str(key), str(key))
        if type is not None:
            yield SourceFilter(type, key, value, value.value if described else value)


def _type(descriptor: Any, key: str) -> FilterType | None:
    """Return the type that the descriptor states; the key decides where it states none that is known."""
    for each in TYPES:
        if descriptor in (each.code, each.symbol):
            return each
    return next((each for each in TYPES if key == each.key), None)
