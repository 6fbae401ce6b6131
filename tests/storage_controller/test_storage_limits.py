"""Storage of an address space over several brokers: never more than its plan allows, and all of that where it is
needed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.control import Outcome
from enmasse.model.tenants.plans import SpaceLimits
from services.storage_controller.brokers.storage_shares import Held, Shares
from services.storage_controller.storage_limits import StorageLimits
from tests.ragent.doubles import until
from tests.storage_controller.conftest import World
from tests.storage_controller.test_controller import Play

LIMIT = 200_000


class Broker:
    """A broker that holds bytes of the space one. `away`: it does not answer; `deaf`: its answer is lost."""

    def __init__(self) -> None:
        self.used = self.wanted = self.share = self.refused = 0
        self.limited = self.away = self.deaf = False

    async def ask(self, shares: Shares | None) -> dict[str, Held] | None:
        if self.away:
            raise ValueError("away")
        if shares is not None:
            self.share, self.limited, self.refused = shares["one"].share, True, shares["one"].refused
        held = Held(self.used, self.wanted, self.share, True)
        self.wanted = 0
        if self.deaf:
            raise ValueError("lost")
        return {"one": held}

    def put(self, size: int) -> bool:
        if self.limited and self.used + size > self.share:
            self.wanted = size
            return False
        self.used += size
        return True


def test_one_broker_after_the_other_fills_what_the_plan_allows() -> None:
    brokers = {name: Broker() for name in ("a", "b", "c")}
    storage = StorageLimits(lambda: {name: each.ask for name, each in brokers.items()}, lambda: {*brokers})

    async def run() -> None:
        storage.limits = {"one": SpaceLimits(storage=1000)}
        for _ in range(3):
            await storage.round()
        for name in ("a", "b"):
            for _ in range(30):
                while brokers[name].used < (700 if name == "a" else 1000) and brokers[name].put(10):
                    pass
                await storage.round()
        assert [each.used for each in brokers.values()] == [700, 300, 0]
        assert storage.uses() == {"storage": {"one": 1000}}
        brokers["a"].used = 100
        for _ in range(8):
            brokers["c"].put(500)
            await storage.round()
        assert brokers["c"].used == 500

    asyncio.run(run())


def test_a_message_is_refused_only_if_there_is_no_room_for_it() -> None:
    """Not one for which another broker has some, whatever had no room before."""
    brokers = {name: Broker() for name in ("a", "b")}
    storage = StorageLimits(lambda: {name: each.ask for name, each in brokers.items()}, lambda: {*brokers})

    async def run() -> None:
        storage.limits = {"one": SpaceLimits(storage=1000)}
        for _ in range(3):
            await storage.round()
        while brokers["a"].used < 700:
            if not brokers["a"].put(100):
                await storage.round()
        for _ in range(4):
            assert not brokers["b"].put(400)  # 300 are left
            await storage.round()
        assert 300 < brokers["b"].refused <= 400
        for _ in range(30):
            while not brokers["b"].put(10):
                assert not 0 < brokers["b"].refused <= 10, "there is room"
                await storage.round()
        assert brokers["b"].used == 300
        for _ in range(4):
            assert not brokers["b"].put(10)
            await storage.round()
        assert 0 < brokers["b"].refused <= 10

    asyncio.run(run())


_STEP = st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "take", "away", "deaf", "back", "round"]))


@given(st.lists(_STEP, max_size=60))
def test_brokers_never_hold_more_than_the_plan_allows(steps: list[tuple[str, str]]) -> None:
    brokers = {name: Broker() for name in ("a", "b", "c")}
    storage = StorageLimits(lambda: {name: each.ask for name, each in brokers.items()}, lambda: {*brokers})

    async def run() -> None:
        storage.limits = {"one": SpaceLimits(storage=100)}
        for _ in range(2):
            await storage.round()
        for name, what in steps:
            broker = brokers[name]
            if what == "put":
                broker.put(17)
            elif what == "take":
                broker.used = broker.used // 2
            elif what == "round":
                await storage.round()
            else:
                broker.away, broker.deaf = what == "away", what == "deaf"
            assert sum(max(each.used, each.share) for each in brokers.values()) <= 100

    asyncio.run(run())


def test_three_brokers_store_together_what_the_plan_allows(play: Play) -> None:
    """Thrice as much is sent to each; another space stores all of its own meanwhile. A smaller plan drops nothing."""

    async def scenario(world: World) -> None:
        names = [f"!!{space}/q{number}" for space in ("one", "two") for number in range(3)]
        _limit(world, names, LIMIT)
        await world.ready(*names)
        await until(lambda: len(world.placements()) == 6)
        ours = [name for name in names if name.startswith("!!one")]
        assert len({world.where(name) for name in ours}) > 1, "they are on several brokers"
        await until(lambda: _shared(world, ours), "all have a share")
        texts = await asyncio.gather(*(_fill(world, name) for name in ours))
        await asyncio.gather(*(world.send(world.where(name), name, 200) for name in names if name not in ours))
        assert {*texts} == {
            f"the {LIMIT} bytes of storage that the plan of the space allows are used: receive or delete messages, or "
            "ask for another plan of the space"
        }
        await until(lambda: world.configserv.used.get("storage/one", 0) > LIMIT - 3000, "what is used is reported")
        assert world.configserv.used["storage/one"] <= LIMIT
        held = world.configserv.used["storage/one"]

        _limit(world, names, LIMIT // 2)
        await world.stop_controller()
        world.start_controller()
        await until(lambda: world.configserv.used.get("storage/one", 0) == held, "a new controller knows it")
        assert await _fill(world, ours[0])
        _limit(world, names, None)
        await until(lambda: _sends(world, ours[0]), "without the limit it stores again")

    play(scenario)


def test_a_broker_has_a_limit_with_its_first_address_of_a_space(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its share comes late."""

    async def never(limits: StorageLimits) -> None:
        await asyncio.Event().wait()

    async def scenario(world: World) -> None:
        _limit(world, ["!!one/q", "!!two/q"], LIMIT)
        await world.ready("!!one/q", "!!two/q")
        assert not (await _outcome(world, "!!one/q", 10)).accepted
        assert (await _outcome(world, "!!two/q", 10)).accepted

    monkeypatch.setattr(StorageLimits, "run", never)
    play(scenario)


