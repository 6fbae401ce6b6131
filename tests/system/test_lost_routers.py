"""Each router of a suite in turn is killed, or stopped (then the suite kills it), under a thousand messages a second of
every type, and MQTT of QoS 2 by two gateways: nothing acknowledged is lost, and nothing comes twice where once is
promised. The tests print the longest gap of each client (`pytest -s`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager

import pytest

from enmasse.aio.client import Client
from enmasse.testing import Suite, running, wait_for
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.system.flows import ROUTERS, flow_while, once_while
from tests.system.mqtt_devices import PATIENCE
from tests.system.roaming import Roamer
from tests.system.seeing import component
from tests.system.test_two_routers import ADDRESSES, at, own_port


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    options = ("--routers", "3", "--gateways", "2")
    with running(tmp_path_factory.mktemp("three"), ADDRESSES, options=options) as found:
        found.up()
        yield found
        assert found.down() == 0


@contextmanager
def harmed(suite: Suite, name: str, harm: signal.Signals) -> Iterator[None]:
    """Kill or stop a process; one that is stopped goes on after the block."""
    pid = component(suite, name)["pid"]
    os.kill(pid, harm)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("victim", ROUTERS)
@asyncio_test
async def test_a_lost_router_costs_no_message(suite: Suite, victim: str, harm: signal.Signals) -> None:
    """Receivers are at the victim and at another router, the sender is at the third one."""
    of_sender, other = (name for name in ROUTERS if name != victim)
    await until(lambda: asyncio.to_thread(is_whole, suite), "all routers are neighbours")
    async with AsyncExitStack() as stack:
        clients: list[Client] = [
            await stack.enter_async_context(at(suite, name)) for name in (of_sender, other, victim)
        ]
        await flow_while(f"{harm.name} {victim}", clients, harmed(suite, victim, harm))


@pytest.mark.slow
@pytest.mark.parametrize("harm", [signal.SIGSTOP, signal.SIGKILL])
def test_mqtt_clients_have_everything_once_while_each_router_is_lost(suite: Suite, harm: signal.Signals) -> None:
    publisher, reader = (
        Roamer(f"{harm.name}-{number}", own_port(suite, f"mqtt_gateway-{number}")) for number in range(2)
    )

    def harms() -> Iterator[tuple[str, AbstractContextManager[None]]]:
        for victim in ROUTERS:
            wait_for("all routers are neighbours", lambda: is_whole(suite), PATIENCE)
            yield f"{harm.name} {victim}", harmed(suite, victim, harm)

    once_while(publisher, reader, harms())


def is_whole(suite: Suite) -> bool:
    return all(component(suite, name)["routes"].keys() == set(ROUTERS) - {name} for name in ROUTERS)
