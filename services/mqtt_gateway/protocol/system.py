"""Topics below `$SYS/`: numbers of the whole suite, under the names that mosquitto and EMQX use. No sockets, no clock.

The subscription service adds up what all gateways report, so each gateway has the same sums. Clients subscribe at their
gateway: these subscriptions are in no stored session, and end with the connection.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import exp
from typing import Final, Protocol

from enmasse import __version__
from services.mqtt_gateway.interfaces import SYSTEM

INTERVAL: Final = 10.0
"""Seconds between two reports, as mosquitto's sys_interval."""
_MINUTES: Final = (1, 5, 15)
_LOADS: Final = {
    "connections": "connects",
    "bytes/received": "bytesIn",
    "bytes/sent": "bytesOut",
    "messages/received": "packetsIn",
    "messages/sent": "packetsOut",
    "publish/received": "publishIn",
    "publish/sent": "publishOut",
    "publish/dropped": "dropped",
}
"""Topic below `$SYS/broker/load` → counter whose increase a minute it has, as a moving average."""


OF_SPACE: Final = frozenset(
    {
        "version", "uptime", "clients/connected", "clients/active", "clients/disconnected", "clients/inactive",
        "clients/total", "clients/maximum", "publish/messages/sent", "subscriptions/count", "retained messages/count",
        "stats/connections/count", "stats/sessions/count", "stats/subscriptions/count", "stats/retained/count",
        "metrics/messages/sent",
    }
)  # fmt: skip
"""Names that clients of another address space than the default one have, with the numbers of their space."""


class SystemReader(Protocol):
    """A client with subscriptions below `$SYS/`."""

    def system(self, topics: Mapping[str, bytes]) -> None:
        """Send the topics that match, and that the client may read."""


class System:
    """The topics with their values, and the clients that read them. `only`: the names behind `$SYS/broker/` and
    `$SYS/brokers/enmasse/` that there are; empty: all."""

    def __init__(self, only: Collection[str] = ()) -> None:
        self._only = only
        self.topics: dict[str, bytes] = {}
        self.readers: set[SystemReader] = set()
        self._most = 0
        self._before: Mapping[str, int] | None = None
        self._loads: dict[tuple[str, int], float] = {}

    def take(self, sums: Mapping[str, int], uptime: float, seconds: float) -> None:
        """Take the sums over all gateways, and send what is different to the readers. `uptime`: of the oldest gateway;
        `seconds`: since the sums before."""
        self._most = max(self._most, sums.get("clients", 0))
        self._average(sums, seconds)
        found = {topic: str(value).encode() for topic, value in self._values(sums, uptime).items()}
        changed = {topic: value for topic, value in found.items() if self.topics.get(topic) != value}
        self.topics = found
        for reader in list(self.readers):
            reader.system(changed)

    def _average(self, sums: Mapping[str, int], seconds: float) -> None:
        before, self._before = self._before, sums
        if before is None or seconds <= 0:
            return
        for counter in _LOADS.values():
            rate = max(0, sums.get(counter, 0) - before.get(counter, 0)) * 60 / seconds
            for minutes in _MINUTES:
                keep = exp(-seconds / (60 * minutes))
                old = self._loads.get((counter, minutes), 0.0)
                self._loads[counter, minutes] = rate + keep * (old - rate)

    def _values(self, sums: Mapping[str, int], uptime: float) -> dict[str, str | int]:
        def of(counter: str) -> int:
            return sums.get(counter, 0)

        connected, sessions = of("clients"), max(of("sessions"), of("clients"))
        found: dict[str, str | int] = {
            "version": f"EnMasse version {__version__}",
            "uptime": f"{int(uptime)} seconds",
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": sessions - connected,
            "clients/inactive": sessions - connected,
            "clients/total": sessions,
            "clients/maximum": self._most,
            "messages/received": of("packetsIn"),
            "messages/sent": of("packetsOut"),
            "publish/messages/received": of("publishIn"),
            "publish/messages/sent": of("publishOut"),
            "publish/messages/dropped": of("dropped"),
            "bytes/received": of("bytesIn"),
            "bytes/sent": of("bytesOut"),
            "subscriptions/count": of("subscriptions"),
            "retained messages/count": of("retained"),
        }
        for topic, counter in _LOADS.items():
            for minutes in _MINUTES:
                found[f"load/{topic}/{minutes}min"] = f"{self._loads.get((counter, minutes), 0.0):.2f}"
        node: dict[str, str | int] = {
            "version": __version__,
            "uptime": f"{int(uptime)} seconds",
            "sysdescr": "EnMasse",
            "stats/connections/count": connected,
            "stats/sessions/count": sessions,
            "stats/subscriptions/count": of("subscriptions"),
            "stats/retained/count": of("retained"),
            "metrics/bytes/received": of("bytesIn"),
            "metrics/bytes/sent": of("bytesOut"),
            "metrics/packets/received": of("packetsIn"),
            "metrics/packets/sent": of("packetsOut"),
            "metrics/messages/received": of("publishIn"),
            "metrics/messages/sent": of("publishOut"),
            "metrics/messages/dropped": of("dropped"),
        }
        if self._only:
            found = {name: value for name, value in found.items() if name in self._only}
            node = {name: value for name, value in node.items() if name in self._only}
        return {
            **{f"{SYSTEM}broker/{name}": value for name, value in found.items()},
            f"{SYSTEM}brokers": "enmasse",
            **{f"{SYSTEM}brokers/enmasse/{name}": value for name, value in node.items()},
        }
