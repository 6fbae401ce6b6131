"""A flavor that is changed while its addresses carry load."""

from __future__ import annotations

import pytest

from enmasse.testing import Suite, wait_for
from tests.load import RATE, Client, Consumer, Producer
from tests.system.conftest import FLAVORS, SPREAD
from tests.system.seeing import carrier, status

MORE = [f"more-{i}" for i in range(3)]


def brokers(suite: Suite) -> set[str]:
    """The brokers of the flavor with several."""
    return {c["name"] for c in status(suite)["components"] if c["kind"] == "broker" and c["name"].startswith("three-")}


def change(suite: Suite, count: int) -> None:
    flavor = {**FLAVORS["three"], "templateParameters": {"BROKERS": count}}
    suite.edit("flavors.json", {"three": flavor})
    suite.wait_ready()


@pytest.mark.slow  # tests/storage_controller/test_controller.py, and moves in test_moving_topics.py
def test_more_and_fewer_brokers_of_a_flavor_lose_no_message(suite: Suite) -> None:
    """Growing disturbs nobody; what lies on a broker that is to go moves, and nothing is lost by it."""
    producers = [Producer(suite.url, name, rate=RATE) for name in SPREAD]
    consumers = [Consumer(suite.url, name) for name in SPREAD]
    clients: list[Client] = [*consumers, *producers]
    for client in clients:
        client.start()
    before = brokers(suite)
    assert len(before) == 3
    change(suite, 4)
    added = brokers(suite) - before
    assert len(added) == 1
    suite.edit("addresses.json", {name: {"type": "queue", "flavor": "three"} for name in MORE})
    suite.wait_ready()
    assert {carrier(suite, name)["name"] for name in MORE} == added  # the least loaded one
    for producer in producers:
        producer.wait_accepted(20)
    assert [client.disturbances for client in clients] == [[]] * len(clients)
    for name in MORE:
        producers.append(Producer(suite.url, name, rate=RATE))
        consumers.append(Consumer(suite.url, name))
        producers[-1].start()
        producers[-1].wait_accepted(20)
    change(suite, 3)
    for consumer in consumers[len(SPREAD) :]:
        consumer.start()
    wait_for("the fourth broker to go", lambda: brokers(suite) == before)
    for producer, consumer in zip(producers, consumers, strict=True):
        producer.wait_accepted(20)
        producer.enough()
        producer.wait_end()
        consumer.wait_all(producer)
        consumer.stop()
        assert producer.accepted == consumer.seen.keys() == set(range(producer.sent))
        assert consumer.doubles <= len(producer.in_doubt)
    assert {carrier(suite, name)["name"] for name in MORE} <= before
    suite.edit("addresses.json", {}, remove=MORE)
    suite.wait_ready()
