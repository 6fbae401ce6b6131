"""The wills and their states. No AMQP, no store, no clock: times are passed in, in seconds of one monotonic clock.

A will is in one of four states:

    held      the link that brought it is attached
    orphaned  its link is lost, or its client is to connect elsewhere: a grace time runs in which it may do so
    delayed   its client is lost, and its will delay runs (MQTT 5, 3.1.3.2.2)
    due       it will be published; this cannot be undone

A client has at most one will that is not due. The caller stores the changes that the book returns before it answers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from enmasse.identity.authors import NOT_STATED, Author
from enmasse.identity.shared_room import SharedRoom

Link = int
"""Identifies a link during the life of the process."""

REMEMBERED: Final = 10_000
"""Number of clients without a will whose newest epoch is remembered."""


class State(Enum):
    """State of a will (see the module)."""

    HELD = "held"
    ORPHANED = "orphaned"
    DELAYED = "delayed"
    DUE = "due"


class Will:
    """A will without its message. `id`: unique, also over restarts; `key`: its client; `delay`: in seconds; `author`:
    user of the client; `retain`: the message is to be retained; `epoch`: of the session of an MQTT client, which grows
    with each of its connections, at whichever gateway; 0: not known. `topic`: of an MQTT client,
    if it differs from `to`; else empty."""

    __slots__ = (
        "at",
        "author",
        "delay",
        "epoch",
        "id",
        "key",
        "link",
        "lost_at",
        "qos",
        "retain",
        "size",
        "state",
        "superseded",
        "taken_from",
        "to",
        "topic",
    )

    def __init__(
        self,
        id: str,
        key: str,
        to: str,
        qos: int,
        delay: float,
        size: int,
        author: Author = NOT_STATED,
        *,
        retain: bool = False,
        epoch: int = 0,
        topic: str = "",
    ) -> None:
        self.id, self.key, self.to, self.qos, self.delay, self.size = id, key, to, qos, delay, size
        self.author = author
        self.retain = retain
        self.epoch = epoch
        self.topic = topic
        self.superseded = False
        """True if the client is back and may have published since: the will is published, but not retained."""
        self.state = State.HELD
        self.link: Link | None = None
        self.at: float | None = None
        """End of the grace time or delay; None if neither runs."""
        self.lost_at: float | None = None
        """Time of the loss of its link; None if it was not lost."""
        self.taken_from: frozenset[Link] = frozenset()
        """Links that held earlier wills of the key: their later requests concern wills that no longer exist."""


class Turned(NamedTuple):
    """Wills whose changed state must be stored: those of lost clients that wait for their delay, and due ones."""

    delayed: list[Will]
    due: list[Will]


class WillBook:
    """The wills of all clients. `grace`: seconds in which a client whose link was lost may reconnect.

    The grace time runs only while clients can reach the service: from `resume` to `suspend`.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.number = SharedRoom()
        """Number of wills."""
        self.bytes = SharedRoom()
        """Bytes of their messages."""
        self._wills: dict[str, Will] = {}
        self._current: dict[str, Will] = {}
        """Key → its will that is not due."""
        self._links: dict[Link, set[str]] = {}
        """Link → keys of its wills."""
        self._due: dict[str, list[Will]] = {}
        """Key → its wills that are due."""
        self.on_removed: Callable[[Will], None] | None = None
        """Called with each will that is removed."""
        self._epochs: dict[str, int] = {}
        """Key without a will → the newest epoch, of the last REMEMBERED."""
        self._orphans: dict[str, Will] = {}
        self._times: list[tuple[float, str]] = []
        """Heap of times and ids of wills; entries with an outdated time are skipped."""
        self._reachable = False

    def __len__(self) -> int:
        return len(self._wills)

    def __iter__(self) -> Iterator[Will]:
        return iter(self._wills.values())

    def get(self, id: str) -> Will | None:
        """Return the will with this id, or None."""
        return self._wills.get(id)

    def current(self, key: str) -> Will | None:
        """Return the client's will that is not due; None if it has none."""
        return self._current.get(key)

    def to_be_retained(self, key: str) -> list[Will]:
        """Return the client's wills that are due and will be retained."""
        return [will for will in self._due.get(key, ()) if will.retain and not will.superseded]

    # requests and ends of links

    def is_late(self, key: str, epoch: int) -> bool:
        """Return True if a will of this epoch comes late: a later connection of its client has stated something."""
        current = self._current.get(key)
        newest = self._epochs.get(key, 0) if current is None else current.epoch
        return 0 < epoch < newest

    def put(self, will: Will, link: Link) -> Will | None:
        """Set the client's will, held by `link`. Return the will that it replaces."""
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
        self._epochs.pop(will.key, None)
        will.link = link
        self._links.setdefault(link, set()).add(will.key)
        return replaced

    def clear(self, key: str, link: Link, epoch: int = 0) -> Will | None:
        """Remove the will of a client that disconnected normally or withdrew it. Return it; None if it had none."""
        will = self._said_of(key, link, epoch)
        if will is not None:
            self.remove(will)
        if key not in self._current:
            self._remember(key, epoch)
        return will

    def lose(self, key: str, link: Link, now: float, delay: float | None = None, epoch: int = 0) -> Turned:
        """Record that a link reports the client as lost. `delay`: takes the place of the will's own."""
        will = self._said_of(key, link, epoch)
        turned = Turned([], [])
        if will is not None and will.state is not State.DELAYED:
            if delay is not None:
                will.delay = delay
            self._turn(will, now, now, turned)
        return turned

    def moved(self, key: str, link: Link, now: float, epoch: int = 0) -> None:
        """Record that the client was closed for it to connect elsewhere: its grace time starts, as if the link that
        holds its will were lost."""
        will = self._said_of(key, link, epoch)
        if will is not None and will.state is State.HELD:
            self._orphan(will, now)

    def session_ended(self, key: str, link: Link, now: float, epoch: int = 0) -> Turned:
        """Record that the client's session ended because another begins: a delayed will becomes due at once (MQTT 5,
        3.1.3.2.2), and so does one whose connection was taken over. An orphaned will stays: its client is back."""
        will = self._said_of(key, link, epoch)
        turned = Turned([], [])
        if will is not None and will.state is not State.ORPHANED:
            self._turn(will, float("-inf"), now, turned)
        return turned

    def session_deleted(self, key: str, now: float, epoch: int = 0) -> Turned:
        """Record that the session of a client that is away was deleted: its will is due at once. That of a client that
        is connected stays, and that of a later connection: it is of another session."""
        will = self._current.get(key)
        turned = Turned([], [])
        if will is not None and will.state is not State.HELD and not self.is_late(key, epoch):
            self._turn(will, float("-inf"), now, turned)
        return turned

    def detached(self, link: Link) -> list[Will]:
        """Record a normal detach of the link. Return its wills, which are removed."""
        ended = [self._current[key] for key in self._links.pop(link, ())]
        for will in ended:
            self.remove(will)
        return ended

    def failed(self, link: Link, now: float) -> Turned:
        """Record a detach with an error: the clients of the link's wills are lost."""
        turned = Turned([], [])
        for key in self._links.pop(link, ()):
            self._turn(self._current[key], now, now, turned)
        return turned

    def lost(self, link: Link, now: float) -> None:
        """Record the loss of the link, and perhaps of its clients: their grace time starts."""
        for key in self._links.pop(link, ()):
            self._orphan(self._current[key], now)

    def _said_of(self, key: str, link: Link, epoch: int) -> Will | None:
        """Return the will that a request concerns. Epochs decide, where both are known: a gateway may have a new link,
        and a client may be back at the gateway that it has left."""
        will = self._current.get(key)
        if will is None:
            return None
        late = epoch < will.epoch if epoch and will.epoch else link in will.taken_from
        return None if late else will

    def _remember(self, key: str, epoch: int) -> None:
        """Remember the epoch of a client that has no will now."""
        if epoch > self._epochs.get(key, 0):
            self._epochs.pop(key, None)
            self._epochs[key] = epoch
            if len(self._epochs) > REMEMBERED:
                del self._epochs[next(iter(self._epochs))]

    # time

    def suspend(self) -> None:
        """Stop the grace times, because clients cannot reach the service."""
        self._reachable = False
        for will in self._orphans.values():
            will.at = None

    def resume(self, now: float) -> None:
        """Start the grace time of every orphaned will, because clients can reach the service again."""
        self._reachable = True
        for will in self._orphans.values():
            will.lost_at = now
            self._schedule(will, now + self.grace)

    def next_time(self) -> float | None:
        """Return the time at which `pass_time` has work next; None if no work is scheduled."""
        times = self._times
        while times:
            at, id = times[0]
            will = self._wills.get(id)
            if will is not None and will.at == at:
                return at
            heapq.heappop(times)
        return None

    def pass_time(self, now: float, most: int) -> Turned:
        """Advance the wills whose grace time or delay has ended, `most` at a time."""
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

    # restored and removed wills

    def restore(self, will: Will, due_in: float | None, now: float) -> None:
        """Enter a stored will; `due_in`: seconds until it is due, None if its client was not known to be lost."""
        self._add(will)
        if due_in is not None and due_in <= 0:
            self._is_due(will)
            return
        # impossible: a put removes the earlier will in the same write
        if (other := self._current.get(will.key)) is not None:
            self.remove(other)
        self._current[will.key] = will
        if due_in is None:
            self._orphan(will, now)
        else:
            will.state = State.DELAYED
            self._schedule(will, now + due_in)

    def remove(self, will: Will) -> None:
        """Remove a will that was replaced, cleared, published or dropped."""
        del self._wills[will.id]
        self._count(will, -1)
        self._let_go(will)
        if self._current.get(will.key) is will:
            del self._current[will.key]
        if will.state is State.DUE:
            self._due[will.key].remove(will)
            if not self._due[will.key]:
                del self._due[will.key]
        if self.on_removed is not None:
            self.on_removed(will)

    def _is_due(self, will: Will) -> None:
        will.state = State.DUE
        self._due.setdefault(will.key, []).append(will)

    def _add(self, will: Will) -> None:
        self._wills[will.id] = will
        self._count(will, 1)

    def _count(self, will: Will, one: int) -> None:
        user = will.author.full_name
        self.number.add(user, one)
        self.bytes.add(user, one * will.size)

    def _let_go(self, will: Will) -> None:
        """Detach the will from its link and its timer."""
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
        """Handle a client that is lost since `lost_at`: its will is due, or waits for its delay."""
        waited = will.state is State.DELAYED
        self._let_go(will)
        will.lost_at = lost_at
        if not waited and lost_at + will.delay > now:
            will.state = State.DELAYED
            self._schedule(will, lost_at + will.delay)
            turned.delayed.append(will)
        else:
            self._is_due(will)
            del self._current[will.key]
            self._remember(will.key, will.epoch)
            turned.due.append(will)

    def _schedule(self, will: Will, at: float) -> None:
        will.at = at
        heapq.heappush(self._times, (at, will.id))
