"""Addresses at which clients connect: those of `enmasse up --listen`, beside loopback."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from enmasse.model.loopback import is_loopback
from enmasse.model.names import space_error
from enmasse.supervisor.plan.internal_ports import LOOPBACK
from enmasse.text import endpoint

PLAIN = frozenset({"amqp", "coap", "http", "mqtt", "stomp", "stompws", "ws"})
TLS = frozenset({"amqps", "console", "https", "mqtts", "stomps", "stompwss", "wss"})
_EVERYWHERE = {"0.0.0.0": 4, "::": 6}  # noqa: S104 - only for those who ask for it
_BOTH = {"*": tuple(_EVERYWHERE), "localhost": (LOOPBACK, "::1")}
_IPV6 = Path("/proc/net/if_inet6")
_GET_ADDRESS = 0x8915  # SIOCGIFADDR
Place = tuple[str, str, int, str | None]
"""Protocol, host, port and address space of a listener."""
NO_NAMES: Mapping[Place, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Listen:
    """One `--listen`. `protocol`: None: all. `port`: None: that of the protocol, with the offset. `space`: address
    space of all of its clients; None: each means its own."""

    text: str
    host: str
    protocol: str | None = None
    port: int | None = None
    space: str | None = None

    @property
    def hosts(self) -> list[str]:
        """The addresses or names at which sockets are opened."""
        if self.host not in _BOTH:
            return [self.host]
        return [host for host in _BOTH[self.host] if _version(host) == 4 or _IPV6.exists()]

    @property
    def is_local(self) -> bool:
        """Return True if only this machine reaches it. Names other than localhost may be those of any address."""
        return all(is_loopback(host) for host in self.hosts)


class Listener(NamedTuple):
    """A listener for clients. `name`: its protocol; of a second one of a protocol with a number behind it. `space`: as
    of `Listen`."""

    name: str
    protocol: str
    host: str
    port: int
    space: str | None = None

    @property
    def at(self) -> str:
        """Return host:port."""
        return endpoint(self.host, self.port)

    @property
    def place(self) -> Place:
        """Return what tells it from others."""
        return self.protocol, self.host, self.port, self.space


def parse(text: str) -> Listen:
    """Return the meaning of `[PROTOCOL=]HOST[:PORT]`, or of `PROTOCOL=HOST:PORT@SPACE`; an IPv6 address with a port
    stands in brackets. Raises ValueError, which names what is wrong."""
    place, at, space = text.partition("@")
    head, equals, rest = place.rpartition("=")
    if equals and head not in PLAIN | TLS:
        raise ValueError(f"there is no protocol {head!r}; known are {', '.join(sorted(PLAIN | TLS))}")
    if (
        not rest
        or (rest.startswith(":") and rest[:2] != "::")
        or not text.isprintable()
        or any(c in text for c in " /")
        or (at and space_error(space) is not None)
    ):
        raise ValueError(
            "expected [PROTOCOL=]HOST[:PORT], such as 192.0.2.1 or mqtts=[::]:8883, or PROTOCOL=HOST:PORT@SPACE"
        )
    host, port = rest, ""
    if rest.startswith("["):
        host, bracket, after = rest[1:].partition("]")
        if not bracket or _version(host) != 6 or (after and not after.startswith(":")):
            raise ValueError("brackets are for an IPv6 address: [::1]:1883")
        port = after[1:]
        if after and not port:
            raise ValueError("the port is missing after the colon")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
        if not port:
            raise ValueError("the port is missing after the colon")
    if ":" in host and _version(host) != 6:
        raise ValueError(f"{host!r} is no IPv6 address")
    if port and not equals:
        raise ValueError(f"a port belongs to one protocol: write for example amqps={rest}")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("the port must be a number from 1 to 65535")
    if at and head == "console":
        raise ValueError("the console is of no address space: leave @SPACE out")
    if at and not port:
        raise ValueError(
            f"a listener of one address space has a port of its own: write for example mqtts={rest}:8885{at}{space}"
        )
    return Listen(text, host, head or None, int(port) if port else None, space or None)


def listeners(
    ports: Mapping[str, int], wanted: Iterable[Listen], *, plaintext: bool, known: Mapping[Place, str] = NO_NAMES
) -> list[Listener]:
    """Return the listeners of protocols (with their ports): on loopback, and as `wanted`. `plaintext`: those without
    TLS are opened beyond loopback too. `known`: names of some, which they keep and no other one gets."""
    wanted, found = list(wanted), []
    for protocol, port in ports.items():
        places: dict[tuple[str, int], str | None] = {(LOOPBACK, port): None}
        for each in wanted:
            if each.protocol in (None, protocol) and (plaintext or protocol in TLS or each.is_local):
                for host in each.hosts:
                    places.setdefault((host, each.port or port), each.space)
        # A socket on all addresses of a family has those of loopback too.
        places = {place: space for place, space in places.items() if not _is_covered(*place, places)}
        numbered = (protocol if number == 1 else f"{protocol}-{number}" for number in count(1))
        free = (name for name in numbered if name not in known.values())
        for (host, at), space in places.items():
            name = known.get((protocol, host, at, space)) or next(free)
            found.append(Listener(name, protocol, host, at, space))
    return found


def contradiction(ports: Mapping[str, int], found: Iterable[Listener], wanted: Iterable[Listen]) -> Listen | None:
    """Return a wanted listener of an address space whose place another one has; None: no such listener.
    `ports`: of the protocols."""
    opened = list(found)
    for each in wanted:
        if each.space is not None and each.port in ports.values():
            return each
        hosts = set(each.hosts if each.space is not None else ())
        for one in opened:
            is_there = one.port == each.port and (one.host in hosts or (hosts and one.host in _EVERYWHERE))
            if is_there and (one.space, one.protocol) != (each.space, each.protocol):
                return each
    return None


def names(wanted: Iterable[Listen]) -> list[str]:
    """Return the names and addresses by which clients reach these: of this machine, if it is all its addresses."""
    found: dict[str, None] = {}
    for host in (host for each in wanted for host in each.hosts):
        found.update(dict.fromkeys(_own_addresses(_EVERYWHERE[host]) if host in _EVERYWHERE else [host]))
    return list(found)


def _is_covered(host: str, port: int, places: Iterable[tuple[str, int]]) -> bool:
    return any(other != host and at == port and _EVERYWHERE.get(other, 0) == _version(host) for other, at in places)


def _version(host: str) -> int | None:
    """Return the version of an IP address; None for a name."""
    with contextlib.suppress(ValueError):
        return ip_address(host).version
    return None


def _own_addresses(version: int) -> list[str]:
    """Return the addresses of this machine's interfaces, without those of one link only."""
    found: list[IPv4Address | IPv6Address] = []
    if version == 4:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):  # it has none
                    answer = fcntl.ioctl(asking, _GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
                    found.append(IPv4Address(answer[20:24]))
    else:
        with contextlib.suppress(OSError):  # the kernel has no IPv6
            found += [IPv6Address(bytes.fromhex(line[:32])) for line in _IPV6.read_text().splitlines()]
    return [str(address) for address in found if not address.is_link_local]
