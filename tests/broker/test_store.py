"""The store as the broker uses it."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.broker.keys import key_of
from services.broker.storage.journal import journal
from services.broker.storage.journal.chunk import Segment
from services.broker.storage.journal.segment_files import SegmentFiles
from services.broker.storage.maintenance import compaction
from services.broker.storage.store import Store, StoreError
from tests.kit import waiting

from .disks import FullFiles, LossyFiles, PowerCutError
from .model import LoudLog, Pair

ROOT = Path(__file__).parents[2]


def reopen(store: Store) -> Store:
    store.close()
    return Store.open(store.directory)


def test_messages_come_back_in_order_with_what_is_known_of_them(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    queue = store.new_id()
    store.define(queue, b'{"name":"q"}')
    ids = [store.add(b"m%d" % i, [queue], priority=i % 10, expiry=1000 + i, not_before=i) for i in range(600)]
    for id in ids[::3]:
        store.remove(id, queue)
    store.update(ids[1], queue, delivery_count=3, not_before=77)
    store = reopen(store)
    assert store.recovered.definitions == {queue: b'{"name":"q"}'}
    refs = list(store.recovered.references(queue))
    left = [i for i in range(600) if i % 3]
    assert [r.message for r in refs] == [ids[i] for i in left]
    assert [(r.size, r.priority, r.expiry) for r in refs] == [(len(b"m%d" % i), i % 10, 1000 + i) for i in left]
    assert (refs[0].delivery_count, refs[0].not_before) == (3, 77)
    assert (refs[1].delivery_count, refs[1].not_before) == (0, 2)
    assert [store.load(r.message) for r in refs] == [b"m%d" % i for i in left]
    assert store.new_id() > max(ids)
    store.close()


def test_one_copy_serves_all_queues_of_a_topic(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    queues = [store.new_id() for _ in range(3)]
    for queue in queues:
        store.define(queue, b"{}")
    id = store.add([b"x" * 50_000, memoryview(b"tail")], queues)
    store.flush()
    for queue in queues[:2]:
        store.remove(id, queue)
    store = reopen(store)
    assert [store.recovered.count(q) for q in queues] == [0, 0, 1]
    assert store.load(id) == b"x" * 50_000 + b"tail"
    store.remove(id, queues[2])
    with pytest.raises(KeyError):
        store.load(id)
    store = reopen(store)
    assert list(store.recovered.queues()) == []


def test_a_moved_message_is_at_the_end_of_the_other_queue(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    a, b = store.new_id(), store.new_id()
    store.define(a, b"a")
    store.define(b, b"b")
    first = store.add(b"first", [a])
    second = store.add(b"second", [b])
    store.update(first, a, delivery_count=9)
    store.move(first, a, b)
    store = reopen(store)
    assert [(r.message, r.delivery_count) for r in store.recovered.references(b)] == [(second, 0), (first, 0)]
    assert not list(store.recovered.references(a))


def test_references_of_an_undefined_queue_are_gone(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    a, b = store.new_id(), store.new_id()
    store.define(a, b"a")
    store.define(b, b"b")
    both = store.add(b"both", [a, b])
    one = store.add(b"one", [a], duplicate=(a, b"key"))
    store.undefine(a)
    store.discard(both, a)
    store.discard(one, a)
    assert len(store.live.index) == 1
    assert not store.seen(a, b"key")
    store = reopen(store)
    assert store.recovered.definitions == {b: b"b"}
    assert [r.message for r in store.recovered.references(b)] == [both]
    assert len(store.live.index) == 1


def test_duplicate_keys_outlive_their_messages_and_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SLACK", 0)
    store = Store.open(tmp_path, segment_size=4096)
    cache = store.new_id()
    store.define(cache, b"address")
    store.limit_duplicates(cache, 100)
    for i in range(300):
        id = store.add(bytes(200), [cache], duplicate=(cache, b"k%d" % i))
        store.remove(id, cache)
        store.flush()
        store.tick()
    for _ in range(50):
        store.tick()
        store.flush()
    assert store.disk_bytes < 8 * 4096
    store.close()
    store = Store.open(tmp_path, segment_size=4096)
    store.limit_duplicates(cache, 100)
    assert [store.seen(cache, b"k%d" % i) for i in (0, 199, 200, 299)] == [False, False, True, True]
    store.add(b"", [cache], duplicate=(cache, b"new"))
    assert [store.seen(cache, k) for k in (b"k200", b"k201", b"new")] == [False, True, True]
    store.close()


def test_keys_of_senders_and_those_of_earlier_versions_are_there_after_a_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    cache = store.new_id()
    store.define(cache, b"address")
    alice, bob = b"alice".ljust(13), b"bob".ljust(13)
    store.add(b"", [cache], duplicate=(cache, key_of(alice, b"new")))
    store.add(b"", [cache], duplicate=(cache, b"old"))  # as earlier versions wrote it
    store = reopen(store)
    found = {id: [store.seen(cache, key_of(who, id)) for who in (alice, bob, b"")] for id in (b"new", b"old")}
    assert found == {b"new": [True, False, False], b"old": [True, True, True]}
    store.close()


def test_a_data_directory_in_use_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match=f"{tmp_path} is in use by another process"):
        Store.open(tmp_path)
    store.close()
    Store.open(tmp_path).close()


@pytest.mark.parametrize("format", [1, 4])
def test_another_format_is_refused_and_left_alone(tmp_path: Path, format: int) -> None:
    Store.open(tmp_path).close()
    (tmp_path / "FORMAT").write_text(json.dumps({"format": format}))
    before = sorted((p.name, p.stat().st_mtime_ns) for p in tmp_path.iterdir())
    with pytest.raises(StoreError, match=f"has format {format}, this version reads 2 and 3"):
        Store.open(tmp_path)
    assert sorted((p.name, p.stat().st_mtime_ns) for p in tmp_path.iterdir()) == before
    (tmp_path / "FORMAT").write_text("garbage")
    with pytest.raises(StoreError, match="FORMAT"):
        Store.open(tmp_path)


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used as data directory"):
        Store.open(tmp_path / "file" / "data")


@pytest.mark.parametrize("seed", range(12))
def test_a_full_or_failing_disk_loses_nothing_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Random work while space comes and goes: a caller that got an error finds nothing, one that got success
    everything."""
    monkeypatch.setattr(journal, "log", LoudLog())
    monkeypatch.setattr(compaction, "SLACK", 0)
    monkeypatch.setattr(compaction, "SPARSE", 0.95)
    monkeypatch.setattr(compaction, "SLICE_BYTES", 400)
    rng = random.Random(seed)
    pair = Pair(tmp_path / "s", FullFiles)
    for _ in range(400):
        assert isinstance(pair.files, FullFiles)
        choice = rng.random()
        if choice < 0.04:
            pair.files.space = rng.randrange(6000)
        elif choice < 0.06:
            pair.files.sync_error = OSError(errno.EIO, "I/O error")
        elif choice < 0.2:
            pair.files.space = pair.files.sync_error = None
        pair.random_step(rng)
        if rng.random() < 0.1:
            pair.check_memory()
        if rng.random() < 0.01:
            pair.crash(pair.files.kill)
    assert pair.failures
    assert isinstance(pair.files, FullFiles)
    pair.files.space = pair.files.sync_error = None
    assert pair.commit() is None
    pair.restart()


