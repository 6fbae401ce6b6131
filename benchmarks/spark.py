"""The Spark source and sink beside Spark's own for Kafka, on the same rows, in one run.

`python -m benchmarks spark`: all of it in about ten minutes; ROWS=100000 makes the spool, the topic and the queues
smaller, ROUNDS=1 measures once. Rows are 200 bytes of JSON (benchmarks/load/readings.py).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyspark.sql import functions as f

from benchmarks.clock import Clock
from benchmarks.harness import Server, side_by_side, summary
from benchmarks.kafka import jars, kafka
from benchmarks.load import readings
from enmasse.spark.session import session
from enmasse.spark.source.source import AmqpStreamReader, SpoolRange, receiver_settings
from enmasse.spark.spool.spool import SpoolWriter, head_of
from enmasse.testing import Suite, running

ROWS = int(os.environ.get("ROWS", "400000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
GROUP = 1000
"""Messages between two syncs, as a receiver with credit 1000 stores them."""
BATCH = 200_000
"""Most rows of a micro-batch, of either source."""
QUEUED = max(ROWS // 2, 1)
"""Messages in a full queue."""
SINK_ROWS = max(ROWS // 4, 1)
RATE, SECONDS = 5000, 20
FLAVOR = {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"MEMORY": "256Mi"}}
RECEIVERS = (1, 2)
OF_KAFKA = "message_id string, body binary, address string, offset bigint, arrived timestamp"
"""Our columns for what Kafka's source has: key, value, topic, offset, timestamp (and its type, and the partition)."""
QUEUES = ("full", "browsed", "sunk", "steady", "first", "empty")


@dataclass
class Bench:
    """Parts of the measurement: a Spark session, a suite, a Kafka, a filled spool; `work`: a folder for all else."""

    spark: Any
    suite: Suite
    kafka: Server
    spool: Path
    work: Path

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.kafka.port}"

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.work) as name:
            yield Path(name)

    def amqp(self, address: str, spool: Path, columns: str = "", **options: str) -> Any:
        """Rows of an address; columns: those that are wanted, as DDL."""
        reader = self.spark.readStream.format("amqp")
        reader = reader.options(url=self.suite.url, address=address, spool=str(spool), maxRowsPerTrigger=str(BATCH))
        return (reader.schema(columns) if columns else reader).options(**options).load()

    def topic(self, name: str) -> Any:
        """Rows of a topic of Kafka, from its beginning."""
        return (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(BATCH))
            .load()
        )


def fill(folder: Path) -> None:
    """A spool of ROWS messages."""
    writer = SpoolWriter(folder)
    for start in range(0, ROWS, GROUP):
        for n in range(start, min(start + GROUP, ROWS)):
            writer.append(readings.message(n, readings.BASE + n), readings.BASE + n)
        writer.sync()
    writer.close()


