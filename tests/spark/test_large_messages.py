"""A message of 50 MB: read and written to Parquet in bounded memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from proton import Message
from pyspark.sql.streaming.datasource import ReadAllAvailable

from enmasse.spark.source.source import AmqpStreamReader, SpoolRange
from tests.kit.waiting import wait_for as until
from tests.spark.conftest import LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)
SIZE = 50 << 20


def peak(process: int | str = "self") -> int:
    """The most bytes that a process had in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def copied(options: dict[str, str], ranges: list[SpoolRange], target: Path) -> None:
    """Write the rows of ranges to a Parquet file; ends with status 1 if it took more than eight messages of memory."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: it was inherited
    before = peak()
    reader = AmqpStreamReader(options)

    def batches() -> Iterator[pa.RecordBatch]:
        for part in ranges:
            yield from reader.read(part)

    writer = None
    for batch in batches():
        writer = writer or pq.ParquetWriter(target, batch.schema, use_dictionary=False, write_statistics=False)
        writer.write_batch(batch)
    assert writer is not None
    writer.close()
    grown = peak() - before
    raise SystemExit(0 if grown < 8 * SIZE else f"{grown >> 20} MiB more")


@pytest.mark.slow
def test_a_message_of_50_mb_becomes_a_row_of_parquet(broker: Broker, tmp_path: Path) -> None:
    broker.queue("large")
    messages = [Message(id=f"m{n}", body=bytes([n]) * SIZE, durable=True, inferred=True) for n in range(5)]
    broker.send("large", [*messages, Message(id="small", body=b"x", durable=True, inferred=True)])
    options = {"url": broker.url, "address": "large", "spool": str(tmp_path / "spool")}
    reader = AmqpStreamReader(options)
    try:
        start = reader.initialOffset()
        until(lambda: reader.started().heads() == [6], "all in the spool")
        ranges = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        until(lambda: broker.depth("large") == 0, "the acceptances")
    finally:
        reader.stop()
    child = multiprocessing.get_context("spawn").Process(
        target=copied, args=(options, ranges, tmp_path / "out.parquet")
    )
    child.start()
    child.join()
    assert child.exitcode == 0
    found = pq.ParquetFile(tmp_path / "out.parquet")
    rows = [
        (row["message_id"], len(row["body"]), set(row["body"][:: 1 << 20]))
        for batch in found.iter_batches(1, columns=["message_id", "body"])
        for row in batch.to_pylist()
    ]
    assert rows == [*[(f"m{n}", SIZE, {n}) for n in range(5)], ("small", 1, {ord("x")})]


@pytest.mark.parametrize(
    ("size", "count", "limit"), [(4 << 20, 30, 16 << 20), pytest.param(60_000, 2500, 8 << 20, marks=pytest.mark.slow)]
)
def test_a_full_spool_leaves_large_messages_where_they_are_whatever_the_credit(
    broker: Broker, tmp_path: Path, size: int, count: int, limit: int
) -> None:
    """The receiver has credit for all of them, and keeps a few."""
    address, first = f"many-{size}", limit // size + 1
    broker.queue(address)
    options = {"url": broker.url, "address": address, "spool": str(tmp_path / "spool"), "spoollimit": str(limit)}
    reader = AmqpStreamReader(options)
    try:
        receivers = reader.started()
        receivers.await_address()
        process = receivers.processes[0].process.pid
        messages = [Message(id=f"m{n}", body=bytes(size), durable=True, inferred=True) for n in range(count)]
        broker.send(address, messages[:first])
        until(lambda: receivers.full, "a full spool")
        before = peak(process)
        broker.send(address, messages[first:])
        end: list[int] = []
        while end != [count]:
            until(lambda: receivers.full or receivers.heads() == [count], "a full spool, or all messages")
            end = receivers.heads()
            receivers.commit(end)
        until(lambda: broker.depth(address) == 0, "the acceptances")
        grown = peak(process) - before
    finally:
        reader.stop()
    assert grown < count * size // 2, f"{grown >> 20} MiB more"
