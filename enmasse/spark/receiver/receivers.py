"""The receiver processes of a query, as the driver-side reader starts and sees them."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from enmasse import spark_jobs
from enmasse.spark.errors import QueryError
from enmasse.spark.options import shown
from enmasse.spark.receiver.account import ENDED
from enmasse.spark.spool.segment import partition_folder, partitions_of, segments
from enmasse.spark.spool.spool import MappedCount, head_of

log = logging.getLogger("enmasse.spark.source.source")

STOP_SECONDS = 20.0
UNKNOWN_COPIES = (
    "messages have no message-id: one that is redelivered after a kill or a lost connection is a second row. Have its "
    "sender give each message an id"
)
ATTACH_SECONDS = 3.0
"""How long the first batch of a query waits for the address."""
FIRST_SECONDS = 0.5
"""How long it then waits for a first message."""
QUIET_SECONDS = 10.0
"""How long it waits at most for the last one, where it may be the only batch."""


STATES = ("starting", "attached", "lost", "failed")
"""States of a receiver process; `lost`: it tries again."""


class ReceiverError(QueryError):
    """The receiver process has ended: the text gives the reason and what to do."""


def execute(descriptors: Sequence[int]) -> subprocess.Popen[str]:
    """Start a receiver process, which inherits these descriptors."""
    return subprocess.Popen(
        [sys.executable, "-m", "enmasse.spark.receiver.spool_receiver"],
        stdin=subprocess.PIPE,  # the settings, then commits; the receiver ends with it
        stdout=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        pass_fds=descriptors,
    )


class ReceiverProcess:
    """Receiver process as the driver-side reader sees it. `folder`: of the partition that it writes."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """settings: those of enmasse.spark.receiver.spool_receiver.ReceiverSettings."""
        self.source = f"{settings['address']!r} at {shown(settings['url'])}"
        self.trouble = ""
        self.available: int | None = None  # messages at the address, if the server states it
        self.without_id = 0  # messages that came without a message-id
        self.full = False  # the spool: nothing comes until segments are deleted
        self.opened = threading.Event()
        self.attached = threading.Event()
        self.drained = threading.Event()
        self.process = execute(settings.get("account", ()))
        spark_jobs.note_attaching(self.process.pid)
        self.state = "starting"
        self._write(settings)
        self.folder = partition_folder(Path(settings["spool"]), settings.get("partition", 0))
        self.events = threading.Thread(target=self._read_events, daemon=True)
        self.events.start()

    def check(self) -> None:
        """Check that the process runs. Raises ReceiverError if it has ended."""
        if self.process.poll() is not None:
            raise ReceiverError(self.reason())

    def reason(self) -> str:
        """Return why the process has ended."""
        self.events.join(60)  # the last one gives the reason
        return self.trouble or f"amqp source: the receiver ended with {self.process.returncode}"

    def await_spool(self) -> MappedCount:
        """Return the number of records of its partition, once the spool is open. Raises ReceiverError."""
        while not self.opened.wait(0.05):
            self.check()
        return head_of(self.folder)

    def commit(self, partition: int, end: int) -> None:
        """Have whole segments of a partition before record `end` deleted. If that is never done the spool only
        grows."""
        self._write([partition, end])

    def drain(self) -> None:
        """Limit it to what the address holds now; `drained` is set when all of that is in the spool."""
        self._write("drain")

    def close(self) -> None:
        """Let the process end, as soon as it can."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def stop(self) -> None:
        """Let the process end; kill it if it has not ended after STOP_SECONDS."""
        self.close()
        try:
            self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()  # messages that it has not accepted are redelivered
            self.process.wait()

    def _write(self, line: dict[str, Any] | list[int] | str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: check() raises that
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()

    def _read_events(self) -> None:
        for line in self.process.stdout or ():
            try:
                change = json.loads(line)
                if not isinstance(change["event"], str):
                    raise ValueError(line)
            except (ValueError, TypeError, KeyError):
                log.warning("spark.receiver.line-ignored source=%s line=%r", self.source, line[:200])
            else:
                self._on_event(change)

    def _on_event(self, change: dict[str, Any]) -> None:
        """Handle a change of state: logged once when trouble begins, and once when it ends."""
        event, before = change["event"], self.trouble
        if event in STATES:
            self.state = event
        if event == "opened":
            self.opened.set()
        elif event == "attached":
            self.attached.set()
            spark_jobs.note_attached(self.process.pid)
            self.trouble = ""
            if before:
                log.warning("spark.source.resumed source=%s", self.source)
        elif event in ("lost", "failed"):
            self.available = None
            self.trouble = str(change["reason"])
            if event == "lost" and not before:
                log.warning("spark.source.interrupted source=%s reason=%s", self.source, self.trouble)
        elif event == "available":
            self.available = change["messages"]
        elif event == "without-id":
            if not self.without_id:
                log.warning("spark.source.ids-missing source=%s reason=%s", self.source, UNKNOWN_COPIES)
            self.without_id = change["messages"]
        elif event == "drained":
            self.drained.set()
        elif event == "full":
            self.full = True
            log.warning("spark.spool.filled source=%s bytes=%d", self.source, change["bytes"])
        elif event == "room":
            self.full = False
            log.warning("spark.spool.freed source=%s", self.source)


class Receivers:
    """The receivers of a query, one for each partition of its spool, and the partitions that no longer have one."""

    def __init__(self, settings: dict[str, Any], number: int) -> None:
        """Start them; return when all partitions are open. Raises ReceiverError.

        settings: those of enmasse.spark.receiver.spool_receiver.ReceiverSettings, but for `partition` and `account`.
        """
        self.folder = Path(settings["spool"])
        pairs = [socket.socketpair() for _ in range(1, number)]
        ends = [tuple(pair[0].fileno() for pair in pairs), *[(pair[1].fileno(),) for pair in pairs]]
        self.processes = [
            ReceiverProcess({**settings, "partition": n, "account": account}) for n, account in enumerate(ends)
        ]
        for pair in pairs:
            for end in pair:
                end.close()
        self._heads = [process.await_spool() for process in self.processes]
        self._committed: dict[int, int] = {}
        left = range(number, partitions_of(self.folder))
        self._heads += [head_of(partition_folder(self.folder, n)) for n in left]

    def heads(self) -> list[int]:
        """Return the number of records of each partition."""
        return [head.get() for head in self._heads]

    def firsts(self) -> list[int]:
        """Return the first record that each partition still holds."""
        known = [segments(partition_folder(self.folder, n)) for n in range(len(self._heads))]
        return [each[0][0] if each else 0 for each in known]

    @property
    def available(self) -> int | None:
        """Return how many messages wait at the address, which the receivers share; None if that is unknown."""
        return max((one.available for one in self.processes if one.available is not None), default=None)

    @property
    def without_id(self) -> int:
        """Return how many messages have come without a message-id since the query has started."""
        return sum(one.without_id for one in self.processes)

    @property
    def full(self) -> bool:
        """Whether a partition is at its limit: its receiver takes nothing until segments are deleted."""
        return any(process.full for process in self.processes)

    def check(self) -> None:
        """Check that all processes run. Raises ReceiverError if one has ended."""
        if all(process.process.poll() is None for process in self.processes):
            return
        reasons = [process.reason() for process in self.processes if process.process.poll() is not None]
        raise ReceiverError(next((reason for reason in reasons if reason != ENDED), reasons[0]))

    def await_address(self) -> None:
        """Return once the address is attached.

        Raises ReceiverError if a receiver ends instead, which it does in bounded time.
        """
        for process in self.processes:
            while not process.attached.wait(0.1):
                self.check()

    def await_records(self, done: list[int]) -> None:
        """Return when a partition holds more records than `done` names, or none has arrived for FIRST_SECONDS.

        Raises ReceiverError.
        """
        until = time.monotonic() + ATTACH_SECONDS
        for process in self.processes:
            process.attached.wait(max(0.0, until - time.monotonic()))
        deadline = time.monotonic() + FIRST_SECONDS
        while all(head <= end for head, end in zip(self.heads(), done, strict=True)) and time.monotonic() < deadline:
            self.check()
            time.sleep(0.01)

    def await_quiet(self) -> None:
        """Return when nothing has arrived for FIRST_SECONDS, or after QUIET_SECONDS. Raises ReceiverError."""
        until = time.monotonic() + ATTACH_SECONDS
        for process in self.processes:
            process.attached.wait(max(0.0, until - time.monotonic()))
        heads, since = self.heads(), time.monotonic()
        until = since + QUIET_SECONDS
        while time.monotonic() < min(since + FIRST_SECONDS, until):
            self.check()
            time.sleep(0.01)
            if (now := self.heads()) != heads:
                heads, since = now, time.monotonic()

    def commit(self, ends: list[int]) -> None:
        """Have whole segments before these records deleted, by partition. If that is never done the spool only
        grows."""
        for partition, end in enumerate(ends):
            if self._committed.get(partition) != end:
                self._committed[partition] = end
                process = self.processes[partition if partition < len(self.processes) else 0]
                process.commit(partition, end)

    def drain(self) -> None:
        """Limit them to what the address holds now; then `drained` holds."""
        for process in self.processes:
            process.drain()

    @property
    def drained(self) -> bool:
        """Whether all that the address held is in the spool."""
        return all(process.drained.is_set() for process in self.processes)

    def stop(self) -> None:
        """Let the processes end, the first one last: it has the account. Kill those that do not."""
        for process in self.processes[1:]:
            process.close()
        for process in reversed(self.processes):
            process.stop()
