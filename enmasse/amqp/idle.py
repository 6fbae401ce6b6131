"""When a connection has waited, or kept silent, long enough: times in milliseconds, of `Connection.tick`."""

from __future__ import annotations

from typing import Final

LATE_MS: Final = 250
"""Milliseconds by which a tick is late if we were stopped, or busy: what the peer has sent meanwhile may be unread."""
READING_MS: Final = 2000
"""Milliseconds in which it is read, and a peer that was stopped too sends something."""


class IdleTimes:
    """Deadlines, as ticks bring the time. Silence is measured in ticks, so it is noticed late."""

    __slots__ = ("_close", "_handshake", "_last_received", "_last_sent", "_last_tick", "_put_off", "received")

    def __init__(self) -> None:
        self.received = True
        """Something has come since the last tick."""
        self._last_received = -1
        self._last_sent = -1
        self._last_tick = -1
        self._handshake = -1
        self._close = -1
        self._put_off = -1

    def judged(self, due_ms: int, now_ms: int) -> int | None:
        """Return when to look again at what the peer owes by `due_ms`; None: it is too late. The first tick that comes
        long after the deadline puts it off."""
        if now_ms < due_ms:
            self._put_off = -1
            return due_ms
        if now_ms <= due_ms + LATE_MS:
            return None
        if self._put_off < 0:
            self._put_off = now_ms + READING_MS
        return self._put_off if now_ms < self._put_off else None

    def handshake_due(self, now_ms: int, timeout_ms: int) -> int:
        """Return when the peer must have opened: `timeout_ms` after the first tick."""
        if self._handshake < 0:
            self._handshake = now_ms + timeout_ms
        return self._handshake

    def close_due(self, now_ms: int, timeout_ms: int) -> int:
        """Return when the peer must have closed: `timeout_ms` after the first tick that asks."""
        if self._close < 0:
            self._close = now_ms + timeout_ms
        return self._close

    def peer_due(self, now_ms: int, timeout_ms: int, paused: bool) -> int | None:
        """Return by when the peer must have sent something, or when to look again at whether it has. None: the silence
        is not limited. While we do not read (`paused`) it does not count as silent."""
        received = self.received or self._last_received < 0 or paused
        if received:
            self.received = False
            self._last_received = now_ms
        if not timeout_ms:
            return None
        # What comes right after this tick counts as received at the next one: that must not be the deadline itself.
        return now_ms + (timeout_ms + 3) // 4 if received else self._last_received + timeout_ms

    def is_silent(self, now_ms: int, for_ms: int) -> bool:
        """Return True if nothing has come for `for_ms` milliseconds, as far as ticks show."""
        return not self.received and self._last_received >= 0 and now_ms - self._last_received > for_ms

    def ours_due(self, now_ms: int, timeout_ms: int, sent: bool) -> tuple[int, bool]:
        """Return when to send something before the peer's limit of silence ends, and whether that is now. `sent`:
        something was sent since the last tick."""
        if self._last_sent < 0:
            self._last_sent = now_ms
        elif sent:  # at some time after the last tick
            self._last_sent = self._last_tick
        self._last_tick = now_ms
        every = max(1, timeout_ms // 2)
        now = now_ms >= self._last_sent + every
        if now:
            self._last_sent = now_ms
        return self._last_sent + every, now
