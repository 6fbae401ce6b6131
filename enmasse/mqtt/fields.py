"""The data types of the wire (v3.1.1 1.5, v5 1.5) inside one packet whose end is known, and the reading of topics."""

from __future__ import annotations

from struct import Struct
from typing import Final

from enmasse.mqtt.errors import MalformedPacket
from enmasse.mqtt.topics import fault_of_topic

_u16 = Struct(">H").unpack_from

_MOST_TOPICS: Final = 4096
_LONGEST_KEPT: Final = 256

TEXT: Final = "v3.1.1 MQTT-1.5.3-1, v5 MQTT-1.5.4-1"
NUL: Final = "v3.1.1 MQTT-1.5.3-2, v5 MQTT-1.5.4-2"
WILDCARD: Final = "v3.1.1 MQTT-3.3.2-2, v5 MQTT-3.3.2-2"
EMPTY: Final = "v3.1.1 MQTT-4.7.3-1, v5 MQTT-4.7.3-1"
VARINT: Final = "v5 MQTT-1.5.5-1"

topics: dict[bytes, str] = {}
"""Topic names that were met lately and are valid, by their bytes: a topic that comes often is decoded and checked once,
and is one object. At most 4,096 of at most 256 bytes; a flood of others costs it its entries, nothing more."""


def cut_short(packet: str) -> MalformedPacket:
    """Return the error for a packet that ends too early."""
    return MalformedPacket(f"{packet}: ends in the middle of a field")


class FieldCursor:
    """Walks the fields of a packet. Every method raises MalformedPacket for what is not there or not well-formed."""

    __slots__ = ("data", "packet", "pos", "stop")

    def __init__(self, packet: str, data: bytes, pos: int, stop: int) -> None:
        self.packet = packet
        self.data = data
        self.pos = pos
        self.stop = stop

    def left(self) -> int:
        """Return the number of bytes that are left."""
        return self.stop - self.pos

    def u8(self) -> int:
        """Read a byte. Raises MalformedPacket."""
        pos = self.pos
        if pos >= self.stop:
            raise cut_short(self.packet)
        self.pos = pos + 1
        return self.data[pos]

    def u16(self) -> int:
        """Read a two byte integer. Raises MalformedPacket."""
        pos = self.pos
        if pos + 2 > self.stop:
            raise cut_short(self.packet)
        self.pos = pos + 2
        value: int = _u16(self.data, pos)[0]
        return value

    def varint(self) -> int:
        """v5 1.5.5. Raises MalformedPacket."""
        value = shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 21:
                raise MalformedPacket(f"{self.packet}: a variable byte integer has more than 4 bytes")
        if byte == 0 and shift:
            raise MalformedPacket(f"{self.packet}: a variable byte integer is longer than it need be", VARINT)
        return value

    def binary(self) -> bytes:
        """Read binary data. Raises MalformedPacket."""
        size = self.u16()
        pos = self.pos
        if pos + size > self.stop:
            raise cut_short(self.packet)
        self.pos = pos + size
        return self.data[pos : pos + size]

    def text(self, what: str) -> str:
        """Read a string, checked. Raises MalformedPacket."""
        return text_of(self.binary(), self.packet, what)

    def topic(self, what: str) -> str:
        """Read a topic name, checked. Raises MalformedPacket."""
        return topic_of(self.binary(), self.packet, what)

    def done(self) -> None:
        """Check that no bytes are left. Raises MalformedPacket."""
        if self.pos != self.stop:
            raise MalformedPacket(f"{self.packet}: {self.stop - self.pos} bytes too many follow its last field")


def text_of(raw: bytes, packet: str, what: str) -> str:
    """Return a string, checked (v3.1.1 1.5.3, v5 1.5.4). Raises MalformedPacket."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedPacket(f"{packet}: {what} is not UTF-8 at byte {error.start}", TEXT) from None
    if "\0" in text:
        raise MalformedPacket(f"{packet}: {what} holds U+0000", NUL)
    return text


def topic_of(raw: bytes, packet: str, what: str) -> str:
    """Return a topic name, checked (4.7). Raises MalformedPacket."""
    known = topics.get(raw)
    if known is not None:
        return known
    text = text_of(raw, packet, what)
    fault = fault_of_topic(text)
    if fault is not None:
        raise MalformedPacket(f"{packet}: {what} {fault}", WILDCARD if text else EMPTY)
    if len(raw) <= _LONGEST_KEPT:
        if len(topics) >= _MOST_TOPICS:
            topics.clear()
        topics[raw] = text
    return text
