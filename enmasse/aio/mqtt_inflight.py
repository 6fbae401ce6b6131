"""Incomplete publications of an MQTT client: their packet ids and futures."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import Any

from enmasse.mqtt.packets import PubAck, PubComp, Publish, PubRec, PubRel


class _Sent:
    __slots__ = ("answer", "future", "packet", "taken")

    def __init__(self, packet: Publish, future: asyncio.Future[Any]) -> None:
        self.packet = packet
        self.taken = False
        """The server has taken it (PUBREC)."""
        self.future = future
        self.answer: PubRec | None = None  # the PUBREC, if its reason is not success


class InFlight:
    """Publications by packet id. `window`: receive maximum of the server."""

    def __init__(self) -> None:
        self.window = 65535
        self._sent: dict[int, _Sent] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def room(self) -> int:
        """Return the number of publications that may still be sent."""
        return self.window - len(self._sent)

    def next_id(self, others: Container[int]) -> int:
        """Return an unused packet id that is not in `others`; ids are reused as late as possible. Raises ValueError."""
        for _ in range(0xFFFF):
            self._last_id = self._last_id % 0xFFFF + 1
            if self._last_id not in self._sent and self._last_id not in others:
                return self._last_id
        raise ValueError("all packet identifiers are in use")

    def add(self, packet: Publish, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """Add a PUBLISH that is sent; return the future of its answer."""
        future: asyncio.Future[Any] = loop.create_future()
        self._sent[packet.packet_id] = _Sent(packet, future)
        return future

    def completed(self, packet: PubAck | PubComp) -> None:
        """Complete the publication that a PUBACK or PUBCOMP names; an unknown packet id is ignored."""
        sent = self._sent.pop(packet.packet_id, None)
        if sent is not None and not sent.future.done():
            sent.future.set_result(sent.answer or packet)

    def received(self, packet: PubRec) -> bool:
        """Return True if PUBREL has to follow: the server has not refused the message."""
        sent = self._sent.get(packet.packet_id)
        if sent is not None and packet.reason >= 0x80:
            del self._sent[packet.packet_id]
            if not sent.future.done():
                sent.future.set_result(packet)
            return False
        if sent is not None:
            sent.answer = packet if packet.reason else None
            sent.taken = True
        return True

    def again(self, *, continued: bool) -> list[Publish | PubRel]:
        """Return the packets for a new connection. `continued`: the server has kept the session; otherwise
        each publication begins again."""
        found: list[Publish | PubRel] = []
        for id, sent in self._sent.items():
            sent.taken = sent.taken and continued
            if sent.taken:
                found.append(PubRel(id))
            else:
                sent.packet.dup = continued
                found.append(sent.packet)
        return found

    def give_up(self) -> list[asyncio.Future[Any]]:
        """Remove all publications and return their futures."""
        futures = [sent.future for sent in self._sent.values()]
        self._sent.clear()
        return futures
