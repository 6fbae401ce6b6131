"""A later address space of the same name gets nothing of one that was removed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.identity.annotations import ORIGINAL_ADDRESS
from enmasse.model import sessions as wire
from enmasse.model.feeds import PermissionChanges, ReachedSpace
from enmasse.stores import SqliteSettings, make_store
from services.subserv.service import SubscriptionService
from tests.kit.running import asyncio_test

SHOP, LAB = {"shop": ReachedSpace()}, {"lab": ReachedSpace()}
CLIENTS = {"~eve@shop/c", "~eve@lab/c", "~eve/c"}
RETAINED = {"!!shop/news/a", "!!lab/news/a", "news/a"}


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[SubscriptionService]:
    store = make_store(SqliteSettings(path=str(folder / "subserv.db")))
    store.start()
    await store.ready()
    service = SubscriptionService(store)
    await service.load()
    try:
        yield service
    finally:
        service.close()
        await store.close()


async def fill(service: SubscriptionService) -> None:
    for client in CLIENTS:
        opened = await service.clients.open(
            wire.Open(client=client, gateway="gw-0", clean=False, protocol=5, expiry=1000)
        )
        await service.clients.close(wire.Close(client=client, epoch=opened.epoch))
    for number, name in enumerate(sorted(RETAINED), 1):
        annotations = {Symbol("x-opt-retain-message"): True, Symbol(ORIGINAL_ADDRESS): name}
        message = Message(b"secret", to=name, annotations=annotations)
        await service.retained.take("b1", [(number, bytes(message.encode()))])


def left(service: SubscriptionService) -> set[str]:
    return {*service.sessions.by_client, *(each.name for each in service.retained.index.match("#"))}


@pytest.mark.parametrize("others", [LAB, {}], ids=["another space is left", "it was the last one"])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "after a restart"])
@asyncio_test
async def test_what_a_removed_space_had_is_ended(
    tmp_path: Path, others: dict[str, ReachedSpace], restarted: bool
) -> None:
    everything = CLIENTS | RETAINED
    kept = {each for each in everything if "shop" not in each and (others or "lab" not in each)}
    async with contextlib.AsyncExitStack() as stack:
        service = await stack.enter_async_context(running(tmp_path))
        service._on_permissions(PermissionChanges(users={}, spaces=SHOP | LAB))
        await fill(service)
        if restarted:
            await stack.aclose()
            service = await stack.enter_async_context(running(tmp_path))
        for spaces in (None, SHOP | LAB):
            body = PermissionChanges(users={}) if spaces is None else PermissionChanges(users={}, spaces=spaces)
            service._on_permissions(body)
            await service._end_of_removed_spaces()
            assert left(service) == everything, "not stated, as without spaces.json: nothing is removed"
        service._on_permissions(PermissionChanges(users={}, spaces=others))
        await service._end_of_removed_spaces()
        assert left(service) == kept
        await stack.aclose()
        again = await stack.enter_async_context(running(tmp_path))
        assert left(again) == kept, "it is durable"


@asyncio_test
async def test_a_space_that_is_there_again_before_the_look_has_nothing_of_before(tmp_path: Path) -> None:
    async with running(tmp_path) as service:
        service._on_permissions(PermissionChanges(users={}, spaces=SHOP | LAB))
        await fill(service)
        service._on_permissions(PermissionChanges(users={}, spaces=LAB))
        service._on_permissions(PermissionChanges(users={}, spaces=SHOP | LAB))
        new = "~new@shop/c"
        await service.clients.open(wire.Open(client=new, gateway="gw-0", clean=False, protocol=5, expiry=1000))
        await service._end_of_removed_spaces()
        assert left(service) == {new} | {each for each in CLIENTS | RETAINED if "shop" not in each}
