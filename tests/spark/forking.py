"""Receivers that a test starts in its own process, forked from one that has imported them: 0.03 s of processor time
instead of 0.2. Those that share an account with others inherit its descriptor, and are executed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from enmasse.spark.receiver import receivers
from tests.kit import processes

RECEIVER = processes.Program(
    ("-m", "enmasse.spark.receiver.spool_receiver"), ("enmasse.spark.receiver.spool_receiver", "encodings.idna")
)
executed = receivers.execute


class ForkedReceiver(processes.Forked):
    """A forked receiver with its pipes, as the reader uses subprocess.Popen."""

    def __init__(self, process: processes.Forked, stdin: int, stdout: int) -> None:
        super().__init__(process.pid, process.status)
        self.stdin = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = os.fdopen(stdout, encoding="utf-8", errors="replace")


def start(descriptors: Sequence[int]) -> subprocess.Popen[str] | ForkedReceiver:
    """Start a receiver process: forked where that is possible."""
    if descriptors or not processes.forks(RECEIVER, {}):
        return executed(descriptors)
    (reading, given), (events, writing) = os.pipe(), os.pipe()
    try:
        process = processes.start(RECEIVER, stdin=reading, stdout=writing)
    finally:
        os.close(reading)
        os.close(writing)
    assert isinstance(process, processes.Forked)
    return ForkedReceiver(process, given, events)
