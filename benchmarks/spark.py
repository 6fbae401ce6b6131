"""The Spark source from a filled spool: decoded alone, and through Spark to noop and to Parquet.

`python -m benchmarks spark`; ROWS=100000 makes the spool smaller. Messages are 200 bytes of JSON with the header, the
properties and the application properties of usual devices.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proton import Message as ProtonMessage
from proton.utils import BlockingConnection

from benchmarks.harness import free_port, running, summary
from enmasse.amqp.message import Message
from enmasse.amqp.types import Symbol
from enmasse.spark.session import session
from enmasse.spark.source import AmqpStreamReader, SpoolRange
from enmasse.spark.spool import SpoolWriter

ROWS = int(os.environ.get("ROWS", "400000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
GROUP = 1000
"""Messages between two syncs, as a receiver with credit 1000 stores them."""
BODY = 200


def reading(n: int) -> bytes:
    """An encoded message of one of 500 devices."""
    body = {
        "device": f"d{n % 500}",
        "time": f"2026-11-24T10:{n // 60 % 60:02d}:{n % 60:02d}Z",
        "temperature": n % 97 / 4,
    }
    text = json.dumps({**body, "filler": ""})
    return Message(
        (text[:-2] + "x" * (BODY - len(text)) + text[-2:]).encode(),
        durable=True,
        message_id=f"d{n % 500}-{n}",
        to="telemetry",
        content_type=Symbol("application/json"),
        creation_time=1_764_000_000_000 + n,
        application_properties={"device": f"d{n % 500}", "unit": "C"},
    ).encode()


def fill(folder: Path) -> None:
    """A spool of ROWS messages."""
    writer = SpoolWriter(folder)
    for start in range(0, ROWS, GROUP):
        for n in range(start, min(start + GROUP, ROWS)):
            writer.append(reading(n), 1_764_000_000_000 + n)
        writer.sync()
    writer.close()


def decoded(folder: Path) -> float:
    """Rows a second of one process that makes Arrow batches of the spool and drops them."""
    reader = AmqpStreamReader({"address": "empty", "spool": str(folder)})
    began, rows = time.process_time(), 0
    for start in range(0, ROWS, 50_000):
        for batch in reader.read(SpoolRange(start, min(start + 50_000, ROWS))):
            rows += batch.num_rows
    if rows != ROWS:
        raise RuntimeError(f"{rows} rows of {ROWS}")
    return rows / (time.process_time() - began)


@contextlib.contextmanager
def empty_queue() -> Iterator[str]:
    """The URL of a broker with a queue `empty`: what there is to read is in the spool."""
    scratch = Path(tempfile.mkdtemp())
    port = free_port()
    url = f"amqp://127.0.0.1:{port}"
    settings = {
        "name": "bench",
        "health": "127.0.0.1:0",
        "listen": f"127.0.0.1:{port}",
        "data_dir": str(scratch / "data"),
    }
    (scratch / "broker.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "services.broker", "--config", str(scratch / "broker.json")]
    with running("broker", command, port, scratch=scratch):
        connection = BlockingConnection(url, timeout=30)
        replies = connection.create_receiver(None, dynamic=True)
        properties = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "createQueue"}
        body = json.dumps(["empty", "ANYCAST", "empty", None, True, -1, False, True])
        reply_to = replies.link.remote_source.address
        request = ProtonMessage(reply_to=reply_to, correlation_id="1", properties=properties, body=body)
        connection.create_sender("activemq.management").send(request)
        replies.receive(timeout=30)
        connection.close()
        yield url


def processed(spark: Any, url: str, filled: Path, sink: str) -> float:
    """Rows a second of a query from a copy of the spool to `sink`, from its first batch to its last."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        shutil.copytree(filled, work / "spool")
        source = spark.readStream.format("amqp").option("url", url).option("address", "empty")
        data = source.option("spool", str(work / "spool")).option("maxRowsPerTrigger", "100000").load()
        writer = data.writeStream.format(sink).option("checkpointLocation", str(work / "checkpoint"))
        if sink != "noop":
            writer = writer.option("path", str(work / "out"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        rows = sum(progress["numInputRows"] for progress in batches)
        if rows != ROWS:
            raise RuntimeError(f"{rows} rows of {ROWS}")
        return float(rows / (sum(progress["durationMs"]["triggerExecution"] for progress in batches) / 1000))


def main() -> None:
    """Print rows a second: median (lowest-highest) of ROUNDS."""
    with tempfile.TemporaryDirectory() as name, empty_queue() as url:
        filled = Path(name) / "spool"
        fill(filled)
        print(f"Spark source, {ROWS:,} messages of {BODY} bytes of JSON")
        print(f"  {'decoded, one core':<30} {summary([decoded(filled) for _ in range(ROUNDS)])} rows/s", flush=True)
        spark = session("bench")
        processed(spark, url, filled, "noop")  # starts Spark's Python processes
        for sink in ("noop", "parquet"):
            rates = [processed(spark, url, filled, sink) for _ in range(ROUNDS)]
            print(f"  {f'filled spool to {sink}':<30} {summary(rates)} rows/s", flush=True)
        spark.stop()
