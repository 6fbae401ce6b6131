"""The last-will service that kills itself, and whose time tests let pass.

    python -m tests.mqtt_lwt.dying POINT --config FILE

POINT: `before:n` or `after:n`, the moment before or after the n-th transaction of its store; `never`. At SIGUSR1 as
much time passes for grace times and delays as `grace_seconds`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from enmasse.process import runner
from enmasse.stores.redis import RedisEngine
from enmasse.stores.sqlite import SqliteEngine
from services.mqtt_lwt.service import LastWillSettings, serve


class MovedTimer:
    """`handle`: None once it has been cancelled or is over."""

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.handle: asyncio.TimerHandle | None = None
        self._callback = callback

    def set(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self.handle is not None:
            self.handle.cancel()
        self.handle = loop.call_at(at, self._over)

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def _over(self) -> None:
        self.handle = None
        self._callback()


class MovedClock:
    """A deadline.TimerClock that is `step` seconds later with each SIGUSR1."""

    def __init__(self, step: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._step, self._moved = step, 0.0
        self._timers: list[MovedTimer] = []
        self._loop.add_signal_handler(signal.SIGUSR1, self._move)

    def time(self) -> float:
        return self._loop.time() + self._moved

    def call_at(self, when: float, callback: Callable[[], None], /) -> MovedTimer:
        timer = MovedTimer(when, callback)
        timer.set(self._loop, when - self._moved)
        self._timers = [each for each in self._timers if each.handle is not None] + [timer]
        return timer

    def _move(self) -> None:
        self._moved += self._step
        for timer in self._timers:
            if timer.handle is not None:
                timer.set(self._loop, timer.when - self._moved)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(engine: Any, point: str) -> None:
    when, _, number = point.partition(":")
    commit = engine.commit
    left = int(number)

    async def dying(self: Any, tables: Any) -> None:
        nonlocal left
        left -= bool(tables)
        if tables and left == 0 and when == "before":
            die()
        await commit(self, tables)
        if tables and left == 0:
            die()

    engine.commit = dying


async def run(config: LastWillSettings, stop: asyncio.Event) -> None:
    await serve(config, stop, MovedClock(config.grace_seconds))


if __name__ == "__main__":
    point = sys.argv.pop(1)
    if point != "never":
        for engine in (SqliteEngine, RedisEngine):
            arm(engine, point)
    runner.start(LastWillSettings, run)
