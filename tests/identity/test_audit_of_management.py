"""Audit events of brokers and routers: who has deleted, purged, created or closed what, and who was refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from enmasse.amqp.messages.message import AmqpValue, Message
from enmasse.identity.processes.roles import Role
from enmasse.testing import free_port
from tests.identity.kit import DEADLINE, Service, Suite, dial, manage_broker, query, refusal
from tests.kit.running import asyncio_test


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def facts(line: dict[str, Any]) -> tuple[Any, ...]:
    assert line["from"].startswith("127.0.0.1:") and line["service"] == "s0"
    return tuple(line.get(key) for key in ("who", "role", "what", "outcome"))


def test_changes_through_the_management_of_a_broker_are_audited(tmp_path: Path) -> None:
    suite, port, file = Suite(tmp_path), free_port(), tmp_path / "audit.log"

    @asyncio_test
    async def manage() -> None:
        async with dial(port, suite.credential(Role.OPERATOR)) as c:
            await manage_broker(c, "createQueue", '{"name": "orders", "address": "orders", "routing-type": "ANYCAST"}')
            sender = await c.sender("orders", timeout=DEADLINE)
            for _ in range(3):
                await sender.send(Message("hello"), timeout=DEADLINE)
            properties = {"_AMQ_ResourceName": "queue.orders", "_AMQ_OperationName": "removeAllMessages"}
            await c.request(Message("[]", application_properties=properties), "activemq.management")
            await manage_broker(c, "destroyQueue", "orders")
            properties = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "destroyQueue"}
            await c.request(Message('["orders"]', application_properties=properties), "activemq.management")
        async with dial(port, suite.credential(Role.SUBSERV)) as c:
            await manage_broker(c, "createQueue", '{"name": "$sub/b/1", "address": "$sub/b/1"}')
            await manage_broker(c, "destroyQueue", "$sub/b/1")
        assert await refusal(port, suite.credential(Role.GATEWAY))

    with Service("broker", listen=f"127.0.0.1:{port}", peers=str(suite.file), audit=str(file), log_level="error"):
        manage()
    operator = ("operator-0", "operator")
    found = lines(file)
    assert [facts(line) for line in found[:2]] == [
        (*operator, "removeAllMessages queue.orders", "done"), (*operator, "destroyQueue orders", "done"),
    ]  # fmt: skip
    assert found[0]["result"] == 3
    assert facts(found[2])[:3] == (*operator, "destroyQueue orders") and "AMQ229017" in found[2]["outcome"]
    assert facts(found[3]) == ("mqtt_gateway-0", "mqtt_gateway", "may not connect here", "refused")
    assert len(found) == 4
    assert not [secret for _, secret in suite.secrets.values() if secret in file.read_text()]


def test_changes_through_the_management_of_a_router_are_audited(tmp_path: Path) -> None:
    suite, port, file = Suite(tmp_path), free_port(), tmp_path / "audit.log"
    entities = [
        ["router", {"id": "r1", "mode": "standalone"}],
        [
            "listener",
            {
                "name": "operators", "host": "127.0.0.1", "port": str(port), "saslMechanisms": "SCRAM-SHA-256",
                "authenticatePeer": True, "access": "operators",
            },
        ],
    ]  # fmt: skip

    @asyncio_test
    async def manage() -> None:
        async with (
            dial(port, suite.credential(Role.OPERATOR)) as c,
            dial(port, suite.credential(Role.OPERATOR), container_id="other"),
        ):

            async def ask(operation: str, kind: str, body: dict[str, Any], **which: str) -> None:
                properties = {"operation": operation, "type": f"org.apache.qpid.dispatch.{kind}", **which}
                await c.request(Message(application_properties=properties, body=AmqpValue(body)), "$management")

            await ask("CREATE", "router.config.address", {"prefix": "a"}, name="a")
            await ask("DELETE", "router.config.address", {}, name="a")
            await ask("DELETE", "router.config.address", {}, name="a")
            await ask("UPDATE", "log", {"enable": "s3cret+"}, name="log/DEFAULT")
            rows = await query(c, "connection", "container", "identity")
            (identity,) = [identity for container, identity in rows if container == "other"]
            await ask("UPDATE", "connection", {"adminStatus": "deleted"}, identity=identity)

    with Service(
        "router", entities=entities, peers=str(suite.file), credential=str(suite.credential_file(Role.ROUTER)),
        audit=str(file), log_level="error",
    ):  # fmt: skip
        manage()
    found = [facts(line) for line in lines(file)]
    operator = ("operator-0", "operator")
    assert found[:3] == [
        (*operator, "create address a", "done"), (*operator, "delete address a", "done"),
        (*operator, "delete address a", "404 Not Found"),
    ]  # fmt: skip
    assert found[3][2] == "update log log/DEFAULT enable"
    assert found[4][2].startswith("close connection ") and found[4][3] == "done"
    assert "s3cret" not in file.read_text()
