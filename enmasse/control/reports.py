"""Reports to the configuration service as typed objects (docs/contracts.md, "configserv"; enmasse/model/feeds.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from enmasse.control.connection import ControlConnection
from enmasse.control.errors import STOLEN, LinkClosed
from enmasse.control.feeds import encode_message
from enmasse.control.link import ControlReceiver, ControlSender
from enmasse.logs import log
from enmasse.model.feeds import BoundReport, PlacementsReport, ReadinessReport
from enmasse.model.names import AddressName
from enmasse.reconcile import ReadinessBook

COALESCE = 0.02
"""Seconds in which changes gather before they are reported."""
AGAIN = 0.1
"""Seconds until a link that has ended is attached again, or a report that was released is sent again."""


class ReadinessReporter:
    """Reporter of readiness: everything when a connection begins, then changes, gathered for COALESCE seconds.

    `role`: the kind of controller (`ragent`); `instance`: the process (its settings' name).
    `feeds`: names of the feeds on which the book's states and `pending` depend. `pending()`: feed → work that its
    newest message still requires, beside that of the addresses in the book. `begin()`: whether the full report can be
    sent; called whenever a message was received or a state has changed.
    """

    def __init__(
        self,
        role: str,
        instance: str,
        book: ReadinessBook,
        *,
        feeds: Iterable[str],
        pending: Callable[[], dict[str, str]],
        begin: Callable[[], bool],
    ) -> None:
        self.role = role
        self.instance = instance
        self._book = book
        self._feeds = tuple(feeds)
        self._pending = pending
        self._begin = begin
        self._seen: dict[str, int] = {}
        self._received: set[str] = set()
        self._wake = asyncio.Event()
        book.on_change = self._wake.set

    def connected(self) -> None:
        """Begin with a new connection. Called before any feed is followed on it: none of its messages was received."""
        self._seen = dict.fromkeys(self._feeds, 0)
        self._received.clear()

    def saw(self, feed: str, revision: int) -> None:
        """Record that all states in the book take this message into account."""
        if feed in self._seen:
            self._seen[feed] = revision
        self._received.add(feed)
        self._wake.set()

    def received(self, *feeds: str) -> bool:
        """Return whether each of these feeds has delivered on this connection."""
        return self._received.issuperset(feeds)

    def changed(self) -> None:
        """Check what is pending, and whether the report may begin: either may have changed."""
        self._wake.set()

    async def run(self, connection: ControlConnection) -> None:
        """Report over this connection until it is lost, or another peer takes the role over. Raises LinkClosed,
        ConnectionLost.
        """
        sender = connection.sender("readiness", name=self.role)
        sender.on_closed = lambda _: self._wake.set()
        await sender.opened()
        last: tuple[dict[str, int], dict[str, str]] | None = None
        while True:
            await _next_turn(self._wake, sender)
            if last is None and not self._begin():
                continue
            full = last is None
            names = self._book.take()
            # Taken together with the states, which take into account everything that is reported as seen.
            seen, pending = now = dict(self._seen), self._pending()
            if full or names or now != last:
                found = self._book.reports(None if full else names)
                removed = [] if full else [name for name in names if name not in found]
                report = ReadinessReport(
                    instance=self.instance, addresses=found, removed=removed, seen=seen, pending=pending
                )
                await deliver(sender, "full" if full else "change", report)
            last = now


class PlacementsReporter:
    """Reporter of placements: all of them when a link begins or a report was refused, then what has changed.

    `role`: the kind of controller. Link names are unique in a connection: this one differs from that for readiness.
    `report(full)` gives the body, of all placements or of what has changed since its last call, or None while it is not
    complete; `answered(accepted)` is called when what the last call of `report` gave has been accepted, or refused.
    """

    def __init__(
        self, role: str, report: Callable[[bool], PlacementsReport | None], answered: Callable[[bool], None]
    ) -> None:
        self.role = role
        self.is_answered = False
        """Whether a report was accepted or refused on this connection."""
        self._report = report
        self._answered = answered
        self._wake = asyncio.Event()

    def connected(self) -> None:
        """Begin with a new connection. Called before any feed is followed on it."""
        self.is_answered = False

    def changed(self) -> None:
        """Check whether placements have changed."""
        self._wake.set()

    async def run(self, connection: ControlConnection) -> None:
        """Report over this connection until it is lost. Raises LinkClosed, ConnectionLost."""
        while True:
            sender = connection.sender("placements", name=f"{self.role}/placements")
            sender.on_closed = lambda _: self._wake.set()
            try:
                await sender.opened()
                await self._report_over(sender)
            except LinkClosed as error:
                if connection.is_gone or error.condition == STOLEN:  # another process of this role reports
                    raise
            # The configuration service asks for a full report (brokers.json is gone), or accepts none at the moment.
            await asyncio.sleep(AGAIN)

    async def _report_over(self, sender: ControlSender) -> None:
        self._wake.set()
        full = True
        while True:
            await _next_turn(self._wake, sender)
            body = self._report(full)
            if body is None:
                continue
            accepted = True
            try:
                await deliver(sender, "full" if full else "change", body)
            except LinkClosed as error:
                if sender.closed:
                    raise
                # Refused (placements while there is a brokers.json): the next one may be accepted.
                log.get(target="placements").warning("control.report.refused", reason=str(error))
                accepted = False
            full = not accepted
            self.is_answered = True
            self._answered(accepted)


class BoundReporter:
    """Reporter of what is bound at prepared placements: everything when a connection begins, then changes.

    `role`: the kind of process that binds.
    """

    def __init__(self, role: str) -> None:
        self.role = role
        self._bound: dict[AddressName, dict[str, int]] = {}
        self._changed: set[AddressName] = set()
        self._wake = asyncio.Event()

    def bound(self, name: AddressName, broker: str, epoch: int) -> None:
        """Record that everything is bound for this preparation."""
        self._bound.setdefault(name, {})[broker] = epoch
        self._note(name)

    def forget(self, name: AddressName, broker: str) -> None:
        """Record that the placement is no longer prepared."""
        found = self._bound.get(name)
        if found is not None and found.pop(broker, None) is not None:
            if not found:
                del self._bound[name]
            self._note(name)

    def _note(self, name: AddressName) -> None:
        self._changed.add(name)
        self._wake.set()

    async def run(self, connection: ControlConnection) -> None:
        """Report over this connection until it is lost. Raises LinkClosed, ConnectionLost."""
        sender = connection.sender("bound", name=self.role)
        sender.on_closed = lambda _: self._wake.set()
        await sender.opened()
        full = True
        self._wake.set()
        while True:
            await _next_turn(self._wake, sender)
            names, self._changed = self._changed, set()
            found = {name: dict(each) for name, each in self._bound.items() if full or name in names}
            removed = [] if full else [name for name in names if name not in found]
            report = BoundReport(instance="", addresses=found, removed=removed)
            await deliver(sender, "full" if full else "change", report)
            full = False


async def _next_turn(wake: asyncio.Event, sender: ControlSender) -> None:
    """Wait until there may be something to report. Raises LinkClosed if the link has ended, whatever there is."""
    await wake.wait()
    if not sender.closed:
        await asyncio.sleep(COALESCE)
    wake.clear()
    if sender.closed:
        raise sender.error or LinkClosed("closed")


async def report_beside(feeds: Iterable[ControlReceiver], reports: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Report until the link of a feed or a report ends. Raises LinkClosed, ConnectionLost of a report."""
    ended = asyncio.Event()
    for feed in feeds:
        feed.on_closed = lambda _: ended.set()
    tasks = [asyncio.ensure_future(report) for report in reports]
    for task in tasks:
        task.add_done_callback(lambda _: ended.set())
    try:
        await ended.wait()
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()


async def deliver(sender: ControlSender, subject: str, body: Any) -> None:
    """Send a report, again while it is released. Raises LinkClosed if it is refused."""
    data = encode_message(subject, body)
    while True:
        outcome = await sender.deliver(data)
        if outcome.accepted:
            return
        if outcome.condition:
            raise LinkClosed(outcome.condition, outcome.description)
        await asyncio.sleep(AGAIN)  # released: try again
