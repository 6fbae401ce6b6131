"""A clock that jumps: neither the ownership of a spool nor ages depend on it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from enmasse.spark.source.lag import Lag
from enmasse.spark.spool.ownership import SpoolTakenError
from enmasse.spark.spool.segment import read_spool
from enmasse.spark.spool.spool import SpoolWriter

YEAR_MS = 365 * 24 * 3600 * 1000


@pytest.mark.parametrize("jump", [-50 * YEAR_MS, -1, 1, 50 * YEAR_MS])
def test_a_clock_that_jumps_neither_ends_nor_lends_the_ownership(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    """An owner keeps its spool however late it seems to be; one that was replaced stays replaced however early."""
    now = time.time_ns() // 1_000_000
    writer = SpoolWriter(tmp_path)
    writer.append(b"before", now)
    writer.sync()
    later = now + jump
    monkeypatch.setattr(time, "time", lambda: later / 1000)
    monkeypatch.setattr(time, "time_ns", lambda: later * 1_000_000)
    os.utime(tmp_path / "owner", (later / 1000, later / 1000))
    writer.append(b"after", later)
    writer.sync()
    assert [record.message for record in read_spool(tmp_path, 0, 2)] == [b"before", b"after"]
    os.unlink(tmp_path / "lock")  # on another machine, whose locks are not ours
    second = SpoolWriter(tmp_path)
    writer.append(b"too late", now)
    with pytest.raises(SpoolTakenError):
        writer.sync()
    second.append(b"of the second", later)
    second.sync()
    assert [record.message for record in read_spool(tmp_path, 0, 3)] == [b"before", b"after", b"of the second"]
    for one in (writer, second):
        one.close()


@pytest.mark.parametrize("jump", [-50 * YEAR_MS, 50 * YEAR_MS])
def test_ages_are_never_negative_and_are_right_again_behind_the_jump(tmp_path: Path, jump: int) -> None:
    now = 1_800_000_000_000
    writer = SpoolWriter(tmp_path)
    for arrived in (now, now + jump, now + 1000):
        writer.append(b"m", arrived)
    writer.sync()
    writer.close()
    lag = Lag(tmp_path)
    assert lag.report([0], [3], now + jump)["oldestSeconds"] == max(0, jump) / 1000
    assert lag.report([2], [3], now + 3000)["oldestSeconds"] == 2.0
