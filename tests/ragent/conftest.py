"""An agent in this process, a configuration service and routers that can be made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from enmasse.process import runner
from enmasse.supervisor.children.probe import Probe
from enmasse.testing import free_port
from services.ragent.agent import ClientListener, RouterAgent, RouterAgentSettings, run, serve
from tests.ragent.doubles import FakeConfigserv, FakeRouter, until

Scenario = Callable[["World"], Coroutine[Any, Any, None]]


class World:
    """Everything around one agent."""

    def __init__(self) -> None:
        self.configserv = FakeConfigserv()
        self.router = FakeRouter()
        self.port = free_port()
        self.client_port = free_port()
        self.health_port = free_port()
        self.listener_of: str | None = None
        self.mqtt = False
        self.spaces = True
        self.detail = ""
        self._stop = runner.Stop()
        self._agent: asyncio.Task[None] | None = None

    async def start_agent(self, configserv: int | None = None) -> None:
        if configserv is not None:
            self._configserv_port = configserv
        self._stop = runner.Stop()
        self._agent = asyncio.create_task(serve(self._settings(), self._stop))

    async def start_standby(self) -> RouterAgent:
        """In place of an agent: one that does not lead."""
        agent = RouterAgent(self._settings())
        self._stop = runner.Stop()
        self._agent = asyncio.create_task(run(agent, self._settings(), self._stop))
        return agent

    def _settings(self) -> RouterAgentSettings:
        return RouterAgentSettings(
            name="ragent",
            health=f"127.0.0.1:{self.health_port}",
            listen=f"127.0.0.1:{self.port}",
            configserv=f"127.0.0.1:{self._configserv_port}",
            listeners=(ClientListener("amqp", "127.0.0.1", self.client_port, router=self.listener_of),),
            mqtt=self.mqtt,
            spaces=self.spaces,
        )

    async def stop_agent(self) -> None:
        assert self._agent is not None
        self._stop.set()
        await self._agent
        await until(lambda: "ragent" not in self.configserv.readiness)  # its last report is not the next one's

    async def join(self, router: FakeRouter) -> None:
        """The router dials until the agent listens."""

        async def dialled() -> bool:
            try:
                await router.dial(self.port)
            except Exception:
                return False
            return True

        await until(dialled, "the agent to listen")

    async def shows(self, text: str) -> None:
        """Waits until the detail of the agent's health ends so."""
        probe = Probe("127.0.0.1", self.health_port)

        async def is_shown() -> bool:
            self.detail = (await probe.ask()).detail
            return self.detail.endswith(text)

        try:
            await until(is_shown)
        except AssertionError:
            raise AssertionError(f"its health does not show {text!r} but {self.detail!r}") from None
        finally:
            probe.close()

    async def ready(self, *names: str) -> None:
        await until(lambda: self.configserv.ready("ragent") >= set(names))

    async def reported(self, name: str, text: str) -> None:
        """Waits until the message that the agent reports of an address contains this."""
        await until(lambda: text in self.configserv.message("ragent", name))


@asynccontextmanager
async def _world() -> AsyncIterator[World]:
    world = World()
    await world.start_agent(await world.configserv.start())
    try:
        await world.join(world.router)
        yield world
    finally:
        await world.stop_agent()
        await world.configserv.stop()


@pytest.fixture
def play() -> Callable[[Scenario], None]:
    """Runs a scenario in a world."""

    def run(scenario: Scenario) -> None:
        async def main() -> None:
            async with _world() as world:
                work: Awaitable[None] = scenario(world)
                await work

        asyncio.run(main())

    return run
