"""A store without space: writes fail at once with the reason, until there is room."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from enmasse.stores import Change, Store, StoreFull
from enmasse.stores.sqlite import SqliteEngine
from tests.kit.running import run
from tests.kit.waiting import DEADLINE, until


class Full(SqliteEngine):
    """Raises what SQLite raises on a full disk, from the commit that asks for more room than there is."""

    room = 1 << 60

    def _commit(self, tables: dict[str, dict[bytes, bytes | None]]) -> None:
        if sum(len(value or b"") for entries in tables.values() for value in entries.values()) > self.room:
            raise self.full()
        super()._commit(tables)

    def _open(self) -> bytes:
        if not self.room:
            raise self.full()
        return super()._open()

    @staticmethod
    def full() -> sqlite3.Error:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        return error


def test_writes_to_a_full_disk_fail_at_once_and_succeed_when_there_is_room(tmp_path: Path) -> None:
    async def test() -> None:
        engine = Full(str(tmp_path / "store"))
        store = Store(engine, patience=3600.0)  # limit: a write that waited would fail the test
        store.start()
        await store.ready()
        await store.write([Change("t", "before", b"1")])
        engine.room = 0
        writes = [store.write([Change("t", str(number), b"x" * 10)]) for number in range(3)]
        for write in writes:
            with pytest.raises(StoreFull, match="the disk is full"):
                await write
        await until(lambda: not store.state.ready)
        with pytest.raises(StoreFull, match="free space"):
            await store.write([Change("t", "more", b"2")])
        engine.room = 1 << 60
        await store.ready()
        await asyncio.wait_for(store.write([Change("t", "after", b"3")]), DEADLINE)
        assert [await store.get("t", key) for key in ("before", "0", "more", "after")] == [b"1", None, None, b"3"]
        await store.close()

    run(test())
