"""Connections and links that carry the same names: who stays, who is refused, with which reason."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Endpoint, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, DurableSubscription
from proton.utils import BlockingConnection, LinkDetached

from services.router.routing.brokers.routed_attaches import LEAVING_LINKS, UNDER_WAY
from tests.kit.waiting import DEADLINE
from tests.router.harness import LISTENER, Broker, Management, RouterProcess, free_port, pump, pump_until, wait_for
from tests.router.test_containers import connector, topic

STOLEN = "amqp:link:stolen"
SOLE = symbol("sole-connection-for-container")


@pytest.fixture
def topics(management: Management, broker: Broker) -> Iterator[Broker]:
    connector(management, broker)
    topic(management, "ids")
    yield broker
    for kind, names in (("connector", ["t-b0"]), ("router.config.linkRoute", ["t-ids-in", "t-ids-out"])):
        for name in names:
            management.delete(kind, name)


def connect(router: RouterProcess, container_id: str, port: int | None = None, **options: Any) -> BlockingConnection:
    container = Container()
    container.container_id = container_id
    url = router.url if port is None else f"127.0.0.1:{port}"
    return BlockingConnection(url, timeout=DEADLINE, container=container, **options)


def attach(connection: BlockingConnection, name: str) -> Any:
    """A receiver whose attach is on its way."""
    session = connection.conn.session()
    session.open()
    link = session.receiver(name)
    link.source.address = "ids"
    DurableSubscription().apply(link)
    link.open()
    pump(connection)
    return link


def open_links(session: Any, count: int) -> list[Any]:
    """Receivers whose attaches go with the next turn."""
    links = [session.receiver(f"l{n}") for n in range(count)]
    for link in links:
        link.source.address = "ids"
        link.open()
    return links


@pytest.mark.parametrize("waiters", [1, 2, 3])
def test_the_newest_of_all_that_wait_for_a_name_gets_it(router: RouterProcess, topics: Broker, waiters: int) -> None:
    clients = [connect(router, "same") for _ in range(waiters + 1)]
    first = attach(clients[0], "sub")
    pump_until(lambda: first.remote_source.address == "ids", "the first is attached", clients[0])
    go_on = threading.Event()
    stopped = threading.Thread(target=topics.do, args=(go_on.wait,))  # the broker does not answer for a while
    stopped.start()
    others = [attach(client, "sub") for client in clients[1:]]
    for client in clients[:-1]:
        with pytest.raises(LinkDetached) as lost:
            pump_until(lambda: False, "its link is over", client)
        assert lost.value.condition == STOLEN
    go_on.set()
    stopped.join()
    newest = others[-1]
    pump_until(lambda: newest.remote_source.address == "ids", "the newest has the name", clients[-1])
    assert wait_for(lambda: topics.names()) == ["sub@same"]
    for client in clients:
        client.close()
    wait_for(lambda: topics.names() == [])


def test_a_client_that_goes_while_it_waits_for_a_name(router: RouterProcess, topics: Broker) -> None:
    clients = [connect(router, "same") for _ in range(3)]
    first = attach(clients[0], "sub")
    pump_until(lambda: first.remote_source.address == "ids", "the first is attached", clients[0])
    go_on = threading.Event()
    stopped = threading.Thread(target=topics.do, args=(go_on.wait,))
    stopped.start()
    attach(clients[1], "sub")
    clients[1].close()  # its links go with it
    third = attach(clients[2], "sub")
    go_on.set()
    stopped.join()
    pump_until(lambda: third.remote_source.address == "ids", "the third has the name", clients[2])
    with pytest.raises(LinkDetached):
        pump_until(lambda: False, "the first link is over", clients[0])
    clients[0].close()
    clients[2].close()


def test_a_client_leaves_so_many_links_at_a_broker_and_no_more(router: RouterProcess, topics: Broker) -> None:
    """The handle of a link is free again before the broker has answered its end."""
    client, other = connect(router, "hasty"), connect(router, "calm")
    session = client.conn.session()
    session.open()
    left = open_links(session, LEAVING_LINKS)
    pump_until(lambda: all(link.remote_source.address == "ids" for link in left), "all are attached", client)
    go_on = threading.Event()
    stopped = threading.Thread(target=topics.do, args=(go_on.wait,))
    stopped.start()
    for link in left:
        link.close()
    pump_until(lambda: all(link.state & Endpoint.REMOTE_CLOSED for link in left), "the handles are free", client)
    beyond = open_links(session, 40)

    def turn() -> None:
        with contextlib.suppress(LinkDetached):  # the refusals
            pump(client)

    def refusals() -> list[str]:
        turn()
        return [link.remote_condition.name for link in beyond if link.remote_condition is not None]

    wait_for(lambda: len(refusals()) == 40, "those beyond are refused")
    assert set(refusals()) == {"amqp:resource-limit-exceeded"}
    waiting = attach(other, "mine")
    go_on.set()
    stopped.join()
    pump_until(lambda: waiting.remote_source.address == "ids", "somebody else is attached", other)
    wait_for(lambda: topics.names() == ["mine@calm"])
    [again] = open_links(session, 1)

    def attached() -> bool:
        turn()
        return bool(again.remote_source.address == "ids")

    wait_for(attached, "it may attach again")
    client.close()
    other.close()


def test_attaches_of_one_client_take_turns_at_a_broker(router: RouterProcess, topics: Broker) -> None:
    """A broker that is busy has few attaches of one client before it; those that are left meanwhile it never sees."""
    client, other = connect(router, "hasty"), connect(router, "calm")
    go_on = threading.Event()
    stopped = threading.Thread(target=topics.do, args=(go_on.wait,))
    stopped.start()
    session = client.conn.session()
    session.open()
    left = open_links(session, 300)
    pump(client)
    for link in left:
        link.close()
    pump_until(lambda: all(link.state & Endpoint.REMOTE_CLOSED for link in left), "the handles are free", client)
    kept = open_links(session, 100)
    pump(client)
    mine = attach(other, "mine")
    before = topics.attaches
    go_on.set()
    stopped.join()
    pump_until(lambda: mine.remote_source.address == "ids", "somebody else is attached", other)
    pump_until(lambda: all(link.remote_source.address == "ids" for link in kept), "all are attached", client)
    assert topics.attaches - before <= UNDER_WAY + len(kept) + 1
    client.close()
    other.close()
    wait_for(lambda: topics.names() == [])


class Refused(MessagingHandler):
    """Connects and keeps the reason if that is refused."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.refusal: tuple[Any, ...] = ()

    def on_start(self, event: Any) -> None:
        event.container.connect(self.url, reconnect=False, desired_capabilities=[SOLE])

    def on_connection_error(self, event: Any) -> None:
        condition = event.connection.remote_condition
        self.refusal = condition.name, condition.info, event.connection.remote_properties


def refused(port: int) -> None:
    handler = Refused(f"127.0.0.1:{port}")
    container = Container(handler)
    container.container_id = "jms"
    container.run()
    condition, info, properties = handler.refusal
    assert condition == "amqp:invalid-field"
    assert info == {symbol("invalid-field"): symbol("container-id")}
    assert properties[symbol("amqp:connection-establishment-failed")] is True


def test_a_container_id_that_wants_to_be_the_only_one(router: RouterProcess, management: Management) -> None:
    port = free_port()
    management.create(LISTENER, "another", host="127.0.0.1", port=str(port))
    other = connect(router, "somebody-else", desired_capabilities=[SOLE])
    first = connect(router, "jms", desired_capabilities=[SOLE])
    assert SOLE in list(first.conn.remote_offered_capabilities)
    refused(router.port)
    refused(port)
    free = connect(router, "jms", port)  # it does not ask
    first.close()
    refused(router.port)  # somebody of this name is there still
    free.close()
    wait_for(lambda: all(row["container"] != "jms" for row in management.query("connection")))
    connect(router, "jms", desired_capabilities=[SOLE]).close()
    other.close()
    management.delete(LISTENER, "another")
