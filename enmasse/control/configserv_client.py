"""A controller's conversation with the configuration service: feeds in, reports out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from enmasse.control.connection import ControlConnection
from enmasse.control.errors import STOLEN, LinkClosed
from enmasse.control.feeds import follow
from enmasse.control.link import ControlReceiver
from enmasse.control.reports import PlacementsReporter, ReadinessReporter
from enmasse.logs import log
from enmasse.model.feeds import AddressChanges, BoundChanges, Flavors, PlacementChanges

S = TypeVar("S", bound=AddressChanges | Flavors | PlacementChanges | BoundChanges)
"""Body of a feed that has revisions."""


class FollowedFeed(Generic[S]):
    """A feed to follow: its name, the type of its body, and `received(body)`, called with each message.

    A feed of changes, `<name>/changes`, counts as `<name>` in reports.
    """

    def __init__(self, name: str, kind: type[S], received: Callable[[S], None]) -> None:
        self.name = name
        self._content = name.removesuffix("/changes")
        self._kind = kind
        self._received = received

    def follow(self, connection: ControlConnection, saw: Callable[[str, int], None]) -> ControlReceiver:
        """Subscribe; `saw(name, revision)` is called after `received`."""

        def received(body: S) -> None:
            self._received(body)
            saw(self._content, body.revision)

        return follow(connection, self.name, received, self._kind)


class ConfigurationClient:
    """Follower of feeds and sender of reports, over one connection after the other (`session`, for keep_connected).

    It reports after `start_reporting`: a process that stands by only follows.

    A message counts as seen by the readiness reporter when its `received` has returned.
    """

    def __init__(
        self,
        feeds: Sequence[
            FollowedFeed[AddressChanges]
            | FollowedFeed[Flavors]
            | FollowedFeed[PlacementChanges]
            | FollowedFeed[BoundChanges]
        ],
        readiness: ReadinessReporter,
        placements: PlacementsReporter | None = None,
    ) -> None:
        self.connected = False
        """Whether a session is running."""
        self._feeds = feeds
        self._readiness = readiness
        self._reporters = (readiness, placements) if placements is not None else (readiness,)
        self._reports = asyncio.Event()

    def start_reporting(self) -> None:
        """Report over the present connection and all later ones. Each begins with a full report."""
        self._reports.set()

    async def session(self, connection: ControlConnection) -> None:
        """Follow and report until one of the links ends. Raises LinkClosed, ConnectionLost."""
        ended = asyncio.Event()
        for reporter in self._reporters:
            reporter.connected()
        for feed in self._feeds:
            feed.follow(connection, self._readiness.saw).on_closed = lambda _: ended.set()
        reporting = [asyncio.ensure_future(self._report(reporter, connection)) for reporter in self._reporters]
        for task in reporting:
            task.add_done_callback(lambda _: ended.set())
        self.connected = True
        try:
            await ended.wait()
            for task in reporting:
                if task.done():
                    task.result()
        finally:
            self.connected = False
            for task in reporting:
                task.cancel()

    async def _report(self, reporter: ReadinessReporter | PlacementsReporter, connection: ControlConnection) -> None:
        await self._reports.wait()
        try:
            await reporter.run(connection)
        except LinkClosed as error:
            if error.condition == STOLEN and not connection.is_gone:
                # A process leads for as long as it lives: it takes the role back over its next connection.
                log.get(peer=connection.peer).warning("control.role.taken-over", role=reporter.role)
            raise