def test_little_space_is_noticed_before_there_is_none(tmp_path: Path) -> None:
    files = FullFiles()
    store = Store.open(tmp_path, files=files)
    assert not store.full and not store.trouble
    files.space = 1 << 20
    store.tick()
    assert store.full and "disk full, 1 MiB free of" in store.trouble
    files.space = None
    store.tick()
    assert not store.full and not store.trouble
    store.close()


def test_a_failed_write_is_told_until_one_succeeds(tmp_path: Path) -> None:
    """Also without further messages: the store tries by itself."""
    files = FullFiles()
    store = Store.open(tmp_path, files=files)
    queue = store.new_id()
    store.define(queue, b"q")
    files.sync_error = OSError(errno.EIO, "I/O error")
    store.flush()
    for _ in range(3):
        store.tick()
        assert not store.full
    assert "the last write failed: the disk has failed to read or write" in store.trouble
    files.sync_error = None
    for _ in range(3):
        store.tick()
        store.flush()
    assert not store.trouble
    message = store.add(b"after", [queue])
    store.commit()
    store.flush()
    store.close()
    again = Store.open(tmp_path)
    assert bytes(again.load(message)) == b"after"
    again.close()


def test_a_definition_in_a_new_segment_is_not_taken_for_one_of_a_deleted_segment(tmp_path: Path) -> None:
    """A batch that a power cut ends comes back as far as it is on disk, also after the last segments were deleted."""
    for fuse in itertools.count():
        pair = Pair(tmp_path / str(fuse), lambda: LossyFiles(random.Random(1)))
        owner = pair.define(b"owner")
        pair.commit()
        pair.restart()
        message = pair.add(b"", [owner])
        pair.commit()
        pair.restart()
        pair.remove(message, owner)
        pair.commit()
        last = max(pair.store.journal.segments)
        pair.restart()
        pair.settle()
        assert max(pair.store.journal.segments) < last
        pair.restart()
        disk = pair.files
        assert isinstance(disk, LossyFiles)
        disk.fuse = fuse
        pair.add(b"", [pair.define(b"new"), owner], (owner, b"key"))
        try:
            pair.commit()
        except PowerCutError:
            pair.crash(disk.power_cut)
            pair.close()
        else:
            assert fuse and max(pair.store.journal.segments) > last
            disk.fuse = None
            pair.close()
            break


