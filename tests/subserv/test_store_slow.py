"""A store that is slow, or fails: memory stays as the store has it, and what has to be done is done later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from enmasse.amqp.codec.types import Symbol, Timestamp
from enmasse.amqp.messages.message import Message
from enmasse.model import sessions as wire
from enmasse.stores import Change, Store, StoreError
from services.subserv import records
from services.subserv.records import SessionRecord
from services.subserv.retained import retained_messages
from services.subserv.retained.retained_messages import RetainedMessages
from services.subserv.retained.tree import Retained
from services.subserv.service import SubscriptionService
from tests.kit.running import asyncio_test


class ToyStore(Store):
    """Takes writes in their order, and says so some turns of the loop later; or fails."""

    def __init__(self) -> None:
        self.tables: dict[tuple[str, str], bytes] = {}
        self.fails = False

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._write(changes, self.fails))

    async def _write(self, changes: Sequence[Change], fails: bool) -> None:
        if fails:
            raise StoreError("the store is away")
        for table, key, value in changes:
            if value is None:
                self.tables.pop((table, key), None)
            else:
                self.tables[table, key] = value
        for _ in range(10):
            await asyncio.sleep(0)


def retained(body: bytes, expires: int) -> bytes:
    annotations = {Symbol("x-opt-retain-message"): True}
    return bytes(Message(body, to="a", annotations=annotations, absolute_expiry_time=Timestamp(expires)).encode())


@pytest.mark.parametrize("other", ["expire", "clear"])
@asyncio_test
async def test_a_message_that_replaces_one_that_goes(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    store = ToyStore()
    messages = RetainedMessages(store)
    now = 1000
    monkeypatch.setattr(retained_messages, "_now", lambda: now)
    await messages.take("b", [(1, retained(b"old", 2000))])
    (old,) = messages.index.match("a")
    now = 3000
    work = messages.expire() if other == "expire" else messages.clear([old])
    await asyncio.gather(messages.take("b", [(2, retained(b"new", 9000))]), work)
    kept = [entry.name for entry in messages.index.match("a")]
    assert kept == ["a"] == [name for _, name in store.tables]


@asyncio_test
async def test_a_retained_message_that_could_not_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ToyStore()
    messages = RetainedMessages(store)
    now = 1000
    monkeypatch.setattr(retained_messages, "_now", lambda: now)
    await messages.take("b", [(1, retained(b"old", 2000))])
    now, store.fails = 3000, True
    with pytest.raises(StoreError):
        await messages.expire()
    store.fails = False
    await messages.expire()
    assert not store.tables and not messages.index.count


@asyncio_test
async def test_what_comes_while_much_is_cleared_does_not_wait_for_all_of_it() -> None:
    """A subscriber waits for what was retained before: in one transaction 300 MB take a slow disk ten seconds."""
    messages = RetainedMessages(ToyStore())
    many = [Retained(f"a/{n}", "b", n, 100_000, 1, 0, 0) for n in range(3000)]
    for entry in many:
        messages.index.put(entry)
    clearing = asyncio.ensure_future(messages.clear(many))
    await asyncio.sleep(0)
    await messages.take("b", [(1, retained(b"new", 10**15))])
    assert messages.index.count > 2800
    assert await clearing == 3000
    assert messages.index.match("#") == messages.index.match("a") != []


@asyncio_test
async def test_sessions_end_though_the_store_was_away_at_their_time() -> None:
    store = ToyStore()
    service = SubscriptionService(store)
    for client in ("one", "two"):
        record = SessionRecord(
            client=client, created=1, epoch=1, protocol=5, expiry=1, connected=False, gateway="g", peer="", will=False,
            since=0.0, ends=10.0,
        )  # fmt: skip
        await store.write([records.put(records.SESSIONS, client, record)])
        service.sessions.put(record)
    store.fails = True
    with pytest.raises(StoreError):
        await service.clients.end_over(20.0)
    assert len(service.sessions.by_client) == 2
    store.fails = False
    await service.clients.end_over(20.0)
    assert not service.sessions.by_client and not store.tables


@asyncio_test
async def test_a_client_whose_connect_could_not_be_stored_is_not_connected() -> None:
    """Its gateway has closed it for the connection that failed: nobody would end its session."""
    service = SubscriptionService(store := ToyStore())
    opening = wire.Open(client="c", gateway="g", clean=False, expiry=1, protocol=5)
    await service.clients.open(opening)
    store.fails = True
    with pytest.raises(StoreError):
        await service.clients.open(opening)
    with pytest.raises(StoreError):
        await service.clients.end_over(0.0)
    store.fails = False
    await service.clients.end_over(0.0)
    assert service.sessions.connected == 0
    await service.clients.end_over(time.time() + 10)
    assert not service.sessions.by_client
