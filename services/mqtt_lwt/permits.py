"""Permissions of the users whose wills are kept, as the configuration service publishes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from enmasse.identity import authors
from enmasse.identity.authors import Author
from enmasse.identity.space_plans import EndingSpaces, SpacePlans
from enmasse.identity.user_directory import UserDirectory
from enmasse.logs import log
from enmasse.logs.audit import INTERVAL, RepeatedEvents
from enmasse.model import feeds
from enmasse.model.names import space_of
from services.mqtt_lwt.wills import Will


class Permits:
    """Decides whether wills may be published. `now`: a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.dropped = 0
        """Wills that were dropped because their user may not send them, or is gone."""
        self.plans = SpacePlans()
        self.ending = EndingSpaces()
        self._users = UserDirectory()
        self._repeats: RepeatedEvents[str] = RepeatedEvents(now)

    @property
    def known(self) -> bool:
        """The permissions are known; until then no will is published."""
        return self._users.known

    def take(self, body: feeds.PermissionChanges) -> None:
        """Put other users and permissions in force."""
        self.ending.take(body)
        self._users.take(body)
        self.plans.configure(body.spaces or {})

    def refusal(self, author: Author, to: str) -> str:
        """Return why a will of this user may not be published to `to`; empty if it may, or is not known."""
        return authors.refusal(self._users.permissions_of(author.space), author, to) if self.known else ""

    def note(self, will: Will, reason: str) -> None:
        """Log a will that is dropped; those of one user together, once a minute."""
        self.dropped += 1
        user, client, space = will.author.full_name, will.key.partition(":")[2], will.author.space
        if count := self._repeats.count(user):
            log.get(client=client).warning(
                "mqtt-lwt.will.not-allowed", user=user, to=will.to[:200], reason=reason, count=count, space=space
            )
            what = f"will to {will.to[:200]}"
            log.audit("audit.will.dropped", who=user, from_=client, what=what, outcome=reason, count=count, space=space)

    async def write_repeated(self) -> NoReturn:
        """Log the dropped wills that were left out, once a minute."""
        while True:
            await asyncio.sleep(INTERVAL)
            for user, count in self._repeats.due():
                facts = {"what": "wills", "outcome": "not allowed", "count": count, "space": space_of(user)}
                log.audit("audit.will.dropped", who=user, from_=None, **facts)
