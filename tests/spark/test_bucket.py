"""A spool in an object store: fenced by its puts, whatever becomes of them; and as the source has it, in S3."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.exceptions import GenericError
from obstore.store import MemoryStore
from proton import Message
from proton.utils import BlockingConnection

from enmasse.spark.options import OptionError
from enmasse.spark.receiver.receivers import ReceiverError
from enmasse.spark.source.source import AmqpStreamReader, receiver_settings
from enmasse.spark.spool.bucket import CLAIM, Bucket, Objects, connected
from enmasse.spark.spool.ownership import SpoolTakenError
from enmasse.spark.spool.segment import SpoolError, read_spool, segment_name
from enmasse.spark.spool.spool import SpoolWriter
from tests.kit.s3 import BUCKET, s3_server
from tests.kit.waiting import wait_for
from tests.spark.conftest import LIMIT, Broker

pytestmark = pytest.mark.timeout(LIMIT)


class Unsteady:
    """A store whose puts of segments may fail: before they count, after they have, or before they count later."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.fault = self.always = ""
        self.late: list[Callable[[], Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put(self, path: str, content: bytes, **how: Any) -> Any:
        if content.startswith(CLAIM) or not path.endswith(".seg"):
            return self.store.put(path, content, **how)
        fault, self.fault = self.fault or self.always, ""
        if fault == "late":
            self.late.append(partial(self.store.put, path, content, **how))
        done = self.store.put(path, content, **how) if fault in ("", "answer") else None
        if fault:
            raise GenericError("the connection was lost")
        return done

    def arrive(self) -> None:
        """Let those arrive that are late."""
        for put in self.late:
            with suppress(Exception):
                put()
        self.late.clear()


def opened(store: Any, folder: Path) -> SpoolWriter:
    shutil.rmtree(folder, ignore_errors=True)
    return SpoolWriter(folder, bucket=Bucket(Objects(store), "s3://b"))


def append(writer: SpoolWriter, *messages: bytes) -> None:
    for message in messages:
        writer.append(message, 1)
    writer.sync()


def bodies(store: Any, folder: Path) -> list[bytes]:
    """What a process has that opens the spool."""
    writer = opened(store, folder)
    first = min(int(path.stem) for path in folder.glob("*.seg"))
    found = [record.message for record in read_spool(folder, first, writer.count)]
    writer.close()
    return found


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(["take", "put", "put", "before", "answer", "late", "arrive"]), st.booleans()
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_whoever_takes_over_whatever_becomes_of_puts_what_was_accepted_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, bool]]
) -> None:
    """Three machines. Of a step with True another machine takes over, and stores, before a put that failed is made
    again."""
    folder, store = tmp_path_factory.mktemp("spool"), Unsteady()
    accepted: list[bytes] = []
    refused: set[bytes] = set()
    writers: dict[int, SpoolWriter] = {}
    meanwhile: list[Callable[[], None]] = []

    def pause(seconds: float) -> None:
        if meanwhile:
            meanwhile.pop()()

    def take(machine: int) -> None:
        if machine in writers:
            writers.pop(machine).close()
        shutil.rmtree(folder / str(machine), ignore_errors=True)
        writers[machine] = SpoolWriter(folder / str(machine), bucket=Bucket(Objects(store), "s3://b", pause=pause))

    def put(machine: int, message: bytes) -> None:
        try:
            append(writers[machine], message)
            accepted.append(message)
        except SpoolTakenError:
            refused.add(message)
            writers.pop(machine).close()

    def overtaken(machine: int, message: bytes) -> None:
        take(machine)
        put(machine, message)

    for n, (machine, step, overtakes) in enumerate(steps):
        if step == "arrive":
            store.arrive()
        elif step == "take" or machine not in writers:
            take(machine)
        else:
            store.fault = "" if step == "put" else step
            if overtakes and step != "put":
                other = (machine + 1) % 3
                meanwhile.append(partial(overtaken, other, b"%d of machine %d" % (n, other)))
            put(machine, b"%d of machine %d" % (n, machine))
            store.fault = ""
            meanwhile.clear()
    store.arrive()
    found = Counter(bodies(store, folder / "last") if accepted else [])
    assert max(found.values(), default=1) == 1 and found.keys() >= set(accepted)
    assert found.keys() <= {*accepted, *refused}
    for writer in writers.values():
        writer.close()


def test_a_store_that_does_not_answer_ends_the_query_after_a_while(tmp_path: Path) -> None:
    """Nothing of what came last is accepted; what may have been stored is there for the next run, once."""
    store, times = Unsteady(), iter(range(0, 1_000_000, 7))
    bucket = Bucket(Objects(store), "s3://b", now=lambda: float(next(times)), pause=lambda seconds: None)
    writer = SpoolWriter(tmp_path / "a", bucket=bucket)
    append(writer, b"one")
    store.always = "late"
    with pytest.raises(SpoolError, match=r"s3://b: what came last could not be stored in 60 s.* was lost"):
        append(writer, b"two")
    store.always = ""
    store.arrive()
    writer.close()
    assert bodies(store, tmp_path / "b") == [b"one", b"two"]


