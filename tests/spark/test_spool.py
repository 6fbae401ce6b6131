"""The spool against what it promises: what was synced is there, in order, once; what was not is not believed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enmasse.spark.spool import segment, segment_index
from enmasse.spark.spool import spool as spooling
from enmasse.spark.spool.ownership import SpoolTakenError
from enmasse.spark.spool.segment import RECORD, SpoolError, read_spool, segment_chunks, segments
from enmasse.spark.spool.segment_index import ENTRY, index_of
from enmasse.spark.spool.spool import COUNT, SpoolWriter, head_of
from enmasse.storage.durable import replace_file


def bodies(folder: Path, start: int, end: int) -> list[bytes]:
    return [record.message for record in read_spool(folder, start, end)]


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "SEGMENT_BYTES", 400)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=st.lists(st.lists(st.binary(max_size=120), max_size=8), max_size=12), cut=st.integers(0, 200))
def test_what_was_synced_comes_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[bytes]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(folder)
    for group in groups:
        for message in group:
            writer.append(message, 1)
        writer.sync()
    writer.append(b"never synced", 1)
    writer.close()
    expected = [message for group in groups for message in group]
    again = SpoolWriter(folder)
    assert again.count == len(expected)
    assert bodies(folder, 0, len(expected)) == expected
    at = min(cut, len(expected))
    assert bodies(folder, at, len(expected)) == expected[at:]
    again.append(b"next", 2)
    again.sync()
    assert bodies(folder, len(expected), len(expected) + 1) == [b"next"]
    again.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(torn=st.integers(1, 60), noise=st.binary(max_size=40))
def test_a_torn_tail_is_cut_off(tmp_path_factory: pytest.TempPathFactory, torn: int, noise: bytes) -> None:
    folder = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(folder)
    for i in range(3):
        writer.append(b"kept %d" % i, 1)
    writer.sync()
    writer.append(b"x" * 64, 1)
    writer.sync()
    writer.close()
    (folder / "head").write_bytes(COUNT.pack(3))  # as it is when the writer dies before the sync has ended
    _, last = segments(folder)[-1]
    os.truncate(last, last.stat().st_size - torn)
    with last.open("ab") as file:
        file.write(b"\x00\x00\x00\x10" + noise)
    again = SpoolWriter(folder)
    assert again.count == 3
    assert bodies(folder, 0, 3) == [b"kept 0", b"kept 1", b"kept 2"]
    again.close()


def test_a_damaged_segment_is_no_torn_tail(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    for i in range(3):
        writer.append(b"message %d" % i, 1)
    writer.sync()
    writer.close()
    _, last = segments(tmp_path)[-1]
    good = last.read_bytes()
    bad = good.replace(b"message 1", b"massage 1")
    last.write_bytes(bad)
    for _ in range(2):  # it stays as it is: nothing is cut off
        with pytest.raises(SpoolError, match="damaged after record 1, but 3 were accepted"):
            SpoolWriter(tmp_path)
        assert last.read_bytes() == bad
    last.unlink()
    with pytest.raises(SpoolError, match="missing or damaged after record 0"):
        SpoolWriter(tmp_path)
    last.write_bytes(good)
    again = SpoolWriter(tmp_path)
    assert again.count == 3
    again.close()


def test_a_head_that_was_not_written_whole_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "head").write_bytes(b"")
    writer = SpoolWriter(tmp_path)
    writer.append(b"first", 1)
    writer.sync()
    writer.close()
    assert head_of(tmp_path).get() == 1


def test_files_of_others_are_no_segments(tmp_path: Path) -> None:
    (tmp_path / "notes.seg").write_text("mine")
    writer = SpoolWriter(tmp_path)
    assert [first for first, _ in segments(tmp_path)] == [0]
    writer.close()


def test_a_spool_of_any_limit_gets_under_it_again(tmp_path: Path) -> None:
    SpoolWriter(tmp_path).close()
    for _ in range(2):  # the second time with what the first has left
        writer = SpoolWriter(tmp_path, 200)
        while writer.bytes_held() <= 200:
            writer.append(b"x" * 50, 1)
            writer.sync()
        writer.forget(writer.forgettable(writer.count))
        assert writer.bytes_held() < 100
        writer.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(failing=st.lists(st.sampled_from(["", "", "open", "sync_folder"]), min_size=1, max_size=12))
def test_a_new_segment_that_cannot_be_made_refuses_the_next_group_not_the_stored_one(
    tmp_path_factory: pytest.TempPathFactory, failing: list[str]
) -> None:
    """A group that `sync` refuses comes again; one that it has stored may not."""
    folder = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(folder, 200)
    opening, stored = os.open, 0

    def refused(path: Path, *rest: int) -> int:
        if str(path).endswith(".seg"):
            raise OSError(28, "No space left on device", str(path))
        return opening(path, *rest)

    for failure in [*failing, ""]:
        with pytest.MonkeyPatch.context() as patch:
            if failure == "open":
                patch.setattr(os, "open", refused)
            elif failure == "sync_folder":
                patch.setattr(spooling, "sync_folder", Mock(side_effect=OSError(5, "Input/output error")))
            for _ in range(3):
                writer.append(b"%060d" % stored, 1)
                try:
                    writer.sync()
                except OSError:
                    assert failure
                else:
                    stored += 1
        assert writer.count == stored
    writer.close()
    assert bodies(folder, 0, stored) == [b"%060d" % n for n in range(stored)]
    again = SpoolWriter(folder, 200)
    assert again.count == stored
    again.close()


def test_only_one_process_writes(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    code = (
        "from pathlib import Path; from enmasse.spark.spool.spool import SpoolWriter; "
        f"SpoolWriter(Path({str(tmp_path)!r}))"
    )
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another receiver writes this spool" in second.stderr
    writer.close()


def unlocked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SpoolWriter:
    """A writer on another machine, which does not see the locks of this one."""
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", Mock())
        return SpoolWriter(folder)


def append(writer: SpoolWriter, *messages: bytes) -> None:
    for message in messages:
        writer.append(message, 1)
    writer.sync()


def test_a_writer_whose_spool_was_taken_over_stores_nothing_that_it_could_accept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = unlocked(tmp_path, monkeypatch)
    append(first, b"one", b"two")
    second = unlocked(tmp_path, monkeypatch)
    with pytest.raises(SpoolTakenError, match=f"process {os.getpid()} on .* has taken over this spool"):
        append(first, b"of the first one")
    append(second, b"three")
    with pytest.raises(SpoolTakenError):
        append(first, b"of the first one")
    append(second, b"four")
    with pytest.raises(SpoolTakenError):
        first.forget(first.forgettable(2))
    assert bodies(tmp_path, 0, 4) == [b"one", b"two", b"three", b"four"]
    second.close()
    third = SpoolWriter(tmp_path)
    assert third.count == 4 and bodies(tmp_path, 0, 4) == [b"one", b"two", b"three", b"four"]
    third.close()
    first.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_whoever_takes_over_in_whatever_order_what_was_stored_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    """Four machines that share a file system without locks; each stores a message or takes the spool over."""
    folder = tmp_path_factory.mktemp("spool")
    stored: list[bytes] = []
    writers: dict[int, SpoolWriter] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", Mock())
        for n, (machine, takes) in enumerate(steps):
            if takes or machine not in writers:
                if machine in writers:
                    writers[machine].close()
                writers[machine] = SpoolWriter(folder)
                continue
            message = b"%d of machine %d" % (n, machine)
            try:
                append(writers[machine], message)
                stored.append(message)
            except SpoolTakenError:
                writers.pop(machine).close()
        last = SpoolWriter(folder)
        assert last.count == len(stored) and bodies(folder, 0, last.count) == stored
        for writer in (last, *writers.values()):
            writer.close()


def test_what_comes_after_the_folder_was_removed_is_not_stored(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    writer = SpoolWriter(folder)
    append(writer, b"one")
    shutil.rmtree(folder)
    with pytest.raises(SpoolTakenError, match="the spool was removed while it was in use"):
        append(writer, b"two")
    other = SpoolWriter(folder)
    with pytest.raises(SpoolTakenError, match="has taken over"):
        append(writer, b"three")
    assert other.count == 0
    other.close()
    writer.close()


def test_a_spool_is_opened_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a query that is started again can read it, and make room."""
    first = SpoolWriter(tmp_path)
    append(first, b"one")
    first.close()
    monkeypatch.setattr(spooling, "replace_file", Mock(side_effect=OSError(28, "No space left on device")))
    size = (tmp_path / "owner").stat().st_size
    again = SpoolWriter(tmp_path)
    assert again.count == 1 and (tmp_path / "owner").stat().st_size == size
    again.close()


