"""ReplyBox: the temporary address to which requests of an address space have their replies sent, and who waits there.

The correlation-id of a request is chosen at random, so whoever knows the address cannot answer for another.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.link import Link, Receiver
from enmasse.amqp.messages.sections import Sections
from enmasse.amqp.session import Session
from enmasse.bridge.uplink import LinkUser

WINDOW: Final = 256
"""Replies on their way."""


class ReplyLost(Exception):
    """The connection was lost: no reply to its address can come."""


class ReplyBox(LinkUser):
    """The address is there from the first request on, one for each connection to the router."""

    def __init__(self) -> None:
        self.address = ""
        """Empty: it is not known at the moment."""
        self.late = 0
        """Replies for which no request waits."""
        self.changed = asyncio.Event()
        self.waiting: dict[str, asyncio.Future[bytes]] = {}
        """Correlation-id → its reply."""
        self._link: Receiver | None = None

    def attach(self, session: Session) -> None:
        """Ask for an address. Raises AmqpError."""
        if self._link is not None:
            return
        self.changed.clear()
        self._link = link = session.attach_receiver(None, Source(dynamic=True), Target())
        link.context = self
        link.on_delivery = self._on_delivery
        link.credit_window = WINDOW

    def expect(self) -> tuple[str, asyncio.Future[bytes]]:
        """Return the correlation-id of a new request, and its reply, which may raise ReplyLost."""
        correlation = secrets.token_urlsafe(16)
        found = self.waiting[correlation] = asyncio.get_running_loop().create_future()
        return correlation, found

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        source = link.remote_source
        if link is self._link and source is not None and source.address:
            self.address = source.address
            self.changed.set()

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser."""
        if link is not self._link:
            return
        self._link, self.address = None, ""
        self.changed.set()
        waiting, self.waiting = self.waiting, {}
        for each in waiting.values():
            if not each.done():
                each.set_exception(ReplyLost())

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """Do nothing: replies are settled when they come."""

    def _on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        if not settled:
            link.session.settle(delivery_id)
        try:
            correlation = Sections(payload).properties.correlation_id
        except AmqpError:
            correlation = None
        found = self.waiting.pop(correlation, None) if isinstance(correlation, str) else None
        if found is None or found.done():
            self.late += 1
        else:
            found.set_result(payload)
