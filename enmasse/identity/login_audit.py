"""Audit events of logins. Their number is limited: those that repeat are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn

from enmasse.logs import log
from enmasse.logs.audit import INTERVAL, RepeatedEvents

Outcome = Literal["accepted", "refused", "waiting"]
"""`waiting`: refused unseen, because the client has to wait after failed logins or has too many under way."""


class _Matter(NamedTuple):
    user: str | None
    address: str | None
    mechanism: str
    outcome: str
    space: str


class LoginAudit:
    """Audit events of the logins at one process. `now`: a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._repeats: RepeatedEvents[_Matter] = RepeatedEvents(now)

    def note(self, user: str | None, address: str | None, mechanism: str, outcome: Outcome, *, space: str) -> None:
        """Write an event, unless there was one like it just now. `user` None: the name may be a password. `space`: in
        which it was looked for."""
        matter = _Matter(user, address, mechanism, outcome, space)
        if count := self._repeats.count(matter):
            _write(matter, count)

    async def run(self) -> NoReturn:
        """Write the events that were left out, once a minute."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.write_repeated()

    def write_repeated(self) -> None:
        """Write the events that were left out."""
        for matter, count in self._repeats.due():
            _write(matter, count)


def _write(matter: _Matter, count: int) -> None:
    user, address, mechanism, outcome, space = matter
    facts: dict[str, Any] = {"who": user, "from_": address, "what": f"login by {mechanism}", "count": count}
    facts |= {"space": space, "outcome": outcome}
    if outcome == "accepted":
        log.audit("audit.login.accepted", **facts)
    else:
        log.audit("audit.login.refused", **facts)
