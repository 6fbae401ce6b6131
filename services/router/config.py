"""The router's settings, and its static configuration: Dispatch's JSON list of `[type, attributes]`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from enmasse.clock import Clock
from enmasse.process.runner import Fatal
from enmasse.process.settings import HostPort, ServiceSettings
from services.router.management.entities import EntityTable, ListenerTable
from services.router.management.entity_tables import ConfigTable, Table
from services.router.management.schema import (
    ROUTER_CONFIG,
    ManagementError,
    coerce,
    find_type,
    known_attributes,
)
from services.router.routing.router import Router


class RouterSettings(ServiceSettings, frozen=True, kw_only=True):
    """`entities`: `[["router", {"id": …}], ["listener", {…}], …]`. `client_ports`: ports of the listeners that the
    agent creates; the router is ready while all of them are open. `peers`: file of the processes that may connect to
    listeners with `access`. `configserv`: host:port of the configuration service, whose users and permissions are in
    force on listeners with `saslPlugin`. `shutdown_delay`: seconds from SIGTERM in which it only is not ready, so that
    its address is no longer given to clients when they connect again. `leave_within`: seconds after that in which it
    hands its clients on before it ends; 0, or without another router, which they could connect to: it ends at once.
    SIGINT ends it without both."""

    entities: list[tuple[str, dict[str, Any]]]
    client_ports: tuple[int, ...] = ()
    peers: str | None = None
    configserv: HostPort | None = None
    shutdown_delay: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    leave_within: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0


def router_attributes(settings: RouterSettings) -> dict[str, Any]:
    """Attributes of the one `router` entity, with defaults. Raises Fatal."""
    found = [(i, body) for i, (kind, body) in enumerate(settings.entities) if kind == "router"]
    if len(found) > 1:
        raise Fatal(
            "router.configuration.invalid", f"entities[{found[1][0]}]: there is more than one router entity; leave one"
        )
    where, given = found[0] if found else (0, {})
    values: dict[str, Any] = {a.name: a.default for a in ROUTER_CONFIG}
    for key, value in given.items():
        attribute = next((a for a in ROUTER_CONFIG if a.name == key), None)
        if attribute is None:
            raise Fatal("router.configuration.invalid", f"entities[{where}] (router): unknown attribute '{key}'")
        try:
            values[key] = coerce(attribute, value)
        except ManagementError as error:
            raise Fatal("router.configuration.invalid", f"entities[{where}] (router): {error}") from None
    if values["mode"] == "edge":
        raise Fatal(
            "router.configuration.invalid",
            f"entities[{where}] (router): mode 'edge' is not supported by this router; use interior or standalone",
        )
    values["id"] = values["id"] or settings.name
    if not values["id"] or any(c.isspace() or not c.isprintable() for c in values["id"]):
        raise Fatal(
            "router.configuration.invalid",
            f"entities[{where}] (router): id {values['id']!r} must not have white space or control characters",
        )
    return values


def make_router(values: dict[str, Any], clock: Clock) -> Router:
    """Return a router without listeners. `values`: attributes of the `router` entry of the configuration."""
    router = Router(
        values["id"], clock, default=values["defaultDistribution"], mode=values["mode"], instance=int(time.time())
    )
    router.allow_resumable = values["allowResumableLinkRoute"]
    return router


async def load(settings: RouterSettings, tables: Sequence[Table]) -> None:
    """Make the configured entities, in the order of the tables. Raises Fatal."""
    known = {table.type.name: table for table in tables if isinstance(table, ConfigTable | EntityTable)}
    wanted: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for i, (kind_name, body) in enumerate(settings.entities):
        if kind_name == "router":
            continue
        kind = find_type(kind_name)
        if kind is None or kind.name not in known:
            names = ", ".join(sorted(table.type.short for table in known.values()))
            raise Fatal(
                "router.configuration.invalid",
                f"entities[{i}]: unknown type '{kind_name}'; known are router, address, autoLink, linkRoute, {names}",
            )
        wanted.setdefault(kind.name, []).append((i, body))
    for table in known.values():
        for i, body in wanted.get(table.type.name, []):
            try:
                known_attributes(table.type, body)
                entity = table.add(body.get("name"), body)
                if isinstance(table, EntityTable):
                    table.fixed.add(entity.name)
                if isinstance(table, ListenerTable):
                    await table.open(entity)
            except ManagementError as error:
                raise Fatal("router.configuration.invalid", f"entities[{i}] ({table.type.short}): {error}") from None
