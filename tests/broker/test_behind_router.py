"""Queues of the broker behind a real router: its auto-links stand for consumers that the broker does not see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message, symbol
from proton.utils import BlockingConnection, BlockingReceiver

from enmasse.amqp.codec.errors import AmqpError
from enmasse.identity.refused import Refusals
from services.broker.core.connections import ConnectionInfo
from services.broker.core.errors import BrokerError
from services.broker.nodes import Nodes
from tests.broker.harness import BrokerProcess, Management, attach, flush, modify, named, reject, take, until
from tests.broker.sansio import Core
from tests.router.harness import RouterProcess

QUEUES = ("work", "work.dead", "alone")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), settings={"maxDeliveryAttempts": -1}).start()
    with process.manage() as manage:
        for name in QUEUES:
            manage.queue(name)
        manage.settings("work", DLA="work.dead", maxDeliveryAttempts=10)
    yield process
    process.stop()


@pytest.fixture
def router(broker: BrokerProcess) -> Iterator[RouterProcess]:
    """A router with auto-links for the queues."""
    entities = [["connector", {"name": "b", "host": "127.0.0.1", "port": broker.port, "role": "route-container"}]]
    for name in QUEUES:
        entities.append(["address", {"name": name, "prefix": name, "waypoint": True}])
        for direction in ("in", "out"):
            link = {"name": f"{name}-{direction}", "address": name, "direction": direction, "connection": "b"}
            entities.append(["autoLink", link])
    process = RouterProcess(entities)
    yield process
    process.stop()


def through(router: RouterProcess, m: Management) -> BlockingConnection:
    """A client's connection, when the router's links to the broker are there."""
    until(lambda: all(m.rows()[name]["consumerCount"] == "1" for name in QUEUES), "the auto-links")
    return router.connect()


def deliveries(receiver: BlockingReceiver) -> int:
    """What has come to the receiver by now is refused, undeliverable here; how much that was."""
    count = 0
    while receiver.fetcher.has_message:
        receiver.fetcher.pop()
        modify(receiver, elsewhere=True)
        count += 1
    return count


def test_a_rejected_message_has_the_reason_and_the_consumer_behind_the_router(
    router: RouterProcess, m: Management
) -> None:
    c = through(router, m)
    c.create_sender("work").send(Message(body="x", durable=True))
    billing = router.connect(container=named("billing"))
    receiver = attach(billing, "work", 1)
    take(receiver)
    reject(receiver, "app:bad", "no such customer")
    dead = c.create_receiver("work.dead", credit=1)
    annotations = take(dead).annotations
    dead.accept()
    flush(dead)
    death = annotations[symbol("x-opt-death")]
    assert {key: death.get(key) for key in ("reason", "condition", "description", "consumer", "source")} == {
        "reason": "rejected",
        "condition": "app:bad",
        "description": "no such customer",
        "consumer": "billing",
        "source": "work",
    }
    billing.close()
    c.close()


def test_what_the_only_consumer_refuses_is_a_dead_letter(router: RouterProcess, m: Management) -> None:
    c = through(router, m)
    receiver = attach(c, "work", 10)
    c.create_sender("work").send(Message(body="x", durable=True))
    assert take(receiver).body == "x"
    modify(receiver, elsewhere=True)
    until(lambda: m.count("work.dead") == 1, "the dead letter")
    dead = c.create_receiver("work.dead", credit=1)
    assert take(dead).body == "x"
    dead.accept()
    flush(dead)
    assert m.count("work") == 0
    c.close()


def test_what_one_consumer_refuses_goes_to_another(router: RouterProcess, m: Management) -> None:
    c = through(router, m)
    refusing, other = attach(c, "work", 100, name="1"), attach(c, "work", 100, name="2")
    sender = c.create_sender("work")
    for n in range(20):
        sender.send(Message(body=n, durable=True))

        def come() -> bool:
            deliveries(refusing)
            return bool(other.fetcher.has_message)

        c.wait(come)
        assert take(other).body == n
        other.accept()
        flush(other)
    until(lambda: m.count("work") == 0, "all to be acknowledged")
    assert m.count("work.dead") == 0
    c.close()


def test_without_a_dead_letter_address_it_waits_for_whom_it_suits(router: RouterProcess, m: Management) -> None:
    c = through(router, m)
    refusing = attach(c, "alone", 1000, name="1")
    c.create_sender("alone").send(Message(body="x", durable=True))
    c.wait(lambda: refusing.fetcher.has_message)
    seen = 0

    def refused_often() -> bool:
        nonlocal seen
        seen += deliveries(refusing)
        return seen > 12  # without a delay, and after that with one

    c.wait(refused_often)
    other = attach(c, "alone", 10, name="2")

    def come() -> bool:
        deliveries(refusing)
        return bool(other.fetcher.has_message)

    c.wait(come)
    assert take(other).body == "x"
    other.accept()
    flush(other)
    until(lambda: m.count("alone") == 0, "it to be acknowledged")
    c.close()


def test_annotations_of_modified_reach_the_next_consumer(router: RouterProcess, broker: BrokerProcess) -> None:
    with broker.manage() as m:
        connection = through(router, m)
        connection.create_sender("alone").send(Message(body="x", durable=True, annotations={symbol("a"): 1}))
        receiver = attach(connection, "alone", 1)
        take(receiver)
        modify(receiver, failed=True, a=2, seen="by one")
        receiver.close()
        again = attach(connection, "alone", 1)
        message = take(again)
        assert (message.body, message.annotations) == ("x", {symbol("a"): 2, symbol("seen"): "by one"})
        again.accept()
        flush(again)
        until(lambda: m.count("alone") == 0, "the queue to be empty")
        connection.close()


@pytest.mark.parametrize(
    ("address", "space"),
    [
        ("jobs", None),
        ("!!one/jobs", "one"),
        ("$sub/b/mqtt.~boss%40one%2Fdevice@suite", "one"),
        ("$sub/b/mqtt.device@suite", None),
    ],
)
def test_what_a_router_is_refused_for_a_client_is_an_event_of_its_space(address: str, space: str | None) -> None:
    shown: list[dict[str, Any]] = []
    client = ConnectionInfo("1", "127.0.0.1:1", "router-0", "router-0", 0, close=lambda _: None)
    client.note_refused(Refusals(lambda: 0.0, shown.append), "receive", AmqpError("amqp:not-found", "x"), address)
    assert [each.get("space") for each in shown] == [space]


@pytest.mark.parametrize(
    ("address", "hint"),
    [("news.sport", "; its levels are separated by /: news/sport"), ("jobs.sport", ""), ("other", "")],
)
def test_dots_for_levels_are_named(address: str, hint: str) -> None:
    core = Core()
    core.queue("jobs")
    core.broker.catalogue.create_address("news", frozenset({"MULTICAST"}))
    client = ConnectionInfo("1", "127.0.0.1:1", "router-0", "router-0", 0, close=lambda _: None, router=True)
    nodes = Nodes(core.broker, client)
    for refused in (lambda: nodes.check_target(address, None), lambda: nodes.is_subscription(address, None)):
        with pytest.raises(BrokerError) as error:
            refused()
        text = str(error.value)
        assert text.endswith(hint) and (";" in text) is bool(hint)
