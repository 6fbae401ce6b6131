"""The agent against routers and a configuration service that fail in every way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from enmasse.control import ConnectionLost
from services.ragent import agent as agent_module
from services.ragent import management, sweep
from services.ragent import router as router_module
from services.ragent.entities import ADDRESS, AUTO_LINK, CONNECTOR, LINK_ROUTE, LISTENER
from tests.kit.waiting import DEADLINE
from tests.ragent.conftest import Scenario, World
from tests.ragent.doubles import FakeRouter, until

Play = Callable[[Scenario], None]
ALL = {
    "any": {"type": "anycast"},
    "multi": {"type": "multicast"},
    "q": {"type": "queue", "flavor": "f"},
    "t": {"type": "topic", "flavor": "f"},
}
PLACED: dict[str, Any] = {
    "q": [{"broker": "b-0", "state": "active"}],
    "t": [{"broker": "b-1", "state": "active", "type": "topic"}],
}
SWEEPS_END = ("QUERY", "listener", "")
"""One request of each sweep, behind those for entities of addresses."""
REVISION = ("GET-REVISION", "", "")
"""The request before a sweep, and the only one of a sweep of a router that states the revision of the last one."""


async def begin(world: World) -> None:
    world.configserv.place(PLACED)
    world.configserv.addresses(ALL)
    await world.ready(*ALL)
    await until(lambda: world.router.names(LISTENER))


def names(*short: str) -> set[str]:
    return {f"ragent-{name}" for name in short}


def test_configures_every_type_and_lets_clients_in_last(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        router = world.router
        assert router.names(ADDRESS) == names("address/any", "address/multi", "address/q")
        assert router.names(AUTO_LINK) == names("in/b-0/q", "out/b-0/q")
        assert router.names(LINK_ROUTE) == names("route-in/b-1/t", "route-out/b-1/t")
        assert router.names(CONNECTOR) == names("broker/b-0", "broker/b-1")
        creates = [request for request in router.requests if request[0] == "CREATE"]
        assert creates[-1][1] == "listener"
        after = router.requests[: router.requests.index(creates[-1])]
        assert after[-1][0] in ("QUERY", "READ"), "what was made is read back before clients are let in"
        assert world.configserv.readiness["ragent"]["q"]["components"] == ["router-0"]

    play(scenario)


def test_without_router_or_placement_nothing_is_ready(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.place({})
        world.configserv.addresses(ALL)
        await world.ready("any", "multi")
        await world.reported("q", "no broker carries it yet")
        assert world.router.names(LINK_ROUTE) == set()
        world.router.kill()
        await world.reported("any", "no router is connected")
        assert world.configserv.ready("ragent") == set()

    play(scenario)


def test_routers_that_keep_no_clients_apart_lose_the_addresses_of_spaces(play: Play) -> None:
    async def scenario(world: World) -> None:
        tenant = {"!!one/q": ALL["q"], "!!one/any": ALL["any"]}
        world.configserv.place(PLACED | {"!!one/q": PLACED["q"]})
        world.configserv.addresses(ALL | tenant)
        await world.ready(*ALL, *tenant)
        assert world.router.names(AUTO_LINK) > names("in/b-0/q", "out/b-0/q")
        await world.stop_agent()
        world.spaces = False
        await world.start_agent()
        await world.join(world.router)
        await world.reported("!!one/q", "Dispatch would let clients without credentials")
        await world.reported("!!one/any", "add users")
        await world.ready(*ALL)
        await until(lambda: world.router.names(ADDRESS) == names("address/any", "address/multi", "address/q"))
        assert world.router.names(AUTO_LINK) == names("in/b-0/q", "out/b-0/q")

    play(scenario)


def test_a_router_that_restarts_is_configured_again_with_its_listeners_last(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        again = world.router.restarted()
        await until(lambda: not world.configserv.ready("ragent"))
        await world.join(again)
        await world.ready(*ALL)
        await until(lambda: again.names(LISTENER))
        assert again.made() == world.router.made()
        assert [r for r in again.requests if r[0] == "CREATE"][-1][1] == "listener"

    play(scenario)


def test_ready_means_on_every_router(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        second = FakeRouter("router-1")
        second.refuse["ragent-address/any"] = "no room"
        await world.join(second)
        await world.reported("any", "router router-1")
        await world.reported("any", "no room")
        assert world.configserv.report("ragent", "any")["failed"] is True
        await world.ready("q", "t", "multi")
        second.refuse.clear()
        await world.ready(*ALL)
        assert world.configserv.report("ragent", "any")["components"] == ["router-0", "router-1"]
        second.kill()
        await until(lambda: world.configserv.report("ragent", "any").get("components") == ["router-0"])

    play(scenario)


@pytest.mark.parametrize(
    ("type_", "name", "address"),
    [
        (AUTO_LINK, "ragent-in/b-0/q", "q"),
        (ADDRESS, "ragent-address/any", "any"),
        (LINK_ROUTE, "ragent-route-out/b-1/t", "t"),
    ],
)
def test_what_is_deleted_by_hand_is_seen_and_healed(play: Play, type_: str, name: str, address: str) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.configserv.history.clear()
        del world.router.tables[type_][name]
        await until(lambda: name in world.router.tables[type_])
        await until(lambda: world.configserv.was_healed(address))
        assert {h[1] for h in world.configserv.history} == {address}

    play(scenario)


@pytest.mark.parametrize("revisions", [False, True])
def test_what_was_as_it_should_be_for_a_while_is_still_looked_after(
    play: Play, monkeypatch: pytest.MonkeyPatch, revisions: bool
) -> None:
    """Pages that are what they were are not compared again, and nothing is read of a router whose revision is the same;
    anything else is."""

    monkeypatch.setattr(sweep, "SWEEP_EVERY", 0.02)

    async def settled(world: World) -> None:
        """Everything was read twice, and found as it should be the first time."""
        await world.ready(*ALL)
        if revisions:
            await until(lambda: world.router.requests[-3:] == [REVISION] * 3)
            return
        sweeps = world.router.requests.count(SWEEPS_END)
        await until(lambda: world.router.requests.count(SWEEPS_END) > sweeps + 2)

    async def scenario(world: World) -> None:
        world.router.states_revision = revisions
        await begin(world)
        router = world.router
        await settled(world)
        del router.tables[AUTO_LINK]["ragent-in/b-0/q"]
        await until(lambda: "ragent-in/b-0/q" in router.tables[AUTO_LINK])
        await settled(world)
        router.tamper(ADDRESS, "ragent-address/any", distribution="closest")
        await until(lambda: router.tables[ADDRESS]["ragent-address/any"]["distribution"] == "balanced")
        await settled(world)
        router.tamper(LINK_ROUTE, "ragent-route-in/b-1/gone", prefix="gone", direction="in", connection="z")
        await until(lambda: router.names(LINK_ROUTE) == names("route-in/b-1/t", "route-out/b-1/t"))
        await settled(world)
        router.brokers_down.add("b-0")
        await world.reported("q", "auto-link")
        router.brokers_down.clear()
        await world.ready(*ALL)

    play(scenario)


def test_listeners_and_connectors_deleted_by_hand_come_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.router.tables[LISTENER].clear()
        del world.router.tables[CONNECTOR]["ragent-broker/b-0"]
        await until(lambda: world.router.names(LISTENER) and len(world.router.names(CONNECTOR)) == 2)
        await world.ready(*ALL)

    play(scenario)


@pytest.mark.parametrize("extended", [True, False])
def test_clients_are_kept_from_management_where_the_router_can_do_that(play: Play, extended: bool) -> None:
    async def scenario(world: World) -> None:
        world.router.extended = extended
        await begin(world)
        await until(lambda: world.router.names(LISTENER))
        made = [*world.router.tables[LISTENER].values(), *world.router.tables[CONNECTOR].values()]
        assert [row.get("management") for row in made] == ([False] * 3 if extended else [None] * 3)
        if not extended:
            await world.shows("clients of router-0 reach its management: it cannot be configured otherwise")
            return
        world.router.tamper(LISTENER, "ragent-listener/amqp", management=True)
        await until(lambda: world.router.tables[LISTENER].get("ragent-listener/amqp", {}).get("management") is False)

    play(scenario)


@pytest.mark.parametrize("state", ["up", "down"])
def test_the_state_of_a_listener_is_read_back(play: Play, state: str) -> None:
    async def scenario(world: World) -> None:
        world.router.listeners = state
        world.configserv.place(PLACED)
        world.configserv.addresses(ALL)
        await world.ready(*ALL)
        await until(lambda: world.router.names(LISTENER))
        await world.shows("1 router" if state == "up" else "being configured: router-0")
        world.router.listeners = "up"
        await world.shows("1 router")

    play(scenario)


def test_a_listener_that_the_router_refuses_is_shown_of_the_router_and_is_no_address(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.router.refuse["ragent-listener/amqp"] = "Address already in use"
        world.configserv.place(PLACED)
        world.configserv.addresses(ALL)
        await world.ready(*ALL)
        expected = "router-0: cannot create listener ragent-listener/amqp: Address already in use"
        await world.shows(f"being configured: router-0; {expected}")
        world.router = world.router.restarted()
        await world.join(world.router)
        await world.shows("1 router")
        await world.ready(*ALL)
        assert set(world.configserv.readiness["ragent"]) == set(ALL)

    play(scenario)


def test_what_others_have_made_is_shown_and_left_alone(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        router = world.router
        router.tamper(CONNECTOR, "ragent", host="127.0.0.1", port="1", role="normal")  # its own configuration's
        router.tamper(CONNECTOR, "evil", host="192.0.2.7", port="5672", role="route-container")
        router.tamper(LISTENER, "open", host="", port="7000", role="normal")
        router.tamper(AUTO_LINK, "theirs", address="x", direction="in", connection="evil")
        expected = (
            "on router-0, not made here: connector evil (192.0.2.7:5672), listener open (*:7000), autoLink theirs (x)"
        )
        await world.shows(f"1 router; {expected}")
        for type_, name in ((CONNECTOR, "evil"), (LISTENER, "open"), (AUTO_LINK, "theirs")):
            del router.tables[type_][name]
        await world.shows("1 router")
        assert "DELETE" not in {r[0] for r in router.requests}

    play(scenario)


def test_a_listener_is_one_routers_own(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.stop_agent()
        world.listener_of = "router-0"
        await world.start_agent()
        second = FakeRouter("router-1")
        world.router = world.router.restarted()
        await world.join(world.router)
        await world.join(second)
        await begin(world)
        expected = "router-1 has no listener for clients: each of them is another router's"
        await world.shows(expected)
        assert second.names(ADDRESS) and not second.names(LISTENER)

    play(scenario)


def test_what_was_altered_by_hand_is_made_anew(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.router.tamper(ADDRESS, "ragent-address/any", distribution="closest")
        await until(lambda: world.router.tables[ADDRESS]["ragent-address/any"]["distribution"] == "balanced")
        await world.ready(*ALL)

    play(scenario)


def test_touches_only_what_bears_its_name_and_deletes_only_on_a_complete_view(play: Play) -> None:
    async def scenario(world: World) -> None:
        router = world.router
        router.tamper(ADDRESS, "override.temp", pattern="x", distribution="balanced", waypoint=False)
        router.tamper(LINK_ROUTE, "mine", prefix="y", direction="in", connection="z")
        router.tamper(AUTO_LINK, "ragent-in/b-9/old", address="old", direction="in", connection="ragent-broker/b-9")
        world.configserv.addresses(ALL)
        await world.ready("any", "multi")
        assert "ragent-in/b-9/old" in router.names(AUTO_LINK), "placements were not delivered yet"
        world.configserv.place(PLACED)
        await world.ready(*ALL)
        await until(lambda: "ragent-in/b-9/old" not in router.names(AUTO_LINK))
        assert "override.temp" in router.names(ADDRESS)
        assert "mine" in router.names(LINK_ROUTE)
        assert {r[2] for r in router.requests if r[0] == "DELETE"} == {"ragent-in/b-9/old"}

    play(scenario)


def test_an_agent_that_restarts_changes_nothing_that_is_right(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.stop_agent()
        world.router.requests.clear()
        await world.start_agent()
        await world.join(world.router)
        await world.ready(*ALL)
        await until(lambda: ("QUERY", "address", "") in world.router.requests)
        assert world.router.changes() == []

    play(scenario)


def test_what_nobody_knows_any_more_is_left_alone(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries and brokers that are invalid and whose last valid version was lost: they were not removed."""

    monkeypatch.setattr(sweep, "SWEEP_EVERY", 0.02)
    valid = {name: entry for name, entry in ALL.items() if name in ("multi", "t")}
    placed = {"q": [{**PLACED["q"][0], "type": "queue"}], "t": PLACED["t"]}

    async def swept(world: World) -> None:
        sweeps = world.router.requests.count(SWEEPS_END)
        await until(lambda: world.router.requests.count(SWEEPS_END) > sweeps + 2)

    async def scenario(world: World) -> None:
        await begin(world)
        world.configserv.place(placed)
        world.router.requests.clear()
        world.configserv.addresses(valid, invalid=["any", "q"])
        await swept(world)
        await world.stop_agent()  # and one that knows nothing of what there was
        await world.start_agent()
        await world.join(world.router)
        await world.ready(*valid)
        await swept(world)
        assert world.router.changes() == []
        # A router that comes back gets what is still known: where it lies, and as what.
        again = world.router.restarted()
        world.router = again
        await world.join(again)
        await until(lambda: again.names(AUTO_LINK) == names("in/b-0/q", "out/b-0/q"))
        assert again.names(ADDRESS) == names("address/multi", "address/q")
        world.configserv.publish(
            "placements",
            {"schema": 1, "brokers": {"b-1": {"host": "127.0.0.1", "port": 5}}, "addresses": {"t": placed["t"]},
             "invalid": ["b-0"]},
        )  # fmt: skip
        await swept(world)
        assert again.names(AUTO_LINK) == names("in/b-0/q", "out/b-0/q")
        assert again.names(CONNECTOR) == names("broker/b-0", "broker/b-1")
        world.configserv.place({"t": placed["t"]})
        world.configserv.addresses(valid)
        await until(lambda: again.names(CONNECTOR) == names("broker/b-1") and not again.names(AUTO_LINK))
        await until(lambda: again.names(ADDRESS) == names("address/multi"))

    play(scenario)


