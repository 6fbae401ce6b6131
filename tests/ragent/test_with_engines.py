"""The agent with real routers and the embedded broker: configured, used by clients, damaged by hand, killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import proton
import pytest

from enmasse.control import Artemis, ControlConnection, ControlError, Dispatch, LinkClosed, connect
from enmasse.testing import free_port
from services.ragent.entities import AUTO_LINK, LINK_ROUTE
from services.ragent.management import CONNECTION, ROUTER_LINK
from tests.kit.processes import Process, start_service
from tests.kit.waiting import DEADLINE
from tests.ragent.conftest import Scenario, World
from tests.ragent.doubles import until
from tests.ragent.test_agent import ALL

Play = Callable[[Scenario], None]
TIMER = 8.0
"""Seconds after which Dispatch has tried every auto-link again."""


class Engines:
    """A router that dials the agent and a broker with a queue `q` and a topic `t`."""

    def __init__(self, world: World, folder: Path, router: str = "embedded") -> None:
        self.world = world
        self.router = router
        self.folder = folder
        self.broker_port, self.client_port = free_port(), world.client_port
        self.operators_port = free_port()
        self._processes: dict[str, Process] = {}

    async def start(self) -> None:
        await self.start_broker()
        await self.start_router()

    async def start_router(self) -> None:
        entities: list[list[Any]] = [
            ["router", {"id": "real", "mode": "standalone", "defaultDistribution": "unavailable"}],
            ["connector", {"name": "ragent", "host": "127.0.0.1", "port": str(self.world.port), "role": "normal"}],
            ["listener", {"name": "operators", "host": "127.0.0.1", "port": str(self.operators_port)}],
        ]
        if self.router == "embedded":
            await self._run("router", {"entities": entities})
            return
        file = self.folder / "qdrouterd.json"
        file.write_text(json.dumps([["log", {"module": "DEFAULT", "enable": "warning+"}], *entities]))
        path = shutil.which("qdrouterd")
        assert path is not None
        self._processes["router"] = subprocess.Popen(
            [sys.executable, "-m", "enmasse.process.startup", path, "--config", str(file)],
            env={**os.environ, "ENMASSE_PARENT": str(os.getpid())},
        )

    async def start_broker(self) -> None:
        settings: dict[str, Any] = {
            "listen": f"127.0.0.1:{self.broker_port}",
            "data_dir": None,
            "global_max_size": 10_000_000,
            "page_dir": str(self.folder / "pages"),
            "settings": {},
        }
        await self._run("broker", settings)
        await self.manage("createQueue", "q", "ANYCAST", "q", None, True, -1, False, True)
        await self.manage("createAddress", "t", "MULTICAST")

    async def manage(self, operation: str, *arguments: Any) -> Any:
        """An operation of the broker's management."""
        async with self.at(self.broker_port) as connection:
            node = Artemis(connection, timeout=DEADLINE)
            await node.opened()
            return await node.invoke("broker", operation, *arguments)

    async def _run(self, service: str, settings: dict[str, Any]) -> None:
        file = self.folder / f"{service}.json"
        file.write_text(json.dumps({"name": service, "health": f"127.0.0.1:{free_port()}", **settings}))
        self._processes[service] = await asyncio.to_thread(start_service, service, file)

    async def kill(self, service: str) -> None:
        process = self._processes.pop(service)
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)

    async def stop(self) -> None:
        for service in list(self._processes):
            await self.kill(service)

    @contextlib.asynccontextmanager
    async def at(self, port: int) -> Any:
        async def dialled() -> ControlConnection | None:
            try:
                return await connect("127.0.0.1", port, container="client")
            except ControlError:
                return None

        connection: ControlConnection = await until(dialled, f"an answer at port {port}")
        try:
            yield connection
        finally:
            connection.close()
            await connection.wait_closed()

    async def round_trip(self, address: str, receivers: int = 1) -> None:
        """Every receiver gets what is sent."""
        async with self.at(self.client_port) as connection:
            taking = [connection.receiver(address) for _ in range(receivers)]
            for receiver in taking:
                await receiver.opened()
            sender = connection.sender(address)
            sent = asyncio.ensure_future(sender.deliver(proton.Message(body=address)))
            for receiver in taking:
                delivery = await asyncio.wait_for(anext(receiver), DEADLINE)
                assert delivery.message.body == address
                delivery.accept()
            assert (await sent).accepted


