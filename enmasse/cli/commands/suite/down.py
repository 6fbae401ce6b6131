"""`enmasse down`: stop the running suite."""

from __future__ import annotations

import os
import select
import signal

import click

from enmasse.cli.common import TIMED_OUT, UNREACHABLE, Seconds, done, end, port_offset


@click.command(name="down", short_help="Stop the running suite.")
@click.option("--timeout", type=Seconds(), default=60.0, show_default=True, metavar="SECONDS",
              help="How long to wait for its end.")  # fmt: skip
@port_offset
def command(timeout: float, offset: int) -> None:
    """Stop the running suite, as Ctrl-C in the terminal of `enmasse up` does, and wait until it has ended.

    Exit status 0: it has ended. 1: another user runs it. 3: it has not ended within --timeout. 4: no suite is running.
    """
    from enmasse.cli.contexts.http import NotRunning, suite_info

    try:
        pid = int(suite_info(offset)["pid"])
        handle = os.pidfd_open(pid)
        if suite_info(offset)["pid"] != pid:  # it ended, and its id may belong to another process
            raise NotRunning("EnMasse was just restarted: run the command again.")
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    except (NotRunning, ProcessLookupError) as error:
        text = str(error) if isinstance(error, NotRunning) else "EnMasse is not running: it has just ended."
        end("suite.http.unreachable", text, UNREACHABLE)
    except PermissionError:
        end("suite.stop.denied", f"process {pid} belongs to another user: run the command as the user of `enmasse up`")
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    if not ended.poll(timeout * 1000):
        end("suite.stop.incomplete", f"process {pid} got SIGTERM and still runs after {timeout:g} s", TIMED_OUT)
    done("stopped", "stopped", pid=pid)