def test_configserv_away_and_back(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await world.configserv.stop()
        made = world.router.made()
        world.configserv.feeds.pop("placements")
        del ALL_BUT_ANY["any"]
        world.configserv.addresses(ALL_BUT_ANY)
        await world.configserv.start()
        await world.ready("q", "t", "multi")
        await until(lambda: world.router.made() == made - 1)
        assert world.router.names(AUTO_LINK) == names("in/b-0/q", "out/b-0/q"), "the last placements still hold"

    ALL_BUT_ANY = dict(ALL)
    play(scenario)


def test_a_lost_reply_leads_to_reading_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "REQUEST_TIMEOUT", 0.2)

    async def scenario(world: World) -> None:
        await begin(world)
        world.router.requests.clear()
        world.router.drop_replies = 3
        world.configserv.addresses({**ALL, "new": {"type": "anycast"}})
        await world.ready(*ALL, "new")
        assert world.router.drop_replies == 0
        assert [r for r in world.router.requests if r[0] == "CREATE"].count(
            ("CREATE", "address", "ragent-address/new")
        ) == 1

    play(scenario)


def test_lost_replies_leave_no_links_behind(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "REQUEST_TIMEOUT", 0.5)

    async def scenario(world: World) -> None:
        world.router.drop_replies = 4
        world.configserv.addresses(ALL)
        await until(lambda: world.router.drop_replies == 0)
        monkeypatch.setattr(management, "REQUEST_TIMEOUT", 10)
        await begin(world)
        assert world.router.connection is not None
        assert len(world.router.connection.links) == 2

    play(scenario)


