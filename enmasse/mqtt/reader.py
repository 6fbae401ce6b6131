"""Bytes to packets: one loop over what was read, with local names. PUBLISH and the four acknowledgements in their usual
form are taken apart here, everything else, and whatever is wrong, by `parse`."""

from __future__ import annotations

import contextlib
from typing import Final

from enmasse.first_bytes import as_text, spoken
from enmasse.mqtt import fields, parse, properties
from enmasse.mqtt.errors import MalformedPacket, MqttError, PacketTooLarge, ProtocolError
from enmasse.mqtt.fields import FieldCursor
from enmasse.mqtt.packets import NONE, V5, V311, Packet, Properties, PubAck, PubComp, Publish, PubRec, PubRel

BIGGEST: Final = 268_435_455 + 5
"""The largest packet there can be (2.1.4): five bytes of fixed header and the rest."""

_MOST_PIECES: Final = 1024
"""Pieces of an unfinished packet, at most: a peer that sends two bytes at a time must not cost forty for each."""

_TO_LEVEL: Final = 9
"""Bytes of the body of a CONNECT up to its protocol level: after a name of 6 characters at most (MQIsdp)."""

_FLAGS: Final = tuple(
    None if flags & 6 == 6 or flags & 14 == 8 else (flags >> 1 & 3, bool(flags & 1), bool(flags & 8))
    for flags in range(16)
)  # of PUBLISH: QoS, retain, DUP; None if it cannot be
_ACKS: Final[dict[int, type[PubAck | PubRec | PubRel | PubComp]]] = {
    0x40: PubAck,
    0x50: PubRec,
    0x62: PubRel,
    0x70: PubComp,
}


