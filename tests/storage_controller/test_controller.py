"""The controller with real brokers: made, filled, healed, drained, given up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from enmasse.control.listings import Listings
from services.storage_controller import management
from services.storage_controller.conversation import broker_conversation, topic_levels
from services.storage_controller.policies import MARK, MARK_KEY
from tests.kit.waiting import DEADLINE
from tests.ragent.doubles import until
from tests.storage_controller.conftest import FLAVORS, REPORTER, Scenario, World

Play = Callable[[Scenario], None]


def queue(flavor: str = "disk", **more: Any) -> dict[str, Any]:
    return {"type": "queue", "flavor": flavor, **more}


def topic(flavor: str = "topics") -> dict[str, Any]:
    return {"type": "topic", "flavor": flavor}


def test_queues_and_topics_come_into_being(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue(), "t": topic(), "direct": {"type": "anycast"}})
        await world.ready("q", "t")
        assert world.configserv.readiness[REPORTER].keys() == {"q", "t"}
        await until(lambda: world.placements().keys() == {"q", "t"})
        assert world.placements() == {
            "q": [("disk-0", "active", "queue")],
            "t": [("topics-0", "active", "topic")],
        }
        where = world.configserv.placements["brokers"]
        run = str(world.supervisor.processes["disk-0"].pid)
        assert where["disk-0"] == {"host": "127.0.0.1", "port": world.supervisor.port("disk-0"), "run": run}
        await world.send("disk-0", "q", 3)
        await world.holds("q", 3)
        assert await world.take("disk-0", "q", 3) == ["m0", "m1", "m2"]
        assert sorted(path.stem for path in world.supervisor.desired.iterdir()) == ["disk-0", "topics-0"]

    play(scenario)


def test_a_broker_that_could_not_be_asked_for_is_asked_for_again(play: Play) -> None:
    async def scenario(world: World) -> None:
        blocked = world.supervisor.desired / "disk-0.new"
        blocked.mkdir()
        world.configserv.addresses({"q": queue(), "t": topic()})
        await world.ready("t")
        await until(lambda: REPORTER in world.configserv.readiness)
        assert "q" not in world.configserv.ready(REPORTER)
        blocked.rmdir()
        await world.ready("q")

    play(scenario)


def test_a_flavor_with_three_brokers_spreads_its_addresses_over_three_processes(play: Play) -> None:
    async def scenario(world: World) -> None:
        names = [f"q{i}" for i in range(9)]
        world.configserv.addresses({name: queue("pool") for name in names})
        await world.ready(*names)
        await until(lambda: len(world.placements()) == 9)
        count = [world.where(name) for name in names]
        assert {name: count.count(name) for name in count} == {"pool-0": 3, "pool-1": 3, "pool-2": 3}
        assert len({process.pid for process in world.supervisor.processes.values()}) == 3
        victim = count[0]
        world.supervisor.paused.add(victim)
        await world.supervisor.kill(victim)
        lost = {name for name, broker in zip(names, count, strict=True) if broker == victim}
        await until(lambda: world.configserv.ready(REPORTER) == set(names) - lost)
        await world.says(min(lost), f"broker {victim} cannot be reached")
        assert {name: world.where(name) for name in lost} == dict.fromkeys(lost, victim), "they stay where they were"
        world.supervisor.paused.clear()
        await world.ready(*names)
        assert [world.where(name) for name in names] == count

    play(scenario)


def test_a_dedicated_flavor_gives_every_address_a_broker_of_its_own(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"a": queue("own"), "b": queue("own")})
        await world.ready("a", "b")
        await until(lambda: len(world.placements()) == 2)
        assert world.where("a") != world.where("b")
        world.configserv.addresses({"a": queue("own")})
        await world.gone("b")
        await until(lambda: len(world.supervisor.processes) == 1)
        await world.ready("a")

    play(scenario)


def test_what_is_deleted_by_hand_is_seen_and_healed(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue(), "t": topic()})
        await world.ready("q", "t")
        world.configserv.history.clear()
        await world.manage("disk-0", "destroyQueue", "q", True, True)
        await until(lambda: world.configserv.was_healed("q"))
        await world.manage("topics-0", "deleteAddress", "t", True)
        await until(lambda: world.configserv.was_healed("t"))
        await world.send("disk-0", "q", 1)

    play(scenario)


def test_a_broker_is_listed_again_only_after_a_change(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Counting(management.BrokerManagement):
        """Notes what is asked for: a revision, or a listing."""

        async def revision(self) -> str:
            found = await super().revision()
            asked.append("revision")
            return found

        async def listings(self) -> Listings:
            asked.append("listings")
            return await super().listings()

    monkeypatch.setattr(broker_conversation, "BrokerManagement", Counting)
    monkeypatch.setattr(broker_conversation, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(broker_conversation, "LOOK_LAST", 0.02)

    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue()})
        await world.ready("q")
        for count in range(1, 3):
            await until(lambda: asked[-10:] == ["revision"] * 10)
            await world.send("disk-0", "q", 1)
            await world.holds("q", count)
        await until(lambda: asked[-10:] == ["revision"] * 10)
        await world.manage("disk-0", "destroyQueue", "q", True, True)
        await until(lambda: world.configserv.was_healed("q"))

    play(scenario)


def test_a_controller_that_restarts_finds_everything_and_changes_nothing(play: Play) -> None:
    async def scenario(world: World) -> None:
        addresses = {"q": queue(), "m": queue("memory", messageTtl={"maximum": 60000}), "t": topic()}
        world.configserv.addresses(addresses)
        await world.ready(*addresses)
        await until(lambda: world.placements().keys() == addresses.keys())
        await world.send("memory-0", "m", 2)
        before = world.placements()
        await world.stop_controller()
        world.start_controller()
        await world.ready(*addresses)
        await world.holds("m", 2)
        assert world.placements() == before
        # And one that was removed meanwhile is drained, not forgotten.
        await world.stop_controller()
        world.configserv.addresses({"q": queue(), "t": topic()})
        world.start_controller()
        await world.says("m", "was removed: still holds 2 messages on broker memory-0; consume them, or discard them: ")
        assert await world.take("memory-0", "m", 2) == ["m0", "m1"]
        await world.gone("m")

    play(scenario)


def test_an_address_that_is_removed_goes_when_it_is_empty_and_not_before(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue(), "r": queue()})
        await world.ready("q", "r")
        await world.send("disk-0", "q", 2)
        world.configserv.addresses({"r": queue()})
        await world.says("q", "still holds 2 messages on broker ")
        await until(lambda: world.placements().get("q") == [("disk-0", "draining", "queue")])
        assert await world.take("disk-0", "q", 1) == ["m0"]
        await world.says("q", "still holds 1 message on broker ")
        assert await world.take("disk-0", "q", 1) == ["m1"]
        await world.gone("q")
        assert "q" not in await world.manage("disk-0", "getQueueNames")
        assert world.configserv.ready(REPORTER) == {"r"}

    play(scenario)


def test_an_empty_queue_stays_while_a_producer_can_reach_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue(), "r": queue()})
        await world.ready("q", "r")
        async with world.at("disk-0") as connection:
            sender = connection.sender("q")
            await sender.opened()
            world.configserv.addresses({"r": queue()})
            await world.says("q", "no producer can reach it")
            assert (await sender.deliver(b"\x00Sw\xa1\x01x")).accepted
            await world.says("q", "still holds 1 message on")
        assert len(await world.take("disk-0", "q", 1)) == 1
        await world.gone("q")

    play(scenario)


def test_force_discards_what_is_held(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue(), "r": queue()})
        await world.ready("q", "r")
        await world.send("disk-0", "q", 2)
        world.configserv.addresses({"r": queue()})
        await world.says("q", "still holds 2 messages on")
        world.configserv.addresses({"r": queue()}, forced=["q"])
        await world.gone("q")
        assert "q" not in await world.manage("disk-0", "getQueueNames")

    play(scenario)


def test_a_retyped_address_changes_when_it_is_empty(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue()})
        await world.ready("q")
        await world.send("disk-0", "q", 1)
        world.configserv.addresses({"q": topic()})
        await world.says("q", "retyped from queue to topic: still holds 1 message on broker ")
        assert await world.take("disk-0", "q", 1) == ["m0"]
        await until(lambda: world.placements().get("q") == [("topics-0", "active", "topic")])
        await world.ready("q")
        # The way back with a durable subscription that holds something; by force.
        await world.subscribe("topics-0", "q", "sub")
        await world.send("topics-0", "q", 1)
        world.configserv.addresses({"q": queue()})
        await world.says("q", "retyped from topic to queue: still holds 1 message on broker ")
        await until(lambda: world.placements().get("q") == [("topics-0", "draining", "topic")])
        world.configserv.addresses({"q": queue()}, forced=["q"])
        await until(lambda: world.placements().get("q") == [("disk-0", "active", "queue")])
        await world.ready("q")

    play(scenario)


def test_a_queue_moves_to_another_flavor_without_losing_anything(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue("disk"), "stays": queue("disk")})
        await world.ready("q", "stays")
        await world.send("disk-0", "q", 2)
        world.configserv.addresses({"q": queue("memory"), "stays": queue("disk")})
        await until(
            lambda: world.placements().get("q") == [("memory-0", "active", "queue"), ("disk-0", "draining", "queue")]
        )
        await world.says(
            "q", "given flavor memory instead of disk: still holds 2 messages on broker disk-0, which consumers get too"
        )
        await world.ready("q")
        assert await world.take("disk-0", "q", 2) == ["m0", "m1"]
        await until(lambda: world.placements().get("q") == [("memory-0", "active", "queue")])
        await until(lambda: world.configserv.message(REPORTER, "q") == "")

    play(scenario)


@pytest.mark.parametrize("engine", ["embedded", pytest.param("artemis", marks=pytest.mark.slow)])
def test_a_topic_with_durable_subscriptions_goes_only_when_they_are_empty(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"t": topic(), "u": topic()})
        await world.ready("t", "u")
        await world.subscribe("topics-0", "t", "whole")
        await world.subscribe("topics-0", "t/below", "part")
        await world.send("topics-0", "t/below", 1)
        await world.holds("t", 1, 2)
        world.configserv.addresses({"u": topic()})
        await world.says("t", "was removed: still holds ")
        await until(lambda: world.placements().get("t") == [("topics-0", "draining", "topic")])
        for name in await world.manage("topics-0", "getQueueNames"):
            if name.startswith("client."):
                await world.manage("topics-0", "removeMessages", None, resource=f"queue.{name}")
        await world.gone("t")
        assert "t" not in await world.manage("topics-0", "getAddressNames")
        names = await world.manage("topics-0", "getAddressNames")
        assert [name for name in names if name[:1] in "tu"] == ["u"], "what lay below the topic is gone, too"
        settings = json.loads(await world.manage("topics-0", "getAddressSettingsAsJSON", "t"))
        assert settings.get(MARK_KEY) != MARK

    play(scenario)


@pytest.mark.slow  # an Artemis of its own
@pytest.mark.parametrize("engine", ["artemis"])
def test_a_level_below_a_topic_goes_when_nobody_uses_it(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_levels, "UNUSED", 1.0)  # longer than it takes to attach to a level and to send to it

    async def scenario(world: World) -> None:
        world.configserv.addresses({"t": topic()})
        await world.ready("t")
        await world.subscribe("topics-0", "t/subscribed", "one")
        await world.subscribe("topics-0", "t/some/#", "many")
        await world.send("topics-0", "t/some/held", 1)
        await world.send("topics-0", "t/unused", 1)

        async def names_without_it() -> list[str] | None:
            names: list[str] = await world.manage("topics-0", "getAddressNames")
            return None if "t/unused" in names else names

        names = await until(names_without_it, "the unused level to go")
        assert {"t", "t/subscribed", "t/some/held"} <= set(names), "somebody has something of these"
        await world.send("topics-0", "t/unused", 1)

    play(scenario)


def test_what_others_made_producers_led_away(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"t": topic(), "q": queue()})
        await world.ready("t", "q")
        await world.manage("topics-0", "createAddress", "theirs", "MULTICAST")
        await world.manage("disk-0", "createQueue", "bobs", "ANYCAST", "bobs", None, True, -1, False, True)
        await world.stop_controller()
        world.start_controller()
        await world.ready("t", "q")
        world.configserv.addresses({"t": topic(), "q": queue(), "more": topic()})
        await world.ready("t", "q", "more")
        assert world.configserv.readiness[REPORTER].keys() == {"t", "q", "more"}
        assert "theirs" in await world.manage("topics-0", "getAddressNames")
        assert "bobs" in await world.manage("disk-0", "getQueueNames")

    play(scenario)


def test_properties_become_settings_and_go_with_them(play: Play) -> None:
    async def scenario(world: World) -> None:
        wanted = queue(
            messageTtl={"maximum": 5000},
            messageRedelivery={"maximumDeliveryAttempts": 3, "redeliveryDelay": 7},
            deadletter="dead",
            maxSize=100000,
            duplicates="message-id",
        )

        async def shown() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(await world.manage("disk-0", "getAddressSettingsAsJSON", "q"))
            return found

        async def shows(**values: Any) -> None:
            async def are_shown() -> bool:
                return values.items() <= (await shown()).items()

            await until(are_shown, f"settings {values}")

        world.configserv.addresses({"q": wanted, "dead": queue()})
        await world.ready("q", "dead")
        found = await shown()
        assert found["maxExpiryDelay"] == 5000
        assert found["maxDeliveryAttempts"] == 3
        assert found["redeliveryDelay"] == 7
        assert found["maxSizeBytes"] == 100000
        assert found["duplicateDetectionByMessageId"] is True
        assert "dead" in (found.get("DLA"), found.get("deadLetterAddress"))
        world.configserv.addresses({"q": {**wanted, "messageTtl": {"maximum": 6000}}, "dead": queue()})
        await asyncio.wait_for(shows(maxExpiryDelay=6000, redeliveryDelay=7), DEADLINE)
        # Some removed while the controller was away, then the rest.
        await world.stop_controller()
        world.configserv.addresses({"q": queue(messageTtl={"maximum": 6000}), "dead": queue()})
        world.start_controller()
        await asyncio.wait_for(shows(maxExpiryDelay=6000, redeliveryDelay=0), DEADLINE)
        await world.stop_controller()
        world.configserv.addresses({"q": queue(), "dead": queue()})
        world.start_controller()
        await asyncio.wait_for(shows(maxExpiryDelay=-1, redeliveryDelay=0), DEADLINE)

    play(scenario)


def test_a_dead_letter_queue_is_where_it_is_needed(play: Play) -> None:
    async def scenario(world: World) -> None:
        addresses = {f"q{i}": queue("pool", deadletter="dead") for i in range(3)}
        world.configserv.addresses({**addresses, "dead": queue("pool")})
        await world.ready(*addresses, "dead")
        await until(lambda: len(world.placements()) == 4)
        homes = {world.where(name) for name in addresses}
        assert len(homes) > 1
        await until(lambda: {entry[0] for entry in world.placements()["dead"]} >= homes)

    play(scenario)


def test_the_dead_letter_queue_of_a_topic_is_on_its_broker_as_well(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"t": {**topic(), "deadletter": "dead"}, "dead": queue()})
        await world.ready("t", "dead")
        await until(lambda: {entry[0] for entry in world.placements()["dead"]} == {"disk-0", "topics-0"})
        async with world.at("topics-0") as connection:
            subscription = connection.receiver("t")
            await subscription.opened()
            await world.send("topics-0", "t", 1)
            delivery = await asyncio.wait_for(anext(subscription), DEADLINE)
            delivery.reject("amqp:decode-error", "not for me")
            assert await world.take("topics-0", "dead", 1) == ["m0"]
        world.configserv.addresses({"t": topic(), "dead": queue()})
        await until(lambda: {entry[0] for entry in world.placements()["dead"]} == {"disk-0"})
        await world.ready("t", "dead")

    play(scenario)


def test_brokers_that_nobody_needs_go_when_they_are_empty(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue("disk"), "m": queue("memory")})
        await world.ready("q", "m")
        await world.send("memory-0", "m", 1)
        world.configserv.addresses({"q": queue("disk")})
        await world.says("m", "1 message on broker")
        assert "memory-0" in world.supervisor.processes
        await world.take("memory-0", "m", 1)
        await until(lambda: list(world.supervisor.processes) == ["disk-0"])
        await until(lambda: world.configserv.placements["brokers"].keys() == {"disk-0"})
        await world.ready("q")

    play(scenario)


def test_a_broker_with_messages_for_sessions_stays(play: Play) -> None:
    """Those that the subscription service made are nobody else's business; but what waits in them is not to be lost."""

    async def scenario(world: World) -> None:
        world.configserv.addresses({"t": topic(), "q": queue()})
        await world.ready("t", "q")
        session = "$sub/topics-0/mqtt.one"
        await world.manage("topics-0", "createQueue", session, "ANYCAST", session, None, True, 1, False, True)
        await world.manage("topics-0", "createDivert", "one|t/#", "", "t/#", session, False, None, None)
        await world.send("topics-0", "t/a", 2)
        world.configserv.addresses({"q": queue()})
        await world.gone("t")
        await until(lambda: "t" not in world.placements())
        assert "topics-0" in world.configserv.placements["brokers"]
        await world.stop_controller()
        world.start_controller()
        await world.ready("q")
        assert await world.manage("topics-0", "getMessageCount", resource=f"queue.{session}") == 2
        assert await world.take("topics-0", session, 2) == ["m0", "m1"]
        await until(lambda: list(world.supervisor.processes) == ["disk-0"])

    play(scenario)


