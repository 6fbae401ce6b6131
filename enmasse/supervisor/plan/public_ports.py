"""Public ports, at which a suite serves clients, operators and commands. They are checked before anything starts.
Those between processes of the suite are in `internal_ports.py`."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enmasse.network.port_sockets import bind
from enmasse.process.service_table import DOORS
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.internal_ports import LISTEN, LOOPBACK, sockets_at

OTHER_HOST = "Name an address or a name of this machine"
OTHER_PORTS = "choose other ports with --port-offset N"

AMQP, AMQPS, OPERATORS, HTTP = 5672, 5671, 5673, 8080
ADMIN = 8079
"""The supervisor's own HTTP endpoint, for commands on this machine and for the console, which serves HTTP."""
MQTT, MQTTS, WS, WSS = 1883, 8883, 8083, 8084
CONSOLE_HTTPS = 8443
CONSOLE = "console"
"""Name of the console's listener with TLS, and of the console."""


@dataclass(frozen=True, slots=True)
class PublicPorts:
    """Ports on loopback, by the names of their listeners. `offset`: added to each; `tls`: listeners with TLS are
    served, too; `doors`: parts of DOORS that are served; `console`: the console is served with TLS."""

    offset: int
    tls: bool
    mqtt: bool
    doors: frozenset[str]
    console: bool

    @property
    def http(self) -> int:
        """Return the port on which the console serves HTTP."""
        return HTTP + self.offset

    @property
    def operators(self) -> int:
        """Return the port of the first router's listener for operators."""
        return OPERATORS + self.offset

    @property
    def admin(self) -> int:
        """Return the port of the supervisor's own HTTP endpoint."""
        return ADMIN + self.offset

    def of_amqp(self) -> dict[str, int]:
        """Return the ports of the routers' listeners for clients, which the router agent creates."""
        return self._moved({"amqp": AMQP} | ({"amqps": AMQPS} if self.tls else {}))

    def of_mqtt(self) -> dict[str, int]:
        """Return the ports that all MQTT gateways share."""
        if not self.mqtt:
            return {}
        return self._moved({"mqtt": MQTT, "ws": WS} | ({"mqtts": MQTTS, "wss": WSS} if self.tls else {}))

    def of_door(self, part: str) -> dict[str, int]:
        """Return the ports that all gateways of a part of DOORS share."""
        if part not in self.doors:
            return {}
        door = DOORS[part]
        return self._moved({**door.plain, **(door.tls if self.tls else {})})

    def of_console(self) -> dict[str, int]:
        """Return the port of the console with TLS; empty where that is not served."""
        return self._moved({CONSOLE: CONSOLE_HTTPS} if self.console else {})

    def for_clients(self) -> dict[str, int]:
        """Return the ports of all listeners for clients."""
        doors = {name: port for part in DOORS for name, port in self.of_door(part).items()}
        return {**self.of_amqp(), **self.of_mqtt(), **doors, **self.of_console()}

    def all(self) -> dict[str, int]:
        """Return all ports, those for clients first."""
        return {**self.for_clients(), "operators": self.operators, "http": self.http, "admin": self.admin}

    def _moved(self, ports: dict[str, int]) -> dict[str, int]:
        return {name: port + self.offset for name, port in ports.items()}


def bind_public(port: int, what: str) -> socket.socket:
    """Return a listening socket on loopback `port`. Raises StartError with the port, its owner and the remedy."""
    return _bound(socket.AF_INET, (LOOPBACK, port), what, OTHER_PORTS)


def bind_all(host: str, port: int, what: str, remedy: str, *, shared: bool = False) -> list[socket.socket]:
    """Return listening sockets on all addresses of `host`, with `shared` beside others of this user that share the
    port. Raises StartError as `bind_public`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "is no name of a host"
        raise StartError("start.listen.not-available", f"--listen {host}: {reason}. {OTHER_HOST}.") from None
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(_bound(family, address, what, remedy, shared=shared))
    except StartError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _bound(family: int, address: tuple[Any, ...], what: str, remedy: str, *, shared: bool = False) -> socket.socket:
    host, port = address[:2]
    where = f"port {port}" if host == LOOPBACK else f"port {port} of {host}"
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        bind(listening, address, shared=shared, backlog=128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            owner = owner_of(port)
            raise StartError(
                "start.port.in-use",
                f"{where} ({what}) is in use{f' by {owner}' if owner else ''}. Stop what uses it, or {remedy}.",
            ) from None
        if error.errno == errno.EADDRNOTAVAIL:
            text = f"--listen {host}: this machine does not have the address. {OTHER_HOST}."
            raise StartError("start.listen.not-available", text) from None
        raise StartError("start.port.not-available", f"{where} ({what}): {error.strerror}; {remedy}.") from None
    return listening


def owner_of(port: int) -> str | None:
    """Return `name (pid N)` of the process that listens on `port`; None if /proc does not show it to this user."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(descriptor) in wanted:
                        name = (process / "comm").read_text().strip()
                        return f"{name} (pid {process.name})"
    return None


def _listening_inodes(port: int) -> set[str]:
    return {inode for state, inode in sockets_at(port) if state == LISTEN}
