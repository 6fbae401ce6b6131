"""Services that dial in as route containers, as the MQTT services do: their nodes, and what they do besides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from proton import Condition, ConnectionException, Endpoint, Message
from proton.utils import BlockingConnection, LinkDetached

from tests.router.harness import (
    ADDRESS,
    DEADLINE,
    LINK_ROUTE,
    Broker,
    Management,
    RouterProcess,
    body_of,
    post,
    pump,
    wait_for,
)


@pytest.fixture
def nodes(management: Management) -> Iterator[None]:
    management.create(LINK_ROUTE, "lwt", prefix="$lwt", direction="in", containerId="lwt-service")
    management.create(LINK_ROUTE, "sub-1", prefix="$sub/b1", direction="out", containerId="b1")
    management.create(LINK_ROUTE, "sub-10", prefix="$sub/b10", direction="out", containerId="b10")
    management.create(ADDRESS, "subctrl", pattern="$subctrl", distribution="balanced")
    yield
    for name in ("lwt", "sub-1", "sub-10"):
        management.delete(LINK_ROUTE, name)
    management.delete(ADDRESS, "subctrl")


def service(router: RouterProcess, name: str) -> Broker:
    return Broker(name, dial=f"127.0.0.1:{router.container_port}")


def tried(connection: BlockingConnection, address: str) -> str:
    """Attaches a sender; gives the condition with which it is refused, or nothing."""
    try:
        connection.create_sender(address)
    except LinkDetached as detached:
        return str(detached.condition)
    return ""


def attached(connection: BlockingConnection, address: str) -> None:
    """Attaches a sender as soon as the router knows the container."""
    wait_for(lambda: not tried(connection, address))


def test_a_node_is_there_as_long_as_its_service(router: RouterProcess, nodes: None) -> None:
    client = router.connect()
    assert tried(client, "$lwt") == "qd:no-route-to-dest"
    lwt = service(router, "lwt-service")
    attached(client, "$lwt")
    client.close()
    lwt.stop()
    client = router.connect()
    wait_for(lambda: tried(client, "$lwt") == "qd:no-route-to-dest")
    client.close()


def lose(client: BlockingConnection) -> None:
    client.conn.transport.close_tail()
    client.conn.transport.close_head()
    with contextlib.suppress(ConnectionException):
        pump(client)


def end_session(client: BlockingConnection) -> None:
    client.conn.session_head(0).close()
    pump(client)


ATTACHED = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE
"""State of the link that was accepted: those before it were refused, because the container was not known yet."""


def close_link(client: BlockingConnection) -> None:
    client.conn.link_head(ATTACHED).close()
    pump(client)


def close_link_with_an_error(client: BlockingConnection) -> None:
    client.conn.link_head(ATTACHED).condition = Condition("amqp:internal-error", "broken")
    close_link(client)


@pytest.mark.parametrize(
    ("leave", "condition"),
    [
        (lose, "qd:routed-link-lost"),
        (BlockingConnection.close, "qd:routed-link-lost"),
        (end_session, "qd:routed-link-lost"),
        (close_link, None),
        (close_link_with_an_error, "amqp:internal-error"),
    ],
)
def test_how_a_service_sees_a_client_leave(
    router: RouterProcess, nodes: None, leave: Callable[[BlockingConnection], None], condition: str | None
) -> None:
    """A detach of the client's passes as it is; whatever else ends its link has the router's condition."""
    lwt = service(router, "lwt-service")
    client = router.connect()
    attached(client, "$lwt")
    wait_for(lambda: lwt.links)
    leave(client)
    wait_for(lambda: lwt.detached)
    assert [(closed, reason) for _, closed, reason in lwt.detached] == [(True, condition)]
    lwt.stop()
    if client.conn is not None and client.conn.transport is not None:
        client.close()


def test_sessions_of_brokers_with_similar_names_do_not_mix(router: RouterProcess, nodes: None) -> None:
    first, tenth = service(router, "b1"), service(router, "b10")
    client = router.connect()
    for broker, address in ((first, "$sub/b1/mqtt.a"), (tenth, "$sub/b10/mqtt.a"), (first, "$sub/b1/share.g.x%2Fy")):
        broker.put(address, Message(body=broker.container_id))
        wait_for(lambda: router_knows(client, address))
        receiver = client.create_receiver(address, credit=1)
        assert body_of(receiver.receive()) == broker.container_id
        assert broker.link(address, sender=True) is not None
    client.close()
    for broker in (first, tenth):
        broker.stop()


def router_knows(client: BlockingConnection, address: str) -> bool:
    try:
        client.create_receiver(address, credit=0).close()
    except LinkDetached:
        return False
    return True


def test_a_service_is_a_client_besides(router: RouterProcess, nodes: None) -> None:
    """On the connection of a container: a receiver of an address, a sender without target, and an address of its own
    for answers."""
    url = f"127.0.0.1:{router.container_port}"
    service, client = (BlockingConnection(each, timeout=DEADLINE) for each in (url, router.url))
    requests = service.create_receiver("$subctrl", credit=10)
    replies = client.create_receiver(None, dynamic=True, credit=10)
    sender = client.create_sender("$subctrl")
    post(sender, Message(subject="list", reply_to=replies.link.remote_source.address))
    request = requests.receive()
    requests.accept()
    relay = service.create_sender(None)
    post(relay, Message(address=request.reply_to, body="answer"))
    assert body_of(replies.receive()) == "answer"
    own = service.create_receiver(None, dynamic=True, credit=10)
    assert own.link.remote_source.address.startswith("amqp:/_topo/0/r1/")
    post(client.create_sender(None), Message(address=own.link.remote_source.address, body="to the service"))
    assert body_of(own.receive()) == "to the service"
    for connection in (service, client):
        connection.close()
