"""Messages that wait for the receiver of a webhook: bounded, saved, and each event once. No sockets."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import deque
from typing import Any

import msgspec

from enmasse.http.webhooks import Webhook
from services.console.following.process_events import NewEvent

MOST, MOST_BYTES = 1000, 1 << 20
"""Messages that wait, and bytes of them; the oldest are dropped for further ones."""
RUNS = 1000
"""Runs of components whose newest event is remembered."""


class SignedMessage(msgspec.Struct, frozen=True):
    """A message: its id, by which the receiver knows it again, and its body."""

    id: str
    body: str


class _Newest(msgspec.Struct):
    """The newest event of a run of a component: the time, and digests of its events of this time."""

    at: float
    marks: list[str]


class _State(msgspec.Struct):
    since: float
    newest: dict[str, _Newest] = {}
    waiting: list[SignedMessage] = []
    dropped: int = 0


class WaitingMessages:
    """The messages for one webhook. `saved`: what `state` has returned before; None: it is new, and gets no earlier
    events."""

    def __init__(self, webhook: Webhook, saved: Any = None) -> None:
        self.webhook = webhook
        self.dropped_in_all = 0
        self.sending = False
        """The first message is under way."""
        self.changed = False
        """The state was not saved since."""
        self._state = _State(time.time())
        if saved is not None:
            with contextlib.suppress(msgspec.ValidationError):  # of another version
                self._state = msgspec.convert(saved, _State)
        self._messages = deque(self._state.waiting)
        self._bytes = sum(len(each.body) for each in self._messages)

    def __len__(self) -> int:
        return len(self._messages) + (1 if self._state.dropped else 0)

    def state(self) -> Any:
        """Return the content of the file, as which it counts as saved."""
        self.changed = False
        self._state.waiting = list(self._messages)
        return msgspec.to_builtins(self._state)

    def take(self, event: NewEvent) -> bool:
        """Add a message for an event, if it is one for this receiver that it has not had; return whether it was."""
        mark = hashlib.sha256(msgspec.json.encode(event.row)).hexdigest()[:24]
        if not self._is_new(event, mark):
            return False
        if not self.webhook.wants(event.event.kind, event.space):
            return False
        facts = msgspec.to_builtins(event.event) | {"space": event.space}
        facts.pop("id")  # random, and another one after a restart
        body = {"type": event.event.kind, "timestamp": event.event.time, "data": facts}
        id = hashlib.sha256(f"{event.component} {event.run} {mark}".encode()).hexdigest()[:32]
        self._add(SignedMessage(f"msg_{id}", msgspec.json.encode(body).decode()))
        return True

    def first(self) -> SignedMessage | None:
        """Return the message to be sent next; None: none waits. After drops it says how many were."""
        if self._state.dropped:
            count, now = self._state.dropped, time.time()
            body = {"type": "webhook.events.dropped", "timestamp": _moment(now), "data": {"count": count}}
            return SignedMessage(f"drop_{int(now * 1000)}_{count}", msgspec.json.encode(body).decode())
        return self._messages[0] if self._messages else None

    def sent(self, message: SignedMessage) -> None:
        """Remove a message that the receiver has taken."""
        self.changed = True
        if message.id.startswith("drop_"):
            self._state.dropped -= int(message.id.rpartition("_")[2])
        elif self._messages and self._messages[0] is message:
            self._bytes -= len(self._messages.popleft().body)

    def _is_new(self, event: NewEvent, mark: str) -> bool:
        key, at = f"{event.component} {event.run}", float(event.row.get("at") or 0)
        newest = self._state.newest.pop(key, None)
        if newest is None or at > newest.at:
            known, now = at < self._state.since, _Newest(at, [mark])
        elif at == newest.at:
            known = mark in newest.marks
            now = newest if known else _Newest(at, [*newest.marks[-MOST:], mark])
        else:
            known, now = True, newest
        self._state.newest[key] = now  # those that have told something last are at the end
        while len(self._state.newest) > RUNS:
            del self._state.newest[next(iter(self._state.newest))]
        self.changed = True
        return not known

    def _add(self, message: SignedMessage) -> None:
        self._messages.append(message)
        self._bytes += len(message.body)
        first = 1 if self.sending else 0
        while len(self._messages) > max(first + 1, 1) and (len(self._messages) > MOST or self._bytes > MOST_BYTES):
            self._bytes -= len(self._messages[first].body)
            del self._messages[first]
            self._state.dropped += 1
            self.dropped_in_all += 1


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
