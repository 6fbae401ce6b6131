"""The source and the sink against the embedded broker, in a real Spark session."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from spark import pipeline
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)


def numbered(count: int, start: int = 0) -> list[Message]:
    return [Message(id=f"m{i}", body=f"body {i}", durable=True) for i in range(start, start + count)]


def stream(spark: Any, broker: Broker, address: str, folder: Path, **options: str) -> Any:
    reader = spark.readStream.format("amqp").option("url", broker.url).option("address", address)
    reader = reader.option("spool", str(folder / "spool"))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def rows_of(spark: Any, table: str) -> list[Any]:
    return list(spark.sql(f"select * from {table} order by offset").collect())


def wait_rows(spark: Any, query: Any, table: str, count: int) -> list[Any]:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        assert query.exception() is None
        rows = rows_of(spark, table)
        if len(rows) >= count:
            return rows
        query.processAllAvailable()
    raise AssertionError(f"{len(rows)} of {count} rows")


def test_messages_become_rows(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.queue("rows")
    full = Message(id="x1", body="hello", durable=True, subject="greeting", properties={"unit": "C", "n": 3})
    full.correlation_id, full.reply_to, full.content_type = "c1", "answers", "text/plain"
    broker.send("rows", [full, Message(id="x2", body=b"\xff\x00", inferred=True), Message(body={"a": 1})])
    query = (
        stream(spark, broker, "rows", tmp_path)
        .writeStream.format("memory")
        .queryName("rows")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        first, second, third = wait_rows(spark, query, "rows", 3)
    finally:
        query.stop()
    assert (first.offset, first.message_id, first.text, first.subject) == (0, "x1", "hello", "greeting")
    assert (first.correlation_id, first.reply_to, first.content_type) == ("c1", "answers", "text/plain")
    assert first.application_properties == {"unit": "C", "n": "3"}
    assert first.durable and first.error is None
    assert bytes(second.body) == b"\xff\x00" and second.text is None
    assert third.message_id is None and "a" in third.text


def test_an_option_that_is_missing_is_named(spark: Any, broker: Broker, tmp_path: Path) -> None:
    reader = spark.readStream.format("amqp").option("url", broker.url).option("spool", str(tmp_path / "spool")).load()
    with pytest.raises(Exception, match='option "address" is missing'):
        reader.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(
            DEADLINE
        )


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


JOB = """
import sys
from spark.pipeline import session
url, address, work = sys.argv[1:4]
spark = session("killed")
options = {"url": url, "address": address, "spool": work + "/spool"}
data = spark.readStream.format("amqp").options(**options).load()
query = (data.select("offset", "message_id", "text").writeStream.format("json")
    .option("path", work + "/out").option("checkpointLocation", work + "/checkpoint").start())
print("running", flush=True)
query.awaitTermination()
"""


def start_job(broker: Broker, address: str, work: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", JOB, broker.url, address, str(work)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "running"
    return process


def committed(work: Path) -> list[str]:
    """The message-ids in files that the sink has committed."""
    files: list[str] = []
    for log in (work / "out" / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            files.append(json.loads(line)["path"].removeprefix("file://"))
    found = []
    for name in set(files):
        found += [json.loads(line)["message_id"] for line in Path(name).read_text().splitlines()]
    return found


def wait_committed(work: Path, count: int) -> list[str]:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        found = committed(work)
        if len(found) >= count:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{len(found)} of {count} rows committed")


def test_a_killed_driver_loses_and_doubles_nothing(broker: Broker, tmp_path: Path) -> None:
    broker.queue("killed")
    broker.send("killed", numbered(300))
    job = start_job(broker, "killed", tmp_path)
    wait_committed(tmp_path, 1)
    connection = BlockingConnection(broker.url, timeout=DEADLINE)
    sender = connection.create_sender("killed", name="while-it-dies")
    for i, message in enumerate(numbered(300, 300)):
        sender.send(message)
        if i == 150:
            os.killpg(job.pid, signal.SIGKILL)
    connection.close()
    job.wait()
    again = start_job(broker, "killed", tmp_path)
    try:
        found = Counter(wait_committed(tmp_path, 600))
    finally:
        os.killpg(again.pid, signal.SIGKILL)
        again.wait()
    assert set(found) == {f"m{i}" for i in range(600)}
    assert max(found.values()) == 1