def test_an_in_memory_broker_that_dies_comes_back_with_its_addresses(play: Play) -> None:
    async def scenario(world: World) -> None:
        addresses = {"m": queue("memory"), "o": topic("other")}
        world.configserv.addresses(addresses)
        await world.ready(*addresses)
        world.supervisor.paused |= {"memory-0", "other-0"}  # else one may be back before the other is missed
        for broker in ("memory-0", "other-0"):
            await world.supervisor.kill(broker)
        await until(lambda: not world.configserv.ready(REPORTER))
        world.supervisor.paused.clear()
        await world.ready(*addresses)
        await world.send("memory-0", "m", 1)

    play(scenario)


def test_a_topic_that_its_broker_has_lost_is_not_made_before_it_is_bound(play: Play) -> None:
    """Also if the broker is back before anything is decided: what is accepted before would be in no queue. The broker
    has made another topic of its since."""

    async def scenario(world: World) -> None:
        world.configserv.addresses({"o": topic("other"), "bound": topic("other")})
        await world.ready("o", "bound")
        world.configserv.binds = lambda name, broker: name != "o"
        await world.supervisor.kill("other-0")
        await until(lambda: not world.configserv.ready(REPORTER))
        await world.ready("bound")
        await world.says("o", "waits until subserv has bound subscriptions on broker other-0")
        assert "o" not in await world.manage("other-0", "getAddressNames")
        world.configserv.binds = lambda name, broker: True
        world.configserv.publish_bound()
        await world.ready("o")

    play(scenario)


