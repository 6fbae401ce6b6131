"""A process that was stopped reads what peers have sent before it judges them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from enmasse.network.deadline import LATE
from enmasse.supervisor.children.os_process import state
from tests.kit.running import LOOPS
from tests.kit.waiting import DEADLINE, wait_for
from tests.network.judging import SECONDS


def test_what_came_while_the_process_was_stopped_is_read_before_a_deadline_passes() -> None:
    """With both kinds of event loop."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.network.judging", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for loop in LOOPS
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"waits\n"
        wait_for(lambda process=process: state(process.pid) == b"S", "the loop waits")  # type: ignore[misc]  # mypy infers no type of a lambda's default
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda process=process: state(process.pid) == b"T", "it is stopped")  # type: ignore[misc]  # mypy infers no type of a lambda's default
    # pause: until the deadlines are past
    time.sleep(SECONDS + 2 * LATE)
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.flush()
        process.send_signal(signal.SIGCONT)
    for process in processes:
        assert process.communicate(timeout=DEADLINE)[0] == b"read b'x'\npassed\n"
