"""Deadlines by which a peer must have done something.

After a process was stopped (SIGSTOP, a frozen container, a paused machine) its timers run before its sockets are read.
What peers have sent meanwhile is then unknown, so none of them may be judged yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from enmasse.clock import Timer

LATE: Final = 0.25
"""Seconds by which the timer of a deadline is late if the process was stopped, or busy."""
READING: Final = 0.5
"""Seconds in which a process that was stopped reads what has come, and peers that were stopped with it send."""


class TimerClock(Protocol):
    """Time and timers: the event loop."""

    def time(self) -> float:
        """Return monotonic seconds."""

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        """Call `callback` at `when`, in the seconds of `time`."""


class Deadline:
    """Calls `passed` at a time, unless it is cancelled. If the process was stopped until then, the call comes after its
    sockets were read."""

    __slots__ = ("_at", "_clock", "_passed", "_timer")

    def __init__(self, clock: TimerClock, at: float, passed: Callable[[], None]) -> None:
        self._clock = clock
        self._at = max(at, clock.time())
        self._passed = passed
        self._timer = clock.call_at(self._at, self._due)

    def cancel(self) -> None:
        """Call nothing, and release the callback, which may refer to the owner of this deadline."""
        self._timer.cancel()
        self._passed = _nothing

    def _due(self) -> None:
        now = self._clock.time()
        if now - self._at > LATE:
            self._timer = self._clock.call_at(now + READING, self._pass)
        else:
            self._pass()

    def _pass(self) -> None:
        passed, self._passed = self._passed, _nothing
        passed()


def _nothing() -> None: ...
