"""How much of unfinished deliveries one connection keeps, and when its socket is not read because of it."""

from __future__ import annotations

from collections.abc import Callable

from enmasse.amqp.limits import Limits


def _ignore() -> None: ...


class HeldBytes:
    """Bytes of pieces: `assembling` of messages that are put together, `streamed` of those that a user takes in pieces.

    `paused`: too much that was streamed is not taken, the socket is not to be read. `throttled`: it is not to be read
    by order of the user. `on_paused`: one of them has changed.
    """

    __slots__ = ("assembling", "limits", "on_paused", "paused", "streamed", "throttled")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.assembling = 0
        self.streamed = 0
        self.paused = False
        self.throttled = False
        self.on_paused: Callable[[], None] = _ignore

    def add(self, cost: int, streamed: bool) -> bool:
        """Count a kept piece of an unfinished delivery; return False if all of these exceed the limit."""
        if streamed:
            self.streamed += cost
            if self.streamed > self.limits.max_streamed and not self.paused:
                self.paused = True
                self.on_paused()
            return True
        self.assembling += cost
        return self.assembling <= self.limits.max_partial

    def remove(self, cost: int, streamed: bool) -> None:
        """Subtract the bytes of pieces that no longer wait; reading continues at half of the limit of streamed ones."""
        if streamed:
            self.streamed -= cost
            if self.paused and self.streamed <= self.limits.max_streamed // 2:
                self.paused = False
                self.on_paused()
        else:
            self.assembling -= cost

    def throttle(self, throttled: bool) -> None:
        """Have the socket not read, or read again."""
        self.throttled = throttled
        self.on_paused()

    def let_go(self) -> None:
        """Release the hook of the transport: it is not called again."""
        self.on_paused = _ignore
