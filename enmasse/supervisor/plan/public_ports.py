"""Public ports of a suite: those at which `enmasse up` serves clients, operators and commands. Internal ones, between
processes of the suite, are those of `internal_ports.py`."""

from __future__ import annotations

from dataclasses import dataclass

from enmasse.process.service_table import DOORS

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
