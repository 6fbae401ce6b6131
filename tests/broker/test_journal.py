"""The journal alone: what comes back after an orderly end, a torn one, a flipped bit, a full disk."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.broker.storage.journal.file_operations import RealFiles
from services.broker.storage.journal.journal import Journal
from services.broker.storage.journal.segment import FIRST, HEAD_SIZE

from .disks import FullFiles, PowerCutError, TearingFiles

Records = list[tuple[int, bytes]]


def open_journal(directory: Path, files: RealFiles | None = None, size: int = 4096) -> tuple[Journal, Records]:
    found: Records = []
    journal = Journal.open(
        directory, files or RealFiles(), lambda kind, data, at: found.append((kind, bytes(data))), segment_size=size
    )
    return journal, found


def fill(journal: Journal, rng: random.Random, batches: int = 25) -> list[tuple[int, bytes, int]]:
    written: list[tuple[int, bytes, int]] = []
    for _ in range(batches):
        for _ in range(rng.randrange(1, 8)):
            data = b"%d:" % len(written) + rng.randbytes(rng.choice((0, 1, 30, 200, 700)))  # no two alike
            kind = rng.randrange(2, 10)
            written.append((kind, data, journal.append(kind, data[:5], data[5:])))
        journal.commit()
        journal.flush()
    return written


def test_records_come_back_in_order_over_segments(tmp_path: Path) -> None:
    journal, found = open_journal(tmp_path)
    assert not found
    written = fill(journal, random.Random(1))
    assert len(journal.segments) > 2
    for kind, data, location in written:
        found_kind, payload = journal.read(location, len(data) + HEAD_SIZE)
        assert (found_kind, bytes(payload)) == (kind, data)
    journal.close()
    journal, found = open_journal(tmp_path)
    assert found == [(kind, data) for kind, data, _ in written]
    assert not journal.damaged
    more = fill(journal, random.Random(2))
    assert min(m[2] for m in more) > max(w[2] for w in written)  # no segment is written to again
    journal.close()
    assert open_journal(tmp_path)[1] == [(k, d) for k, d, _ in written + more]


def test_a_record_larger_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path)
    data = random.Random(0).randbytes(100_000)
    location = journal.append(5, data)
    after = journal.append(6, b"small")
    assert bytes(journal.read(location, len(data) + HEAD_SIZE)[1]) == data  # not written yet
    journal.flush()
    assert bytes(journal.read(after, 5 + HEAD_SIZE)[1]) == b"small"
    journal.close()
    assert open_journal(tmp_path)[1] == [(5, data), (6, b"small")]


@pytest.mark.parametrize("seed", range(8))
def test_a_torn_end_is_cut_off_in_silence(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = TearingFiles(rng)
    journal, _ = open_journal(tmp_path, files)
    written = fill(journal, rng)
    lost = [(7, rng.randbytes(300)) for _ in range(5)]
    for kind, data in lost:
        journal.append(kind, data)
    files.fuse = rng.randrange(3)
    with pytest.raises(PowerCutError):
        journal.flush()
        files.spend()
    files.power_cut()
    journal, found = open_journal(tmp_path)
    committed = [(kind, data) for kind, data, _ in written]
    assert found[: len(committed)] == committed
    assert found[len(committed) :] == lost[: len(found) - len(committed)]
    assert not journal.damaged
    journal.close()
    assert open_journal(tmp_path)[1] == found


def append_group(journal: Journal, records: Records, size: int = 0) -> list[int]:
    with journal.group(size):
        return [journal.append(kind, data) for kind, data in records]


@pytest.mark.parametrize("size", [0, 100_000])
def test_a_group_is_read_as_its_records(tmp_path: Path, size: int) -> None:
    """`size` 0: it outgrows its segment, else it begins one."""
    journal, _ = open_journal(tmp_path)
    records = [(2 + n % 8, b"%d" % n * 400) for n in range(40)]
    before = [(7, b"before")]
    journal.append(*before[0])
    locations = append_group(journal, records, size)
    append_group(journal, [])
    journal.append(6, b"after")
    for at, (kind, data) in zip(locations, records, strict=True):
        found_kind, payload = journal.read(at, len(data) + HEAD_SIZE)
        assert (found_kind, bytes(payload)) == (kind, data)  # not written yet
    journal.flush()
    for at, (kind, data) in zip(locations, records, strict=True):
        found_kind, payload = journal.read(at, len(data) + HEAD_SIZE)
        assert (found_kind, bytes(payload)) == (kind, data)
    assert len({at >> 32 for at in locations}) == 1
    journal.close()
    journal, found = open_journal(tmp_path)
    assert found == [*before, *records, (6, b"after")]
    assert not journal.damaged


@pytest.mark.parametrize("kept", range(4))
def test_a_group_that_was_not_written_whole_leaves_nothing(tmp_path: Path, kept: int) -> None:
    """`kept` of its four parts came to the disk before the power went, each record of them intact."""
    journal, _ = open_journal(tmp_path)
    written = fill(journal, random.Random(0), 2)
    group = [(7, bytes([n]) * 50) for n in range(4)]
    locations = append_group(journal, group)
    journal.flush()
    path = journal.segments[locations[0] >> 32].path
    end = (locations[kept] & 0xFFFFFFFF) + (HEAD_SIZE + 50 if kept == 3 else 0) - (kept == 3)
    torn = bytearray(path.read_bytes())
    torn[end:] = bytes(len(torn) - end)
    path.write_bytes(torn)
    journal, found = open_journal(tmp_path)
    assert found == [(kind, data) for kind, data, _ in written]
    assert not journal.damaged
    fill(journal, random.Random(1), 2)
    journal.close()
    journal, again = open_journal(tmp_path)
    assert again[: len(found)] == found
    assert not set(again) & set(group)
    assert not journal.damaged


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), closed=st.booleans(), flips=st.sampled_from([1, 1, 1, 5]))
def test_flipped_bits_cost_the_records_they_hit(
    tmp_path_factory: pytest.TempPathFactory, seed: int, closed: bool, flips: int
) -> None:
    rng = random.Random(seed)
    directory = tmp_path_factory.mktemp("j")
    journal, _ = open_journal(directory)
    written = fill(journal, rng)
    proved = max(journal.segments)  # below it everything is, by the head of the next segment
    if closed:
        journal.close()
    hit: set[int] = set()
    for _ in range(flips):
        number = rng.choice(list(journal.segments))
        path = journal.segments[number].path
        data = bytearray(path.read_bytes())
        end = journal.segments[number].end
        place = rng.randrange(end)
        data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        hit.add(number << 32 | place)
    journal, found = open_journal(directory)
    hit_records = {
        location
        for _, data, location in written
        if any(location <= place < location + HEAD_SIZE + len(data) for place in hit)
    }
    # an end that nothing proves may be a torn one: of the last segment, where the journal was not closed
    sure = [(k, d) for k, d, at in written if at not in hit_records and (closed or at >> 32 < proved)]
    everything = [(kind, data) for kind, data, _ in written]
    assert [r for r in everything if r in found] == found  # nothing is invented, the order kept
    if flips == 1:  # several may hit a record and what proves it
        assert [r for r in found if r in sure] == sure
        assert journal.damaged or len(found) == len(written) or not closed
        assert (directory / "damaged").is_dir() == bool(journal.damaged)
    journal.close()
    assert open_journal(directory)[1] == found


def test_a_journal_inside_a_message_stays_a_message(tmp_path: Path) -> None:
    """Also when the record around it is damaged, so that what is inside is searched for the next good one."""
    journal, _ = open_journal(tmp_path / "a")
    fill(journal, random.Random(3), 3)
    journal.close()
    inner = (tmp_path / "a" / "0000000001.journal").read_bytes()
    journal, _ = open_journal(tmp_path / "b", size=1 << 20)
    location = journal.append(3, inner)
    journal.append(4, b"after")
    journal.flush()
    journal.close()
    path = tmp_path / "b" / "0000000001.journal"
    data = bytearray(path.read_bytes())
    data[(location & 0xFFFFFFFF) + HEAD_SIZE] ^= 1
    path.write_bytes(data)
    journal, found = open_journal(tmp_path / "b")
    assert found == [(4, b"after")]
    assert journal.damaged


def test_a_damaged_segment_is_kept_aside_as_it_was(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path)
    fill(journal, random.Random(4))
    journal.close()
    path = tmp_path / "0000000002.journal"
    data = bytearray(path.read_bytes())
    data[FIRST + HEAD_SIZE + HEAD_SIZE] ^= 0x10
    path.write_bytes(data)
    journal, _ = open_journal(tmp_path)
    assert journal.damaged_segments == {2}
    assert str(path) in journal.damaged[0] and "offset" in journal.damaged[0]
    assert (tmp_path / "damaged" / path.name).read_bytes() == data


@pytest.mark.parametrize("failure", ["space", "sync"])
def test_a_failed_commit_is_told_and_leaves_nothing(tmp_path: Path, failure: str) -> None:
    files = FullFiles()
    found: Records = []
    lost: Records = []
    journal = Journal.open(
        tmp_path,
        files,
        lambda kind, data, at: found.append((kind, bytes(data))),
        lost=lambda kind, data, at: lost.append((kind, bytes(data))),
        segment_size=4096,
    )
    answers: list[OSError | None] = []
    journal.append(2, b"first")
    journal.commit(answers.append)
    journal.flush()
    if failure == "space":
        files.space = 20
    else:
        files.sync_error = OSError(errno.EIO, "I/O error")
    for _ in range(2):
        journal.append(3, b"second" * 20)
        journal.commit(answers.append)
        journal.flush()
    assert [e and e.errno for e in answers] == [None, *[errno.ENOSPC if failure == "space" else errno.EIO] * 2]
    assert lost == [(3, b"second" * 20)] * 2
    files.space = files.sync_error = None
    journal.append(4, b"third")
    journal.commit(answers.append)
    journal.flush()
    assert answers[-1] is None
    crashed, found = open_journal(tmp_path)
    assert found == [(2, b"first"), (4, b"third")]
    assert not crashed.damaged


async def _commits(directory: Path) -> tuple[int, int]:
    journal = Journal.open(
        directory, RealFiles(), lambda kind, data, at: None, loop=asyncio.get_running_loop(), segment_size=1 << 20
    )
    running = 0
    count = 400
    done = asyncio.Event()

    def one(left: int) -> None:
        nonlocal running
        journal.append(2, bytes(random.randrange(3000)))
        journal.commit(lambda error: after(left, error))

    def after(left: int, error: OSError | None) -> None:
        nonlocal running
        assert error is None
        if left:
            one(left - 1)
            return
        running -= 1
        if not running:
            done.set()

    for _ in range(50):
        running += 1
        one(count // 50)
    await done.wait()
    syncs = journal.syncs
    journal.close()
    return syncs, sum(1 for _ in open_journal(directory)[1])


def test_one_sync_serves_all_that_wait(tmp_path: Path) -> None:
    syncs, records = asyncio.run(_commits(tmp_path))
    assert records == 50 * 9
    assert syncs < records / 10


def test_a_failing_callback_does_not_keep_the_others_from_being_called(tmp_path: Path) -> None:
    journal, _ = open_journal(tmp_path)
    answers: list[OSError | None] = []

    def bad(error: OSError | None) -> None:
        raise RuntimeError("a bug")

    journal.append(2, b"x")
    journal.commit(bad)
    journal.commit(answers.append)
    journal.flush()
    assert answers == [None]