def test_a_missing_range_is_loud(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    writer.append(b"one", 1)
    writer.sync()
    with pytest.raises(SpoolError, match=r"record 1 of the range 0\.\.2"):
        bodies(tmp_path, 0, 2)
    writer.close()


def test_whole_segments_are_forgotten(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    for i in range(40):
        writer.append(b"m" * 50, i)
        writer.sync()
    names = segments(tmp_path)
    assert len(names) > 3
    middle = names[2][0]
    assert writer.forget(writer.forgettable(middle)) == 2
    assert segments(tmp_path)[0][0] == middle
    assert len(bodies(tmp_path, middle, 40)) == 40 - middle
    with pytest.raises(SpoolError):
        bodies(tmp_path, 0, 40)
    writer.close()
    again = SpoolWriter(tmp_path)
    assert again.count == 40
    again.close()


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for _, path in segments(folder))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.lists(st.binary(max_size=300), min_size=1, max_size=4),
            st.sampled_from(["restart", "tear", "full disk"]),
            st.integers(0, 60),
        ),
        max_size=25,
    )
)
def test_the_bytes_held_are_those_on_disk_over_commits_restarts_and_torn_tails(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[bytes] | str | int]
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    writer = SpoolWriter(folder)
    for step in steps:
        if isinstance(step, list):
            for message in step:
                writer.append(message, 1)
            writer.sync()
        elif isinstance(step, int):
            writer.forget(writer.forgettable(step))
        elif step == "full disk":
            with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="full"):
                patch.setattr(os, "fdatasync", Mock(side_effect=OSError("full")))
                writer.append(b"not stored", 1)
                writer.sync()
        else:
            writer.close()
            if step == "tear":
                with segments(folder)[-1][1].open("ab") as file:
                    file.write(b"\x00\x00\x00\x10torn")
            writer = SpoolWriter(folder)
        assert writer.bytes_held() == on_disk(folder)
    writer.close()


