"""Ranges of the spool for executors that do not have its files."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from enmasse.spark.options import OptionError
from enmasse.spark.source import flight as flying
from enmasse.spark.source.flight import Endpoint, SpoolServer, certificate, fetched
from enmasse.spark.source.source import AmqpStreamReader, SpoolRange
from enmasse.spark.spool import segment
from enmasse.spark.spool.segment import SpoolError, segments
from enmasse.spark.spool.spool import SpoolWriter, id_of
from tests.spark.conftest import LIMIT

pytestmark = pytest.mark.timeout(LIMIT)
MESSAGES = [b"message %d " % n * (n % 7) for n in range(200)]


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(segment, "CHUNK_BYTES", 500)
    folder = tmp_path / "driver" / "spool"
    writer = SpoolWriter(folder, 4000)
    for message in MESSAGES:
        writer.append(message, 5)
        writer.sync()
    writer.close()
    assert len(segments(folder)) > 3
    return folder


@pytest.fixture
def server(spool: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SpoolServer]:
    monkeypatch.setattr(flying, "PAUSE", 0.01)
    with SpoolServer(spool, "127.0.0.1") as running:
        yield running


def messages(endpoint: Endpoint, start: int, end: int) -> list[bytes]:
    endpoint = pickle.loads(pickle.dumps(endpoint))  # as executors get it
    records = [record for chunk in fetched(endpoint, start, end) for record in chunk.records()]
    assert [record.offset for record in records] == list(range(start, end))
    assert {record.arrived_ms for record in records} <= {5}
    return [record.message for record in records]


def test_a_range_comes_as_it_is_in_the_spool(server: SpoolServer) -> None:
    for start, end in ((0, 200), (17, 18), (60, 190), (5, 5)):
        assert messages(server.endpoint, start, end) == MESSAGES[start:end]


def test_a_record_that_is_gone_ends_the_range_with_its_reason(server: SpoolServer, spool: Path) -> None:
    with pytest.raises(SpoolError, match=r"record 200 of the range 0\.\.201 is not in the spool"):
        messages(server.endpoint, 0, 201)
    segments(spool)[0][1].unlink()
    with pytest.raises(SpoolError, match=r"record 0 of the range 0\.\.50 is not in the spool"):
        messages(server.endpoint, 0, 50)


@pytest.mark.parametrize("token", ["", "wrong", "é", None])
def test_without_the_token_of_the_query_nothing_is_sent(server: SpoolServer, token: Any) -> None:
    with pytest.raises(SpoolError, match="the token of this query is missing"):
        messages(server.endpoint._replace(token=token), 0, 5)


@pytest.mark.parametrize(
    "ticket", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"token": "t", "start": "x", "end": 5}']
)
def test_requests_that_are_none_are_refused(server: SpoolServer, ticket: bytes) -> None:
    where = server.endpoint
    client = flight.FlightClient(where.location, tls_root_certs=where.certificate, override_hostname="spool")
    with client, pytest.raises(flight.FlightUnauthenticatedError):
        client.do_get(flight.Ticket(ticket)).read_all()
    assert messages(where, 0, 5) == MESSAGES[:5]


def test_a_server_with_another_certificate_gets_no_token(server: SpoolServer) -> None:
    other, _ = certificate()
    with pytest.raises(SpoolError, match="cannot be read"):
        messages(server.endpoint._replace(certificate=other), 0, 5)


def test_connections_without_tls_are_refused(server: SpoolServer) -> None:
    plain = server.endpoint.location.replace("grpc+tls", "grpc+tcp")
    with pytest.raises(SpoolError, match="cannot be read"):
        messages(server.endpoint._replace(location=plain), 0, 5)


def test_a_lost_connection_is_tried_again_from_where_it_was_lost(
    server: SpoolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    stream = flying._stream

    def lost(endpoint: Endpoint, start: int, end: int, partition: int) -> Iterator[Any]:
        asked.append(start)
        for n, chunk in enumerate(stream(endpoint, start, end, partition)):
            yield chunk
            if n == 2 and len(asked) < 3:
                raise flight.FlightUnavailableError("lost")

    monkeypatch.setattr(flying, "_stream", lost)
    assert messages(server.endpoint, 0, 200) == MESSAGES
    assert len(asked) == 3 and asked == sorted(set(asked))


def test_a_server_that_is_gone_fails_the_task_with_a_sentence(server: SpoolServer) -> None:
    server.shutdown()
    with pytest.raises(SpoolError, match=r'the range 0\.\.5 of the spool cannot be read .* "flightHost"'):
        messages(server.endpoint, 0, 5)


SERVING = """
import pickle
import sys
import threading
from pathlib import Path
from enmasse.spark.source import flight
from enmasse.spark.spool import segment
segment.CHUNK_BYTES = 500
chunks = flight.spool_chunks
def stopping(*span):
    for n, chunk in enumerate(chunks(*span)):
        if n == 3:
            threading.Event().wait()
        yield chunk
