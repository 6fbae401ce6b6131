"""Which router the agent has dial which: pairs, places, comings and goings. Without a real router."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from services.ragent import mesh as mesh_module
from services.ragent.entities import CONNECTOR, LISTENER
from services.ragent.mesh import KEPT, Endpoint, Mesh
from tests.kit.clock import Clock
from tests.ragent.conftest import Scenario, World
from tests.ragent.doubles import FakeRouter, until

Play = Callable[[Scenario], None]
HERE = Endpoint("10.0.0.1", "55672")


def of(*routers: str, clock: Callable[[], float] | None = None) -> Mesh:
    mesh = Mesh(clock or Clock())
    for router in routers:
        mesh.joined(router, HERE)
    return mesh


@pytest.mark.parametrize("order", list(itertools.permutations(["router-0", "router-1", "router-10", "router-2"])))
def test_each_pair_once_in_whatever_order_they_come(order: Iterable[str]) -> None:
    mesh = of(*order)
    pairs = [frozenset((router, other)) for router in order for other in mesh.dials(router)]
    assert len(pairs) == len(set(pairs)) == 6
    assert all(len(pair) == 2 for pair in pairs)


def test_a_router_at_another_place_is_news() -> None:
    mesh = of("a")
    assert not mesh.joined("a", HERE)
    moved = HERE._replace(host="10.0.0.2")
    assert mesh.joined("a", moved)
    assert mesh.dials("b") == {"a": moved}


def test_a_router_that_has_left_may_come_again_for_a_while() -> None:
    clock = Clock()
    mesh = of("a", "b", clock=clock)
    mesh.left("a")
    assert mesh.parted("b") == []
    clock.now += KEPT - 1
    assert mesh.dials("b") == {"a": HERE}
    clock.now += 2
    assert mesh.dials("b") == {}
    assert not mesh.may_come("a")
    assert not mesh.joined("a", HERE)  # where it was: yet it is dialled again
    assert mesh.dials("b") == {"a": HERE}


def test_a_router_that_others_see_is_never_given_up() -> None:
    """It may be out of reach of the agent only: then its connections carry messages."""
    clock = Clock()
    mesh = of("a", "b", "c", clock=clock)
    mesh.sees("b", ["a", "c"])
    mesh.left("a")
    clock.now += 100 * KEPT
    assert "a" in mesh.dials("b")
    assert "a" in mesh.dials("c")
    mesh.left("b")  # what it saw is of the past
    assert not mesh.may_come("a")


def test_a_new_agent_gives_unknown_routers_time_to_dial_it() -> None:
    clock = Clock()
    mesh = of("b", clock=clock)
    assert mesh.may_come("a")
    clock.now += KEPT + 1
    assert not mesh.may_come("a")


def test_who_is_parted() -> None:
    mesh = of("a", "b", "c")
    mesh.sees("a", ["b"])
    assert mesh.parted("a") == ["c"]
    assert mesh.parted("d") == [], "it listens for nobody: nothing is awaited"


def router(name: str, port: int, *neighbours: str, host: str = "127.0.0.1", profile: str | None = None) -> FakeRouter:
    made = FakeRouter(name)
    made.listens(host, port, profile)
    made.sees(*neighbours)
    return made


def dialled(router: FakeRouter) -> dict[str, tuple[str, str, Any]]:
    """What it was told to dial: router → host, port, TLS profile."""
    rows = router.tables[CONNECTOR].values()
    return {
        row["name"].removeprefix("ragent-router/"): (row["host"], row["port"], row.get("sslProfile"))
        for row in rows
        if row["role"] == "inter-router"
    }


async def begin(world: World, *routers: FakeRouter) -> None:
    world.router.kill()
    world.configserv.place({})
    world.configserv.addresses({"any": {"type": "anycast"}})
    for each in routers:
        await world.join(each)


def test_routers_are_meshed_and_addresses_wait_for_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        one, two = router("r-1", 7001), router("r-2", 7002)
        await begin(world, two, one)
        await until(lambda: dialled(two) == {"r-1": ("127.0.0.1", "7001", None)})
        await world.reported("any", "has no connection with router")
        await world.shows("router r-2: has no connection with router r-1 yet")
        assert dialled(one) == {}
        (connector,) = (row for row in two.tables[CONNECTOR].values())
        assert "management" not in connector
        one.sees("r-2")
        two.sees("r-1")
        await world.ready("any")

    play(scenario)


def test_a_router_without_listeners_for_clients_makes_no_address_not_ready(play: Play) -> None:
    async def scenario(world: World) -> None:
        one, two = router("r-1", 7001), router("r-2", 7002)
        await begin(world, one)
        await world.shows("listener inter-router (127.0.0.1:7001)")
        two.listeners = "down"
        await world.join(two)
        await world.shows("being configured: r-2")
        await until(lambda: "ragent-listener/amqp" in two.tables[LISTENER])
        world.configserv.addresses({"any": {"type": "anycast"}, "more": {"type": "anycast"}})
        await world.ready("any", "more")
        two.listeners = "up"
        await world.reported("any", "has no connection with router")

    play(scenario)


def test_the_place_of_a_router_that_listens_everywhere_is_where_it_dials_from(play: Play) -> None:
    async def scenario(world: World) -> None:
        one, two = router("r-1", 7001, "r-2", host="0.0.0.0", profile="mesh"), router("r-2", 7002, "r-1", host="")
        await begin(world, one, two)
        await until(lambda: dialled(two) == {"r-1": ("127.0.0.1", "7001", "mesh")})
        await world.ready("any")

    play(scenario)


def test_a_router_that_comes_back_elsewhere_is_dialled_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        one, two = router("r-1", 7001, "r-2"), router("r-2", 7002, "r-1")
        await begin(world, one, two)
        await until(lambda: "r-1" in dialled(two))
        await world.ready("any")
        await until(lambda: "r-1" in world.configserv.readiness["ragent"]["any"]["components"])
        one.kill()
        await until(lambda: "r-1" not in world.configserv.readiness["ragent"]["any"]["components"])
        assert dialled(two) == {"r-1": ("127.0.0.1", "7001", None)}
        await world.join(router("r-1", 7003, "r-2"))
        await until(lambda: dialled(two) == {"r-1": ("127.0.0.1", "7003", None)})
        await world.ready("any")

    play(scenario)


def test_a_router_that_is_gone_for_good_is_dialled_no_more(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        one, two = router("r-1", 7001, "r-2"), router("r-2", 7002, "r-1")
        await begin(world, one, two)
        await until(lambda: "r-1" in dialled(two))
        monkeypatch.setattr(mesh_module, "KEPT", 0.0)
        one.kill()
        queries = len(two.requests)
        await until(lambda: ("QUERY", "connector", "") in two.requests[queries:])
        assert dialled(two), "it sees it still"
        two.sees()
        await until(lambda: not dialled(two))
        await world.ready("any")

    play(scenario)


def test_a_new_agent_keeps_connectors_to_routers_it_has_not_met(play: Play) -> None:
    async def scenario(world: World) -> None:
        two = router("r-2", 7002)
        two.tamper(CONNECTOR, "ragent-router/r-1", host="127.0.0.1", port="7001", role="inter-router")
        await begin(world, two)
        await world.ready("any")
        await until(lambda: two.requests.count(("QUERY", "listener", "")) > 2)
        assert dialled(two) == {"r-1": ("127.0.0.1", "7001", None)}

    play(scenario)


def test_routers_that_cannot_be_meshed_are_named(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.place({})
        world.configserv.addresses({})
        other = FakeRouter("router-1")
        await world.join(other)
        await until(lambda: other.names(LISTENER))
        await world.shows("router-0, router-1: no listener for other routers; anycast and multicast end there")

    play(scenario)
