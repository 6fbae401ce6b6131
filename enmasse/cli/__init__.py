"""The `enmasse` command. Each subcommand is a module of its own, imported only if it is called (start-up time).

Commands may import the model, the AMQP engine with `enmasse.aio`, and the supervisor. Nothing imports them; they do not
use the control plane's AMQP.
"""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end `enmasse up` with status 0; SIGHUP unless it is ignored (nohup)."""


def main() -> None:
    """Run the console script. Exit statuses: docs/cli.md."""
    if sys.argv[1:2] == ["up"]:
        for number in STOPPING:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _stop_early)
    try:
        from enmasse.cli.registry import run

        status = run()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _stop_early(*_: object) -> NoReturn:
    """Before the suite has installed its handlers nothing runs that has to be stopped."""
    sys.exit(0)
