"""Waiting for conditions. The limits find what hangs; they assert no speed."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

DEADLINE = 240.0
"""Seconds until a wait fails: slow machines are waited for."""

T = TypeVar("T")


class Patience:
    """Time limit of a wait. With `moves` it begins again whenever the value of `moves()` changes: progress is awaited
    for as long as it continues."""

    def __init__(self, seconds: float, what: str, moves: Callable[[], Any] | None = None) -> None:
        self._seconds, self._what, self._moves = seconds, what, moves
        self._last = moves() if moves is not None else None
        self._began = time.monotonic()
        self._end = self._began + seconds

    def pause(self) -> float:
        """Return the seconds until the condition is looked at again: the longer a wait takes, the more rarely, as tests
        that wait take the processor from those that work."""
        return min(max((time.monotonic() - self._began) / 20, 0.005), 0.1)

    def ended(self) -> bool:
        """Return True if the time is up. Ask before the condition, so that it is evaluated once after the limit."""
        if self._moves is not None and (now := self._moves()) != self._last:
            self._last, self._end = now, time.monotonic() + self._seconds
        return time.monotonic() > self._end

    def fail(self) -> AssertionError:
        return AssertionError(f"not within {self._seconds:g} s: {self._what}")


def wait_for(
    condition: Callable[[], T | None], what: str = "", seconds: float = DEADLINE, moves: Callable[[], Any] | None = None
) -> T:
    """Return the first true value of `condition()`. Raises AssertionError after `seconds` without one."""
    patience = Patience(seconds, what or str(condition), moves)
    while True:
        late = patience.ended()
        if value := condition():
            return value
        if late:
            raise patience.fail()
        time.sleep(patience.pause())


async def until(condition: Callable[[], Any], what: str = "", seconds: float = DEADLINE) -> Any:
    """Return the first true value of `condition()`, which may be awaitable. Raises AssertionError after `seconds`."""
    patience = Patience(seconds, what or str(condition))
    while True:
        late = patience.ended()
        found, pause = condition(), 0.005
        if inspect.isawaitable(found):
            found, pause = await found, 0.05  # it asks another process
        if found:
            return found
        if late:
            raise patience.fail()
        await asyncio.sleep(pause)
