"""A later address space of the same name gets nothing of one that was removed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.identity.annotations import ORIGINAL_ADDRESS
from enmasse.identity.principal import Principal
from enmasse.model import sessions as wire
from enmasse.model.feeds import PermissionChanges, Placement, Placements, ReachedSpace
from enmasse.model.names import AddressName
from enmasse.stores import SqliteSettings, make_store
from services.subserv.service import SubscriptionService
from services.subserv.sessions.clients import Refusal
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
            await service.removed_spaces.end()
            assert left(service) == everything, "not stated, as without spaces.json: nothing is removed"
        service._on_permissions(PermissionChanges(users={}, spaces=others))
        await service.removed_spaces.end()
        assert left(service) == kept
        await stack.aclose()
        again = await stack.enter_async_context(running(tmp_path))
        assert left(again) == kept, "it is durable"


@asyncio_test
async def test_the_end_of_a_space_is_stated_when_nothing_can_come_any_longer(tmp_path: Path) -> None:
    """A retained message may still be in a broker's feed, and a gateway may not know yet that the space is gone."""
    away = True

    async def read() -> bool:
        if not away:
            annotations = {Symbol("x-opt-retain-message"): True, Symbol(ORIGINAL_ADDRESS): "!!shop/news/late"}
            message = Message(b"secret", to="!!shop/news/late", annotations=annotations)
            await service.retained.take("b1", [(9, bytes(message.encode()))])
        return not away

    async with running(tmp_path) as service:
        service.removed_spaces._read_feeds = read
        service._on_permissions(PermissionChanges(users={}, spaces=SHOP | LAB))
        await fill(service)
        service._on_permissions(PermissionChanges(users={}, spaces=LAB, ending={"shop": "1"}))
        with pytest.raises(Refusal, match="was removed"):
            await service.clients.open(
                wire.Open(client="~late@shop/c", gateway="gw-0", clean=False, protocol=5, expiry=1000)
            )
        assert not await service.removed_spaces.finish() and not service.removed_spaces.ended
        away = False
        assert await service.removed_spaces.finish()
        assert service.removed_spaces.ended == {"shop": "1"}
        assert left(service) == {each for each in CLIENTS | RETAINED if "shop" not in each}
        service._on_permissions(PermissionChanges(users={}, spaces=LAB, ending={"shop": "2"}))
        assert not service.removed_spaces.ended, "another removal of the name has to be looked at again"
        service._on_permissions(PermissionChanges(users={}, spaces=SHOP | LAB))
        await service.clients.open(wire.Open(client="~c@shop/c", gateway="gw-0", clean=False, protocol=5, expiry=9))


@asyncio_test
async def test_a_removed_space_keeps_everything_while_it_has_addresses(tmp_path: Path) -> None:
    carried = Placements(brokers={}, addresses={AddressName("!!shop/news"): [Placement(broker="b1")]})
    eve = Principal("eve", space="shop")
    async with running(tmp_path) as service:
        service._on_placements(carried)
        service._on_permissions(PermissionChanges(users={}, spaces=SHOP | LAB))
        await fill(service)
        service._on_permissions(PermissionChanges(users={}, spaces=LAB))
        await service.removed_spaces.end()
        assert left(service) == CLIENTS | RETAINED and not service.permits.removed(eve)
        service._on_placements(Placements(brokers={}, addresses={}))
        await service.removed_spaces.end()
        assert service.permits.removed(eve)
        assert left(service) == {each for each in CLIENTS | RETAINED if "shop" not in each}
