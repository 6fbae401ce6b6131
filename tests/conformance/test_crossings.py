"""Every crossing of MQTT and AMQP: QoS, type of address, clean and kept sessions, retained; with clients of others.

What is expected is what docs/mqtt.md promises. The cells of a test share its clients; each has a payload of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from proton import Message, symbol
from proton.reactor import ReceiverOption
from proton.utils import BlockingConnection, SendException

from enmasse.testing import Suite, wait_for
from tests.conformance.clients import DRIVERS, Driver, Got, Refused
from tests.conformance.test_sessions import Name
from tests.kit.waiting import DEADLINE

QOS = (0, 1, 2)
TYPES = {"queue": "orders", "topic": "news", "default topic": "", "anycast": "direct", "multicast": "all"}
SECONDS = DEADLINE
each_driver = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)


def crossed(*diagonals: int) -> pytest.MarkDecorator:
    """Return the cells of a test: in `make test` each client and each type for each diagonal, and over the tests of
    this file each pair of them; all in `make test-slow`."""
    cells = []
    for (row, driver), (column, kind) in itertools.product(enumerate(DRIVERS), enumerate(TYPES)):
        late = (row + column) % len(TYPES) not in diagonals
        cells.append(pytest.param(driver, kind, id=f"{driver.name}-{kind}", marks=(pytest.mark.slow,) if late else ()))
    return pytest.mark.parametrize(("driver", "kind"), cells)


class Topic(ReceiverOption):
    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(symbol("topic"))


def names(kind: str, unique: Name) -> tuple[str, str]:
    """The MQTT topic and the AMQP address of a cell. Below a topic nobody else is disturbed."""
    if kind == "topic":
        topic = f"news/{unique('t')}"
        return topic, topic
    if kind == "default topic":
        topic = unique("t")
        return topic, f"field/{topic}"
    return TYPES[kind], TYPES[kind]


@contextmanager
def amqp(suite: Suite) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(suite.url, timeout=SECONDS)
    try:
        yield connection
    finally:
        connection.close()


@crossed(0, 1)
def test_from_mqtt_to_amqp(running_suite: Suite, unique: Name, driver: Driver, kind: str) -> None:
    """Accepted and delivered with its QoS; a retained message is refused where nothing could retain it."""
    seen: dict[tuple[int, bool], Any] = {}
    wanted: dict[tuple[int, bool], Any] = {}
    with amqp(running_suite) as connection, ThreadPoolExecutor(1) as pool:
        for qos, retain in itertools.product(QOS, (False, True)):
            topic, address = names(kind, unique)
            cell, refused = (qos, retain), retain and "topic" not in kind
            if refused and not driver.notices(qos):
                continue
            options = Topic() if "topic" in kind else None
            receiver = connection.create_receiver(address, credit=10, name=unique("r"), options=options)
            payload = f"{driver.name} {cell}".encode()
            wanted[cell] = "refused" if refused else ("accepted", payload, qos > 0, qos)
            publishing = pool.submit(driver.publish, running_suite.mqtt_port, topic, payload, qos, retain)
            if not refused:  # which takes until the receiver has accepted it, where nothing stores it
                message = receiver.receive()
                if receiver.fetcher.unsettled:
                    receiver.accept()
                qos_seen = (message.annotations or {}).get("x-opt-mqtt-qos")
                seen[cell] = ("accepted", bytes(message.body), message.durable, qos_seen)
            receiver.close()
            try:
                publishing.result()
            except Refused:
                seen[cell] = "refused"
            if retain and not refused:
                driver.publish(running_suite.mqtt_port, topic, b"", 1, True)
    assert seen == wanted


@crossed(2)
def test_from_amqp_to_mqtt(running_suite: Suite, unique: Name, driver: Driver, kind: str) -> None:
    """With the lower of the granted QoS and 1 (durable) or 0, to clean and kept sessions."""
    seen, wanted = {}, {}
    with amqp(running_suite) as connection:
        for granted, durable, kept in itertools.product(QOS, (False, True), (False, True)):
            topic, address = names(kind, unique)
            cell = (granted, durable, kept)
            payload = f"{driver.name} {cell}".encode()
            wanted[cell] = Got(topic, payload, min(granted, int(durable)), False)
            client = unique("c")
            with driver.subscribed(running_suite.mqtt_port, client, topic, granted, kept) as subscriber:
                sender = connection.create_sender(address, name=unique("s"))
                sent(sender, Message(body=payload, durable=durable))
                sender.close()
                seen[cell] = subscriber.next()
            ended(driver, running_suite, client, topic, kept)
    assert seen == wanted


def sent(sender: Any, message: Message) -> None:
    """An anycast or multicast receiver may not be known yet: released is not refused."""

    def accepted() -> bool:
        try:
            sender.send(message)
        except SendException:
            return False
        return True

    wait_for("a receiver", accepted)


def ended(driver: Driver, suite: Suite, client: str, topic: str, kept: bool) -> None:
    """A kept session is discarded by a clean one of the same client id."""
    if kept:
        with driver.subscribed(suite.mqtt_port, client, topic, 0, False):
            pass


@crossed(3)
def test_from_mqtt_to_mqtt(running_suite: Suite, unique: Name, driver: Driver, kind: str) -> None:
    """With the lower QoS; RETAIN only on what a later subscriber gets."""
    port = running_suite.mqtt_port
    seen, wanted = {}, {}
    for qos, granted, kept in [(0, 2, False), (1, 1, True), (2, 2, False), (2, 1, True), (1, 0, False), (2, 2, True)]:
        topic, _ = names(kind, unique)
        cell = (qos, granted, kept)
        payload = f"{driver.name} {cell}".encode()
        wanted[cell] = Got(topic, payload, min(qos, granted), False)
        client = unique("c")
        with driver.subscribed(port, client, topic, granted, kept) as subscriber:
            driver.publish(port, topic, payload, qos, False)
            seen[cell] = subscriber.next()
        ended(driver, running_suite, client, topic, kept)
    assert seen == wanted


@pytest.mark.parametrize("kind", ["topic", "default topic"])
@each_driver
def test_retained_over_mqtt_and_amqp(running_suite: Suite, unique: Name, driver: Driver, kind: str) -> None:
    """What was retained by either is what a later MQTT subscriber gets first, in every QoS."""
    port = running_suite.mqtt_port
    topic, address = names(kind, unique)
    for qos in (1, 2):
        driver.publish(port, topic, b"mqtt %d" % qos, qos, True)
        for granted in QOS:
            with driver.subscribed(port, unique("c"), topic, granted, False) as subscriber:
                assert subscriber.next() == Got(topic, b"mqtt %d" % qos, min(qos, granted), True)
    with amqp(running_suite) as connection:
        sender = connection.create_sender(address, name=unique("s"))
        sender.send(Message(body=b"amqp", durable=True, annotations={symbol("x-opt-retain-message"): True}))

    def amqp_is_kept() -> bool:  # eventually: the sender does not wait for the store
        with driver.subscribed(port, unique("c"), topic, 2, False) as subscriber:
            return subscriber.next() == Got(topic, b"amqp", 1, True)

    wait_for("the message from AMQP among the retained", amqp_is_kept)
    driver.publish(port, topic, b"", 1, True)


@crossed(4)
def test_to_a_client_that_is_away(running_suite: Suite, unique: Name, driver: Driver, kind: str) -> None:
    """Topics collect for its session, a queue keeps its messages itself; anycast refuses, multicast forgets them."""
    port = running_suite.mqtt_port
    topic, _ = names(kind, unique)
    client = unique("c")
    with driver.subscribed(port, client, topic, 2, True):
        pass
    if kind == "anycast" and not driver.notices(1):
        pass
    elif kind == "anycast":
        with pytest.raises(Refused):
            driver.publish(port, topic, b"nobody", 1, False)
    else:
        for qos in (1, 2):
            driver.publish(port, topic, b"away %d" % qos, qos, False)
    with driver.subscribed(port, client, topic, 2, True) as subscriber:
        driver.publish(port, topic, b"back", 1, False)
        want = [b"back"] if kind in ("anycast", "multicast") else [b"away 1", b"away 2", b"back"]
        assert sorted(subscriber.next().payload for _ in want) == want  # ordered for each QoS only
    ended(driver, running_suite, client, topic, True)


@each_driver
def test_narrower_filters(running_suite: Suite, unique: Name, driver: Driver) -> None:
    """Below a multicast address the gateway filters; on a queue or anycast address that would lose messages."""
    port = running_suite.mqtt_port
    for address in ("orders", "direct"):
        with pytest.raises(Refused), driver.subscribed(port, unique("c"), f"{address}/a/+", 1, False):
            pass
        with driver.subscribed(port, unique("c"), f"{address}/#", 1, False) as subscriber:
            driver.publish(port, f"{address}/a/b", b"whole", 1, False)
            assert subscriber.next() == Got(f"{address}/a/b", b"whole", 1, False)
    with driver.subscribed(port, unique("c"), "all/a/+", 1, False) as subscriber:
        for topic in ("all/b/c", "all", "all/a/b/c", "all/a/b"):
            driver.publish(port, topic, topic.encode(), 1, False)
        assert subscriber.next() == Got("all/a/b", b"all/a/b", 1, False)
