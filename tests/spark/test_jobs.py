"""Programs with a Spark of their own: the first job of docs/spark.md, and a driver that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.testing import running, wait_for
from tests.page import programs
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)


def test_the_first_job_shows_rows_and_what_becomes_of_its_connection(tmp_path: Path) -> None:
    (job,) = programs("spark.md")
    shown, warnings = tmp_path / "stdout", tmp_path / "stderr"
    with running(tmp_path / "suite") as suite, shown.open("wb") as stdout, warnings.open("wb") as stderr:
        suite.up(DEADLINE)
        folder = tmp_path / "job"
        job.write(folder, suite)
        for command in job.each[:-1]:
            job.run(command, folder, suite)
        process = subprocess.Popen(
            job.each[-1],
            shell=True,
            cwd=folder,
            env=job.environment(suite),
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            table = job.output[job.output.index("+") :].encode()
            wait_for("the rows of the page", lambda: table in shown.read_bytes(), DEADLINE)
            suite.kill(suite.component("router"))
            nothing, again = (
                f"amqp source: {event} from 'myqueue' at {suite.url}".encode()
                for event in ("nothing", "receiving again")
            )
            wait_for("a warning that nothing comes", lambda: nothing in warnings.read_bytes(), DEADLINE)
            wait_for("a warning that it goes on", lambda: again in warnings.read_bytes(), DEADLINE)
            assert process.poll() is None
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def numbered(count: int, start: int = 0) -> list[Message]:
    return [Message(id=f"m{i}", body=f"body {i}", durable=True) for i in range(start, start + count)]


JOB = """
import sys
from spark.session import session
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
    wait_for(f"{count} rows that are committed", lambda: len(committed(work)) >= count, DEADLINE)
    return committed(work)


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
