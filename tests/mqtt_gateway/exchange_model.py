"""What models of QoS 2 to clients share: a link to the broker, and the MQTT half of a gateway for one session."""

from __future__ import annotations

from services.mqtt_gateway.amqp.exchanges import Exchanges
from services.mqtt_gateway.interfaces import Delivery


class Link:
    """A link, and the source that holds it. `second`: of rcv-settle-mode second."""

    def __init__(self, end: MqttHalf, address: str, *, second: bool = True) -> None:
        self.end, self.address, self.second = end, address, second
        self.carried: dict[int, str] = {}
        self.accepted: list[int] = []  # stated, the broker has not read it yet

    def holds(self, link: Link) -> bool:
        return link is self.end.link

    def accept(self, link: Link, delivery_id: int) -> bool:
        if not self.holds(link):
            return False
        self.accepted.append(delivery_id)
        return True


class MqttHalf:
    """Packet ids that are in use, and what is on its way to the client. `known`: identity → packet id of what the
    client may have already."""

    exchanges: Exchanges
    link: Link | None
    flying: dict[int, Delivery | None]
    known: dict[str, int]
    to_client: list[tuple[str, int, str]]

    # interfaces.Deliveries

    def deliver(self, delivery: Delivery) -> None:
        identity = delivery.identity or ""
        pid = self.known.pop(identity, None)
        if pid is not None:
            self.flying[pid] = delivery
            self.to_client.append(("publish", pid, identity))
            return
        pid = next(n for n in range(1, 100) if n not in self.flying)
        self.flying[pid] = delivery
        self.exchanges.assign(delivery, pid)

    def send_together(self, messages: object) -> bool:
        return False  # one by one

    deliver_together = send_together

    def assigned(self, packet_id: int) -> None:
        delivery = self.flying[packet_id]
        assert delivery is not None
        self.to_client.append(("publish", packet_id, delivery.identity or ""))

    def received(self, packet_id: int) -> None:
        self.to_client.append(("pubrel", packet_id, ""))

    def withdrawn(self, packet_id: int) -> None:
        del self.flying[packet_id]

    def completed(self, packet_id: int) -> None:
        del self.flying[packet_id]

    def unsettled(self) -> list[Delivery]:
        return []  # all have QoS 2
