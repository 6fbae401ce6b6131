"""The nodes of the MQTT services and the queues of sessions, on every router."""

from __future__ import annotations

from collections.abc import Callable

from enmasse.model.names import session_prefix
from services.ragent import entities
from services.ragent.entities import ADDRESS, LINK_ROUTE, LISTENER, ROUTER
from tests.ragent.conftest import Scenario, World
from tests.ragent.doubles import until
from tests.ragent.test_agent import ALL, PLACED, begin

Play = Callable[[Scenario], None]
NODES = {(entity.type, entity.name) for entity in entities.SERVICE_NODES}


def routes(world: World) -> dict[str, tuple[str, str | None]]:
    """Prefix of each link route of sessions and services → a direction, and where to."""
    return {
        row["prefix"]: (row["direction"], row.get("connection") or row.get("containerId"))
        for row in world.router.tables[LINK_ROUTE].values()
        if row["prefix"].startswith("$")
    }


def nodes(world: World) -> set[tuple[str, str]]:
    return {(type_, name) for type_ in (ADDRESS, LINK_ROUTE) for name in world.router.names(type_)} & NODES


async def begin_with_mqtt(world: World) -> None:
    await world.stop_agent()
    world.router = world.router.restarted()
    world.mqtt = True
    await world.start_agent()
    await world.join(world.router)
    await begin(world)


def test_the_names_of_nodes_are_no_addresses() -> None:
    for entity in (*entities.SERVICE_NODES, entities.session_route("a.b/c")):
        assert entities.subject_of((entity.type, entity.name)) == ROUTER
    owner = entities.owner(entities.session_route("b1").name)
    assert owner is not None and owner.broker == "b1"


def test_no_brokers_sessions_are_below_those_of_another() -> None:
    assert session_prefix("b") == "$sub/b"
    assert session_prefix("b.c") == "$sub/b%2Ec"  # routers read `.` as `/`


def test_they_are_there_before_clients_and_nobody_waits_for_the_services(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin_with_mqtt(world)
        assert nodes(world) == NODES
        assert routes(world) == {
            "$subctrl": ("in", "subscription-service"),
            "$lwt": ("in", "lwt-service"),
            "$mqtt/wills": ("out", "lwt-service"),
            "$mqtt/sessions": ("out", "subscription-service"),
            "$sub/b-0": ("out", "ragent-broker/b-0"),
            "$sub/b-1": ("out", "ragent-broker/b-1"),
        }
        creates = [request[1] for request in world.router.requests if request[0] == "CREATE"]
        assert creates[-1] == "listener"

    play(scenario)


def test_they_follow_the_brokers_and_come_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin_with_mqtt(world)
        world.configserv.place({**PLACED, "q": [{"broker": "b-2", "state": "active"}]})
        await until(lambda: {"$sub/b-1", "$sub/b-2"} <= routes(world).keys() and "$sub/b-0" not in routes(world))
        for name in world.router.names(LINK_ROUTE):
            if "$" in name:
                del world.router.tables[LINK_ROUTE][name]
        await until(lambda: len(routes(world)) == 6)
        await until(lambda: nodes(world) == NODES)
        await world.ready(*ALL)

    play(scenario)


def test_a_restarted_agent_changes_nothing_and_one_without_mqtt_removes_them(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin_with_mqtt(world)
        for mqtt in (True, False):
            await world.stop_agent()
            world.mqtt = mqtt
            world.router.requests.clear()
            await world.start_agent()
            await world.join(world.router)
            await world.ready(*ALL)
            await until(lambda: ("QUERY", "address", "") in world.router.requests)
            if mqtt:
                assert world.router.changes() == []
        await until(lambda: not nodes(world) and not routes(world))
        assert {entity.name for entity in entities.GATEWAY_NODES} <= world.router.tables[ADDRESS].keys()
        assert world.router.names(LISTENER)

    play(scenario)
