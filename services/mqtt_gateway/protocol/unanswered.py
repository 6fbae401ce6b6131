"""SUBSCRIBEs that have no answer yet, of all clients: a message that was read after one, and that it will match, waits
for it. Who publishes as soon as another client has sent SUBSCRIBE expects that it gets the message. No specification
asks for it, so it is limited: nobody waits long, or often.
"""

from __future__ import annotations

from typing import Final, Protocol

from enmasse import log as logs
from enmasse.mqtt.topics import FilterTree, parse_share
from services.mqtt_gateway.protocol.timetable import Timetable

log = logs.get(part="mqtt")

PATIENCE: Final = 0.5
"""Seconds after which a SUBSCRIBE is waited for no more."""
REST: Final = 2.0
"""Seconds after a wait in which the same client does not wait: who subscribes again and again holds up nobody."""
MOST: Final = 1000
"""SUBSCRIBEs; in a storm of them nobody waits for the others."""
MOST_FILTERS: Final = 20
"""Of one SUBSCRIBE; nobody waits for those with more."""


class Waits(Protocol):
    """A client that has published."""

    def subscribed_elsewhere(self) -> None:
        """Look at the message again: a SUBSCRIBE was answered."""


class _Subscribe:
    __slots__ = ("filters", "number", "since", "waiting")

    def __init__(self, number: int, filters: tuple[str, ...], since: float) -> None:
        self.number = number
        self.filters = filters
        self.since = since
        self.waiting: list[Waits] = []


class Unanswered:
    """`due`, `look`: for the timetable."""

    __slots__ = ("_by_client", "_filters", "_last", "_times", "due")

    def __init__(self, times: Timetable) -> None:
        self.due = 0
        self._times = times
        self._last = 0
        self._by_client: dict[object, _Subscribe] = {}  # in their order
        self._filters: FilterTree[_Subscribe] = FilterTree()

    def __len__(self) -> int:
        return len(self._by_client)

    @property
    def last(self) -> int:
        """The number of the SUBSCRIBE that came last."""
        return self._last

    def asked(self, client: object, filters: tuple[str, ...]) -> None:
        """A SUBSCRIBE is on its way; one at a time of a client."""
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
        """It was answered, or its client has gone."""
        old = self._by_client.pop(client, None)
        if old is not None:
            for filter in old.filters:
                self._filters.remove(filter, old)
            for each in old.waiting:
                each.subscribed_elsewhere()

    def waits(self, who: Waits, topic: str, last: int) -> bool:
        """Whether a message to this topic has to wait for a SUBSCRIBE up to number `last`: it is told when."""
        found = [each for each in self._filters.match(topic) if each.number <= last]
        if found:
            found[0].waiting.append(who)
        return bool(found)

    def failed(self, error: Exception) -> None:
        log.error("mqtt.sweep.failed", exc_info=error)

    def look(self, now: float) -> None:
        """They are in their order: so are those that have waited long enough."""
        for client, each in list(self._by_client.items()):
            if each.since + PATIENCE > now:
                self._times.plan(self, each.since + PATIENCE)
                return
            self.answered(client)
