"""What the agent reports as seen is what all it has reported is judged by."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from services.ragent import sweep
from services.ragent.entities import ADDRESS, AUTO_LINK, CONNECTOR, LINK_ROUTE
from tests.ragent.conftest import Scenario, World
from tests.ragent.doubles import until
from tests.ragent.test_agent import ALL, PLACED, SWEEPS_END, begin

Play = Callable[[Scenario], None]
AGENT = "ragent"
WHERE = {"b-0": {"host": "127.0.0.1", "port": 5}, "b-1": {"host": "127.0.0.1", "port": 5}}


async def seen(world: World, *feeds: str) -> None:
    for feed in feeds:
        await until(lambda: world.configserv.seen(AGENT, feed))


def judged(world: World, feed: str, name: str) -> dict[str, Any]:
    found = world.configserv.judged(AGENT, feed, name)
    assert found is not None
    return found


def test_every_snapshot_is_reported_as_seen_also_one_that_changes_nothing_here(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.configserv.flavors({})
        await seen(world, "addresses", "placements", "flavors")
        await until(lambda: world.configserv.pending(AGENT) == {})
        world.configserv.reports.clear()
        world.configserv.addresses({**ALL, "q": {**ALL["q"], "messageTtl": {"maximum": 5}}})
        await seen(world, "addresses")
        ((_, report),) = world.configserv.reports
        assert (report["addresses"], report["removed"], report["pending"]) == ({}, [], {})

    play(scenario)


def test_what_is_wanted_differently_is_not_ready_when_it_is_seen(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.configserv.reports.clear()
        world.configserv.addresses({**ALL, "any": {"type": "multicast"}, "new": {"type": "anycast"}})
        await seen(world, "addresses")
        await world.ready(*ALL, "new")
        reports = [body["addresses"] for _, body in world.configserv.reports]
        for name in ("any", "new"):
            ready = [report[name]["ready"] for report in reports if name in report]
            assert ready == sorted(ready) and ready.count(True) == 1, "first not, for whatever reasons; then it is"
        assert world.router.tables[ADDRESS]["ragent-address/any"]["distribution"] == "multicast"
        world.configserv.reports.clear()
        world.router.refuse["ragent-in/b-1/q"] = "not now"
        world.configserv.place({**PLACED, "q": [{"broker": "b-1", "state": "active"}]})
        await seen(world, "placements")
        assert judged(world, "placements", "q")["ready"] is False
        world.router.refuse.clear()
        await world.ready(*ALL)

    play(scenario)


def test_of_a_new_connection_nothing_is_seen_before_it_has_come(play: Play) -> None:
    """Revisions are those of one life of configserv."""

    async def scenario(world: World) -> None:
        await begin(world)
        await seen(world, "addresses", "placements")
        await world.configserv.stop()
        world.configserv.reports.clear()
        del world.configserv.feeds["placements"]
        await world.configserv.start()
        await world.ready(*ALL)
        assert world.configserv.reports[0][1]["seen"]["addresses"] == world.configserv.revisions["addresses"]
        assert {body["seen"]["placements"] for _, body in world.configserv.reports} == {0}

    play(scenario)


@pytest.mark.parametrize("change", [{"port": 6}, {"run": "2"}])
def test_links_to_a_broker_that_is_another_one_are_read_again(
    play: Play, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """The agent looks at everything now and then only: what it knew last was of the broker before."""
    monkeypatch.setattr(sweep, "SWEEP_EVERY", 3600)

    async def scenario(world: World) -> None:
        await begin(world)
        await until(lambda: SWEEPS_END in world.router.requests)
        world.configserv.reports.clear()
        world.router.brokers_down |= {"b-0", "b-1"}
        world.configserv.place(PLACED, {name: {**where, **change} for name, where in WHERE.items()})
        await seen(world, "placements")
        assert (judged(world, "placements", "q")["ready"], judged(world, "placements", "t")["ready"]) == (False, False)
        await world.reported("q", "the auto-link ragent-in/b-0/q is inactive")
        await world.reported("t", "the link route ragent-route-in/b-1/t is inactive")
        assert world.configserv.ready(AGENT) == {"any", "multi"}
        world.router.brokers_down.clear()
        await world.ready(*ALL)
        assert {row["port"] for row in world.router.tables[CONNECTOR].values()} == {str(change.get("port", 5))}

    play(scenario)


def test_what_was_removed_is_named_until_it_is_gone(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        gone: list[bool] = []
        reported = world.configserv.readiness[AGENT]
        world.configserv.reports.clear()
        rest = {name: entry for name, entry in ALL.items() if name in ("multi",)}
        world.configserv.place({})
        world.configserv.addresses(rest)

        def is_gone() -> bool:
            left = world.router.names(ADDRESS) | world.router.names(AUTO_LINK) | world.router.names(LINK_ROUTE)
            gone.append(left == {"ragent-address/multi"})
            return reported.keys() == rest.keys()

        await until(is_gone)
        assert gone[-1], "no longer named, and still there"
        assert world.configserv.seen(AGENT, "addresses")

    play(scenario)


def test_a_refused_deletion_is_reported(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.router.refuse_deletions = "not now"
        world.configserv.addresses({name: entry for name, entry in ALL.items() if name != "any"})
        await world.reported("any", "cannot delete address ragent-address/any: not now")
        await seen(world, "addresses")
        world.router.refuse_deletions = ""
        await until(lambda: "any" not in world.configserv.readiness[AGENT])
        assert "ragent-address/any" not in world.router.names(ADDRESS)

    play(scenario)


def test_what_is_left_of_former_times_is_pending(play: Play) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        await until(lambda: world.configserv.pending(AGENT) == {})
        await world.stop_agent()
        world.configserv.addresses({"multi": ALL["multi"]})
        world.configserv.reports.clear()
        await world.start_agent()
        await seen(world, "addresses")
        assert world.configserv.pending(AGENT)["addresses"] == "no router is connected"
        await world.join(world.router)
        before = len(world.configserv.reports)
        await until(lambda: world.configserv.pending(AGENT) == {})
        assert world.router.names(ADDRESS) == {"ragent-address/multi"}
        after = [body["pending"] for _, body in world.configserv.reports[before:]]
        between = list(itertools.takewhile(bool, after))
        assert all("router-0: being configured" in pending["addresses"] for pending in between)

    play(scenario)
