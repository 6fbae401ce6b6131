"""SIGKILL of the process that writes, and of Redis under it: what was reported is there, and whole."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from enmasse.stores import RedisSettings, SqliteSettings, StoreSettings
from enmasse.testing import wait_for
from tests.cli.small_disk import small_disk
from tests.kit.running import run
from tests.redis_server import RedisServer
from tests.stores.opened import content, opened
from tests.stores.writer import KEPT, UNDER_WAY, changes

ROUNDS = 6


class Writer:
    """A writing process; `reported`: the highest number of which it and all below were reported as written."""

    def __init__(self, settings: StoreSettings, first: int, inside: Sequence[str] = ()) -> None:
        arguments = [sys.executable, "-m", "tests.stores.writer", msgspec.json.encode(settings).decode(), str(first)]
        self.process = subprocess.Popen([*inside, *arguments], stdout=subprocess.PIPE, text=True)
        self.reported = first - 1
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                assert int(line) == self.reported + 1, "reported in another order than written"
                self.reported += 1

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()


@contextlib.contextmanager
def writing(settings: StoreSettings, first: int, inside: Sequence[str] = ()) -> Iterator[Writer]:
    writer = Writer(settings, first, inside)
    try:
        wait_for("the writer writes", lambda: writer.reported >= first or writer.process.poll() is not None)
        yield writer
    finally:
        writer.kill()


def judge(settings: StoreSettings, reported: int) -> int:
    """Everything that was reported is there; what is there is whole writes, in order. Gives the last number there."""
    last = -1

    async def look() -> None:
        nonlocal last
        async with opened(settings) as store:
            a, b = await content(store, "a"), await content(store, "b")
        assert a == b
        last = max(int(key.removeprefix("key ")) for key in a)
        assert reported <= last <= reported + UNDER_WAY + KEPT
        expected: dict[str, bytes] = {}
        for number in range(max(last - 2 * KEPT, 0), last + 1):
            for change in changes(number):
                if change.table == "a":
                    expected.pop(change.key, None)
                    if change.value is not None:
                        expected[change.key] = change.value
        assert a == dict(list(expected.items())[-KEPT:])

    run(look())
    return last


def test_the_writer_is_killed_at_any_moment(settings: StoreSettings) -> None:
    last = -1
    for _ in range(ROUNDS):
        with writing(settings, last + 1) as writer:
            enough = writer.reported + random.randrange(600)
            wait_for("it writes on", lambda: writer.reported >= enough)
        last = judge(settings, writer.reported)


def test_redis_is_killed_under_the_writer_and_the_writer_goes_on(redis_server: RedisServer) -> None:
    settings = RedisSettings(redis_server.url, "killed")
    with writing(settings, 0) as writer:
        for _ in range(ROUNDS):
            enough = writer.reported + random.randrange(600)
            wait_for("it writes on", lambda: writer.reported >= enough or writer.process.poll() is not None)
            redis_server.kill()
            redis_server.start()
        wait_for("it writes on", lambda: writer.reported >= enough + 500 or writer.process.poll() is not None)
        assert writer.process.poll() is None, "a write failed"
    judge(settings, writer.reported)


def test_both_are_killed(redis_server: RedisServer, tmp_path: Path) -> None:
    settings = RedisSettings(redis_server.url, "both")
    last = -1
    for _ in range(ROUNDS):
        with writing(settings, last + 1) as writer:
            enough = writer.reported + random.randrange(300)
            wait_for("it writes on", lambda: writer.reported >= enough)
            redis_server.kill()
        redis_server.start()
        last = judge(settings, writer.reported)


def test_the_disk_gets_full_under_the_writer(tmp_path: Path) -> None:
    """The write that has no room fails; it ends the writer."""
    with small_disk(tmp_path / "small", 8) as disk:
        with writing(SqliteSettings(str(disk.mounted / "store")), 0, disk.inside) as writer:
            disk.fill()
            wait_for("a write fails", lambda: writer.process.poll() is not None)
        for name in ("store", "store-wal"):
            shutil.copy(disk.path / name, tmp_path / name)
    judge(SqliteSettings(str(tmp_path / "store")), writer.reported)
