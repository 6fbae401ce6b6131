"""Live state of a process as the source `$live` offers it (docs/contracts.md): rows by kind and id, of which each
follower gets those that changed since its last message. No sockets, no clock.

A follower that takes nothing costs an integer: what it gets when it takes again is made from the newest rows.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar

import msgspec

from enmasse.amqp.messages.message import Message
from enmasse.clock import Clock
from enmasse.logs import log
from enmasse.model.names import DEFAULT_SPACE

_log = log.get()
INTER_ROUTER: Final = "inter-router"
"""Kind of the connections between routers, and of their links."""
NODE: Final = "$live"
SUBJECT: Final = "enmasse.live_state"
INTERVAL: Final = 1.0
"""Seconds between two looks."""
ROWS: Final = 500
"""Rows of a message."""
MAX_EVENTS: Final = 1000
"""Events that are kept."""
MAX_REMOVED: Final = 10_000
"""Removed rows that are remembered; a follower that has missed more begins again."""
_TURN: Final = 0.001
"""Longest time in seconds that a look may take before messages have their turn."""
MARKED: Final = 50
"""Rows with a mark that are looked at in a step."""

K = TypeVar("K")
E = TypeVar("E")
Row = dict[str, Any]
Encoded = Row | msgspec.Raw
"""A row, or the JSON object that it is."""
_Change = tuple[int, str, str, Encoded | None]
"""Number, kind and id of a row, and the row; None: it is gone. Of events without id."""


class KeptEvents(dict[K, E]):
    """The newest events by key, at most `most`: beyond, the oldest one of the address space that has most makes room,
    so that the refusals of one tenant take none of another's."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._of_spaces: dict[str, dict[K, None]] = {}
        """Address space → the keys of its events, the oldest one first."""

    def put(self, key: K, event: E, space: str) -> K | None:
        """Add an event; return the key of the one that had to go."""
        self[key] = event
        self._of_spaces.setdefault(space, {})[key] = None
        if len(self) <= self._most:
            return None
        most = max(self._of_spaces.values(), key=len)
        oldest = next(iter(most))
        del most[oldest], self[oldest]
        return oldest


class Rows:
    """The newest rows, and the order in which they changed. `component`: the process; `kind`: router, broker or
    mqtt_gateway. `wall`: a clock in seconds since 1970."""

    def __init__(self, component: str, kind: str, wall: Callable[[], float]) -> None:
        self.component = component
        self.kind = kind
        self.run = secrets.token_hex(8)
        self.started = wall()
        self.wall = wall
        self.number = 0
        """Number of the newest change."""
        self.removed_before = 0
        """Number of the newest removal that was forgotten."""
        self._rows: dict[tuple[str, str], _Change] = {}  # the one that changed last is the last
        self._removed: dict[tuple[str, str], int] = {}
        self._events: KeptEvents[int, Row] = KeptEvents(MAX_EVENTS)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, kind: str, id: str, row: Encoded) -> None:
        """Set a row; nothing happens if it is as before."""
        key = kind, id
        known = self._rows.get(key)
        if known is not None:
            if known[3] == row:
                return
            del self._rows[key]
        else:
            self._removed.pop(key, None)
        self.number += 1
        self._rows[key] = self.number, kind, id, row

    def drop(self, kind: str, id: str) -> None:
        """Remove a row, if it is present."""
        if self._rows.pop((kind, id), None) is None:
            return
        self.number += 1
        self._removed[kind, id] = self.number
        if len(self._removed) > MAX_REMOVED:
            oldest = next(iter(self._removed))
            self.removed_before = self._removed.pop(oldest)

    def event(self, event: Row) -> None:
        """Add an event, a JSON object with `id` of enmasse.logs.events."""
        self.number += 1
        self._events.put(self.number, {"at": round(self.wall(), 3), **event}, str(event.get("space") or DEFAULT_SPACE))

    def forget(self) -> None:
        """Forget all rows: there is no follower. Events stay."""
        self._rows.clear()
        self._removed.clear()
        self.removed_before = self.number

    def since(self, number: int) -> list[_Change]:
        """Return the changes after the change `number`, the oldest first."""
        found: list[_Change] = [*self._changed(number), *self._gone(number), *self._happened(number)]
        found.sort()  # by their numbers, which differ
        return found

    def _changed(self, number: int) -> Iterator[_Change]:
        for change in reversed(self._rows.values()):
            if change[0] <= number:
                return
            yield change

    def _gone(self, number: int) -> Iterator[_Change]:
        for (kind, id), at in reversed(self._removed.items()):
            if at <= number:
                return
            yield at, kind, id, None

    def _happened(self, number: int) -> Iterator[_Change]:
        for at, event in reversed(self._events.items()):
            if at <= number:
                return
            yield at, "events", "", event


class FollowerLink(Protocol):
    """The link of a follower."""

    @property
    def ready(self) -> bool:
        """True if there is credit and nothing waits."""

    def reply(self, payload: bytes) -> Any:
        """Send a message, settled."""


