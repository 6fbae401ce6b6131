"""Source and sink in one Spark session; a driver that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest
from proton import Message
from proton.reactor import Copy
from proton.utils import BlockingConnection
from pyspark.errors import AnalysisException, StreamingQueryException

from enmasse.metrics import parse
from enmasse.spark import register_addresses, repeatable
from enmasse.spark.datasource import AmqpDataSource, SelectingDataSource
from enmasse.spark.errors import sentence
from enmasse.spark.spool.ownership import owner_of
from enmasse.spark.spool.segment import partition_folder
from enmasse.spark.sql_tables import TableError
from enmasse.spark.versions import HAS_LIMITS
from enmasse.testing import free_port, wait_for
from tests.spark.conftest import DEADLINE, LIMIT, Broker
from tests.spark.copying import copy

pytestmark = pytest.mark.timeout(LIMIT)


def stream(spark: Any, broker: Broker, address: str, folder: Path, columns: str = "", **options: str) -> Any:
    reader = spark.readStream.format("amqp").option("url", broker.url).option("address", address)
    reader = reader.option("spool", str(folder / "spool"))
    for name, value in options.items():
        reader = reader.option(name, value)
    return (reader.schema(columns) if columns else reader).load()


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


@pytest.mark.slow  # test_values.py has the fields, test_lag.py what is behind
def test_bodies_become_the_fields_of_a_schema(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.queue("fields")
    bodies = ['{"device": "d1", "place": {"floor": 2}}', '{"device": 5}', '{"device": "d2"}']
    broker.send("fields", [Message(body=body, durable=True) for body in bodies])
    schema = "device string, place struct<floor int>"
    data = stream(spark, broker, "fields", tmp_path, bodyFormat="json", schema=schema, maxBytesPerTrigger="1")
    query = (
        data.select("offset", "value.device", "value.place.floor", "error", "text")
        .writeStream.format("memory")
        .queryName("fields")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        first, second, third = wait_rows(spark, query, "fields", 3)

        def read() -> bool:
            last = query.lastProgress
            return last is not None and last["sources"][0]["numInputRows"] == 0

        wait_for("the progress of all batches", read, DEADLINE)
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    finally:
        query.stop()
    assert (first.device, first.floor, first.error) == ("d1", 2, None)
    assert (second.device, second.error) == (None, "body: Expected `str | null`, got `int` - at `$.device`")
    assert second.text == bodies[1] and (third.device, third.floor) == ("d2", None)
    if HAS_LIMITS:
        assert [progress["numInputRows"] for progress in batches] == [1, 1, 1]
        lags = [json.loads(progress["sources"][0]["latestOffset"]) for progress in batches]
        assert [lag["record"] - lag["behind"] for lag in lags] == [1, 2, 3], "what the batches have taken"
        assert lags[2]["behind"] == 0 and lags[2]["oldestSeconds"] is None and lags[2]["spoolBytes"] > 0

    # The schema changes: the query goes on from its checkpoint, a body of the form before has null in the new field.
    broker.send("fields", [Message(body=body, durable=True) for body in (bodies[0], '{"device": "d3", "room": "r"}')])
    data = stream(spark, broker, "fields", tmp_path, bodyFormat="json", schema="room string, device string")
    changed: list[Any] = []

    def keep(rows: Any, batch: int) -> None:
        changed.extend(rows.select("offset", "value.device", "value.room", "error").collect())

    query = data.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_for("rows of the new form", lambda: query.exception() is not None or len(changed) == 2, DEADLINE)
    finally:
        query.stop()
    assert [tuple(row) for row in changed] == [(3, "d1", None, None), (4, "d3", "r", None)]


@pytest.mark.slow  # test_flight.py has the server and its client
def test_rows_of_a_spool_whose_files_are_not_seen_come_from_the_driver(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    """Without the file `id` no executor knows the folder as that of the spool; so it asks the driver."""
    broker.queue("flown")
    port = free_port()
    data = stream(spark, broker, "flown", tmp_path, flightHost="127.0.0.1", metricsPort=str(port))
    writer = data.writeStream.format("memory").queryName("flown")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        broker.send("flown", numbered(1))
        wait_rows(spark, query, "flown", 1)
        (tmp_path / "spool" / "id").unlink()
        for start in range(1, 301, 100):
            broker.send("flown", numbered(100, start))
            wait_rows(spark, query, "flown", start + 100)
        found = rows_of(spark, "flown")
        wait_for("all to be processed", lambda: scraped(port)["enmasse_spark_processed_total"] == 301, DEADLINE)
        metrics = scraped(port)
    finally:
        query.stop()
    assert [(row.offset, row.message_id) for row in found] == [(n, f"m{n}") for n in range(301)]
    assert (metrics["enmasse_spark_spooled_total"], metrics["enmasse_spark_behind"]) == (301, 0)
    assert metrics["enmasse_spark_spool_bytes"] > 301 * 16


def scraped(port: int) -> dict[str, float]:
    """The metrics of a query with one receiver, those of the states by `attached` alone."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
        families = parse(answer.read())
    samples = [sample for family in families for sample in family.samples]
    return {one.name: one.value for one in samples if one.labels.get("state", "attached") == "attached"}


