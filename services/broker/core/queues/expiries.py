"""When messages of a queue expire. Milliseconds of the broker's clock."""

from __future__ import annotations

from services.broker.core.messages.stored_message import StoredMessage

AGAIN, FAR = 1000, 3_600_000
"""Milliseconds until the next look for expired messages: if some are being delivered now, and otherwise."""


class Expiries:
    """`watched`: messages with an expiry, scheduled ones and those being delivered included. `next`: no message expires
    before this (0 = none does). `handed`: ids of messages returned by consumers which may have begun to hand them
    on: these no longer expire."""

    __slots__ = ("handed", "next", "watched")

    def __init__(self) -> None:
        self.watched = self.next = 0
        self.handed: dict[int, None] = {}  # see Turns.draining

    def add(self, expires: int) -> None:
        """Watch a message that expires at this time (milliseconds)."""
        self.watched += 1
        if not self.next or expires < self.next:
            self.next = expires

    def remove(self, message: StoredMessage) -> None:
        """Watch a message no longer."""
        self.watched -= 1
        self.handed.pop(message.id, None)
        if not self.watched:
            self.next = 0

    def rename(self, message: int, new: int) -> None:
        """The message has another id from now on."""
        if message in self.handed:
            del self.handed[message]
            self.handed[new] = None

    def has_expired(self, message: StoredMessage, now: int) -> bool:
        """Return whether a message may no longer be delivered."""
        return 0 < message.expires <= now and message.id not in self.handed

    def begin(self, now: int) -> None:
        """Begin a look at all messages; the expiry of those added meanwhile is noted."""
        self.next = now + FAR

    def look_on(self, nearest: int, now: int) -> None:
        """Set the time of the next look, after one; `nearest`: when the first of the other waiting messages expires, 0
        = never. Messages that are being delivered may be returned, which is checked from time to time."""
        others = self.watched - len(self.handed)
        later = nearest or now + (AGAIN if others else FAR)
        self.next = min(self.next, later) if self.watched else 0

    def due(self, now: int) -> bool:
        """Return whether a message may have expired."""
        return self.watched > 0 and self.next <= now
