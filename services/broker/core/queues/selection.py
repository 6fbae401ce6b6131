"""Which waiting message is for which consumer, if selectors, priorities or exclusions have to be looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import islice
from operator import attrgetter

from services.broker.core.messages.payloads import Payloads
from services.broker.core.messages.selector_values import property_lookup
from services.broker.core.messages.stored_message import StoredMessage
from services.broker.core.queues.consumer import Consumer
from services.broker.core.queues.contents import Contents
from services.broker.core.queues.order import NORMAL
from services.broker.core.turn_shares import Spent
from services.broker.selector import Lookup

_by_id = attrgetter("id")


class UndecidedError(Exception):
    """Whether a message is for a consumer cannot be known now: it cannot be read."""

    def __init__(self, message: StoredMessage, error: OSError) -> None:
        super().__init__(str(error))
        self.message = message
        self.error = error


class Selection:
    """Selection of messages for the consumers of one queue."""

    __slots__ = ("_attempts", "_exclusions", "_expiries", "_order", "_payloads", "_to_wall")

    def __init__(self, contents: Contents, payloads: Payloads, to_wall: Callable[[int], int]) -> None:
        """`to_wall`: from the broker's clock to ms since 1970."""
        self._order = contents.order
        self._payloads = payloads
        self._attempts = contents.attempts
        self._exclusions = contents.exclusions
        self._expiries = contents.expiries
        self._to_wall = to_wall

    def lookup(self, payload: bytes, message: StoredMessage) -> Lookup:
        """Return the lookup by which selectors see a message of this queue."""
        return property_lookup(payload, message, self._to_wall, self._attempts.get(message.id, 0))

    def suits(self, consumer: Consumer, message: StoredMessage) -> bool:
        """Return whether the message is for this consumer. Raises UndecidedError."""
        if self._exclusions and self._exclusions.excludes(message.id, consumer):
            return False
        if consumer.selector is None:
            return True
        try:
            payload = message.payload if message.payload is not None else self._payloads.load(message)
        except OSError as error:
            raise UndecidedError(message, error) from error
        if payload is None:
            return True  # gone for good: the queue deals with it when it sends it
        return consumer.selector.matches(self.lookup(payload, message))

    def has_taker(self, consumers: list[Consumer], message: StoredMessage, spent: Spent) -> bool:
        """Return whether one of these consumers may have the message, True if that takes too long. The link of a
        router stands for consumers only while it has credit, or messages that are not settled."""
        for consumer in consumers:
            if consumer.relay and consumer.outlet.credit <= 0 and not consumer.unsettled:
                continue
            try:
                if spent() or self.suits(consumer, message):
                    return True
            except UndecidedError:
                return True  # the queue stands still until that is known, and looks again then
        return False

    def search(self, consumer: Consumer, limit: int, now: int, spent: Spent) -> tuple[StoredMessage | None, int]:
        """The first waiting message that is for this consumer or has expired, taken out, and how many were looked at.
        None: no message is, or none of `limit` messages, or none before the share was `spent`. Raises
        UndecidedError."""
        looked = 1
        order = self._order
        scanned = consumer.scanned
        levels = ((NORMAL, order.ready),) if order.levels is None else reversed(tuple(enumerate(order.levels)))
        for priority, level in levels:
            seen = scanned[priority]
            start = len(level)
            if level and level[-1].id > seen:
                start = bisect_right(level, seen, key=_by_id) if seen else 0
            at = start
            for message in islice(level, start, None):
                looked += 1
                if message.expires and self._expiries.has_expired(message, now):
                    del level[at]
                    return message, looked
                if self.suits(consumer, message):
                    if at:
                        scanned[priority] = level[at - 1].id
                    del level[at]
                    return message, looked
                if looked > limit or spent():
                    scanned[priority] = message.id
                    return None, looked
                at += 1
            if level:
                scanned[priority] = max(seen, level[-1].id)
            if level is order.ready and order.backlog is not None:
                order.advance()
                if looked > limit or spent():
                    return None, looked
                found, more = self.search(consumer, limit - looked, now, spent)
                return found, looked + more
        return None, looked