def test_a_wrong_option_of_the_source_is_refused_at_load_with_one_sentence(spark: Any, tmp_path: Path) -> None:
    data = spark.readStream.format("amqp").option("adress", "a").option("spool", str(tmp_path / "spool"))
    with pytest.raises(AnalysisException) as caught:
        data.load()
    assert sentence(caught.value) == 'amqp source: there is no option "adress"; did you mean "address"?'
    assert "Traceback" not in str(caught.value) and len(str(caught.value).splitlines()) < 3


@pytest.mark.slow  # test_options.py has the sentences
def test_a_wrong_option_that_load_does_not_see_ends_the_query_with_one_sentence(spark: Any, tmp_path: Path) -> None:
    """Without a spool the options may be those of a table; with a schema Spark asks for no columns."""
    source = spark.readStream.format("amqp").option("url", "amqp://127.0.0.1").option("address", "a")
    reading = source.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    assert failing(reading) == 'amqp source: the option "spool" is missing: .option("spool", …)'
    reading = source.schema("body binary").load().writeStream.format("noop")
    said = failing(reading.option("checkpointLocation", str(tmp_path / "d")).trigger(availableNow=True))
    assert said == 'amqp source: the option "spool" is missing: .option("spool", …)'


def failing(query: Any) -> str:
    """Start a query; what its error tells the user."""
    with pytest.raises(StreamingQueryException) as caught:
        query.start().awaitTermination(DEADLINE)
    if "Python worker failed to connect back" in str(caught.value):  # Spark gives it ten seconds, on any machine
        return failing(query)
    found = sentence(caught.value)
    assert found is not None, str(caught.value)
    return found


@pytest.mark.slow  # test_failed_queries.py
def test_what_ends_a_query_is_reported_in_one_sentence(spark: Any, broker: Broker, tmp_path: Path) -> None:
    source = spark.readStream.format("amqp").option("url", broker.url).option("address", "nosuch")
    reading = source.option("spool", str(tmp_path / "spool")).load().writeStream.format("noop")
    said = failing(reading.option("checkpointLocation", str(tmp_path / "c")))
    assert said.startswith('amqp source: option "address": ') and "refuses 'nosuch' (amqp:not-found" in said

    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "some").write_text("one\n")
    text = spark.readStream.schema("value string").text(str(lines)).selectExpr("value as body")
    wrong = text.writeStream.format("amqp").option("adress", "a").option("checkpointLocation", str(tmp_path / "d"))
    assert failing(wrong) == 'amqp sink: there is no option "adress"; did you mean "address"?'
    sink = text.writeStream.format("amqp").option("url", broker.url).option("address", "nosuch")
    said = failing(sink.option("checkpointLocation", str(tmp_path / "e")))
    assert said.startswith('amqp sink: option "address": ') and "refuses 'nosuch' (amqp:not-found" in said


