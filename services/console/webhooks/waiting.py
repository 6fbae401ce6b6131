"""Messages that wait for the receiver of a webhook: bounded, saved, and each event once. No sockets."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections import deque
from typing import Any

import msgspec

from enmasse.http.webhooks import Webhook
from services.console.following.process_events import NewEvent

MOST, MOST_BYTES = 1000, 1 << 20
"""Messages that wait, and bytes of them; the oldest are dropped for further ones, alerts last."""
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


class WebhookState(msgspec.Struct):
    """The saved part of a webhook. `of`: digest of its URL, space and events; `told`: the message about drops, which is
    sent until it is taken; `dropped`: drops that are in no such message yet."""

    since: float
    of: str = ""
    newest: dict[str, _Newest] = {}
    alerts: list[SignedMessage] = []
    waiting: list[SignedMessage] = []
    dropped: int = 0
    told: SignedMessage | None = None


class WaitingMessages:
    """The messages for one webhook. `saved`: what `state` has returned before; None: it is new, and gets no earlier
    events. What waited for a webhook of this name with another URL, space or events is dropped."""

    def __init__(self, webhook: Webhook, saved: Any = None) -> None:
        self.webhook = webhook
        self.dropped_in_all = 0
        self.refused_in_all = 0
        """Messages that were put aside."""
        self.sending: SignedMessage | None = None
        """The message that is under way."""
        self.changed = False
        """The state was not saved since."""
        facts = msgspec.json.encode((webhook.url, webhook.events, webhook.space))
        self._state = WebhookState(time.time(), hashlib.sha256(facts).hexdigest())
        if saved is not None:
            with contextlib.suppress(msgspec.ValidationError):  # of another version
                self._restore(msgspec.convert(saved, WebhookState))
        self._alerts, self._messages = deque(self._state.alerts), deque(self._state.waiting)
        self._bytes = sum(map(_size, (*self._alerts, *self._messages)))

    def _restore(self, saved: WebhookState) -> None:
        if saved.of == self._state.of:
            self._state = saved
        else:
            self.dropped_in_all = len(saved.alerts) + len(saved.waiting)
            self.changed = True

    def __len__(self) -> int:
        about_drops = 1 if self._state.dropped or self._state.told else 0
        return len(self._alerts) + len(self._messages) + about_drops

    def state(self) -> WebhookState:
        """Return the content of the file, as which it counts as saved."""
        self.changed = False
        now = self._state
        return msgspec.structs.replace(
            now, newest=dict(now.newest), alerts=list(self._alerts), waiting=list(self._messages)
        )

    def take(self, event: NewEvent, *, alert: bool = False) -> bool:
        """Add a message for an event, if it is one for this receiver that it has not had; return whether it was.
        `alert`: it was made just now, and goes before what waits."""
        mark = hashlib.sha256(msgspec.json.encode(event.row)).hexdigest()[:24]
        if not (alert or self._is_new(event, mark)):
            return False
        if not self.webhook.wants(event.event.kind, event.event.space):
            return False
        facts = msgspec.to_builtins(event.event)
        facts.pop("id")  # random, and another one after a restart
        body = {"type": event.event.kind, "timestamp": event.event.time, "data": facts}
        id = hashlib.sha256(f"{event.component} {event.run} {mark}".encode()).hexdigest()[:32]
        self._add(SignedMessage(f"msg_{id}", msgspec.json.encode(body).decode()), self._alerts if alert else None)
        return True

    def first(self) -> SignedMessage | None:
        """Return the message to be sent next; None: none waits. After drops it says how many were."""
        if self._alerts:
            return self._alerts[0]
        state = self._state
        if state.dropped and state.told is None:
            now = time.time()
            body = {"type": "webhook.events.dropped", "timestamp": _moment(now), "data": {"count": state.dropped}}
            id = f"drop_{secrets.token_hex(16)}"
            state.told, state.dropped = SignedMessage(id, msgspec.json.encode(body).decode()), 0
            self.changed = True
        return state.told or (self._messages[0] if self._messages else None)

    def sent(self, message: SignedMessage) -> None:
        """Remove a message that the receiver has taken."""
        self.changed = True
        if message is self._state.told:
            self._state.told = None
        for queue in (self._alerts, self._messages):
            if queue and queue[0] is message:
                self._bytes -= _size(queue.popleft())

    def put_aside(self, message: SignedMessage) -> None:
        """Remove a message that the receiver refuses for good."""
        self.sent(message)
        self.refused_in_all += 1

    def _is_new(self, event: NewEvent, mark: str) -> bool:
        key, at = f"{event.component} {event.run}", float(event.row.get("at") or 0)
        newest, clock = self._state.newest.pop(key, None), time.time()
        if newest is None or at > newest.at:
            known, now = at < min(self._state.since, clock), _Newest(at, [mark])
        elif newest.at > clock or at == newest.at:  # the clock was set back: times tell no order
            known = mark in newest.marks
            now = newest if known else _Newest(at, [*newest.marks[-MOST:], mark])
        else:
            known, now = True, newest
        self._state.newest[key] = now  # those that have told something last are at the end
        while len(self._state.newest) > RUNS:
            del self._state.newest[next(iter(self._state.newest))]
        self.changed = True
        return not known

    def _add(self, message: SignedMessage, alerts: deque[SignedMessage] | None) -> None:
        (self._messages if alerts is None else alerts).append(message)
        self._bytes += _size(message)
        self.changed = True
        for queue in (self._messages, self._alerts):  # alerts give way last
            first = 1 if queue and queue[0] is self.sending else 0
            while len(queue) > first + 1 and self._too_many:
                self._bytes -= _size(queue[first])
                del queue[first]
                self._state.dropped += 1
                self.dropped_in_all += 1

    @property
    def _too_many(self) -> bool:
        return len(self._messages) + len(self._alerts) > MOST or self._bytes > MOST_BYTES


def _size(message: SignedMessage) -> int:
    return len(message.body.encode())


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
