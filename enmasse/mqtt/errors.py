"""Errors of a peer, as exceptions with the MQTT 5 reason code of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.mqtt import reasons

if TYPE_CHECKING:
    from enmasse.mqtt.packets import Packet


class MqttError(Exception):
    """The peer broke the specification, and the connection has to end.

    `reason`: the MQTT 5 reason code for DISCONNECT (or CONNACK). `sentence`: what is wrong, for people. `clause`:
    number of the normative statement ("" without one). `packets`: complete and correct ones before the
    fault in the same call of `Reader.feed`; they still hold.
    """

    reason = reasons.UNSPECIFIED_ERROR

    def __init__(self, sentence: str, clause: str = "", reason: int | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.clause = clause
        self.packets: list[Packet] = []
        if reason is not None:
            self.reason = reason

    def __str__(self) -> str:
        return f"{self.sentence} [{self.clause}]" if self.clause else self.sentence


class MalformedPacket(MqttError):
    """The bytes are no packet (v5 1.2, 4.13)."""

    reason = reasons.MALFORMED_PACKET


class ProtocolError(MqttError):
    """The bytes are a packet that must not come, or not now, or not with this value (v5 1.2, 4.13)."""

    reason = reasons.PROTOCOL_ERROR


class PacketTooLarge(ProtocolError):
    """A packet that is larger than the receiver takes: MQTT 5 has a clause for it, 3.1.1 has none. `client_id`: that of
    a CONNECT, if that much of it has come."""

    reason = reasons.PACKET_TOO_LARGE
    client_id = ""

    def __init__(self, sentence: str, *, v5: bool) -> None:
        super().__init__(sentence, "v5 MQTT-3.2.2-15" if v5 else "")


class UnsupportedVersion(ProtocolError):
    """CONNECT of a version that is not served, to be answered with `encode.VERSION_REFUSED`."""

    reason = reasons.UNSUPPORTED_PROTOCOL_VERSION

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, "v3.1.1 MQTT-3.1.2-2, v5 MQTT-3.1.2-2")
