"""Messages to a client: `interfaces.Settlements`, and what the sources of its session report.

QoS 2: each message is an exchange, which ends once the client has completed it and the broker has forgotten the message
(4.3.3). Whatever is lost in between, the exchange continues where it was.

A message is known by its identity, the delivery-tag of a session's queue. Without one (anycast, multicast),
nothing is stored: there it is at least once.

A message of a contended source (a queue address, the queue of a shared subscription) is stored with its packet id, then
accepted, then sent. From then on it is this client's, and no other session gets it (v5 MQTT-4.8.2-4, MQTT-4.8.2-5): the
subscription service refuses a message that another session has. A message that is too large to be stored, or for which
there is no room, is accepted after PUBREC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from enmasse.model.sessions import MOST_HELD, Outgoing, is_contended
from services.mqtt_gateway.amqp.repeats import Repeats, accept
from services.mqtt_gateway.amqp.session_service import Op, PacketIdOutcome, PacketIds
from services.mqtt_gateway.interfaces import Deliveries, Delivery, Heading

MOST_ENDED = 1024
"""Messages of one session that are complete and may be redelivered, because the broker does not settle."""


class _Exchange:
    """A QoS 2 message to the client. `delivery` None: it was under way when the session was opened and has not come
    again. `packet_id` 0: none yet. `taken`: PUBREC or the message is stored, the broker may forget it. `settled`: it
    has. `finished`: PUBCOMP has come. `asked`: `out` is not answered yet. `contended`: from such a source; whether the
    broker has settled is known only if it confirms that, because the message may be redelivered to others."""

    __slots__ = ("asked", "contended", "delivery", "finished", "key", "packet_id", "settled", "source", "taken")

    def __init__(self, source: str, delivery: Delivery | None, packet_id: int = 0) -> None:
        self.source = source
        self.contended = is_contended(source)
        self.key: tuple[str, str] | None = None  # source and identity
        self.delivery = delivery
        self.packet_id = packet_id
        self.asked = False
        self.taken = False
        self.settled = False
        self.finished = False


class Exchanges:
    """Messages to the client of one session. `sent`: those under way when it was opened."""

    __slots__ = ("_begun", "_by_id", "_client", "_ended", "_once", "_packet_ids", "_repeats", "_stated")

    def __init__(self, packet_ids: PacketIds, sent: Sequence[Outgoing]) -> None:
        self._packet_ids = packet_ids
        self._client: Deliveries | None = None
        self._repeats = Repeats()
        self._begun = {(each.source, each.identity): each.qos for each in sent if each.state == "published"}
        self._by_id: dict[int, _Exchange] = {}
        self._once: dict[tuple[str, str], _Exchange] = {}  # by source and identity, until the broker has settled
        self._stated: dict[tuple[str, int], _Exchange] = {}  # accepted by delivery-id, and not settled by the broker
        self._ended: dict[tuple[str, str], None] = {}  # of brokers that do not settle: what may come once more
        for each in sent:
            if each.state != "published" and each.identity is not None:
                exchange = self._by_id[each.pid] = _Exchange(each.source, None, each.pid)
                exchange.taken = True
                exchange.finished = each.state == "completed"
                self._remember((each.source, each.identity), exchange)

    def _remember(self, key: tuple[str, str], exchange: _Exchange) -> None:
        exchange.key = key
        self._once[key] = exchange

    def start(self, client: Deliveries) -> None:
        """Give messages to this client."""
        self._client = client

    def close(self) -> None:
        """Report nothing further: the session has ended, and with it the links that it received from."""
        self._now_late(self._by_id.values())
        self._client = None

    # messages

    def arrived(self, delivery: Delivery) -> None:
        """Deliver a message that matches a subscription, unless the client has it already."""
        if not (self._goes_on(delivery) or self._repeats.goes_on(delivery)) and self._client is not None:
            self._client.deliver(delivery)

    def arrived_together(self, messages: Sequence[tuple[Heading, bytes]]) -> bool:
        """Deliver messages of QoS 0 that do not expire, all or none. None while the client may have some of them
        already."""
        if self._client is None or self._once or self._ended or self._repeats.expected:
            return False
        return self._client.send_together(messages)

    def delivered_together(self, deliveries: Sequence[Delivery]) -> bool:
        """As `arrived_together`, for messages of QoS 1."""
        if self._client is None or self._once or self._ended or self._repeats.expected:
            return False
        return self._client.deliver_together(deliveries)

    def under_way(self, source: str, identity: str) -> int:
        """Return the QoS with which this message was sent to the client, or is about to be; 0: it was not."""
        return 2 if (source, identity) in self._once else self._begun.get((source, identity), 0)

    def settle(self, delivery: Delivery) -> None:
        """As interfaces.Settlements."""
        if delivery.handle is None:
            return  # it comes from the gateway itself: `$SYS/`
        if delivery.identity is not None and self._once:
            self._once.pop((delivery.source, delivery.identity), None)  # no exchange: the client cannot get it
        if not accept(delivery):
            self._repeats.settled(delivery)

    def settle_all(self, deliveries: Sequence[Delivery]) -> None:
        """As interfaces.Settlements: at once if they are of one link."""
        handle = deliveries[0].handle
        if handle is not None and not self._once:
            source, link, *_ = handle
            ids = [each.handle[2] for each in deliveries if each.handle is not None and each.handle[1] is link]
            if link is not None and len(ids) == len(deliveries) and source.accept_all(link, ids):
                return
        for each in deliveries:
            self.settle(each)

    def _goes_on(self, delivery: Delivery) -> bool:
        """Return whether it is a message that the client has, or is getting, already: then this is done here."""
        identity = delivery.identity
        if identity is None or (delivery.qos < 2 and not self._once and not self._ended):
            return False
        known = self._once.get((delivery.source, identity))
        if known is None:
            if (delivery.source, identity) in self._ended:
                accept(delivery)
                return True
            if delivery.qos == 2:
                self._remember((delivery.source, identity), _Exchange(delivery.source, delivery))
            return False
        if known.delivery is None:
            known.delivery = delivery
        else:
            known.delivery.handle = delivery.handle
        if known.taken:
            known.settled = False  # it was redelivered
            self._accept(known)
        return True

    # packets

    def assign(self, delivery: Delivery, packet_id: int) -> None:
        """As interfaces.Settlements; the id is stored if the message has an identity."""
        exchange = self._of(delivery, packet_id)
        if delivery.identity is None:
            self._assigned(packet_id)
            return
        source, link, delivery_id, message = delivery.handle
        if not exchange.contended:
            self._packet_ids.change(
                "out", packet_id, delivery.identity, delivery.source, lambda _: self._assigned(packet_id)
            )
            return
        delivery.handle = (source, link, delivery_id, b"")
        if len(message) > MOST_HELD:
            message = b""
        given = partial(self._given, exchange, bool(message))
        exchange.asked = True
        self._packet_ids.change("out", packet_id, delivery.identity, delivery.source, given, message)
        if link is not None and not source.holds(link):
            self._packet_ids.late(packet_id)

    def _assigned(self, packet_id: int) -> None:
        if self._client is not None:
            self._client.assigned(packet_id)

    def _now_late(self, exchanges: Iterable[_Exchange]) -> None:
        """The deliveries of these are lost. The broker may give the messages to other sessions, which may have
        completed them by the time that an `out` reaches the service."""
        for exchange in exchanges:
            if exchange.asked:
                self._packet_ids.late(exchange.packet_id)

    def _given(self, exchange: _Exchange, held: bool, verdict: PacketIdOutcome) -> None:
        """Go on with a message of a contended source, or withdraw it if it is, or may be, another session's."""
        if self._client is None:
            return
        packet_id, delivery = exchange.packet_id, exchange.delivery
        exchange.asked = False
        if verdict is PacketIdOutcome.LATE and delivery is not None:
            source, link, *_ = delivery.handle
            if link is not None and source.holds(link):
                self.assign(delivery, packet_id)  # the broker has redelivered it
                return
        if verdict not in (PacketIdOutcome.TAKEN, PacketIdOutcome.LATE):
            if held and verdict is PacketIdOutcome.DONE:
                self._accept(exchange)
            self._client.assigned(packet_id)
            return
        self._by_id.pop(packet_id, None)
        if exchange.key is not None:
            self._once.pop(exchange.key, None)
        if delivery is not None and verdict is PacketIdOutcome.TAKEN:
            accept(delivery)
        self._client.withdrawn(packet_id)

    def hold(self, delivery: Delivery, packet_id: int) -> None:
        """Deliver a message again that the subscription service holds for the client."""
        exchange = self._by_id[packet_id] = _Exchange(delivery.source, delivery, packet_id)
        exchange.taken = True
        if delivery.identity is not None:
            self._remember((delivery.source, delivery.identity), exchange)
        if self._client is not None:
            self._client.deliver(delivery)

    def received(self, delivery: Delivery, packet_id: int) -> None:
        """As interfaces.Settlements."""
        exchange = self._of(delivery, packet_id)
        if delivery.identity is None:
            self._received(exchange, PacketIdOutcome.DONE)
            return
        received = partial(self._received, exchange)
        self._packet_ids.change("rel", packet_id, delivery.identity, delivery.source, received)

    def _received(self, exchange: _Exchange, verdict: PacketIdOutcome) -> None:
        if self._client is not None:
            self._accept(exchange)
            self._client.received(exchange.packet_id)

    def complete(self, packet_id: int, delivery: Delivery | None) -> None:
        """As interfaces.Settlements."""
        exchange = self._by_id.get(packet_id) if delivery is None else self._of(delivery, packet_id)
        if exchange is None:
            self._forget("out-", packet_id, stored=True)
            return
        exchange.finished = True
        self._accept(exchange)
        self._end(exchange)

    def completed(self) -> list[Outgoing]:
        """Return the exchanges that the client has completed and that the broker may not have settled."""
        return [
            Outgoing(packet_id, 2, each.key[1], each.key[0], "completed")
            for packet_id, each in self._by_id.items()
            if each.finished and each.key is not None
        ]

    def _of(self, delivery: Delivery, packet_id: int) -> _Exchange:
        exchange = self._by_id.get(packet_id)
        if exchange is None and delivery.identity is not None:
            exchange = self._once.get((delivery.source, delivery.identity))
        if exchange is None:
            exchange = _Exchange(delivery.source, delivery)
            if delivery.identity is not None:
                self._remember((delivery.source, delivery.identity), exchange)
        exchange.packet_id = packet_id
        self._by_id[packet_id] = exchange
        return exchange

    # the broker

    def _accept(self, exchange: _Exchange) -> None:
        """The broker may forget it: if this delivery is lost, the next one of the message is accepted."""
        exchange.taken = True
        delivery = exchange.delivery
        if delivery is None or exchange.settled:
            return
        source, link, delivery_id, _ = delivery.handle
        if link is None and exchange.contended:
            return  # it is held
        if link is None or delivery.identity is None or not link.second:
            accept(delivery)
            exchange.settled = delivery.identity is None or not exchange.contended
        elif (source.address, delivery_id) not in self._stated and accept(delivery):
            self._stated[source.address, delivery_id] = exchange

    def settled(self, source: str, delivery_ids: Sequence[int]) -> None:
        """Forget deliveries that the broker has settled: they are not redelivered."""
        for delivery_id in delivery_ids if self._stated else ():
            exchange = self._stated.pop((source, delivery_id), None)
            if exchange is not None:
                self._gone(exchange)

    def unsure(self, source: str) -> bool:
        """Return True if messages may be redelivered, or the broker may not have settled one that was accepted."""
        if not is_contended(source) and any(each.taken and each.source == source for each in self._once.values()):
            return True
        return self._repeats.unsure(source)

    def drained(self, source: str) -> None:
        """The queue has redelivered all its messages: those that are missing were settled."""
        self._repeats.drained(source)
        if is_contended(source):
            return  # it may have come to others
        stated = set(map(id, self._stated.values()))
        for exchange in list(self._once.values()):
            if exchange.taken and not exchange.settled and exchange.source == source and id(exchange) not in stated:
                self._gone(exchange)

    def lost(self, source: str) -> None:
        """The link is lost: unsettled messages will be redelivered, accepted ones may be."""
        if self._client is not None:
            self._repeats.lost(source, self._client.unsettled())
        for key in [key for key in self._stated if key[0] == source]:
            self._end(self._stated.pop(key))
        self._now_late(each for each in self._by_id.values() if each.source == source)
        for exchange in self._once.values():
            if exchange.source == source:
                exchange.settled = False  # a broker that does not settle may not have read it

    def _gone(self, exchange: _Exchange) -> None:
        """The broker has forgotten the message."""
        exchange.settled = True
        if exchange.key is not None:
            self._once.pop(exchange.key, None)
        self._end(exchange)

    def _end(self, exchange: _Exchange) -> None:
        """End the exchange once the client is done and the broker has settled, in either order.

        That of a contended source ends as well when the broker's settlement can no longer come.
        """
        if not exchange.finished:
            return
        over: Op = "out-"
        if not exchange.settled:
            if not exchange.contended or exchange in self._stated.values():
                return
            over = "end"
            if exchange.key is not None:
                self._once.pop(exchange.key, None)
        elif exchange.key is not None and self._once.pop(exchange.key, None) is not None:
            # The acceptance was sent and the broker does not confirm it. More than are ever under way are remembered.
            self._ended[exchange.key] = None
            if len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]
        packet_id, delivery = exchange.packet_id, exchange.delivery
        self._by_id.pop(packet_id, None)
        self._forget(over, packet_id, stored=delivery is None or delivery.identity is not None)

    def _forget(self, op: Op, packet_id: int, *, stored: bool) -> None:
        """Free the packet id of an exchange that has ended."""
        if self._client is None:
            return
        if stored:
            self._packet_ids.change(op, packet_id, None, "", None)
        self._client.completed(packet_id)
