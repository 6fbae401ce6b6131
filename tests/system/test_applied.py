"""`enmasse status --wait` returns when what the files say is in force, and not before: the engines show it at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from enmasse.cli.commands.suite.status import fetch, file_hashes, missing_files
from enmasse.control import Artemis, ControlConnection, Dispatch
from enmasse.testing import Suite, wait_for
from services.ragent.entities import ADDRESS, AUTO_LINK, CONNECTOR
from tests.broker.harness import BrokerProcess
from tests.kit.waiting import DEADLINE
from tests.load import receive, send
from tests.system.conftest import ADDRESSES, QUEUE, TOPIC
from tests.system.exchange import exchange
from tests.system.operating import managed, talk
from tests.system.seeing import carrier, component, find, status, wait_address, wait_gone, wait_message

STAGES = ("written", "read", "applied")


async def settings(broker: Artemis, address: str) -> dict[str, Any]:
    """What a broker's management shows as the settings of an address."""
    found: dict[str, Any] = json.loads(await broker.invoke("broker", "getAddressSettingsAsJSON", address))
    return found


async def poll(suite: Suite, path: str, condition: Callable[[dict[str, Any]], bool]) -> None:
    """Asks again and again, without a pause, until the condition holds for the answer."""
    deadline = time.monotonic() + DEADLINE
    url = f"http://127.0.0.1:{8079 + suite.offset}"
    async with aiohttp.ClientSession(url, headers=suite.operator_headers) as session:
        while True:
            async with session.get(path) as answer:
                found = await answer.json()
            if condition(found):
                return
            assert time.monotonic() < deadline, found


async def wait_at_once(suite: Suite) -> None:
    """As `enmasse status --wait`, by the same rule, but without the time that a command takes to start and to end."""
    hashes = file_hashes(suite.config)
    await poll(suite, "/api/ready", lambda brief: brief["settled"] and not missing_files(hashes, brief))


async def reach(suite: Suite, stage: str) -> None:
    """Waits until the addresses.json that was just written is `written` only, `read` by configserv, or `applied`."""
    if stage == "read":
        await poll(suite, "/api/status", lambda status: not status["settled"] or is_applied(suite, status))
    elif stage == "applied":
        await wait_at_once(suite)


def is_applied(suite: Suite, status: dict[str, Any]) -> bool:
    return not missing_files(file_hashes(suite.config), status)


def entities(suite: Suite, type_: str) -> set[str]:
    """The names of the agent's entities on the router."""

    async def read(connection: ControlConnection) -> Any:
        node = Dispatch(connection)
        await node.opened()
        return [entity["name"] for entity in await node.query(type_, ["name"])]

    return {name for name in talk(suite, suite.operators, read) if str(name).startswith("ragent-")}


def waits_in_vain(suite: Suite, seconds: float = 1.0) -> str:  # limit: one that is reached
    """What `--wait` says when it is not done in time."""
    _, problem = fetch(suite.offset, seconds)
    assert problem
    return "\n".join(problem)


