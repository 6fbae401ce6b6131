"""Which wills there are. No AMQP, no store, no clock: times come in, in seconds of one monotonic clock.

A will is in one of four states:

    held      a link has brought it, and is there
    orphaned  its link is lost: a grace time runs in which the client may come again
    delayed   its client is lost, and its will delay runs (MQTT 5, 3.1.3.2.2)
    due       it is to be published; nothing takes that back

A client has at most one will that is not due. What the book says must be stored, its caller stores before it answers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

Link = int
"""Names a link for as long as the process lives."""


class State(Enum):
    """See above."""

    HELD = "held"
    ORPHANED = "orphaned"
    DELAYED = "delayed"
    DUE = "due"


class Will:
    """A will without its message. `id`: unique, also over restarts; `key`: whose it is; `delay`: in seconds."""

    __slots__ = ("at", "delay", "id", "key", "link", "lost_at", "qos", "size", "state", "taken_from", "to")

    def __init__(self, id: str, key: str, to: str, qos: int, delay: float, size: int) -> None:
        self.id, self.key, self.to, self.qos, self.delay, self.size = id, key, to, qos, delay, size
        self.state = State.HELD
        self.link: Link | None = None
        self.at: float | None = None
        """When the grace time or the delay ends; None: no such time runs."""
        self.lost_at: float | None = None
        """When its link was lost, if it was."""
        self.taken_from: frozenset[Link] = frozenset()
        """Links that held the key's will before: what they still say of it is about one that is gone."""


class Turned(NamedTuple):
    """Wills whose state has changed, which must be stored: lost clients' that wait for their delay, and those due."""

    delayed: list[Will]
    due: list[Will]


