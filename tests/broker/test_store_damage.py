"""Files that are damaged, shortened or gone: every loss is counted, nothing consumed comes back, no queue is lost."""

from __future__ import annotations

import contextlib
import errno
import functools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from services.broker.storage.journal.file_operations import RealFiles
from services.broker.storage.journal.losses import Losses
from services.broker.storage.journal.records import (
    COPY,
    DEFINE,
    DEFINE_S,
    DUPLICATE,
    MESSAGE,
    MOVE,
    REF,
    REMOVE,
    REMOVES,
    UNDEFINE,
)
from services.broker.storage.journal.segment import BATCH, FIRST, FOOTER, HEAD_SIZE, walk
from services.broker.storage.maintenance import compaction
from services.broker.storage.store import Store
from tests.kit.marks import first_soon

from .disks import DeafFiles, KillableFiles, LossyFiles, PowerCutError
from .model import Pair, State

KINDS = {
    "batch": BATCH,
    "message": MESSAGE,
    "copy": COPY,
    "reference": REF,
    "remove": REMOVE,
    "move": MOVE,
    "define": DEFINE,
    "undefine": UNDEFINE,
    "duplicate": DUPLICATE,
    "removes": REMOVES,
    "footer": FOOTER,
}

pytestmark = pytest.mark.usefixtures("eager")


class Worked(Protocol):
    def __call__(self, directory: Path, seed: int, *, close: bool) -> State:
        """A data directory after random work with compaction; what is in it."""


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Worked:
    """The work of a seed is done once, by the first test that asks for it: under `eager`, as all of them."""
    kept = tmp_path_factory.mktemp("worked")

    @functools.cache
    def made(seed: int, close: bool) -> State:
        return work(kept / f"{seed}-{close}", seed, close=close)

    def copied(directory: Path, seed: int, *, close: bool) -> State:
        state = made(seed, close)
        shutil.copytree(kept / f"{seed}-{close}", directory, dirs_exist_ok=True)
        return state.copy()

    return copied


def work(directory: Path, seed: int, *, close: bool) -> State:
    rng = random.Random(seed)
    files = KillableFiles()
    pair = Pair(directory, lambda: files, 2048)
    for n in range(300):
        pair.random_step(rng)
        if n in (100, 200):
            pair.restart()
    pair.commit()
    if close:
        pair.close()
    else:  # as by SIGKILL
        files.kill()
    return pair.now


def records(path: Path) -> Iterator[tuple[int, int, int]]:
    """(kind, offset, size) of each record of a segment."""
    data = path.read_bytes()
    for kind, start, stop in walk(data, int(path.stem), len(data)):
        yield kind, start - HEAD_SIZE, stop - start + HEAD_SIZE


