"""Output to a client: encoded packets until the end of the turn, and reason strings as far as it wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from enmasse.mqtt import encode
from enmasse.mqtt.packets import NONE, V5, V311, Packet, Properties, PubAck, PubComp, PubRec, PubRel, SubAck, UnsubAck
from enmasse.mqtt.reader import BIGGEST
from services.mqtt_gateway.protocol.server_state import ServerState, Wire

LONGEST_REASON: Final = 1000
"""Characters."""
_KINDS: Final[dict[type[Packet], int]] = {PubAck: 4, PubRec: 5, PubRel: 6, PubComp: 7, SubAck: 9, UnsubAck: 11}


class Output:
    """`v5`, `largest` (bytes of a packet that the client takes) and `problems` (it wants reason strings) are from its
    CONNECT."""

    __slots__ = ("_counts", "_parts", "_wire", "bytes", "largest", "messages", "packets", "problems", "v5")

    def __init__(self, server_state: ServerState, wire: Wire) -> None:
        self._wire = wire
        self._counts = server_state.packets_out
        self._parts: list[bytes] = []
        self.messages = self.packets = self.bytes = 0
        """Written so far."""
        self.v5 = False
        self.largest = BIGGEST
        self.problems = True

    def take(self) -> bytes:
        """Remove and return all encoded packets, for one write."""
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.packets += len(parts)
        self.bytes += len(data)
        parts.clear()
        return data

    def write(self, kind: int, data: bytes) -> None:
        """An encoded packet of this type (2.2.1)."""
        parts = self._parts
        parts.append(data)
        self._counts[kind] += 1
        if kind == 3:
            self.messages += 1
        if len(parts) == 1:
            self._wire.has_output()

    def write_all(self, kind: int, packets: list[bytes]) -> None:
        """Write encoded packets of this type, at least one."""
        parts = self._parts
        idle = not parts
        parts += packets
        self._counts[kind] += len(packets)
        if kind == 3:
            self.messages += len(packets)
        if idle:
            self._wire.has_output()

    def acknowledge(self, packet: PubAck | PubRec | PubComp | PubRel, text: str = "") -> None:
        """Write an acknowledgement, with a reason string if the client wants one (v5 MQTT-3.1.2-29) and has room."""
        kind, number, reason = type(packet), packet.packet_id, packet.reason
        self.explain(_KINDS[kind], lambda values: kind(number, reason, values), text if self.problems else "")

    def answer(self, packet: SubAck | UnsubAck, text: str) -> None:
        """Write a SUBACK or UNSUBACK, with a reason string as `acknowledge` does."""
        kind, number, codes = type(packet), packet.packet_id, packet.codes
        self.explain(_KINDS[kind], lambda values: kind(number, codes, values), text if self.problems else "")

    def explain(self, kind: int, make: Callable[[Properties], Packet], text: str) -> None:
        """Without the reason string if the packet would be too large with it (v5 MQTT-3.2.2-19 and others)."""
        version = V5 if self.v5 else V311
        if text and self.v5:
            data = encode.encode(make(Properties(reason_string=text[:LONGEST_REASON])), version)
            if len(data) <= self.largest:
                self.write(kind, data)
                return
        self.write(kind, encode.encode(make(NONE), version))