@contextmanager
def stopped(suite: Suite, name: str) -> Iterator[None]:
    """The process does nothing for a while."""
    pid = component(suite, name)["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def changing(suite: Suite) -> Iterator[dict[str, dict[str, Any]]]:
    """A queue and a topic to be changed; gone afterwards."""
    made: dict[str, dict[str, Any]] = {
        "changing": {"type": "queue", "flavor": QUEUE},
        "changing-topic": {"type": "topic", "flavor": TOPIC},
    }
    suite.edit("addresses.json", made)
    suite.wait_ready()
    yield made
    suite.edit("addresses.json", {}, remove=made)
    for name in made:
        wait_gone(suite, name)


@pytest.mark.parametrize("rounds", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_changed_property_is_applied_on_the_broker(
    suite: Suite, changing: dict[str, dict[str, Any]], rounds: int
) -> None:
    async def change(connection: ControlConnection, name: str, address: str) -> None:
        broker = await managed(connection)
        for number in range(rounds):
            ttl, attempts = 60_000 + number, 2 + number
            more = {"messageTtl": {"maximum": ttl}, "messageRedelivery": {"maximumDeliveryAttempts": attempts}}
            suite.edit("addresses.json", {name: {**changing[name], **more}})
            await wait_at_once(suite)
            found = await settings(broker, address)
            assert (found["maxExpiryDelay"], found["maxDeliveryAttempts"]) == (ttl, attempts), number
        suite.edit("addresses.json", {name: changing[name]})
        suite.wait_ready()
        assert (await settings(broker, address))["maxExpiryDelay"] == -1

    for name, address in (("changing", "changing"), ("changing-topic", "changing-topic/below")):
        talk(suite, carrier(suite, name)["endpoints"]["amqp"], partial(change, name=name, address=address))


def test_an_edit_that_is_undone_is_not_ready_before_the_former_settings_are_in_force(
    suite: Suite, changing: dict[str, dict[str, Any]]
) -> None:
    """The file is what it was when all was ready, while what was in between is on its way or in force."""

    async def change(connection: ControlConnection) -> None:
        broker = await managed(connection)
        for stage in 3 * STAGES:
            suite.edit("addresses.json", {"changing": {**changing["changing"], "messageTtl": {"maximum": 1000}}})
            await reach(suite, stage)
            suite.edit("addresses.json", changing)
            await wait_at_once(suite)
            assert (await settings(broker, "changing"))["maxExpiryDelay"] == -1, stage

    talk(suite, carrier(suite, "changing")["endpoints"]["amqp"], change)


TUNED = {kind: {"type": kind, "templateName": f"{kind}-persisted"} for kind in ("queue", "topic")}


@pytest.fixture
def flavored(suite: Suite) -> Iterator[list[str]]:
    """Flavors of their own with a queue and a topic, whose names begin as they do."""
    names = [f"tuned-{kind}" for kind in TUNED]
    suite.edit("flavors.json", {f"tuned-{kind}": flavor for kind, flavor in TUNED.items()})
    suite.edit("addresses.json", {f"tuned-{kind}": {"type": kind, "flavor": f"tuned-{kind}"} for kind in TUNED})
    suite.wait_ready()
    yield names
    suite.edit("addresses.json", {}, remove=names)
    suite.edit("flavors.json", {}, remove=names)
    for name in names:
        wait_gone(suite, name)
    wait_for("their brokers to go", lambda: not brokers(suite, "tuned"))


def brokers(suite: Suite, flavor: str) -> list[str]:
    return [c["name"] for c in status(suite)["components"] if c["kind"] == "broker" and c["name"].startswith(flavor)]


@pytest.mark.slow  # tests/storage_controller/test_controller.py has settings of flavors
def test_a_changed_parameter_of_a_flavor_is_applied_on_each_broker(suite: Suite, flavored: list[str]) -> None:
    async def read(connection: ControlConnection) -> dict[str, Any]:
        return await settings(await managed(connection), "anything")

    for number in range(4):
        capacity, count = 100_000_000 + number, 1 + number % 2
        more = {"templateParameters": {"STORAGE_CAPACITY": capacity, "BROKERS": count}}
        suite.edit("flavors.json", {f"tuned-{kind}": {**flavor, **more} for kind, flavor in TUNED.items()})
        asyncio.run(wait_at_once(suite))
        for name in flavored:
            running = brokers(suite, name)
            assert len(running) >= count
            for broker in running[:count]:
                found = talk(suite, component(suite, broker)["endpoints"]["amqp"], read)
                assert found["pageLimitBytes"] == capacity, (number, broker)
        exchange(suite.url, flavored)


def test_settings_that_would_lose_messages_wait_until_the_broker_is_empty(suite: Suite) -> None:
    flavor = {"type": "queue", "templateName": "queue-inmemory", "templateParameters": {"MEMORY": "20Mi"}}
    before = json.loads((suite.config / "flavors.json").read_text())
    send(suite.url, "scratch", 1)
    suite.edit("flavors.json", {"vanilla-queue": flavor})
    try:
        why = "the new settings of flavor vanilla-queue wait until broker"
        wait_message(suite, "scratch", why)
        said = waits_in_vain(suite)
        assert "not applied yet: flavors.json" in said
        assert f"address scratch: {why}" in said
        wait_address(suite, "scratch", ready=True, messages=1)
        assert receive(suite.url, "scratch", 1) == [0]
        suite.wait_ready()
    finally:
        suite.edit("flavors.json", before)
        suite.wait_ready()


@pytest.mark.parametrize("name", ["storage_controller", "ragent", "configserv"])
def test_a_change_is_not_ready_while_a_process_is_stopped(
    suite: Suite, changing: dict[str, dict[str, Any]], name: str
) -> None:
    entry = {**changing["changing"], "messageTtl": {"maximum": 80_000}}
    old = status(suite)["config"]
    broker = carrier(suite, "changing")["name"]

    async def read(connection: ControlConnection) -> int:
        found: int = (await settings(await managed(connection), "changing"))["maxExpiryDelay"]
        return found

    with stopped(suite, name):
        suite.edit("addresses.json", {"changing": entry})
        said = waits_in_vain(suite)
        assert "not applied yet: addresses.json" in said
        assert status(suite)["config"] == old
        where = component(suite, broker)["endpoints"]["amqp"]
        if name == "ragent":  # the others do not wait for it
            wait_for("the broker to be told", lambda: talk(suite, where, read) == 80_000)
        else:
            assert talk(suite, where, read) == -1
    suite.wait_ready()
    assert talk(suite, where, read) == 80_000


@pytest.mark.parametrize(
    "stage", ["applied", *(pytest.param(stage, marks=pytest.mark.slow) for stage in ("written", "read"))]
)
def test_a_change_is_ready_only_after_a_killed_controller_has_applied_it(
    suite: Suite, changing: dict[str, dict[str, Any]], stage: str
) -> None:
    async def change(connection: ControlConnection) -> None:
        broker = await managed(connection)
        for number, name in enumerate(("storage_controller", "ragent", "configserv")):
            process = component(suite, name)
            ttl = 90_000 + number
            suite.edit("addresses.json", {"changing": {**changing["changing"], "messageTtl": {"maximum": ttl}}})
            await reach(suite, stage)
            suite.kill(process)
            await wait_at_once(suite)
            assert (await settings(broker, "changing"))["maxExpiryDelay"] == ttl, name

    talk(suite, carrier(suite, "changing")["endpoints"]["amqp"], change)


def test_removed_addresses_are_gone_from_the_router_when_the_suite_is_ready(suite: Suite) -> None:
    names = {"removed": {"type": "queue", "flavor": QUEUE}, "removed-direct": {"type": "anycast"}}
    for _ in range(3):
        suite.edit("addresses.json", names)
        asyncio.run(wait_at_once(suite))
        assert {f"ragent-address/{name}" for name in names} <= entities(suite, ADDRESS)
        suite.edit("addresses.json", {}, remove=names)
        asyncio.run(wait_at_once(suite))
        assert not {f"ragent-address/{name}" for name in names} & entities(suite, ADDRESS)
        assert not [name for name in entities(suite, AUTO_LINK) if name.endswith("/removed")]


@pytest.mark.slow  # test_by_hand.py
def test_placements_come_from_brokers_json_while_it_exists(suite: Suite, tmp_path: Path) -> None:
    """While it is there placements come from it alone; when it has gone they are those of the storage controller."""
    hand = BrokerProcess(tmp_path).start()
    with hand.manage() as m:
        m.queue("orders")
    file = suite.config / "brokers.json"
    try:
        for _ in range(2):
            by_hand = json.dumps({"hand": {"host": "127.0.0.1", "port": hand.port, "addresses": ["orders"]}})
            file.write_text(by_hand)
            wait_for("it to be applied", lambda: "brokers.json" in status(suite)["config"])
            assert entities(suite, CONNECTOR) == {"ragent-broker/hand"}
            assert "no broker" in (find(suite, "scratch") or {})["message"]
            exchange(suite.url, ["orders"])
            file.unlink()
            asyncio.run(wait_at_once(suite))
            assert "brokers.json" not in status(suite)["config"]
            assert "ragent-broker/hand" not in entities(suite, CONNECTOR)
            exchange(suite.url, ADDRESSES)
        file.write_text(by_hand)
        wait_for("it to be applied", lambda: "brokers.json" in status(suite)["config"])
        with stopped(suite, "storage_controller"):
            file.unlink()
            assert "not applied yet: brokers.json (its removal)" in waits_in_vain(suite)
            assert entities(suite, CONNECTOR) == {"ragent-broker/hand"}
    finally:
        file.unlink(missing_ok=True)
        suite.wait_ready()
        hand.stop()