def flip(path: Path, place: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def found_in(store: Store) -> State:
    values = store.recovered.definitions
    return State(
        {q: {r.message: (r.delivery_count, r.not_before) for r in store.recovered.references(q)} for q in values},
        dict(values),
        {(c, k) for c, keys in store.live.keys.items() for k, _ in keys.items()},
    )


def compare(directory: Path, expected: State) -> int:
    """Opens what was damaged, and again when it was mended. The number of messages lost."""
    store = Store.open(directory, segment_size=2048)
    found, lost = found_in(store), store.recovered.lost
    assert store.recovered.damaged
    assert found.values == expected.values
    for queue, messages in expected.queues.items():
        there = found.queues[queue]
        assert list(there.items()) == [(m, s) for m, s in messages.items() if m in there], "a state, or the order"
        assert len(messages) - len(there) == lost.get(queue, 0)
        assert not there.keys() - messages.keys(), "a message came back"
    assert found.keys <= expected.keys
    for queue in found.queues:
        for message in found.queues[queue]:
            store.load(message)
    for _ in range(20):
        store.tick()
        store.flush()
    store.close()
    again = Store.open(directory, segment_size=2048)
    assert not again.recovered.damaged and not again.recovered.lost
    assert found_in(again) == found
    again.close()
    return sum(lost.values())


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_costs_the_message_it_hits(worked: Worked, tmp_path: Path, kind: str, seed: int) -> None:
    expected = worked(tmp_path / "whole", seed, close=True)
    rng = random.Random(seed)
    places = [
        (path, offset, size)
        for path in sorted((tmp_path / "whole").glob("*.journal"))
        for found, offset, size in records(path)
        if found == KINDS[kind]
    ]
    for n, (path, offset, size) in enumerate(rng.sample(places, min(4, len(places)))):
        directory = tmp_path / f"damaged{n}"
        shutil.copytree(tmp_path / "whole", directory)
        place = rng.choice([i for i in range(size) if i != 3])  # a byte of the head that means nothing
        flip(directory / path.name, offset + place, rng.randrange(8))
        assert compare(directory, expected) <= (3 if kind in ("message", "copy") else 0)


def test_the_work_makes_every_kind_of_record(worked: Worked, tmp_path: Path) -> None:
    made = set()
    for seed in range(6):
        worked(tmp_path / str(seed), seed, close=True)
        made |= {kind for path in (tmp_path / str(seed)).glob("*.journal") for kind, _, _ in records(path)}
    assert made >= set(KINDS.values())


def shorten(path: Path, rng: random.Random) -> None:
    *_, (_, offset, size) = records(path) if path.suffix == ".journal" else [(0, 0, path.stat().st_size)]
    path.write_bytes(path.read_bytes()[: rng.randrange(offset + size)])


def shorten_to_nothing(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def shorten_between_records(path: Path, rng: random.Random) -> None:
    _, offset, _ = rng.choice(list(records(path)))
    path.write_bytes(path.read_bytes()[:offset])


def blank(path: Path, rng: random.Random) -> None:
    """A block that reads as zeros."""
    data = bytearray(path.read_bytes())
    *_, (_, offset, _) = records(path)
    start = rng.randrange(offset)
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    path.write_bytes(data)


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def scramble_head(path: Path, rng: random.Random) -> None:
    flip(path, rng.randrange(36), rng.randrange(8))


HURTS = [shorten, shorten_to_nothing, shorten_between_records, blank, delete, scramble_head]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("hurt", HURTS)
def test_what_is_gone_with_part_of_a_file_or_all_of_it_is_counted(
    worked: Worked, tmp_path: Path, hurt: Callable[[Path, random.Random], None], seed: int
) -> None:
    """Each segment in its turn, the first and the last among them."""
    expected = worked(tmp_path / "whole", seed, close=True)
    rng = random.Random(seed)
    for path in sorted((tmp_path / "whole").glob("*.journal")):
        directory = tmp_path / f"damaged-{path.stem}"
        shutil.copytree(tmp_path / "whole", directory)
        before = (directory / path.name).read_bytes()
        hurt(directory / path.name, rng)
        if (directory / path.name).exists() and (directory / path.name).read_bytes() == before:
            continue
        compare(directory, expected)


@pytest.mark.parametrize("seed", range(3))
def test_several_segments_gone_at_once(worked: Worked, tmp_path: Path, seed: int) -> None:
    expected = worked(tmp_path, seed, close=True)
    for path in list(tmp_path.glob("*.journal")):
        path.unlink()
    held = {(m, q) for q, messages in expected.queues.items() for m in messages}
    assert compare(tmp_path, expected) == len(held)


@pytest.mark.parametrize("hurt", [shorten_to_nothing, delete, scramble_head, shorten])
@pytest.mark.parametrize("pattern", ["CATALOGUE", "*.summary"])
def test_what_is_held_twice_may_be_lost_once(
    worked: Worked, tmp_path: Path, pattern: str, hurt: Callable[[Path, random.Random], None]
) -> None:
    expected = worked(tmp_path, 1, close=True)
    rng = random.Random(2)
    for path in tmp_path.glob(pattern):
        hurt(path, rng)
    store = Store.open(tmp_path, segment_size=2048)
    assert found_in(store) == expected and not store.recovered.lost
    store.close()
    again = Store.open(tmp_path, segment_size=2048)
    assert found_in(again) == expected and not again.recovered.damaged
    again.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_message_without_a_summary_is_counted_by_its_head(worked: Worked, tmp_path: Path, seed: int) -> None:
    """As after a SIGKILL: the last segments have none."""
    expected = worked(tmp_path / "whole", seed, close=False)
    held = {m for messages in expected.queues.values() for m in messages}
    for path in (tmp_path / "whole").glob("*.summary"):
        path.unlink()
    rng = random.Random(seed)
    for n, path in enumerate(sorted((tmp_path / "whole").glob("*.journal"))[:-1]):
        places = [(offset, size) for kind, offset, size in records(path) if kind in (MESSAGE, COPY) and size > 100]
        if not places:
            continue
        directory = tmp_path / f"damaged{n}"
        shutil.copytree(tmp_path / "whole", directory)
        offset, size = rng.choice(places)
        flip(directory / path.name, offset + size - 1)
        compare(directory, expected)
    assert held


def test_definitions_survive_their_segment_at_any_time(tmp_path: Path) -> None:
    """Also without an orderly end, in the segment that is being written to."""
    files = KillableFiles()
    store = Store.open(tmp_path, files=files)
    queues = [store.new_id() for _ in range(3)]
    for queue in queues:
        store.define(queue, b"{%d}" % queue)
    messages = [store.add(b"x" * 100, [queue]) for queue in queues]
    store.flush()
    store.undefine(queues[0])
    store.discard(messages[0], queues[0])
    store.define(queues[1], b"changed")
    store.flush()
    files.kill()
    (path,) = tmp_path.glob("*.journal")
    definitions = [offset for kind, offset, _ in records(path) if kind in (DEFINE, UNDEFINE)]
    for n, offset in enumerate(definitions):
        directory = tmp_path / f"flipped{n}"
        shutil.copytree(tmp_path, directory, ignore=shutil.ignore_patterns("flipped*"))
        flip(directory / path.name, offset + HEAD_SIZE + 9)
        again = Store.open(directory)
        assert again.recovered.definitions == {queues[1]: b"changed", queues[2]: b"{%d}" % queues[2]}
        assert [r.message for q in queues[1:] for r in again.recovered.references(q)] == messages[1:]
        again.close()
    path.unlink()
    gone = Store.open(tmp_path)
    assert gone.recovered.definitions == {queues[1]: b"changed", queues[2]: b"{%d}" % queues[2]}
    assert gone.recovered.damaged
    gone.close()


def test_messages_of_an_unknown_queue_are_kept_until_it_is_known(tmp_path: Path) -> None:
    """Both copies of a definition damaged: its messages outlive restarts and compaction, and it may come back."""
    store = Store.open(tmp_path, segment_size=2048)
    known, lost, deleted = (store.new_id() for _ in range(3))
    for queue in (known, lost, deleted):
        store.define(queue, b"{%d}" % queue)
    store.flush()
    gone = store.add(b"gone", [deleted])
    store.undefine(deleted)
    store.discard(gone, deleted)
    messages = [store.add(b"%04d" % n * 50, [(known, lost)[n % 2]]) for n in range(60)]
    store.flush()
    store.close()
    catalogue = (tmp_path / "CATALOGUE").read_bytes()
    place = next(
        (path, offset)
        for path in sorted(tmp_path.glob("*.journal"))
        for kind, offset, _ in records(path)
        if kind == DEFINE and DEFINE_S.unpack_from(path.read_bytes(), offset + HEAD_SIZE) == (lost,)
    )
    for path in tmp_path.glob("*.summary"):
        path.unlink()
    flip(place[0], place[1] + HEAD_SIZE + 9)
    flip(tmp_path / "CATALOGUE", FIRST + 20)
    for n in range(3):
        store = Store.open(tmp_path, segment_size=2048)
        assert store.recovered.definitions == {known: b"{%d}" % known}
        assert store.recovered.unknown == {lost: 30}
        assert [r.message for r in store.recovered.references(lost)] == messages[1::2]
        store.remove_many(messages[n * 20 : n * 20 + 20 : 2], known)
        for _ in range(30):
            store.flush()
            store.tick()
        store.close()
    (tmp_path / "CATALOGUE").write_bytes(catalogue)
    store = Store.open(tmp_path, segment_size=2048)
    assert store.recovered.definitions == {known: b"{%d}" % known, lost: b"{%d}" % lost}
    assert [r.message for r in store.recovered.references(lost)] == messages[1::2]
    assert all(store.load(m) == b"%04d" % n * 50 for n, m in enumerate(messages) if n % 2)
    store.close()


@pytest.mark.parametrize("seed", first_soon(range(3)))
@pytest.mark.parametrize("hurt", [shorten, blank, delete])
def test_a_start_that_is_cut_off_forgets_no_loss(
    worked: Worked, tmp_path: Path, hurt: Callable[[Path, random.Random], None], seed: int
) -> None:
    """The power goes while a damaged segment is mended: what is lost is still known at a later start."""
    expected = worked(tmp_path / "whole", seed, close=True)
    path = sorted((tmp_path / "whole").glob("*.journal"))[seed]
    hurt(path, random.Random(seed))
    again = tmp_path / "again"
    shutil.copytree(tmp_path / "whole", again)
    compare(again, expected)
    lost = Losses(again).queues
    for fuse in range(12):
        directory = tmp_path / f"cut{fuse}"
        shutil.copytree(tmp_path / "whole", directory)
        files = LossyFiles(random.Random(fuse))
        files.fuse = fuse
        with contextlib.suppress(PowerCutError):
            Store.open(directory, files=files, segment_size=2048)
        files.power_cut()
        store = Store.open(directory, segment_size=2048)
        assert found_in(store).values == expected.values
        for queue, count in lost.items():
            assert store.losses.queues[queue] in (count, 2 * count), "reported once, or once by each start"
        store.close()


@pytest.mark.parametrize("seed", range(6))
def test_damage_while_the_store_runs_is_for_the_next_start(tmp_path: Path, seed: int) -> None:
    """A segment is damaged under a running store, which goes on, and compacts what it can."""
    rng = random.Random(seed)
    pair = Pair(tmp_path, RealFiles, 2048)
    for _ in range(150):
        pair.random_step(rng)
    pair.commit()
    closed = [number for number in pair.store.journal.segments if number < pair.store.journal.tail]
    path = pair.store.journal.segments[rng.choice(closed[:-1])].path
    kind, offset, size = rng.choice([r for r in records(path) if r[0] not in (BATCH, FOOTER)])
    flip(path, offset + size - 1)
    for _ in range(150):
        pair.random_step(rng)
    pair.commit()
    expected = pair.now
    pair.close()
    if not path.exists():
        return  # nothing in it was in force any more
    store = Store.open(tmp_path, segment_size=2048)
    found = found_in(store)
    assert found.values == expected.values
    for queue, messages in expected.queues.items():
        assert list(found.queues[queue]) == [m for m in messages if m in found.queues[queue]]
        assert len(messages) - len(found.queues[queue]) == store.recovered.lost.get(queue, 0), kind
    store.close()


@pytest.mark.parametrize("seed", range(8))
def test_read_faults_that_pass_change_nothing(tmp_path: Path, seed: int) -> None:
    """Random work, with compaction, on a disk that is written as ever and at times cannot be read."""
    rng = random.Random(seed)
    faults: list[Callable[[DeafFiles], None]] = [
        lambda disk: setattr(disk, "error", OSError(errno.EMFILE, "Too many open files")),
        lambda disk: setattr(disk, "error", OSError(errno.ENOENT, "No such file or directory")),
        lambda disk: setattr(disk, "short", rng.randrange(100)),
    ]
    disk = DeafFiles()
    pair = Pair(tmp_path, lambda: disk, 2048)
    refused = 0
    for _ in range(500):
        choice = rng.random()
        if choice < 0.05:
            rng.choice(faults)(disk)
        elif choice < 0.2:
            disk.error = disk.short = None
        pair.random_step(rng)
        if rng.random() < 0.2:
            for queue in pair.now.queues.values():
                for message in queue:
                    try:
                        assert pair.store.load(message) == pair.payloads[message]
                    except OSError:
                        refused += 1
        if rng.random() < 0.02:
            disk.error = disk.short = None
            pair.check_memory()
            pair.restart()
    assert refused
    disk.error = disk.short = None
    pair.commit()
    pair.restart()
    for _ in range(compaction.PAUSE):
        pair.tick()
    pair.settle()
    pair.restart()


@pytest.mark.parametrize("close", [True, False])
def test_the_end_of_a_journal_is_known_also_after_a_crash(tmp_path: Path, close: bool) -> None:
    """What a crash leaves is no damage; a last file that was shortened or deleted is damage, and is reported."""
    files = KillableFiles()
    store = Store.open(tmp_path / "whole", files=files, segment_size=1 << 16)
    queue = store.new_id()
    store.define(queue, b'{"name": "q"}')
    for _ in range(10):
        store.add(b"x" * 1000, [queue])
        store.flush()
    store.tick()
    store.flush()
    if close:
        store.close()
    else:
        files.kill()
    (path,) = (tmp_path / "whole").glob("*.journal")
    *_, (_, end, _) = records(path)
    copies = {}
    for name in ("untouched", "shortened", "deleted"):
        copies[name] = tmp_path / name
        shutil.copytree(tmp_path / "whole", copies[name])
    shortened = copies["shortened"] / path.name
    shortened.write_bytes(shortened.read_bytes()[: end // 2])
    (copies["deleted"] / path.name).unlink()
    for name, directory in copies.items():
        store = Store.open(directory, segment_size=1 << 16)
        assert bool(store.recovered.damaged) == (name != "untouched"), store.recovered.damaged
        assert store.recovered.definitions == {queue: b'{"name": "q"}'}
        left = store.recovered.count(queue)
        if name == "untouched":
            assert left == 10
        elif close:
            assert store.losses.queues == {"q": 10 - left}
        else:
            assert "is not known" in store.losses.report()
        store.close()
        again = Store.open(directory, segment_size=1 << 16)
        assert not again.recovered.damaged and again.recovered.count(queue) == left
        again.close()
    kept = copies["shortened"] / "damaged" / path.name
    assert kept.stat().st_mode & 0o777 == 0o600
