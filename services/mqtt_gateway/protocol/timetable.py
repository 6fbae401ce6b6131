"""When connections are to be looked at: one sweep for all of them, no timer for each."""

from __future__ import annotations

from typing import Protocol

from enmasse.network.deadline import LATE as LATE_TIMER

STEP = 0.5
"""Seconds between two sweeps. A connection is looked at up to this much later than it asked for."""
LATE = STEP + LATE_TIMER
"""Seconds between two sweeps if the gateway was stopped, or busy: what clients have sent meanwhile may be unread."""


class Timed(Protocol):
    """Object that the timetable looks at: a connection, or one table of several clients."""

    due: int
    """The step at which it is looked at; 0: never. Only the timetable writes it."""

    def look(self, now: float) -> None:
        """Check what is due, and plan the next check."""

    def failed(self, error: Exception) -> None:
        """End it: `look` has raised. Does not raise."""


class Timetable:
    """`now` is the time of the last sweep, in seconds."""

    __slots__ = ("_done", "_put_off", "_steps", "now")

    def __init__(self, now: float) -> None:
        self.now = now
        self._done = int(now / STEP)  # the last step that was swept
        self._put_off = False
        self._steps: dict[int, set[Timed]] = {}

    def plan(self, who: Timed, at: float) -> None:
        """Look at it at this time, or earlier if that is planned already."""
        step = max(int(at / STEP) + 1, self._done + 1)
        if who.due:
            if who.due <= step:
                return
            self.forget(who)
        who.due = step
        found = self._steps.get(step)
        if found is None:
            self._steps[step] = {who}
        else:
            found.add(who)

    def forget(self, who: Timed) -> None:
        """Do not look at it, until it is planned again."""
        if who.due:
            found = self._steps.get(who.due)
            if found is not None:
                found.discard(who)
                if not found:
                    del self._steps[who.due]
            who.due = 0

    def sweep(self, now: float) -> None:
        """Look at everything that is due at `now`. Called every STEP seconds; a call that is late leaves it to the next
        one."""
        self._put_off = now - self.now > LATE and not self._put_off
        self.now = now
        if self._put_off:
            return
        last = int(now / STEP)
        while self._done < last:
            self._done += 1
            for who in self._steps.pop(self._done, ()):
                who.due = 0
                try:
                    who.look(now)
                except Exception as error:  # of one: the others of this step are looked at
                    who.failed(error)
