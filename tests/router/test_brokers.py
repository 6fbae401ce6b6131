"""The router before real brokers: what an attach asks for reaches the broker behind the address, and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Delivery, Endpoint, Message, symbol
from proton import Terminus as PTerminus
from proton.reactor import AtLeastOnce, AtMostOnce, Copy, ReceiverOption, Selector, SenderOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from tests.broker.harness import BrokerProcess, Terminus, named
from tests.router.harness import (
    ADDRESS,
    AUTO_LINK,
    CONNECTOR,
    LINK_ROUTE,
    Management,
    RouterProcess,
    pump,
    pump_until,
    wait_for,
)

_names = count(1)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    started = [BrokerProcess(tmp_path_factory.mktemp(f"b{n}"), name=f"b{n}", data_dir=None).start() for n in range(2)]
    for n, broker in enumerate(started):
        with broker.manage() as m:
            m("createAddress", f"topic{n}", "MULTICAST")
    yield started
    for process in started:
        process.stop()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Stands for a service that has a node `$service`: nothing but that is to reach it."""
    process = BrokerProcess(tmp_path_factory.mktemp("service"), name="service", data_dir=None).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def dialled(router: RouterProcess, brokers: list[BrokerProcess], service: BrokerProcess) -> Iterator[Management]:
    """The router's management; it has connections to both brokers and a link route to each, and a service's."""
    management = router.management()
    for n, process in enumerate((service, *brokers)):
        name = "t-service" if process is service else f"t-b{n - 1}"
        management.create(CONNECTOR, name, role="route-container", host="127.0.0.1", port=str(process.port))
    management.create(LINK_ROUTE, "t-service", prefix="$service", direction="in", connection="t-service")
    management.create(LINK_ROUTE, "t-no-service", prefix="$other", direction="in", containerId="nobody")
    for n in range(len(brokers)):
        for direction in ("in", "out"):
            management.create(
                LINK_ROUTE, f"t-topic{n}-{direction}", prefix=f"topic{n}", direction=direction, connection=f"t-b{n}"
            )
    for name in ("t-service", "t-topic0-in", "t-topic1-in"):
        wait_for(lambda: management.one(LINK_ROUTE, name)["operStatus"] == "active")
    yield management
    management.clear("t-", LINK_ROUTE, CONNECTOR)
    management.close()


@pytest.fixture
def queue(dialled: Management, brokers: list[BrokerProcess]) -> Iterator[str]:
    """A queue on the first broker, fed and emptied by auto-links."""
    name = f"queue{next(_names)}"
    with brokers[0].manage() as m:
        m.queue(name)
    dialled.create(ADDRESS, f"t-{name}", pattern=name, waypoint=True)
    for direction in ("in", "out"):
        dialled.create(AUTO_LINK, f"t-{name}-{direction}", address=name, direction=direction, connection="t-b0")
    for direction in ("in", "out"):
        wait_for(lambda: dialled.one(AUTO_LINK, f"t-{name}-{direction}")["operStatus"] == "active")
    yield name
    for direction in ("in", "out"):
        dialled.delete(AUTO_LINK, f"t-{name}-{direction}")
    dialled.delete(ADDRESS, f"t-{name}")
    with brokers[0].manage() as m:
        m("destroyQueue", name, True, True)


