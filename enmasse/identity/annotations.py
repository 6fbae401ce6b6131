"""Message annotations that processes of the suite read: which process or client sets each, which reads it, and its fate
if a client states it (docs/identity.md, "What messages state").

TABLE is the only list. Routers remove facts from all that comes over links of clients, embedded brokers those that
brokers and the subscription service alone may state.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

ORIGINAL_ADDRESS: Final = "x-opt-ORIG-ADDRESS"
ORIGINAL_QUEUE: Final = "x-opt-ORIG-QUEUE"
ORIGINAL_MESSAGE_ID: Final = "x-opt-ORIG-MESSAGE-ID"
ORIGINAL_ROUTING_TYPE: Final = "x-opt-ORIG-ROUTING-TYPE"
ACTUAL_EXPIRY: Final = "x-opt-ACTUAL-EXPIRY"
DEATH: Final = "x-opt-death"
RETAINED_FOR: Final = "x-opt-retained-for"
RETAINED_BY: Final = "x-opt-retained-by"
PUBLISHER: Final = "x-opt-mqtt-publisher"
USER: Final = "x-opt-user"
GROUPS: Final = "x-opt-user-groups"
OF_ROUTERS: Final = "x-opt-qd."
"""Beginning of the names of annotations that routers of a mesh exchange."""
QOS: Final = "x-opt-mqtt-qos"
RETAIN: Final = "x-opt-retain-message"
RESPONSE_TOPIC: Final = "x-opt-mqtt-response-topic"
CORRELATION_DATA: Final = "x-opt-mqtt-correlation-data"
CONTENT_TYPE: Final = "x-opt-mqtt-content-type"
USER_PROPERTIES: Final = "x-opt-mqtt-user-properties"
PAYLOAD_FORMAT: Final = "x-opt-mqtt-payload-format"
CLIENT_ID: Final = "x-opt-client-id"
WILL_DELAY: Final = "x-opt-will-delay"
EPOCH: Final = "x-opt-mqtt-epoch"
WILL_TOPIC: Final = "x-opt-mqtt-will-topic"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
DELIVERY_TIME: Final = "x-opt-delivery-time"
JMS_DESTINATION: Final = "x-opt-jms-dest"


class Fate(StrEnum):
    """Fate of an annotation that a client states."""

    REMOVED = "routers and embedded brokers remove it"
    """No process states it over a router: brokers write it, or the subscription service at a broker."""
    REMOVED_BY_ROUTERS = "routers remove it"
    """Services state it over a router, so a broker cannot know whose it is."""
    KEPT = "kept: it is the client's to set"


class Statement(NamedTuple):
    """A message annotation, or all whose names begin so if the name ends in `-` or `.`."""

    name: str
    set_by: str
    read_by: str
    fate: Fate
    mqtt_property: str = ""
    """Property of MQTT 5 (a field of `enmasse.mqtt.packets.Properties`) that this stands for: AMQP has no other form
    of it, so that gateways copy it in both directions."""

    @property
    def is_prefix(self) -> bool:
        """True if this stands for all names that begin so."""
        return self.name[-1] in "-."


_MAPPED = "gateways and clients, of what MQTT states"
TABLE: Final = (
    Statement("x-opt-ORIG-", "brokers: from where a divert or a move has brought a message; subserv, in copies of "
              "retained messages", "gateways, subserv, console, brokers, traces", Fate.REMOVED),
    Statement(ACTUAL_EXPIRY, "brokers: when a message has expired", "console", Fate.REMOVED),
    Statement(DEATH, "brokers: why a message is a dead letter", "brokers and console (redrive)", Fate.REMOVED),
    Statement(RETAINED_FOR, "subserv: the filter that a copy of a retained message is for", "gateways, subserv",
              Fate.REMOVED),
    Statement(RETAINED_BY, "gateways: the user of a retained message, sealed", "subserv", Fate.REMOVED_BY_ROUTERS),
    Statement(PUBLISHER, "gateways: the client, for No Local", "gateways", Fate.REMOVED_BY_ROUTERS),
    Statement(USER, "gateways, to `$mqtt/wills`: the user of a will", "mqtt_lwt", Fate.REMOVED_BY_ROUTERS),
    Statement(GROUPS, "gateways, to `$mqtt/wills`: groups of that user", "mqtt_lwt", Fate.REMOVED_BY_ROUTERS),
    Statement(OF_ROUTERS, "routers of a mesh", "these", Fate.REMOVED_BY_ROUTERS),
    Statement(QOS, _MAPPED, "gateways, subserv, mqtt_lwt", Fate.KEPT),
    Statement(RETAIN, _MAPPED, "brokers (the feed of retained messages), subserv, gateways, mqtt_lwt", Fate.KEPT),
    Statement(RESPONSE_TOPIC, _MAPPED, "gateways", Fate.KEPT),
    Statement(CORRELATION_DATA, _MAPPED, "gateways", Fate.KEPT),
    Statement(CONTENT_TYPE, _MAPPED, "gateways", Fate.KEPT),
    Statement(USER_PROPERTIES, _MAPPED, "gateways", Fate.KEPT),
    Statement(PAYLOAD_FORMAT, _MAPPED, "gateways", Fate.KEPT, "payload_format"),
    Statement(CLIENT_ID, "clients, to `$lwt`: one of those that their link speaks for; gateways, to `$mqtt/wills`: an "
              "MQTT client", "mqtt_lwt", Fate.KEPT),
    Statement(WILL_DELAY, "clients, to `$lwt`; gateways, to `$mqtt/wills`", "mqtt_lwt", Fate.KEPT),
    Statement(EPOCH, "gateways, to `$mqtt/wills`: the epoch of the client's session", "mqtt_lwt", Fate.KEPT),
    Statement(WILL_TOPIC, "gateways, to `$mqtt/wills`: the topic of the client's will", "mqtt_lwt", Fate.KEPT),
    Statement(DELIVERY_DELAY, "clients", "brokers, routers", Fate.KEPT),
    Statement(DELIVERY_TIME, "clients", "brokers, routers", Fate.KEPT),
    Statement(JMS_DESTINATION, "clients of JMS", "brokers, for the anonymous terminus", Fate.KEPT),
)  # fmt: skip

FACTS: Final = tuple(each for each in TABLE if each.fate is not Fate.KEPT)
"""Statements that are believed, so no client may make them."""
BROKERS_FACTS: Final = tuple(each for each in TABLE if each.fate is Fate.REMOVED)
"""The facts that no process states over a router."""


class Names:
    """Names of some statements, to look for in messages."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        some = tuple(statements)
        self._names = frozenset(each.name for each in some)
        self._beginnings = tuple(each.name for each in some if each.is_prefix)
        self.pattern = re.compile(b"|".join(re.escape(each.name.encode()) for each in some))
        """Pattern that encoded annotations contain if they have one of these, and sometimes without."""

    def has(self, key: Any) -> bool:
        """Return whether the key of an annotation is one of these."""
        return isinstance(key, str) and (key in self._names or key.startswith(self._beginnings))

    def without(self, annotations: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return the annotations that are not among these."""
        return {key: value for key, value in annotations.items() if not self.has(key)}


OF_FACTS: Final = Names(FACTS)
OF_BROKERS_FACTS: Final = Names(BROKERS_FACTS)


def table() -> str:
    """Return TABLE as in docs/identity.md."""
    lines = ["| message annotation | set by | read by | if a client states it |", f"|{'---|' * 4}"]
    for each in TABLE:
        name = f"{each.name}…" if each.is_prefix else each.name
        lines.append(f"| `{name}` | {each.set_by} | {each.read_by} | {each.fate} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
