"""Running a Python program as a process of the suite: settings, logs, signals, and an end with its parent.

    if __name__ == "__main__":
        process.start(Settings, serve)          # async def serve(settings: Settings, stop: Stop) -> None

`serve` returns soon after `stop` is set, or within `stop.patience`; what it raises ends the process with status 1
(`Fatal`: with one line).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import selectors
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from enmasse import errors
from enmasse.logs import log
from enmasse.process import allocator, settings
from enmasse.process.startup import die_with_parent, end
from enmasse.text import offset_option

GRACE = 10.0
"""Seconds a service may take from the signal to its end; then it is cancelled."""


class Fatal(Exception):
    """Ends the process with one line: what is wrong, where, and what to do. `id`: an entry of enmasse/errors.py."""

    def __init__(self, id: str, text: str) -> None:
        super().__init__(errors.marked(id, text))


PORT_OFFSET = "ENMASSE_PORT_OFFSET"
"""The variable of the environment in which `enmasse up` names its suite to its processes."""


def command(words: str) -> str:
    """Return an `enmasse` command to propose to people, for the suite of this process."""
    return f"`enmasse {words}{offset_option(int(os.environ.get(PORT_OFFSET, '0')))}`"


async def woken(wake: asyncio.Event, seconds: float | None) -> None:
    """Wait until `wake` is set, `seconds` at most (None: as long as it takes), and clear it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wake.wait()
    wake.clear()


class Stop(asyncio.Event):
    """Set by the order to end. `patience`: seconds beside GRACE that the process takes for it, if it hands its clients
    on first; `hurry` is set by SIGINT, and by a second order: it ends at once."""

    def __init__(self) -> None:
        super().__init__()
        self.patience = 0.0
        self.hurry = asyncio.Event()
        self.read_again = asyncio.Event()
        """Set by SIGHUP: the file with the settings has changed."""
        self._take: Callable[[Any], Awaitable[None]] | None = None

    def on_settings(self, take: Callable[[Any], Awaitable[None]]) -> None:
        """Have `take(settings)` called when the file with the settings has changed. It applies those that a running
        process can, in any order of calls; the file may have changed already."""
        self._take = take
        self.read_again.set()

    async def follow(self, read: Callable[[], settings.ServiceSettings], level: str) -> None:
        """Apply changed settings until cancelled. `read` raises ServiceSettingsError; `level`: of the log, now."""
        while True:
            await self.read_again.wait()
            self.read_again.clear()
            try:
                found = read()
            except settings.ServiceSettingsError as error:
                log.get().error("process.settings.rejected", reason=str(error))
                continue
            if found.log_level != level:
                level = found.log_level
                log.set_level(level)
            if self._take is not None and not self.is_set():
                await self._take(found)


S = TypeVar("S", bound=settings.ServiceSettings)


class TurnGuard(selectors.DefaultSelector):
    """An event loop's selector that calls `check` first in each turn of the loop.

    For a process that may act only for a time (enmasse/kubernetes/lease.py): after SIGSTOP and SIGCONT, sockets and
    timers that are due would otherwise be served first. `check` does not return if the time has expired.
    """

    check: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the file objects that are ready, as the base class does, after `check` has returned."""
        found = super().select(timeout)
        if TurnGuard.check is not None:
            TurnGuard.check()
        return found


def start(
    kind: type[S],
    run: Callable[[S, Stop], Awaitable[None]],
    *,
    use_uvloop: bool = False,
    guarded: bool = False,
) -> NoReturn:
    """`python -m services.<name> --config FILE`: loads the settings, sets up logs, runs until a signal.

    `guarded`: the loop has a TurnGuard.
    """
    die_with_parent()
    file = _config_argument(sys.argv[1:])
    config = settings.load(file, kind)
    log.setup(config.log_level, audit_file=config.audit, service=config.name)

    async def followed(stop: Stop) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop.read_again.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked since the start of the process
        following = spawn(stop.follow(lambda: settings.of_process(file, kind), config.log_level), "settings")
        try:
            await run(config, stop)
        finally:
            following.cancel()

    main(followed, use_uvloop=use_uvloop, guarded=guarded)


def main(run: Callable[[Stop], Awaitable[None]], *, use_uvloop: bool = False, guarded: bool = False) -> NoReturn:
    """Run `run(stop)`; SIGTERM and SIGINT set `stop`. Ends the process: status 0, or 1 after an exception.

    `use_uvloop`: for a process that carries messages, which also keeps memory that it has freed for the next ones.
    """
    die_with_parent()
    if use_uvloop:
        allocator.share_heap()
    else:
        allocator.keep_little()
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if guarded:
        factory = _guarded_loop
    if use_uvloop:
        try:
            import uvloop

            factory = uvloop.new_event_loop
        except ImportError:
            pass
    status = 0
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_until_stopped(run))
    except Fatal as error:
        log.say(str(error))
        status = 1
    except asyncio.CancelledError:
        log.get().warning("process.stop.timed-out", seconds=GRACE)
    except Exception:
        log.get().exception("process.failed")
        status = 1
    end(status)


def _guarded_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(TurnGuard())


async def _until_stopped(run: Callable[[Stop], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    stop = Stop()
    me = asyncio.current_task()
    assert me is not None
    gc.freeze()  # what has been imported stays
    gc.enable()

    def asked_to_stop(number: int) -> None:
        hurries = number == signal.SIGINT or stop.is_set() or not stop.patience
        if not stop.is_set():
            stop.set()
            loop.call_later(stop.patience + GRACE, me.cancel)
        if hurries and not stop.hurry.is_set():
            stop.hurry.set()
            loop.call_later(GRACE, me.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop, number)
    await run(stop)


def cannot_listen(address: str, error: OSError, setting: str) -> Fatal:
    """The one line for a port that cannot be had; `setting` names the setting with the port."""
    reason = (
        "the port is in use by another process" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
    )
    return Fatal(
        "service.port.not-available",
        f"cannot listen on {address}: {reason}; choose another one in the setting {setting!r}",
    )


_background: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """A task that is not lost to the garbage collector and whose failure is logged."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _background.add(task)
    task.add_done_callback(_ended)
    return task


async def join(task: asyncio.Task[Any]) -> None:
    """Wait until a task has ended. Raises what it raised, but not its cancellation: a CancelledError is that of
    the caller. (`await task` raises one for either.)"""
    await asyncio.wait((task,))
    if not task.cancelled():
        task.result()


def _ended(task: asyncio.Task[Any]) -> None:
    _background.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.get().error("process.task.failed", task=task.get_name(), exc_info=error)


def _config_argument(arguments: list[str]) -> str:
    if len(arguments) == 1 and arguments[0].startswith("--config="):
        return arguments[0].removeprefix("--config=")
    if len(arguments) == 2 and arguments[0] == "--config":
        return arguments[1]
    settings.end(f"usage: {os.path.basename(os.path.dirname(sys.argv[0])) or sys.argv[0]} --config FILE.json")
