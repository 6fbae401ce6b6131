"""Sources and targets of attaches: the parts that the broker acts on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enmasse.amqp.codec.performatives import Source
from enmasse.amqp.codec.types import Symbol

_PREFIXES = ("queue://", "topic://", "temp-queue://", "temp-topic://")


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


def answer(source: Source | None, filters: Mapping[Any, Any], **changes: Any) -> Source:
    """Return the source for the answer to an attach: as asked, but only with the filters that have an effect."""
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
    fields["filter"] = filters or None
    fields.update(changes)
    return Source(**fields)


TOPIC = (Symbol("topic"),)
