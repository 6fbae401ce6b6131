"""Feeds: each subscriber gets the newest content, when it has given credit and has settled the message before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from enmasse.control import ControlSender, LinkClosed, Outcome
from enmasse.control.jsonmessage import encode
from enmasse.control.link import REJECTED
from enmasse.logs import log

RETRY = 1.0
"""Seconds until a snapshot that was released or modified is offered again."""


class PublishedFeed:
    """Feed of snapshots. `build()` gives the JSON text, or None while its source is not complete: nothing is sent.

    `interval`: seconds from one snapshot to the next, for all subscribers.
    """

    def __init__(self, address: str, subject: str, build: Callable[[], bytes | None], interval: float = 0.0) -> None:
        self.address = address
        self._subject = subject
        self._build = build
        self._interval = interval
        self._version = 0
        self._snapshot: bytes | None = None
        self._built = -1
        self._subscribers: set[_Subscriber] = set()
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._last = 0.0

    @property
    def subscribers(self) -> int:
        """Number of attached subscribers."""
        return len(self._subscribers)

    def changed(self, names: Iterable[str] = ()) -> None:
        """Publish a change. Changes of one turn of the loop, or of one interval, become one message."""
        self._version += 1
        for subscriber in self._subscribers:
            if subscriber.missing is not None:
                subscriber.missing.update(names)
        if self._timer is None and self._subscribers:
            loop = asyncio.get_running_loop()
            wait = self._last + self._interval - loop.time()
            self._timer = loop.call_later(wait, self.publish) if wait > 0 else loop.call_soon(self.publish)

    def subscribe(self, sender: ControlSender) -> None:
        """Add a receiver, which gets its first message as soon as it has credit."""
        subscriber = _Subscriber(self, sender)
        self._subscribers.add(subscriber)
        sender.on_credit = subscriber.offer
        sender.on_closed = subscriber.closed
        subscriber.offer()

    def close(self) -> None:
        """Stop the timer: nothing is sent any longer."""
        if self._timer is not None:
            self._timer.cancel()

    def current(self) -> tuple[int, bytes] | None:
        """Return version and message of the newest snapshot that the interval permits; None before the first."""
        if self._built != self._version and (self._timer is None or self._built < 0):
            body = self._build()
            self._snapshot = None if body is None else encode(self._subject, body)
            self._built = self._version
            self._last = asyncio.get_running_loop().time()
        return None if self._snapshot is None else (self._built, self._snapshot)

    def next_message(self, subscriber: _Subscriber) -> bytes | None:
        """Return the message that this subscriber lacks; None if it has the newest."""
        found = self.current()
        if found is None or found[0] == subscriber.sent:
            return None
        subscriber.sent = found[0]
        return found[1]

    def forget(self, subscriber: _Subscriber) -> None:
        """Remove a subscriber whose link has ended."""
        self._subscribers.discard(subscriber)
        if not self._subscribers and self._timer is None:
            self._snapshot, self._built = None, -1  # there is no subscriber left

    def publish(self) -> None:
        """Offer the newest message to every subscriber; called when the interval has elapsed."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        for subscriber in list(self._subscribers):
            subscriber.offer()


class ChangeFeed(PublishedFeed):
    """Feed of changes: the first message has everything, each later one what has changed since the one before.

    `changes(names)` gives the JSON text about these names (`names=None`: about all), or None while its source is not
    complete. A subscriber that has not accepted a message gets everything again.
    """

    def __init__(
        self,
        address: str,
        subject: str,
        changes: Callable[[Iterable[Any] | None], bytes | None],
        interval: float = 0.0,
    ) -> None:
        super().__init__(address, subject, lambda: changes(None), interval)
        self._changes = changes

    def restart(self) -> None:
        """Send everything next: the new content is not made from the one before."""
        for subscriber in self._subscribers:
            subscriber.missing = None
        self.changed()

    def next_message(self, subscriber: _Subscriber) -> bytes | None:
        """Return all content for a new subscriber, later what has changed since its last message; None: nothing yet."""
        if subscriber.sent == self._version or (self._timer is not None and subscriber.missing is not None):
            return None
        body = self._changes(subscriber.missing)
        if body is None:
            return None
        subscriber.sent, subscriber.missing = self._version, set()
        self._last = asyncio.get_running_loop().time()
        return encode(self._subject, body)


class _Subscriber:
    """Link of one receiver, with at most one unsettled message: a receiver that does not settle holds one message.

    `sent`: the version it has got. `missing`: names that changed since, if it gets changes; None: all of them.
    """

    def __init__(self, feed: PublishedFeed, sender: ControlSender) -> None:
        self._feed = feed
        self._sender = sender
        self.sent = -1
        self.missing: set[str] | None = None
        self._busy = False
        self._retry: asyncio.TimerHandle | None = None

    def offer(self) -> None:
        sender = self._sender
        if self._busy or self._retry is not None or sender.credit <= 0:
            return
        message = self._feed.next_message(self)
        if message is None:
            return
        if not sender.presettled:
            self._busy = True
            sender.send(message, self._settled)
        else:
            sender.send(message, settled=True)
            self._wait(0.0)

    def _settled(self, outcome: Outcome) -> None:
        self._busy = False
        if self._sender.closed:
            return
        if not outcome.accepted:
            self.missing = None
        if outcome.state == REJECTED:
            log.get(feed=self._feed.address, peer=self._sender.connection.peer).warning(
                "configserv.snapshot.rejected", condition=outcome.condition, description=outcome.description
            )
        elif not outcome.accepted:
            self.sent = -1
            self._wait(RETRY)
            return
        self.offer()

    def _wait(self, seconds: float) -> None:
        """Offer again later; to a subscriber without outcomes, after its last message was sent."""
        self._retry = asyncio.get_running_loop().call_later(seconds, self._again)

    def _again(self) -> None:
        self._retry = None
        if self._sender.closed:
            return
        if self._sender.queued or self._sender.connection.blocked:
            self._wait(0.1)
            return
        self.offer()

    def closed(self, error: LinkClosed) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._feed.forget(self)
