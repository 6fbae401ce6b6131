"""Policy: how many connections may be open, and what a user of a vhost may attach to.

Vhosts and their groups are those of Qpid Dispatch (A.2). The rights of a connection are computed once, when it opens;
an authentication service that hands out address permissions will make the same Rights.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from enmasse.amqp.errors import AmqpError
from services.router.management.schema import BAD_REQUEST, VHOST_GROUP, ManagementError, coerce
from services.router.routing.names import PatternTree, canonical, strip

if TYPE_CHECKING:
    from services.router.routing.connections import RouterConnection

_DENIED = "link disallowed by local policy"


def _csv(text: Any) -> list[str]:
    return [part for part in str(text or "").replace(",", " ").split() if part]


class Names:
    """Addresses that are allowed: a list with trailing `*`, or patterns."""

    def __init__(self, names: Any, patterns: Any, user: str) -> None:
        self._all = False
        self._prefixes: list[str] = []
        self._exact: set[str] = set()
        self._tree: PatternTree[bool] | None = None
        if patterns:
            self._tree = PatternTree()
            for pattern in _csv(patterns):
                spelling = canonical(pattern.replace("${user}", user))
                if self._tree.get(spelling) is None:
                    self._tree.add(spelling, True)
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


class Denials:
    """What the policy of a vhost did not allow: links of either direction, messages that were too large."""

    __slots__ = ("receivers", "senders", "sizes")

    def __init__(self) -> None:
        self.receivers = self.senders = self.sizes = 0


class Rights:
    """What one connection may do: the settings of a vhost's group (schema.VHOST_GROUP), all of them given."""

    def __init__(
        self, settings: dict[str, Any], user: str, max_message_size: int = 0, denials: Denials | None = None
    ) -> None:
        self.denials = denials or Denials()
        self.targets = Names(settings["targets"], settings["targetPattern"], user)
        self.sources = Names(settings["sources"], settings["sourcePattern"], user)
        self.dynamic: bool = settings["allowDynamicSource"]
        self.anonymous: bool = settings["allowAnonymousSender"]
        self.waypoints: bool = settings["allowWaypointLinks"]
        self.max_senders: int = settings["maxSenders"]
        self.max_receivers: int = settings["maxReceivers"]
        self.max_message_size = max_message_size
        self.admin: bool = settings["allowAdminStatusUpdate"]

    def may_send(self, address: str) -> bool:
        return self.targets.allow(strip(address))

    def check_attach(
        self, connection: RouterConnection, *, incoming: bool, address: str | None, dynamic: bool, waypoint: bool
    ) -> None:
        """Raises AmqpError unless this link may be attached. `incoming`: the peer sends; `waypoint`: it asks for a
        phase of its own."""
        try:
            self._check(connection, incoming, address, dynamic, waypoint)
        except AmqpError:
            self.denials.senders += incoming
            self.denials.receivers += not incoming
            raise

    def _check(
        self, connection: RouterConnection, incoming: bool, address: str | None, dynamic: bool, waypoint: bool
    ) -> None:
        if incoming and connection.senders >= self.max_senders:
            raise AmqpError("amqp:resource-limit-exceeded", _DENIED)
        if not incoming and connection.receivers >= self.max_receivers:
            raise AmqpError("amqp:resource-limit-exceeded", _DENIED)
        if incoming:
            allowed = self.anonymous if address is None and not dynamic else dynamic or self.may_send(address or "")
        else:
            allowed = self.dynamic if dynamic else self.sources.allow(strip(address or ""))
        if not allowed or (waypoint and not self.waypoints):
            raise AmqpError("amqp:unauthorized-access", _DENIED)


_NOT_HONOURED = {
    "maxFrameSize": "use the listener's",
    "maxSessions": "use the listener's",
    "maxSessionWindow": "leave it out: memory is bounded all the same",
}


