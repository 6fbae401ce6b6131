"""Unexpected errors, injected into a real store: the caller is refused, memory is as before, and health reports it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from enmasse.model import sessions as wire
from enmasse.stores import Change, SqliteSettings, Store
from enmasse.stores.sqlite import SqliteEngine
from enmasse.stores.storage_engine import Tables
from services.subserv import app, records
from services.subserv.app import _run
from services.subserv.service import SubscriptionService
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.stores.opened import opened


class Faulty(SqliteEngine):
    """Raises an error that is none of SQLite's, before or after a commit, or when a table is read."""

    fails_at = ""

    async def commit(self, tables: Tables) -> None:
        self._maybe_fail("before the commit")
        await super().commit(tables)
        self._maybe_fail("after the commit")

    async def get(self, table: str, keys: Any) -> list[bytes | None]:
        self._maybe_fail("reading")
        return await super().get(table, keys)

    async def page(self, table: str, after: bytes) -> Any:
        self._maybe_fail("reading")
        return await super().page(table, after)

    def _maybe_fail(self, at: str) -> None:
        if self.fails_at == at:
            raise RuntimeError(f"injected {at}")


async def served(path: Path) -> AsyncIterator[tuple[SubscriptionService, Faulty]]:
    engine = Faulty(str(path))
    store = Store(engine, patience=0.1)
    store.start()
    await store.ready()
    service = SubscriptionService(store)
    await service.load()
    try:
        yield service, engine
    finally:
        engine.fails_at = ""
        await store.close()


def opening(client: str = "c") -> wire.Open:
    return wire.Open(client=client, gateway="g", clean=False, expiry=100, protocol=5)


def packets(epoch: int, *ids: int) -> wire.Packets:
    return wire.Packets(changes=[wire.PacketChange("c", epoch, "in", pid, f"id {pid}") for pid in ids])


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
@asyncio_test
async def test_every_request_is_refused_and_undone_when_a_write_fails_unexpectedly(tmp_path: Path, moment: str) -> None:
    async for service, engine in served(tmp_path / "store"):
        clients = service.clients
        epoch = (await clients.open(opening())).epoch
        await clients.packets(packets(epoch, 1))
        engine.fails_at = moment
        asked = [
            clients.packets(packets(epoch, 2)),
            clients.packets(packets(epoch, 3)),
            clients.open(opening("other")),
            clients.close(wire.Close(client="c", epoch=epoch, expiry=None, sent=[wire.Outgoing(9, 2, "k", "s")])),
        ]
        async with asyncio.timeout(DEADLINE):
            answers = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(answer, Exception) for answer in answers), answers
        session = service.sessions.by_client["c"]
        assert session.packets.received == {1: "id 1"} and not session.packets.sent
        assert list(service.sessions.by_client) == ["c"] and session.record.connected
        ready, detail = service.healthy(True)
        assert not ready and "injected" in detail
        engine.fails_at = ""
        await service.store.ready()
        await clients.packets(packets(epoch, 2))
        assert service.sessions.by_client["c"].packets.received == {1: "id 1", 2: "id 2"}


@asyncio_test
async def test_a_client_is_refused_when_reading_its_messages_fails_unexpectedly(tmp_path: Path) -> None:
    async for service, engine in served(tmp_path / "store"):
        epoch = (await service.clients.open(opening())).epoch
        out = wire.PacketChange("c", epoch, "out", 1, "k", "$sub/b/share.g.1", message=b"held")
        await service.clients.packets(wire.Packets(changes=[out]))
        await service.clients.close(wire.Close(client="c", epoch=epoch, expiry=100))
        engine.fails_at = "reading"
        with pytest.raises(Exception, match="injected"):
            await service.clients.open(opening())
        engine.fails_at = ""
        await service.store.ready()
        assert [each.message for each in (await service.clients.open(opening())).sent] == [b"held"]


@asyncio_test
async def test_one_request_that_fails_unexpectedly_does_not_refuse_the_others(tmp_path: Path) -> None:
    async for service, _ in served(tmp_path / "store"):
        clients = service.clients
        epoch = (await clients.open(opening())).epoch
        lone_surrogate = wire.Packets(changes=[wire.PacketChange("c", epoch, "in", 7, "\ud800")])
        asked = clients.packets(packets(epoch, 1)), clients.packets(lone_surrogate), clients.packets(packets(epoch, 2))
        async with asyncio.timeout(DEADLINE):
            one, bad, two = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(one, wire.PacketsReply) and isinstance(two, wire.PacketsReply)
        assert isinstance(bad, ValueError)
        assert service.sessions.by_client["c"].packets.received == {1: "id 1", 2: "id 2"}
        assert service.packets.failures == 1


@asyncio_test
async def test_a_store_with_an_unreadable_record_is_reported_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "LOAD_AGAIN", 0.01)
    path = tmp_path / "store"
    async with opened(SqliteSettings(str(path))) as store:
        await store.write([Change(records.SESSIONS, "c", b"no session")])
    store = Store(SqliteEngine(str(path)))
    store.start()
    service = SubscriptionService(store)
    config = app.SubservSettings(
        name="subserv", health="127.0.0.1:1", router="127.0.0.1:1", configserv="127.0.0.1:1",
        store=SqliteSettings(str(path)),
    )  # fmt: skip
    starting = asyncio.ensure_future(_run(service, app.Routed(service), config, None))
    await until(lambda: service.unreadable)
    assert service.healthy(False) == (False, f"reading the store: {service.unreadable}")
    await store.write([Change(records.SESSIONS, "c", None)])
    await until(lambda: service.loaded)
    starting.cancel()
    await asyncio.wait([starting])
    service.close()
    await store.close()