def start(spark: Any, broker: Broker, queue: str, lines: Path, checkpoint: Path, **options: str) -> Any:
    data = spark.readStream.schema("value string").text(str(lines)).selectExpr("value as body")
    sink = data.writeStream.format("amqp").option("url", broker.url).option("address", queue).options(**options)
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE)
    return query


@pytest.mark.slow  # test_sink.py has the ids
def test_queries_do_not_collide_and_a_repeated_batch_of_spark_is_stored_once(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    """Two queries with the same name for their sink; one of them is killed, as it were, before it noted its batch."""
    queue = broker.queue_without_duplicates("collide")
    lines, first, second = tmp_path / "lines", tmp_path / "first", tmp_path / "second"
    lines.mkdir()
    (lines / "some").write_text("one\ntwo\none\n")
    queries = [start(spark, broker, queue, lines, each, sinkId="same") for each in (first, second)]
    for note in (first / "commits").iterdir():
        note.unlink()
    start(spark, broker, queue, lines, first, sinkId="same")
    found = broker.receive(queue, 6)
    assert Counter(bytes(message.body) for message in found) == {b"one": 4, b"two": 2}
    assert len({message.id for message in found}) == 6
    for message in found:
        assert message.id.startswith("same-0-") and not any(query.id in message.id for query in queries)
    (lines / "more").write_text("last\n")
    start(spark, broker, queue, lines, first, sinkId="same")
    assert bytes(broker.receive(queue, 1)[0].body) == b"last", "the repeated batch left nothing behind it"


@pytest.mark.slow  # test_sink.py has the ids
@pytest.mark.parametrize(
    "ids", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("of partitions", "of rows")), "repeatable"]
)
def test_a_batch_that_is_repeated_with_other_partitions(spark: Any, broker: Broker, tmp_path: Path, ids: str) -> None:
    """Rows of `repeatable` are stored once, without it their ids depend on the partition; rows with ids of their own
    are stored once also if they have another content."""
    queue = broker.queue(f"divided {ids}")
    lines, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    lines.mkdir()
    for name in "abcd":
        (lines / name).write_text(f"{name}1\n{name}2\n{name}3\n" if ids == "of rows" else "one\ntwo\none\n")
    body = "concat(value, ' ', uuid())" if ids == "of rows" else "value"
    columns = [f"{body} as body", "map('k', 'v') as application_properties"]
    columns += ["value as message_id"] if ids == "of rows" else []
    rows = spark.readStream.schema("value string").text(str(lines)).selectExpr(*columns)
    sink = (repeatable(rows) if ids == "repeatable" else rows).writeStream.format("amqp").option("url", broker.url)
    sink = sink.option("address", queue).option("duplicateId", "true").option("checkpointLocation", str(checkpoint))
    size = "spark.sql.files.maxPartitionBytes"
    try:
        for most in ("100000000", "1"):  # all files in one partition, then each line's bytes in their own
            spark.conf.set(size, most)
            assert sink.trigger(availableNow=True).start().awaitTermination(DEADLINE)
            for note in (checkpoint / "commits").iterdir():
                note.unlink()
    finally:
        spark.conf.unset(size)
    stored = broker.depth(queue)
    found = broker.receive(queue, stored)
    bodies = Counter(bytes(message.body).split()[0] for message in found)
    if ids == "of partitions":
        assert stored > 12, "the gap that `repeatable` and ids of rows close"
    elif ids == "repeatable":
        assert bodies == {b"one": 8, b"two": 4} and len({message.id for message in found}) == 12
    else:
        assert bodies == Counter(b"%c%d" % (name, n) for name in b"abcd" for n in (1, 2, 3))


def test_a_write_sends_rows_to_their_addresses(spark: Any, broker: Broker) -> None:
    for name in ("write-a", "write-b"):
        broker.queue(name)
    rows = spark.range(100).selectExpr("cast(id as string) as body", "if(id < 30, 'write-a', 'write-b') as address")
    writer = rows.write.format("amqp").option("url", broker.url)
    writer.mode("append").save()
    assert (broker.depth("write-a"), broker.depth("write-b")) == (30, 70)
    messages = broker.receive("write-a", 30)
    assert sorted(int(bytes(message.body)) for message in messages) == list(range(30))
    assert len({message.id for message in messages}) == 30
    with pytest.raises(Exception, match="cannot be overwritten") as caught:
        writer.mode("overwrite").save()
    assert sentence(caught.value)


