"""Policy: how many connections may be open, and what a user of a vhost may attach to.

Vhosts and their groups are those of Qpid Dispatch (A.2). The rights of a connection are computed once, when it opens;
an authentication service that hands out address permissions will make the same Rights.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from enmasse.amqp.errors import AmqpError
from services.router import addresses
from services.router.management.schema import BAD_REQUEST, ManagementError

if TYPE_CHECKING:
    from services.router.connections import RouterConnection

UNLIMITED = 2147483647
_DENIED = "link disallowed by local policy"


def _csv(text: Any) -> list[str]:
    return [part for part in str(text or "").replace(",", " ").split() if part]


class Names:
    """Addresses that are allowed: a list with trailing `*`, or patterns."""

    def __init__(self, names: Any, patterns: Any, user: str) -> None:
        self._all = False
        self._prefixes: list[str] = []
        self._exact: set[str] = set()
        self._tree: addresses.PatternTree[bool] | None = None
        if patterns:
            self._tree = addresses.PatternTree()
            for pattern in _csv(patterns):
                canonical = addresses.canonical(pattern.replace("${user}", user))
                if self._tree.get(canonical) is None:
                    self._tree.add(canonical, True)
            return
        for name in _csv(names):
            name = name.replace("${user}", user)
            if name == "*":
                self._all = True
            elif name.endswith("*"):
                self._prefixes.append(name[:-1])
            else:
                self._exact.add(name)

    def allow(self, address: str) -> bool:
        if self._tree is not None:
            return self._tree.match(address) is True
        return self._all or address in self._exact or any(address.startswith(p) for p in self._prefixes)


class Rights:
    """What one connection may do."""

    def __init__(self, settings: dict[str, Any], user: str) -> None:
        self.targets = Names(settings.get("targets"), settings.get("targetPattern"), user)
        self.sources = Names(settings.get("sources"), settings.get("sourcePattern"), user)
        self.dynamic = bool(settings.get("allowDynamicSource", False))
        self.anonymous = bool(settings.get("allowAnonymousSender", False))
        self.max_senders = int(settings.get("maxSenders", UNLIMITED))
        self.max_receivers = int(settings.get("maxReceivers", UNLIMITED))
        self.max_message_size = int(settings.get("maxMessageSize", 0))
        self.admin = bool(settings.get("allowAdminStatusUpdate", True))

    def may_send(self, address: str) -> bool:
        return self.targets.allow(addresses.strip(address))

    def check_attach(self, connection: RouterConnection, *, incoming: bool, address: str | None, dynamic: bool) -> None:
        """Raises AmqpError unless this link may be attached. `incoming`: the peer sends."""
        if incoming and connection.senders >= self.max_senders:
            raise AmqpError("amqp:resource-limit-exceeded", _DENIED)
        if not incoming and connection.receivers >= self.max_receivers:
            raise AmqpError("amqp:resource-limit-exceeded", _DENIED)
        if incoming:
            allowed = self.anonymous if address is None and not dynamic else dynamic or self.may_send(address or "")
        else:
            allowed = self.dynamic if dynamic else self.sources.allow(addresses.strip(address or ""))
        if not allowed:
            raise AmqpError("amqp:unauthorized-access", _DENIED)


class Vhost:
    """One configured vhost."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.hostname: str = body["hostname"]
        groups = body["groups"] or {}
        if not isinstance(groups, dict) or not all(isinstance(g, dict) for g in groups.values()):
            raise ManagementError(BAD_REQUEST, f"vhost '{self.hostname}': groups must be a map of maps")
        self.groups: dict[str, dict[str, Any]] = {str(name): dict(group) for name, group in groups.items()}

    def group_for(self, user: str, host: str) -> dict[str, Any] | None:
        for name, group in self.groups.items():
            users = _csv(group.get("users"))
            if name != "$default" and (user in users or "*" in users):
                return group if _from_host(group.get("remoteHosts", "*"), host) else None
        default = self.groups.get("$default")
        if default is not None and self.body["allowUnknownUser"] and _from_host(default.get("remoteHosts", "*"), host):
            return default
        return None


def _from_host(allowed: Any, host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for part in _csv(allowed):
        if part in ("*", host):
            return True
        low, dash, high = part.partition("-")
        if dash and address is not None:
            try:
                if int(ipaddress.ip_address(low)) <= int(address) <= int(ipaddress.ip_address(high)):
                    return True
            except ValueError:
                continue
    return False


class Policy:
    """Settings of the entity `policy`, the vhosts, and the counters of both."""

    def __init__(self) -> None:
        self.max_connections = 65535
        self.max_message_size = 0
        self.vhosts_enabled = False
        self.default_vhost = "$default"
        self.vhosts: dict[str, Vhost] = {}
        self.processed = self.denied = self.current = 0
        self.links_denied = self.size_denied = 0
        self._users: dict[tuple[str, str], int] = {}
        self._hosts: dict[tuple[str, str], int] = {}
        self._open: dict[int, tuple[str, str, str]] = {}

    def configure(self, body: dict[str, Any]) -> None:
        self.max_connections = body["maxConnections"]
        self.max_message_size = body["maxMessageSize"]
        self.vhosts_enabled = body["enableVhostPolicy"]
        self.default_vhost = body["defaultVhost"]

    def find(self, hostname: str) -> Vhost | None:
        for vhost in self.vhosts.values():
            if vhost.hostname == hostname or hostname in _csv(vhost.body["aliases"]):
                return vhost
        return None

    def socket_accepted(self) -> bool:
        """False: there are too many connections."""
        self.processed += 1
        if self.current >= self.max_connections:
            self.denied += 1
            return False
        self.current += 1
        return True

    def socket_closed(self) -> None:
        self.current -= 1

    def open_connection(self, connection: RouterConnection, hostname: str, user: str, host: str) -> None:
        """Sets the connection's rights. Raises AmqpError when it is not allowed."""
        if not self.vhosts_enabled:
            return
        wanted = connection.policy_vhost or hostname or self.default_vhost
        vhost = self.find(wanted) or self.find(self.default_vhost)
        group = None if vhost is None else vhost.group_for(user, host)
        if vhost is None or group is None:
            raise self._deny()
        per_user = int(group.get("maxConnectionsPerUser", vhost.body["maxConnectionsPerUser"]))
        per_host = int(group.get("maxConnectionsPerHost", vhost.body["maxConnectionsPerHost"]))
        by_user, by_host = (vhost.hostname, user), (vhost.hostname, host)
        here = sum(1 for name, _, _ in self._open.values() if name == vhost.hostname)
        if (
            here >= vhost.body["maxConnections"]
            or self._users.get(by_user, 0) >= per_user
            or self._hosts.get(by_host, 0) >= per_host
        ):
            raise self._deny()
        self._users[by_user] = self._users.get(by_user, 0) + 1
        self._hosts[by_host] = self._hosts.get(by_host, 0) + 1
        self._open[connection.identity] = (vhost.hostname, user, host)
        connection.rights = Rights(group, user)

    def _deny(self) -> AmqpError:
        self.denied += 1
        return AmqpError("amqp:resource-limit-exceeded", "connection disallowed by local policy")

    def connection_closed(self, connection: RouterConnection) -> None:
        entry = self._open.pop(connection.identity, None)
        if entry is None:
            return
        vhost, user, host = entry
        for counts, key in ((self._users, (vhost, user)), (self._hosts, (vhost, host))):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
