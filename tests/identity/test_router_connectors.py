"""Connectors of a router authenticate at a broker: by the router's own credential, or by a name and a password."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enmasse.aio.client import Client, connect
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import AmqpValue, Message
from enmasse.identity.processes.credentials import Credential
from enmasse.identity.processes.roles import Role
from enmasse.testing import free_port
from tests.identity.kit import DEADLINE, EVENT, Service, Suite, dial, manage_broker, name_of, query
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

SCRAM = "SCRAM-SHA-256"
PREFIX = "org.apache.qpid.dispatch."


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


@pytest.fixture
def broker_port() -> int:
    return free_port()


@pytest.fixture
def broker(suite: Suite, broker_port: int) -> Iterator[Service]:
    with Service("broker", listen=f"127.0.0.1:{broker_port}", peers=str(suite.file)) as process:
        yield process


def router(port: int, broker: int, credential: Path | None, *more: list[Any], **connector: Any) -> Service:
    """Start a router with a listener on `port`, a connector to the broker, and a link route to it."""
    host = "127.0.0.1"
    to_broker = {"name": "broker", "host": host, "port": str(broker), "role": "route-container", **connector}
    entities = [
        ["router", {"id": "r1", "mode": "standalone"}],
        ["connector", to_broker],
        ["listener", {"name": "clients", "host": host, "port": str(port)}],
        *(
            ["linkRoute", {"name": d, "prefix": "events", "direction": d, "connection": "broker"}]
            for d in ("in", "out")
        ),
        *more,
    ]
    return Service("router", entities=entities, credential=None if credential is None else str(credential))


async def status(c: Client) -> tuple[str, str]:
    """Return status and message of the connector, once it has connected or failed."""

    async def settled() -> Any:
        [row] = await query(c, "connector", "connectionStatus", "connectionMsg")
        return None if row[0] == "CONNECTING" else row

    found = await until(settled, "the connector has connected or failed")
    return found[0], found[1]


@asyncio_test
async def test_clients_reach_a_broker_that_knows_only_its_peers(
    suite: Suite, broker: Service, broker_port: int
) -> None:
    """A durable subscription behind the router belongs to the client, as the router's role says so."""
    port = free_port()
    async with dial(broker_port, suite.credential(Role.STORAGE_CONTROLLER)) as controller:
        await manage_broker(controller, "createAddress", "events", "MULTICAST")
        with router(port, broker_port, suite.credential_file(Role.ROUTER), saslMechanisms=SCRAM):
            async with connect(host="127.0.0.1", port=port, container_id="c1") as client:
                assert (await status(client))[0] == "SUCCESS"
                receiver = await client.receiver("events", durable_name="news", timeout=DEADLINE)
                sender = await client.sender("events", timeout=DEADLINE)
                assert await sender.send(Message("hello"), timeout=DEADLINE) is ACCEPTED
                assert (await receiver.receive(DEADLINE)).message.body == "hello"
                rows = json.loads(await manage_broker(controller, "listQueues", "", 1, 100))["data"]
                assert [row["name"] for row in rows if row["address"] == "events"] == ["c1.news"]


@asyncio_test
async def test_a_broker_refuses_a_router_with_the_credential_of_another_role(
    suite: Suite, broker: Service, broker_port: int
) -> None:
    port = free_port()
    with router(port, broker_port, suite.credential_file(Role.GATEWAY), saslMechanisms=SCRAM):
        async with connect(host="127.0.0.1", port=port) as client:
            await until(lambda: [e for e in broker.log() if e["event"] == EVENT and e["name"] == name_of(Role.GATEWAY)])
            assert (await status(client))[0] == "FAILED"


@pytest.mark.parametrize("how", ["text", "pass", "file", "env"])
@asyncio_test
async def test_a_connector_authenticates_with_a_name_and_a_password(
    suite: Suite, broker: Service, broker_port: int, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = suite.credential(Role.ROUTER).secret
    (tmp_path / "password").write_text(secret + "\n")
    monkeypatch.setenv("BROKER_PASSWORD", secret)
    given = {
        "text": secret,
        "pass": f"pass:{secret}",
        "file": f"file:{tmp_path}/password",
        "env": "env:BROKER_PASSWORD",
    }
    port = free_port()
    user = {"saslUsername": name_of(Role.ROUTER), "saslPassword": given[how], "saslMechanisms": SCRAM}
    with router(port, broker_port, None, **user) as process:
        async with connect(host="127.0.0.1", port=port) as client:
            assert (await status(client))[0] == "SUCCESS"
            assert await query(client, "connector", "saslPassword") == [["*****"]]
        assert secret not in str(process.log())


@asyncio_test
async def test_a_wrong_secret_is_refused_and_the_reason_shown(suite: Suite, broker: Service, broker_port: int) -> None:
    port = free_port()
    file = suite.folder / "wrong.json"
    file.write_bytes(msgspec.json.encode(Credential(name_of(Role.ROUTER), Role.ROUTER, "wrong")))
    with router(port, broker_port, file, saslMechanisms=SCRAM):
        async with connect(host="127.0.0.1", port=port) as client:
            state, message = await status(client)
            assert state == "FAILED" and "authentication by SCRAM-SHA-256 failed" in message, message
            file.write_bytes(msgspec.json.encode(suite.credential(Role.ROUTER)))  # read again for each attempt

            async def connected() -> bool:
                return (await status(client))[0] == "SUCCESS"

            await until(connected)


@asyncio_test
async def test_a_connector_with_scram_refuses_a_broker_without_peers(suite: Suite) -> None:
    """A program on the broker's port that accepts every client proves nothing."""
    port, broker_port = free_port(), free_port()
    with (
        Service("broker", listen=f"127.0.0.1:{broker_port}"),
        router(port, broker_port, suite.credential_file(Role.ROUTER), saslMechanisms=SCRAM),
    ):
        async with connect(host="127.0.0.1", port=port) as client:
            state, message = await status(client)
            assert state == "FAILED" and "the server offers ANONYMOUS, the client has SCRAM-SHA-256" in message, message


REFUSED_BODIES: list[tuple[str, dict[str, Any], str]] = [
    ("connector", {"saslMechanisms": SCRAM}, "needs saslUsername and saslPassword, or the setting credential"),
    ("listener", {"saslMechanisms": SCRAM, "authenticatePeer": True, "access": "services"}, "needs the setting peers"),
    ("listener", {"saslMechanisms": SCRAM, "authenticatePeer": True}, "belong together"),
    ("listener", {"saslMechanisms": SCRAM, "access": "services"}, "belong together"),
    ("listener", {"authenticatePeer": True, "access": "operators"}, "belong together"),
    (
        "listener",
        {"saslMechanisms": f"{SCRAM} ANONYMOUS", "authenticatePeer": True, "access": "operators"},
        "belong together",
    ),
]


@asyncio_test
async def test_entities_that_would_leave_a_door_open_are_refused(suite: Suite) -> None:
    port = free_port()
    with router(port, free_port(), None):
        async with connect(host="127.0.0.1", port=port) as client:
            for kind, body, reason in REFUSED_BODIES:
                properties = {"operation": "CREATE", "type": PREFIX + kind, "name": "made"}
                attributes = {"host": "127.0.0.1", "port": str(free_port()), **body}
                request = Message(application_properties=properties, body=AmqpValue(attributes))
                reply: Any = await client.request(request, "$management", timeout=DEADLINE)
                assert reply.application_properties["statusCode"] == 400, body
                assert reason in reply.application_properties["statusDescription"], body
