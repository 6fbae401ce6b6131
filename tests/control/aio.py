"""What tests of asyncio code share: running them, waiting for conditions, a peer to talk to."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import uvloop

P = ParamSpec("P")
DEADLINE = 90.0
"""Seconds until a wait is given up: no assertion of speed, slow machines are waited for."""
WHOLE = 240.0
"""Seconds for a whole test."""


def asyncio_test(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes a coroutine function a test; what is left over of tasks is cancelled at its end."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), WHOLE))

    return run


def uvloop_test(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """As asyncio_test, on uvloop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), WHOLE))

    return run


async def until(condition: Callable[[], Any], what: str = "", seconds: float = DEADLINE) -> Any:
    """The first true value of `condition()`, or of what it gives to be awaited; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        found, pause = condition(), 0.005
        if inspect.isawaitable(found):
            found, pause = await found, 0.05  # it asks another process
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        await asyncio.sleep(pause)


def wait_until(condition: Callable[[], Any], what: str = "", seconds: float = DEADLINE) -> None:
    """As `until`, for tests without a loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(0.005)