def test_files_are_a_copy_of_the_objects(tmp_path: Path) -> None:
    store = MemoryStore()
    writer = opened(store, tmp_path / "a")
    append(writer, b"one", b"two")
    (tmp_path / "a" / "settled").write_bytes((1).to_bytes(8, "big"))
    append(writer, b"three")
    writer.keep(b"[]")
    assert writer.bucket is not None
    gone = writer.forgettable(3)
    assert [segment.end for segment in gone] == [2], "the last one tells how many there were"
    writer.bucket.delete([int(segment.path.stem) for segment in gone])
    writer.forget(gone)
    append(writer, b"four")
    writer.close()
    copy = opened(store, tmp_path / "b")
    assert copy.count == 4 and [record.message for record in read_spool(tmp_path / "b", 2, 4)] == [b"three", b"four"]
    assert (tmp_path / "b" / "settled").read_bytes() == (1).to_bytes(8, "big")
    assert (tmp_path / "b" / "unsettled").read_bytes() == b"[]"
    with pytest.raises(SpoolTakenError, match=r"s3://b: process .* has taken over this spool"):
        writer.keep(b"[1]")
    copy.keep(b"[2]")
    copy.close()


@pytest.mark.parametrize("size", [0, 12])
def test_an_object_that_is_missing_or_damaged_is_named(tmp_path: Path, size: int) -> None:
    store = MemoryStore()
    writer = opened(store, tmp_path / "a")
    for message in (b"one", b"two", b"three"):
        append(writer, message)
    writer.close()
    if size:
        store.put(segment_name(1), bytes(store.get(segment_name(1)).bytes())[:size])
    else:
        store.delete(segment_name(1))
    with pytest.raises(SpoolError, match=f"s3://b: .*{segment_name(1 if size else 2)}.* after record 1"):
        opened(store, tmp_path / "b")


def test_a_busy_owner_lets_another_process_take_over(tmp_path: Path) -> None:
    """It looks once a second: without that one that puts without a pause would always be faster."""
    store = MemoryStore()
    busy = opened(store, tmp_path / "busy")

    def work() -> int:
        for n in range(1_000_000):
            append(busy, b"%d" % n)
        raise AssertionError("never ended")

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        wait_for(lambda: busy.count > 20, "records of the busy one")
        other = opened(store, tmp_path / "other")
        with pytest.raises(SpoolTakenError):
            working.result(LIMIT)
    assert [record.message for record in read_spool(tmp_path / "other", 0, other.count)] == [
        b"%d" % n for n in range(other.count)
    ]
    assert other.count >= busy.count
    other.close()
    busy.close()


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as environment:
        yield environment


def segment_names(spool: str) -> list[str]:
    found = [one["path"] for page in connected(f"s3://{BUCKET}/{spool}").list() for one in page]
    return [name for name in found if name.endswith(".seg")]


def messages(count: int, start: int) -> list[Message]:
    return [Message(id=n % 7, body=str(n), durable=True) for n in range(start, start + count)]


@pytest.mark.slow
def test_three_machines_one_after_the_other_receive_each_message_once(
    broker: Broker, s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is killed, the second taken over from while it works; none has files of another."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    broker.queue("stored")
    options = {
        "url": broker.url,
        "address": "stored",
        "spool": f"s3://{BUCKET}/q",
        "credit": "40",
        "spooldelay": "50ms",
    }

    def machine(name: str, **more: str) -> AmqpStreamReader:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        reader = AmqpStreamReader({**options, **more})
        reader.started().await_address()
        return reader

    def stored(reader: AmqpStreamReader) -> int:
        assert reader.receivers is not None
        return sum(reader.receivers.heads())

    first = machine("first")
    broker.send("stored", messages(200, 0))
    wait_for(lambda: stored(first) >= 60, "messages in the first spool")
    first.started().processes[0].process.send_signal(signal.SIGKILL)
    second = machine("second", receivers="2", partitioned="true")
    connection = BlockingConnection(broker.url, timeout=LIMIT)
    sender = connection.create_sender("stored")
    for message in messages(100, 200):
        sender.send(message)
    wait_for(lambda: stored(second) >= 230, "messages in the second spool")
    third = machine("third")
    for message in messages(100, 300):
        sender.send(message)
    connection.close()
    try:
        wait_for(lambda: stored(third) == 400, f"all in the third spool ({stored(third)})")
        wait_for(lambda: broker.depth("stored") == 0, "the broker to have all acceptances")
        with pytest.raises(ReceiverError, match=r"has taken over this spool|another receiver of the query has ended"):
            wait_for(lambda: second.started() and False, "the second to end")
        start, end = third.initialOffset(), third.latestOffset(third.initialOffset(), third.getDefaultReadLimit())
        batches = [rows for one in third.partitions(start, end) for rows in third.read(one)]
        assert Counter(text for rows in batches for text in rows["text"].to_pylist()) == Counter(
            str(n) for n in range(400)
        )
        assert len(segment_names("q")) > 10
        third.commit(end)
        wait_for(lambda: len(segment_names("q")) <= 3, "all but the last segments and a claim to be deleted")
    finally:
        for reader in (first, second, third):
            reader.stop()
    assert not list((tmp_path / "third").rglob("*.seg")), "the copy goes with the query"


def test_a_store_that_cannot_be_used_is_named(
    broker: Broker, s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**s3, "XDG_CACHE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    options = {"url": broker.url, "address": "stored", "spool": "s3://no-such-bucket/q"}
    with pytest.raises(ReceiverError, match=r'option "spool": s3://no-such-bucket/q: .*AWS_ACCESS_KEY_ID') as caught:
        AmqpStreamReader(options).started()
    assert "of the spool" not in str(caught.value), "no secret"
    with pytest.raises(OptionError, match="spoolDelay"):
        receiver_settings({**options, "spool": "a", "spooldelay": "1s"})


def test_the_origin_is_in_the_bucket(tmp_path: Path) -> None:
    store = Unsteady()
    writer = opened(store, tmp_path / "a")
    assert writer.origin() == b""
    writer.note_origin(b"of a")
    writer.close()
    assert opened(store, tmp_path / "b").origin() == b"of a"
