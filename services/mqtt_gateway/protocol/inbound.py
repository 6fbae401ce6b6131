"""Messages from the client: QoS 0 to 2 (4.3), topic aliases, receive maximum, acknowledgements in order (4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from enmasse.mqtt import encode, reasons
from enmasse.mqtt.errors import ProtocolError
from enmasse.mqtt.packets import NONE, V5, Packet, PubAck, PubComp, Publish, PubRec, PubRel
from services.mqtt_gateway.interfaces import UNKNOWN, Session
from services.mqtt_gateway.protocol import intake
from services.mqtt_gateway.protocol.aliases import AliasesIn
from services.mqtt_gateway.protocol.connecting import is_utf8
from services.mqtt_gateway.protocol.intake import Host
from services.mqtt_gateway.protocol.ordered_answers import InOrder
from services.mqtt_gateway.protocol.output import Output
from services.mqtt_gateway.protocol.server_state import ServerState
from services.mqtt_gateway.protocol.unanswered import REST

# states of a packet id of the client
_ONE: Final = 1
"""QoS 1: the session has it, PUBACK is due."""
_TWO: Final = 2
"""QoS 2: the session has it, PUBREC is due."""
_HELD: Final = 3
"""PUBREC was sent."""
_RELEASED: Final = 4
"""PUBREL has come, PUBCOMP is due."""
FEW: Final = 6
"""Messages of one topic that come together: fewer cost less if each goes by itself."""
_NOT_UTF8: Final = "the payload is not UTF-8, as its format indicator says"


class Inbound:
    """Messages of one client: `interfaces.Publications`."""

    __slots__ = (
        "_acks",
        "_aliases",
        "_host",
        "_known",
        "_most",
        "_output",
        "_recs",
        "_rested",
        "_server_state",
        "_session",
        "_states",
        "_unanswered",
        "_v5",
        "_waits",
        "_window",
        "messages",
    )

    def __init__(self, server_state: ServerState, host: Host, output: Output, session: Session, version: int) -> None:
        limits = server_state.limits
        self._server_state = server_state
        self._host = host
        self._output = output
        self._session = session
        self._v5 = version == V5
        self._most = limits.receive_maximum
        self._window = min(limits.receive_maximum, limits.unanswered)
        self._aliases = AliasesIn(limits.topic_aliases if self._v5 else 0)
        self._states: dict[int, int] = {}
        self._known = set(session.incoming) or None  # of earlier connections; the client has not named them on this one
        self._acks: InOrder[tuple[int, str]] = InOrder()
        self._recs: InOrder[tuple[int, str]] = InOrder()
        self._unanswered = 0  # that the session has
        self._waits = 0  # a message waits for SUBSCRIBEs up to this number
        self._rested = 0.0  # until when none waits
        self.messages = 0
        """PUBLISH packets so far."""

    @property
    def in_flight(self) -> int:
        """Number of messages whose exchange has not ended."""
        return len(self._states)

    def uses(self, packet_id: int) -> bool:
        """Return whether the client has an unfinished message with this id."""
        return packet_id in self._states

    # packets

    def publish(self, packet: Publish) -> None:
        """Process a PUBLISH. Raises ProtocolError."""
        if (self._waits or self._server_state.unanswered) and self._must_wait(packet):
            return
        self.messages += 1
        if packet.properties is not NONE:
            self._resolve(packet)
        qos = packet.qos
        if not qos:
            self._session.publish(packet)
            return
        packet_id = packet.packet_id
        states = self._states
        state = states.get(packet_id)
        if state is not None:
            self._again(packet, state)
            return
        if self._v5 and len(states) >= self._most:
            raise ProtocolError(
                f"PUBLISH: more than {self._most} messages that are not acknowledged",
                "v5 3.3.4",
                reasons.RECEIVE_MAXIMUM_EXCEEDED,
            )
        if qos == 1:
            states[packet_id] = _ONE
            self._acks.expect(packet_id)
        else:
            states[packet_id] = _TWO
            self._recs.expect(packet_id)
            if self._known is not None:
                self._known.discard(packet_id)
        self._asked()
        if packet.properties.payload_format == 1 and not is_utf8(packet.payload):
            self.published(packet_id, reasons.PAYLOAD_FORMAT_INVALID, _NOT_UTF8)
        else:
            self._session.publish(packet)

    def publish_run(self, packets: Sequence[Packet]) -> int:
        """Process PUBLISHs that came together, as many of the first ones as are alike and need no look at each; return
        how many. Then the intake may be held."""
        if len(packets) < FEW or self._waits or self._server_state.unanswered or not self._session.takes_runs:
            return 0
        run = _alike(packets)
        if len(run) < FEW:
            return 0
        states = self._states
        ids: list[int] = []
        if run[0].qos:
            del run[max(0, min(self._window - self._unanswered, self._most - len(states))) :]
            ids = [packet.packet_id for packet in run]
            if len(run) < FEW or len(set(ids)) < len(ids) or not states.keys().isdisjoint(ids):
                return 0
        if not self._session.publish_run(run):
            return 0
        self.messages += len(run)
        if ids:
            states.update(dict.fromkeys(ids, _ONE))
            self._acks.expect(*ids)
            self._asked(len(ids))
        return len(run)

    def _must_wait(self, packet: Publish) -> bool:
        """Return whether a SUBSCRIBE that came before this message, from any client, matches it and is not answered
        yet."""
        unanswered, now = self._server_state.unanswered, self._server_state.times.now
        if not self._waits and now < self._rested:
            return False
        last = self._waits or unanswered.last
        if unanswered.waits(self._host, packet.topic, last):
            self._waits = last
            self._host.intake.hold_back(packet, intake.ORDER)
            return True
        if self._waits:
            self._waits, self._rested = 0, now + REST
        return False

    def pubrel(self, packet: PubRel) -> None:
        """Process a PUBREL. Raises ProtocolError."""
        packet_id = packet.packet_id
        state = self._states.get(packet_id)
        if state == _HELD or (state is None and self._known is not None and packet_id in self._known):
            if state is None and self._known is not None:
                self._known.discard(packet_id)
            self._states[packet_id] = _RELEASED
            self._asked()
            self._session.release(packet_id)
        elif state == _TWO:
            raise ProtocolError("PUBREL before PUBREC", "v5 MQTT-4.3.3-4")
        elif state != _RELEASED:
            self._output.acknowledge(PubComp(packet_id, reasons.PACKET_IDENTIFIER_NOT_FOUND if self._v5 else 0))

    def _again(self, packet: Publish, state: int) -> None:
        """A PUBLISH whose id is in use. It may be sent again before it is acknowledged by clients of 3.1.1."""
        if packet.qos == 2 and state == _HELD:
            self._output.acknowledge(PubRec(packet.packet_id))  # v3.1.1 MQTT-4.3.3-2, v5 MQTT-4.3.3-10
        elif packet.qos != (1 if state == _ONE else 2) or state == _RELEASED or (packet.qos == 1 and not packet.dup):
            raise ProtocolError(
                f"PUBLISH: packet identifier {packet.packet_id} is in use",
                "v3.1.1 MQTT-2.3.1-2, v5 MQTT-2.2.1-3",
            )

    def _resolve(self, packet: Publish) -> None:
        """Replace a topic alias by its topic, and check what cannot be answered at QoS 0."""
        values = packet.properties
        if values.subscription_ids:
            raise ProtocolError("PUBLISH: a subscription identifier from a client", "v5 MQTT-3.3.4-6")
        if values.topic_alias is not None:
            packet.topic = self._aliases.topic(packet.topic, values.topic_alias)
            rest = replace(values, topic_alias=None)
            packet.properties = NONE if rest == NONE else rest  # the quick ways ask for this one object
        if not packet.qos and values.payload_format == 1 and not is_utf8(packet.payload):
            raise ProtocolError(f"PUBLISH: {_NOT_UTF8}", "v5 3.3.2.3.2", reasons.PAYLOAD_FORMAT_INVALID)

    # interfaces.Publications

    def hold(self) -> None:
        """As interfaces.Publications."""
        self._host.intake.hold(intake.NO_ROOM)

    def proceed(self) -> None:
        """As interfaces.Publications."""
        self._host.intake.release(intake.NO_ROOM)

    def throttle(self, throttled: bool) -> None:
        """As interfaces.Publications."""
        if throttled:
            self._host.intake.hold(intake.RATE)
        else:
            self._host.intake.release(intake.RATE)

    def published(self, packet_id: int, reason: int, text: str = "") -> None:
        """As interfaces.Publications."""
        state = self._states.get(packet_id)
        if reason < 0 or (reason >= 0x80 and not self._v5):
            # 3.1.1 has no way to refuse a message, and an unknown outcome cannot be reported
            if reason == UNKNOWN:
                text = text or "whether a message has arrived is unknown"
            self._host.fail(reasons.UNSPECIFIED_ERROR if reason < 0 else reason, text)
            return
        if state == _ONE:
            if self._acks.is_next(packet_id):
                self._acked(packet_id, reason, text)
            else:
                for each, (code, why) in self._acks.answer(packet_id, (reason, text)):
                    self._acked(each, code, why)
        elif state == _TWO:
            for each, (code, why) in self._recs.answer(packet_id, (reason, text)):
                self._reced(each, code, why)
        self._answered()

    def accepted(self, packet_ids: list[int]) -> None:
        """As interfaces.Publications."""
        if not self._acks.are_next(packet_ids):
            for packet_id in packet_ids:
                self.published(packet_id, reasons.SUCCESS)
            return
        for packet_id in packet_ids:
            del self._states[packet_id]
        self._output.write_all(4, [encode.ack(encode.PUBACK, packet_id) for packet_id in packet_ids])
        self._answered(len(packet_ids))

    def released(self, packet_id: int) -> None:
        """As interfaces.Publications."""
        if self._states.get(packet_id) == _RELEASED:
            del self._states[packet_id]
            self._output.write(7, encode.ack(encode.PUBCOMP, packet_id))
            self._answered()

    def _acked(self, packet_id: int, reason: int, text: str) -> None:
        del self._states[packet_id]
        if reason and self._v5:
            self._output.acknowledge(PubAck(packet_id, reason), text)
        else:
            self._output.write(4, encode.ack(encode.PUBACK, packet_id))

    def _reced(self, packet_id: int, reason: int, text: str) -> None:
        if reason < 0x80:
            self._states[packet_id] = _HELD
        else:
            del self._states[packet_id]
        if reason and self._v5:
            self._output.acknowledge(PubRec(packet_id, reason), text)
        else:
            self._output.write(5, encode.ack(encode.PUBREC, packet_id))

    def _asked(self, count: int = 1) -> None:
        self._unanswered += count
        if self._unanswered >= self._window:
            self._host.intake.hold(intake.WINDOW)

    def _answered(self, count: int = 1) -> None:
        self._unanswered -= count
        if self._unanswered < self._window <= self._unanswered + count:
            self._host.intake.release(intake.WINDOW)


def _alike(packets: Sequence[Packet]) -> list[Publish]:
    """Return the first packets that are PUBLISHs of one topic and QoS, which is not 2, without properties and not
    retained."""
    first = packets[0]
    run: list[Publish] = []
    if type(first) is Publish and first.qos < 2:
        topic, qos = first.topic, first.qos
        for packet in packets:
            if (
                type(packet) is not Publish
                or packet.topic is not topic  # the reader gives equal topics as one object, as a rule
                or packet.qos != qos
                or packet.retain
                or packet.properties is not NONE
            ):
                break
            run.append(packet)
    return run
