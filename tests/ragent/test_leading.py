"""An agent that stands by follows and does nothing; one that begins to lead takes everything over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton.utils import LinkDetached

from services.ragent.entities import ADDRESS, AUTO_LINK, LISTENER
from tests.configserv.running import Client, Configserv
from tests.kit.waiting import DEADLINE
from tests.ragent.conftest import Scenario, World
from tests.ragent.doubles import until
from tests.ragent.test_agent import ALL, PLACED, begin

Play = Callable[[Scenario], None]


@pytest.fixture
def configserv(tmp_path: Path) -> Iterator[Configserv]:
    """A real configuration service with one address that only the agent reports."""
    service = Configserv(tmp_path)
    service.write("flavors.json", {})
    service.write("addresses.json", {"any": {"type": "anycast"}})
    yield service.start()
    service.stop()


def test_an_agent_takes_its_role_back_from_a_peer_that_reports_in_its_place(play: Play, configserv: Configserv) -> None:
    """The peer stays connected, and its report of no address at all would make every address Pending for good."""

    async def scenario(world: World) -> None:
        await world.stop_agent()
        await world.start_agent(int(configserv.settings["listen"].rpartition(":")[2]))
        await world.join(world.router)
        await until(lambda: asyncio.to_thread(configserv.addresses, "Active"), "the agent reports")
        for _ in range(3):
            rogue = await asyncio.to_thread(Client, configserv)
            await asyncio.to_thread(rogue.ready, "ragent")
            with pytest.raises(LinkDetached, match="another link of this name"):
                await asyncio.to_thread(rogue.connection.wait, lambda: False, timeout=DEADLINE)
            await until(lambda: asyncio.to_thread(configserv.addresses, "Active"), "the agent reports again")
            await asyncio.to_thread(rogue.close)

    play(scenario)


def test_a_standby_follows_and_neither_manages_nor_reports_until_it_leads(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.stop_agent()
        dialled: list[Any] = []
        broker = await asyncio.start_server(lambda _, writer: dialled.append(writer), "127.0.0.1", 0)
        port = broker.sockets[0].getsockname()[1]
        world.configserv.reports.clear()
        world.router.requests.clear()
        agent = await world.start_standby()
        await world.join(world.router)
        await world.shows("stands by")
        rest = {name: entry for name, entry in ALL.items() if name != "any"}
        brokers = {name: {"host": "127.0.0.1", "port": 5} for name in ("b-0", "b-1")}
        world.configserv.place(PLACED, {**brokers, "mine": {"host": "127.0.0.1", "port": port, "byHand": True}})
        world.configserv.addresses({**rest, "new": {"type": "anycast"}})
        await until(lambda: agent.desired.addresses == {*rest, "new"} and "mine" in agent.desired.by_hand)
        await world.shows("stands by")
        assert world.router.connection is not None and world.router.connection.is_open
        assert (world.router.requests, world.configserv.reports, dialled) == ([], [], [])
        assert world.router.names(LISTENER), "what the leader made before stays"

        agent.lead()
        await world.ready(*rest, "new")
        first = world.configserv.reports[0][1]
        assert first["addresses"].keys() == {*rest, "new"}, "its first report is full"
        assert first["seen"] == world.configserv.revisions | {"flavors": 0}
        await until(lambda: world.configserv.pending("ragent") == {})
        assert world.router.names(ADDRESS) == {f"ragent-address/{name}" for name in ("multi", "q", "new")}
        created = {(type_, name) for verb, type_, name in world.router.requests if verb == "CREATE"}
        new = {("address", "ragent-address/new"), ("connector", "ragent-broker/mine")}
        assert created == new, "what the leader made before was read, not made again"
        assert world.router.names(AUTO_LINK) == {"ragent-in/b-0/q", "ragent-out/b-0/q"}
        await until(lambda: dialled, "it asks the brokers made by hand")
        await world.shows("1 router")
        for writer in dialled:
            writer.close()
        broker.close()

    play(scenario)


def test_a_standby_leads_with_the_routers_that_are_still_connected(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.stop_agent()
        agent = await world.start_standby()
        await world.join(world.router)
        again = world.router.restarted()
        await world.join(again)
        await world.shows("stands by")
        world.router.requests.clear()
        agent.lead()
        await world.ready(*ALL)
        await until(lambda: again.names(LISTENER))
        assert world.router.requests == []
        assert agent.routers.keys() == {"router-0"}

    play(scenario)


def test_a_new_leader_reports_over_each_connection_that_follows(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.stop_agent()
        agent = await world.start_standby()
        await world.join(world.router)
        agent.lead()
        await world.ready(*ALL)
        await world.configserv.stop()
        await world.configserv.start()
        await world.ready(*ALL)

    play(scenario)
