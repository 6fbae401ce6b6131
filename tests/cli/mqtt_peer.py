"""An MQTT server in a thread of the test that does as it is told, right or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from enmasse.mqtt import encode
from enmasse.mqtt.errors import MqttError
from enmasse.mqtt.packets import (
    NONE,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from enmasse.mqtt.reader import Reader
from tests.kit.running import Listening, server


class Broker:
    """Answers a client: gives its messages to who subscribes, and says `reason` to each SUBSCRIBE and PUBLISH. What
    came is in `packets`; `close_after`: the connection is lost after so many acknowledged messages."""

    def __init__(
        self,
        *messages: str | Publish,
        reason: int = 0,
        connack: int = 0,
        acknowledges: bool = True,
        close_after: int = 0,
        text: str | None = None,
        present: bool = False,
    ) -> None:
        self.messages = [Publish("t", m.encode(), 1) if isinstance(m, str) else m for m in messages]
        self.reason = reason
        self.connack = connack
        self.acknowledges = acknowledges
        self.close_after = close_after
        self.values = NONE if text is None else Properties(reason_string=text)
        self.present = present
        self.packets: list[Packet] = []
        self.version = V311
        self.acked = 0

    def of(self, kind: type[Packet]) -> list[Packet]:
        return [packet for packet in self.packets if isinstance(packet, kind)]

    def answer(self, packet: Packet) -> list[Packet] | None:
        """What it says to a packet; None: it closes."""
        self.packets.append(packet)
        if isinstance(packet, Connect):
            self.version = packet.version
            answer = ConnAck(self.present and not self.connack, self.connack, self.values)
            return [answer, *(self._window() if answer.session_present and self.of(Subscribe) else ())]
        if isinstance(packet, Subscribe):
            return [SubAck(packet.packet_id, (self.reason,) * len(packet.subscriptions)), *self._window()]
        if isinstance(packet, Unsubscribe):
            return [UnsubAck(packet.packet_id, (0,) * len(packet.filters))]
        if isinstance(packet, PubAck | PubComp):
            self.acked += 1
            self.messages.pop(0)
            if self.acked == self.close_after:
                return None
            return self._window()
        if isinstance(packet, PubRec):
            return [PubRel(packet.packet_id)]
        if isinstance(packet, Publish) and packet.qos and self.acknowledges:
            kind = PubAck if packet.qos == 1 else PubRec
            return [kind(packet.packet_id, self.reason, self.values)]
        if isinstance(packet, PubRel):
            return [PubComp(packet.packet_id)]
        return None if isinstance(packet, Disconnect) else []

    def _window(self) -> list[Packet]:
        """One message at a time."""
        if not self.messages or self.reason >= 0x80:
            return []
        self.messages[0].packet_id = self.acked + 1
        return [self.messages[0]]


@contextmanager
def mqtt_peer(broker: Broker, port: int = 0) -> Iterator[int]:
    """The port of a server with one such broker for all connections."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packets = Reader()
        try:
            while data := await reader.read(65536):
                for packet in packets.feed(data):
                    answers = broker.answer(packet)
                    if answers is None:
                        return
                    for one in answers:
                        writer.write(encode.encode(one, broker.version))
        except (MqttError, ConnectionError):
            pass
        finally:
            writer.close()

    async def serve(listening: Listening) -> None:
        async with await asyncio.start_server(connection, "127.0.0.1", port) as opened:
            await listening(opened.sockets[0].getsockname()[1])

    with server(serve) as found:
        yield found
