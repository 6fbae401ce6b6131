"""A router with peers: who may connect to its inner listeners, attach where, and serve the nodes of services."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from enmasse.aio.client import connect
from enmasse.amqp.codec.errors import AmqpError
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
    message_refused,
    name_of,
    offered,
    query,
    refusal,
    refusals_logged,
)
from tests.kit.running import asyncio_test

NO_ROUTE = "qd:no-route-to-dest"
INNER = (Listener.SERVICES, Listener.OPERATORS)
NODES = ("$subctrl", "$mqtt/control", "$mqtt/sessions", "$mqtt/wills", "$lwt", "$sub/b0/mqtt.c1@s")
CASES = list(itertools.product(INNER, Role))
ADDRESSES = ("orders", "orders/new", *NODES)
MANAGEMENT = ("$management", "amqp:/$management", "/$management", "_local/$management", "_topo/0/r1/$management")
ELSEWHERE = "_topo/0/r2/$management"
"""Of another router of a mesh."""
SPELLINGS = ("$mqtt.sessions", "/$mqtt/sessions/", "//$mqtt/sessions", "amqp:/$mqtt/sessions", "amqp://h/$mqtt/wills")


class Ports(NamedTuple):
    services: int
    operators: int
    clients: int

    def of(self, listener: Listener) -> int:
        return self.services if listener is Listener.SERVICES else self.operators


def inner(name: str, port: int, **more: Any) -> list[Any]:
    """Return the static entity of an inner listener."""
    sasl = {"saslMechanisms": "SCRAM-SHA-256", "authenticatePeer": True, "access": name}
    return ["listener", {"name": name, "host": "127.0.0.1", "port": str(port), **sasl, **more}]


def node(name: str, container: str, direction: str) -> list[Any]:
    return [
        "linkRoute",
        {"name": f"{name} {direction}", "prefix": name, "direction": direction, "containerId": container},
    ]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="module")
def ports() -> Ports:
    return Ports(free_port(), free_port(), free_port())


@pytest.fixture(scope="module")
def router(suite: Suite, ports: Ports) -> Iterator[Service]:
    clients = {"name": "clients", "host": "127.0.0.1", "port": str(ports.clients), "management": False}
    entities = [
        ["router", {"id": "r1", "mode": "standalone", "defaultDistribution": "unavailable"}],
        ["address", {"name": "orders", "prefix": "orders", "distribution": "balanced"}],
        *(["address", {"name": each, "pattern": each}] for each in ("$subctrl", "$mqtt/control")),
        node("$lwt", "lwt-service", "in"),
        node("$mqtt/wills", "lwt-service", "in"),
        node("$mqtt/sessions", "subscription-service", "in"),
        node("$mqtt/sessions", "subscription-service", "out"),
        node("orders-of-b1", "b1", "in"),
        ["autoLink", {"name": "b1", "address": "orders", "direction": "in", "containerId": "b1"}],
        inner("services", ports.services, role="route-container", management=False),
        inner("operators", ports.operators),
        ["listener", clients],
    ]
    credential = str(suite.credential_file(Role.ROUTER))
    with Service("router", entities=entities, peers=str(suite.file), credential=credential) as process:
        yield process


@pytest.mark.parametrize(("listener", "role"), CASES)
@asyncio_test
async def test_a_role_may_do_exactly_what_the_table_lists(
    router: Service, suite: Suite, ports: Ports, listener: Listener, role: Role
) -> None:
    access, port, credential = TABLE[listener].get(role), ports.of(listener), suite.credential(role)
    assert (await refusal(port, credential) == REFUSED) is (access is None)
    if access is None:
        return
    async with dial(port, credential) as c:
        for address in ADDRESSES:
            assert await attach_refused(c, address, send=True) is not roles.may_send(access, address), address
            assert await message_refused(c, address) is not roles.may_send(access, address), address
            assert await attach_refused(c, address, send=False) is not roles.may_receive(access, address), address
        for address in SPELLINGS:
            plain = "$mqtt/wills" if "wills" in address else "$mqtt/sessions"
            assert await attach_refused(c, address, send=True) is not roles.may_send(access, plain), address
            assert await message_refused(c, address) is not roles.may_send(access, plain), address
        for address in MANAGEMENT:
            assert await attach_refused(c, address, send=True) is not access.manage, address
            assert await message_refused(c, address) is not access.manage, address
        assert await attach_refused(c, ELSEWHERE, send=True) is not access.manage
        assert await message_refused(c, ELSEWHERE) is not access.manage


@pytest.mark.parametrize(("listener", "role"), CASES)
@asyncio_test
async def test_a_name_without_its_secret_is_refused(
    router: Service, suite: Suite, ports: Ports, listener: Listener, role: Role
) -> None:
    """Each name, with the secret of each other process, and with a guess."""
    secrets = [secret for name, (_, secret) in suite.secrets.items() if name != name_of(role)]
    for secret in (*secrets, "a guess"):
        assert await refusal(ports.of(listener), Credential(name_of(role), role, secret)) == REFUSED


@pytest.mark.parametrize("listener", INNER)
@asyncio_test
async def test_other_mechanisms_and_connections_without_sasl_are_refused(
    router: Service, suite: Suite, ports: Ports, listener: Listener
) -> None:
    port = ports.of(listener)
    assert offered(port) == ["SCRAM-SHA-256"]
    assert await refusal(port, None) == REFUSED
    assert await refusal(port, None, plain=suite.credential(Role.OPERATOR)) == REFUSED
    assert answer_to(port, AMQP_HEADER, b"\0\0\0\x08\x02\0\0\0") == SASL_HEADER


@pytest.mark.parametrize("listener", INNER)
@asyncio_test
async def test_changed_peers_take_effect_for_new_connections(
    router: Service, suite: Suite, ports: Ports, listener: Listener
) -> None:
    role = next(iter(TABLE[listener]))
    before, old, name = dict(suite.secrets), suite.credential(role), name_of(role)
    port = ports.of(listener)
    try:
        suite.secrets[name] = (role, "another secret")
        suite.write()
        assert await refusal(port, old) == REFUSED
        assert await refusal(port, suite.credential(role)) == ""
        del suite.secrets[name]
        suite.write()
        assert await refusal(port, old) == REFUSED
    finally:
        suite.secrets = before
        suite.write()
    assert await refusal(port, old) == ""


@pytest.mark.parametrize(
    ("role", "container", "address", "serves"),
    [
        (Role.LWT, "lwt-service", "$lwt", True),
        (Role.LWT, "lwt-service", "$mqtt/wills", True),
        (Role.LWT, "subscription-service", "$mqtt/sessions", False),
        (Role.SUBSERV, "subscription-service", "$mqtt/sessions", True),
        (Role.SUBSERV, "lwt-service", "$lwt", False),
        (Role.GATEWAY, "subscription-service", "$mqtt/sessions", False),
        (Role.GATEWAY, "lwt-service", "$mqtt/wills", False),
        (Role.GATEWAY, "b1", "orders-of-b1", False),
    ],
)
@asyncio_test
async def test_a_container_id_alone_serves_no_node(
    router: Service, suite: Suite, ports: Ports, role: Role, container: str, address: str, serves: bool
) -> None:
    """Links of another gateway are passed on by the role of the peer that states the container-id."""
    product = {"product": "qpid-dispatch-router"}
    async with (
        dial(ports.services, suite.credential(role), container_id=container, properties=product) as service,
        dial(ports.services, suite.credential(Role.GATEWAY if "mqtt" in address else Role.LWT)) as c,
    ):
        await (await service.receiver(None, dynamic=True)).close()  # the router has it among its containers by now
        with pytest.raises(AmqpError) as refused:  # by the service itself, if the link is passed on
            await c.sender(address, timeout=DEADLINE)
        assert (refused.value.condition != NO_ROUTE) is serves, refused.value


@asyncio_test
async def test_a_container_id_alone_gets_no_auto_link(router: Service, suite: Suite, ports: Ports) -> None:
    async with (
        dial(ports.services, suite.credential(Role.GATEWAY), container_id="b1") as gateway,
        dial(ports.operators, suite.credential(Role.OPERATOR)) as operator,
    ):
        await (await gateway.receiver(None, dynamic=True)).close()
        rows = await query(operator, "router.config.autoLink", "name", "operStatus")
        assert rows == [["b1", "inactive"]]
        rows = await query(operator, "connection", "container", "user", "sasl")
        assert ["b1", name_of(Role.GATEWAY), "SCRAM-SHA-256"] in rows


@asyncio_test
async def test_no_client_serves_a_node_or_reaches_it(router: Service, suite: Suite, ports: Ports) -> None:
    async with (
        connect(host="127.0.0.1", port=ports.clients, container_id="subscription-service") as client,
        dial(ports.services, suite.credential(Role.GATEWAY)) as gateway,
    ):
        for address in ("$mqtt/sessions", "$mqtt/wills", *MANAGEMENT, *SPELLINGS):
            assert await attach_refused(client, address, send=True), address
            assert await message_refused(client, address), address
        with pytest.raises(AmqpError) as refused:
            await gateway.sender("$mqtt/sessions", timeout=DEADLINE)
        assert refused.value.condition == NO_ROUTE


@asyncio_test
async def test_refusals_are_logged_with_name_role_and_address(router: Service, suite: Suite, ports: Ports) -> None:
    await refusal(ports.services, Credential(name_of(Role.AUTHSERV), Role.AUTHSERV, "wrong"))
    await refusal(ports.services, suite.credential(Role.OPERATOR))
    async with dial(ports.services, suite.credential(Role.SUBSERV)) as c:
        await attach_refused(c, "$management", send=True)
        await message_refused(c, "$lwt")
    refusals_logged(
        router,
        suite,
        (name_of(Role.AUTHSERV), "", "authentication failed"),
        (name_of(Role.OPERATOR), Role.OPERATOR, "may not connect here"),
        (name_of(Role.SUBSERV), Role.SUBSERV, "may not use $management"),
        (name_of(Role.SUBSERV), Role.SUBSERV, "may not send to $lwt"),
    )
