"""More links of an auto-link, for as long as they are needed.

A link carries one delivery at a time. So a large message that is still on its way in goes to a broker by a link of its
own, and if one from a broker is taken slowly, the queue's other consumers are served by another link meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from services.router.routing.links import InLink, OutLink

if TYPE_CHECKING:
    from services.router.routing.autolinks import LiveAutoLink

MOST = 8
"""Links beside the one that an auto-link always has."""
MOST_OF_CONNECTION = 128
IDLE = 5.0
"""Seconds after which one that has nothing to do is closed."""


class Extra:
    """One more link of `live`; a link's record knows it as `auto`."""

    __slots__ = ("attached_once", "idle_since", "live", "record")

    def __init__(self, live: LiveAutoLink, record: InLink | OutLink) -> None:
        self.live = live
        self.record = record
        self.attached_once = False
        self.idle_since: float | None = None
        record.auto = self
        if isinstance(record, OutLink):
            record.extra = True
        live.extras.append(self)
        live.connection.extras[self] = None

    def attached(self) -> None:
        """The peer answered; a null terminus means that a detach follows."""
        record = self.record
        terminus = record.link.remote_source if isinstance(record, InLink) else record.link.remote_target
        if terminus is None or not terminus.address:
            return
        self.attached_once = True
        if isinstance(record, InLink):
            assert record.address is not None
            record.address.add_in(record)
        else:
            record.know_limit()
            record.flow()

    def detached(self, error: Any) -> None:
        """It is gone. A peer that wants no second link is not asked again on this connection."""
        live = self.live
        if self in live.extras:
            live.extras.remove(self)
            live.connection.extras.pop(self, None)
            live.single = live.single or not self.attached_once
            record = self.record
            if isinstance(record, InLink) and record.address is not None:
                for other in record.address.feeds:
                    other.resize()

    def widen(self, stuck: set[Any]) -> None:
        self.live.widen(stuck)

    def look(self, now: float, stuck: set[Any]) -> None:
        """Close it when it is not needed any more. To be called once a second."""
        record = self.record
        if isinstance(record, OutLink):
            needed = record.busy or record.unsettled
        else:
            needed = self.live.record in stuck or record in stuck
        if needed or not self.attached_once:
            self.idle_since = None
            return
        if self.idle_since is None:
            self.idle_since = now
        if now - self.idle_since < IDLE:
            return
        if isinstance(record, InLink):
            if record.zero_since is None:
                record.close_gate()
            if record.link.credit or record.unsettled:
                return  # what comes until the broker has answered is delivered
        self.close()

    def close(self) -> None:
        """Nothing is on it any more, or nothing of it is wanted."""
        self.detached(None)
        self.live.connection.router.detach(self.record)