@pytest.fixture(params=["embedded", pytest.param("qdrouterd", marks=pytest.mark.needs("qdrouterd"))])
def router(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def scene(folder: Path, play: Play, router: str, story: Callable[[World, Engines], Any]) -> None:
    async def scenario(world: World) -> None:
        engines = Engines(world, folder, router)
        try:
            world.router.kill()
            await engines.start()
            world.configserv.place(
                {name: [{"broker": "broker", "state": "active"}] for name in ("q", "t")},
                {"broker": {"host": "127.0.0.1", "port": engines.broker_port}},
            )
            world.configserv.addresses(ALL)
            await world.ready(*ALL)
            await story(world, engines)
        finally:
            await engines.stop()

    play(scenario)


async def everything_works(engines: Engines) -> None:
    await engines.round_trip("any")
    await engines.round_trip("multi", receivers=3)
    await engines.round_trip("q")
    await engines.round_trip("t", receivers=2)
    await engines.round_trip("t/below/it")


def test_ready_means_that_it_works(tmp_path: Path, play: Play, router: str) -> None:
    async def story(world: World, engines: Engines) -> None:
        await everything_works(engines)
        async with engines.at(engines.client_port) as connection:
            for name in ("undefined", "any/below", "anyone"):
                try:
                    await connection.sender(name).opened()
                except ControlError as error:
                    assert error.condition == "amqp:not-found"
                else:
                    raise AssertionError(f"{name} is not defined")

    scene(tmp_path, play, router, story)


def test_what_is_deleted_by_hand_on_the_router_is_healed(tmp_path: Path, play: Play, router: str) -> None:
    async def story(world: World, engines: Engines) -> None:
        async with engines.at(engines.operators_port) as connection:
            node = Dispatch(connection, timeout=DEADLINE)
            await node.opened()
            world.configserv.history.clear()
            await node.delete(AUTO_LINK, "ragent-out/broker/q")
            await node.delete(LINK_ROUTE, "ragent-route-in/broker/t")
            await until(lambda: world.configserv.was_healed("q"))
            await until(lambda: world.configserv.was_healed("t"))
        await everything_works(engines)

    scene(tmp_path, play, router, story)


def test_router_and_broker_killed_in_turn(tmp_path: Path, play: Play, router: str) -> None:
    async def story(world: World, engines: Engines) -> None:
        await engines.kill("router")
        await world.reported("any", "no router is connected")
        await engines.start_router()
        await world.ready(*ALL)
        await everything_works(engines)
        await engines.kill("broker")
        await until(lambda: world.configserv.ready("ragent") == {"any", "multi"})
        await engines.round_trip("any")
        await engines.start_broker()
        await world.ready(*ALL)
        await everything_works(engines)

    scene(tmp_path, play, router, story)


@pytest.mark.needs("qdrouterd")
def test_a_queue_is_cut_off_from_its_producers_though_its_auto_link_has_two_links(tmp_path: Path, play: Play) -> None:
    """Dispatch makes a second link if the connection to the broker is back before a timer of each auto-link is over."""

    async def story(world: World, engines: Engines) -> None:
        async with engines.at(engines.operators_port) as connection:
            node = Dispatch(connection, timeout=DEADLINE)
            await node.opened()
            for _ in range(5):  # the first time the timer may be over before the connection is back
                await connect_again(node)
            assert len(await links_to(node, "M0q")) == 2
        draining = {"broker": "broker", "state": "draining", "type": "queue"}
        rest = {name: entry for name, entry in ALL.items() if name != "q"}
        world.configserv.place(
            {"q": [draining], "t": [{"broker": "broker", "state": "active"}]},
            {"broker": {"host": "127.0.0.1", "port": engines.broker_port}},
        )
        world.configserv.addresses(rest)

        async def cut_off() -> bool:
            producers = json.loads(await engines.manage("listProducersInfoAsJSON"))
            return "q" not in {each["destination"] for each in producers}

        async def others_work() -> bool:
            try:
                await engines.round_trip("t")
            except LinkClosed:
                return False  # the connection that has two links is being made anew
            return True

        await until(cut_off, "no producer reaches the queue")
        await until(others_work, "the other addresses of the broker work")
        await world.ready(*rest)

    scene(tmp_path, play, "qdrouterd", story)


async def links_to(node: Dispatch, address: str) -> list[dict[str, Any]]:
    rows = await node.query(ROUTER_LINK, ["identity", "connectionId", "owningAddr", "linkDir"])
    return [row for row in rows if row["owningAddr"] == address and row["linkDir"] == "out"]


async def connect_again(node: Dispatch) -> None:
    """Unless the queue has two links already: closes the connection to its broker, and waits until it is another one
    and the timers of its auto-links are over."""
    before = await links_to(node, "M0q")
    if len(before) == 2:
        return
    known = before[0]["connectionId"]
    update = {"operation": "UPDATE", "type": CONNECTION, "identity": known}
    await node.operation(update, {"adminStatus": "deleted"})

    async def another() -> bool:
        now = await links_to(node, "M0q")
        return bool(now) and now[0]["connectionId"] != known

    async def two() -> bool:
        return len(await links_to(node, "M0q")) == 2

    await until(another, "the connection is another one")
    with contextlib.suppress(AssertionError):
        await until(two, seconds=TIMER)