class LivePublisher:
    """Looks once a second while there are followers, and sends them what has changed."""

    def __init__(
        self,
        rows: Rows,
        look: Callable[[], Iterator[None]],
        takers: Callable[[], Collection[FollowerLink]],
        clock: Clock,
        flush: Callable[[], None] = lambda: None,
        every: Callable[[], None] = lambda: None,
    ) -> None:
        """`look` brings the rows up to date in steps of a few microseconds each; `flush` is called after messages were
        sent, `every` each INTERVAL, with followers or without."""
        self._rows = rows
        self._look = look
        self._takers = takers
        self._clock = clock
        self._flush = flush
        self._every = every
        self._places: dict[FollowerLink, _Place] = {}
        self._work: Iterator[None] = iter(())

    def start(self) -> None:
        """Look now, and again every INTERVAL."""
        self._work = self._round()
        self._turn()

    def _turn(self) -> None:
        clock = self._clock
        until = clock.time() + _TURN
        try:
            for _ in self._work:
                if clock.time() > until:
                    clock.call_soon(self._turn)
                    return
        except Exception:
            _log.exception("live.look.failed")
        clock.call_later(INTERVAL, self.start)

    def _round(self) -> Iterator[None]:
        self._every()
        takers = list(self._takers())
        self._places = {taker: self._places.get(taker) or _Place() for taker in takers}
        if not takers:
            if len(self._rows):
                self._rows.forget()
            return
        yield from self._look()
        for taker in takers:
            messages = self._messages(self._places[taker])
            while taker in self._takers() and taker.ready:
                message = next(messages, None)
                if message is None:
                    break
                taker.reply(message)
                self._flush()
                yield

    def _messages(self, place: _Place) -> Iterator[bytes]:
        """Yield the messages by which a follower at this place gets everything. Each counts as sent."""
        rows = self._rows
        full = max(place.number, place.begun) < rows.removed_before
        if full:
            place.number, place.begun = -1, rows.number
        newest, changes = rows.number, rows.since(place.number)
        for at in range(0, len(changes), ROWS) if changes or not full else (0,):
            part, complete = changes[at : at + ROWS], at + ROWS >= len(changes)
            place.number = newest if complete else part[-1][0]
            yield encode(
                {
                    "schema": 1,
                    "component": rows.component,
                    "kind": rows.kind,
                    "run": rows.run,
                    "started": rows.started,
                    "at": rows.wall(),
                    "full": full,
                    "complete": complete,
                    **_fields(part),
                }
            )
            full = False


def _fields(changes: Iterable[_Change]) -> Row:
    """Return changes as fields of a message."""
    body: Row = {}
    for _, kind, id, row in changes:
        if row is None:
            body.setdefault("removed", {}).setdefault(kind, []).append(id)
        elif kind == "events":
            body.setdefault("events", []).append(row)
        elif kind in body:
            body[kind][id] = row
        else:
            body[kind] = {id: row}
    return body


class MarkedRows(ABC):
    """Offers rows of a process to `takers`. A row is made again once its mark has changed: the facts of which it
    is made."""

    def __init__(self, name: str, kind: str, takers: Callable[[], Collection[FollowerLink]], clock: Clock) -> None:
        self.rows = Rows(name, kind, time.time)
        self.publisher = LivePublisher(self.rows, self.look, takers, clock)
        self._marks: dict[tuple[str, str], Any] = {}

    @abstractmethod
    def _all(self) -> Iterator[tuple[str, str, Any, Any]]:
        """Yield kind, id and mark of each row, and what `_row` makes it of."""

    @abstractmethod
    def _row(self, of: Any) -> Row:
        """Return a row."""

    def look(self) -> Iterator[None]:
        """Bring the rows up to date."""
        if not len(self.rows):
            self._marks.clear()
        seen = set()
        for n, (kind, id, mark, of) in enumerate(self._all(), 1):
            seen.add((kind, id))
            if self._marks.get((kind, id)) != mark:
                self._marks[kind, id] = mark
                self.rows.put(kind, id, self._row(of))
            if not n % MARKED:
                yield
        for gone in self._marks.keys() - seen:
            del self._marks[gone]
            self.rows.drop(*gone)


class _Place:
    """How far a follower is. `number`: of the newest change that it has; `begun`: of the newest change when it began,
    without any row."""

    __slots__ = ("begun", "number")

    def __init__(self) -> None:
        self.number = self.begun = -1


def encode(body: Row) -> bytes:
    """Return the AMQP message with this body."""
    return Message(msgspec.json.encode(body).decode(), subject=SUBJECT, content_type="application/json").encode()


class Merged:
    """State of one process, merged from its messages. `kinds`: kind → id → row."""

    def __init__(self) -> None:
        self.component = self.kind = self.run = ""
        self.started = self.at = 0.0
        self.complete = False
        """False while a first state is incomplete."""
        self.kinds: dict[str, dict[str, Row]] = {}
        self.events: deque[Row] = deque(maxlen=MAX_EVENTS)

    def apply(self, body: Row) -> None:
        """Take a message, decoded. Raises ValueError, KeyError or TypeError if it is not valid."""
        if body["schema"] != 1:
            raise ValueError(f"schema {body['schema']} of live state is not known")
        if body["full"] or body["run"] != self.run:
            self.kinds = {}
            self.events.clear()
            self.complete = False
        self.component, self.kind, self.run = body["component"], body["kind"], body["run"]
        self.started, self.at = body["started"], body["at"]
        self.complete = self.complete or body["complete"]
        for kind, ids in body.get("removed", {}).items():
            rows = self.kinds.get(kind, {})
            for id in ids:
                rows.pop(id, None)
        self.events.extend(body.get("events", ()))
        for kind in body.keys() - _FIELDS:
            self.kinds.setdefault(kind, {}).update(body[kind])


_FIELDS: Final = {
    "schema", "component", "kind", "run", "started", "at", "full", "complete", "removed", "events",
}  # fmt: skip
