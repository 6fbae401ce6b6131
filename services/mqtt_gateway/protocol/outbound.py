"""Messages to the client: packet ids, QoS 0, 1 and 2 (4.3), what was under way before it reconnected (4.4), its receive
maximum (v5 4.9), its largest packet, topic aliases."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil
from typing import Final

from msgspec.structs import replace

from enmasse.logs import log as logs
from enmasse.model.sessions import Outgoing
from enmasse.mqtt import encode, reasons
from enmasse.mqtt.errors import ProtocolError
from enmasse.mqtt.packets import NEVER, NONE, V5, Packet, PubAck, PubComp, PubRec, PubRel
from services.mqtt_gateway.interfaces import Delivery, Heading, Session
from services.mqtt_gateway.protocol.aliases import AliasesOut
from services.mqtt_gateway.protocol.connecting import Terms
from services.mqtt_gateway.protocol.intake import Host
from services.mqtt_gateway.protocol.ordered_answers import InOrder
from services.mqtt_gateway.protocol.output import Output
from services.mqtt_gateway.protocol.server_state import ServerState

# where a QoS 2 exchange is
_ASSIGNING: Final = 0
"""The session stores its id."""
_PUBLISHED: Final = 1
_RECEIVED: Final = 2
"""PUBREC has come, the session stores that."""
_RELEASED: Final = 3
"""PUBREL was sent."""
_COMPLETE: Final = 4
"""PUBCOMP has come, the session forgets the id."""

log = logs.get(part="mqtt")

_TOPICS: dict[str, bytes] = {}
"""Topics that were sent lately, as they stand in a PUBLISH."""
_MOST_TOPICS: Final = 4096
_LONGEST_KEPT: Final = 256
_MOST_IDS: Final = 65_000
"""Packet ids in use, fewer than there are: one is always free."""


def topic_field(topic: str) -> bytes:
    """Return the encoded name of a topic. Raises ValueError if it is not one."""
    found = _TOPICS.get(topic)
    if found is None:
        found = encode.topic_field(topic)
        if len(topic) <= _LONGEST_KEPT:
            if len(_TOPICS) >= _MOST_TOPICS:
                _TOPICS.clear()
            _TOPICS[topic] = found
    return found


class _Exchange:
    """Exchange of QoS 2. Without a delivery: it was released on an earlier connection. `data`: the PUBLISH, until it
    is sent."""

    __slots__ = ("data", "delivery", "state")

    def __init__(self, delivery: Delivery | None, state: int, data: bytes = b"") -> None:
        self.delivery = delivery
        self.state = state
        self.data = data


class Outbound:
    """Messages to one client: `interfaces.Deliveries`."""

    __slots__ = (
        "_aliases",
        "_complete",
        "_earlier",
        "_host",
        "_kept",
        "_largest",
        "_last",
        "_most",
        "_most_two",
        "_one",
        "_output",
        "_rels",
        "_reserved",
        "_server_state",
        "_settlements",
        "_two",
        "_v5",
        "_waiting",
        "_window",
        "blocked",
        "subscribing",
    )

    def __init__(self, server_state: ServerState, host: Host, output: Output, session: Session, terms: Terms) -> None:
        self._server_state = server_state
        self._host = host
        self._output = output
        self._settlements = session.settlements
        self._v5 = terms.request.version == V5
        self._most = terms.receive_maximum
        self._most_two = self._most if self._v5 else server_state.limits.qos_2_window
        self._window = terms.request.window
        self._largest = terms.maximum_packet_size
        self._aliases = AliasesOut(terms.aliases) if terms.aliases else None
        self.blocked = False
        """The client does not read, or the connection is closed: nothing is sent that can wait."""
        self.subscribing = False
        """A SUBSCRIBE has no answer yet: retained messages wait for it, and what comes behind them."""
        self._last = 0  # packet id
        self._one: dict[int, Delivery] = {}  # sent with QoS 1, in order
        self._two: dict[int, _Exchange] = {}
        self._complete = 0  # of these: the client is done, and the broker has not settled. They fill no window (v5 4.9)
        self._rels: InOrder[None] = InOrder()
        self._waiting: deque[Delivery] | None = None
        self._kept = 0  # bytes of these
        # sent on an earlier connection, not acknowledged: they are delivered again, and are to have the same ids
        self._earlier: dict[tuple[str, str | None], Outgoing] = {}
        self._reserved: set[int] | None = None

    def resume(self, outgoing: Sequence[Outgoing]) -> None:
        """Continue, after CONNACK, with messages of an earlier connection; released ones need no PUBLISH (v3.1.1
        MQTT-4.4.0-1, v5 MQTT-4.4.0-1)."""
        for each in outgoing:
            if each.state == "released":
                self._two[each.pid] = _Exchange(None, _RELEASED)
                self._output.write(6, encode.ack(encode.PUBREL, each.pid))
            elif each.state == "published":
                self._earlier[each.source, each.identity] = each
        reserved = {each.pid for each in outgoing if each.state != "released"}
        if reserved:
            self._reserved = reserved

    @property
    def in_flight(self) -> int:
        """Number of messages whose exchange has not ended."""
        return len(self._one) + len(self._two)

    @property
    def waiting(self) -> int:
        """Deliveries that cannot be sent now."""
        return len(self._waiting) if self._waiting else 0

    def sent(self) -> list[Outgoing]:
        """Return the messages of QoS 1 that are not acknowledged, in order, of this connection and of earlier ones."""
        kept = [each for each in self._earlier.values() if each.qos == 1]
        return kept + [
            Outgoing(packet_id, 1, delivery.identity, delivery.source)
            for packet_id, delivery in self._one.items()
            if delivery.identity is not None
        ]

    def unsettled(self) -> list[Delivery]:
        """Return the deliveries of QoS 0 and 1 that are not settled."""
        return [*self._one.values(), *(each for each in self._waiting or () if each.qos < 2)]

    def close(self) -> None:
        """Send nothing further; the session returns the messages that wait."""
        self.blocked = True
        self._keep(-self._kept)
        self._waiting = None

    # interfaces.Deliveries

    def deliver(self, delivery: Delivery) -> None:
        """As interfaces.Deliveries."""
        if self._waiting or self.blocked or (self.subscribing and delivery.retain) or not self._send(delivery):
            if delivery.fleeting and (not delivery.qos or self.waiting >= self._window):
                self._server_state.dropped += 1
                self._settlements.settle(delivery)
                return
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(delivery)
            self._keep(len(delivery.payload))

    def send_together(self, messages: Sequence[tuple[Heading, bytes]]) -> bool:
        """As interfaces.Deliveries."""
        if self._waiting or self.blocked or self.subscribing or self._earlier or self._aliases is not None:
            return False
        encoded: dict[Heading, tuple[int, bytes, bytes]] = {}
        packets: list[bytes] = []
        last: Heading | None = None
        publish = encode.publish
        try:
            for heading, payload in messages:
                if heading is not last:
                    known = encoded.get(heading)
                    if known is None:
                        values = encode.publish_properties(heading.properties) if self._v5 else b""
                        known = encoded[heading] = int(heading.retain), topic_field(heading.topic), values
                    flags, topic, values = known
                    last = heading
                packets.append(publish(flags, topic, 0, values, payload))
        except ValueError:
            return False
        if max(map(len, packets)) > self._largest:
            return False
        self._output.write_all(3, packets)
        return True

    def deliver_together(self, deliveries: Sequence[Delivery]) -> bool:
        """As interfaces.Deliveries."""
        if self._waiting or self.blocked or self.subscribing or self._earlier or self._aliases is not None:
            return False
        under_way = len(self._one) + len(self._two) + len(deliveries)
        if under_way - self._complete > self._most or under_way > _MOST_IDS:
            return False
        sent: dict[int, Delivery] = {}
        packets: list[bytes] = []
        publish, free_id, last = encode.publish, self._free_id, self._last
        name, properties, topic, values = None, NONE, b"", b"\0" if self._v5 else b""
        try:
            for delivery in deliveries:
                if delivery.topic is not name:
                    name = delivery.topic
                    topic = topic_field(name)
                if delivery.properties is not properties and self._v5:
                    properties = delivery.properties
                    values = encode.publish_properties(properties)
                packet_id = free_id()
                sent[packet_id] = delivery
                packets.append(publish(2 | delivery.retain, topic, packet_id, values, delivery.payload))
        except ValueError:
            packets = []
        if not packets or max(map(len, packets)) > self._largest:
            self._last = last
            return False
        for delivery in deliveries:
            delivery.payload = b""  # until PUBACK comes, only its identity is needed
        self._one.update(sent)
        self._output.write_all(3, packets)
        return True

    def go_on(self) -> None:
        """Send waiting messages as far as there is room."""
        waiting = self._waiting
        while waiting and not self.blocked and not (self.subscribing and waiting[0].retain):
            delivery = waiting.popleft()
            size = len(delivery.payload)
            if not self._send(delivery):
                waiting.appendleft(delivery)
                return
            self._keep(-size)

    def _keep(self, more: int) -> None:
        """Count bytes that wait here."""
        self._kept += more
        self._server_state.memory.change(self._host, more)

    def assigned(self, packet_id: int) -> None:
        """As interfaces.Deliveries."""
        exchange = self._two.get(packet_id)
        if exchange is not None and exchange.state == _ASSIGNING:
            exchange.state = _PUBLISHED
            data = exchange.data
            self._keep(-len(data))
            exchange.data = b""
            if exchange.delivery is not None:
                if self._aliases is not None:  # only now is it known which aliases the client has
                    data = self._encoded(exchange.delivery, 4, packet_id, alias=True) or data
                exchange.delivery.payload = b""
            self._output.write(3, data)
            if self._earlier and self._waiting:
                self.go_on()

    def withdrawn(self, packet_id: int) -> None:
        """As interfaces.Deliveries."""
        exchange = self._two.get(packet_id)
        if exchange is not None and exchange.state == _ASSIGNING:
            del self._two[packet_id]
            self._keep(-len(exchange.data))
            if self._waiting:
                self.go_on()

    def received(self, packet_id: int) -> None:
        """Continue the exchange with PUBREL: the PUBREC is stored (`interfaces.Deliveries`)."""
        for each, _ in self._rels.answer(packet_id, None):  # v5 MQTT-4.6.0-4, v3.1.1 MQTT-4.6.0-4
            exchange = self._two.get(each)
            if exchange is not None and exchange.state == _RECEIVED:
                exchange.state = _RELEASED
                self._output.write(6, encode.ack(encode.PUBREL, each))

    def completed(self, packet_id: int) -> None:
        """As interfaces.Deliveries."""
        exchange = self._two.get(packet_id)
        if exchange is not None and exchange.state == _COMPLETE:
            del self._two[packet_id]
            self._complete -= 1
            if self._waiting:
                self.go_on()
        elif exchange is None and self._reserved is not None:  # it was complete on an earlier connection
            self._reserved.discard(packet_id)

    # packets

    def puback(self, packet: PubAck) -> None:
        """Process a PUBACK. Raises ProtocolError."""
        delivery = self._one.pop(packet.packet_id, None)
        if delivery is not None:
            self._settlements.settle(delivery)
            if self._waiting:
                self.go_on()
        elif packet.packet_id in self._two:
            raise ProtocolError(f"PUBACK for packet identifier {packet.packet_id}, which has QoS 2", "")

    def puback_run(self, packets: Sequence[Packet]) -> int:
        """Process PUBACKs that came together, as many of the first ones as are expected; return how many."""
        pop = self._one.pop
        deliveries: list[Delivery] = []
        for packet in packets:
            delivery = pop(packet.packet_id, None) if type(packet) is PubAck else None
            if delivery is None:
                break
            deliveries.append(delivery)
        if deliveries:
            self._settlements.settle_all(deliveries)
            if self._waiting:
                self.go_on()
        return len(deliveries)

    def pubrec(self, packet: PubRec) -> None:
        """Process a PUBREC. Raises ProtocolError."""
        packet_id = packet.packet_id
        exchange = self._two.get(packet_id)
        state = _ASSIGNING if exchange is None else exchange.state
        if exchange is not None and state == _PUBLISHED and exchange.delivery is not None:
            if packet.reason >= 0x80:
                self._finish(packet_id, exchange)  # v5 4.3.3: the exchange has ended
                return
            exchange.state = _RECEIVED
            self._rels.expect(packet_id)
            self._settlements.received(exchange.delivery, packet_id)
        elif state == _RELEASED:
            self._output.write(6, encode.ack(encode.PUBREL, packet_id))
        elif state == _ASSIGNING:
            if packet_id in self._one:
                raise ProtocolError(f"PUBREC for packet identifier {packet_id}, which has QoS 1", "")
            if packet.reason < 0x80:
                self._output.acknowledge(PubRel(packet_id, reasons.PACKET_IDENTIFIER_NOT_FOUND if self._v5 else 0))

    def pubcomp(self, packet: PubComp) -> None:
        """Process a PUBCOMP."""
        exchange = self._two.get(packet.packet_id)
        if exchange is not None and exchange.state == _RELEASED:
            self._finish(packet.packet_id, exchange)

    def _finish(self, packet_id: int, exchange: _Exchange) -> None:
        """Make room for another message, because the client is done. The id stays in use until the broker has settled,
        which may be known only after all messages that wait here were sent."""
        exchange.state = _COMPLETE
        self._complete += 1
        self._settlements.complete(packet_id, exchange.delivery)
        if self._waiting:
            self.go_on()

    # sending

    def _send(self, delivery: Delivery) -> bool:
        """False: the client has as many as it takes."""
        qos = delivery.qos
        if not qos and (not self._earlier or (delivery.source, delivery.identity) not in self._earlier):
            data = self._encoded(delivery, 0, 0)
            if data is not None:
                self._output.write(3, data)
            self._settlements.settle(delivery)
            return True
        two = len(self._two) - self._complete
        if len(self._one) + two >= self._most or (qos == 2 and two >= self._most_two) or self.in_flight >= _MOST_IDS:
            return False
        if self._earlier:
            key = delivery.source, delivery.identity
            known = self._earlier.get(key)
            if known is not None:
                if known.qos == 2 and any(each.state == _ASSIGNING for each in self._two.values()):
                    return False  # its id is stored, that of one before it is not: it must not come before that one
                del self._earlier[key]
                self._send_again(delivery, known)
                return True
            if not delivery.again:
                self._forget_earlier(delivery.source)
        packet_id = self._free_id()
        data = self._encoded(delivery, qos << 1, packet_id)
        if data is None:
            self._settlements.settle(delivery)
        elif qos == 1:
            delivery.payload = b""  # until PUBACK comes, only its identity is needed
            self._one[packet_id] = delivery
            self._output.write(3, data)
        else:
            self._two[packet_id] = _Exchange(delivery, _ASSIGNING, data)
            self._keep(len(data))
            if not self.blocked:  # that has not closed this connection
                self._settlements.assign(delivery, packet_id)
        return True

    def _forget_earlier(self, source: str) -> None:
        """Forget the messages of QoS 1 of a source that now delivers messages which were never sent: the sent ones have
        been redelivered, or are gone. (An id of QoS 2 is kept until the session ends: a broker that was killed may call
        everything new.)"""
        for key in [key for key, each in self._earlier.items() if each.qos == 1 and each.source == source]:
            packet_id = self._earlier.pop(key).pid
            if self._reserved is not None:
                self._reserved.discard(packet_id)

    def _send_again(self, delivery: Delivery, known: Outgoing) -> None:
        """Send a message that was under way on an earlier connection, with its stored id."""
        if self._reserved is not None:
            self._reserved.discard(known.pid)
        delivery.qos = known.qos
        data = self._encoded(delivery, 8 | known.qos << 1, known.pid)
        delivery.payload = b""
        if known.qos == 1:
            if data is None:
                self._settlements.settle(delivery)
            else:
                self._one[known.pid] = delivery
                self._output.write(3, data)
        elif data is None:
            exchange = self._two[known.pid] = _Exchange(delivery, _PUBLISHED)
            self._finish(known.pid, exchange)
        else:
            self._two[known.pid] = _Exchange(delivery, _PUBLISHED)
            self._output.write(3, data)

    def _encoded(self, delivery: Delivery, flags: int, packet_id: int, alias: bool = False) -> bytes | None:
        """Return the encoded PUBLISH; None if the client can never get it.

        A repeated one (DUP) no longer expires. QoS 2 uses a topic alias only if `alias` is set, because a message that
        is sent at once must not depend on one that waits; with `alias`, None: the alias cannot be used.
        """
        if delivery.retain:
            flags |= 1
        values = b""
        number, known = 0, False
        try:
            left = ceil(delivery.expires - self._server_state.wall()) if delivery.expires else 1
            if left <= 0:
                if not (flags & 8 or alias):
                    raise ValueError("it has expired")  # v5 MQTT-3.3.2-5
                left = 0  # v5 MQTT-4.3.3-7
            topic = topic_field(delivery.topic)
            if self._v5:
                given = delivery.properties
                if delivery.expires:  # v5 MQTT-3.3.2-6
                    given = replace(given, message_expiry=min(left, NEVER))
                if self._aliases is not None and (alias or not flags & 4):
                    number, known = self._aliases.number(delivery.topic)
                    if number:
                        given = replace(given, topic_alias=number)
                        if known:
                            topic = b"\0\0"
                values = b"\0" if given is NONE else encode.publish_properties(given)
            data = encode.publish(flags, topic, packet_id, values, delivery.payload)
            if len(data) > self._largest:
                raise ValueError("it is too large for the client")  # v5 MQTT-3.1.2-24, MQTT-3.1.2-25
        except ValueError as error:
            if number and not known and self._aliases is not None:
                self._aliases.forget(delivery.topic)
            if alias:
                return None
            self._server_state.dropped += 1
            log.debug(
                "mqtt.message.not-sent", topic=delivery.topic[:200], reason=str(error), space=self._host.owner.space
            )
            return None
        return data

    def _free_id(self) -> int:
        """1 to 65535, then from 1 again; not one that is in use (v3.1.1 MQTT-2.3.1-4, v5 MQTT-2.2.1-4)."""
        packet_id = self._last
        one, two, reserved = self._one, self._two, self._reserved
        while True:
            packet_id = packet_id + 1 if packet_id < 65535 else 1
            if packet_id not in one and packet_id not in two and not (reserved and packet_id in reserved):
                self._last = packet_id
                return packet_id
