"""A Redis that is away, comes back, hangs, or would lose what it was given: a clear state, and nothing is accepted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import redis

from enmasse.process.runner import Fatal
from enmasse.stores import Change, RedisSettings, Store, StoreError, make_store
from enmasse.stores.redis import RedisEngine
from tests.cli.small_disk import small_disk
from tests.kit.running import run
from tests.redis_server import RedisServer
from tests.stores.opened import content, not_ready, opened, started


def impatient(server: RedisServer) -> Store:
    return Store(RedisEngine(server.url, "test"), patience=0.1)


def settings(server: RedisServer) -> RedisSettings:
    return RedisSettings(server.url, "test")


@pytest.mark.parametrize(("name", "value"), [("appendonly", "no"), ("appendfsync", "everysec"), ("appendfsync", "no")])
def test_one_that_is_not_durable_is_not_used(redis_server: RedisServer, name: str, value: str) -> None:
    durable = {"appendonly": "yes", "appendfsync": "always"}[name]

    async def test() -> None:
        redis_server.set(name, value)
        store = impatient(redis_server)
        store.start()
        write = store.write([Change("t", "k", b"refused")])
        await not_ready(store, "not durable", f"{name} is {value}", "set appendonly yes and appendfsync always")
        with pytest.raises(StoreError, match="not durable"):
            await write
        with redis_server.client() as client:
            assert client.keys() == []
        redis_server.set(name, durable)
        await store.ready()
        await store.write([Change("t", "k", b"kept")])
        redis_server.set(name, value)  # under way
        await not_ready(store, "not durable")
        redis_server.set(name, durable)
        await store.ready()
        assert await store.get("t", "k") == b"kept"
        await store.close()

    run(test())


def test_a_write_to_one_that_stopped_being_durable_is_not_reported(redis_server: RedisServer) -> None:
    """Before the store has looked again: the transaction itself shows it, and is made again when it is durable."""

    async def test() -> None:
        async with opened(settings(redis_server)) as store:
            redis_server.set("appendfsync", "no")
            write = store.write([Change("t", "k", b"1")])
            await not_ready(store, "not durable")
            assert not write.done()
            redis_server.set("appendfsync", "always")
            await write
            assert await store.get("t", "k") == b"1"

    run(test())


def test_one_that_may_evict_is_not_used(redis_server: RedisServer) -> None:
    async def test() -> None:
        redis_server.set("maxmemory", "100mb")
        redis_server.set("maxmemory-policy", "allkeys-lru")
        async with started(settings(redis_server)) as store:
            await not_ready(store, "maxmemory-policy allkeys-lru", "noeviction")
            redis_server.set("maxmemory-policy", "noeviction")
            await store.ready()

    run(test())


def test_one_that_is_full_refuses_and_goes_on(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with opened(settings(redis_server)) as store:
            await store.write([Change("t", "k", b"before")])
            redis_server.set("maxmemory", "1")
            with pytest.raises(StoreError, match="it refuses writes"):
                await store.write([Change("t", "k", b"refused"), Change("other", "k", b"refused")])
            await not_ready(store, "maxmemory")
            redis_server.set("maxmemory", "0")
            await store.ready()
            assert await content(store, "t") == {"k": b"before"}
            assert await content(store, "other") == {}
            await store.write([Change("t", "k", b"after")])

    run(test())


def test_one_whose_disk_is_full_loses_nothing_that_was_reported(tmp_path: Path) -> None:
    """Redis ends itself if it cannot write its file (appendfsync always)."""
    with small_disk(tmp_path / "small", 8) as disk:
        server = RedisServer(disk.path / "redis")

        async def test() -> None:
            async with opened(settings(server)) as store:
                await store.write([Change("t", "k", b"before")])
                disk.fill()
                large = [store.write([Change("t", f"large {n}", bytes(100_000))]) for n in range(20)]
                await not_ready(store, "it does not answer")
                assert server.process is not None
                await asyncio.to_thread(server.process.wait)
                disk.free()
                server.start()
                await asyncio.gather(*large)
                assert len(await content(store, "t")) == 21

        try:
            run(test())
        finally:
            server.stop()


def test_one_that_is_away_at_the_start_and_comes(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis", start=False)

    async def test() -> None:
        store = impatient(server)
        store.start()
        await not_ready(store, "does not answer", f"127.0.0.1:{server.port}", "start it")
        with pytest.raises(StoreError, match="does not answer"):
            await store.write([Change("t", "refused", b"")])
        with pytest.raises(StoreError, match="does not answer"):
            await store.get("t", "refused")
        server.start()
        await store.ready()
        await store.write([Change("t", "k", b"")])
        assert await content(store, "t") == {"k": b""}
        await store.close()

    try:
        run(test())
    finally:
        server.stop()


def test_what_was_under_way_when_it_was_killed_is_done_once_it_is_back(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with opened(settings(redis_server)) as store:
            redis_server.pause()
            first = store.write([Change("t", "k", b"1"), Change("t", "l", b"1")])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            second = store.write([Change("t", "k", b"2")])
            redis_server.kill()
            await not_ready(store, "does not answer")
            assert not first.done()
            redis_server.start()
            await first
            await second
            assert await content(store, "t") == {"k": b"2", "l": b"1"}

    run(test())


def test_one_that_hangs_shows_as_such_and_is_used_again_when_it_answers(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with opened(settings(redis_server)) as store:
            redis_server.pause()
            write = store.write([Change("t", "k", b"1")])
            await not_ready(store, "does not answer")
            redis_server.resume()
            await write
            assert await store.get("t", "k") == b"1"

    run(test())


def test_one_that_was_emptied_is_not_taken_for_the_same(redis_server: RedisServer) -> None:
    async def test() -> None:
        async with opened(settings(redis_server)) as store:
            await store.write([Change("t", "k", b"1")])
            with redis_server.client() as client:
                client.flushall()
            await not_ready(store, "what it held is gone", "restart this service")
        async with opened(settings(redis_server)) as store:
            assert await content(store, "t") == {}

    run(test())


def test_a_replica_is_not_used(redis_server: RedisServer, tmp_path: Path) -> None:
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {redis_server.port}")

    async def test() -> None:
        async with started(settings(replica)) as store:
            await not_ready(store, "replica", "the primary's url")

    try:
        run(test())
    finally:
        replica.stop()


def test_a_password_is_used_and_never_shown(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.config_set("requirepass", "secret")

    async def test() -> None:
        for url in (redis_server.url, redis_server.url.replace("//", "//:wrong-one@")):
            async with started(RedisSettings(url, "test")) as store:
                detail = await not_ready(store, "password")
                assert "wrong-one" not in detail
        async with opened(RedisSettings(redis_server.url.replace("//", "//:secret@"), "test")) as store:
            await store.write([Change("t", "k", b"1")])
            assert "secret" not in store.state.detail

    run(test())


def test_a_password_in_a_file_is_read_with_each_connection(redis_server: RedisServer, tmp_path: Path) -> None:
    file = tmp_path / "password"

    def demand(password: str, now: str = "") -> None:
        with redis.Redis(port=redis_server.port, password=now or None) as client:
            client.config_set("requirepass", password)
            client.client_kill_filter(_type="normal", skipme=True)

    async def test() -> None:
        demand("first")
        async with started(RedisSettings(redis_server.url, "test", str(file))) as store:
            assert str(file) in await not_ready(store, "cannot be read")
            file.write_text("first\n")
            await store.ready()
            demand("second", "first")
            assert "first" not in await not_ready(store, "password")
            file.write_text("second")
            await store.ready()
            await store.write([Change("t", "k", b"1")])

    run(test())


def test_suites_with_prefixes_of_their_own_share_a_server(redis_server: RedisServer) -> None:
    async def test() -> None:
        one = RedisSettings(redis_server.url, "one")
        other = RedisSettings(redis_server.url, "other")
        async with opened(one) as first, opened(other) as second:
            await first.write([Change("t", "k", b"1")])
            await second.write([Change("t", "k", b"2")])
            assert await first.get("t", "k") == b"1"

    run(test())


def test_a_url_that_cannot_be_understood() -> None:
    with pytest.raises(Fatal, match="port"):
        make_store(RedisSettings("redis://host:port/0"))
