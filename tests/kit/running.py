"""Running coroutines as tests, with a limit of time for the whole test."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import uvloop

P = ParamSpec("P")
WHOLE = 240.0
"""Seconds for a whole test."""
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop,
}  # fmt: skip


def run(test: Coroutine[Any, Any, None], loop: str = "asyncio") -> None:
    """Run a test on one kind of event loop. Tasks that are left over are cancelled at its end."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(test, WHOLE))


def asyncio_test(test: Callable[P, Coroutine[Any, Any, None]], loop: str = "asyncio") -> Callable[P, None]:
    """Turn a coroutine function into a test."""

    @functools.wraps(test)
    def main(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs), loop)

    return main


uvloop_test = functools.partial(asyncio_test, loop="uvloop")
"""Turn a coroutine function into a test on uvloop."""
