"""Closing connections at brokers that do not answer, and of clients that cannot be closed."""

from __future__ import annotations

import pytest

from enmasse.api.types import Connection
from enmasse.control import ControlConnection, ControlLink, ControlReceiver, connect, listen
from enmasse.engines.messages.products import ARTEMIS
from services.console.errors import RequestError
from services.console.following import closing
from services.console.following.configuration import Configuration
from services.console.following.followed_process import Node
from services.console.following.followers import Live
from services.console.following.subscribers import Subscribers
from tests.kit.running import asyncio_test
from tests.kit.waiting import until


@asyncio_test
async def test_a_broker_that_gives_no_credit_is_not_waited_for_without_end() -> None:
    links: list[ControlLink] = []

    def attach(link: ControlLink) -> None:
        links.append(link)
        if isinstance(link, ControlReceiver):
            link.accept()
            return
        link.proton_link.source.address = "reply-1"
        link.proton_link.open()
        link.connection.wake()

    def accepted(connection: ControlConnection) -> None:
        connection.on_attach = attach

    patch = pytest.MonkeyPatch()
    patch.setattr(closing, "CLOSING", 0.1)
    listener = await listen("127.0.0.1", 0, accepted, container="b")
    live = Live(Configuration("127.0.0.1:1", "console", None), None, {}, "console", None)
    node = live.brokers["b"] = Node("b", "the broker b")
    node.component, node.product = "b", ARTEMIS
    node.connection = connection = await connect("127.0.0.1", listener.port, container="console")
    row = Connection(id="b/7", component="b", protocol="amqp")
    try:
        with pytest.raises(RequestError, match=r"the broker b has not closed it: no answer within 0\.1 s"):
            await closing.close_connection(live, Subscribers(lambda: live.router.reached()), row)
        await until(lambda: len(links) == 2 and all(link.closed for link in links), "its links are closed")
    finally:
        connection.close()
        await listener.close()
        patch.undo()


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("http", "connects again with its next request"),
        ("stomp", "cannot be closed from here"),
        ("coap", "no connection to close"),
    ],
)
@asyncio_test
async def test_a_client_that_cannot_be_closed_has_other_remedies(protocol: str, reason: str) -> None:
    gateway = f"{protocol}_gateway-0"
    live = Live(Configuration("127.0.0.1:1", "console", None), None, {}, "console", None)
    node = live.gateways[gateway] = Node(gateway, gateway)
    node.component = gateway
    row = Connection(id=f"{gateway}/127.0.0.1:5#1", component=gateway, protocol=protocol)
    with pytest.raises(RequestError, match=f"{reason}: take the client's permissions away, or its user"):
        await closing.close_connection(live, Subscribers(lambda: live.router.reached()), row)