@pytest.fixture
def connect(router: RouterProcess) -> Iterator[Callable[..., BlockingConnection]]:
    opened: list[BlockingConnection] = []

    def connect(container: str = "", **options: Any) -> BlockingConnection:
        opened.append(router.connect(**({"container": named(container)} if container else {}), **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


def taken(receiver: BlockingReceiver, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        found.append(receiver.receive().body)
        receiver.accept()
    return found


def held(broker: BrokerProcess, queue: str) -> int:
    with broker.manage() as m:
        return m.count(queue)


# Selectors and browsing


def test_a_selector_leaves_what_is_not_its_own(connect: Callable[..., BlockingConnection], queue: str) -> None:
    connection = connect()
    sender = connection.create_sender(queue)
    for n in range(6):
        sender.send(Message(body=n, properties={"odd": n % 2 == 1}))
    odd = connect().create_receiver(queue, credit=10, options=Selector("odd = TRUE"))
    assert odd.link.remote_source.address == queue
    odd.link.remote_source.filter.rewind()
    assert odd.link.remote_source.filter.next() is not None
    assert taken(odd, 3) == [1, 3, 5]
    assert taken(connection.create_receiver(queue, credit=10), 3) == [0, 2, 4]


@pytest.mark.parametrize("option", [AtLeastOnce(), AtMostOnce()])
def test_a_browser_takes_nothing(
    connect: Callable[..., BlockingConnection], queue: str, brokers: list[BrokerProcess], option: ReceiverOption
) -> None:
    connection = connect()
    sender = connection.create_sender(queue)
    for n in range(4):
        sender.send(Message(body=n))
    for n in range(2):
        browser = connection.create_receiver(queue, credit=10, name=f"browser-{n}", options=[Copy(), option])
        assert browser.link.remote_source.distribution_mode == PTerminus.DIST_MODE_COPY
        assert [browser.receive().body for _ in range(4)] == [0, 1, 2, 3]
        browser.close()
    assert held(brokers[0], queue) == 4
    assert taken(connection.create_receiver(queue, credit=10), 4) == [0, 1, 2, 3]


def test_who_wants_it_settled_gets_it_settled(
    connect: Callable[..., BlockingConnection], queue: str, brokers: list[BrokerProcess]
) -> None:
    """Through a routed link too: else the broker would wait for outcomes that never come."""
    connection = connect()
    sender = connection.create_sender(queue)
    for n in range(4):
        sender.send(Message(body=n, properties={"all": True}))
    receiver = connection.create_receiver(queue, credit=10, options=[Selector("all"), AtMostOnce()])
    assert [receiver.receive().body for _ in range(4)] == [0, 1, 2, 3]
    wait_for(lambda: held(brokers[0], queue) == 0, "nothing is left")


@pytest.mark.parametrize("wanted", [Terminus(durable=True), Terminus("shared"), Terminus("topic")])
def test_what_a_queue_has_not_is_refused(
    connect: Callable[..., BlockingConnection], queue: str, wanted: ReceiverOption
) -> None:
    with pytest.raises(LinkDetached, match=f"{queue} is of type queue and has no|{queue} is not configured for topic"):
        connect().create_receiver(queue, options=wanted)


def test_a_filter_nobody_knows_is_not_granted(connect: Callable[..., BlockingConnection], queue: str) -> None:
    receiver = connect().create_receiver(queue, options=Terminus(filters={"colour": "red"}))
    receiver.link.remote_source.filter.rewind()
    assert receiver.link.remote_source.filter.next() is None


# What waits is found at once


def test_a_drain_is_answered_when_the_broker_has_been_asked(
    connect: Callable[..., BlockingConnection], queue: str
) -> None:
    """Who asks for one message and no more gets it if there is one, right after the attach and later, whoever else
    has a window open."""
    connection, others = connect(), connect()
    sender = others.create_sender(queue)
    for n in range(60):
        if n == 20:
            idle = others.create_receiver(queue, credit=0, name="idle")
        sender.send(Message(body=n))
        receiver = connection.create_receiver(queue, credit=0, name=f"pull-{n}")
        receiver.link.drain(1)
        pump_until(lambda: not receiver.link.draining() or receiver.fetcher.has_message, "an answer", connection)
        assert receiver.fetcher.has_message, f"message {n} was not found"
        assert receiver.fetcher.pop().body == n
        receiver.accept()
        receiver.link.drain(1)
        pump_until(lambda: not receiver.link.draining(), "an answer", connection)
        assert not receiver.fetcher.has_message
        if n % 2:
            receiver.close()
    idle.close()


def test_after_a_drain_messages_come_as_before(connect: Callable[..., BlockingConnection], queue: str) -> None:
    connection, others = connect(), connect()
    receiver = others.create_receiver(queue, credit=100)
    pulling = connection.create_receiver(queue, credit=0, name="pull")
    sender = connection.create_sender(queue)
    for n in range(20):
        pulling.link.drain(1)
        pump_until(lambda: not pulling.link.draining(), "an answer", connection)
        sender.send(Message(body=n))
        assert taken(receiver, 1) == [n]


def test_who_asks_and_never_settles_holds_no_more_than_a_window(
    connect: Callable[..., BlockingConnection], queue: str
) -> None:
    """One message at a time or all at once: the session to the broker is everybody's."""
    connection = connect()
    sender = connect().create_sender(queue)
    for n in range(255):
        sender.send(Message(body=n))
    receiver = connection.create_receiver(queue, credit=0)
    found = []
    for _ in range(260):
        receiver.link.drain(1)
        pump_until(lambda: not receiver.link.draining() or receiver.fetcher.has_message, "an answer", connection)
        while receiver.fetcher.has_message:
            found.append(receiver.fetcher.pop().body)
    assert found == list(range(250))


# Temporary queues and topics


class Dynamic(SenderOption):
    def __init__(self, *wanted: str) -> None:
        self.wanted = wanted

    def apply(self, sender: Any) -> None:
        sender.target.dynamic = True
        if self.wanted:
            sender.target.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, *map(symbol, self.wanted)))


def test_a_temporary_queue_is_reached_by_everybody(
    connect: Callable[..., BlockingConnection], dialled: Management, brokers: list[BrokerProcess]
) -> None:
    """In turn at one broker and the other; from other connections, by senders of its own and by the relay."""
    owner, other = connect(), connect()
    for n in range(4):
        creator = owner.create_sender(None, name=f"creator-{n}", options=Dynamic("temporary-queue"))
        name = creator.link.remote_target.address
        sender = other.create_sender(name)
        sender.send(Message(body="to it"))
        other.create_sender(None, name=f"relay-{n}").send(Message(address=name, body="by the relay"))
        receiver = owner.create_receiver(name, credit=10, options=Terminus("temporary-queue"))
        assert taken(receiver, 2) == ["to it", "by the relay"]
        receiver.close()
        sender.send(Message(body="kept"))
        assert sum(name in rows(broker) for broker in brokers) == 1
        creator.close()
        wait_for(lambda: not any(name in rows(broker) for broker in brokers), "it is deleted")
        with pytest.raises((LinkDetached, SendException)):
            sender.send(Message(body="too late"))
        with pytest.raises(SendException):
            other.create_sender(None, name=f"late-{n}").send(Message(address=name, body="too late"))
        with pytest.raises(LinkDetached, match="not-found"):
            other.create_sender(name, name=f"new-{n}")


def rows(broker: BrokerProcess) -> dict[str, dict[str, str]]:
    with broker.manage() as m:
        return m.rows()


def test_a_temporary_queue_goes_with_its_connection(
    connect: Callable[..., BlockingConnection], dialled: Management, brokers: list[BrokerProcess]
) -> None:
    owner = connect()
    creator = owner.create_sender(None, options=Dynamic("temporary-queue"))
    name = creator.link.remote_target.address
    assert any(name in rows(broker) for broker in brokers)
    owner.close()
    wait_for(lambda: not any(name in rows(broker) for broker in brokers), "it is deleted")
    with pytest.raises(LinkDetached, match="not-found"):
        connect().create_receiver(name)


def test_without_brokers_the_router_has_temporary_addresses(router: RouterProcess) -> None:
    """They keep nothing, but request and reply go over them; a topic's go to every subscriber."""
    alone = RouterProcess([])
    try:
        with_service = alone.management()
        with_service.create(LINK_ROUTE, "service", prefix="$service", direction="in", containerId="nobody")
        with_service.close()
        for kind, consumers in (("queue", 1), ("topic", 2)):
            owner, reader, other, late = (alone.connect() for _ in range(4))
            creator = owner.create_sender(None, name=kind, options=Dynamic(f"temporary-{kind}"))
            name = creator.link.remote_target.address
            receivers = [reader.create_receiver(name, credit=1, name=f"{kind}-{n}") for n in range(consumers)]
            sender = other.create_sender(name)
            delivery = sender.link.send(Message(body=kind))
            pump(other)
            for receiver in receivers:
                assert receiver.receive().body == kind
                receiver.accept()
            pump(reader)
            pump_until(lambda: delivery.settled, "the outcome", other)
            assert delivery.remote_state == Delivery.ACCEPTED
            creator.close()
            with pytest.raises(LinkDetached, match="resource-deleted"):
                receivers[0].receive()
            with pytest.raises(LinkDetached, match="not-found"):
                late.create_sender(name)
            for connection in (owner, reader, other, late):
                connection.close()
    finally:
        alone.stop()


# Subscriptions by their name alone


class NullSource(ReceiverOption):
    def apply(self, receiver: Any) -> None:
        receiver.source.type = PTerminus.UNSPECIFIED


@pytest.mark.parametrize("topic", ["topic0", "topic1"])
def test_a_subscription_is_found_at_whichever_broker_it_lies(
    connect: Callable[..., BlockingConnection], dialled: Management, topic: str
) -> None:
    client = connect(f"subscriber-{topic}")
    client.create_receiver(topic, name="news", options=Terminus(durable=True)).link.detach()
    pump(client)
    connect().create_sender(topic).send(Message(body="kept"))
    client.close()
    again = connect(f"subscriber-{topic}")
    receiver = again.create_receiver(None, name="news", credit=1, options=NullSource())
    assert receiver.link.remote_source.address == topic
    assert taken(receiver, 1) == ["kept"]
    again.close()  # which is no end of the subscription
    again = connect(f"subscriber-{topic}")
    again.create_receiver(None, name="news", options=NullSource()).close()
    with pytest.raises(LinkDetached, match="not-found"):
        again.create_receiver(None, name="news", options=NullSource())


def test_a_subscription_that_may_be_at_an_absent_broker_is_not_said_to_be_none(
    connect: Callable[..., BlockingConnection], dialled: Management
) -> None:
    dialled.create(LINK_ROUTE, "t-away", prefix="away", direction="out", containerId="nobody")
    with pytest.raises(LinkDetached, match="on no broker that is connected, and not all are: try again"):
        connect("away").create_receiver(None, name="news", options=NullSource())
    dialled.delete(LINK_ROUTE, "t-away")


# The anonymous relay


def test_the_relay_reaches_topics(
    connect: Callable[..., BlockingConnection], dialled: Management, queue: str, brokers: list[BrokerProcess]
) -> None:
    connection, other = connect(), connect()
    subscribers = [other.create_receiver(f"topic{n}/below", credit=50, name=f"s{n}") for n in range(2)]
    relay = connection.create_sender(None)
    for n in range(20):
        for broker in range(2):
            relay.send(Message(address=f"topic{broker}/below", body=n))
        relay.send(Message(address=queue, body=n))
    for subscriber in subscribers:
        assert taken(subscriber, 20) == list(range(20))
    relay.send(Message(address="topic0/below", body="x" * 3_000_000))
    assert subscribers[0].receive().body == "x" * 3_000_000
    subscribers[0].accept()
    for wrong in (
        "nowhere",
        "topic1/#",
        "topic1/+/x",
        "topic1/#::q",
        "::",
        f"::{queue}",
        f"{queue}::other",
        f" {queue}",
    ):
        with pytest.raises(LinkDetached) as attached:
            connection.create_sender(wrong)
        delivery = relay.link.send(Message(address=wrong, body="?"))
        connection.wait(lambda delivery=delivery: delivery.remote_state)
        assert delivery.remote_state == Delivery.REJECTED
        assert delivery.remote.condition.name == attached.value.condition
        delivery.settle()
    relay.send(Message(address="topic1/below", body="after a refusal"))
    assert taken(subscribers[1], 1) == ["after a refusal"]
    assert held(brokers[0], queue) == 20
    relay.close()
    wait_for(lambda: relayed(dialled) == 0, "the links to the brokers have gone with the client's")


def relayed(management: Management) -> int:
    links = management.query("org.apache.qpid.dispatch.router.link", "linkName")
    return sum(str(row["linkName"]).startswith("relay.") for row in links)


def test_what_a_client_sent_settled_before_it_left_arrives(
    connect: Callable[..., BlockingConnection], dialled: Management
) -> None:
    subscriber = connect().create_receiver("topic0", credit=200)
    leaving = connect()
    relay = leaving.create_sender(None, options=AtMostOnce())
    leaving.wait(lambda: relay.link.credit >= 100)
    for n in range(100):
        relay.link.send(Message(address="topic0", body=n)).settle()
    leaving.close()
    assert taken(subscriber, 100) == list(range(100))


def test_a_delay_is_not_ignored(connect: Callable[..., BlockingConnection], dialled: Management, queue: str) -> None:
    connection = connect()
    relay = connection.create_sender(None)
    connect().create_receiver("any", credit=10)
    with pytest.raises(SendException):
        relay.send(Message(address="any", body="later", annotations={symbol("x-opt-delivery-delay"): 1000}))
    receiver = connection.create_receiver(queue, credit=1)
    relay.send(Message(address=queue, body="later", annotations={symbol("x-opt-delivery-delay"): 200}))
    assert taken(receiver, 1) == ["later"]


# Topics that are about to move


HELD = json.dumps({"holdSubscriptions": True})
BELOW = ["", "/below", "/#"]


def route(management: Management, topic: str, broker: int) -> None:
    for direction in ("in", "out"):
        name = f"t-{topic}-b{broker}-{direction}"
        management.create(LINK_ROUTE, name, prefix=topic, direction=direction, connection=f"t-b{broker}")


def unroute(management: Management, topic: str, broker: int) -> None:
    for direction in ("in", "out"):
        management.delete(LINK_ROUTE, f"t-{topic}-b{broker}-{direction}")


def subscriptions(broker: BrokerProcess, topic: str) -> int:
    with broker.manage() as m:
        return sum(topic in queue for queue in m("getQueueNames"))


@pytest.fixture
def leaving(dialled: Management, brokers: list[BrokerProcess]) -> Iterator[str]:
    """A topic on both brokers; clients reach the first one, where new durable subscriptions wait."""
    topic = f"leaving{next(_names)}"
    for broker in brokers:
        with broker.manage() as m:
            m("createAddress", topic, "MULTICAST")
    with brokers[0].manage() as m:
        m("addAddressSettings", topic, HELD)
    route(dialled, topic, 0)
    yield topic
    for number, broker in enumerate(brokers):
        dialled.clear(f"t-{topic}-b{number}", LINK_ROUTE)
        with broker.manage() as m:
            if topic in m("getAddressNames"):
                m("deleteAddress", topic, True)
            m("removeAddressSettings", topic)


def waiting(client: BlockingConnection, topic: str, below: str = "") -> Any:
    """The link of a durable subscription that the broker has read of, and not answered."""
    session = client.conn.session()
    session.open()
    link = session.receiver(f"news of {topic}")
    link.source.address = topic + below
    Terminus(durable=True).apply(link)
    link.open()
    link.flow(10)
    client.create_sender(topic, name=f"after it to {topic}").close()
    assert not link.state & Endpoint.REMOTE_ACTIVE
    return link


def answered(client: BlockingConnection, link: Any) -> None:
    pump_until(lambda: link.state & Endpoint.REMOTE_ACTIVE, "an answer to the attach", client)


@pytest.mark.parametrize("below", BELOW)
def test_a_durable_subscription_to_a_topic_that_moves_is_made_where_it_is_then(
    connect: Callable[..., BlockingConnection],
    dialled: Management,
    brokers: list[BrokerProcess],
    leaving: str,
    below: str,
) -> None:
    client = connect("mover")
    link = waiting(client, leaving, below)
    route(dialled, leaving, 1)
    unroute(dialled, leaving, 0)
    answered(client, link)
    assert link.remote_source.address == leaving + below
    assert [subscriptions(broker, leaving) for broker in brokers] == [0, 1]
    sender = connect().create_sender(leaving + below.replace("#", "a"))
    sender.send(Message(body="news"))
    pump_until(lambda: link.queued, "the message", client)
    with brokers[0].manage() as m:  # what waited there has left
        m("addAddressSettings", leaving, "{}")
    assert subscriptions(brokers[0], leaving) == 0


@pytest.mark.parametrize("below", BELOW)
def test_a_durable_subscription_to_a_topic_that_stays_is_made_there(
    connect: Callable[..., BlockingConnection], brokers: list[BrokerProcess], leaving: str, below: str
) -> None:
    client, gone = connect("stayer"), connect("gone")
    link = waiting(client, leaving, below)
    waiting(gone, leaving, below)
    gone.close()
    with brokers[0].manage() as m:
        m("addAddressSettings", leaving, "{}")
    answered(client, link)
    connect().create_sender(leaving + below.replace("#", "a")).send(Message(body="news"))
    pump_until(lambda: link.queued, "the message", client)
    assert [subscriptions(broker, leaving) for broker in brokers] == [1, 0]


def test_an_attach_that_waits_for_a_topic_ends_with_it(
    connect: Callable[..., BlockingConnection], brokers: list[BrokerProcess], leaving: str
) -> None:
    client = connect("loser")
    waiting(client, leaving)
    with brokers[0].manage() as m:
        m("deleteAddress", leaving, True)
    with pytest.raises(LinkDetached, match="not-found"):
        client.wait(lambda: False)


def test_what_is_no_new_durable_subscription_does_not_wait(
    connect: Callable[..., BlockingConnection], brokers: list[BrokerProcess], leaving: str
) -> None:
    with brokers[0].manage() as m:
        m("addAddressSettings", leaving, "{}")
    client = connect("present")
    client.create_receiver(leaving, name="news", options=Terminus(durable=True)).link.detach()
    pump(client)
    with brokers[0].manage() as m:
        m("addAddressSettings", leaving, HELD)
    client.create_receiver(leaving, name="news", options=Terminus(durable=True))
    client.create_receiver(leaving, name="passing")
    client.create_receiver(leaving, name="together", options=Terminus("shared"))
