"""Tables and last values of the pipeline, without Spark: each batch once, whenever the process is killed."""

from __future__ import annotations

import datetime as dt
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from enmasse.spark import parquet_table
from enmasse.spark.parquet_table import ParquetTable, ParquetTableError
from enmasse.spark.scoring import ModelError, loaded, predictions, read_model
from spark.last_values import LastValues
from tests.spark import adding

FORMS = ("parquet", "delta")


def read(form: str, folder: Path) -> pa.Table:
    if form == "delta":
        return deltalake.DeltaTable(str(folder / "table")).to_pyarrow_table()
    return ds.dataset(folder / "table", partitioning="hive").to_table()


def files(form: str, folder: Path) -> int:
    """Files of the table that a reader sees."""
    if form == "delta":
        return len(deltalake.DeltaTable(str(folder / "table")).file_uris())
    return len(list((folder / "table").glob("day=*/*.parquet")))


def counted(form: str, folder: Path) -> Counter[str]:
    return Counter(read(form, folder)["device"].to_pylist())


def added(form: str, folder: Path, *where: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.spark.adding", form, str(folder), *where]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_a_table_has_each_batch_once_whenever_its_writer_is_killed(form: str, tmp_path: Path) -> None:
    """Every third batch of a day compacts it."""
    for turn in range(6):
        process = added(form, tmp_path)
        assert process.stdout is not None
        process.stdout.readline()
        killing = threading.Timer(random.uniform(0, 0.3), process.kill)
        killing.start()
        last = process.stdout.read()
        process.wait()
        assert process.returncode == -signal.SIGKILL, (turn, last)
    noted = int((tmp_path / "noted").read_text())
    found = counted(form, tmp_path)
    found.pop(f"d{noted + 1}", None)  # perhaps added, and not noted
    assert found == {f"d{batch}": 4 for batch in range(noted + 1)}
    table = adding.table_of(form, tmp_path)
    for batch in (noted + 1, noted + 1, noted + 2):
        table.append(adding.rows(batch), batch)
    assert counted(form, tmp_path) == {f"d{batch}": 4 for batch in range(noted + 3)}
    assert files(form, tmp_path) <= 6
    assert {str(day) for day in read(form, tmp_path)["day"].to_pylist()} == {"2020-01-01", "2020-01-02"}


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_compaction_that_is_killed_leaves_each_row_once(where: str, tmp_path: Path) -> None:
    process = added("parquet", tmp_path, where)
    assert process.wait() == -signal.SIGKILL
    assert int((tmp_path / "noted").read_text()) == 1, "the third batch compacts"
    assert counted("parquet", tmp_path) == {f"d{batch}": 4 if batch < 2 else 2 for batch in range(3)}
    table = adding.table_of("parquet", tmp_path)
    for batch in (2, 3, 3):
        table.append(adding.rows(batch), batch)
    assert counted("parquet", tmp_path) == {f"d{batch}": 4 for batch in range(4)}
    assert not (tmp_path / "table" / parquet_table.REPLACING).exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_a_reader_sees_each_row_once_while_days_are_compacted(form: str, tmp_path: Path) -> None:
    table = adding.table_of(form, tmp_path)
    table.append(adding.rows(0), 0)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [table.append(adding.rows(batch), batch) for batch in range(1, 40)])
        seen = 0
        while not writing.done():
            try:
                found = counted(form, tmp_path)
            except (FileNotFoundError, OSError):  # listed, then compacted: a reader of files tries again
                continue
            seen += 1
            assert max(found.values()) <= 4
            complete = [device for device, count in found.items() if count == 4]
            assert set(complete) >= {f"d{batch}" for batch in range(len(complete))}
        writing.result()
    assert seen and counted(form, tmp_path) == {f"d{batch}": 4 for batch in range(40)}


def test_a_new_query_adds_to_a_table_that_another_one_made(tmp_path: Path) -> None:
    for query in ("one", "two"):
        table = ParquetTable(tmp_path / "table", query, 2)
        for batch in (0, 1, 1):
            table.append(adding.rows(batch), batch)
    assert counted("parquet", tmp_path) == {"d0": 8, "d1": 8}


