"""Which broker may be restarted with new settings, and when. (With pods: tests/kubernetes/test_release.py.)"""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.engines.embedded import BROKER as EMBEDDED
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from services.storage_controller.placement import Placer
from services.storage_controller.rollout import Rollout
from tests.ragent.doubles import until
from tests.storage_controller.conftest import FLAVORS, World
from tests.storage_controller.test_controller import queue
from tests.storage_controller.test_revisions import Play, settings, settled

WANTED = {"p-0": "p", "p-1": "p", "p-2": "p", "other-0": "other"}


@pytest.fixture
def placer() -> Placer:
    """Each broker has an address with the settings that it is to have."""
    made = Placer(EMBEDDED)
    addresses = {AddressName(f"a-{name}"): Address(type="queue", flavor=flavor) for name, flavor in WANTED.items()}
    made.set_addresses(addresses, (), ())
    for name, flavor in WANTED.items():
        broker = made.inventory.add(name, flavor, EMBEDDED, fresh=True)
        made.inventory.set_home(AddressName(f"a-{name}"), name)
        broker.settle(AddressName(f"a-{name}"), addresses[AddressName(f"a-{name}")])
    return made


def may_begin(rollout: Rollout) -> set[str]:
    return {name for name, flavor in WANTED.items() if rollout.may_begin(name, flavor)}


def test_one_of_a_flavor_at_a_time(placer: Placer) -> None:
    rollout = Rollout(placer)
    rollout.look(WANTED, (), lambda _: True, now=True)
    assert may_begin(rollout) == WANTED.keys()
    rollout.begin("p-0", "p")
    assert may_begin(rollout) == {"p-0", "other-0"} and rollout.others("p-1", "p") == ["p-0"]
    # What ran before it was asked to restart says nothing.
    rollout.look(WANTED, (), lambda _: True, now=False)
    assert may_begin(rollout) == {"p-0", "other-0"}
    rollout.look(WANTED, (), lambda name: name != "p-0", now=True)
    assert may_begin(rollout) == {"p-0", "other-0"}
    # It runs, and has not got its addresses yet.
    broker = placer.inventory.brokers["p-0"]
    (address,) = broker.settled.values()
    broker.settled.clear()
    rollout.look(WANTED, (), lambda _: True, now=True)
    assert may_begin(rollout) == {"p-0", "other-0"}
    broker.settle(AddressName("a-p-0"), address)
    rollout.look(WANTED, (), lambda _: True, now=True)
    assert may_begin(rollout) == WANTED.keys()


def test_a_controller_that_has_just_come_restarts_nothing_before_it_knows_that_the_others_work(placer: Placer) -> None:
    rollout = Rollout(placer)
    rollout.look(WANTED, (), lambda _: False, now=True)
    assert may_begin(rollout) == {"other-0"}


def test_what_is_down_anyway_and_what_has_no_addresses_does_not_wait(placer: Placer) -> None:
    rollout = Rollout(placer)
    rollout.look(WANTED, ("p-1", "p-2"), lambda name: name == "p-0", now=True)
    assert may_begin(rollout) == {"p-1", "p-2", "other-0"}
    placer.inventory.set_home(AddressName("a-p-0"), "p-1")
    placer.inventory.brokers["p-1"].settle(AddressName("a-p-0"), Address(type="queue", flavor="p"))
    rollout.look(WANTED, (), lambda name: name != "p-2", now=True)
    assert may_begin(rollout) == {"p-0", "p-2", "other-0"}


def test_a_pool_of_this_machine_never_lacks_two_brokers(play: Play) -> None:
    many: dict[str, Any] = {"STORAGE_CAPACITY": 10**9, "BROKERS": 3}
    pool = {**FLAVORS["disk"], "templateParameters": many}

    async def scenario(world: World) -> None:
        world.configserv.flavors({**FLAVORS, "disk": pool})
        names = {name: queue() for name in ("a", "b", "c")}
        world.configserv.addresses(names)
        await settled(world, *names)
        pids = {name: process.pid for name, process in world.supervisor.processes.items()}
        assert len({world.where(name) for name in names}) == 3
        world.supervisor.paused |= pids.keys()  # what ends does not come back for now
        changed = {**pool, "templateParameters": {**many, "STORAGE_CAPACITY": 2 * 10**9}}
        world.configserv.flavors({**FLAVORS, "disk": changed})
        await until(lambda: len(world.supervisor.processes) == 2)
        (away,) = pids.keys() - world.supervisor.processes.keys()
        await until(
            lambda: (
                sum(
                    f"wait until {away} works again" in world.configserv.message("storage_controller", name)
                    for name in names
                )
                == 2
            )
        )
        assert world.configserv.pending("storage_controller")
        await world.supervisor.caught_up()
        assert len(world.supervisor.processes) == 2
        world.supervisor.paused.clear()
        await settled(world, *names)
        assert all(world.supervisor.processes[name].pid != pid for name, pid in pids.items())
        for broker in pids:
            assert (await settings(world, broker, "x"))["pageLimitBytes"] == 2 * 10**9

    play(scenario)
