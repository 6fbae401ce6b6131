"""Filters of a source as conditions on messages: the effect of each, and what the answer states of them."""

from __future__ import annotations

from typing import Any

from enmasse.amqp.codec.performatives import Source
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.source_filters import NO_LOCAL, SELECTOR, source_filters
from services.broker.core.errors import BrokerError
from services.broker.core.messages.condition import Condition
from services.broker.selector import CACHED, Selector, SelectorError, compile_selector


class Filters:
    """The filters of a source. `selector`: the condition on messages of a queue, None: all suit. `echo`: the filter set
    for the answer."""

    def __init__(self, source: Source | None) -> None:
        """Raises BrokerError (amqp:invalid-field) if a filter is invalid."""
        self.selector: Selector | None = None
        self._no_local = False
        self._found = list(source_filters(source))
        self.echo = {each.key: each.value for each in self._found}
        for each in self._found:
            if each.type is SELECTOR:
                self.selector = _selector(each.content)
            elif each.type is NO_LOCAL:
                self._no_local = True

    def condition(self, container: str) -> Condition:
        """Return the condition on messages for a subscription of the client `container`."""
        return Condition(self.selector, container if self._no_local else None)

    @property
    def echo_on_queue(self) -> dict[Any, Any]:
        """The filter set for the answer, without those that have no effect on a queue."""
        return {each.key: each.value for each in self._found if each.type.on_queues}


def stated(condition: Condition) -> dict[Any, Any]:
    """Return the filter set for the answer to a client that recovers a subscription with this condition."""
    return {} if condition.filter is None else {Symbol(SELECTOR.key): condition.filter.text}


def has_long_selector(source: Source | None) -> bool:
    """Return whether a source has a selector that takes long to compile."""
    return any(
        each.type is SELECTOR and isinstance(each.content, str) and len(each.content) > CACHED
        for each in source_filters(source)
    )


def _selector(text: Any) -> Selector | None:
    if not isinstance(text, str):
        raise BrokerError("the selector filter is not a string", "amqp:invalid-field")
    try:
        return compile_selector(text) if text.strip() else None
    except SelectorError as error:
        raise BrokerError(f"AMQ119009: Invalid filter: {text}: {error}", "amqp:invalid-field") from None
