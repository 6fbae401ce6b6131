"""The first and the last moment of a service: `__main__.py` calls `begin` before it imports the rest, which takes a
tenth of a second, and seconds on a busy machine. Imports next to nothing itself.

`python -m enmasse.process.startup PROGRAM ARGUMENT…` runs a program of others so that it, too, ends with its parent.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def begin() -> None:
    """Prepare the process, before the imports. The event loop of `process.main` turns the collector on again."""
    die_with_parent()
    # It says that the settings have changed, and waits for its handler (enmasse/process/runner.py).
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    os.umask(0o077)  # what a service writes holds messages, or settings with secrets
    gc.disable()  # importing makes a lot, and no garbage


def die_with_parent() -> None:
    """With ENMASSE_PARENT=<pid> in the environment: this process is killed when that parent dies, however it dies.

    Ends the process with status 2 where the parent is gone already.
    """
    wanted = os.environ.get("ENMASSE_PARENT")
    if not wanted:
        return
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before the call above: then we have another one by now.
    if str(os.getppid()) != wanted:
        sys.stderr.write(f"the parent process {wanted} is gone (ENMASSE_PARENT)\n")
        raise SystemExit(2)


def end(status: int) -> NoReturn:
    """End the process as the interpreter does it, but leave in place what was imported: to take that apart writes into
    all memory that a forked process shares, so all of it is copied first (30 ms of processor time)."""
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        raise SystemExit(status) from None  # the interpreter says what it could not write
    os._exit(status)


if __name__ == "__main__":
    die_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606  what `enmasse up` has found on PATH
