"""Policy: limits of open connections, and the addresses to which a user of a vhost may attach.

Vhosts and their groups are those of Qpid Dispatch. The rights of a connection are computed once, when it opens;
those of users are in users.py, those of processes of the suite in peers.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from enmasse.amqp.errors import RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS, AmqpError
from enmasse.tries import PatternTrie
from services.router.routing.configuration import GroupConfig, PolicyConfig, VhostConfig
from services.router.routing.names import SINGLE, canonical, strip, tokens

_DENIED = "link disallowed by local policy"


class AllowedAddresses:
    """Addresses that a user may use: names with or without a trailing `*`, or patterns. `${user}` is the user."""

    def __init__(self, names: Iterable[str], patterns: Iterable[str], user: str) -> None:
        self._all = False
        self._prefixes: list[str] = []
        self._exact: set[str] = set()
        self._tree: PatternTrie[bool] = PatternTrie(SINGLE)
        for pattern in patterns:
            self._tree.add(canonical(pattern.replace("${user}", user)), True)
        for name in names:
            name = name.replace("${user}", user)
            if name == "*":
                self._all = True
            elif name.endswith("*"):
                self._prefixes.append(name[:-1])
            else:
                self._exact.add(name)

    def allow(self, address: str) -> bool:
        """Return whether the address (without decoration) is allowed."""
        if self._tree:
            return self._tree.best(tokens(address)) is True
        return self._all or address in self._exact or any(address.startswith(p) for p in self._prefixes)


class Denials:
    """Counts of refusals by the policy of a vhost: links of each direction, messages that were too large."""

    __slots__ = ("receivers", "senders", "sizes")

    def __init__(self) -> None:
        self.receivers = self.senders = self.sizes = 0


class Rights:
    """Rights of one connection: the configuration of its group, for its user. `max_message_size`: bytes, 0: no
    limit."""

    def __init__(self, group: GroupConfig, user: str, max_message_size: int, denials: Denials) -> None:
        self.denials = denials
        self.max_message_size = max_message_size
        self.close_connections = group.close_connections
        self._group = group
        self._targets = AllowedAddresses(group.targets or (), group.target_patterns, user)
        self._sources = AllowedAddresses(group.sources or (), group.source_patterns, user)

    def may_send(self, address: str) -> bool:
        """Return True if the client may send to this address."""
        return self._targets.allow(strip(address))

    def check_message(self, address: str) -> None:
        """Raise AmqpError unless messages may be sent to `address`."""
        if not self.may_send(address):
            raise AmqpError(UNAUTHORIZED_ACCESS, "the message's address is disallowed by local policy")

    def may_receive(self, address: str) -> bool:
        """Return True if the client may receive from this address."""
        return self._sources.allow(strip(address))

    def check_recovered(self, address: str) -> None:
        """Do nothing: the attach was checked."""

    def may_serve(self, pattern: str) -> bool:
        """Return True: vhosts do not restrict which links are passed on to a container."""
        return True

    def check_attach(self, links: int, *, incoming: bool, address: str | None, dynamic: bool, waypoint: bool) -> None:
        """Raise AmqpError unless a further link may be attached. `links`: the client's links of that direction;
        `incoming`: the client sends; `waypoint`: it requests a phase."""
        try:
            self._check(links, incoming, address, dynamic, waypoint)
        except AmqpError:
            self.denials.senders += incoming
            self.denials.receivers += not incoming
            raise

    def _check(self, links: int, incoming: bool, address: str | None, dynamic: bool, waypoint: bool) -> None:
        group = self._group
        if links >= (group.max_senders if incoming else group.max_receivers):
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, _DENIED)
        if not incoming:
            allowed = group.dynamic_sources if dynamic else self.may_receive(address or "")
        elif address is None and not dynamic:
            allowed = group.anonymous_senders
        else:
            allowed = dynamic or self.may_send(address or "")
        if not allowed or (waypoint and not group.waypoint_links):
            raise AmqpError(UNAUTHORIZED_ACCESS, _DENIED)


class Vhost:
    """A configured vhost, with counts of allowed and denied requests."""

    def __init__(self, config: VhostConfig) -> None:
        self.config = config
        self.denials = Denials()
        self.approved = self.denied = 0

    @property
    def hostname(self) -> str:
        """Name of the vhost, as clients state it in their open."""
        return self.config.hostname

    def group_for(self, user: str, host: str) -> GroupConfig | None:
        """Return the group of a user who connects from `host`; None: the connection is refused."""
        groups = self.config.groups
        for name, group in groups.items():
            if name != "$default" and (user in group.users or "*" in group.users):
                return group if _from_host(group.remote_hosts, host) else None
        default = groups.get("$default")
        if default is not None and self.config.allow_unknown_user and _from_host(default.remote_hosts, host):
            return default
        return None


def _first(*values: int | None) -> int:
    """Return the most specific setting: of the group, the vhost, or the policy."""
    return next((value for value in values if value is not None), 0)


def _from_host(allowed: Iterable[str], host: str) -> bool:
    """Return True if `host` is one of these hosts, or in one of these ranges (`low-high`)."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for part in allowed:
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
    """Bounds of the router, its vhosts, and the counters of both. Connections are known by their identity."""

    def __init__(self) -> None:
        self.config = PolicyConfig()
        self.vhosts: dict[str, Vhost] = {}  # by the name of the entity
        self.processed = self.denied = self.current = 0
        self.links_denied = self.size_denied = 0
        self._users: dict[tuple[str, str], int] = {}
        self._hosts: dict[tuple[str, str], int] = {}
        self._open: dict[int, tuple[str, str, str]] = {}  # vhost, user, host:port

    def find(self, hostname: str) -> Vhost | None:
        """Return the vhost with this name or alias, or None."""
        for vhost in self.vhosts.values():
            if vhost.hostname == hostname or hostname in vhost.config.aliases:
                return vhost
        return None

    def socket_accepted(self) -> bool:
        """Count an accepted socket. Return False if there are too many connections."""
        self.processed += 1
        if self.current >= self.config.max_connections:
            self.denied += 1
            return False
        self.current += 1
        return True

    def socket_closed(self) -> None:
        """Count a client's socket that has closed."""
        self.current -= 1

    def admit(self, identity: int, peer: str, hostname: str, user: str) -> Rights | None:
        """Admit a connection from `peer` (host:port). Return its rights; None: no restrictions. Raises AmqpError if the
        connection is not allowed."""
        if not self.config.vhosts_enabled:
            return None
        host = peer.rpartition(":")[0]
        vhost = self.find(hostname or self.config.default_vhost) or self.find(self.config.default_vhost)
        group = None if vhost is None else vhost.group_for(user, host)
        if vhost is None or group is None:
            raise self._deny(vhost)
        config = vhost.config
        per_user = _first(group.max_connections_per_user, config.max_connections_per_user)
        per_host = _first(group.max_connections_per_host, config.max_connections_per_host)
        by_user, by_host = (vhost.hostname, user), (vhost.hostname, host)
        here = sum(1 for name, _, _ in self._open.values() if name == vhost.hostname)
        if (
            here >= config.max_connections
            or self._users.get(by_user, 0) >= per_user
            or self._hosts.get(by_host, 0) >= per_host
        ):
            raise self._deny(vhost)
        vhost.approved += 1
        self._users[by_user] = self._users.get(by_user, 0) + 1
        self._hosts[by_host] = self._hosts.get(by_host, 0) + 1
        self._open[identity] = (vhost.hostname, user, peer)
        size = _first(group.max_message_size, config.max_message_size, self.config.max_message_size)
        return Rights(group, user, size, vhost.denials)

    def connections_of(self, vhost: Vhost) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return the open connections (host:port) of a vhost: by user, and by host."""
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
        return AmqpError(RESOURCE_LIMIT_EXCEEDED, "connection disallowed by local policy")

    def connection_closed(self, identity: int) -> None:
        """Remove a closed connection from the counts of its user and host, if it was counted."""
        entry = self._open.pop(identity, None)
        if entry is None:
            return
        vhost, user, peer = entry
        host = peer.rpartition(":")[0]
        for counts, key in ((self._users, (vhost, user)), (self._hosts, (vhost, host))):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
