"""subserv that kills itself: `python -m tests.subserv.killed FOLDER --config FILE`.

A step is whatever others can see of it: a write to the store begun or done, a request to a broker, a message sent or
accepted. Steps are counted while the file `armed` is in FOLDER; at that whose number is in it, SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from enmasse.control.link import ControlSender, Delivery
from enmasse.control.management import Management
from enmasse.process import runner
from enmasse.stores import Store
from services.subserv import service
from services.subserv.app import SubservSettings, serve

FOLDER = Path(sys.argv.pop(1))
_count = 0


def step() -> None:
    global _count
    try:
        number = int((FOLDER / "armed").read_text() or "0")
    except OSError:
        return
    _count += 1
    if _count == number:
        os.kill(os.getpid(), signal.SIGKILL)


def counted(kind: type[Any], name: str) -> None:
    """Each call is a step, before it is made."""
    original: Callable[..., Any] = getattr(kind, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        step()
        return original(*args, **kwargs)

    setattr(kind, name, call)


def written(original: Callable[..., Any]) -> Callable[..., Any]:
    """A write is a step before and after."""

    def call(self: Store, changes: Any) -> Any:
        if changes:
            step()
        done = original(self, changes)
        if changes:
            done.add_done_callback(lambda _: step())
        return done

    return call


if __name__ == "__main__":
    service.FORGET = 3600.0  # no broker has the messages of groups that the gateway tells of: they would be forgotten
    counted(Management, "request")
    counted(ControlSender, "send")
    counted(Delivery, "accept")
    Store.write = written(Store.write)  # type: ignore[method-assign]  # replaced by the test
    runner.start(SubservSettings, serve)