def test_new_settings_of_a_flavor_do_not_cost_messages(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"m": queue("memory"), "q": queue("disk")})
        await world.ready("m", "q")
        await world.send("memory-0", "m", 1)
        await world.send("disk-0", "q", 1)
        more = {"templateParameters": {"MEMORY": 10_000_000}}
        world.configserv.flavors(
            {**FLAVORS, "memory": {**FLAVORS["memory"], **more}, "disk": {**FLAVORS["disk"], **more}}
        )

        def memory(broker: str) -> int:
            value: int = json.loads((world.supervisor.desired / f"{broker}.json").read_text())["settings"][
                "global_max_size"
            ]
            return value

        await until(lambda: memory("disk-0") == 10_000_000)
        await world.says("m", "new settings of flavor memory wait until broker memory-0 holds no messages")
        assert memory("memory-0") != 10_000_000
        assert await world.take("memory-0", "m", 1) == ["m0"]
        await until(lambda: memory("memory-0") == 10_000_000)
        await world.supervisor.caught_up()
        await world.ready("m", "q")
        assert await world.take("disk-0", "q", 1) == ["m0"]

    play(scenario)


def test_wishes_deleted_or_damaged_by_hand_are_written_again(play: Play) -> None:
    """While it runs and while it does not: no broker ends for ever, and none counts as a new one that holds nothing."""

    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue("disk")})
        await world.ready("q")
        await world.send("disk-0", "q", 2)
        wish = world.supervisor.desired / "disk-0.json"
        before = wish.read_text()
        wish.unlink()
        await until(lambda: wish.exists() and wish.read_text() == before)
        await world.ready("q")
        wish.write_text("{")
        await until(lambda: wish.read_text() == before)
        await world.stop_controller()
        wish.write_text("{")
        (world.supervisor.desired / "unknown.json").write_text("{")
        world.start_controller()
        await until(lambda: wish.read_text() == before)
        await world.supervisor.caught_up()
        await world.ready("q")
        assert await world.take("disk-0", "q", 2) == ["m0", "m1"]
        assert (world.supervisor.desired / "unknown.json").exists(), "it may hold messages"

    play(scenario)


