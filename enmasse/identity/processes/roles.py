"""Roles of the suite's processes, and the table of what each role may do on each inner listener (docs/identity.md).

A role comes from the credential of a connection alone, never from a name that the peer states.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from enmasse.model.names import HTTP_GATEWAYS
from enmasse.process.service_table import SERVICES


class Role(StrEnum):
    """The role of a process of the suite."""

    ROUTER = "router"
    BROKER = "broker"
    GATEWAY = "mqtt_gateway"
    HTTP_GATEWAY = "http_gateway"
    STOMP_GATEWAY = "stomp_gateway"
    COAP_GATEWAY = "coap_gateway"
    AGENT = "ragent"
    SUBSERV = "subserv"
    LWT = "mqtt_lwt"
    STORAGE_CONTROLLER = "storage_controller"
    CONFIGSERV = "configserv"
    AUTHSERV = "authserv"
    SUPERVISOR = "supervisor"
    CONSOLE = "console"
    OPERATOR = "operator"


GATEWAYS: Final = tuple(Role(name) for name, service in SERVICES.items() if service.is_gateway)
"""Roles that act for clients, for whom they send and receive, and whose logins they have checked."""


class Peer(NamedTuple):
    """An authenticated process at the other end of a connection."""

    name: str
    """The process, unique in the suite, or its service."""
    role: Role
    of_service: bool = False
    """`name` is that of a service, whose processes are called so, or `name-…`."""

    def may_be(self, name: str) -> bool:
        """Return whether this is the process `name`."""
        return name == self.name or (self.of_service and name.startswith(f"{self.name}-"))


class Listener(StrEnum):
    """An inner listener."""

    CONFIGSERV = "configserv"
    AGENT = "ragent"
    BROKER = "broker"
    SERVICES = "services"
    """The routers' listener for gateways, subserv and mqtt_lwt."""
    OPERATORS = "operators"
    """The routers' listener for operators."""
    MESH = "inter-router"
    """The listener of Qpid Dispatch for other routers."""
    AUTHSERV = "authserv"
    """The authentication service, if its peers have certificates. The SASL exchange is that of a user."""
    LOGINS = "logins"
    """The authentication service's listener for gateways and the console, which have passwords checked over one
    connection, and for logins of browsers at issuers."""


class Access(NamedTuple):
    """Patterns of addresses: `name`, `name/#` (the name and what is below it) or `#` (every address but those that
    begin with `$`, which other patterns name).

    Every peer may also make temporary addresses of its own, and attach a sender without an address: then `send` holds
    for the address of each message.
    """

    send: tuple[str, ...] = ()
    recv: tuple[str, ...] = ()
    manage: bool = False
    """Whether the management node may be used, which no pattern covers."""
    serve: tuple[str, ...] = ()
    """Nodes of this role: the router passes links of others to them on to it."""


_ADDRESSES: Final = "addresses/changes"
_PLACEMENTS: Final = "placements/changes"
_PERMISSIONS: Final = ("permissions/changes", "permissions")
"""Both are one feed; processes of 0.2.0 follow the second."""
_USAGE: Final = "usage"
"""Use of the limits of address spaces, and each process's shares in them."""
_SESSIONS: Final = "$sub/#"
"""Queues of sessions and subscriptions, and the feed of retained messages."""
_EVERYTHING: Final = ("#", _SESSIONS)
_WATCHED: Final = (*_EVERYTHING, "$live", "$live/#")
"""Everything, and the live state of routers, brokers and gateways."""
_LOCKS: Final = f"{HTTP_GATEWAYS}/#"
"""Nodes at which HTTP gateways ask each other about locks of clients."""
_LISTED: Final = (*_WATCHED, "$mqtt/wills")
"""Live state, and the list of wills of MQTT clients."""