def test_a_segment_that_another_process_deleted_is_no_longer_held_once_measured(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    for i in range(40):
        writer.append(b"m" * 50, i)
        writer.sync()
    segments(tmp_path)[1][1].unlink()
    writer.measure()
    assert writer.bytes_held() == on_disk(tmp_path)
    writer.close()


def test_a_group_of_messages_is_stored_without_looking_at_the_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SpoolWriter(tmp_path)
    for i in range(40):
        writer.append(b"m" * 50, i)
        writer.sync()
    looked = Mock()
    monkeypatch.setattr(spooling, "size_of", looked)
    monkeypatch.setattr(spooling, "segments", looked)
    writer.append(b"one more", 1)
    writer.sync()
    assert writer.bytes_held() == on_disk(tmp_path)
    looked.assert_not_called()
    writer.close()


def test_nobody_else_may_read_a_spool(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "spool"
    before = os.umask(0)
    try:
        writer = SpoolWriter(folder)
        for i in range(40):
            writer.append(b"m" * 50, i)
            writer.sync()
        replace_file(folder / "more", b"[]")
        writer.close()
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert {"spool", "head", "lock", "more"} < found.keys() and len(found) > 6
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}


def test_the_head_is_seen_by_readers(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    head = head_of(tmp_path)
    assert head.get() == 0
    writer.append(b"one", 1)
    assert head.get() == 0
    writer.sync()
    assert head.get() == 1
    writer.close()


STRIDES = st.sampled_from([1, 90, 400, 10_000])


def filled(folder: Path, messages: list[bytes], group: int = 3) -> None:
    writer = SpoolWriter(folder)
    for at in range(0, len(messages), group):
        for message in messages[at : at + group]:
            writer.append(message, 1)
        writer.sync()
    writer.close()


def spoilt(data: bytes, at: int, how: str) -> bytes:
    """What may be left of an index after a loss of power, or on a damaged disk."""
    at = at % (len(data) + 1)
    return {
        "torn": data[:at],
        "zeroes": data[:at] + bytes(len(data) - at),
        "flipped": data[:at] + b"\xff" + data[at + 1 :],
    }[how]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    messages=st.lists(st.binary(max_size=120), min_size=1, max_size=40),
    stride=STRIDES,
    chunk=st.sampled_from([1, 60, 300, 4 << 20]),
    at=st.integers(0, 3000),
    how=st.sampled_from(["as it was", "none", "torn", "zeroes", "flipped"]),
    span=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_a_range_is_the_same_with_any_index_or_none(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[bytes],
    stride: int,
    chunk: int,
    at: int,
    how: str,
    span: tuple[int, int],
) -> None:
    """A spool of an earlier release has none."""
    folder = tmp_path_factory.mktemp("spool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_index, "STRIDE", stride)
        patch.setattr(segment, "CHUNK_BYTES", chunk)
        filled(folder, messages)
        for _, path in segments(folder):
            if how == "none":
                index_of(path).unlink()
            elif how != "as it was":
                index_of(path).write_bytes(spoilt(index_of(path).read_bytes(), at, how))
        start, end = sorted(min(one, len(messages)) for one in span)
        assert bodies(folder, start, end) == messages[start:end]


def test_a_range_reads_its_own_bytes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "SEGMENT_BYTES", 1 << 20)
    monkeypatch.setattr(segment_index, "STRIDE", 500)
    filled(tmp_path, [b"m" * 84] * 1000)
    ((first, path),) = segments(tmp_path)
    data = b"".join(chunk.data for chunk in segment_chunks(path, first, 500, 520))
    assert 20 * 100 <= len(data) <= 20 * 100 + 2 * 500
    index_of(path).unlink()
    assert len(b"".join(chunk.data for chunk in segment_chunks(path, first, 500, 520))) == 1000 * 100


def test_an_entry_that_names_another_record_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_index, "STRIDE", 1)
    filled(tmp_path, [b"record %d" % n for n in range(10)])
    ((_, path),) = segments(tmp_path)
    entries = index_of(path).read_bytes()
    moved = RECORD.size + len(b"record 0")
    index_of(path).unlink()
    for record in range(10):  # each says that the record begins where another one does
        record_, position, crc, _ = ENTRY.unpack_from(entries, record * ENTRY.size)
        wrong = segment_index.packed(segment_index.IndexEntry(record_, (position + moved) % (10 * moved), crc))
        with index_of(path).open("ab") as file:
            file.write(wrong)
    for record in range(10):
        assert bodies(tmp_path, record, record + 1) == [b"record %d" % record]


def test_the_index_of_the_last_segment_is_made_anew_when_the_spool_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_index, "STRIDE", 100)
    for n in range(5):
        filled(tmp_path / str(n), [b"m" * 20] * 8)
        ((_, path),) = segments(tmp_path / str(n))
        before = index_of(path).read_bytes()
        assert len(before) // ENTRY.size > 2
        index_of(path).write_bytes((b"", before[:30], b"\x00" * 50, before + before, before)[n])
        if n == 4:
            index_of(path).unlink()
        SpoolWriter(tmp_path / str(n)).close()
        assert index_of(path).read_bytes() == before