class Reader:
    """The packets of one connection in one direction.

    `server=True` reads what a client sends, and learns the version from its CONNECT; `server=False` reads what a server
    sends to a client of `version`. `max_packet` is the largest packet, its fixed header included, that is taken; it may
    be changed at any time; `max_first` is that of the first one, so that strangers are cheap. A larger one is refused
    when its fixed header is there. At most that much, and what came with one `feed`, is held.
    """

    __slots__ = ("_held", "_held_size", "_needed", "max_first", "max_packet", "server", "started", "version")

    def __init__(
        self, server: bool = True, version: int = 0, max_packet: int = BIGGEST, max_first: int = BIGGEST
    ) -> None:
        self.server = server
        self.version = version
        """V311 or V5; 0 before a CONNECT. Set before the rest of the CONNECT is read, so that a refusal is sent in its
        version."""
        self.started = False
        """True after the first complete packet."""
        self.max_packet = max_packet
        self.max_first = min(max_first, max_packet)
        self._held: list[bytes] = []  # the pieces of a packet that is not complete
        self._held_size = 0
        self._needed = 0  # how many bytes must be there before it is worth to look again

    @property
    def held(self) -> int:
        """How many bytes of an unfinished packet are kept. 0: the last packet was complete."""
        return self._held_size

    def clear(self) -> None:
        """Forget an unfinished packet: nothing more is read."""
        self._held.clear()
        self._held_size = 0

    @property
    def expected(self) -> int:
        """Bytes of the unfinished packet, as far as its header is there."""
        return self._needed if self._held else 0

    def feed(self, data: bytes) -> list[Packet]:
        """Return the packets that `data` completes, in order. However a stream is cut into `feed`s, its packets are the
        same.

        Raises MalformedPacket or ProtocolError at the first fault; its `packets` are those that came before it in this
        call. The connection has to end then; further calls have no meaning.
        """
        if self._held:
            self._held.append(data)
            self._held_size += len(data)
            if self._held_size < self._needed:
                if len(self._held) >= _MOST_PIECES:
                    self._held[:] = (b"".join(self._held),)
                return []
            data = b"".join(self._held)
            self._held.clear()
            self._held_size = 0
        packets: list[Packet] = []
        began = self.started
        try:
            pos = self._read(data, packets)
        except MqttError as error:
            if not began and data[:1] != b"\x10" and (other := spoken(data)) is not None:
                error = type(error)(f"the peer speaks {other}: it began with {as_text(data[:8])}", "", error.reason)
                error.packets = packets
                raise error from None
            error.packets = packets
            raise
        if pos < len(data):
            self._held.append(data[pos:] if pos else data)
            self._held_size = len(data) - pos
        return packets

    def _read(self, data: bytes, packets: list[Packet]) -> int:
        """Read whole packets. Return where the unfinished one begins, and set how much of it is needed."""
        append = packets.append
        topics = fields.topics
        blocks = properties.blocks
        server = self.server
        acks = _ACKS
        started, version, most = self.started, self.version, self.max_packet
        if not started:
            most = self.max_first
        v5 = version == V5
        pos, end = 0, len(data)
        while True:
            if end - pos < 2:
                self._needed = 2
                return pos
            head = data[pos]
            size = data[pos + 1]
            body = pos + 2
            if size > 127 and body < end and 0 < data[body] < 128:
                size += (data[body] - 1) << 7
                body += 1
            elif size > 127:
                size, body = self._length(data, pos, end)
                if not body:
                    self._check_head(head)
                    return pos
            stop = body + size
            if stop - pos > most:
                if head == 0x10 and not started and end < body + _TO_LEVEL:  # the answer depends on the version
                    self._needed = body + _TO_LEVEL - pos
                    return pos
                raise self._too_large(head, data, body, stop - pos)
            if stop > end:
                self._check_head(head)  # refuse early: an invalid packet must not fill memory
                self._needed = stop - pos
                return pos
            if started:
                if head & 0xF0 == 0x30:
                    flags = _FLAGS[head & 15]
                    at = body + 2
                    if flags is not None and at < stop:
                        at += data[body] << 8 | data[body + 1]
                        topic = topics.get(data[body + 2 : at])
                        if topic is not None or (at == body + 2 and v5):
                            qos, retain, dup = flags
                            packet_id = 0
                            if qos:
                                if at + 2 <= stop:
                                    packet_id = data[at] << 8 | data[at + 1]
                                at += 2
                            if (packet_id or not qos) and at <= stop:
                                values: Properties | None = NONE
                                if v5 and at < stop:
                                    size = data[at]
                                    at += 1 + size
                                    if size:
                                        values = blocks.get(data[at - size : at]) if size < 128 and server else None
                                elif v5:
                                    values = None
                                if topic is None and values is not None:
                                    topic = "" if values.topic_alias else None
                                if topic is not None and values is not None and at <= stop:
                                    append(Publish(topic, data[at:stop], qos, retain, dup, packet_id, values))
                                    pos = stop
                                    continue
                elif size == 2 and head in acks:
                    packet_id = data[body] << 8 | data[body + 1]
                    if packet_id:
                        append(acks[head](packet_id))
                        pos = stop
                        continue
            append(self._slowly(head, data, body, stop, data[body - 1] == 0 and body - pos > 2))
            if not started:
                started, version, most = self.started, self.version, self.max_packet
                v5 = version == V5
            pos = stop

    def _length(self, data: bytes, pos: int, end: int) -> tuple[int, int]:
        """Return a remaining length of more than one byte (v3.1.1 2.2.3, v5 2.1.4), and where the body begins; (0, 0)
        if it is not all there."""
        size = data[pos + 1] & 0x7F
        shift = 7
        for at in range(pos + 2, min(pos + 5, end)):
            byte = data[at]
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not byte and self.version == V5:  # 3.1.1 does not forbid it, and some devices do it
                    raise _not_minimal()
                return size, at + 1
            shift += 7
        if end - pos >= 5:
            raise MalformedPacket("the remaining length has more than 4 bytes", "v3.1.1 2.2.3, v5 2.1.4")
        self._needed = end - pos + 1
        return 0, 0

    def _check_head(self, head: int) -> None:
        """Whether such a packet can come now, as far as its first byte tells."""
        found = parse.TYPES.get(head >> 4)
        if found is None or (head >> 4 == 15 and self.version == V311):
            raise MalformedPacket(f"packet type {head >> 4} is reserved", "v3.1.1 2.2.1, v5 2.1.2")
        name, flags, of_client, of_server, _ = found
        if flags is not None and head & 15 != flags:
            raise MalformedPacket(
                f"{name}: the flags of its fixed header are 0x{head & 15:x}, not 0x{flags:x}",
                "v3.1.1 MQTT-2.2.2-2, v5 MQTT-2.1.3-1",
            )
        if not (of_client if self.server else of_server) or (name == "DISCONNECT" and self._is_v3_client()):
            raise ProtocolError(f"{name}: a {'client' if self.server else 'server'} does not send this", "")
        if self.server:
            if not self.started and name != "CONNECT":
                raise ProtocolError(f"{name} before CONNECT", "v3.1.1 MQTT-3.1.0-1, v5 MQTT-3.1.0-1")
            if self.started and name == "CONNECT":
                raise ProtocolError("a second CONNECT", "v3.1.1 MQTT-3.1.0-2, v5 MQTT-3.1.0-2")
        elif not self.started and name not in ("CONNACK", "AUTH"):
            raise ProtocolError(f"{name} before CONNACK", "v3.1.1 MQTT-3.2.0-1, v5 MQTT-3.2.0-1")
        elif self.started and name == "CONNACK":
            raise ProtocolError("a second CONNACK", "v5 MQTT-3.2.0-2")

    def _is_v3_client(self) -> bool:
        return not self.server and self.version == V311

    def _slowly(self, head: int, data: bytes, start: int, stop: int, padded: bool) -> Packet:
        """`padded`: its remaining length is longer than it need be."""
        self._check_head(head)
        name, _, _, _, parser = parse.TYPES[head >> 4]
        body = FieldCursor(name, data, start, stop)
        if name == "CONNECT":
            self.version = parse.read_level(body)
            if padded and self.version == V5:
                raise _not_minimal()
        packet = parser(head & 15, body, self.version, self.server)
        if name != "AUTH":
            self.started = True
        return packet

    def _too_large(self, head: int, data: bytes, start: int, size: int) -> MqttError:
        self._check_head(head)
        if self.started or head != 0x10:
            most = self.max_packet if self.started else self.max_first
            return PacketTooLarge(f"a packet of {size} bytes; at most {most} are taken", v5=self.version == V5)
        body = FieldCursor("CONNECT", data, start, len(data))
        self.version = parse.read_level(body)
        text = f"a CONNECT of {size} bytes; at most {self.max_first} are taken: send a smaller will"
        error = PacketTooLarge(text, v5=self.version == V5)
        with contextlib.suppress(MalformedPacket):  # that much has not come yet
            error.client_id = parse.connect_client_id(body, self.version)
        return error


def _not_minimal() -> MalformedPacket:
    return MalformedPacket("the remaining length is longer than it need be", fields.VARINT)
