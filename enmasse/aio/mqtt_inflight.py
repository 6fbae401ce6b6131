"""The publications of an MQTT client that are not complete: packet ids, futures, what is sent again after a loss."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from typing import Any

import msgspec

from enmasse.aio.mqtt_wire import Disconnected
from enmasse.mqtt import encode
from enmasse.mqtt.packets import PubAck, PubComp, Publish, PubRec


class _Sent:
    __slots__ = ("answer", "future", "packet", "released")

    def __init__(self, packet: Publish, future: asyncio.Future[Any]) -> None:
        self.packet = packet
        self.future = future
        self.released = False  # PUBREC has come: only PUBREL may be sent again
        self.answer: PubRec | None = None  # a PUBREC that says more than success


class InFlight:
    """`window`: how many the server takes at a time."""

    def __init__(self) -> None:
        self.window = 65535
        self._sent: dict[int, _Sent] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def room(self) -> int:
        return self.window - len(self._sent)

    def next_id(self, others: Container[int]) -> int:
        """A packet id that is free here and among the others; each of the 65,535 comes before one comes again. Raises
        ValueError if there is none."""
        for _ in range(0xFFFF):
            self._last_id = self._last_id % 0xFFFF + 1
            if self._last_id not in self._sent and self._last_id not in others:
                return self._last_id
        raise ValueError("all packet identifiers are in use")

    def add(self, packet: Publish, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = loop.create_future()
        self._sent[packet.packet_id] = _Sent(packet, future)
        return future

    def completed(self, packet: PubAck | PubComp) -> None:
        sent = self._sent.pop(packet.packet_id, None)
        if sent is not None and not sent.future.done():
            sent.future.set_result(sent.answer or packet)

    def received(self, packet: PubRec) -> bool:
        """Whether PUBREL is to follow: not if the server has refused the message."""
        sent = self._sent.get(packet.packet_id)
        if sent is not None and packet.reason >= 0x80:
            del self._sent[packet.packet_id]
            if not sent.future.done():
                sent.future.set_result(packet)
            return False
        if sent is not None:
            sent.released = True
            sent.answer = packet if packet.reason else None
        return True

    def again(self, version: int, present: bool) -> Iterator[bytes]:
        """What is to be sent on a new connection, in order. `present`: the server still has the session."""
        before, self._sent = self._sent, {}
        for identifier, sent in before.items():
            if sent.released and not present:
                if not sent.future.done():
                    lost = "the server has lost the session between PUBREC and PUBCOMP"
                    sent.future.set_exception(Disconnected(lost))
                continue
            self._sent[identifier] = sent
            if sent.released:
                yield encode.ack(encode.PUBREL, identifier)
            else:
                yield encode.encode(msgspec.structs.replace(sent.packet, dup=present), version, True)

    def give_up(self) -> list[asyncio.Future[Any]]:
        """Forget them all; their futures."""
        futures = [sent.future for sent in self._sent.values()]
        self._sent.clear()
        return futures