def test_a_file_system_that_cannot_exchange_folders_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ParquetTable(tmp_path / "table", "q", 2)
    table.append(adding.rows(0), 0)
    monkeypatch.setattr(parquet_table, "EXCHANGE", 1 << 20)  # a flag that no file system knows
    with pytest.raises(ParquetTableError, match=f"path {tmp_path}/table: .*does not exchange folders"):
        table.append(adding.rows(1), 1)
    assert counted("parquet", tmp_path)["d0"] == 4


def last(times: list[tuple[str, int, float, int]]) -> pa.Table:
    """Device, second, value and offset of each."""
    at = [dt.datetime.fromtimestamp(second, dt.UTC) for _, second, _, _ in times]
    return pa.table(
        {
            "device": [device for device, *_ in times],
            "time": pa.array(at, pa.timestamp("us", tz="UTC")),
            "value": [value for *_, value, _ in times],
            "offset": [offset for *_, offset in times],
        }
    )


def test_the_latest_reading_by_event_time_stays_in_any_order_and_repeated(tmp_path: Path) -> None:
    values = LastValues(tmp_path / "made" / "last.db")
    readings = [(f"d{n % 3}", n // 6, float(n), n) for n in range(60)]
    shuffled = random.sample(readings, 60)
    for begin in (0, 20, 20, 0, 40):
        part = {}
        for reading in sorted(shuffled[begin : begin + 20], key=lambda one: (one[1], one[3])):
            part[reading[0]] = reading
        values.update(last(list(part.values())))
    with sqlite3.connect(f"file:{values.file}?mode=ro", uri=True) as reader:
        found = reader.execute('SELECT device, time, value, "offset" FROM last_values ORDER BY device').fetchall()
        assert found == [(f"d{n % 3}", "1970-01-01T00:00:09.000000Z", float(n), n) for n in (57, 58, 59)]
        values.update(last([("d0", 100, 1.0, 3)]))  # not held up by a reader
        assert reader.execute("SELECT count(*) FROM last_values WHERE value = 1").fetchone() == (1,)
    reader.close()


class Picky:
    """A model that refuses what is above 100."""

    def predict(self, rows: pd.DataFrame) -> Any:
        if (rows["a"] > 100).any():
            raise ValueError("above 100")
        return np.sqrt(rows["a"])


def test_a_row_that_a_model_refuses_does_not_affect_others() -> None:
    values = pd.Series([[4.0], [400.0], [-1.0], [None], [9.0]])
    lacking = pd.Series([None, None, None, "missing: a", None])
    with np.errstate(invalid="ignore"):
        found = predictions(Picky().predict, ["a"], values, lacking)
    assert found["prediction"].tolist()[0] == 2.0 and found["prediction"].tolist()[4] == 3.0
    assert found["problem"].tolist() == [None, "model: ValueError: above 100", "model: nan", "missing: a", None]


@pytest.mark.slow  # imports two libraries of models
def test_models_that_run_code_are_loaded_only_if_trusted(tmp_path: Path) -> None:
    import joblib  # here: skops takes two seconds, in every process of pytest that collects this file
    import skops.io
    from sklearn.linear_model import LinearRegression

    rule = LinearRegression().fit([[0.0], [1.0]], [1.0, 3.0])
    good = skops.io.dumps(rule)
    assert loaded(good, ".skops")(np.array([[2.0]]))[0] == pytest.approx(5.0)
    assert loaded(good, ".skops") is loaded(good, ".skops"), "a worker loads it once"
    with pytest.raises(ModelError, match=r"types that skops does not know: .*Picky"):
        loaded(skops.io.dumps(Picky()), ".skops")
    with pytest.raises(ModelError, match="cannot be loaded"):
        loaded(b"nothing", ".skops")
    for name, trusted, said in (
        ("m.joblib", False, "runs the code in it"),
        ("m.pkl", True, "cannot be read"),
        ("m.onnx", True, "must end in"),
    ):
        with pytest.raises(ModelError, match=said):
            read_model(tmp_path / name, trusted=trusted)
    joblib.dump(rule, tmp_path / "m.joblib")
    data = read_model(tmp_path / "m.joblib", trusted=True)
    assert loaded(data, ".joblib")(np.array([[2.0]]))[0] == pytest.approx(5.0)
