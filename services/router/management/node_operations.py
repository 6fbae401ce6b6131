"""Operations of the management node itself: lists of types, their attributes and operations, and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from services.router.management.schema import PREFIX, Attribute, EntityType

UNKNOWN = object()
"""Returned by `operate` for an unknown operation."""


def operate(operation: str, kinds: Sequence[EntityType], routers: Iterable[str]) -> Any:
    """Return the body of the answer to a GET-… operation; UNKNOWN for any other. `routers`: this one and the
    others of the network."""
    if operation == "GET-TYPES":
        return {kind.name: [] for kind in kinds}
    if operation == "GET-ATTRIBUTES":
        return {kind.name: kind.columns for kind in kinds}
    if operation == "GET-OPERATIONS":
        return {kind.name: sorted(kind.operations) for kind in kinds}
    if operation == "GET-MGMT-NODES":
        return [f"amqp:/_topo/0/{router}/$management" for router in routers]
    if operation == "GET-SCHEMA":
        return _schema(kinds)
    return UNKNOWN


def _schema(kinds: Sequence[EntityType]) -> dict[str, Any]:
    return {
        "prefix": PREFIX.rstrip("."),
        "annotations": {},
        "entityTypes": {
            kind.short: {
                "attributes": {a.name: _attribute(a) for a in kind.attributes},
                "operations": sorted(kind.operations),
                "fullyQualifiedType": kind.name,
                "singleton": kind.singleton,
                "deprecated": dict(kind.deprecated),
            }
            for kind in kinds
        },
    }


def _attribute(attribute: Attribute) -> dict[str, Any]:
    kinds = {"str": "string", "int": "integer", "bool": "boolean", "names": "string"}
    shown: dict[str, Any] = {
        "type": list(attribute.choices) if attribute.choices else kinds.get(attribute.kind, attribute.kind),
        "create": attribute.create,
        "update": attribute.update,
        "required": attribute.required,
    }
    if attribute.default is not None:
        shown["default"] = attribute.default
    return shown
