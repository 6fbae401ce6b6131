"""The MQTT half's metrics (docs/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from enmasse.metrics import connections, counter, gauge, single
from enmasse.mqtt import reasons
from services.mqtt_gateway.protocol.server_state import ServerState

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PACKETS: Final = (
    "",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)


def families(server_state: ServerState, relayed: int) -> Iterator[Metric]:
    """Yield the metrics of the MQTT half. `relayed`: clients of AMQP over WebSocket."""
    clients = server_state.clients
    yield gauge("mqtt_clients", "MQTT clients that are connected now.", single(len(clients)))
    yield gauge("mqtt_amqp_clients", "AMQP clients over WebSocket that are connected now.", single(relayed))
    yield gauge("mqtt_clients_opening", "Clients whose session is being opened.", single(len(server_state.opening)))
    users = Counter(client.owner.principal.full_name for client in clients)
    yield connections("mqtt", users)
    both = [client.in_flight for client in clients]
    yield gauge(
        "mqtt_in_flight",
        "Messages of QoS 1 and 2 whose exchange is not over.",
        [
            ({"direction": "in"}, sum(each[0] for each in both)),
            ({"direction": "out"}, sum(each[1] for each in both)),
        ],
    )
    for direction, counts in (("in", server_state.packets_in), ("out", server_state.packets_out)):
        yield counter(
            f"mqtt_packets_{direction}_total",
            f"Packets {'from' if direction == 'in' else 'to'} clients, by type.",
            [({"type": PACKETS[kind]}, count) for kind, count in enumerate(counts) if count],
        )
    yield counter(
        "mqtt_connects_refused_total",
        "Connections that were refused, by the name of the reason code of MQTT 5.",
        [({"reason": reasons.name(reason)}, count) for reason, count in server_state.refused.items()],
    )
    yield counter(
        "mqtt_closed_total",
        "Connections that have ended, by the name of the reason code of MQTT 5; lost ones as unspecified error.",
        [({"reason": reasons.name(reason)}, count) for reason, count in server_state.closed.items()],
    )
    yield gauge("mqtt_kept_bytes", "Bytes that wait, to and from clients.", single(server_state.memory.total))
    yield counter(
        "mqtt_dropped_total",
        "Messages that a client could not get: too large for it, or expired while they waited.",
        single(server_state.dropped),
    )
