"""Newest windows of a pipeline, which the console draws; without Spark."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa

from enmasse import spark_jobs
from enmasse.api.types import Window
from spark.recent_windows import DEVICES, EACH, RecentWindows

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def windows(device: str, *numbers: int, mean: float = 1.5) -> list[dict[str, object]]:
    return [
        {
            "device": device, "start": START + dt.timedelta(minutes=n), "end": START + dt.timedelta(minutes=n + 1),
            "maximum": 2.0, "minimum": 1.0, "mean": mean, "readings": 3, "quantiles": [1.0],
        }
        for n in numbers
    ]  # fmt: skip


def add(recent: RecentWindows, *rows: list[dict[str, object]]) -> None:
    every = [row for each in rows for row in each]
    random.shuffle(every)
    recent.add(pa.Table.from_pylist(every))


def kept(file: Path) -> dict[str, list[Window]]:
    found = spark_jobs.read_windows(file)
    assert found is not None
    devices: dict[str, list[Window]] = {}
    for each in found.windows:
        devices.setdefault(each.device, []).append(each)
    return devices


def test_windows_are_kept_in_order_and_a_repeated_batch_changes_nothing(tmp_path: Path) -> None:
    recent = RecentWindows(tmp_path / "spark.windows", "q")
    add(recent, windows("b", 0, 1), windows("a", 1, 0))
    add(recent, windows("b", 2))
    add(recent, windows("b", 2, mean=1.75))
    found = kept(tmp_path / "spark.windows")
    assert list(found) == ["a", "b"]
    assert [each.start for each in found["b"]] == [f"2026-01-01T00:0{n}:00Z" for n in range(3)]
    assert (found["b"][2].end, found["b"][2].mean, found["b"][2].readings) == ("2026-01-01T00:03:00Z", 1.75, 3)


def test_a_bounded_number_is_kept_the_newest_of_the_first_devices(tmp_path: Path) -> None:
    recent = RecentWindows(tmp_path / "spark.windows", "q")
    add(recent, windows("z", 0))
    add(recent, *(windows(f"d{number}", *range(EACH + 7)) for number in range(DEVICES + 3)))
    found = kept(tmp_path / "spark.windows")
    assert len(found) == DEVICES and "z" in found
    assert all(len(each) == EACH for device, each in found.items() if device != "z")
    assert found["d0"][-1].start == "2026-01-01T02:06:00Z"


def test_they_outlive_a_restart_of_the_query_and_not_another_query(tmp_path: Path) -> None:
    add(RecentWindows(tmp_path / "spark.windows", "q"), windows("a", 0))
    add(RecentWindows(tmp_path / "spark.windows", "q"), windows("a", 1))
    assert len(kept(tmp_path / "spark.windows")["a"]) == 2
    add(RecentWindows(tmp_path / "spark.windows", "other"), windows("b", 0))
    assert list(kept(tmp_path / "spark.windows")) == ["b"]


def test_a_damaged_file_and_a_full_disk_end_no_query(tmp_path: Path) -> None:
    (tmp_path / "spark.windows").write_text("{")
    recent = RecentWindows(tmp_path / "spark.windows", "q")
    add(recent, windows("a", 0))
    assert list(kept(tmp_path / "spark.windows")) == ["a"]
    add(RecentWindows(tmp_path / "missing" / "spark.windows", "q"), windows("a", 0))