def test_a_flavor_that_becomes_persistent_says_what_is_not_yet(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"m": queue("memory")})
        await world.ready("m")
        await world.send("memory-0", "m", 1)
        world.configserv.flavors({**FLAVORS, "memory": FLAVORS["disk"]})
        await world.says("m", "wait until broker memory-0 holds no messages, which it still keeps in memory")
        assert await world.take("memory-0", "m", 1) == ["m0"]
        await until(lambda: world.configserv.message(REPORTER, "m") == "")
        await world.ready("m")

    play(scenario)


def test_a_flavor_that_vanishes_and_configserv_away_leave_everything_running(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue()})
        await world.ready("q")
        await world.send("disk-0", "q", 1)
        world.configserv.flavors({name: flavor for name, flavor in FLAVORS.items() if name != "disk"})
        await world.configserv.stop()
        world.supervisor.paused.add("disk-0")
        await world.supervisor.kill("disk-0")
        world.supervisor.paused.clear()
        await world.configserv.start()
        await world.ready("q")
        assert await world.take("disk-0", "q", 1) == ["m0"]

    play(scenario)


def test_something_of_the_same_name_in_the_way_is_told_and_left_alone(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"q": queue(), "t": topic()})
        await world.ready("q", "t")
        await world.manage("topics-0", "createAddress", "mine", "ANYCAST")
        await world.manage("topics-0", "createAddress", "other", "MULTICAST")
        world.configserv.addresses({"q": queue(), "t": topic(), "mine": topic(), "other": topic()})
        await world.says("mine", "an object of this name exists")
        assert world.configserv.report(REPORTER, "mine")["failed"] is True
        await world.ready("q", "t", "other")
        await world.manage("topics-0", "deleteAddress", "mine")
        await world.ready("q", "t", "other", "mine")

    play(scenario)


def test_a_removed_space_has_ended_when_no_broker_has_anything_of_it(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.configserv.addresses({"!!one/q": queue(), "!!one/t": topic(), "q": queue()})
        await world.ready("!!one/q", "!!one/t", "q")
        await world.send("disk-0", "!!one/q", 1)
        await world.holds("!!one/q", 1)
        addresses = {"schema": 1, "addresses": {"q": queue()}, "forced": []}
        world.configserv.publish("addresses", {**addresses, "ending": {"one": "7", "two": "8"}})
        await until(lambda: world.configserv.ended == {"two": "8"})
        assert await world.take("disk-0", "!!one/q", 1) == ["m0"]
        await until(lambda: world.configserv.ended == {"one": "7", "two": "8"})
        assert world.placements().keys() == {"q"}
        world.configserv.publish("addresses", addresses)
        await until(lambda: world.configserv.ended == {})

    play(scenario)