flight.spool_chunks = stopping
sys.stdout.buffer.write(pickle.dumps(flight.SpoolServer(Path(sys.argv[1]), "127.0.0.1").endpoint))
sys.stdout.flush()
sys.stdin.read()
"""


def test_a_server_that_is_killed_while_it_sends_gives_no_range_that_is_short(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task fails, and Spark runs it again, with the next driver's server."""
    monkeypatch.setattr(flying, "PAUSE", 0.01)
    command = [sys.executable, "-c", SERVING, str(spool)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        endpoint = pickle.load(process.stdout)
        found: list[bytes] = []
        with pytest.raises(SpoolError, match=r"the range 0\.\.200 of the spool cannot be read"):
            for chunk in fetched(endpoint, 0, 200):
                process.kill()
                process.wait()
                found += [record.message for record in chunk.records()]
    assert found and found == MESSAGES[: len(found)]
    with SpoolServer(spool, "127.0.0.1") as following:
        assert messages(following.endpoint, 0, 200) == MESSAGES


def test_many_executors_read_at_once(server: SpoolServer) -> None:
    found: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: found.append(messages(server.endpoint, 0, 200))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [MESSAGES] * 8


def test_an_executor_reads_the_files_only_if_they_are_those_of_the_spool(
    server: SpoolServer, spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = AmqpStreamReader({"address": "a", "spool": str(tmp_path / "here")})

    def read(endpoint: Endpoint | None) -> list[Any]:
        batches = list(reader.read(SpoolRange(3, 9, id_of(spool), endpoint)))
        return [body or b"" for batch in batches for body in batch.column("body").to_pylist()]

    assert read(server.endpoint) == MESSAGES[3:9], "nothing is here"
    writer = SpoolWriter(tmp_path / "here")  # of another query, whose driver was here
    writer.append(b"of another spool", 1)
    writer.close()
    assert read(server.endpoint) == MESSAGES[3:9]
    with pytest.raises(SpoolError, match="must be the same for driver and executors"):
        read(None)
    reader.settings["spool"] = str(spool)
    asked: list[Any] = []
    monkeypatch.setattr("enmasse.spark.source.source.fetched", asked.append)
    assert read(server.endpoint) == MESSAGES[3:9] and asked == []


def test_an_address_that_cannot_be_served_on_is_refused(spool: Path) -> None:
    options = {"address": "a", "spool": str(spool)}
    reader = AmqpStreamReader({**options, "flighthost": "203.0.113.1"})
    with pytest.raises(OptionError, match=r'"flightHost", "flightPort": cannot listen on 203\.0\.113\.1'):
        reader.partitions({"record": 0}, {"record": 5})
    reader.stop()
    with pytest.raises(OptionError, match=r"needs the option .flightHost."):
        AmqpStreamReader({**options, "flightport": "1234"})
    assert AmqpStreamReader(options).partitions({"record": 0}, {"record": 5})[0].endpoint is None
