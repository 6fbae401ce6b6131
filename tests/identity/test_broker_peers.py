"""A broker with peers: rights come from the role of a credential, and from nothing that a peer states."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.amqp.termini import passed_on_name
from enmasse.identity.annotations import BROKERS_FACTS
from enmasse.identity.processes import roles
from enmasse.identity.processes.credentials import Credential
from enmasse.identity.processes.roles import TABLE, Listener, Role
from enmasse.testing import free_port
from tests.identity.kit import (
    AMQP_HEADER,
    DEADLINE,
    REFUSED,
    SASL_HEADER,
    Service,
    Suite,
    answer_to,
    attach_refused,
    dial,
    manage_broker,
    message_refused,
    name_of,
    offered,
    refusal,
    refusals_logged,
)
from tests.kit.running import asyncio_test

MANAGEMENT = "activemq.management"
ADDRESSES = ("orders", "events/a", "$sub/b0/mqtt.c1@s", "$sub/b0/retained.feed@s", "$other", "orders::orders")
ROLES = TABLE[Listener.BROKER]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(suite: Suite, port: int) -> Iterator[Service]:
    with Service("broker", listen=f"127.0.0.1:{port}", peers=str(suite.file)) as process:
        yield process


@pytest.mark.parametrize("role", Role)
@asyncio_test
async def test_a_role_may_do_exactly_what_the_table_lists(broker: Service, suite: Suite, port: int, role: Role) -> None:
    access = ROLES.get(role)
    assert (await refusal(port, suite.credential(role)) == REFUSED) is (access is None)
    if access is None:
        return
    async with dial(port, suite.credential(role)) as c:
        for address in ADDRESSES:
            name = address.partition("::")[0]
            assert await attach_refused(c, address, send=True) is not roles.may_send(access, name), address
            assert await message_refused(c, address) is not roles.may_send(access, name), address
            assert await attach_refused(c, address, send=False) is not roles.may_receive(access, name), address
        assert await attach_refused(c, MANAGEMENT, send=True) is not access.manage
        assert await message_refused(c, MANAGEMENT) is not access.manage


@pytest.mark.parametrize("role", Role)
@asyncio_test
async def test_a_name_without_its_secret_is_refused(broker: Service, suite: Suite, port: int, role: Role) -> None:
    """Each name, with the secret of each other process, and with a guess."""
    for name, (_, secret) in suite.secrets.items():
        if name != name_of(role):
            credential = Credential(name_of(role), role, secret)
            assert await refusal(port, credential) == REFUSED, name
    assert await refusal(port, Credential(name_of(role), role, "a guess")) == REFUSED


@asyncio_test
async def test_other_mechanisms_and_connections_without_sasl_are_refused(
    broker: Service, suite: Suite, port: int
) -> None:
    assert offered(port) == ["SCRAM-SHA-256"]
    assert await refusal(port, None) == REFUSED
    assert await refusal(port, None, plain=suite.credential(Role.ROUTER)) == REFUSED
    assert answer_to(port, AMQP_HEADER, b"\0\0\0\x08\x02\0\0\0") == SASL_HEADER


@asyncio_test
async def test_stated_product_and_link_name_give_no_rights(broker: Service, suite: Suite, port: int) -> None:
    """A durable subscription belongs to the client that a router names, or to the peer's own container-id."""
    link = passed_on_name("news", "victim")
    product = {"product": "qpid-dispatch-router"}
    async with dial(port, suite.credential(Role.OPERATOR), container_id="me", properties=product) as operator:
        await manage_broker(operator, "createAddress", "events", "MULTICAST")
        subscription = await operator.receiver("events", durable_name=link)
        async with dial(port, suite.credential(Role.ROUTER), container_id="r1") as router:
            passed_on = await router.receiver("events", durable_name=link)
            listed = json.loads(await manage_broker(operator, "listQueues", "", 1, 1000))["data"]
            names = {row["name"] for row in listed if row["address"] == "events"}
            assert names == {"victim.news", f"me.{link}"}
            await passed_on.close()
        await subscription.close()


