"""All tables of the management node."""

from __future__ import annotations

from typing import Any

from services.router.management.entities import (
    AuthServiceTable,
    ConnectorTable,
    ListenerTable,
    SslProfileTable,
    UniqueNames,
)
from services.router.management.entity_tables import Table
from services.router.management.log_settings import LogTable
from services.router.management.policy_table import PolicyTable
from services.router.management.runtime import core_tables
from services.router.network.sockets import Sockets
from services.router.routing.router import Router


def all_tables(router: Router, sockets: Sockets, attributes: dict[str, Any]) -> list[Table]:
    """Return the tables in the order in which a configuration must be read: referenced types first, ports last.
    `attributes`: of the router entity."""
    names = UniqueNames()
    return [
        PolicyTable(names, router.policy),
        LogTable(names),
        SslProfileTable(names, sockets),
        AuthServiceTable(names, sockets),
        *core_tables(router, attributes),
        ConnectorTable(names, sockets, router.mode),
        ListenerTable(names, sockets, router.mode),
    ]
