"""Backups of an SQLite store while it is written to."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from enmasse.stores import Change, SqliteSettings, Store, backup
from tests.kit.running import run
from tests.kit.waiting import until
from tests.stores.opened import content, opened


async def keep_writing(store: Store, last: list[int]) -> None:
    """Write n under `last` in two tables, until cancelled; `last[0]` is the greatest number that was acknowledged."""
    number = 0
    while True:
        number += 1
        value = b"%d" % number + b"." * (number % 2000)
        spread = Change("spread", f"key {number % 500}", value)
        await store.write([Change("one", "last", value), spread, Change("two", "last", value)])
        last[0] = number


def test_a_backup_under_load_is_one_moment_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In portions so small that hundreds of transactions are committed between the first and the last."""
    monkeypatch.setattr(backup, "PAGES", 5)
    folder = tmp_path / "data"
    path, copy = folder / "store.db", folder / "backup" / "store.db"

    async def test() -> None:
        async with opened(SqliteSettings(str(path))) as store:
            await store.write([Change("old", f"key {number}", b"x" * 2000) for number in range(3000)])
            last = [0]
            writing = asyncio.ensure_future(keep_writing(store, last))
            await until(lambda: last[0] > 10)
            before = last[0]
            copy.parent.mkdir()
            await until(copy.exists)
            after = last[0]
            await until(lambda: last[0] > after + 10)
            writing.cancel()
        assert [each.name for each in copy.parent.iterdir()] == ["store.db"]
        async with opened(SqliteSettings(str(copy))) as found:
            one, two = await content(found, "one"), await content(found, "two")
            assert one == two
            assert before <= int(one["last"].rstrip(b".")) <= after + 1
            assert max(int(each.rstrip(b".")) for each in (await content(found, "spread")).values()) == int(
                one["last"].rstrip(b".")
            )
            assert len(await content(found, "old")) == 3000

    run(test())
    with sqlite3.connect(copy) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


def test_a_backup_that_fails_is_tried_again_and_the_store_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    copy = folder / "backup" / "store.db"

    async def test() -> None:
        async with opened(SqliteSettings(str(folder / "store.db"))) as store:
            copy.parent.mkdir()
            obstacle = copy.parent / "store.new"
            obstacle.mkdir()  # a folder in it is left alone
            await store.write([Change("t", "k", b"1")])
            obstacle.rmdir()
            await until(copy.exists)
            copy.unlink()
            await store.write([Change("t", "k", b"2")])
            await until(copy.exists)
        async with opened(SqliteSettings(str(copy))) as found:
            assert await content(found, "t") == {"k": b"2"}

    run(test())


@pytest.mark.slow
def test_a_store_is_closed_while_it_makes_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "PAGES", 1)
    folder = tmp_path / "data"
    settings = SqliteSettings(str(folder / "store.db"))

    async def test() -> None:
        async with opened(settings) as store:
            await store.write([Change("t", f"key {number}", b"x" * 3000) for number in range(4000)])
            (folder / "backup").mkdir()
            await until((folder / "backup" / "store.new").exists)
        assert not list((folder / "backup").iterdir())
        async with opened(settings) as store:
            assert len(await content(store, "t")) == 4000
            await until((folder / "backup" / "store.db").exists)

    run(test())
