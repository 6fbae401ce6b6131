"""Sources and targets of attaches: the parts that the broker acts on."""

from __future__ import annotations

from typing import Any

from enmasse.amqp.codec.performatives import Source
from enmasse.amqp.codec.types import Described, Symbol
from enmasse.amqp.termini import is_no_local, is_selector
from services.broker.core.errors import BrokerError
from services.broker.selector import CACHED, Selector, SelectorError, compile_selector

_PREFIXES = ("queue://", "topic://", "temp-queue://", "temp-topic://")


class Filters:
    """The filters of a source that have an effect here; `echo` is what the answer states of them."""

    def __init__(self, source: Source | None) -> None:
        """Raises BrokerError (amqp:invalid-field) if a selector is invalid."""
        self.selector: Selector | None = None
        self.no_local = False
        self.echo: dict[Any, Any] = {}
        for key, value in ((source.filter if source is not None else None) or {}).items():
            inner = value.value if isinstance(value, Described) else value
            if is_selector(key, value):
                if not isinstance(inner, str):
                    raise BrokerError("the selector filter is not a string", "amqp:invalid-field")
                try:
                    self.selector = compile_selector(inner) if inner.strip() else None
                except SelectorError as error:
                    raise BrokerError(f"AMQ119009: Invalid filter: {inner}: {error}", "amqp:invalid-field") from None
                self.echo[key] = value
            elif is_no_local(key, value):
                self.no_local = True
                self.echo[key] = value

    def forget_no_local(self) -> None:
        """Leave no-local out of the answer: it has no effect on a queue."""
        self.no_local = False
        self.echo = {key: value for key, value in self.echo.items() if not is_no_local(key, value)}


def has_long_selector(source: Source | None) -> bool:
    """Return whether a source has a selector that takes long to compile."""
    for key, value in ((source.filter if source is not None else None) or {}).items():
        inner = value.value if isinstance(value, Described) else value
        if is_selector(key, value) and isinstance(inner, str) and len(inner) > CACHED:
            return True
    return False


def address_of(terminus: Any) -> str:
    """Return the address of a terminus without a scheme such as `queue://`; "" if it is absent."""
    address = getattr(terminus, "address", None) or ""
    for prefix in _PREFIXES:
        address = address.removeprefix(prefix)
    return str(address)


def routing_type(wanted: frozenset[str], terminus: Any) -> str | None:
    """Return the routing type that capability or scheme ask for: ANYCAST, MULTICAST or None."""
    address = getattr(terminus, "address", None) or ""
    if wanted & {"queue", "temporary-queue"} or address.startswith(("queue://", "temp-queue://")):
        return "ANYCAST"
    if wanted & {"topic", "temporary-topic"} or address.startswith(("topic://", "temp-topic://")):
        return "MULTICAST"
    return None


def answer(source: Source | None, filters: Filters, **changes: Any) -> Source:
    """Return the source for the answer to an attach: as asked, but only with filters that have an effect."""
    fields: dict[str, Any] = {}
    if source is not None:
        for name in (
            "address",
            "durable",
            "expiry_policy",
            "timeout",
            "dynamic",
            "dynamic_node_properties",
            "distribution_mode",
            "default_outcome",
            "outcomes",
            "capabilities",
        ):
            fields[name] = getattr(source, name)
    fields["filter"] = filters.echo or None
    fields.update(changes)
    return Source(**fields)


TOPIC = (Symbol("topic"),)