def send(bench: Bench, address: str, count: int) -> None:
    """Fill a queue."""
    command = [sys.executable, "-m", "benchmarks.load.readings", bench.suite.url, address, str(count)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def decoded(folder: Path) -> float:
    """Rows a second of processor time, of one process that makes Arrow batches of the spool and drops them."""
    reader = AmqpStreamReader({"address": "empty", "spool": str(folder)})
    began, rows = time.process_time(), 0
    for start in range(0, ROWS, 50_000):
        for batch in reader.read(SpoolRange(start, min(start + 50_000, ROWS))):
            rows += batch.num_rows
    check(rows, ROWS)
    return rows / (time.process_time() - began)


def check(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"{found} rows of {wanted}")


def batches(query: Any) -> list[Any]:
    """The reports of a query's batches that had rows."""
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def seconds(progress: Any) -> float:
    """How long a batch took."""
    return float(progress["durationMs"]["triggerExecution"]) / 1000


def begun(progress: Any) -> float:
    """When a batch began, in seconds since 1970."""
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def available(bench: Bench, data: Any, sink: str, work: Path, wanted: int = ROWS) -> dict[str, Any]:
    """Rows a second of a query over all there is, in its batches; the bytes that it wrote for a row."""
    writer = data.writeStream.format(sink).option("checkpointLocation", str(work / "checkpoint"))
    if sink != "noop":
        writer = writer.option("path", str(work / "out"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    done = batches(query)
    rows = sum(progress["numInputRows"] for progress in done)
    check(rows, wanted)
    found = {"rows_s": rows / sum(map(seconds, done))}
    if sink != "noop":
        found["bytes_row"] = sum(file.stat().st_size for file in (work / "out").glob("*.parquet")) / rows
    return found


def spooled(bench: Bench, sink: str, columns: str = "") -> dict[str, Any]:
    """From a copy of the filled spool to a sink; columns: those that are wanted, as DDL."""
    with bench.scratch() as work:
        shutil.copytree(bench.spool, work / "spool")
        return available(bench, bench.amqp("empty", work / "spool", columns), sink, work)


def topical(bench: Bench, sink: str, *columns: str) -> dict[str, Any]:
    """From the filled topic to a sink."""
    with bench.scratch() as work:
        data = bench.topic("filled")
        return available(bench, data.select(*columns) if columns else data, sink, work)


def alone(bench: Bench) -> dict[str, Any]:
    """A receiver without Spark, from a full queue into its spool."""
    send(bench, "full", QUEUED)
    with bench.scratch() as work:
        settings = receiver_settings({"url": bench.suite.url, "address": "full", "spool": str(work / "spool")})
        command = [sys.executable, "-m", "benchmarks.load.receiver"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(settings) + "\n")
            process.stdin.flush()
            process.stdout.readline()  # attached
            began, head = time.monotonic(), head_of(work / "spool")
            while head.get() < QUEUED:
                time.sleep(0.005)
            took = time.monotonic() - began
            process.stdin.close()
            *_, counts = map(json.loads, process.stdout)
        stored = sum(file.stat().st_size for file in (work / "spool").iterdir())
        plain = sum(len(readings.message(n, readings.BASE + n)) for n in range(0, QUEUED, 100)) * 100
    syncs = counts["fdatasync"] + counts["fsync"]
    return {
        "rows_s": QUEUED / took,
        "cpu_us": counts["cpu"] / QUEUED * 1e6,
        "bytes_more": (stored - plain) / QUEUED,
        "syncs_per_1000": syncs / QUEUED * 1000,
    }


def drained(bench: Bench, receivers: int, sink: str) -> dict[str, Any]:
    """From a full queue through broker, router and acknowledgement to a sink; in Parquet each row is there once."""
    send(bench, "full", QUEUED)
    with bench.scratch() as work:
        more = {"receivers": str(receivers)} if receivers > 1 else {}
        began = time.monotonic()
        found = available(bench, bench.amqp("full", work / "spool", **more), sink, work, QUEUED)
        found = {"rows_s": found["rows_s"], "whole_s": time.monotonic() - began}
        if sink != "noop":
            ids = pads.dataset(work / "out", format="parquet").to_table(columns=["message_id"]).column("message_id")
            check(len(ids), QUEUED)
            check(pc.count_distinct(ids).as_py(), QUEUED)
    return found


def browsed(bench: Bench) -> dict[str, Any]:
    """A batch read of a queue, to noop."""
    data = bench.spark.read.format("amqp").option("url", bench.suite.url).option("address", "browsed").load()
    began = time.monotonic()
    data.write.format("noop").mode("overwrite").save()
    return {"rows_s": SINK_ROWS / (time.monotonic() - began)}


def written(bench: Bench, rows: Any, kind: str) -> dict[str, Any]:
    """A write of rows with a body to a queue or to a topic."""
    if kind == "amqp":
        writer = rows.select("body").write.format("amqp").options(url=bench.suite.url, address="sunk")
    else:
        writer = rows.select(f.col("body").alias("value")).write.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", bench.bootstrap).option("topic", "sunk")
    began = time.monotonic()
    writer.mode("append").save()
    return {"rows_s": SINK_ROWS / (time.monotonic() - began)}


def waits(bench: Bench, data: Any, ready: Callable[[], None]) -> dict[str, Any]:
    """p50 and p99 of the time from `created` (milliseconds since 1970) of rows to the end of their batch.

    Rows come at a steady rate, so those of a batch are taken as spread evenly from its first to its last.
    """
    with bench.scratch() as work:
        seen = data.observe("created", f.min("created").alias("first"), f.max("created").alias("last"))
        query = seen.writeStream.format("noop").option("checkpointLocation", str(work / "checkpoint")).start()
        ready()
        found: dict[int, Any] = {}
        end = None
        while end is None or time.monotonic() < end:
            time.sleep(0.5)
            if query.exception() is not None:
                raise query.exception()
            found |= {progress["batchId"]: progress for progress in batches(query)}
            if found and end is None:
                end = time.monotonic() + SECONDS
        query.stop()
    waited, took = [], []
    for progress in list(found.values())[len(found) // 3 :]:  # warm by then
        end_ms = (begun(progress) + seconds(progress)) * 1000
        created = progress["observedMetrics"]["created"]
        waited.append(np.linspace(end_ms - created["last"], end_ms - created["first"], progress["numInputRows"]))
        took.append(seconds(progress) * 1000)
    every = np.concatenate(waited)
    p50, p99 = np.percentile(every, [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "batch_ms": statistics.median(took)}


def steady(bench: Bench) -> dict[str, Any]:
    """Waits of messages that are sent at RATE."""
    command = [sys.executable, "-m", "benchmarks.load.readings", bench.suite.url, "steady"]
    senders: list[subprocess.Popen[bytes]] = []

    def ready() -> None:
        rate = [str(RATE * SECONDS * 10), str(RATE)]  # is killed before
        senders.append(subprocess.Popen([*command, *rate], stdout=subprocess.DEVNULL))

    with tempfile.TemporaryDirectory(dir=bench.work) as name:
        data = bench.amqp("steady", Path(name) / "spool", "creation_time timestamp, body binary")
        try:
            created = f.unix_millis("creation_time").alias("created")
            return waits(bench, data.select(created, "body"), ready)
        finally:
            for sender in senders:
                sender.kill()
                sender.wait()


def floor(bench: Bench) -> dict[str, Any]:
    """Waits of rows that a Python source makes of the clock at RATE: no server, no receiver, no spool."""
    return waits(bench, bench.spark.readStream.format("clock").option("rate", str(RATE)).load(), lambda: None)


def first_row(kind: str, server: str, name: str) -> dict[str, Any]:
    """Milliseconds from the start of a program to its first rows."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.load.first_row", kind, server, name]
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        if "first" not in process.stdout.read():
            raise RuntimeError(f"no first row: {command}")
    return {"ms": (time.monotonic() - began) * 1000}


def lines(what: str, found: list[dict[str, Any]]) -> None:
    """Print figures that have no peer: median (lowest-highest)."""
    figures = (f"{key} {summary([one[key] for one in found], 1 if found[0][key] < 100 else 0)}" for key in found[0])
    print(f"{what}\n  {'  '.join(figures)}", flush=True)


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    """Everything started and filled."""
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fill(work / "filled")
        addresses = {name: {"type": "queue", "flavor": "bench"} for name in QUEUES}
        suite = stack.enter_context(running(work / "suite", addresses, {"bench": FLAVOR}))
        suite.edit("addresses.json", {}, remove=("myqueue", "mytopic", "myanycast", "mymulticast"))
        suite.up()
        suite.wait_ready()
        server = stack.enter_context(kafka())
        names = ",".join(map(str, jars("source").glob("*.jar")))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {names} pyspark-shell"
        os.environ["SPARK_LOCAL_DIRS"] = str(work / "local")
        spark = session("bench")
        stack.callback(spark.stop)
        spark.dataSource.register(Clock)
        yield Bench(spark, suite, server, work / "filled", work)


def main() -> None:
    """Print rows a second and ratios: median (lowest-highest) of ROUNDS. aim: that of the project."""
    rounds = ROUNDS
    with bench() as it:
        print(f"Spark: {ROWS:,} messages of {readings.BODY} bytes of JSON, {it.kafka.name} on this machine")
        bodies = pa.table({"body": pa.array(map(readings.body, range(ROWS)), pa.binary())})
        rows = it.spark.createDataFrame(bodies)
        topic = rows.select(f.col("body").alias("value")).write.format("kafka")
        topic.option("kafka.bootstrap.servers", it.bootstrap).option("topic", "filled").save()
        lines("decoded, of processor time", [{"rows_s": decoded(it.spool)} for _ in range(rounds)])

        names = ("amqp, filled spool", "kafka, filled topic")
        spooled(it, "noop"), topical(it, "noop")  # warm
        of_kafka: dict[str, list[float]] = {"noop": [], "parquet": []}

        def all_of_kafka(sink: str) -> dict[str, Any]:
            found = topical(it, sink)
            of_kafka[sink].append(found["rows_s"])
            return found

        for what, sink, columns, theirs in (
            ("noop, all columns", "noop", "", ()),
            ("Parquet, all columns (16 and 7)", "parquet", "", ()),
            ("Parquet, the columns that Kafka has", "parquet", OF_KAFKA, ()),
            ("Parquet, the bodies", "parquet", "body binary", ("value",)),
        ):
            side_by_side(
                f"to {what}", rounds, partial(spooled, it, sink, columns),
                partial(topical, it, sink, *theirs) if theirs else partial(all_of_kafka, sink), "rows_s", 1, names,
            )  # fmt: skip

        lines(f"a receiver alone, {QUEUED:,} messages of a full queue", [alone(it) for _ in range(rounds)])
        for sink, receivers in itertools.product(of_kafka, RECEIVERS):
            found = [drained(it, receivers, sink) for _ in range(rounds)]
            ratios = [one["rows_s"] / statistics.median(of_kafka[sink]) for one in found]
            lines(f"full queue to {sink}, {receivers} receivers (aim: 30,000 rows/s each)", found)
            print(f"  ratio to Kafka's filled topic to {sink} {summary(ratios, 2)}   aim 0.5", flush=True)

        send(it, "browsed", SINK_ROWS)
        browsed(it)
        lines(f"a queue of {SINK_ROWS:,} browsed", [browsed(it) for _ in range(rounds)])
        few = it.spark.createDataFrame(bodies.slice(0, SINK_ROWS)).repartition(2).cache()
        few.count()
        side_by_side(
            f"a write of {SINK_ROWS:,} rows", rounds, lambda: written(it, few, "amqp"),
            lambda: written(it, few, "kafka"), "rows_s", 0.5, ("amqp", "kafka"),
        )  # fmt: skip
        side_by_side(
            f"{RATE:,} messages a second, {SECONDS} s: from creation to the end of the batch", max(1, rounds - 1),
            lambda: steady(it), lambda: floor(it), "p50_ms", 1 / 1.3,
            ("amqp", "a Python source, bare"), lower_is_better=True,
        )  # fmt: skip

        def first() -> dict[str, Any]:
            send(it, "first", 1000)  # each program consumes what it sees
            return first_row("amqp", it.suite.url, "first")

        side_by_side(
            "start of a program to its first rows", max(1, rounds - 1),
            first,
            lambda: first_row("kafka", it.bootstrap, "filled"), "ms", 1, ("amqp", "kafka"), lower_is_better=True,
        )  # fmt: skip
