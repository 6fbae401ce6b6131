"""Alerts: components of the suite that are no longer ready, are so again, or were started again; certificates that
expire or cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from datetime import datetime

from enmasse.api.types import Component
from enmasse.identity.refused import EVERYTHING
from enmasse.live_state import Row
from enmasse.text import counted
from services.console.errors import RequestError
from services.console.following.supervisor import Supervisor

INTERVAL = 2.0
SLOW = 10.0
"""Seconds between looks without webhooks."""
SUITE = "enmasse"
"""Component of events that are of no process of the suite."""
TROUBLED = "tls.certificate.troubled"
ENDED = "component.process.ended"
LOST, GAINED = "component.readiness.lost", "component.readiness.gained"
ALERTS = (LOST, GAINED, ENDED, TROUBLED)


class Alerts:
    """Differences between looks at the components. `found`: called with the name of a component, and the event;
    `listed`: with an event that `enmasse events` shows too, and its component, SUITE for a certificate."""

    def __init__(self, found: Callable[[str, Row], None], listed: Callable[[Row, str], None]) -> None:
        self._found = found
        self._listed = listed
        self._known: dict[str, Component] = {}
        self._troubles: list[str] = []
        self._began = time.time()

    async def run(self, supervisor: Supervisor, interval: float = INTERVAL) -> None:
        """Look until cancelled, every `interval` seconds."""
        while True:
            with contextlib.suppress(RequestError):  # `enmasse up` is ending, or busy
                found = await supervisor.suite()
                self.look(found.components)
                self.look_at_certificates(found.certificates)
            await asyncio.sleep(interval)

    def look(self, components: Iterable[Component]) -> None:
        """Tell what differs from the look before; a component that is new, and not ready yet, is only starting."""
        before, self._known = self._known, {each.name: each for each in components}
        for name, now in self._known.items():
            was = before.get(name)
            ended = datetime.fromisoformat(now.ended_at).timestamp() if now.ended_at else 0.0
            if ended > self._began if was is None else now.restarts > was.restarts:
                times = counted(now.restarts, "time")
                died = f"{now.ended}; " if now.ended else ""
                row = {"at": ended or time.time(), "id": ENDED, "reason": f"{died}it was started again, {times} in all"}
                self._listed({**row, "names": [EVERYTHING]}, name)
            if was is not None and now.ready != was.ready:
                self._tell(name, GAINED if now.ready else LOST, now.detail)

    def look_at_certificates(self, troubles: list[str]) -> None:
        """Tell what was not wrong at the look before."""
        for each in troubles:
            if each not in self._troubles:
                self._listed({"at": time.time(), "id": TROUBLED, "reason": each, "names": [EVERYTHING]}, SUITE)
        self._troubles = troubles

    def _tell(self, name: str, id: str, reason: str) -> None:
        self._found(name, {"at": time.time(), "id": id, "reason": reason})