def test_the_index_goes_with_its_segment(tmp_path: Path) -> None:
    filled(tmp_path, [b"m" * 50] * 40)
    writer = SpoolWriter(tmp_path)
    writer.forget(writer.forgettable(20))
    kept = {path.stem for _, path in segments(tmp_path)}
    assert len(kept) > 1 and {path.stem for path in tmp_path.glob("*.idx")} == kept
    writer.close()


@pytest.mark.parametrize("write", [Mock(side_effect=OSError("full")), Mock(return_value=7)])
def test_an_index_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Mock
) -> None:
    monkeypatch.setattr(segment_index, "STRIDE", 50)
    with monkeypatch.context() as patch:
        writing = os.write
        writer = SpoolWriter(tmp_path)

        def refused(file: int, data: bytes) -> int:
            if not os.readlink(f"/proc/self/fd/{file}").endswith(".idx"):
                return writing(file, data)
            writing(file, data[:7])
            return int(write(file, data))

        patch.setattr(os, "write", refused)
        for n in range(4):
            writer.append(b"while full %d" % n, 1)
            writer.sync()
        patch.undo()
    for n in range(4):
        writer.append(b"afterwards %d" % n, 1)
        writer.sync()
    writer.close()
    assert bodies(tmp_path, 0, 8) == [b"while full %d" % n for n in range(4)] + [b"afterwards %d" % n for n in range(4)]
    ((_, path),) = segments(tmp_path)
    assert segment_index.SegmentIndex(path).before(7) is not None
    assert segment_index.SegmentIndex(path).before(3) is None
