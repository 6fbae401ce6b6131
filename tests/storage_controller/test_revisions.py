"""What the controller says it has seen is what all it has said is judged by; ready is what the brokers really have."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.ragent.doubles import until
from tests.storage_controller.conftest import FLAVORS, REPORTER, Scenario, World
from tests.storage_controller.test_controller import queue, topic

Play = Callable[[Scenario], None]


async def seen(world: World, *feeds: str) -> None:
    for feed in feeds:
        await until(lambda: world.configserv.seen(REPORTER, feed))


async def settled(world: World, *names: str) -> None:
    """Everything published has been seen, nothing is pending, and these are ready."""
    await seen(world, *(feed for feed in ("addresses", "flavors") if feed in world.configserv.revisions))
    await until(lambda: not world.configserv.pending(REPORTER) and world.configserv.ready(REPORTER) >= set(names))


async def settings(world: World, broker: str, address: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await world.manage(broker, "getAddressSettingsAsJSON", address))
    return found


def judged(world: World, feed: str, name: str) -> dict[str, Any]:
    found = world.configserv.judged(REPORTER, feed, name)
    assert found is not None
    return found


@contextmanager
def stopped(world: World, broker: str) -> Iterator[None]:
    """The broker answers nobody for a while."""
    process = world.supervisor.processes[broker]
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_a_changed_property_is_not_ready_before_the_broker_has_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue(), "r": queue(), "t": topic()})
        await settled(world, "q", "r", "t")
        changed = {"q": queue(messageTtl={"maximum": 5000}), "r": queue()}
        with stopped(world, "disk-0"):
            world.configserv.reports.clear()
            world.configserv.addresses({**changed, "t": topic()})
            await seen(world, "addresses")
            assert judged(world, "addresses", "q")["ready"] is False
            assert judged(world, "addresses", "q")["message"] == "its settings on broker disk-0 are being corrected"
            assert world.configserv.ready(REPORTER) == {"r", "t"}
        await settled(world, "q")
        assert (await settings(world, "disk-0", "q"))["maxExpiryDelay"] == 5000
        # Of no interest to the broker: seen, and that is all.
        world.configserv.reports.clear()
        world.configserv.addresses({**changed, "t": {**topic(), "mqttDefault": True}})
        await seen(world, "addresses")
        assert world.configserv.ready(REPORTER) == {"q", "r", "t"}
        assert not any(body["addresses"] for _, body in world.configserv.reports)

    play(scenario)


def test_what_changes_again_while_it_is_being_changed_is_not_forgotten(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue()})
        await settled(world, "q")
        for number in range(1, 6):
            with stopped(world, "disk-0"):
                for ttl in (10 * number, 10 * number + 1):
                    world.configserv.reports.clear()
                    world.configserv.addresses({"q": queue(messageTtl={"maximum": ttl})})
                    await seen(world, "addresses")
            await settled(world, "q")
            assert (await settings(world, "disk-0", "q"))["maxExpiryDelay"] == 10 * number + 1

    play(scenario)


def test_a_change_that_is_undone_while_the_broker_is_given_it_is_not_ready(play: Play) -> None:
    async def scenario(world: World) -> None:
        former = {"q": queue(), "t": topic()}
        world.configserv.addresses(former)
        await settled(world, "q", "t")
        for _ in range(2):
            with stopped(world, "disk-0"):
                world.configserv.addresses({**former, "q": queue(messageTtl={"maximum": 10})})
                await seen(world, "addresses")
                await until(lambda: world.configserv.ready(REPORTER) == {"t"})
                world.configserv.reports.clear()
                world.configserv.addresses(former)
                await seen(world, "addresses")
                assert world.configserv.ready(REPORTER) == {"t"}
            await settled(world, "q", "t")
            assert (await settings(world, "disk-0", "q"))["maxExpiryDelay"] == -1

    play(scenario)


def test_many_changed_at_once_become_ready_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        names = [f"q{number}" for number in range(200)]
        world.configserv.addresses({name: queue() for name in names})
        await settled(world, *names)
        world.configserv.addresses({name: queue(messageTtl={"maximum": 7}) for name in names})
        await settled(world, *names)
        for name in (names[0], names[-1]):
            assert (await settings(world, "disk-0", name))["maxExpiryDelay"] == 7

    play(scenario)


def test_what_was_changed_while_the_controller_was_away_is_not_ready_before_it_is_put_right(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue(), "t": topic()})
        await settled(world, "q", "t")
        await world.stop_controller()
        await world.manage("disk-0", "addAddressSettings", "q", json.dumps({"maxExpiryDelay": 99}))
        world.configserv.addresses({"q": queue(messageTtl={"maximum": 5}), "t": topic()})
        world.configserv.reports.clear()
        world.start_controller()
        await world.ready("q")
        assert (await settings(world, "disk-0", "q"))["maxExpiryDelay"] == 5
        # And a broker that was away may be another one.
        await world.supervisor.kill("disk-0")
        await until(lambda: "q" not in world.configserv.ready(REPORTER))
        await settled(world, "q", "t")
        assert (await settings(world, "disk-0", "q"))["maxExpiryDelay"] == 5

    play(scenario)


def test_new_settings_of_a_broker_are_pending_until_it_runs_with_them(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue()})
        await settled(world, "q")
        before = world.supervisor.processes["disk-0"].pid
        changed = {**FLAVORS["disk"], "templateParameters": {"STORAGE_CAPACITY": 10**9, "BROKERS": 2}}
        async with world.supervisor.asleep():
            world.configserv.reports.clear()
            world.configserv.flavors({**FLAVORS, "disk": changed})
            await seen(world, "flavors")
            assert judged(world, "flavors", "q")["ready"] is False
            assert "is being restarted with the settings of flavor disk" in judged(world, "flavors", "q")["message"]
            assert world.configserv.pending(REPORTER) == {"flavors": "brokers are being started: disk-0, disk-1"}
            # Back again before anybody has noticed: then nobody restarts it, and it goes on.
            world.configserv.flavors(FLAVORS)
            await settled(world, "q")
            world.configserv.flavors({**FLAVORS, "disk": changed})
            await until(lambda: "q" not in world.configserv.ready(REPORTER))
        await settled(world, "q")
        assert world.supervisor.processes["disk-0"].pid != before
        assert {name for name in world.supervisor.processes if name.startswith("disk-")} == {"disk-0", "disk-1"}
        for broker in ("disk-0", "disk-1"):
            assert (await settings(world, broker, "x"))["pageLimitBytes"] == 10**9

    play(scenario)


def test_settings_that_would_cost_messages_are_pending(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"m": queue("memory")})
        await settled(world, "m")
        await world.send("memory-0", "m", 1)
        await world.holds("m", 1)
        world.configserv.flavors(
            {**FLAVORS, "memory": {**FLAVORS["memory"], "templateParameters": {"MEMORY": 10_000_000}}}
        )
        await seen(world, "flavors")
        assert world.configserv.pending(REPORTER) == {
            "flavors": "brokers get new settings when they hold no messages: memory-0"
        }
        assert world.configserv.ready(REPORTER) == {"m"}
        await world.take("memory-0", "m", 1)
        await settled(world, "m")

    play(scenario)


def test_ready_is_what_routers_can_know_of(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue(), "r": queue()})
        await settled(world, "q", "r")
        world.configserv.hold = lambda body: True
        world.configserv.addresses({"q": queue("memory"), "r": queue()})
        await world.says("q", "given flavor memory instead of disk")

        async def is_made() -> bool:
            return "q" in await world.manage("memory-0", "getQueueNames")

        await until(is_made, "the queue")  # it works, but the routers do not know of it yet
        assert world.configserv.ready(REPORTER) == {"r"}
        world.configserv.release()
        await world.ready("q", "r")
        assert ("memory-0", "active", "queue") in world.placements()["q"]
        # Nor is it gone before they can know that.
        world.configserv.hold = lambda body: "q" not in body["addresses"]
        world.configserv.addresses({"r": queue()})
        await until(lambda: world.configserv.held)
        await world.says("q", "the routers have not received its placement yet")
        world.configserv.release()
        await world.gone("q")

    play(scenario)


def test_where_brokers_json_says_it_placements_are_not_waited_for(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.refuse_placements = True
        world.configserv.addresses({"q": queue()})
        await settled(world, "q")

    play(scenario)
