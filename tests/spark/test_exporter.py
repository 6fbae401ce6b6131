"""The metrics of a source, scraped while batches are planned."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from proton import Message
from pyspark.sql.streaming.datasource import ReadAllAvailable

from enmasse import spark_jobs
from enmasse.metrics import parse
from enmasse.spark.job import spooled
from enmasse.spark.options import OptionError
from enmasse.spark.source.source import AmqpStreamReader
from enmasse.testing import free_port
from tests.kit.waiting import wait_for as until
from tests.spark.conftest import DEADLINE, LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)


def scraped(port: int, spool: Path) -> dict[tuple[str, ...], float]:
    """Values by name, partition and, if there is one, state."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
        samples = [sample for family in parse(answer.read()) for sample in family.samples]
    assert {sample.labels["spool"] for sample in samples} == {str(spool)}
    states = [(s, (s.labels["state"],) if "state" in s.labels else ()) for s in samples]
    labels = [(s.name.removeprefix("enmasse_spark_"), s.labels.get("partition", ""), *state) for s, state in states]
    return {label: s.value for label, (s, _) in zip(labels, states, strict=True)}


def test_each_partition_states_its_lag_and_its_receiver(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its port, and to the job that runs it."""
    monkeypatch.setenv(spark_jobs.SOURCES, str(tmp_path))
    broker.queue("measured")
    port, spool = free_port(), tmp_path / "spool"
    options = {"url": broker.url, "address": "measured", "spool": str(spool), "receivers": "2"}
    reader = AmqpStreamReader({**options, "metricsport": str(port)})
    try:
        start = reader.initialOffset()
        reader.started().await_address()
        broker.send("measured", [Message(id=str(n), body="x" * 100, durable=True) for n in range(50)])
        until(lambda: sum(reader.started().heads()) == 50, "all in the spool")
        until(lambda: reader.started().available == 0, "the broker to state that none waits")
        reader.partitions(start, start)  # as of a batch that a kill has cut off
        assert spooled(spark_jobs.sources_of(tmp_path), 1 << 50)[0] == 50
        end = reader.latestOffset(start, ReadAllAvailable())
        running = scraped(port, spool)
        behind, oldest = spooled(spark_jobs.sources_of(tmp_path), 1 << 50)
        reader.latestOffset(end, ReadAllAvailable())
        done = scraped(port, spool)
        assert spooled(spark_jobs.sources_of(tmp_path), 1 << 50) == (0, None)
    finally:
        reader.stop()
    assert behind == 50 and oldest is not None and oldest > 0
    heads = [float(end["record"]), float(end["record-1"])]
    for n, head in enumerate(heads):
        partition = str(n)
        assert running["spooled_total", partition] == running["behind", partition] == head
        assert (running["processed_total", partition], done["processed_total", partition]) == (0, head)
        assert (done["behind", partition], done["oldest_seconds", partition]) == (0, 0)
        assert running["spool_bytes", partition] >= head * 100
        assert (running["receiver", partition, "attached"], running["receiver", partition, "lost"]) == (1, 0)
        assert running["spool_full", partition] == 0
    assert running["available", ""] == running["without_id_total", ""] == 0
    with pytest.raises(OSError) as caught:
        scraped(port, spool)
    assert "refused" in str(caught.value), "it ends with the source"


def test_a_port_that_is_taken_is_named(broker: Broker, tmp_path: Path) -> None:
    broker.queue("taken")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        options = {"url": broker.url, "address": "taken", "spool": str(tmp_path / "spool"), "metricsport": port}
        reader = AmqpStreamReader(options)
        try:
            with pytest.raises(OptionError, match=rf'"metricsPort": cannot listen on 127\.0\.0\.1:{port} \('):
                reader.initialOffset()
        finally:
            reader.stop()