class WillBook:
    """The wills of all clients. `grace`: seconds for which a client may be away whose link was lost.

    The grace time runs only while clients can reach the service: `resume` says when they can, `suspend` when not.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.bytes = 0
        """Of all messages."""
        self._wills: dict[str, Will] = {}
        self._current: dict[str, Will] = {}
        """Of each key, the one that is not due."""
        self._links: dict[Link, set[str]] = {}
        """Keys of each link's wills."""
        self._orphans: dict[str, Will] = {}
        self._times: list[tuple[float, str]] = []
        """A heap of times and the ids of wills; a will that has another time by now is passed over."""
        self._reachable = False

    def __len__(self) -> int:
        return len(self._wills)

    def __iter__(self) -> Iterator[Will]:
        return iter(self._wills.values())

    def get(self, id: str) -> Will | None:
        return self._wills.get(id)

    def current(self, key: str) -> Will | None:
        """The client's will that is not due."""
        return self._current.get(key)

    def held_by(self, link: Link) -> int:
        """How many wills a link holds."""
        return len(self._links.get(link, ()))

    # what links say

    def put(self, will: Will, link: Link) -> Will | None:
        """The client has this will now; its link is `link`. Gives the one it replaces, which is gone."""
        replaced = self._current.get(will.key)
        if replaced is not None:
            if replaced.link is not None and replaced.link != link:
                will.taken_from = replaced.taken_from | {replaced.link}
            else:
                will.taken_from = replaced.taken_from
            will.taken_from -= {link}
            self.remove(replaced)
        self._add(will)
        self._current[will.key] = will
        will.link = link
        self._links.setdefault(link, set()).add(will.key)
        return replaced

    def clear(self, key: str, link: Link) -> Will | None:
        """The client has ended well, or has none any more. Gives its will, which is gone; None: it had none."""
        will = self._said_of(key, link)
        if will is not None:
            self.remove(will)
        return will

    def lose(self, key: str, link: Link, now: float) -> Turned:
        """The client is lost, a link says."""
        will = self._said_of(key, link)
        turned = Turned([], [])
        if will is not None and will.state is not State.DELAYED:
            self._turn(will, now, now, turned)
        return turned

    def session_ended(self, key: str, link: Link, now: float) -> Turned:
        """The client's session has ended, because another begins: a will that waits for its delay waits no longer (MQTT
        5, 3.1.3.2.2), and one whose connection was taken over is due. An orphan's client has come again."""
        will = self._said_of(key, link)
        turned = Turned([], [])
        if will is not None and will.state is not State.ORPHANED:
            self._turn(will, float("-inf"), now, turned)
        return turned

    def detached(self, link: Link) -> list[Will]:
        """The link ended well. Gives its wills, which are gone."""
        ended = [self._current[key] for key in self._links.pop(link, ())]
        for will in ended:
            self.remove(will)
        return ended

    def failed(self, link: Link, now: float) -> Turned:
        """The link's client gave an error when it detached: the clients of its wills are lost."""
        turned = Turned([], [])
        for key in self._links.pop(link, ()):
            self._turn(self._current[key], now, now, turned)
        return turned

    def lost(self, link: Link, now: float) -> None:
        """The link is lost, and with it perhaps its clients: their grace time begins."""
        for key in self._links.pop(link, ()):
            self._orphan(self._current[key], now)

    def _said_of(self, key: str, link: Link) -> Will | None:
        will = self._current.get(key)
        return None if will is None or link in will.taken_from else will

    # time

    def suspend(self) -> None:
        """Clients cannot reach the service: no grace time runs."""
        self._reachable = False
        for will in self._orphans.values():
            will.at = None

    def resume(self, now: float) -> None:
        """Clients can reach the service: the grace time of every orphan begins."""
        self._reachable = True
        for will in self._orphans.values():
            will.lost_at = now
            self._schedule(will, now + self.grace)

    def next_time(self) -> float | None:
        """When `pass_time` has something to do next."""
        times = self._times
        while times:
            at, id = times[0]
            will = self._wills.get(id)
            if will is not None and will.at == at:
                return at
            heapq.heappop(times)
        return None

    def pass_time(self, now: float, most: int) -> Turned:
        """Wills whose grace time or delay is over, `most` at a time."""
        turned = Turned([], [])
        for _ in range(most):
            at = self.next_time()
            if at is None or at > now:
                break
            _, id = heapq.heappop(self._times)
            will = self._wills[id]
            will.at = None
            self._turn(will, will.lost_at if will.lost_at is not None else now, now, turned)
        return turned

    # what was stored, and what is over

    def restore(self, will: Will, due_in: float | None, now: float) -> None:
        """A will as it was stored; `due_in` seconds until it is due, None if its client was not known to be lost."""
        self._add(will)
        if due_in is not None and due_in <= 0:
            will.state = State.DUE
            return
        if (other := self._current.get(will.key)) is not None:  # a put removes it in the same write: this cannot be
            self.remove(other)
        self._current[will.key] = will
        if due_in is None:
            self._orphan(will, now)
        else:
            will.state = State.DELAYED
            self._schedule(will, now + due_in)

    def remove(self, will: Will) -> None:
        """It was replaced, cleared, published or dropped."""
        del self._wills[will.id]
        self.bytes -= will.size
        self._let_go(will)
        if self._current.get(will.key) is will:
            del self._current[will.key]

    def _add(self, will: Will) -> None:
        self._wills[will.id] = will
        self.bytes += will.size

    def _let_go(self, will: Will) -> None:
        """No link holds it, and no time runs."""
        self._orphans.pop(will.id, None)
        will.at = None
        link, will.link = will.link, None
        if link is not None and (keys := self._links.get(link)) is not None:
            keys.discard(will.key)

    def _orphan(self, will: Will, now: float) -> None:
        self._let_go(will)
        will.state = State.ORPHANED
        will.lost_at = now
        self._orphans[will.id] = will
        if self._reachable:
            self._schedule(will, now + self.grace)

    def _turn(self, will: Will, lost_at: float, now: float, turned: Turned) -> None:
        """The client is lost since `lost_at`: its will is due, or waits for its delay."""
        waited = will.state is State.DELAYED
        self._let_go(will)
        will.lost_at = lost_at
        if not waited and lost_at + will.delay > now:
            will.state = State.DELAYED
            self._schedule(will, lost_at + will.delay)
            turned.delayed.append(will)
        else:
            will.state = State.DUE
            del self._current[will.key]
            turned.due.append(will)

    def _schedule(self, will: Will, at: float) -> None:
        will.at = at
        heapq.heappush(self._times, (at, will.id))