@pytest.mark.parametrize("put_back", [False, True])
def test_a_directory_that_was_deleted_takes_nothing_more(tmp_path: Path, put_back: bool) -> None:
    """What is written to files that have no name any more would be lost: not even a new directory helps."""
    store = Store.open(tmp_path / "data")
    store.define(store.new_id(), b"q")
    store.tick()
    shutil.rmtree(tmp_path / "data")
    if put_back:
        (tmp_path / "data").mkdir()
    store.tick()
    assert store.full and store.unusable and "was deleted or replaced" in store.trouble
    store.close()


def test_a_directory_that_is_deleted_after_its_disk_was_full_is_reported_as_that(tmp_path: Path) -> None:
    files, reasons = FullFiles(), list[str]()
    store = Store.open(tmp_path / "data", files=files)
    store.on_space = lambda: reasons.append("STORE" if store.unusable else "DISK" if store.full else "")
    files.space = 1 << 20
    store.tick()
    shutil.rmtree(tmp_path / "data")
    store.tick()
    store.tick()
    assert reasons == ["DISK", "STORE"]
    store.close()


def test_damage_is_reported_and_then_got_rid_of(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=8192)
    queue = store.new_id()
    store.define(queue, b"{}")
    ids = []
    for i in range(200):
        ids.append(store.add(b"%04d" % i * 25, [queue]))
        store.flush()
    store.close()
    path = tmp_path / "0000000002.journal"
    data = bytearray(path.read_bytes())
    data[3000] ^= 4
    path.write_bytes(data)
    store = Store.open(tmp_path, segment_size=8192)
    assert len(store.recovered.damaged) == 1
    assert store.recovered.count(queue) == 199
    for _ in range(20):
        store.tick()
        store.flush()
    store = reopen(store)
    assert not store.recovered.damaged
    left = list(store.recovered.references(queue))
    assert len(left) == 199
    assert all(store.load(r.message) == b"%04d" % ids.index(r.message) * 25 for r in left)
    assert (tmp_path / "damaged" / path.name).exists()
    store.close()


def test_definitions_alone_are_moved_without_reading_the_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where messages come and go, the segment with the definitions is what all later ones wait for."""

    def whole(self: SegmentFiles, segment: Segment) -> None:
        raise AssertionError(f"segment {segment.number} was read")

    monkeypatch.setattr(SegmentFiles, "records", whole)
    store = Store.open(tmp_path, segment_size=20_000)
    queues = [store.new_id() for _ in range(3)]
    for queue in queues:
        store.define(queue, b"{%d}" % queue)
    first = store.journal.current
    for round in range(40):
        ids = [store.add(b"x" * 1000, [queues[round % 3]]) for _ in range(10)]
        store.flush()
        store.remove_many(ids, queues[round % 3])
        store.flush()
        store.tick()
    assert first not in store.journal.segments and len(store.journal.segments) <= compaction.SLACK + 2
    store = reopen(store)
    assert store.recovered.definitions == {queue: b"{%d}" % queue for queue in queues}
    assert not any(list(store.recovered.references(queue)) for queue in queues)
    store.close()


def test_compaction_gives_space_back_while_messages_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the loop, with the thread: one message in fifty stays; the disk holds little more than those."""
    monkeypatch.setattr(compaction, "SLACK", 2)
    monkeypatch.setattr("services.broker.storage.maintenance.housekeeping.TICK_SECONDS", 0.01)

    async def run() -> tuple[int, list[int]]:
        loop = asyncio.get_running_loop()
        store = Store.open(tmp_path, loop=loop, segment_size=1 << 16)
        store.start_housekeeping()
        queue = store.new_id()
        store.define(queue, b"{}")
        kept = []
        for i in range(300):
            ids = [store.add(b"%08d" % (i * 50 + n) * 30, [queue]) for n in range(50)]
            kept.append(ids[7])
            for id in ids:
                if id != ids[7]:
                    store.remove(id, queue)
            done: asyncio.Future[OSError | None] = loop.create_future()
            store.commit(done.set_result)
            assert await done is None
        await waiting.until(lambda: store.disk_bytes < 8 << 16, "the journal to shrink")
        size = store.disk_bytes
        store.close()
        return size, kept

    size, kept = asyncio.run(run())
    assert size < 8 << 16
    store = Store.open(tmp_path)
    (queue,) = store.recovered.definitions
    assert [r.message for r in store.recovered.references(queue)] == kept
    assert [store.load(m) for m in kept] == [b"%08d" % (i * 50 + 7) * 30 for i in range(300)]
    store.close()


