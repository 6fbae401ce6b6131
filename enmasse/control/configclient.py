"""A service's conversation with the configuration service: feeds in, reports out, reconnecting (docs/contracts.md).

client = ConfigClient(host, port, container="ragent-1")
client.feed("addresses", feeds.Addresses, on_addresses)
readiness = client.readiness()
task = process.spawn(client.run(), "configserv")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from enmasse import log
from enmasse.control import jsonmessage
from enmasse.control.connection import Connection
from enmasse.control.dial import keep_connected
from enmasse.control.errors import DECODE_ERROR, INTERNAL_ERROR, AmqpError, LinkClosed
from enmasse.control.link import Delivery, Outcome, Sender
from enmasse.model import feeds

T = TypeVar("T")
RETRY = 1.0
"""Seconds until a refused report is sent again."""


class ConfigClient:
    """One connection to configserv, kept up. Callbacks run in the event loop; a feed's snapshot is accepted after its
    callback returned. After a reconnect every feed delivers its snapshot again and every report is sent in full.
    """

    def __init__(self, host: str, port: int, *, container: str) -> None:
        self.host = host
        self.port = port
        self.container = container
        self.connected = False
        self._feeds: list[tuple[str, type[Any], Callable[[Any], None]]] = []
        self._reports: list[_Report] = []

    def feed(self, address: str, kind: type[T], callback: Callable[[T], None]) -> None:
        """Calls `callback(snapshot)` for each snapshot of the feed `address`, decoded as `kind`."""
        self._feeds.append((address, kind, callback))

    def readiness(self) -> ReadinessReporter:
        """What this service says of addresses; its name there is the container's."""
        reporter = ReadinessReporter(self.container)
        self._reports.append(reporter)
        return reporter

    def placements(self) -> PlacementsReporter:
        """Which broker carries which address."""
        reporter = PlacementsReporter(self.container)
        self._reports.append(reporter)
        return reporter

    async def run(self) -> None:
        """Keeps the conversation up until cancelled."""
        await keep_connected(self.host, self.port, self._session, container=self.container)

    async def _session(self, connection: Connection) -> None:
        self.connected = True
        failed: asyncio.Future[None] = connection.loop.create_future()

        def ended(error: LinkClosed) -> None:
            if not failed.done():
                failed.set_exception(error)

        try:
            for address, kind, callback in self._feeds:
                receiver = connection.receiver(address, window=1, name=f"{self.container}-{address}")
                receiver.on_message = _taker(address, kind, callback)
                receiver.on_closed = ended
            for report in self._reports:
                sender = connection.sender(report.target, name=report.name)
                sender.on_closed = ended
                report.attached(sender)
            await failed
        finally:
            self.connected = False
            for report in self._reports:
                report.detached()


def _taker(address: str, kind: type[Any], callback: Callable[[Any], None]) -> Callable[[Delivery], None]:
    decoder = msgspec.json.Decoder(kind)

    def take(delivery: Delivery) -> None:
        try:
            _, body = jsonmessage.decode(delivery)
            snapshot = decoder.decode(body)
        except (AmqpError, msgspec.DecodeError) as error:
            log.get(feed=address).error("a snapshot cannot be read", reason=str(error))
            delivery.reject(DECODE_ERROR, str(error)[:500])
            return
        try:
            callback(snapshot)
        except Exception as error:
            log.get(feed=address).exception("a snapshot could not be taken in")
            delivery.reject(INTERNAL_ERROR, str(error)[:500])
            return
        delivery.accept()

    return take


class _Report:
    """A report: sent in full when attached, then what changed, one message at a time."""

    target: str

    def __init__(self, name: str) -> None:
        self.name = name
        self.on_outcome: Callable[[Outcome], None] | None = None
        """Called with each outcome; a report that was refused is sent again in full, a second later."""
        self._sender: Sender | None = None
        self._full = True
        self._busy = False
        self._retry: asyncio.TimerHandle | None = None

    def attached(self, sender: Sender) -> None:
        self._sender = sender
        self._full = True
        self._busy = False
        sender.on_credit = self._send

    def detached(self) -> None:
        self._sender = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _next(self, full: bool) -> tuple[str, bytes] | None:
        """Subject and body of what is to be sent now, None for nothing."""
        raise NotImplementedError

    def _send(self) -> None:
        sender = self._sender
        if sender is None or self._busy or self._retry is not None or sender.credit <= 0:
            return
        found = self._next(self._full)
        if found is None:
            return
        self._full = False
        self._busy = True
        sender.send(jsonmessage.encode(*found), self._settled)

    def _settled(self, outcome: Outcome) -> None:
        self._busy = False
        if self._sender is None or self._sender.closed:
            return
        if self.on_outcome is not None:
            self.on_outcome(outcome)
        if not outcome.accepted:
            log.get(report=self.target).warning("a report was refused", outcome=repr(outcome))
            self._full = True
            self._retry = self._sender.connection.loop.call_later(RETRY, self._again)
            return
        self._send()

    def _again(self) -> None:
        self._retry = None
        self._send()


class ReadinessReporter(_Report):
    """What a service says of each address. Nothing is sent before the first `replace` (a partial view must not be taken
    for the whole)."""

    target = "readiness"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.state: dict[str, feeds.Readiness] = {}
        self._complete = False
        self._changed: dict[str, feeds.Readiness | None] = {}
        self._scheduled = False

    def replace(self, state: Mapping[str, feeds.Readiness]) -> None:
        """The whole of what is known; only differences are sent."""
        for name in [name for name in self.state if name not in state]:
            self.remove(name)
        for name, value in state.items():
            self.set(name, value)
        self._complete = True
        self._later()

    def set(self, name: str, value: feeds.Readiness) -> None:
        """One address as it is now."""
        if self.state.get(name) != value:
            self.state[name] = value
            self._changed[name] = value
            self._later()

    def remove(self, name: str) -> None:
        """The address is gone, with all that belonged to it."""
        if self.state.pop(name, None) is not None:
            self._changed[name] = None
            self._later()

    def _later(self) -> None:
        # Changes of one turn of the loop leave in one message.
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        self._send()

    def _next(self, full: bool) -> tuple[str, bytes] | None:
        if not self._complete:
            return None
        if full:
            self._changed.clear()
            return "full", msgspec.json.encode(feeds.ReadinessReport(addresses=self.state))
        if not self._changed:
            return None
        changed, self._changed = self._changed, {}
        report = feeds.ReadinessReport(
            addresses={name: value for name, value in changed.items() if value is not None},
            removed=[name for name, value in changed.items() if value is None],
        )
        return "change", msgspec.json.encode(report)


class PlacementsReporter(_Report):
    """Which broker carries which address, always in full. Nothing is sent before the first `replace`."""

    target = "placements"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._state: feeds.Placements | None = None
        self._sent: feeds.Placements | None = None

    def replace(self, state: feeds.Placements) -> None:
        """The placements as they are now. `state` must not be changed afterwards."""
        self._state = state
        self._send()

    def _next(self, full: bool) -> tuple[str, bytes] | None:
        if self._state is None or (not full and self._state == self._sent):
            return None
        self._sent = self._state
        return "full", msgspec.json.encode(self._state)


__all__ = ["ConfigClient", "PlacementsReporter", "ReadinessReporter"]