TABLE: Final[Mapping[Listener, Mapping[Role, Access]]] = {
    Listener.CONFIGSERV: {
        Role.AGENT: Access(send=("readiness",), recv=(_ADDRESSES, "flavors", _PLACEMENTS)),
        Role.STORAGE_CONTROLLER: Access(
            send=("readiness", "placements", _USAGE),
            recv=(_ADDRESSES, "flavors", _PLACEMENTS, "bound"),
        ),
        Role.ROUTER: Access(send=(_USAGE,), recv=(*_PERMISSIONS, _USAGE)),
        **dict.fromkeys(GATEWAYS, Access(send=(_USAGE,), recv=(_ADDRESSES, *_PERMISSIONS, _USAGE))),
        Role.SUBSERV: Access(send=("bound", _USAGE), recv=(_ADDRESSES, _PLACEMENTS, *_PERMISSIONS)),
        Role.LWT: Access(send=(_USAGE,), recv=(_ADDRESSES, *_PERMISSIONS)),
        Role.AUTHSERV: Access(recv=("users",)),
        Role.SUPERVISOR: Access(send=("force",), recv=("status/changes", "spaces")),
        Role.CONSOLE: Access(
            send=("force", "configure"),
            recv=(_ADDRESSES, "flavors", "spaces", _PLACEMENTS, "status/changes", *_PERMISSIONS, "configure"),
        ),
        Role.OPERATOR: Access(send=("force",), recv=(_ADDRESSES, "flavors", _PLACEMENTS, "status/changes")),
    },
    Listener.AGENT: {Role.ROUTER: Access(manage=True)},
    Listener.BROKER: {
        Role.ROUTER: Access(send=_EVERYTHING, recv=_EVERYTHING),
        Role.STORAGE_CONTROLLER: Access(manage=True),
        Role.SUBSERV: Access(send=(_SESSIONS,), recv=(_SESSIONS,), manage=True),
        Role.CONSOLE: Access(send=_EVERYTHING, recv=_WATCHED, manage=True),
        Role.OPERATOR: Access(send=_EVERYTHING, recv=_WATCHED, manage=True),
    },
    Listener.SERVICES: {
        **dict.fromkeys(GATEWAYS, Access(send=("#",), recv=_EVERYTHING, serve=("$live",))),
        Role.GATEWAY: Access(
            send=("#", "$mqtt/sessions", "$mqtt/wills"),
            recv=(*_EVERYTHING, "$mqtt/sessions"),
            serve=("$live",),
        ),
        Role.HTTP_GATEWAY: Access(send=("#", _LOCKS), recv=(*_EVERYTHING, _LOCKS), serve=("$live",)),
        Role.SUBSERV: Access(send=("#",), recv=("$mqtt/control",), serve=("$subctrl", "$mqtt/sessions")),
        Role.LWT: Access(send=("#", "$lwt", "$mqtt/wills"), serve=("$lwt", "$mqtt/wills")),
    },
    Listener.OPERATORS: {
        Role.CONSOLE: Access(send=("#", "$subctrl", "$mqtt/control"), recv=_LISTED, manage=True),
        Role.OPERATOR: Access(send=("#", "$subctrl", "$mqtt/control", "$mqtt/wills"), recv=_LISTED, manage=True),
    },
    Listener.MESH: {Role.ROUTER: Access(send=_EVERYTHING, recv=_EVERYTHING)},
    Listener.AUTHSERV: {Role.ROUTER: Access(), **dict.fromkeys(GATEWAYS, Access())},
    Listener.LOGINS: {
        **dict.fromkeys(GATEWAYS, Access(send=("logins",), recv=("logins",))),
        Role.CONSOLE: Access(send=("logins", "issuers"), recv=("logins", "issuers")),
    },
}
"""Listener → role → access. A role that a listener does not list is refused when its connection opens."""


@lru_cache(maxsize=4096)
def _covers(patterns: tuple[str, ...], address: str) -> bool:
    return any(
        pattern == address
        or (pattern == "#" and not address.startswith("$"))
        or (pattern.endswith("/#") and (address == pattern[:-2] or address.startswith(pattern[:-1])))
        for pattern in patterns
    )


def access(listener: Listener, peer: Peer) -> Access | None:
    """Return what the peer may do at this listener; None: nothing, its connection is refused."""
    return TABLE[listener].get(peer.role)


def may_send(access: Access, address: str) -> bool:
    """Return whether a peer with this access may attach a sender to `address`."""
    return _covers(access.send, address)


def may_receive(access: Access, address: str) -> bool:
    """Return whether a peer with this access may attach a receiver to `address`."""
    return _covers(access.recv, address)


def table() -> str:
    """Return TABLE as in docs/identity.md."""
    lines = ["| listener | role | attaches senders to | attaches receivers to | manages | serves |", f"|{'---|' * 6}"]
    for listener, roles in TABLE.items():
        for role, each in roles.items():
            columns = [", ".join(f"`{it}`" for it in patterns) for patterns in (each.send, each.recv, each.serve)]
            sends, receives, serves = columns
            manages = "yes" if each.manage else ""
            lines.append(f"| {listener} | `{role}` | {sends} | {receives} | {manages} | {serves} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
