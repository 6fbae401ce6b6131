"""Looking at a queue without taking anything out (distribution-mode copy)."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from enmasse.amqp.codec.errors import AmqpError
from services.broker.core.messages.leading_sections import outgoing
from services.broker.core.messages.stored_message import DURABLE, PRIORITY_SHIFT, StoredMessage
from services.broker.core.queues.backlog import Slice
from services.broker.core.queues.consumer import Outlet
from services.broker.core.queues.queue import Queue
from services.broker.core.queues.rotation import TURN
from services.broker.selector import Selector


class Browser:
    """Sends copies of what waits, in order. It works on a list taken when it starts, of references and slices of the
    backlog, and after it on another list, of what has come since. With no message left it answers a drain, by which a
    client knows the end."""

    def __init__(self, queue: Queue, outlet: Outlet, selector: Selector | None) -> None:
        self.queue = queue
        self.outlet = outlet
        self.selector = selector
        self._parts: deque[list[StoredMessage] | Slice] = deque()  # what is still to come of the list
        self._slice: Slice | None = None  # the one that `_some` are of
        self._some: list[StoredMessage] = []
        self._at = 0
        self._seen = 0  # of a slice, messages up to this id have been looked at
        self._known = 0  # the list has what came after this id
        self._last = 0  # … up to this one
        self._standing = False  # until the next message can be read

    def closed(self, condition: str, description: str) -> None:
        """Detach the link with this error: the queue was deleted."""

    def again(self) -> None:
        """Call `look` in a later turn: there was more to send than fits one."""

    def look(self) -> None:
        """Send copies as far as credit goes; answer a drain at the end of the list."""
        if self._standing:
            return
        looked, spent = 0, self.queue.broker.share()
        if self._slice is not None and self.outlet.credit > 0:  # it may have changed since the last turn
            self._enter(self._slice)
        while self.outlet.credit > 0:
            if self._at >= len(self._some) and not self._next():
                break
            if looked >= TURN or (looked and spent()):
                self.again()
                return
            looked += 1
            message = self._some[self._at]
            if message.refs > 0:
                try:
                    self._show(message)
                except OSError as error:  # a drain is not answered: the end is not known
                    self._standing = True
                    self.queue.broker.stall(self, self.queue, message, error)
                    return
            self._at += 1
            self._seen = message.id
        if self.outlet.drain:
            self.outlet.drained()

    def resume(self) -> None:
        """See `Standing`."""
        self._standing = False
        self.look()

    def _next(self) -> bool:
        """Move to the next part of the list that has messages. Return False after the last part."""
        self._slice, self._some, self._at = None, [], 0
        while not self._some and (self._parts or self._list()):
            part = self._parts.popleft()
            self._seen = self._known
            if isinstance(part, Slice):
                self._enter(part)
            else:
                self._some = part
        return bool(self._some)

    def _enter(self, some: Slice) -> None:
        self._slice = some
        self._some = [message for message in some.messages() if message.id > self._seen]
        self._at = 0

    def _list(self) -> bool:
        """List the messages that have come since the last listing. Return False if no message has come."""
        self._known = self._last
        for part in self.queue.parts():
            if isinstance(part, Slice):
                highest = part.highest
                if highest > self._known:
                    self._parts.append(part)
            else:
                new = [message for message in part if message.id > self._known]
                highest = max((message.id for message in new), default=0)
                if new:
                    self._parts.append(new)
            self._last = max(self._last, highest)
        return bool(self._parts)

    def _show(self, message: StoredMessage) -> None:
        broker = self.queue.broker
        payload = broker.payloads.load(message)
        if payload is None:
            return
        if self.selector is not None and not self.selector.matches(
            self.queue.dispatcher.selection.lookup(payload, message)
        ):
            return
        ttl = max(0, message.expires - broker.now) if message.expires else -1
        attempts = self.queue.attempts.get(message.id, 0)
        durable = bool(message.flags & DURABLE)
        with suppress(AmqpError):  # a message that cannot be decoded is shown unchanged
            payload = outgoing(payload, durable, message.flags >> PRIORITY_SHIFT, ttl, attempts)
        self.outlet.send(payload, None)
