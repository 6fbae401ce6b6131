"""Live state of a process as the source `$live` offers it (docs/contracts.md): rows by kind and id, of which each
follower gets those that changed since its last message. No sockets, no clock.

A follower that takes nothing costs an integer: what it gets when it takes again is made from the newest rows.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Protocol

import msgspec

from enmasse import log
from enmasse.amqp.message import Message

_log = log.get()
NODE: Final = "$live"
SUBJECT: Final = "enmasse.live"
INTERVAL: Final = 1.0
"""Seconds between two looks."""
ROWS: Final = 500
"""Rows of a message."""
MAX_EVENTS: Final = 1000
"""Newest events that are kept."""
MAX_REMOVED: Final = 10_000
"""Removed rows that are remembered; a follower that has missed more begins again."""
_TURN: Final = 0.001
"""Longest time in seconds that a look may take before messages have their turn."""

Row = dict[str, Any]


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
        self._rows: dict[tuple[str, str], tuple[int, Row]] = {}  # the one that changed last is the last
        self._removed: dict[tuple[str, str], int] = {}
        self._events: deque[tuple[int, Row]] = deque(maxlen=MAX_EVENTS)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, kind: str, id: str, row: Row) -> None:
        """Set a row; nothing happens if it is as before."""
        key = kind, id
        known = self._rows.get(key)
        if known is not None:
            if known[1] == row:
                return
            del self._rows[key]
        self.number += 1
        self._rows[key] = self.number, row
        self._removed.pop(key, None)

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
        """Add an event, a JSON object with `id` of enmasse.events."""
        self.number += 1
        self._events.append((self.number, {"at": round(self.wall(), 3), **event}))

    def forget(self) -> None:
        """Forget all rows: there is no follower. Events stay."""
        self._rows.clear()
        self._removed.clear()
        self.removed_before = self.number

    def since(self, number: int, most: int) -> tuple[int, Row, bool]:
        """Return the oldest `most` changes after the change `number`: the number of the last of them, the rows as
        fields of a message, and whether they are all."""
        found: list[tuple[int, str, str, Row | None]] = []
        for source in (self._changed(number), self._gone(number), self._happened(number)):
            found.extend(source)
        found.sort(key=lambda change: change[0])
        body: Row = {}
        for _, kind, id, row in found[:most]:
            if row is None:
                body.setdefault("removed", {}).setdefault(kind, []).append(id)
            elif kind == "events":
                body.setdefault("events", []).append(row)
            else:
                body.setdefault(kind, {})[id] = row
        complete = len(found) <= most
        return self.number if complete else found[most - 1][0], body, complete

    def _changed(self, number: int) -> Iterator[tuple[int, str, str, Row]]:
        for (kind, id), (at, row) in reversed(self._rows.items()):
            if at <= number:
                return
            yield at, kind, id, row

    def _gone(self, number: int) -> Iterator[tuple[int, str, str, None]]:
        for (kind, id), at in reversed(self._removed.items()):
            if at <= number:
                return
            yield at, kind, id, None

    def _happened(self, number: int) -> Iterator[tuple[int, str, str, Row]]:
        for at, event in reversed(self._events):
            if at <= number:
                return
            yield at, "events", "", event


class Taker(Protocol):
    """The link of a follower."""

    @property
    def ready(self) -> bool:
        """True if there is credit and nothing waits."""

    def reply(self, payload: bytes) -> Any:
        """Send a message, settled."""


class Clock(Protocol):
    """Time in seconds (monotonic) and timers: those of an event loop."""

    def time(self) -> float:
        """Return seconds since an arbitrary moment."""

    def call_soon(self, what: Callable[[], None]) -> Any:
        """Call `what` in the next turn."""

    def call_later(self, delay: float, what: Callable[[], None]) -> Any:
        """Call `what` after `delay` seconds."""


class Publisher:
    """Looks once a second while there are followers, and sends them what has changed."""

    def __init__(
        self,
        rows: Rows,
        look: Callable[[], Iterator[None]],
        takers: Callable[[], Collection[Taker]],
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
        self._places: dict[Taker, _Place] = {}
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
            while taker in self._takers() and taker.ready:
                message = self._next(taker)
                if message is None:
                    break
                taker.reply(message)
                self._flush()
                yield

    def _next(self, taker: Taker) -> bytes | None:
        """Return the next message for a follower; None if it has everything."""
        rows, place = self._rows, self._places[taker]
        full = max(place.number, place.begun) < rows.removed_before
        if full:
            place.number, place.begun = -1, rows.number
        place.number, body, complete = rows.since(place.number, ROWS)
        if not body and not full:
            return None
        return encode(
            {
                "schema": 1,
                "component": rows.component,
                "kind": rows.kind,
                "run": rows.run,
                "started": rows.started,
                "at": rows.wall(),
                "full": full,
                "complete": complete,
                **body,
            }
        )


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
