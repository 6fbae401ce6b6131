"""Who reaches `$management`, what nobody can delete there, and what answers may take of the router's memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from tests.kit.waiting import DEADLINE
from tests.router.harness import (
    ADDRESS,
    CONNECTOR,
    LINK_ROUTE,
    LISTENER,
    Broker,
    Management,
    RouterProcess,
    body_of,
    comes,
    free_port,
    outcome_of,
    post,
    wait_for,
)

REFUSED = "amqp:unauthorized-access"


@pytest.fixture
def clients(management: Management) -> Iterator[BlockingConnection]:
    """A connection through a listener that carries no management."""
    port = free_port()
    made = management.create(LISTENER, "no-management", host="127.0.0.1", port=str(port), management=False)
    assert made["management"] is False
    assert management.one(LISTENER, "no-management")["operStatus"] == "up"
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE)
    yield connection
    connection.close()
    management.delete(LISTENER, "no-management")


@pytest.mark.parametrize(
    "node", ["$management", "amqp:/$management", "/$management", "_local/$management", "amqp:/_topo/0/r1/$management"]
)
def test_clients_reach_no_management(management: Management, clients: BlockingConnection, node: str) -> None:
    for attach in (clients.create_sender, clients.create_receiver):
        with pytest.raises(LinkDetached) as lost:
            attach(node)
        assert lost.value.condition == REFUSED
        assert "listener for operators" in str(lost.value)
    relay = clients.create_sender(None)
    request = {"operation": "DELETE", "type": LISTENER, "name": "no-management"}
    delivery = post(relay, Message(address=node, reply_to="any", properties=request, body={}))
    outcome_of(clients, delivery)
    assert delivery.remote_state == delivery.REJECTED
    assert delivery.remote.condition.name == REFUSED
    assert management.one(LISTENER, "no-management")


@pytest.mark.parametrize(
    "name", ["!!a/b", "amqp:/!!a/b", "/!!a/b", "amqp://host/!!a.b", "//!!a/b", "!!", "::!!a/b", "t::!!a/b"]
)
def test_clients_state_no_name_in_an_address_space(
    router: RouterProcess, management: Management, clients: BlockingConnection, name: str
) -> None:
    management.create(ADDRESS, "of a space", pattern="!!a/b", distribution="balanced")
    inside = BlockingConnection(f"127.0.0.1:{router.container_port}", timeout=DEADLINE)
    receiver = inside.create_receiver("!!a/b", credit=2)
    for attach in (clients.create_sender, clients.create_receiver):
        with pytest.raises(LinkDetached) as lost:
            attach(name)
        assert lost.value.condition == REFUSED
    refused = post(clients.create_sender(None), Message(address=name, body="client"))
    outcome_of(clients, refused)
    assert refused.remote_state == refused.REJECTED and refused.remote.condition.name == REFUSED
    post(inside.create_sender("!!a/b"), Message(body="process"))
    assert body_of(receiver.receive()) == "process"
    inside.close()
    management.delete(ADDRESS, "of a space")


@pytest.mark.parametrize("node", ["$mqtt/sessions", "amqp:/$mqtt.sessions", "/$mqtt/sessions", "$mqtt/wills"])
def test_clients_do_not_reach_what_services_tell_each_other(
    router: RouterProcess, management: Management, clients: BlockingConnection, node: str
) -> None:
    for direction in ("in", "out"):
        management.create(LINK_ROUTE, f"s-{direction}", prefix="$mqtt", direction=direction, containerId="s")
    gateway = BlockingConnection(f"127.0.0.1:{router.container_port}", timeout=DEADLINE)
    attaches = [(each.create_sender, each.create_receiver) for each in (clients, gateway)]
    try:
        for connection, condition in zip(attaches, (REFUSED, "qd:no-route-to-dest"), strict=True):
            for attach in connection:
                with pytest.raises(LinkDetached) as lost:
                    attach(node)
                assert lost.value.condition == condition
    finally:
        gateway.close()
        for direction in ("in", "out"):
            management.delete(LINK_ROUTE, f"s-{direction}")


@pytest.mark.parametrize("node", ["$mqtt/control", "amqp:/$mqtt.control", "/$mqtt/control"])
def test_clients_do_not_reach_what_operators_ask(
    router: RouterProcess, management: Management, clients: BlockingConnection, node: str
) -> None:
    management.create(ADDRESS, "control", pattern="$mqtt/control", distribution="balanced")
    service, operator = (
        BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE) for port in (router.container_port, router.port)
    )
    try:
        receiver = service.create_receiver("$mqtt/control", credit=2)
        for attach in (clients.create_sender, clients.create_receiver):
            with pytest.raises(LinkDetached) as lost:
                attach(node)
            assert lost.value.condition == REFUSED
        refused = post(clients.create_sender(None), Message(address=node, body="client"))
        outcome_of(clients, refused)
        assert refused.remote_state == refused.REJECTED and refused.remote.condition.name == REFUSED
        post(operator.create_sender("$mqtt/control"), Message(body="operator"))
        assert body_of(receiver.receive()) == "operator"
    finally:
        operator.close()
        service.close()
        management.delete(ADDRESS, "control")


@pytest.mark.parametrize(
    "node", ["$sub/b/mqtt.c", "amqp:/$sub/b/mqtt.c.d", "/$sub.b.share.g.1", "$sub/b%2Ec/retained", "$sub/b/mqtt/c"]
)
def test_clients_do_not_receive_for_mqtt_clients(
    router: RouterProcess, management: Management, clients: BlockingConnection, node: str
) -> None:
    """Subscriptions of their own lie beside them."""
    management.create(LINK_ROUTE, "b", prefix="$sub/b", direction="out", containerId="b")
    management.create(LINK_ROUTE, "b.c", prefix="$sub/b%2Ec", direction="out", containerId="b")
    gateway = BlockingConnection(f"127.0.0.1:{router.container_port}", timeout=DEADLINE)
    cases = [(clients, node, REFUSED), (gateway, node, "qd:no-route-to-dest")]
    cases += [(clients, own, "qd:no-route-to-dest") for own in ("$sub/b/mine", "$sub/b/%6Dqtt.c", "$sub/b/x/mqtt.c")]
    try:
        for connection, address, condition in cases:
            with pytest.raises(LinkDetached) as lost:
                connection.create_receiver(address)
            assert lost.value.condition == condition, address
    finally:
        gateway.close()
        for name in ("b", "b.c"):
            management.delete(LINK_ROUTE, name)


def test_clients_without_management_send_and_receive(clients: BlockingConnection, address: str) -> None:
    receiver = clients.create_receiver(address, credit=2)
    first = post(clients.create_sender(address), Message(body="by name"))
    second = post(clients.create_sender(None), Message(address=address, body="by the relay"))
    for delivery in (first, second):
        comes(receiver, "the message")
        receiver.receive()
        receiver.accept()
        assert outcome_of(clients, delivery) == delivery.ACCEPTED


def test_a_broker_that_was_dialled_reaches_no_management(management: Management, broker: Broker) -> None:
    management.create(
        CONNECTOR, "t-quiet", role="route-container", host="127.0.0.1", port=str(broker.port), management=False
    )
    wait_for(lambda: broker.connections)
    senders: list[Any] = []

    def attach() -> None:
        link = broker.connections[0].session()
        link.open()
        sender = link.sender("manager")
        sender.target.address = "$management"
        sender.open()
        senders.append(sender)

    broker.do(attach)
    wait_for(lambda: broker.do(lambda: senders[0].remote_condition and senders[0].remote_condition.name == REFUSED))
    management.delete(CONNECTOR, "t-quiet")


@pytest.mark.parametrize("by_type", [True, False])
@pytest.mark.parametrize("name", ["clients", "containers"])
def test_what_stands_in_the_configuration_file_stays(management: Management, name: str, by_type: bool) -> None:
    status, text, _ = management.call("DELETE", name=name, **({"type": LISTENER} if by_type else {}))
    assert status == 403
    assert text == f"listener '{name}' stands in the router's configuration file; change it there"
    assert management.one(LISTENER, name)["operStatus"] == "up"


def test_answers_for_a_receiver_without_credit_are_bounded(router: RouterProcess) -> None:
    connection = router.connect()
    inbox = connection.create_receiver(None, dynamic=True, credit=0)
    sender = connection.create_sender("$management")
    request = Message(
        properties={"operation": "GET-SCHEMA"}, reply_to=inbox.link.remote_source.address, correlation_id="1"
    )
    before = psutil.Process(router.process.pid).memory_info().rss
    size = 0
    for i in range(2500):
        connection.wait(lambda: sender.link.credit > 0, msg="credit")
        delivery = sender.link.send(request)
        if i == 0:
            inbox.link.flow(1)
            size = len(str(inbox.receive().body))
    connection.wait(lambda: delivery.settled, msg="all of them to be read")
    assert size > 10_000  # 2500 of them would be 59 MB
    assert psutil.Process(router.process.pid).memory_info().rss - before < 48_000_000
    connection.close()