CHILD = """
import asyncio, sys
from pathlib import Path
from services.broker.storage import store as s
from services.broker.storage.maintenance import compaction, housekeeping
compaction.SLACK = 1
housekeeping.TICK_SECONDS = 0.01

async def main():
    loop = asyncio.get_running_loop()
    store = s.Store.open(Path(sys.argv[1]), loop=loop, segment_size=1 << 16)
    store.start_housekeeping()
    if not store.recovered.definitions:
        store.define(store.new_id(), b"q")
        defined = loop.create_future()
        store.commit(defined.set_result)
        assert await defined is None
    (queue,) = store.recovered.definitions or store.live.definitions
    waiting = []
    def tell(lines, error):
        if error is None:
            sys.stdout.write("".join(lines)); sys.stdout.flush()
    while True:
        lines = []
        for _ in range(20):
            id = store.add(bytes(300), [queue])
            lines.append(f"+{id}\\n")
            waiting.append(id)
            if id % 3 and len(waiting) > 50:
                gone = waiting.pop(id % 50)
                sys.stdout.write(f"?{gone}\\n")
                store.remove(gone, queue)
                lines.append(f"-{gone}\\n")
        sys.stdout.flush()
        store.commit(lambda error, lines=lines: tell(lines, error))
        await asyncio.sleep(0)

asyncio.run(main())
"""


def test_sigkill_at_any_time_loses_and_revives_nothing(tmp_path: Path) -> None:
    """A child stores and removes, tells over a pipe what it begins to remove (?) and what it was promised (+ and -),
    and is killed in the midst of it, again and again."""
    rng = random.Random(5)
    kept: set[int] = set()
    for _ in range(6):
        reported: dict[bytes, set[int]] = {b"+": kept, b"-": set(), b"?": set()}
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
        assert child.stdout
        try:
            lines = [child.stdout.readline() for _ in range(rng.randrange(500, 20_000))]
            assert lines[-1], "the child has ended by itself"
        finally:
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.read().splitlines(keepends=True)
            child.wait()
        for line in lines:
            if line.endswith(b"\n"):
                reported[line[:1]].add(int(line[1:]))
        store = Store.open(tmp_path)
        assert not store.recovered.damaged
        (queue,) = store.recovered.definitions
        found = [r.message for r in store.recovered.references(queue)]
        kept = set(found)
        assert len(found) == len(kept)
        assert not reported[b"+"] - reported[b"?"] - kept
        assert not reported[b"-"] & kept
        assert all(store.load(message) == bytes(300) for message in found)
        store.close()


def test_a_folder_that_was_deleted_gives_no_id_again(tmp_path: Path) -> None:
    """Gateways and sessions know messages by these ids, longer than the folder may last."""
    given: list[int] = []
    for _ in range(3):
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        for _ in range(2):
            store = Store.open(tmp_path)
            given += [store.new_id(), store.new_id()]
            store.close()
    assert len(set(given)) == len(given)
    assert given[0] < given[4] < given[8], "later folders begin later"
    assert max(given) < 1 << 56, "a delivery-tag has room for it"


def test_the_first_group_raises_the_format_which_earlier_versions_refuse(tmp_path: Path) -> None:
    def stated(directory: Path) -> int:
        return int(json.loads((directory / "FORMAT").read_text())["format"])

    store = Store.open(tmp_path)
    queue = store.new_id()
    store.define(queue, b"{}")
    store.add(b"alone", [queue])
    store.flush()
    assert stated(tmp_path) == 2
    with store.group(100):
        message = store.add(b"in a group", [queue])
    store.commit()
    store.flush()
    assert stated(tmp_path) == 3
    (tmp_path / "backup").mkdir()
    store.tick()
    store.flush()
    store.close()
    assert stated(tmp_path / "backup") == 3
    for directory in (tmp_path, tmp_path / "backup"):
        store = Store.open(directory)
        assert store.load(message) == b"in a group"
        store.close()
