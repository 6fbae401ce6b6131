"""How far a query is behind its spool."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.spark.source.lag import Lag
from enmasse.spark.spool import spool as spooling
from enmasse.spark.spool.segment import partition_folder, segments
from enmasse.spark.spool.spool import SpoolWriter


def test_what_is_behind_the_batch_is_counted_with_its_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "SEGMENT_BYTES", 300)
    writer = SpoolWriter(tmp_path)
    for n in range(20):
        writer.append(b"m" * 84, 1000 * n)
        writer.sync()
    lag = Lag(tmp_path)
    assert lag.report([5], [20], 6_500) == {"behind": 15, "oldestSeconds": 1.5, "spoolBytes": 2000}
    assert lag.report([5], [20], 9_000)["oldestSeconds"] == 4.0, "it grows while nothing happens"
    assert lag.report([5], [20], 0)["oldestSeconds"] == 0, "the clock was set back"
    assert lag.report([20], [20], 9_000) == {"behind": 0, "oldestSeconds": None, "spoolBytes": 2000}
    writer.forget(writer.forgettable(20))
    first = segments(tmp_path)[0][0]
    assert lag.report([19], [20], 20_000)["spoolBytes"] == (20 - first) * 100
    assert lag.report([0], [20], 20_000)["oldestSeconds"] is None, "the record is gone"
    writer.close()


def test_partitions_are_counted_together(tmp_path: Path) -> None:
    for n, start in enumerate((7000, 2000)):
        writer = SpoolWriter(partition_folder(tmp_path, n))
        for ms in range(10):
            writer.append(b"m" * 84, start + ms)
        writer.sync()
        writer.close()
    report = Lag(tmp_path).report([3, 8], [10, 10], 9_008)
    assert report == {"behind": 9, "oldestSeconds": 7.0, "spoolBytes": 2000}