def test_a_read_leaves_a_queue_as_it_was(spark: Any, broker: Broker) -> None:
    """Depth, order and redelivery counts, whether all of it is read, a part, or what a filter leaves."""
    broker.queue("browsed")
    sent = [
        Message(id=f"m{i}", body=f"b{i}", durable=i % 2 == 0, subject=[None, "it's", "s"][i % 3], priority=i % 10)
        for i in range(60)
    ]
    broker.send("browsed", sent)
    connection = BlockingConnection(broker.url, timeout=DEADLINE)
    connection.create_receiver("browsed", credit=3).receive(timeout=DEADLINE)
    connection.close()  # what it held is in its place again, released or not
    rows = spark.read.format("amqp").option("url", broker.url).option("address", "browsed")
    before = [(m.id, m.delivery_count) for m in peek(broker, "browsed", 60)]
    found = rows.load().collect()
    assert [(row.message_id, row.delivery_count) for row in found] == before
    assert [row.offset for row in found] == list(range(60))
    assert rows.load().limit(1).count() == 1
    narrow = rows.schema("text string, priority int").load()
    assert narrow.columns == ["text", "priority"] and narrow.count() == 60
    for condition in (
        "subject = 'it''s' and priority > 3",
        "subject in ('s', 'it''s') and durable = true",
        "priority >= 9 or subject is null",
        "subject is null and not durable",
        "priority < 2 and subject like 's%'",
        "priority between 4 and 6 and subject <> 's'",
        "creation_time > timestamp'1990-01-01' or creation_time is null",
        "creation_time < timestamp'1990-01-01' and error is null",
    ):
        answers = {}
        for pushed in (AmqpDataSource, SelectingDataSource):
            spark.dataSource.register(pushed)
            data = spark.read.format("amqp").option("url", broker.url).option("address", "browsed").load()
            answers[pushed] = [row.message_id for row in data.where(condition).collect()]
        assert answers[AmqpDataSource] == answers[SelectingDataSource], condition
    assert rows.option("selector", "JMSPriority = 9").load().count() == 6
    assert [(m.id, m.delivery_count) for m in peek(broker, "browsed", 60)] == before
    assert broker.depth("browsed") == 60
    with pytest.raises(Exception, match="refuses") as caught:
        spark.read.format("amqp").option("url", broker.url).option("address", "nosuch").load().count()
    assert "amqp reader: " in str(sentence(caught.value))
    with pytest.raises(Exception, match="selector") as caught:
        rows.option("selector", "a =").load().count()
    assert """amqp reader: option "selector": """ in str(sentence(caught.value)) and "'a ='" in str(caught.value)


def peek(broker: Broker, queue: str, count: int) -> list[Message]:
    """Messages of a queue, by a browser of Proton's."""
    connection = BlockingConnection(broker.url, timeout=DEADLINE)
    receiver = connection.create_receiver(queue, credit=count, options=Copy())
    found = [receiver.receive(timeout=DEADLINE) for _ in range(count)]
    connection.close()
    return found


