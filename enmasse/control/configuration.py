"""A service's side of the configuration service (docs/contracts.md, "configserv"): feeds in, reports out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

import msgspec

from enmasse import log
from enmasse.control import jsonmessage
from enmasse.control.connection import Connection
from enmasse.control.errors import DECODE_ERROR, AmqpError, LinkClosed
from enmasse.control.link import Delivery, Receiver, Sender

COALESCE = 0.02
"""Seconds in which changes gather before they are reported."""

T = TypeVar("T")

Report = dict[str, Any]
"""Readiness of one address: {"ready", "failed", "message", "components", "messages", "consumers"}."""


@overload
def follow(connection: Connection, feed: str, taken: Callable[[dict[str, Any]], None]) -> Receiver: ...
@overload
def follow(connection: Connection, feed: str, taken: Callable[[T], None], kind: type[T]) -> Receiver: ...
def follow(connection: Connection, feed: str, taken: Callable[[Any], None], kind: type[Any] = dict) -> Receiver:
    """Subscribes to a feed; `taken(body)` gets each snapshot, one at a time, the newest when more have gathered.

    `kind` is the body's type: a JSON object as it is, or one of enmasse.model.feeds. A snapshot that cannot be read, or
    at which `taken` raises ValueError, is rejected and changes nothing.
    """
    logger = log.get(feed=feed, peer=connection.peer)

    def on_message(delivery: Delivery) -> None:
        try:
            taken(decode_body(delivery, kind))
        except (AmqpError, ValueError) as error:
            logger.error("a snapshot was refused", reason=str(error))
            delivery.reject(DECODE_ERROR, str(error)[:200])
        else:
            delivery.accept()

    receiver = connection.receiver(feed, window=1)
    receiver.on_message = on_message
    return receiver


def decode_body(delivery: Delivery, kind: type[T]) -> T:
    """The JSON object in a message of the configuration service. Raises AmqpError, ValueError."""
    return msgspec.json.decode(jsonmessage.body(delivery), type=kind)


def encode_message(subject: str, body: Any) -> bytes:
    """A message of the configuration service: JSON in an amqp-value string."""
    return jsonmessage.encode(subject, msgspec.json.encode(body))


class ReadinessReporter:
    """Reports readiness: everything when a connection begins, then what has changed, gathered for a moment.

    `reports(names)` gives the report of each name that is reported at all; None stands for all names.
    """

    def __init__(self, reporter: str, reports: Callable[[Iterable[str] | None], Mapping[str, Report]]) -> None:
        self.reporter = reporter
        self._reports = reports
        self._changed: set[str] = set()
        self._wake = asyncio.Event()

    def changed(self, names: Iterable[str]) -> None:
        """These may have to be reported anew."""
        self._changed.update(names)
        if self._changed:
            self._wake.set()

    async def run(self, connection: Connection) -> None:
        """Reports over this connection until it is lost. Raises LinkClosed, ConnectionLost."""
        sender = connection.sender("readiness", name=self.reporter)
        await sender.opened()
        self._changed.clear()
        await _deliver(sender, "full", {"addresses": self._reports(None), "removed": []})
        while True:
            await self._wake.wait()
            await asyncio.sleep(COALESCE)
            self._wake.clear()
            names, self._changed = self._changed, set()
            if names:
                found = self._reports(names)
                await _deliver(sender, "change", {"addresses": found, "removed": [n for n in names if n not in found]})


class FullReporter:
    """Reports something whole (`placements`): when a connection begins and whenever it has changed.

    `report()` gives the body, or None while there is nothing complete to tell; `taken()` is called when what the last
    call of `report` gave has been accepted.
    """

    def __init__(self, target: str, report: Callable[[], Any | None], taken: Callable[[], None]) -> None:
        self.target = target
        self._report = report
        self._taken = taken
        self._wake = asyncio.Event()

    def changed(self) -> None:
        """There may be something new to report."""
        self._wake.set()

    async def run(self, connection: Connection) -> None:
        """Reports over this connection until it is lost. Raises LinkClosed, ConnectionLost."""
        sender = connection.sender(self.target)
        await sender.opened()
        self._wake.set()
        while True:
            await self._wake.wait()
            await asyncio.sleep(COALESCE)
            self._wake.clear()
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
            else:
                self._taken()


async def _deliver(sender: Sender, subject: str, body: Any) -> None:
    data = encode_message(subject, body)
    while True:
        outcome = await sender.deliver(data)
        if outcome.accepted:
            return
        if outcome.condition:
            raise LinkClosed(outcome.condition, outcome.description)
        await asyncio.sleep(0.1)  # released: not now, but later
