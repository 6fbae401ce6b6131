"""Releases of PySpark: those that work, and the ends of source and sink that 4.0 and 4.1 call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from proton import Message
from pyspark.sql import Row
from pyspark.sql.types import MapType, StringType, StructType

from enmasse.spark import versions
from enmasse.spark.sink import record_batches
from enmasse.spark.source.earlier import EarlierStreamReader
from enmasse.spark.spool.segment import SpoolError
from enmasse.testing import wait_for
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)


@pytest.mark.parametrize("version", ["3.5.8", "3.4.1-amzn-2", "2"])
def test_a_release_that_is_too_old_is_refused_with_those_that_work(version: str) -> None:
    with pytest.raises(versions.VersionError, match=rf"PySpark 4\.0 to 4\.\d, and .*/pyspark is PySpark {version}: "):
        versions.check(version)


@pytest.mark.parametrize("version", ["4.0.0", "4.0.1-amzn-0", "4.1.0.dev0", "4.9.0", "5.0.0"])
def test_later_ones_and_those_of_vendors_are_taken(version: str) -> None:
    versions.check(version)


class Run:
    """A run of a query, as Spark 4.0 and 4.1 make it."""

    def __init__(self, broker: Broker, address: str, folder: Path, **options: str) -> None:
        self.reader = EarlierStreamReader(
            {"url": broker.url, "address": address, "spool": str(folder / "spool"), **options}
        )

    def batch(self, start: dict[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
        """The end of the next batch, which is asked for before its start, and the ids of its messages."""
        end = self.reader.latestOffset()
        start = start or self.reader.initialOffset()
        parts = self.reader.partitions(start, end) if end != start else []
        found = [row["message_id"] for part in parts for rows in self.reader.read(part) for row in rows.to_pylist()]
        return end, found


def numbered(start: int, end: int) -> list[Message]:
    return [Message(id=f"m{i}", body=f"body {i}", durable=True) for i in range(start, end)]


def test_limits_hold_from_the_second_batch_of_each_run(broker: Broker, tmp_path: Path) -> None:
    broker.queue("earlier")
    at, sent = None, 0
    for expected in ([25, 10, 10], [55, 10]):
        run = Run(broker, "earlier", tmp_path, maxrowspertrigger="10")
        found = []
        try:
            for _ in expected:
                more = 25
                broker.send("earlier", numbered(sent, sent + more))
                sent += more
                wait_for("all in the spool", lambda: run.reader.started().heads() == [sent], DEADLINE)
                at, ids = run.batch(at)
                found.append(ids)
        finally:
            run.reader.stop()
        assert [len(each) for each in found] == expected


def test_starting_at_the_latest_message_leaves_out_none_that_comes_later(broker: Broker, tmp_path: Path) -> None:
    broker.queue("late")
    broker.send("late", numbered(0, 5))
    run = Run(broker, "late", tmp_path, startingoffsets="latest")
    try:
        wait_for("all in the spool", lambda: run.reader.started().heads() == [5], DEADLINE)
        at, ids = run.batch(None)
        assert ids == []
        broker.send("late", numbered(5, 8))
        wait_for("all in the spool", lambda: run.reader.started().heads() == [8], DEADLINE)
        assert run.batch(at)[1] == ["m5", "m6", "m7"]
    finally:
        run.reader.stop()


def test_one_batch_has_what_is_on_its_way(broker: Broker, tmp_path: Path) -> None:
    """As with availableNow, which is one batch there."""
    broker.queue("on-its-way")
    broker.send("on-its-way", numbered(0, 500))
    run = Run(broker, "on-its-way", tmp_path, credit="7")
    try:
        assert run.batch(None)[1] == [f"m{i}" for i in range(500)]
    finally:
        run.reader.stop()


def test_a_full_spool_is_freed_of_what_is_processed_alone(broker: Broker, tmp_path: Path) -> None:
    broker.queue("full")
    broker.send("full", [Message(id=f"m{i}", body="x" * 1000, durable=True) for i in range(100)])
    at: dict[str, Any] = {"record": 0}
    found: list[str] = []
    while len(found) < 100:  # each run ends after a batch: the next one does not know where it began
        run = Run(broker, "full", tmp_path, spoollimit="20000", credit="5")
        try:
            for _ in range(2):
                at, ids = run.batch(at)
                found += ids
        finally:
            run.reader.stop()
    assert found == [f"m{i}" for i in range(100)]


def test_a_checkpoint_that_is_ahead_of_the_spool_is_refused(broker: Broker, tmp_path: Path) -> None:
    broker.queue("emptied")
    run = Run(broker, "emptied", tmp_path)
    try:
        with pytest.raises(SpoolError, match="it was emptied or replaced"):
            run.batch({"record": 7})
    finally:
        run.reader.stop()


def test_rows_become_record_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_batches, "MOST", 2)
    schema = StructType().add("body", "binary").add("priority", "integer")
    schema.add("application_properties", MapType(StringType(), StringType()))
    given = [Row(body=b"%d" % n, priority=n, application_properties={"n": str(n)}) for n in range(3)]
    found = list(record_batches.batches(iter(given), schema))
    assert [batch.num_rows for batch in found] == [2, 1]
    assert found[1].to_pylist() == [{"body": b"2", "priority": 2, "application_properties": [("n", "2")]}]
