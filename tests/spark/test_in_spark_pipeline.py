"""The telemetry pipeline in a Spark session: its stages together, each alone, and repeated batches."""

from __future__ import annotations

import datetime as dt
import json
import queue
import sqlite3
import statistics
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import paho.mqtt.client as mqtt
import pandas as pd
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from proton import Message

from enmasse.cli.commands.spark import command
from enmasse.spark import stages
from enmasse.spark.delta_table import DeltaTable
from enmasse.spark.scoring import scored
from enmasse.testing import running, wait_for
from spark import chart, pipeline, pipeline_file, progress
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)


def test_windows_equal_plain_python(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.queue("readings")
    broker.queue("window-results")
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    values = [(f"d{i % 2}", start + dt.timedelta(hours=i), float((i * 37) % 101)) for i in range(96)]
    values.append(("clock", start + dt.timedelta(days=90), 0.0))
    bodies = [json.dumps({"device": d, "time": t.isoformat(), "temperature": v}) for d, t, v in values]
    broker.send("readings", [Message(id=str(i), body=b, durable=True) for i, b in enumerate(["no json", *bodies])])
    arguments = ["--url", broker.url, "--address", "readings", "--results", "window-results", "--work", str(tmp_path)]
    query = pipeline.start(spark, pipeline.arguments(arguments))
    try:
        found = {}
        for message in broker.receive("window-results", 8):
            row = json.loads(bytes(message.body))
            found[row["device"], row["start"][:10]] = (row["maximum"], row["minimum"], row["mean"], row["readings"])
    finally:
        query.stop()
    expected = {}
    for device in ("d0", "d1"):
        for day in range(4):
            date = (start + dt.timedelta(days=day)).date()
            mine = [v for d, t, v in values if d == device and t.date() == date]
            expected[device, date.isoformat()] = (max(mine), min(mine), sum(mine) / len(mine), len(mine))
    assert found == expected


def year_of_two_cities() -> pd.DataFrame:
    """Hourly temperatures of Seattle and San Francisco in 2010 (vega_datasets), with outliers among them."""
    from vega_datasets import local_data

    sea, sf = (data[["date", "temp"]].head(2000) for data in (local_data.seattle_temps(), local_data.sf_temps()))
    year = pd.concat([sea.assign(device="sea"), sf.assign(device="sf")]).sort_values("date", kind="stable")
    year["date"] = pd.to_datetime(year["date"], utc=True)
    year.loc[year.index[::487], "temp"] += 80.0
    return year


def reading(device: str, time: str, temperature: Any, **more: Any) -> str:
    return json.dumps({"device": device, "time": time, "temperature": temperature, **more})


WRONG: dict[str | bytes, str] = {
    "no json": "not a JSON object",
    "[1]": "not a JSON object",
    "": "not a JSON object",
    "\n".join([reading("sf", "2010-01-01T00:00:00Z", 1)] * 2): "not a JSON object",
    reading("sf", "2010-01-01T00:00:00Z", 1) + "}": "not a JSON object",
    reading("sf", "2010-01-01T00:00:00Z", 1) + "]": "not a JSON object",
    reading("sf", "2010-01-01T00:00:00Z", 1) + ', "more": 1': "not a JSON object",
    '{"a":' * 3000: "not a JSON object",
    b"\xff\xfe": "not text in UTF-8",
    reading("", "2010-01-01T00:00:00Z", 1): "field device",
    reading("sf", "yesterday", 1): "field time",
    reading("sf", "2010-01-01T00:00:00", 1): "field time: without a date or a zone",
    reading("sf", "2010-01-01", 1): "field time: without a date or a zone",
    reading("sf", "2010-01-01T00:00:00Z", "NaN"): "field temperature",
    reading("sf", "2010-01-01T00:00:00Z", "1e400"): "field temperature",
    reading("sf", "2010-01-01T00:00:00Z", {"c": 1}): "field temperature",
    '{"device": "sf", "time": "2010-01-01T00:00:00Z"}': "field temperature",
    reading("sf", "9000-01-01T00:00:00Z", 1): "field time: in the future",
    reading("sf", "0100-01-01T00:00:00Z", 1): "field time: before 1970",
}
"""Bodies that are no readings → how the reason begins."""


@pytest.mark.slow
def test_the_pipeline_without_a_file_leaves_out_and_counts_the_same_bodies(spark: Any) -> None:
    from pyspark.sql import Observation

    good = reading("sf", "2010-01-01T00:00:00Z", 20.5)
    texts = [good, good + " \n", *(text for text in WRONG if isinstance(text, str))]
    rows = [(number, text.encode(), text, None) for number, text in enumerate(texts)]
    messages = spark.createDataFrame(rows, "offset bigint, body binary, text string, error string")
    counts = Observation("readings")
    found = pipeline.readings(messages, counts).collect()
    assert [(row.device, row.temperature) for row in found] == [("sf", 20.5)] * 2
    assert counts.get == {"reading": 2, "bad": len(texts) - 2, "badReason": "field device: missing or empty"}


@pytest.mark.slow
def test_the_stages_of_a_file_equal_pandas_and_plain_python(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """A real year, with bad readings and late ones; each output is there once although the last batch is repeated."""
    import skops.io  # here: it takes two seconds, in every process of pytest that collects this file
    from sklearn.linear_model import LinearRegression

    names = ("year", "year-bad", "year-late", "year-results", "year-alerts", "year-scores", "command-sea", "command-sf")
    for name in names:
        broker.queue(name)
    year = year_of_two_cities()
    # Firmware that sends more fields, and numbers as texts.
    bodies = [
        reading(device, date.isoformat(), temp if n % 2 else str(temp), **({"humidity": n % 100} if n % 3 else {}))
        for n, (device, date, temp) in enumerate(zip(year["device"], year["date"], year["temp"], strict=True))
    ]
    lost = reading("nosuch", "2010-12-31T00:00:00Z", 200)
    end = reading("clock", "2011-01-01T00:00:00Z", 0)
    rule = LinearRegression().fit(pd.DataFrame({"temperature": [0.0, 1, 2], "humidity": [0.0, 1, 0]}), [5.0, 9, 9])
    skops.io.dump(rule, tmp_path / "model.skops")
    file = tmp_path / "pipeline.json"
    sections = {
        "source": {"url": broker.url, "address": "year", "work": str(tmp_path)},
        "readings": {"deadLetterAddress": "year-bad", "watermark": "10 days"},
        "windows": {
            "address": "year-results",
            "window": "1 day",
            "quantiles": [0.5, 0.9],
            "lateAddress": "year-late",
        },
        "table": {"path": str(tmp_path / "table"), "compact": 2},
        "last": {"path": str(tmp_path / "last.db")},
        "alerts": {"address": "year-alerts", "threshold": 4, "minimum": 50, "idle": "52 weeks"},
        "commands": {"address": "command-{device}", "body": "cool {device} {value}", "above": 110, "ttl": 3_600_000},
        "scores": {
            "model": str(tmp_path / "model.skops"),
            "features": ["temperature", "humidity"],
            "address": "year-scores",
        },
    }
    file.write_text(json.dumps(sections))
    broker.send("year", [Message(body=body, durable=True, inferred=True) for body in WRONG])
    broker.send("year", [Message(body=body, durable=True) for body in [*bodies, lost, end]])
    loaded = pipeline_file.load(file)
    query = pipeline.start_file(spark, loaded)
    days = year.groupby(["device", year["date"].dt.floor("D")])["temp"]
    reference = plain_anomalies(list(zip(year["device"], year["temp"], strict=True)), 4.0, 50)
    humid = [n for n in range(len(bodies)) if n % 3]
    dry = len(bodies) - len(humid) + 2  # "lost" and "end" too
    hot = year[year["temp"] > 110]
    assert len(reference) > 3 and len(hot) > 2
    try:
        results = [json.loads(bytes(m.body)) for m in broker.receive("year-results", days.ngroups)]
        alerts = [json.loads(bytes(m.body)) for m in broker.receive("year-alerts", len(reference))]
        scores = [json.loads(bytes(m.body)) for m in broker.receive("year-scores", len(humid))]
        rejected = [
            (bytes(m.body), m.properties["DeadLetterReason"]) for m in broker.receive("year-bad", len(WRONG) + 1 + dry)
        ]
        late = [("sea", "2010-01-02T03:00:00Z", 1.5), ("sf", "2010-02-01T00:00:00Z", -4.0)]
        broker.send(
            "year", [Message(body=reading(*one), durable=True) for one in [*late, ("sea", "2010-12-31T20:00:00Z", 3.0)]]
        )
        found_late = [json.loads(bytes(m.body)) for m in broker.receive("year-late", len(late))]
        rejected += [(bytes(m.body), m.properties["DeadLetterReason"]) for m in broker.receive("year-bad", 3)]
        query.processAllAvailable()
        wait_for("the count of late readings", lambda: count_of(tmp_path, "late") == len(late), DEADLINE)
        wait_for("the line of the last batch", lambda: count_of(tmp_path, "reading") >= len(bodies) + 5, DEADLINE)
    finally:
        query.stop()
    for device, rows in hot.groupby("device"):
        assert broker.depth(f"command-{device}") == len(rows)
        sent = broker.receive(f"command-{device}", len(rows))
        assert {bytes(m.body).decode() for m in sent} == {f"cool {device} {value}" for value in rows["temp"]}
        assert all(0 < m.ttl * 1000 <= 3_600_000 for m in sent)
    reasons = Counter(reason for _, reason in rejected)
    assert reasons["missing, or not a number: humidity"] == dry + 3
    dead = {body: reason for body, reason in rejected if "humidity" not in reason}
    assert "amqp:not-found" in dead.pop(b"cool nosuch 200.0")
    expected = {body if isinstance(body, bytes) else body.encode(): reason for body, reason in WRONG.items()}
    assert dead.keys() == expected.keys()
    assert {body: dead[body] for body in dead if not dead[body].startswith(expected[body])} == {}
    in_table = ds.dataset(tmp_path / "table", partitioning="hive").to_table().to_pylist()
    for rows in (results, in_table):
        windows = {(row["device"], pd.Timestamp(row["start"])): row for row in rows}
        assert len(windows) == len(rows)
        for key, values in days:
            row = windows.pop(key)
            assert (row["maximum"], row["minimum"], row["readings"]) == (values.max(), values.min(), len(values))
            assert row["mean"] == pytest.approx(values.mean(), rel=1e-12)
            assert row["quantiles"] == pytest.approx(list(values.quantile([0.5, 0.9])), rel=1e-12)
        assert not windows
    assert sorted((a["device"], a["value"], a["mean"], a["deviation"]) for a in alerts) == sorted(reference)
    wanted = sorted((year["device"].iloc[n], 5 + 2 * year["temp"].iloc[n] + 2 * (n % 100)) for n in humid)
    given = sorted((row["device"], row["prediction"]) for row in scores)
    assert [device for device, _ in given] == [device for device, _ in wanted]
    assert [number for _, number in given] == pytest.approx([number for _, number in wanted])
    assert sorted((row["device"], row["value"]) for row in found_late) == [("sea", 1.5), ("sf", -4.0)]
    last = last_values(tmp_path / "last.db")
    assert last["sea"] == ("2010-12-31T20:00:00.000000Z", 3.0)
    newest = year[year["device"] == "sf"].iloc[-1]
    assert pd.Timestamp(last["sf"][0]) == newest["date"] and last["sf"][1] == newest["temp"]

    lines = list(progress.lines(tmp_path))
    assert sum(line["late"] for line in lines) == 2
    assert sum(line["reading"] for line in lines) == len(bodies) + 5
    assert {kind: sum(line[kind] for line in lines) for kind in ("bad", "alerts", "commands")} == {
        "bad": len(WRONG),
        "alerts": len(reference) + 3,  # the readings that came late are far from the mean too
        "commands": len(hot) + 1,
    }
    chart.draw(file, "lag", tmp_path / "lag.png")
    drawn = CliRunner().invoke(command, ["chart", str(file), "windows", str(tmp_path / "windows.png"), "--device=sf"])
    assert drawn.exit_code == 0, drawn.output
    for what in ("windows", "lag"):
        assert (tmp_path / f"{what}.png").read_bytes().startswith(b"\x89PNG")

    # Killed, as it were, before it noted its last batch: that one is repeated, and nothing is there twice.
    depths = {name: broker.depth(name) for name in names}
    last_batch = max(int(path.name) for path in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    for note in (tmp_path / "checkpoint" / "commits").iterdir():
        if note.name.strip(".").partition(".")[0] == str(last_batch):  # and its checksum
            note.unlink()
    again = pipeline.start_file(spark, loaded)
    try:
        again.processAllAvailable()
        wait_for("the repeated batch", lambda: again.lastProgress is not None, DEADLINE)
    finally:
        again.stop()
    assert {name: broker.depth(name) for name in names} == depths
    assert ds.dataset(tmp_path / "table", partitioning="hive").to_table().num_rows == len(results)
    assert last_values(tmp_path / "last.db") == last


ALONE: dict[str, dict[str, Any]] = {
    "windows": {"windows": {"address": "alone-results", "window": "1 minute"}},
    "table": {"windows": {"window": "1 minute"}, "table": {"path": "table"}},
    "last": {"last": {"path": "last.db"}},
    "alerts": {"alerts": {"address": "alone-results"}},
    "commands": {"commands": {"address": "alone-{device}", "body": "x", "above": 0}},
    "scores": {"scores": {"model": "model.skops", "address": "alone-results"}},
}
"""Files with one stage; those that need a dead-letter address have one."""


@pytest.mark.slow
def test_a_file_with_one_stage_does_its_first_batch(
    spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import skops.io
    from sklearn.linear_model import LinearRegression

    monkeypatch.chdir(tmp_path)
    skops.io.dump(LinearRegression().fit(pd.DataFrame({"temperature": [0.0, 1]}), [5.0, 9]), "model.skops")
    for name in ("alone-results", "alone-bad", "alone-d1", *ALONE):
        broker.queue(name)
        bodies = ["no json", reading("d1", "2010-01-01T00:00:00Z", 1)]
        broker.send(name, [Message(body=body, durable=True) for body in bodies])
    queries = {}
    try:
        for stage, sections in ALONE.items():
            dead = {"readings": {"deadLetterAddress": "alone-bad"}} if stage in ("commands", "scores") else {}
            source = {"url": broker.url, "address": stage, "work": f"work-{stage}"}
            file = tmp_path / f"{stage}.json"
            file.write_text(json.dumps({"source": source, **dead, **sections}))
            queries[stage] = pipeline.start_file(spark, pipeline_file.load(file))
        for query in queries.values():
            query.processAllAvailable()  # raises what a batch has raised
        wait_for("all messages to be settled", lambda: not any(map(broker.depth, ALONE)), DEADLINE)
        works = [tmp_path / f"work-{stage}" for stage in ALONE]
        wait_for("the bad messages to be counted", lambda: {count_of(work, "bad") for work in works} == {1}, DEADLINE)
        read = sum(batch["numInputRows"] for batch in queries["last"].recentProgress)
        assert read == len(bodies), "the messages are read once, for good readings and bad ones"
        assert all("not a JSON object" in {line["badReason"] for line in progress.lines(work)} for work in works)
    finally:
        for query in queries.values():
            query.stop()
    assert last_values(tmp_path / "last.db") == {"d1": ("2010-01-01T00:00:00.000000Z", 1.0)}


def last_values(file: Path) -> dict[str, tuple[str, float]]:
    """Device → time and value of its latest reading, read as a user would."""
    database = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    found = {
        device: (time, value) for device, time, value in database.execute("SELECT device, time, value FROM last_values")
    }
    database.close()
    return found


def plain_anomalies(values: list[tuple[str, float]], threshold: float, least: int) -> list[tuple[str, float, Any, Any]]:
    """Device, value, and mean and deviation of the values of the device before it, of each anomaly."""
    seen: dict[str, list[float]] = {}
    found = []
    for device, value in values:
        before = seen.setdefault(device, [])
        if len(before) >= least:
            mean, deviation = statistics.fmean(before), statistics.stdev(before)
            if abs(value - mean) > threshold * deviation:
                found.append((device, value, pytest.approx(mean, rel=1e-9), pytest.approx(deviation, rel=1e-9)))
        before.append(value)
    return found


@pytest.mark.slow
def test_each_stage_works_alone_on_rows_that_are_no_stream(spark: Any, tmp_path: Path) -> None:
    """Equal to pandas and to plain Python on a year of two cities; the windows go to a Delta table."""
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.regression import LinearRegression as SparkLinear

    year = year_of_two_cities()
    bodies = [
        reading(device, date.isoformat(), temp)
        for device, date, temp in zip(year["device"], year["date"], year["temp"], strict=True)
    ]
    columns = "offset bigint, body binary, text string, error string"
    messages = spark.createDataFrame([(n, body.encode(), body, None) for n, body in enumerate(bodies)], columns)
    parsed = stages.parsed(messages, features=["temperature"])
    good = stages.good(parsed, "1 hour").cache()
    table = DeltaTable(str(tmp_path / "table"), "alone", 3)
    rows = stages.windows(good, "1 day", [0.1]).toArrow()
    for batch in (0, 0):
        table.append(rows, batch)
    stored = {
        (row["device"], pd.Timestamp(row["start"])): row
        for row in deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    }
    days = year.groupby(["device", year["date"].dt.floor("D")])["temp"]
    assert stored.keys() == {key for key, _ in days} and rows.num_rows == len(stored)
    for key, values in days:
        assert stored[key]["quantiles"] == pytest.approx([values.quantile(0.1)], rel=1e-12)
        assert stored[key]["day"] == key[1].date()
    found = stages.anomalies(good, 4.0, 50, 52 * 7 * 86_400_000).collect()
    reference = plain_anomalies(list(zip(year["device"], year["temp"], strict=True)), 4.0, 50)
    assert sorted((row.device, row.value, row.mean, row.deviation) for row in found) == sorted(reference)
    when = year.set_index(["device", "temp"])["date"]
    assert all(pd.Timestamp(row.time, tz="UTC") in list(when.loc[[(row.device, row.value)]]) for row in found)
    newest = {row.device: row.value for row in stages.latest(good).collect()}
    assert newest == {device: rows["temp"].iloc[-1] for device, rows in year.groupby("device")}
    mark = int(pd.Timestamp("2010-02-01", tz="UTC").timestamp() * 1000)
    assert stages.late(good, "1 day", mark).count() == (year["date"] < "2010-02-01").sum()
    assert stages.late(good, "1 day", mark - 1).count() == (year["date"] < "2010-01-31").sum()
    hot = stages.commands(good, "c/{device}", "cool {value}", 500, above=110, below=-1000).collect()
    assert Counter(row.address for row in hot) == {
        f"c/{d}": len(r) for d, r in year[year["temp"] > 110].groupby("device")
    }
    assert {row.ttl for row in hot} == {500}
    assembler = VectorAssembler(inputCols=["temperature"], outputCol="vector")
    trained = Pipeline(stages=[assembler, SparkLinear(featuresCol="vector", labelCol="y")]).fit(
        spark.createDataFrame([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)], "temperature double, y double")
    )
    trained.save(str(tmp_path / "model"))
    scores = scored(parsed, str(tmp_path / "model"), ["temperature"]).collect()
    assert [row.prediction for row in scores] == pytest.approx([1 + 2 * row for row in year["temp"]], abs=1e-6)
    good.unpersist()


@pytest.mark.slow  # windows have the test above
def test_a_device_that_was_idle_is_forgotten(spark: Any) -> None:
    """Its readings before are no measure of those behind; other devices are not affected."""
    day = 86_400
    steady = [(f"d{n % 2}", second, 20.0 + second % 3) for n, second in enumerate(range(0, 100 * 60, 60))]
    again = [("d0", 3 * day, 90.0), ("d1", 3 * day, 90.0), ("d1", 3 * day + 60, 91.0)]
    between = [("d1", second, 20.0 + second % 3) for second in range(day // 2, 3 * day, day // 2)]
    rows = [
        (device, dt.datetime.fromtimestamp(second, dt.UTC), value, n)
        for n, (device, second, value) in enumerate([*steady, *between, *again])
    ]
    data = spark.createDataFrame(rows, "device string, time timestamp, value double, offset bigint")
    found = stages.anomalies(data, 4.0, 10, day * 1000).collect()
    assert [(row.device, row.value) for row in found if row.value > 80] == [("d1", 90.0), ("d1", 91.0)][: len(found)]
    assert ("d1", 90.0) in [(row.device, row.value) for row in found]


@pytest.mark.slow
def test_a_command_reaches_its_device_by_mqtt_and_one_that_has_expired_does_not(spark: Any, tmp_path: Path) -> None:
    """From a reading that a device publishes to the command that it gets; another device is away with a session."""
    addresses = {
        "telemetry": {"type": "topic", "flavor": "small-persisted-topic"},
        "commands": {"type": "topic", "flavor": "small-persisted-topic"},
        "bad": {"type": "queue", "flavor": "small-persisted-queue"},
    }
    with running(tmp_path / "suite", addresses, options=()) as suite:
        suite.up(DEADLINE)

        def device(name: str) -> tuple[mqtt.Client, queue.Queue[str]]:
            got: queue.Queue[str] = queue.Queue()
            client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
            client.on_message = lambda _c, _u, message: got.put(message.payload.decode())
            subscribed = threading.Event()
            client.on_subscribe = lambda *_: subscribed.set()
            client.connect("127.0.0.1", suite.mqtt_port)
            client.loop_start()
            client.subscribe(f"commands/{name}", qos=1)
            assert subscribed.wait(DEADLINE)
            return client, got

        (here, got), (away, _) = device("here"), device("away")
        away.disconnect()
        away.loop_stop()
        sections: dict[str, dict[str, Any]] = {
            "source": {
                "url": suite.url, "address": "telemetry/#", "subscription": "pipeline", "work": str(tmp_path / "work"),
            },
            "readings": {"deadLetterAddress": "bad"},
            "commands": {"address": "commands/{device}", "body": "cool {value}", "ttl": 1, "above": 90},
        }  # fmt: skip
        file = tmp_path / "p.json"

        def started(ttl: int) -> Any:
            sections["commands"]["ttl"] = ttl
            file.write_text(json.dumps(sections))
            return pipeline.start_file(spark, pipeline_file.load(file))

        def publish(name: str, value: float) -> None:
            body = reading(name, "2026-01-01T00:00:00Z", value)
            here.publish(f"telemetry/{name}", body, qos=1).wait_for_publish(DEADLINE)

        query = started(1)
        try:
            query.processAllAvailable()  # the subscription is there
            publish("away", 91.0)
            wait_for("the batch of the command", lambda: count_of(tmp_path / "work", "commands") == 1, DEADLINE)
        finally:
            query.stop()
        publish("here", 92.0)
        publish("here", 20.0)
        publish("away", 93.0)
        query = started(600_000)
        try:
            assert got.get(timeout=DEADLINE) == "cool 92.0"
            wait_for("the batches of the commands", lambda: count_of(tmp_path / "work", "commands") >= 3, DEADLINE)
        finally:
            query.stop()
        away, got_away = device("away")
        assert got_away.get(timeout=DEADLINE) == "cool 93.0", "the first command has expired"
        assert got.empty() and got_away.empty()
        batches = [line["batch"] for line in progress.lines(tmp_path / "work")]
        assert len(batches) == len(set(batches)), "a batch of the second run was counted by the first one too"
        for client in (here, away):
            client.disconnect()
            client.loop_stop()


def count_of(work: Path, kind: str) -> int:
    return sum(line[kind] for line in progress.lines(work))
