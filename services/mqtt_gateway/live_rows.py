"""Rows of the gateway's live state (enmasse/live_state.py, docs/contracts.md): its clients, by their names."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from enmasse.aio.live_follower import LiveLink
from enmasse.clock import Clock
from enmasse.live_state import LivePublisher, Rows
from services.mqtt_gateway.protocol.server_state import Connected, ServerState


class LiveGateway:
    """Offers the source `$live/<name>` to `followers`, whose links come through the router."""

    def __init__(self, name: str, front: ServerState, followers: set[LiveLink], clock: Clock) -> None:
        self._front = front
        self.rows = Rows(name, "mqtt_gateway", time.time)
        front.refusals.seen = self.rows.event
        self.publisher = LivePublisher(self.rows, self.look, lambda: followers, clock)
        self._marks: dict[str, tuple[Any, ...]] = {}

    def look(self) -> Iterator[None]:
        """Bring the rows up to date."""
        if not len(self.rows):
            self._marks.clear()
        seen: set[str] = set()
        for n, client in enumerate(list(self._front.clients)):
            id = client.client_id
            seen.add(id)
            mark = _mark(client)
            if self._marks.get(id) != mark:
                self._marks[id] = mark
                self.rows.put("connections", id, client.described(self.rows.wall()))
            if n % 10 == 9:
                yield
        for gone in self._marks.keys() - seen:
            del self._marks[gone]
            self.rows.drop("connections", gone)


def _mark(client: Connected) -> tuple[Any, ...]:
    return client.peer, client.bytes_in, client.bytes_out, client.kept, client.in_flight
