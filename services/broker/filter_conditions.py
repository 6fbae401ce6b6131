"""Filters of a source as conditions on messages: the effect of each, and what the answer states of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from enmasse.amqp.codec.performatives import Source
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.source_filters import NO_LOCAL, SELECTOR, FilterType, source_filters
from services.broker.core.errors import BrokerError
from services.broker.core.messages.condition import Condition
from services.broker.selector import CACHED, Selector, SelectorError, compile_selector


class Filters:
    """The filters of a source. `selector`: the condition on messages of a queue, None: all suit. `echo`: the filter set
    for the answer."""

    def __init__(self, source: Source | None) -> None:
        """Raises BrokerError (amqp:invalid-field) if a filter is invalid."""
        self._found = list(source_filters(source))
        self.echo = {each.key: each.value for each in self._found}
        self._no_local = any(each.type is NO_LOCAL for each in self._found)
        selectors = {each.type: SELECTORS[each.type](each.content) for each in self._found if each.type in SELECTORS}
        self.selector = together([each for each in selectors.values() if each is not None])

    def condition(self, container: str) -> Condition:
        """Return the condition on messages for a subscription of the client `container`."""
        return Condition(self.selector, container if self._no_local else None)

    @property
    def echo_on_queue(self) -> dict[Any, Any]:
        """The filter set for the answer, without those that have no effect on a queue."""
        return {each.key: each.value for each in self._found if each.type.on_queues}


def together(selectors: Sequence[Selector]) -> Selector | None:
    """Return the selector of what all of them take; None without one. Raises SelectorError."""
    if len(selectors) < 2:
        return selectors[0] if selectors else None
    return compile_selector(" AND ".join(f"({each.text}\n)" for each in selectors))


def stated(condition: Condition) -> dict[Any, Any]:
    """Return the filter set for the answer to a client that recovers a subscription with this condition."""
    return {} if condition.filter is None else {Symbol(SELECTOR.key): condition.filter.text}


def long_selectors(source: Source | None) -> list[str]:
    """Return the texts of the selectors of a source that take long to compile."""
    return [
        each.content
        for each in source_filters(source)
        if each.type is SELECTOR and isinstance(each.content, str) and len(each.content) > CACHED
    ]


def _selector(text: Any) -> Selector | None:
    """Return the selector of a text; None for a blank one. Raises BrokerError."""
    if not isinstance(text, str):
        raise BrokerError("the selector filter is not a string", "amqp:invalid-field")
    try:
        return compile_selector(text) if text.strip() else None
    except SelectorError as error:
        raise BrokerError(f"the selector {text[:200]!r} is wrong: {error}", "amqp:invalid-field") from None


SELECTORS: Final[Mapping[FilterType, Callable[[Any], Selector | None]]] = {SELECTOR: _selector}
"""Filter that reads messages → the selector of its content."""
