"""A service's side of the configuration service (docs/contracts.md, "configserv"): feeds in, reports out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

import msgspec

from enmasse import log
from enmasse.control import jsonmessage
from enmasse.control.connection import ControlConnection
from enmasse.control.errors import DECODE_ERROR, ControlError, LinkClosed
from enmasse.control.link import ControlReceiver, ControlSender, Delivery

COALESCE = 0.02
"""Seconds in which changes gather before they are reported."""
AGAIN = 0.1
"""Seconds until a link that was ended is attached again."""
SHOWN = 1.0
"""Seconds for which an address of which something was lost is reported as not ready, at least."""

T = TypeVar("T")

Report = dict[str, Any]
"""Readiness of one address: {"ready", "failed", "message", "components", "messages", "consumers"}."""


@overload
def follow(connection: ControlConnection, feed: str, taken: Callable[[dict[str, Any]], None]) -> ControlReceiver: ...
@overload
def follow(connection: ControlConnection, feed: str, taken: Callable[[T], None], kind: type[T]) -> ControlReceiver: ...
def follow(
    connection: ControlConnection, feed: str, taken: Callable[[Any], None], kind: type[Any] = dict
) -> ControlReceiver:
    """Subscribes to a feed; `taken(body)` gets each snapshot, one at a time, the newest when more have gathered.

    `kind` is the body's type: a JSON object as it is, or one of enmasse.model.feeds. A snapshot that cannot be read, or
    at which `taken` raises ValueError, is rejected and changes nothing.
    """
    logger = log.get(feed=feed, peer=connection.peer)

    def on_message(delivery: Delivery) -> None:
        try:
            taken(decode_body(delivery, kind))
        except (ControlError, ValueError) as error:
            logger.error("a snapshot was refused", reason=str(error))
            delivery.reject(DECODE_ERROR, str(error)[:200])
        else:
            delivery.accept()

    receiver = connection.receiver(feed, window=1)
    receiver.on_message = on_message
    return receiver


def decode_body(delivery: Delivery, kind: type[T]) -> T:
    """The JSON object in a message of the configuration service. Raises ControlError, ValueError."""
    return msgspec.json.decode(jsonmessage.body(delivery), type=kind)


def encode_message(subject: str, body: Any) -> bytes:
    """A message of the configuration service: JSON in an amqp-value string."""
    return jsonmessage.encode(subject, msgspec.json.encode(body))


class ReadinessReporter:
    """Reports readiness: everything when a connection begins, then what has changed, gathered for a moment.

    `reports(names)` gives the report of each name that is reported at all; None stands for all names. `feeds`: those by
    which that is judged; who follows them says `saw` when what `reports` and `pending` give takes a snapshot into
    account. `pending()`: feed → what is still to be done because of its snapshot, beside what the reports say.
    `begin()`: whether everything can be reported by now; asked when `saw` or `changed` was called.
    """

    def __init__(
        self,
        reporter: str,
        reports: Callable[[Iterable[str] | None], Mapping[str, Report]],
        feeds: Iterable[str],
        pending: Callable[[], dict[str, str]],
        begin: Callable[[], bool],
    ) -> None:
        self.reporter = reporter
        self._reports = reports
        self._feeds = tuple(feeds)
        self._pending = pending
        self._begin = begin
        self._seen: dict[str, int] = {}
        self._received: set[str] = set()
        self._changed: set[str] = set()
        self._wake = asyncio.Event()

    def connected(self) -> None:
        """A connection begins: of its snapshots none was seen yet. Called before any feed is followed on it."""
        self._seen = dict.fromkeys(self._feeds, 0)
        self._received.clear()

    def saw(self, feed: str, revision: int) -> None:
        """From now on everything takes this snapshot into account."""
        self._seen[feed] = revision
        self._received.add(feed)
        self._wake.set()

    def received(self, *feeds: str) -> bool:
        """Whether each of these has delivered on this connection."""
        return self._received.issuperset(feeds)

    def changed(self, names: Iterable[str] = ()) -> None:
        """These, or what is pending, may have to be reported anew."""
        self._changed.update(names)
        self._wake.set()

    def untold(self, names: Iterable[str]) -> set[str]:
        """Those of these that have changed since the last report was made."""
        return self._changed.intersection(names)

    async def run(self, connection: ControlConnection) -> None:
        """Reports over this connection until it is lost. Raises LinkClosed, ConnectionLost."""
        sender = connection.sender("readiness", name=self.reporter)
        await sender.opened()
        told: dict[str, Any] | None = None
        while True:
            await self._wake.wait()
            await asyncio.sleep(COALESCE)
            self._wake.clear()
            if told is None and not self._begin():
                continue
            names, self._changed = self._changed, set()
            # Of one moment with the reports: they hold for what is said to be seen.
            more = {"seen": dict(self._seen), "pending": self._pending()}
            if told is None:
                await _deliver(sender, "full", {"addresses": self._reports(None), "removed": [], **more})
            elif names or more != told:
                found = self._reports(names)
                removed = [name for name in names if name not in found]
                await _deliver(sender, "change", {"addresses": found, "removed": removed, **more})
            told = more


class Restored:
    """Addresses of which something was lost. It is made again at once, but people shall see it: they are in here, and
    count as not ready, for SHOWN and until a report was made. `evaluate(names)` judges them anew."""

    def __init__(self, reporter: ReadinessReporter, evaluate: Callable[[Iterable[str]], None]) -> None:
        self._reporter = reporter
        self._evaluate = evaluate
        self._until: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._until

    def add(self, names: Iterable[str]) -> None:
        """Something of these was found missing or altered."""
        loop = asyncio.get_running_loop()
        names = list(names)
        self._until.update(dict.fromkeys(names, loop.time() + SHOWN))
        self._evaluate(names)
        loop.call_later(SHOWN, self._over, names)

    def _over(self, names: list[str]) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        untold = self._reporter.untold(names)
        if untold:  # it has not been seen yet: the process, or who takes the reports, stood still
            loop.call_later(SHOWN, self._over, list(untold))
        done = [name for name in names if name not in untold and self._until.get(name, now) <= now]
        for name in done:
            self._until.pop(name, None)
        self._evaluate(done)


class FullReporter:
    """Reports something whole (`placements`): when a connection begins and whenever it has changed.

    `report()` gives the body, or None while there is nothing complete to tell; `answered(accepted)` is called when what
    the last call of `report` gave has been accepted, or refused.
    """

    def __init__(self, target: str, report: Callable[[], Any | None], answered: Callable[[bool], None]) -> None:
        self.target = target
        self._report = report
        self._answered = answered
        self._wake = asyncio.Event()

    def changed(self) -> None:
        """There may be something new to report."""
        self._wake.set()

    async def run(self, connection: ControlConnection) -> None:
        """Reports over this connection until it is lost. Raises LinkClosed, ConnectionLost."""
        while True:
            sender = connection.sender(self.target)
            sender.on_closed = lambda _: self._wake.set()
            try:
                await sender.opened()
                await self._report_over(sender)
            except LinkClosed:
                if connection.is_gone:
                    raise
            # Who takes the reports wants them anew (brokers.json is gone), or cannot be told anything now.
            await asyncio.sleep(AGAIN)

    async def _report_over(self, sender: ControlSender) -> None:
        self._wake.set()
        while True:
            await self._wake.wait()
            await asyncio.sleep(COALESCE)
            self._wake.clear()
            if sender.closed:
                raise sender.error or LinkClosed("closed")
            body = self._report()
            if body is None:
                continue
            try:
                await _deliver(sender, "full", body)
            except LinkClosed as error:
                if sender.closed:
                    raise
                # Refused as such (placements while there is a brokers.json): the next change may be wanted again.
                log.get(target=self.target).warning("a report was refused", reason=str(error))
                self._answered(False)
            else:
                self._answered(True)


async def _deliver(sender: ControlSender, subject: str, body: Any) -> None:
    data = encode_message(subject, body)
    while True:
        outcome = await sender.deliver(data)
        if outcome.accepted:
            return
        if outcome.condition:
            raise LinkClosed(outcome.condition, outcome.description)
        await asyncio.sleep(0.1)  # released: not now, but later
