"""SUBSCRIBEs that have no answer yet, of all clients: a message that was read after one, and that it will match, waits
for it. A client that publishes as soon as another one has sent SUBSCRIBE expects that it gets the message. No
specification asks for it, so it is limited: no client waits long, or often.
"""

from __future__ import annotations

from typing import Final, Protocol

from enmasse.logs import log as logs
from enmasse.mqtt.topics import RESERVED, parse_share
from enmasse.name_tries import PatternTrie
from services.mqtt_gateway.protocol.timetable import Timetable

log = logs.get(part="mqtt")

PATIENCE: Final = 0.5
"""Seconds that messages wait for a SUBSCRIBE at most."""
REST: Final = 2.0
"""Seconds after a wait in which the same client does not wait: repeated SUBSCRIBEs do not hold it up."""
MOST: Final = 1000
"""SUBSCRIBEs that are waited for; with more, messages do not wait."""
MOST_FILTERS: Final = 20
"""Filters of a SUBSCRIBE that is waited for."""


class Waiter(Protocol):
    """A connection with a message that waits for the SUBSCRIBE of another client."""

    def subscribed_elsewhere(self) -> None:
        """Process the message again: the SUBSCRIBE is answered. Does not raise."""


class _Subscribe:
    __slots__ = ("filters", "number", "since", "waiting")

    def __init__(self, number: int, filters: tuple[str, ...], since: float) -> None:
        self.number = number
        self.filters = filters
        self.since = since
        self.waiting: list[Waiter] = []


class Unanswered:
    """`due`, `look`: for the timetable."""

    __slots__ = ("_by_client", "_filters", "_last", "_times", "due")

    def __init__(self, times: Timetable) -> None:
        self.due = 0
        self._times = times
        self._last = 0
        self._by_client: dict[object, _Subscribe] = {}  # in their order
        self._filters: PatternTrie[_Subscribe] = PatternTrie(reserved=RESERVED)

    def __len__(self) -> int:
        return len(self._by_client)

    @property
    def last(self) -> int:
        """The number of the SUBSCRIBE that came last."""
        return self._last

    def asked(self, client: object, filters: tuple[str, ...]) -> None:
        """Record a SUBSCRIBE that is not answered yet; a client has one at a time."""
        if len(self._by_client) >= MOST or len(filters) > MOST_FILTERS:
            return
        self._last += 1
        shares = [parse_share(each) for each in filters]
        plain = tuple(each if share is None else share.filter for each, share in zip(filters, shares, strict=True))
        new = self._by_client[client] = _Subscribe(self._last, plain, self._times.now)
        for each in plain:
            self._filters.add(each, new)
        self._times.plan(self, new.since + PATIENCE)

    def answered(self, client: object) -> None:
        """Release the messages that wait for a SUBSCRIBE: it was answered, or its client is gone."""
        old = self._by_client.pop(client, None)
        if old is not None:
            for filter in old.filters:
                self._filters.remove(filter, old)
            for each in old.waiting:
                each.subscribed_elsewhere()

    def waits(self, who: Waiter, topic: str, last: int) -> bool:
        """Return True if a message to this topic has to wait for a SUBSCRIBE up to number `last`; `who` is notified."""
        found = [each for each in self._filters.match(topic) if each.number <= last]
        if found:
            found[0].waiting.append(who)
        return bool(found)

    def failed(self, error: Exception) -> None:
        """Log the error: the sweep continues at the next step."""
        log.error("mqtt.sweep.failed", exc_info=error)

    def look(self, now: float) -> None:
        """Release messages whose SUBSCRIBE has been waited for long enough."""
        for client, each in list(self._by_client.items()):
            if each.since + PATIENCE > now:
                self._times.plan(self, each.since + PATIENCE)
                return
            self.answered(client)
