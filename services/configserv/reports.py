"""Reports in: placements, readiness, force. A report that cannot be read is rejected with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from enmasse.control import (
    ControlConnection,
    ControlError,
    ControlLink,
    ControlReceiver,
    ControlSender,
    Delivery,
    LinkClosed,
    jsonmessage,
)
from enmasse.control.errors import DECODE_ERROR, INVALID_FIELD, NOT_ALLOWED
from enmasse.logs import log
from enmasse.storage.decoding import decode

WINDOW = 4
T = TypeVar("T")


class Refused(Exception):
    """Raised for a report that is valid and must not be accepted."""


class LinkPair:
    """The two links of a connection with one address: what the peer sends comes over one, answers leave over the
    other."""

    def __init__(self) -> None:
        self.answers: ControlSender | None = None

    def attach(
        self,
        link: ControlLink,
        address: str,
        *,
        window: int,
        take: Callable[[Delivery], None],
        pump: Callable[[], None],
        gone: Callable[[ControlConnection], None],
    ) -> None:
        """Serve a link that has been admitted. `take` gets each delivery, of which `window` are not settled at a time;
        `pump` is called when answers have credit, `gone` when one of the links has ended."""
        if isinstance(link, ControlSender):
            if self.answers is not None:
                link.refuse(NOT_ALLOWED, f"{address} has one link of a connection in each direction")
                return
            self.answers = link
            link.on_credit = pump
        elif isinstance(link, ControlReceiver):
            link.on_message = take
            link.window, link.counts_settled = window, True
        link.on_closed = lambda _: gone(link.connection)
        link.accept()
        if isinstance(link, ControlReceiver):
            link.grant(window)


def read_or_reject(delivery: Delivery, kind: type[T]) -> T | None:
    """Return the body of a delivery. If it has another form, reject the delivery and return None."""
    try:
        return decode(jsonmessage.body(delivery), kind)
    except (ControlError, ValueError) as error:
        log.get(peer=delivery.link.connection.peer).warning("configserv.report.rejected", reason=str(error)[:500])
        delivery.reject(DECODE_ERROR, str(error)[:500])
        return None


class ReportTarget:
    """Links to one target; `receive(link, subject, body)` gets each decoded report and may raise Refused. If it returns
    a future, the report is accepted when that is done.

    `gone(link)`: it was closed.
    """

    def __init__(
        self,
        kind: type[T],
        subjects: tuple[str, ...],
        receive: Callable[[ControlReceiver, str, T], asyncio.Future[None] | None],
        gone: Callable[[ControlReceiver], object] | None = None,
    ) -> None:
        self.links: set[ControlReceiver] = set()
        self._gone = gone

        def on_message(delivery: Delivery) -> None:
            try:
                subject, body = jsonmessage.decode(delivery)
                if subjects and subject not in subjects:
                    raise ControlError(
                        INVALID_FIELD, f"the subject must be {' or '.join(subjects)}, not {subject!r}"[:200]
                    )
                report = decode(body, kind)
            except (ControlError, ValueError) as error:
                condition = error.condition if isinstance(error, ControlError) else DECODE_ERROR
                reason = error.description if isinstance(error, ControlError) else str(error)
                log.get(peer=delivery.link.connection.peer, link=delivery.link.name).warning(
                    "configserv.report.rejected", reason=reason
                )
                delivery.reject(condition, reason[:500])
                return
            try:
                saved = receive(delivery.link, subject or "", report)
            except Refused as refused:
                delivery.reject(NOT_ALLOWED, str(refused))
                return
            if saved is None:
                delivery.accept()
            else:
                saved.add_done_callback(lambda _: delivery.accept())

        self._on_message = on_message

    def attach(self, link: ControlReceiver) -> None:
        """Accept a link and grant credit for its reports."""
        self.links.add(link)
        link.on_message = self._on_message
        link.on_closed = lambda error: self._closed(link, error)
        link.window = WINDOW
        link.accept()
        link.grant(WINDOW)

    def _closed(self, link: ControlReceiver, error: LinkClosed) -> None:
        self.links.discard(link)
        if self._gone is not None:
            self._gone(link)
