"""Running coroutines as tests, with a limit of time for the whole test, and as servers beside a test."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

import uvloop

P = ParamSpec("P")
WHOLE = 240.0
"""Seconds for a whole test."""
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop,
}  # fmt: skip


def run(test: Coroutine[Any, Any, None], loop: str = "asyncio", seconds: float = WHOLE) -> None:
    """Run a test on one kind of event loop. Tasks that are left over are cancelled at its end."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(test, seconds))


def asyncio_test(
    test: Callable[P, Coroutine[Any, Any, None]], loop: str = "asyncio", seconds: float = WHOLE
) -> Callable[P, None]:
    """Turn a coroutine function into a test. `seconds`: its limit."""

    @functools.wraps(test)
    def main(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs), loop, seconds)

    return main


Listening = Callable[[int], Awaitable[None]]
"""Called by a server with its port once it listens; returns when the server is to close."""


@contextmanager
def server(serve: Callable[[Listening], Coroutine[Any, Any, None]]) -> Iterator[int]:
    """Run a server in a thread as long as the block, which gets its port."""
    started: list[int] = []
    ready, stop = threading.Event(), threading.Event()

    async def listening(port: int) -> None:
        started.append(port)
        ready.set()
        await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(listening),))
    thread.start()
    assert ready.wait(60)
    try:
        yield started[0]
    finally:
        stop.set()
        thread.join(60)


uvloop_test = functools.partial(asyncio_test, loop="uvloop")
"""Turn a coroutine function into a test on uvloop."""
