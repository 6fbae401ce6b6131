"""A file that cannot be used: nothing is accepted, the reason is said, and it goes on when the cause is gone."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from pathlib import Path

import pytest

from enmasse.stores import Change, SqliteSettings, Store, StoreError
from enmasse.stores.sqlite import SqliteEngine
from tests.kit.running import run
from tests.stores.opened import content, not_ready, opened, started


def impatient(path: Path) -> Store:
    return Store(SqliteEngine(str(path)), patience=0.1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no database at all" * 1000, ["damaged, or no file of a store", "restore it"]),
        (b"SQLite format 3\0" + b"\xff" * 8000, ["damaged"]),
    ],
)
def test_a_file_that_is_none_of_ours_is_left_alone(tmp_path: Path, content: bytes, words: list[str]) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)

    async def test() -> None:
        async with started(SqliteSettings(str(path))) as store:
            assert str(path) in await not_ready(store, *words)
        assert path.read_bytes() == content

    run(test())


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()

    async def test() -> None:
        async with started(SqliteSettings(str(path))) as store:
            await not_ready(store, "another program's database", str(path))

    run(test())
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    other.close()


def test_a_file_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def make() -> None:
        async with opened(SqliteSettings(str(path))):
            pass

    run(make())
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 77")
    newer.close()

    async def test() -> None:
        async with started(SqliteSettings(str(path))) as store:
            await not_ready(store, "a newer release", "77", str(path))

    run(test())


def test_a_path_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def test() -> None:
        for path in (tmp_path / "file" / "store", tmp_path):
            async with started(SqliteSettings(str(path))) as store:
                await not_ready(store, str(path), "give a path")

    run(test())


def test_a_second_process_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    settings = SqliteSettings(str(tmp_path / "store"))

    async def test() -> None:
        async with opened(settings) as first:
            await first.write([Change("t", "k", b"first")])
            async with started(settings) as second:
                await not_ready(second, "another process uses it", settings.path)
                with pytest.raises(StoreError, match="another process"):
                    await second.get("t", "k")
                await first.write([Change("t", "k", b"still")])
                await first.close()
                await second.ready()
                assert await second.get("t", "k") == b"still"

    run(test())


def test_a_write_waits_for_a_file_and_fails_if_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "store"

    async def test() -> None:
        async with opened(SqliteSettings(str(path))) as first:
            second = impatient(path)
            second.start()
            write = second.write([Change("t", "failed", b"")])
            with pytest.raises(StoreError, match="another process uses it"):
                await write
            await first.close()
            await second.ready()
            await second.write([Change("t", "k", b"")])
            assert await content(second, "t") == {"k": b""}
            await second.close()

    run(test())


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_a_folder_that_is_taken_away_under_the_service(tmp_path: Path, what: str) -> None:
    """It does not go on with an empty file, or another, as if nothing had been."""
    folder, kept, other = tmp_path / "folder", tmp_path / "kept", tmp_path / "other"

    async def test() -> None:
        async with opened(SqliteSettings(str(other / "store"))) as there:
            await there.write([Change("t", "k", b"other")])
        store = impatient(folder / "store")
        store.start()
        await store.ready()
        await store.write([Change("t", "k", b"1")])
        folder.rename(kept)
        if what == "replaced":
            other.rename(folder)
        await not_ready(store, "what it held is gone", str(folder), "restart")
        with pytest.raises(StoreError, match="what it held is gone"):
            await store.write([Change("t", "k", b"2")])
        if what == "replaced":
            await store.close()
            folder.rename(other)
        kept.rename(folder)
        if what == "replaced":
            store = impatient(folder / "store")
            store.start()
        await store.ready()
        assert await store.get("t", "k") == b"1"
        await store.close()

    run(test())


def test_a_file_that_is_moved_away_and_back(tmp_path: Path) -> None:
    """Alone: its log stays where it is, and nobody makes another file beside it."""
    path, kept = tmp_path / "store", tmp_path / "kept"

    async def test() -> None:
        async with opened(SqliteSettings(str(path))) as store:
            await store.write([Change("t", "k", b"1")])
            path.rename(kept)
            await not_ready(store, "what it held is gone", str(path), "bring it back")
            kept.rename(path)
            await store.ready()
            assert await store.get("t", "k") == b"1"

    run(test())


def test_damage_in_the_middle_is_found_by_who_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    settings = SqliteSettings(str(path))

    async def test() -> None:
        async with opened(settings) as store:
            await store.write([Change("t", str(number), b"x" * 300) for number in range(500)])
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] + b"\xa5" * 4096 * 4 + whole[len(whole) // 2 + 4096 * 4 :])
        async with opened(settings) as store:
            with pytest.raises(StoreError, match="it is damaged; restore it"):
                await content(store, "t")

    run(test())


def test_a_disk_that_fails_and_recovers(tmp_path: Path) -> None:
    """The system refuses to let the file grow. Whether the bytes are stored nobody knows: they are written again."""
    path = tmp_path / "store"
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def test() -> None:
        async with opened(SqliteSettings(str(path))) as store:
            await store.write([Change("t", "first", b"1")])
            resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "store-wal").stat().st_size, most))
            try:
                writes = [store.write([Change("t", str(number), b"x" * 3000)]) for number in range(100)]
                await not_ready(store, "look at the disk", str(path))
                assert not any(write.done() for write in writes)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            await asyncio.gather(*writes)
            assert len(await content(store, "t")) == 101

    run(test())
