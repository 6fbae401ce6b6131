"""Events of the processes that are followed: refusals and closed connections."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from enmasse.api.types import Event
from enmasse.identity.principal import named
from enmasse.live_state import KeptEvents, Row
from enmasse.model.names import DEFAULT_SPACE, in_space, space_prefix
from services.console.following.rows import Rows
from services.console.following.traffic import moment

EVENTS = 5000
"""Events that are kept."""
_KNOWN = (
    "at",
    "id",
    "condition",
    "description",
    "reason",
    "address",
    "names",
    "user",
    "client",
    "container",
    "peer",
    "count",
    "space",
)


class NewEvent(NamedTuple):
    """An event: the process and its run, its row, and the event as the API shows it."""

    component: str
    run: str
    row: Row
    event: Event


class _Latest(NamedTuple):
    """The newest event of a process: its run, and the time; `events`: those of this time, as JSON."""

    run: str
    at: float
    events: frozenset[bytes]


class Events:
    """The newest events of all processes."""

    def __init__(self) -> None:
        self._events: KeptEvents[str, Event] = KeptEvents(EVENTS)
        self.seen: Callable[[NewEvent], None] = lambda _: None
        """Called with each event that is new here. After a start of the console these are all that processes keep."""
        self.rows: Rows[Event] = Rows(lambda: self._events, self._events.get)
        self._brokers: set[str] = set()
        self._latest: dict[str, _Latest] = {}
        self._before: dict[str, _Latest | None] = {}
        """Process whose state is incomplete → its newest event before that, which the state repeats with earlier
        ones."""

    def take(self, body: Row) -> None:
        """Add events of a message of live state. From a full message on, until the state is complete, they may repeat
        others: of a new follower, and of one that has missed too much."""
        component, run = body["component"], body["run"]
        if body["kind"] == "broker":
            self._brokers.add(component)
        if body["full"]:
            self._before[component] = self._latest.get(component)
        for event in body.get("events", ()):
            if not _is_known(self._before.get(component), run, event):
                self._latest[component] = _newer(self._latest.get(component), run, event)
                self._add(component, event, run)
        if body["complete"]:
            self._before.pop(component, None)

    def add_own(self, row: Row, component: str = "console") -> None:
        """Add an event that the console has found: of itself, or of a component that has no live state."""
        self._add(component, row)

    def owner(self, row: Event) -> str | None:
        """Return the suite's user whose event it is; None at a broker, which knows processes and users of its own, and
        of a client that has only named the user."""
        return None if row.component in self._brokers or row.more.get("proved") is False else row.user

    def space_of(self, id: str) -> str:
        """Return the address space of an event: of its client, or of what it names."""
        found = self._events.get(id)
        return DEFAULT_SPACE if found is None else found.space

    def _add(self, component: str, row: Row, run: str = "") -> None:
        new = new_event(component, run, row)
        event = new.event
        if (gone := self._events.put(event.id, event, event.space)) is not None:
            self.rows.changed({gone})
        self.rows.changed({event.id})
        self.seen(new)


def new_event(component: str, run: str, row: Row) -> NewEvent:
    """Return the event of a row of a process, as the API shows it."""
    # Not counted: ids of the events that a caller may view must not reveal how many others there are.
    id = f"{int(1000 * float(row.get('at') or time.time())):013d}-{secrets.token_hex(4)}"
    names = list(map(str, row.get("names") or ()))
    user = named(str(row["user"])) if row.get("user") is not None else None
    space = str(row.get("space") or DEFAULT_SPACE)
    if space != DEFAULT_SPACE:
        names = [name.removeprefix(space_prefix(space)) for name in names]
    event = Event(
        id=id,
        time=moment(row.get("at")) or "",
        component=component,
        kind=str(row.get("id", "")),
        space=space,
        condition=str(row.get("condition") or ""),
        description=in_space(space, str(row.get("description") or row.get("reason") or "")),
        address=None if row.get("address") is None else in_space(space, str(row["address"])),
        names=names,
        user=None if user is None else user.name,
        client=in_space(space, str(row.get("client") or row.get("container") or "")),
        peer=str(row.get("peer") or ""),
        count=int(row.get("count") or 1),
        more={key: value for key, value in row.items() if key not in _KNOWN},
    )
    return NewEvent(component, run, row, event)


def _is_known(known: _Latest | None, run: str, event: Row) -> bool:
    """Return whether an event came before, or is the newest one: a new follower gets those that the process keeps."""
    if known is None or known.run != run:
        return False
    return event["at"] < known.at or (event["at"] == known.at and msgspec.json.encode(event) in known.events)


def _newer(known: _Latest | None, run: str, event: Row) -> _Latest:
    encoded = frozenset([msgspec.json.encode(event)])
    if known is None or known.run != run or event["at"] > known.at:
        return _Latest(run, event["at"], encoded)
    return known._replace(events=known.events | encoded) if event["at"] == known.at else known
