"""What every store promises, on each of them."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from enmasse.process.runner import Fatal
from enmasse.stores import Change, RedisSettings, SqliteSettings, StoreError, StoreSettings, make_store
from tests.kit.running import run
from tests.redis_server import RedisServer
from tests.stores.opened import content, opened


def test_what_was_written_is_there_after_a_restart(settings: StoreSettings) -> None:
    async def test() -> None:
        async with opened(settings) as store:
            await store.write([Change("a", "k", b"1"), Change("b", "k", b"2"), Change("a", "gone", b"3")])
            await store.write([Change("a", "gone", None), Change("a", "never", None), Change("b", "", b"")][:2])
        async with opened(settings) as store:
            assert await store.get("a", "k") == b"1"
            assert await store.get("a", "gone") is None
            assert await content(store, "a") == {"k": b"1"}
            assert await content(store, "b") == {"k": b"2"}
            assert await content(store, "c") == {}

    run(test())


def test_hostile_keys_and_values(settings: StoreSettings) -> None:
    hostile = {
        "a\0b": b"\0",
        "a": b"",
        "ключ/+/#": bytes(range(256)),
        "'; DROP TABLE entries; --": b"*",
        "\r\nFLUSHALL\r\n": b"\r\n",
        "\U0010ffff" * 100: b"x" * 100_000,
        " ": b" ",
        "store": b"the name of a key that the store has itself",
    }

    async def test() -> None:
        async with opened(settings) as store:
            await store.write([Change("t", key, value) for key, value in hostile.items()])
            assert await content(store, "t") == hostile
            assert await store.get_many("t", [*hostile, "none"]) == [*hostile.values(), None]
            assert await store.get_many("t", []) == []
            for bad in ("\ud800", "", "x" * 70_000):
                with pytest.raises(ValueError, match="a key"):
                    store.write([Change("t", "good", b""), Change("t", bad, b"")])
            assert await store.get("t", "good") is None

    run(test())


def test_a_table_is_read_in_pages(settings: StoreSettings) -> None:
    entries = {f"key {number}": os.urandom(number % 50) * 400 for number in range(3000)}

    async def test() -> None:
        async with opened(settings) as store:
            await store.write([Change("t", key, value) for key, value in entries.items()])
            await store.write([Change("t2", "other", b"")])
            assert await content(store, "t") == entries

    run(test())


def test_writes_of_one_turn_are_one_transaction_and_keep_their_order(settings: StoreSettings) -> None:
    async def test() -> None:
        async with opened(settings) as store:
            before = store.commits
            writes = [store.write([Change("t", f"k{n % 7}", b"%d" % n)]) for n in range(1000)]
            await asyncio.gather(*writes)
            assert store.commits - before == 1
            assert await content(store, "t") == {f"k{n % 7}": b"%d" % n for n in range(993, 1000)}
            writes = [store.write([Change("t", "k0", b"x" if n % 2 else None)]) for n in range(1000)]
            assert not any(write.done() for write in writes)
            await asyncio.gather(*writes)
            assert await store.get("t", "k0") == b"x"

    run(test())


def test_more_than_a_transaction_takes_is_written_in_several(settings: StoreSettings) -> None:
    async def test() -> None:
        async with opened(settings) as store:
            before = store.commits
            await asyncio.gather(*(store.write([Change("t", str(n), b"x" * 1_000_000)]) for n in range(30)))
            assert 1 < store.commits - before < 30
            assert len(await content(store, "t")) == 30

    run(test())


def test_what_waits_is_bounded(settings: StoreSettings) -> None:
    async def test() -> None:
        store = make_store(settings)  # not started: everything waits
        large = bytes(60 * 1024 * 1024)
        writes = [store.write([Change("t", str(n), large)]) for n in range(5)]
        with pytest.raises(StoreError, match="too much waits"):
            await writes[4]
        with pytest.raises(ValueError, match="a value has at most"):
            store.write([Change("t", "k", bytes(65 * 1024 * 1024))])
        await store.close()
        for write in writes:
            assert isinstance(write.exception(), StoreError)

    run(test())


def test_a_closed_store_takes_nothing(settings: StoreSettings) -> None:
    async def test() -> None:
        async with opened(settings) as store:
            last = store.write([Change("t", "k", b"last")])
        await last
        with pytest.raises(StoreError, match="is closed"):
            await store.write([Change("t", "k", b"later")])
        with pytest.raises(StoreError, match="is closed"):
            await store.get("t", "k")
        async with opened(settings) as store:
            assert await store.get("t", "k") == b"last"

    run(test())


_changes = st.lists(
    st.builds(
        Change, st.sampled_from("ab"), st.sampled_from(["x", "y", "é", "x\0", "z" * 300]), st.none() | st.binary()
    ),
    max_size=6,
)
_steps = st.lists(st.lists(_changes, min_size=1, max_size=5) | st.just("restart"), max_size=8)


@hypothesis_settings(max_examples=25)
@given(steps=_steps)
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_it_is_what_a_dictionary_is(
    kind: str,
    steps: list[list[list[Change]] | str],
    tmp_path_factory: pytest.TempPathFactory,
    shared_redis: RedisServer,
) -> None:
    """Turns of writes side by side, restarts between them, the whole content compared after each."""
    folder: Path = tmp_path_factory.mktemp("model")
    settings: StoreSettings = SqliteSettings(str(folder / "store"))
    if kind == "redis":
        settings = RedisSettings(shared_redis.url, folder.name)
    model: dict[str, dict[str, bytes]] = {"a": {}, "b": {}}

    async def life(steps: list[list[list[Change]] | str]) -> None:
        async with opened(settings) as store:
            for step in steps:
                assert not isinstance(step, str)
                await asyncio.gather(*map(store.write, step))
                for change in (change for write in step for change in write):
                    if change.value is None:
                        model[change.table].pop(change.key, None)
                    else:
                        model[change.table][change.key] = change.value
            for table, entries in model.items():
                assert await content(store, table) == entries

    lives: list[list[list[list[Change]] | str]] = [[]]
    for step in steps:
        if step == "restart":
            lives.append([])
        else:
            lives[-1].append(step)
    for one in lives:
        run(life(one))


def test_a_missing_redis_package_is_one_sentence_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "enmasse.stores.redis", raising=False)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(Fatal, match=r"needs the package `redis`; install it with: pip install '\.\[redis\]'"):
        make_store(RedisSettings("redis://127.0.0.1"))
