"""ragent with peers: a router is who has a router's credential, and its id is the name of that."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from enmasse.control import ConnectionLost, ControlConnection, connect
from enmasse.identity.processes.credentials import Credential, new_secret
from enmasse.identity.processes.roles import Role
from enmasse.process import runner
from enmasse.testing import free_port
from services.ragent.agent import RouterAgentSettings, serve
from tests.identity.kit import AMQP_HEADER, DEADLINE, REFUSED, Suite, answer_to, offered
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.ragent.doubles import FakeConfigserv, FakeRouter

SECOND = Credential("router-1", Role.ROUTER, new_secret())


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    suite = Suite(tmp_path)
    suite.secrets[SECOND.name] = SECOND.role, SECOND.secret
    suite.write()
    return suite


@asynccontextmanager
async def agent(suite: Suite) -> AsyncIterator[tuple[FakeConfigserv, int]]:
    """Run an agent; gives its configuration service and its port."""
    configserv, port, stop = FakeConfigserv(), free_port(), runner.Stop()
    settings = RouterAgentSettings(
        name="ragent-0",
        health=f"127.0.0.1:{free_port()}",
        listen=f"127.0.0.1:{port}",
        configserv=f"127.0.0.1:{await configserv.start()}",
        peers=str(suite.file),
    )
    running = asyncio.create_task(serve(settings, stop))
    try:
        configserv.addresses({"a": {"type": "anycast"}})
        await until(lambda: _listens(port))
        yield configserv, port
    finally:
        stop.set()
        await running
        await configserv.stop()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), DEADLINE).close()  # accepted by the kernel
    except OSError:
        return False
    return True


async def join(router: FakeRouter, port: int, credential: Credential | None) -> ControlConnection:
    """Connect a router. Raises ConnectionLost if the agent refuses it, at once or after its open."""
    return await connect(
        "127.0.0.1",
        port,
        container=router.name,
        credential=credential,
        prepare=lambda connection: setattr(connection, "on_attach", router._attached),
        properties={"product": router.product},
    )


async def refused(router: FakeRouter, port: int, credential: Credential | None) -> str:
    """Return the condition with which the agent ends the connection."""
    try:
        connection = await join(router, port, credential)
    except ConnectionLost as error:
        return error.condition
    await connection.wait_closed()
    assert connection.error is not None
    return connection.error.condition


@asyncio_test
async def test_a_router_is_managed_whatever_product_it_states(suite: Suite) -> None:
    async with agent(suite) as (configserv, port):
        router = FakeRouter("router-0", product="another")
        await join(router, port, suite.credential(Role.ROUTER))
        await until(lambda: configserv.ready("ragent") == {"a"})


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.ROUTER])
@asyncio_test
async def test_no_other_role_is_managed(suite: Suite, role: Role) -> None:
    async with agent(suite) as (configserv, port):
        credential = suite.credential(role)
        for name in (credential.name, "router-0"):
            router = FakeRouter(name)
            assert await refused(router, port, credential) == REFUSED
            assert router.requests == []
        assert configserv.ready("ragent") == set()


@asyncio_test
async def test_a_peer_without_the_secret_is_not_managed(suite: Suite) -> None:
    async with agent(suite) as (configserv, port):
        router = FakeRouter("router-0")
        wrong = [SECOND.secret, "", suite.credential(Role.OPERATOR).secret]
        for secret in wrong:
            assert await refused(router, port, Credential("router-0", Role.ROUTER, secret)) == REFUSED
        assert await refused(router, port, Credential("router-9", Role.ROUTER, SECOND.secret)) == REFUSED
        assert await refused(router, port, None) != ""
        assert await asyncio.to_thread(offered, port) == ["SCRAM-SHA-256"]
        assert AMQP_HEADER not in await asyncio.to_thread(answer_to, port, AMQP_HEADER)
        assert router.requests == [] and configserv.ready("ragent") == set()


@asyncio_test
async def test_a_router_cannot_take_the_id_of_another(suite: Suite) -> None:
    async with agent(suite) as (configserv, port):
        router = FakeRouter("router-0")
        connection = await join(router, port, suite.credential(Role.ROUTER))
        await until(lambda: configserv.ready("ragent") == {"a"})
        impostor = FakeRouter("router-0")
        assert await refused(impostor, port, SECOND) == REFUSED
        assert impostor.requests == [] and not connection.is_gone
        assert configserv.ready("ragent") == {"a"}


@asyncio_test
async def test_a_second_connection_of_a_router_replaces_the_first(suite: Suite) -> None:
    async with agent(suite) as (configserv, port):
        first = await join(FakeRouter("router-0"), port, suite.credential(Role.ROUTER))
        await until(lambda: configserv.ready("ragent") == {"a"})
        await join(FakeRouter("router-0"), port, suite.credential(Role.ROUTER))
        await first.wait_closed()
        assert first.error is not None and first.error.condition == "amqp:connection:forced"
        await until(lambda: configserv.ready("ragent") == {"a"})