@asyncio_test
async def test_a_queue_states_the_peer_that_created_it(broker: Service, suite: Suite, port: int) -> None:
    async with dial(port, suite.credential(Role.STORAGE_CONTROLLER)) as c:
        await manage_broker(c, "createQueue", json.dumps({"name": "made", "routing-type": "ANYCAST"}))
        listed = json.loads(await manage_broker(c, "listQueues", "", 1, 1000))["data"]
        assert [row["user"] for row in listed if row["name"] == "made"] == [name_of(Role.STORAGE_CONTROLLER)]


@pytest.mark.parametrize("relayed", [False, True])
@pytest.mark.parametrize("address", ["facts", "$sub/b0/facts@s"])
@pytest.mark.parametrize("role", [role for role, each in ROLES.items() if each.send])
@asyncio_test
async def test_the_subscription_service_alone_states_facts_and_only_to_subscribers(
    broker: Service, suite: Suite, port: int, role: Role, address: str, relayed: bool
) -> None:
    """At the broker's own port, too: not a router, the console, or an operator."""
    if not roles.may_send(ROLES[role], address):
        return
    stated = {Symbol(each.name + "ADDRESS" * each.is_prefix): "elsewhere" for each in BROKERS_FACTS}
    async with dial(port, suite.credential(Role.OPERATOR)) as operator, dial(port, suite.credential(role)) as c:
        queue = json.dumps(
            {"name": address, "address": address, "routing-type": "ANYCAST", "auto-create-address": True}
        )
        await manage_broker(operator, "createQueue", queue)
        sender = await c.sender(None if relayed else address)
        for durable in (False, True):
            message = Message(to=address, body="x", durable=durable)
            message.annotations = {**stated, Symbol("x-opt-mine"): "kept"}
            assert await sender.send(message, timeout=DEADLINE) is ACCEPTED
        receiver = await operator.receiver(address, credit=2)
        for _ in range(2):
            found = dict((await receiver.receive(DEADLINE)).message.annotations)
            assert found.pop("x-opt-mine") == "kept"
            assert found == (stated if role == Role.SUBSERV and address.startswith("$sub/") and not relayed else {})
        await manage_broker(operator, "destroyQueue", address, True, True)


@asyncio_test
async def test_a_router_may_have_several_connections(broker: Service, suite: Suite, port: int) -> None:
    async with dial(port, suite.credential(Role.ROUTER)) as first, dial(port, suite.credential(Role.ROUTER)) as second:
        for c in (first, second):
            await (await c.receiver(None, dynamic=True)).close()


@asyncio_test
async def test_changed_peers_take_effect_for_new_connections(broker: Service, suite: Suite, port: int) -> None:
    before = dict(suite.secrets)
    old = suite.credential(Role.SUBSERV)
    name = name_of(Role.SUBSERV)
    try:
        suite.secrets[name] = (Role.SUBSERV, "another secret")
        suite.write()
        assert await refusal(port, old) == REFUSED
        assert await refusal(port, suite.credential(Role.SUBSERV)) == ""
        del suite.secrets[name]
        suite.write()
        assert await refusal(port, old) == REFUSED
    finally:
        suite.secrets = before
        suite.write()
    assert await refusal(port, old) == ""


@asyncio_test
async def test_refusals_are_logged_with_name_role_and_address(broker: Service, suite: Suite, port: int) -> None:
    await refusal(port, Credential(name_of(Role.AUTHSERV), Role.AUTHSERV, "wrong"))
    await refusal(port, suite.credential(Role.GATEWAY))
    async with dial(port, suite.credential(Role.STORAGE_CONTROLLER)) as c:
        await attach_refused(c, "orders", send=True)
    refusals_logged(
        broker,
        suite,
        (name_of(Role.AUTHSERV), "", "authentication failed"),
        (name_of(Role.GATEWAY), Role.GATEWAY, "may not connect here"),
        (name_of(Role.STORAGE_CONTROLLER), Role.STORAGE_CONTROLLER, "may not send to orders"),
    )


def test_a_broker_without_peers_logs_it(tmp_path: Path) -> None:
    with Service("broker", listen=f"127.0.0.1:{free_port()}") as process:
        assert [line for line in process.log() if line.get("event") == "broker.peers.absent"]