def read_group(vhost: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """A group's settings, all of them. Raises ManagementError 400 for what is not known or would not be honoured."""
    where = f"vhost '{vhost}', group '{name}'"
    settings = {attribute.name: attribute.default for attribute in VHOST_GROUP}
    attributes = {attribute.name: attribute for attribute in VHOST_GROUP}
    for key, value in given.items():
        attribute = attributes.get(str(key))
        if attribute is None:
            raise ManagementError(BAD_REQUEST, f"{where}: unknown attribute '{key}'")
        if value is None:
            continue
        try:
            value = settings[attribute.name] = coerce(attribute, value)
        except ManagementError as error:
            raise ManagementError(BAD_REQUEST, f"{where}: {error}") from None
        if attribute.kind == "int" and value < 0:
            raise ManagementError(BAD_REQUEST, f"{where}: {key} must not be negative, it is {value}")
        if value and key in _NOT_HONOURED:
            raise ManagementError(
                BAD_REQUEST, f"{where}: {key} is not supported by this router; {_NOT_HONOURED[str(key)]}"
            )
    if not settings["allowUserIdProxy"]:
        raise ManagementError(
            BAD_REQUEST,
            f"{where}: allowUserIdProxy false is not supported by this router: it does not look at user-ids",
        )
    for names, pattern in (("sources", "sourcePattern"), ("targets", "targetPattern")):
        if settings[names] is not None and settings[pattern] is not None:
            raise ManagementError(BAD_REQUEST, f"{where}: give {names} or {pattern}, not both")
    return settings


class Vhost:
    """One configured vhost."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.hostname: str = body["hostname"]
        self.denials = Denials()
        self.approved = self.denied = 0
        groups = body["groups"] or {}
        if not isinstance(groups, dict) or not all(isinstance(g, dict) for g in groups.values()):
            raise ManagementError(BAD_REQUEST, f"vhost '{self.hostname}': groups must be a map of maps")
        self.groups = {str(name): read_group(self.hostname, str(name), group) for name, group in groups.items()}

    def group_for(self, user: str, host: str) -> dict[str, Any] | None:
        for name, group in self.groups.items():
            users = _csv(group["users"])
            if name != "$default" and (user in users or "*" in users):
                return group if _from_host(group["remoteHosts"], host) else None
        default = self.groups.get("$default")
        if default is not None and self.body["allowUnknownUser"] and _from_host(default["remoteHosts"], host):
            return default
        return None


def _first(*values: int | None) -> int:
    """The narrowest setting that was made: the group's, the vhost's, the policy's."""
    return next((value for value in values if value is not None), 0)


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
            raise self._deny(vhost)
        per_user = _first(group["maxConnectionsPerUser"], vhost.body["maxConnectionsPerUser"])
        per_host = _first(group["maxConnectionsPerHost"], vhost.body["maxConnectionsPerHost"])
        by_user, by_host = (vhost.hostname, user), (vhost.hostname, host)
        here = sum(1 for name, _, _ in self._open.values() if name == vhost.hostname)
        if (
            here >= vhost.body["maxConnections"]
            or self._users.get(by_user, 0) >= per_user
            or self._hosts.get(by_host, 0) >= per_host
        ):
            raise self._deny(vhost)
        vhost.approved += 1
        self._users[by_user] = self._users.get(by_user, 0) + 1
        self._hosts[by_host] = self._hosts.get(by_host, 0) + 1
        self._open[connection.identity] = (vhost.hostname, user, connection.host)
        size = _first(group["maxMessageSize"], vhost.body["maxMessageSize"], self.max_message_size)
        connection.rights = Rights(group, user, size, vhost.denials)

    def connections_of(self, vhost: Vhost) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """The open connections (host:port) of a vhost: by user, and by host."""
        users: dict[str, list[str]] = {}
        hosts: dict[str, list[str]] = {}
        for name, user, peer in self._open.values():
            if name == vhost.hostname:
                users.setdefault(user, []).append(peer)
                hosts.setdefault(peer.rpartition(":")[0], []).append(peer)
        return users, hosts

    def _deny(self, vhost: Vhost | None) -> AmqpError:
        self.denied += 1
        if vhost is not None:
            vhost.denied += 1
        return AmqpError("amqp:resource-limit-exceeded", "connection disallowed by local policy")

    def connection_closed(self, connection: RouterConnection) -> None:
        entry = self._open.pop(connection.identity, None)
        if entry is None:
            return
        vhost, user, peer = entry
        host = peer.rpartition(":")[0]
        for counts, key in ((self._users, (vhost, user)), (self._hosts, (vhost, host))):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