def _limit(world: World, names: list[str], limit: int | None) -> None:
    """Publish these addresses, and a limit of the space one."""
    body: dict[str, Any] = {"addresses": {name: {"type": "queue", "flavor": "pool"} for name in names}, "forced": []}
    if limit is not None:
        body["limits"] = {"one": {"storage": limit}}
    world.configserv.publish("addresses", {"schema": 1, **body})


async def _shared(world: World, names: list[str]) -> bool:
    found = [await world.manage(world.where(name), "shareSpaceStorage", "null") for name in names]
    return all(json.loads(each)["one"][2] for each in found)


async def _outcome(world: World, name: str, size: int) -> Outcome:
    async with world.at(world.where(name)) as connection:
        sender = connection.sender(name)
        return await sender.deliver(proton.Message(body="x" * size, durable=True))


async def _sends(world: World, name: str) -> bool:
    return (await _outcome(world, name, 10)).accepted


async def _fill(world: World, name: str) -> str:
    """Send messages until one is refused, released ones again; return why."""
    async with world.at(world.where(name)) as connection:
        sender = connection.sender(name)
        while True:
            outcome = await sender.deliver(proton.Message(body="x" * 1000, durable=True))
            if outcome.condition:
                assert outcome.condition == "amqp:resource-limit-exceeded"
                return str(outcome.description)
            if not outcome.accepted:
                await asyncio.sleep(0.01)  # limit: between two messages, not to flood