def test_addresses_are_tables(spark: Any, broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "addresses.json"
    names = {"tab.one": {"type": "queue"}, "tab_two": {"store_and_forward": True}, "t": {"type": "topic"}}
    file.write_text(json.dumps(names))
    for name in ("tab.one", "tab_two"):
        broker.queue(name)
    for path in (file, str(file)):
        assert register_addresses(spark, broker.url, path) == {"tab_one": "tab.one", "tab_two": "tab_two"}
    with pytest.raises(TableError, match=r"tab_two cannot be read as addresses.json.*or a list of addresses"):
        register_addresses(spark, broker.url, "tab_two")
    spark.sql("insert into tab_one (text, subject) values ('first', 'a'), ('second', 'b')")
    spark.sql("insert into tab_two (text) select upper(text) from tab_one where subject = 'b'")
    assert [row.text for row in spark.sql("select text from tab_two").collect()] == ["SECOND"]
    assert (broker.depth("tab.one"), broker.depth("tab_two")) == (2, 1)
    assert bytes(broker.receive("tab_two", 1)[0].body) == b"SECOND"
    with pytest.raises(TableError, match="would both be a_b"):
        register_addresses(spark, broker.url, ["a.b", "a-b"])
    with pytest.raises(TableError, match="cannot be read as addresses"):
        register_addresses(spark, broker.url, tmp_path / "nosuch.json")
    with pytest.raises(AnalysisException) as caught:
        spark.sql(f"create table t using amqp options (url '{broker.url}', address 'tab_two')")
    assert "CREATE TEMPORARY VIEW" in str(sentence(caught.value))


def numbered(count: int, start: int = 0) -> list[Message]:
    return [Message(id=f"m{i}", body=f"body {i}", durable=True) for i in range(start, start + count)]


def start_driver(broker: Broker, address: str, work: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.copying", broker.url, address, str(work)],
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
    found = []
    for name in files(work):
        found += [json.loads(line)["message_id"] for line in Path(name).read_text().splitlines()]
    return found


def files(work: Path) -> set[str]:
    """Those that the sink has committed."""
    found: set[str] = set()
    for log in (work / "out" / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            found.add(json.loads(line)["path"].removeprefix("file://"))
    return found


def wait_committed(work: Path, count: int) -> list[str]:
    wait_for(f"{count} rows that are committed", lambda: len(committed(work)) >= count, DEADLINE)
    return committed(work)


@pytest.mark.slow
def test_a_killed_driver_loses_and_doubles_nothing(spark: Any, broker: Broker, tmp_path: Path) -> None:
    """Another driver, that of this file's session, goes on with its checkpoint and its spool."""
    broker.queue("killed")
    broker.send("killed", numbered(300))
    driver = start_driver(broker, "killed", tmp_path)
    wait_committed(tmp_path, 1)
    connection = BlockingConnection(broker.url, timeout=DEADLINE)
    sender = connection.create_sender("killed", name="while-it-dies")
    for i, message in enumerate(numbered(300, 300)):
        sender.send(message)
        if i == 150:
            os.killpg(driver.pid, signal.SIGKILL)
    connection.close()
    driver.wait()
    again = copy(spark, broker.url, "killed", tmp_path)
    try:
        found = Counter(wait_committed(tmp_path, 600))
    finally:
        again.stop()
    assert set(found) == {f"m{i}" for i in range(600)}
    assert max(found.values()) == 1


@pytest.mark.slow
def test_two_receivers_lose_and_double_nothing_in_parquet_whatever_is_killed(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    """A query ends with either of its receivers, and the next one goes on; it survives the end of its broker."""
    broker.queue("two")
    spools = [partition_folder(tmp_path / "spool", n) for n in range(2)]

    def rows() -> list[tuple[int, str]]:
        tables = [pq.read_table(name) for name in files(tmp_path)]
        return [(row["partition"], row["message_id"]) for table in tables for row in table.to_pylist()]

    def more_than(count: int) -> bool:
        return len(rows()) > count

    for run, victim in enumerate(("first", "second", "broker")):
        columns = "partition int, message_id string"
        data = stream(spark, broker, "two", tmp_path, columns, receivers="2", credit="20")
        sink = data.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            broker.send("two", numbered(200, 200 * run))
            wait_for("most of the rows", partial(more_than, 200 * run + 100), DEADLINE)
            if victim == "broker":
                broker.process.kill()
                broker.process.wait()
                broker.process = broker.start()
                broker.send("two", numbered(200, 600))
                wait_for("all rows", partial(more_than, 799), DEADLINE)
            else:
                os.kill(owner_of(spools[victim == "second"] / "owner")["pid"], signal.SIGKILL)
                wait_for("the end of the query", query.exception, DEADLINE)
        finally:
            query.stop()
    found = rows()
    assert Counter(name for _, name in found) == Counter(f"m{i}" for i in range(800))
    assert {partition for partition, _ in found} == {0, 1}
