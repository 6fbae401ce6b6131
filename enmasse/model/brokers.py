"""brokers.json: brokers made by hand, for a suite without a storage controller (docs/configuration.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from enmasse.model import values
from enmasse.model.address_types import TYPES, AddressType
from enmasse.model.addresses import Address
from enmasse.model.feeds import BrokerEndpoint, Placement, Placements
from enmasse.model.jsonfile import Document, Problem, shown
from enmasse.model.names import AddressName, simple_error
from enmasse.model.values import Wrong

_EXAMPLE = '{"host": "127.0.0.1", "port": 5672, "flavors": ["small-persisted-queue"]}'


class HandMade(msgspec.Struct, frozen=True, kw_only=True):
    """A broker, and what it carries: addresses by name, and every address of some flavors."""

    host: str
    port: int
    addresses: tuple[AddressName, ...] = ()
    flavors: tuple[str, ...] = ()


def parse_brokers(document: Document) -> tuple[dict[str, HandMade], list[Problem]]:
    """Return the valid entries of brokers.json, and the problems of the others.

    The form is `{name: {"host", "port", "addresses": [name, …], "flavors": [name, …]}}`. Raises nothing: every problem
    is in the list.
    """

    def parse(name: str, entry: Any) -> HandMade:
        reason = simple_error(name, "broker")
        if reason is not None:
            raise Wrong(reason)
        return _broker(entry)

    return document.parsed(parse)


def unknown_names(
    document: Document,
    brokers: Mapping[str, HandMade],
    addresses: Mapping[AddressName, AddressType | None],
    flavors: Collection[str],
) -> list[Problem]:
    """Return names in brokers.json without effect. `addresses`: name → type, None if that is not known."""
    problems = []
    for broker, entry in brokers.items():
        for address in entry.addresses:
            if address not in addresses:
                reason = f"no address {shown(address)!r} in addresses.json: put it there, or remove it here"
                problems.append(document.problem(reason, broker, "addresses"))
            elif (kind := addresses[address]) is not None and not TYPES[kind].stored:
                reason = f"{address!r} is of type {kind}, which no broker carries: remove it here"
                problems.append(document.problem(reason, broker, "addresses"))
        for name in entry.flavors:
            if name not in flavors:
                reason = f"no flavor {shown(name)!r} in flavors.json: put it there, or remove it here"
                problems.append(document.problem(reason, broker, "flavors"))
    return problems


def place(
    brokers: Mapping[str, HandMade], addresses: Mapping[AddressName, Address], invalid: Collection[str] = ()
) -> Placements:
    """Which broker carries which queue and topic: the first that names it, else the first that names its flavor.

    `invalid`: brokers in the file of which nothing valid is known.
    """
    by_address: dict[AddressName, str] = {}
    by_flavor: dict[str, str] = {}
    for broker, entry in brokers.items():
        for name in entry.addresses:
            by_address.setdefault(name, broker)
        for flavor in entry.flavors:
            by_flavor.setdefault(flavor, broker)
    placed: dict[AddressName, list[Placement]] = {}
    for name, address in addresses.items():
        found = by_address.get(name) or by_flavor.get(address.flavor or "")
        if found is not None and (entity := address.traits.entity) is not None:
            placed[name] = [Placement(broker=found, type=entity)]
    return Placements(
        brokers={
            name: BrokerEndpoint(host=entry.host, port=entry.port, by_hand=True) for name, entry in brokers.items()
        },
        addresses=placed,
        invalid=list(invalid) or msgspec.UNSET,
    )


def _broker(entry: Any) -> HandMade:
    if not isinstance(entry, dict):
        raise Wrong(f"must be an object such as {_EXAMPLE}, not {values.kind(entry)}")
    for key in entry:
        if key not in ("host", "port", "addresses", "flavors"):
            raise values.unknown_key(key, ("host", "port", "addresses", "flavors"))
    for key in ("host", "port"):
        if key not in entry:
            raise Wrong(f"is missing; write an object such as {_EXAMPLE}", key)
    for key in ("addresses", "flavors"):
        names = entry.get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Wrong("must be an array of names", key)
    try:
        host = values.host(entry["host"])
    except Wrong as wrong:
        raise Wrong(str(wrong), "host") from None
    port = entry["port"]
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise Wrong("must be a port, 1 to 65535", "port")
    return HandMade(
        host=host, port=port, addresses=tuple(entry.get("addresses", ())), flavors=tuple(entry.get("flavors", ()))
    )
