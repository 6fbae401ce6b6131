"""Diverts: making, changing, ending and listing them (Artemis' ActiveMQServerControl); one divert (DivertControl)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from services.broker.core.errors import BrokerError
from services.broker.core.routing.bindings import Divert
from services.broker.management import rows
from services.broker.management.calls import CallContext, Operations
from services.broker.management.configurations import json_object

broker = Operations()
one = Operations()

# Keys of Artemis' DivertConfiguration, with the type of each.
_KEYS: dict[str, type] = {
    "name": str,
    "routing-name": str,
    "address": str,
    "forwarding-address": str,
    "exclusive": bool,
    "filter-string": str,
    "transformer-configuration": dict,
    "routing-type": str,
}


def _create(
    c: CallContext,
    name: str | None,
    routing_name: str | None,
    address: str | None,
    forwarding: str | None,
    exclusive: bool,
    filter: str | None,
    transformer: object,
    routing_type: str | None = "STRIP",
) -> None:
    _neutral(exclusive, transformer)
    if not address or not forwarding:
        raise BrokerError(f"divert {name}: an address and a forwarding address are needed", "amqp:invalid-field")
    c.broker.catalogue.diverts.create(
        name or "",
        address,
        forwarding,
        filter=filter,
        routing_type=routing_type or "STRIP",
        routing_name=routing_name or "",
    )


def _neutral(exclusive: object, transformer: object) -> None:
    """Refuse attributes that this broker does not support. Raises BrokerError."""
    if exclusive:
        raise BrokerError("exclusive diverts are not supported: leave exclusive false", "amqp:not-implemented")
    if transformer:
        raise BrokerError("transformers are not supported: leave the divert's out", "amqp:not-implemented")


broker.add("createDivert", "SSSSBSS")(_create)
broker.add("createDivert", "SSSSBSSS")(_create)


def _create_9(c: CallContext, *values: Any) -> None:
    """The properties of the transformer come before the routing type."""
    name, routing_name, address, forwarding, exclusive, filter, transformer, _, routing_type = values
    _create(c, name, routing_name, address, forwarding, exclusive, filter, transformer, routing_type)


broker.add("createDivert", "SSSSBSSSS")(_create_9)
broker.add("createDivert", "SSSSBSSOS")(_create_9)


def _configuration(given: str) -> dict[str, Any]:
    """Return the JSON text of a DivertConfiguration."""
    value = json_object(given, "divert configuration")
    for key, item in value.items():
        if key not in _KEYS:
            raise BrokerError(f"divert configuration: {key!r} is not known")
        if key == "exclusive" and item in ("true", "false"):  # as Artemis reads it
            value[key] = item == "true"
        elif item is not None and not isinstance(item, _KEYS[key]):
            raise BrokerError(f"divert configuration {key}: {item!r} is not a {_KEYS[key].__name__}")
    return value


@broker.add("createDivert", "s")
def create_divert_json(c: CallContext, configuration: str) -> None:
    """Create a divert from JSON. Raises BrokerError if a field is wrong or the destination does not exist."""
    value = _configuration(configuration).get
    _create(
        c,
        value("name"),
        value("routing-name"),
        value("address"),
        value("forwarding-address"),
        bool(value("exclusive")),
        value("filter-string"),
        value("transformer-configuration"),
        value("routing-type"),
    )


def _update(
    c: CallContext,
    name: str | None,
    forwarding: str | None,
    filter: str | None,
    transformer: object,
    properties: object,
    routing_type: str | None,
) -> None:
    _neutral(False, transformer)
    c.broker.catalogue.diverts.update(name or "", filter=filter, forwarding=forwarding, routing_type=routing_type)


broker.add("updateDivert", "SSSSOS")(_update)


@broker.add("updateDivert", "s")
def update_divert_json(c: CallContext, configuration: str) -> None:
    """Change a divert from JSON. Raises BrokerError if a field is wrong or the divert does not exist."""
    value = _configuration(configuration).get
    _update(
        c,
        value("name"),
        value("forwarding-address"),
        value("filter-string"),
        value("transformer-configuration"),
        None,
        value("routing-type"),
    )


@broker.add("destroyDivert", "s")
def destroy_divert(c: CallContext, name: str) -> None:
    """Remove a divert. Raises BrokerError if it does not exist."""
    c.broker.catalogue.diverts.destroy(name)


@broker.add("getDivertNames listDivertNames")
def get_divert_names(c: CallContext) -> list[str]:
    """Return the names of all diverts."""
    return list(c.broker.catalogue.diverts.by_name)


@broker.add("listDiverts", "Sii")
def list_diverts(c: CallContext, options: str | None, page: int, page_size: int) -> str:
    """This broker's own. Those of one forwarding address cost no look at the others."""
    every: Collection[Divert] = c.broker.catalogue.diverts.by_name.values()
    wanted = rows.equals(options)
    if wanted is not None and wanted[0] == "forwardingAddress":
        address = c.broker.catalogue.addresses.get(wanted[1])
        every = c.broker.catalogue.diverts.to(address) if address is not None else ()
    return rows.list_rows(every, rows.divert_row, options, page, page_size)


# -- one divert --------------------------------------------------------------------------------------------------------
def _attribute(name: str, function: Callable[[Divert], Any]) -> None:
    one.add(name)(lambda c, d: function(d))


_attribute("getUniqueName", lambda d: d.name)
_attribute("getRoutingName", lambda d: d.routing_name)
_attribute("getAddress", lambda d: d.pattern)
_attribute("getForwardingAddress", lambda d: d.address.name)
_attribute("getFilter", lambda d: d.condition.filter.text if d.condition.filter else None)
_attribute("getRoutingType", lambda d: d.routing_type)
_attribute("isExclusive", lambda d: False)
_attribute("getTransformerClassName", lambda d: None)
