"""The spool against what it promises: what was synced is there, in order, once; what was not is not believed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enmasse.durable import replace_file
from enmasse.spark import spool as spooling
from enmasse.spark.spool import COUNT, SpoolError, SpoolWriter, head_of, read_spool, segments


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


def test_only_one_process_writes(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    code = (
        f"from pathlib import Path; from enmasse.spark.spool import SpoolWriter; SpoolWriter(Path({str(tmp_path)!r}))"
    )
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another receiver writes this spool" in second.stderr
    writer.close()


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
