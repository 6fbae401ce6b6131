"""Clients of a gateway that leaves: their connections are ended a few at a time, for them to connect to another one.

A connection ends at a moment when nothing of its client is under way, or, half a second after it was chosen, as soon as
what has come from it is answered.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from enmasse.bridge.client_door import ClientDoor, DoorConnection
from enmasse.http.health import Health
from enmasse.logs import log
from enmasse.network import trickle
from enmasse.network.trickle import SETTLING

C = TypeVar("C", bound=DoorConnection)


class LeavingConnections(Generic[C]):
    """As trickle.ClosesSome, for the connections of a door that no longer listens. `moved`: ended so far."""

    def __init__(self, door: ClientDoor[C]) -> None:
        self._door = door
        self._waiting: list[C] = []
        self._asked: dict[C, float] = {}
        """Connection that was chosen → until when it is given time."""
        self._ending: set[C] = set()
        self._first = self.number
        self.moved = 0

    @property
    def number(self) -> int:
        """As trickle.ClosesSome."""
        return len(self._door.connections)

    @property
    def progress(self) -> str:
        """Return for people how many connections are open."""
        number = self.number
        return f"leaving, {number} of {max(number, self._first)} connections"

    def begin(self, most: int) -> int:
        """As trickle.ClosesSome."""
        there = self._door.connections
        self._ending &= there
        if not self._waiting:
            self._waiting = [each for each in there if each not in self._asked and each not in self._ending]
        begun = 0
        while begun < most and self._waiting:
            connection = self._waiting.pop()
            if connection in there:
                self._asked[connection] = asyncio.get_running_loop().time() + SETTLING
                begun += 1
        return begun

    def look(self, now: float) -> bool:
        """As trickle.ClosesSome."""
        for connection, until in list(self._asked.items()):
            if connection not in self._door.connections:
                del self._asked[connection]
            elif connection.quiet or now >= until:
                del self._asked[connection]
                self._ending.add(connection)
                self.moved += 1
                connection.leave()
        return bool(self._asked)


async def hand_on(door: ClientDoor[C], health: Health, within: float, hurry: asyncio.Event) -> None:
    """Accept no further connections, and end those that are open, a few at a time. Returns after `within` seconds at
    the latest, and once `hurry` is set; 0: at once."""
    if not within or hurry.is_set():
        return
    now = asyncio.get_running_loop().time
    began, moving = now(), LeavingConnections(door)
    health.check = lambda: (False, moving.progress)
    door.stop_listening()
    log.get().info("gateway.leave.began", connections=moving.number)
    left = await trickle.empty(moving, within, hurry, now)
    log.get().info("gateway.leave.ended", moved=moving.moved, left=left, seconds=round(now() - began, 1))
