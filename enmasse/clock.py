"""Time and timers, given from outside to what knows no event loop. That of asyncio is a Clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Cancel the call; nothing happens if it was made."""


class Clock(Protocol):
    """Time in seconds (monotonic) and timers."""

    def time(self) -> float:
        """Return seconds since an arbitrary moment; they never go backwards."""

    def call_soon(self, what: Callable[[], None], /) -> Any:
        """Call `what` in the next turn of the event loop."""

    def call_later(self, delay: float, what: Callable[[], None], /) -> Any:
        """Call `what` after `delay` seconds. The result is a Timer."""
