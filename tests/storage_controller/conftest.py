"""A controller in this process with real brokers: a small supervisor runs what the controller wishes for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import proton
import pytest

from enmasse.control import Artemis, ControlConnection, ControlError, connect
from enmasse.engines.artemis import broker as artemis
from enmasse.engines.artemis import distribution
from enmasse.engines.program import Spec
from enmasse.testing import free_port
from services.storage_controller.app import serve
from services.storage_controller.controller import ControllerSettings
from services.storage_controller.drivers.local import LocalSettings
from tests.artemis import ENVIRONMENT
from tests.kit.processes import Process, start_service
from tests.kit.waiting import DEADLINE
from tests.ragent.doubles import FakeConfigserv, until

EngineName = Literal["embedded", "artemis"]
Scenario = Callable[["World"], Coroutine[Any, Any, None]]
REPORTER = "storage_controller"
FLAVORS: dict[str, Any] = {
    "disk": {"type": "queue", "templateName": "queue-persisted"},
    "memory": {"type": "queue", "templateName": "queue-inmemory"},
    "pool": {"type": "queue", "templateName": "queue-inmemory", "templateParameters": {"BROKERS": 3}},
    "own": {"type": "queue", "templateName": "queue-inmemory", "templateParameters": {"DEDICATED": True}},
    "topics": {"type": "topic", "templateName": "topic-persisted"},
    "other": {"type": "topic", "templateName": "topic-inmemory"},
}


class Supervisor:
    """The other side of the local driver: starts, restarts and ends brokers as the files say."""

    def __init__(self, folder: Path, engine: EngineName, peers: Path | None = None) -> None:
        self._engine = engine
        self._peers = peers
        self.desired = folder / "desired"
        self.actual = folder / "actual.json"
        self.paused: set[str] = set()
        """Brokers that are not started (again) for now."""
        self.processes: dict[str, Process] = {}
        self.rounds = 0
        """How often all that is wished for was looked at and brought about."""
        self._folder = folder
        self._settings: dict[str, Any] = {}
        self._ports: dict[str, tuple[int, int]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.desired.mkdir(exist_ok=True)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for name in list(self.processes):
            await self._end(name)

    @asynccontextmanager
    async def asleep(self) -> AsyncIterator[None]:
        """It notices nothing for a while."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            yield
        finally:
            self._task = asyncio.create_task(self._run())

    async def caught_up(self) -> None:
        """What is wished for now is what runs."""
        before = self.rounds
        await until(lambda: self.rounds >= before + 2)  # the first may have begun before

    async def kill(self, name: str) -> None:
        process = self.processes[name]
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)

    def port(self, name: str) -> int:
        return self._ports[name][0]

    async def _run(self) -> None:
        while True:
            wishes = self._wishes()
            before = self._facts()
            for name in list(self.processes):
                process = self.processes[name]
                if process.poll() is not None:
                    del self.processes[name]
                elif wishes.get(name) != self._settings[name]:
                    await self._end(name)
            for name, settings in wishes.items():
                if name not in self.processes and name not in self.paused:
                    await self._begin(name, settings)
            if self._facts() != before:
                new = self._folder / "actual.new"
                new.write_text(json.dumps({"schema": 1, "components": self._facts()}))
                new.replace(self.actual)
            self.rounds += 1
            # pause: until it looks again
            await asyncio.sleep(0.02)

    def _wishes(self) -> dict[str, dict[str, Any]]:
        """What runs by the name of a file that cannot be read is left alone, as the real one does."""
        found = {}
        for path in self.desired.glob("[!.]*.json"):
            try:
                found[path.stem] = json.loads(path.read_bytes())["settings"]
            except (OSError, ValueError):
                if path.exists() and path.stem in self._settings:
                    found[path.stem] = self._settings[path.stem]
        return found

    def _facts(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name, "kind": "broker", "pid": p.pid, "ready": True, "host": "127.0.0.1",
                "port": self.port(name), "settings": self._settings[name],
            }
            for name, p in self.processes.items()
        ]  # fmt: skip

    async def _begin(self, name: str, settings: dict[str, Any]) -> None:
        if name not in self._ports:
            self._ports[name] = free_port(), free_port()
        amqp, health = self._ports[name]
        self._settings[name] = settings
        full = {**settings, "name": name, "listen": f"127.0.0.1:{amqp}", "health": f"127.0.0.1:{health}"}
        if self._peers is not None:
            full["peers"] = str(self._peers)
        for key in ("data_dir", "page_dir"):
            if full[key] is not None:
                full[key] = str(self._folder / full[key])
        if self._engine == artemis.NAME:
            command = await asyncio.to_thread(self._artemis, name, full)
            environment = {**os.environ, **ENVIRONMENT, "ENMASSE_PARENT": str(os.getpid())}
            self.processes[name] = subprocess.Popen(command, env=environment)
        else:
            file = self._folder / f"{name}.config"
            file.write_text(json.dumps(full))
            self.processes[name] = await asyncio.to_thread(start_service, "broker", file)

    def _artemis(self, name: str, settings: dict[str, Any]) -> list[str]:
        spec = Spec(name, artemis.NAME, {**settings, "log_level": "error"}, engine=artemis.NAME)
        return artemis.ArtemisProgram(*distribution.ready()).prepare(spec, self._folder / "run")

    async def _end(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        await asyncio.to_thread(process.wait)


class World:
    """Everything around one controller. `peers`, `credential`: files; None: all listeners are open."""

    def __init__(
        self, folder: Path, engine: EngineName, peers: Path | None = None, credential: Path | None = None
    ) -> None:
        self.configserv = FakeConfigserv(peers)
        self.supervisor = Supervisor(folder, engine, peers)
        self._credential = None if credential is None else str(credential)
        self._engine = engine
        self._folder = folder
        self._stop = asyncio.Event()
        self._controller: asyncio.Task[None] | None = None
        self._port = 0

    async def start(self) -> None:
        self._port = await self.configserv.start()
        self.supervisor.start()
        self.configserv.flavors(FLAVORS)
        self.start_controller()

    async def stop(self) -> None:
        await self.stop_controller()
        await self.supervisor.stop()
        await self.configserv.stop()

    def start_controller(self) -> None:
        driver = LocalSettings(str(self.supervisor.desired), str(self.supervisor.actual), self._engine)
        config = ControllerSettings(
            name="storage_controller",
            health=f"127.0.0.1:{free_port()}",
            configserv=f"127.0.0.1:{self._port}",
            driver=driver,
            credential=self._credential,
        )
        self._stop = asyncio.Event()
        self._controller = asyncio.create_task(serve(config, self._stop))

    async def stop_controller(self) -> None:
        assert self._controller is not None
        self._stop.set()
        await self._controller
        await until(lambda: REPORTER not in self.configserv.readiness)  # nobody takes its last words for the next one's

    # what is seen

    async def ready(self, *names: str) -> None:
        await until(lambda: self.configserv.ready(REPORTER) >= set(names))

    async def says(self, name: str, text: str) -> None:
        await until(lambda: text in self.configserv.message(REPORTER, name))

    async def holds(self, name: str, *messages: int) -> None:
        """Waits until so many messages are reported; one of these numbers."""
        await until(lambda: self.configserv.report(REPORTER, name).get("messages") in messages)

    async def gone(self, name: str) -> None:
        await until(lambda: not self.configserv.report(REPORTER, name))
        await until(lambda: name not in self.placements())

    def placements(self) -> dict[str, list[tuple[str, str, str]]]:
        body = self.configserv.placements or {"addresses": {}}
        return {
            name: [(entry["broker"], entry["state"], entry["type"]) for entry in entries]
            for name, entries in body["addresses"].items()
        }

    def where(self, name: str) -> str:
        (broker,) = [broker for broker, state, _ in self.placements()[name] if state == "active"]
        return broker

    # what is done with the brokers

    @asynccontextmanager
    async def at(self, broker: str) -> AsyncIterator[ControlConnection]:
        """A connection to a broker, as soon as it answers."""

        async def dialled() -> ControlConnection | None:
            try:
                return await connect("127.0.0.1", self.supervisor.port(broker), container="client")
            except (ControlError, KeyError):
                return None

        connection: ControlConnection = await until(dialled, f"an answer of {broker}")
        try:
            yield connection
        finally:
            connection.close()
            await connection.wait_closed()

    async def manage(self, broker: str, operation: str, *arguments: Any, resource: str = "broker") -> Any:
        async with self.at(broker) as connection:
            node = Artemis(connection, timeout=DEADLINE)
            await node.opened()
            return await node.invoke(resource, operation, *arguments)

    async def send(self, broker: str, address: str, count: int) -> None:
        async with self.at(broker) as connection:
            sender = connection.sender(address)
            for number in range(count):
                outcome = await sender.deliver(proton.Message(body=f"m{number}", durable=True))
                assert outcome.accepted, outcome

    async def take(self, broker: str, address: str, count: int) -> list[str]:
        async with self.at(broker) as connection:
            receiver = connection.receiver(address)
            bodies = []
            for _ in range(count):
                delivery = await asyncio.wait_for(anext(receiver), DEADLINE)
                bodies.append(delivery.message.body)
                delivery.accept()
            receiver.close()
            await Artemis(connection, timeout=DEADLINE).opened()  # the broker has read all that went before
            return bodies

    async def subscribe(self, broker: str, address: str, name: str) -> None:
        """Makes a durable subscription and leaves it behind."""

        def durable(link: Any) -> None:
            link.source.durability = proton.Terminus.DELIVERIES
            link.source.expiry_policy = proton.Terminus.EXPIRE_NEVER
            link.source.capabilities.put_symbol(proton.symbol("topic"))

        async with self.at(broker) as connection:
            receiver = connection.receiver(address, name=name, configure=durable)
            await receiver.opened()
            receiver.proton_link.detach()
            connection.wake()
            await Artemis(connection, timeout=DEADLINE).opened()  # the broker has read that


@pytest.fixture
def engine() -> EngineName:
    """Of the brokers in the world; tests parametrise it."""
    return "embedded"


@pytest.fixture
def play(tmp_path: Path, engine: EngineName) -> Callable[[Scenario], None]:
    """Runs a scenario in a world."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            world = World(tmp_path, engine)
            await world.start()
            try:
                await scenario(world)
            finally:
                await world.stop()

        asyncio.run(main())

    return run
