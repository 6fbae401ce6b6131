"""The `enmasse` command. Each subcommand is a module of its own, imported only if it is called (start-up time).

Commands may import the model, the AMQP engine with `enmasse.aio`, and the supervisor. Nothing imports them; they do not
use the control plane's AMQP.
"""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from enmasse.process.terminal import has_terminal

STOPPING = (signal.SIGINT, signal.SIGTERM)
"""Signals that end `enmasse up` with status 0."""


def main() -> None:
    """Run the console script. Exit statuses: docs/cli.md."""
    if sys.argv[1:2] == ["up"]:
        for number in STOPPING:
            signal.signal(number, _stop_early)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
            signal.signal(signal.SIGHUP, _hung_up_early if has_terminal() else _read_anyway)
    try:
        from enmasse.cli.registry import run

        status = run()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)


def _hung_up_early(*_: object) -> None:
    """End with the terminal; elsewhere it is the order to read the options, which are read now."""
    if not has_terminal():
        sys.exit(0)


def _read_anyway(*_: object) -> None:
    """Do nothing: the options are being read."""


def _stop_early(*_: object) -> NoReturn:
    """Before the suite has installed its handlers nothing runs that has to be stopped."""
    sys.exit(0)
