"""A controller's conversation with the configuration service: feeds in, reports out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from enmasse.control.connection import ControlConnection
from enmasse.control.errors import STOLEN, LinkClosed
from enmasse.control.feeds import follow
from enmasse.control.link import ControlReceiver
from enmasse.control.local_usage import UsageReporter
from enmasse.control.reports import PlacementsReporter, ReadinessReporter, report_beside
from enmasse.logs import log
from enmasse.model.feeds import AddressChanges, BoundChanges, Flavors, FollowedFeed, PlacementChanges


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
        usage: UsageReporter | None = None,
    ) -> None:
        self.connected = False
        """Whether a session is running."""
        self._feeds = feeds
        self._readiness = readiness
        self._reporters = (readiness, placements) if placements is not None else (readiness,)
        self._usage = usage
        self._reports = asyncio.Event()

    def start_reporting(self) -> None:
        """Report over the present connection and all later ones. Each begins with a full report."""
        self._reports.set()

    async def session(self, connection: ControlConnection) -> None:
        """Follow and report until one of the links ends. Raises LinkClosed, ConnectionLost."""
        for reporter in self._reporters:
            reporter.connected()
        feeds = [self._follow(connection, feed) for feed in self._feeds]
        reports = [self._report(reporter, connection) for reporter in self._reporters]
        if self._usage is not None:
            reports.append(self._report_usage(self._usage, connection))
        self.connected = True
        try:
            await report_beside(feeds, reports)
        finally:
            self.connected = False

    def _follow(self, connection: ControlConnection, feed: FollowedFeed[Any]) -> ControlReceiver:
        """A feed of changes, `<name>/changes`, counts as `<name>` in reports."""
        content = feed.name.removesuffix("/changes")

        def received(body: Any) -> None:
            feed.received(body)
            self._readiness.saw(content, body.revision)

        return follow(connection, feed.name, received, feed.kind)

    async def _report_usage(self, usage: UsageReporter, connection: ControlConnection) -> None:
        await self._reports.wait()
        await usage.run(connection)

    async def _report(self, reporter: ReadinessReporter | PlacementsReporter, connection: ControlConnection) -> None:
        await self._reports.wait()
        try:
            await reporter.run(connection)
        except LinkClosed as error:
            if error.condition == STOLEN and not connection.is_gone:
                # A process leads for as long as it lives: it takes the role back over its next connection.
                log.get(peer=connection.peer).warning("control.role.taken-over", role=reporter.role)
            raise