def test_a_dead_broker_keeps_its_addresses_not_ready_and_clients_not_out(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_module, "SERVE_ANYWAY", 0.2)

    async def scenario(world: World) -> None:
        world.router.brokers_down.add("b-0")
        world.configserv.place(PLACED)
        world.configserv.addresses(ALL)
        await world.ready("t", "any", "multi")
        await world.reported("q", "is inactive: refused")
        await until(lambda: world.router.names(LISTENER))
        world.router.brokers_down.clear()
        await world.ready(*ALL)
        world.router.brokers_down.add("b-1")
        await world.reported("t", "is inactive")

    play(scenario)


def test_removed_and_retyped_addresses_stay_for_their_consumers_while_they_drain(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        router = world.router
        draining = {"broker": "b-0", "state": "draining", "type": "queue"}
        rest = {name: entry for name, entry in ALL.items() if name != "q"}
        world.configserv.place({**PLACED, "q": [draining]})
        world.configserv.addresses(rest)
        await until(lambda: router.names(AUTO_LINK) == names("in/b-0/q"))
        assert "ragent-address/q" in router.names(ADDRESS)
        await until(lambda: not world.configserv.report("ragent", "q"))
        world.configserv.addresses({**rest, "q": {"type": "topic", "flavor": "f"}})
        await world.reported("q", "is a queue on the routers until nothing of that is left")
        assert router.names(AUTO_LINK) == names("in/b-0/q")
        world.configserv.place({"t": PLACED["t"]})
        await until(lambda: not router.names(AUTO_LINK) and "ragent-address/q" not in router.names(ADDRESS))
        world.configserv.place({"t": PLACED["t"], "q": [{"broker": "b-0", "state": "active", "type": "topic"}]})
        await world.ready(*ALL)
        assert names("route-in/b-0/q", "route-out/b-0/q") < router.names(LINK_ROUTE)

    play(scenario)


def test_a_broker_that_moves_gets_a_new_connector(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        where = {"b-0": {"host": "127.0.0.1", "port": 99}, "b-1": {"host": "127.0.0.1", "port": 5}}
        world.router.requests.clear()
        world.configserv.place(PLACED, where)
        await until(lambda: world.router.tables[CONNECTOR].get("ragent-broker/b-0", {}).get("port") == "99")
        await world.ready(*ALL)
        assert world.router.changes() == [
            ("DELETE", "connector", "ragent-broker/b-0"),
            ("CREATE", "connector", "ragent-broker/b-0"),
        ]

    play(scenario)


def test_one_changed_address_costs_work_for_one_address(play: Play) -> None:
    async def scenario(world: World) -> None:
        many = {f"a{i}": {"type": "anycast"} for i in range(2000)}
        world.configserv.place({})
        world.configserv.addresses(many)
        await world.ready(*many)
        await until(lambda: world.router.names(LISTENER))
        world.router.requests.clear()
        world.configserv.history.clear()
        world.configserv.addresses({**many, "a7": {"type": "multicast"}})
        await until(lambda: ("ragent", "a7", True) in world.configserv.history)
        assert world.router.changes() == [
            ("DELETE", "address", "ragent-address/a7"),
            ("CREATE", "address", "ragent-address/a7"),
        ]
        assert {h[1] for h in world.configserv.history} == {"a7"}

    play(scenario)


def test_only_routers_are_managed(play: Play) -> None:
    async def scenario(world: World) -> None:
        stranger = FakeRouter("router-0", product="something else")
        with contextlib.suppress(ConnectionLost):  # before it was open, where both come at once
            await stranger.dial(world.port)
            assert stranger.connection is not None
            await asyncio.wait_for(stranger.connection.wait_closed(), DEADLINE)
        assert stranger.requests == []
        await begin(world)

    play(scenario)


def test_consumers_are_counted_where_they_are(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        from tests.ragent.doubles import ROUTER_ADDRESS

        for key, count in (("M0any", 2), ("M0q", 1), ("M1q", 3), ("M0t", 9), ("Ltemp.x", 1)):
            world.router.tables[ROUTER_ADDRESS][key] = {"name": key, "key": key, "subscriberCount": count}

        def consumers(*names: str) -> list[int | None]:
            return [world.configserv.report("ragent", name).get("consumers") for name in names]

        await until(lambda: consumers("any", "q") == [2, 3])
        assert consumers("multi", "t") == [0, None]

    play(scenario)


def test_two_routers_with_one_id_are_reported(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "DOUBLED_WITHIN", 3600.0)

    async def scenario(world: World) -> None:
        world.configserv.addresses({"a": {"type": "anycast"}})
        world.configserv.place({})
        await world.ready("a")
        other = FakeRouter(world.router.name)
        for router in (other, world.router):  # once each: that may be one that was started again
            before = other.connection if router is world.router else world.router.connection
            await world.join(router)
            assert before is not None
            await before.wait_closed()
        await world.ready("a")
        before = world.router.connection
        await world.join(other)
        await until(lambda: world.configserv.report("ragent", "a").get("failed"))
        text = "router router-0: several routers have this id and replace each other: give each an id of its own"
        assert world.configserv.message("ragent", "a") == text
        await world.shows(text)

    play(scenario)
