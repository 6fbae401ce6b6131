"""A spool whose disk is full: nothing is accepted, nothing is lost, and it goes on when there is room.

As root on a file system of its own (tmpfs); else with a limit for the size of files, which a write meets as it meets a
full disk.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from pyspark.sql.streaming.datasource import ReadAllAvailable

from enmasse.spark.source.source import AmqpStreamReader
from tests.kit.waiting import wait_for as until
from tests.spark.conftest import LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)
COUNT = 400
DISK = 256 << 10


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount one there, if this user may; gives whether it is one."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], capture_output=True)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def rows(reader: AmqpStreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def filling(folder: Path, mounted: bool, pid: int) -> Callable[[], object]:
    """Leave room for a few messages; returns how to make room."""
    if mounted:
        ballast = folder / "ballast"
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        ballast.write_bytes(bytes(free - (32 << 10)))
        return ballast.unlink
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (32 << 10, resource.RLIM_INFINITY))
    return lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def test_a_full_disk_stops_the_source_until_there_is_room(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.queue("disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    with small_disk(disk) as mounted:
        options = {"url": broker.url, "address": "disk", "spool": str(disk / "spool"), "credit": "20"}
        reader = AmqpStreamReader(options)
        try:
            start = reader.initialOffset()
            reader.started().await_address()
            process = reader.started().processes[0]
            make_room = filling(disk, mounted, process.process.pid)
            broker.send("disk", [Message(id=str(n), body="x" * 300, durable=True) for n in range(COUNT)])
            until(lambda: process.state == "lost", "a receiver that cannot store")
            assert "the spool cannot be written" in process.trouble
            stored = reader.started().heads()[0]
            until(lambda: broker.depth("disk") == COUNT - stored, "all that was not stored at the broker")
            assert 0 < stored < COUNT
            read = rows(reader, start, end := reader.latestOffset(start, ReadAllAvailable()))
            assert [row["message_id"] for row in read] == [str(n) for n in range(stored)], "what was stored is readable"
            make_room()
            until(lambda: reader.started().heads()[0] == COUNT, "the rest")
            until(lambda: broker.depth("disk") == 0, "the broker to have all acceptances")
            read += rows(reader, end, reader.latestOffset(end, ReadAllAvailable()))
        finally:
            reader.stop()
    assert [row["message_id"] for row in read] == [str(n) for n in range(COUNT)]
    said = [record.getMessage().split(" ")[0] for record in caplog.records]
    assert said == ["spark.source.interrupted", "spark.source.resumed"]
    assert max(row["delivery_count"] for row in read) <= 1, "what had arrived when the disk was full came once more"
