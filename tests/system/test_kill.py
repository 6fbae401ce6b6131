"""SIGKILL of one process after the other under acknowledged load: nothing that was accepted is lost."""

from __future__ import annotations

import pytest

from enmasse.testing import Suite
from tests.load import RATE, ROUTER_WINDOW, Client, Consumer, Producer, subscribe
from tests.system.conftest import SPREAD
from tests.system.seeing import carrier, component, kill, wait_address, wait_again

SOME = 100
"""Messages accepted before the kill, and after the recovery; in between there are as many as there are."""
CONTROL = ["configserv", "storage_controller", "ragent"]
DATA = ["the broker of orders", pytest.param("the broker of news", marks=pytest.mark.slow), "router-0"]


class Flow:
    """Load on a queue and on a topic with two durable subscriptions, one of which is away until the end."""

    def __init__(self, suite: Suite, rate: float | None = None) -> None:
        self.suite = suite
        subscribe(suite.url, "news", "system")
        self.away = Consumer(suite.url, "news", container_id="system", subscription="durable")
        self.live = Consumer(suite.url, "news", container_id="system-live", subscription="live")
        self.worker = Consumer(suite.url, "orders")
        self.producers = [Producer(suite.url, name, rate=rate) for name in ("orders", "news")]
        self.live.start()
        self.live.wait_attached()
        for client in (self.worker, *self.producers):
            client.start()

    def wait_some(self) -> None:
        """Until so many more are accepted by each."""
        for producer in self.producers:
            producer.wait_accepted(SOME)

    def finish(self) -> None:
        """Until everything was accepted, and came."""
        for producer in self.producers:
            producer.enough()
            producer.wait_end()
        self.away.start()
        for producer, consumer in self.pairs:
            consumer.wait_all(producer)
        for client in self.clients:
            client.stop()
        wait_address(self.suite, "orders", ready=True, messages=0, consumers=0)
        wait_address(self.suite, "news", ready=True, messages=0, consumers=0)

    @property
    def pairs(self) -> list[tuple[Producer, Consumer]]:
        orders, news = self.producers
        return [(orders, self.worker), (news, self.live), (news, self.away)]

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, self.worker, self.live, self.away]

    def check_counts(self, kills: int) -> None:
        """Every accepted message came; what came twice was in doubt, or under way when something died."""
        for producer, consumer in self.pairs:
            assert producer.accepted == consumer.seen.keys() == set(range(producer.sent))
            assert consumer.doubles <= len(producer.in_doubt) + kills * ROUTER_WINDOW


@pytest.mark.parametrize("victim", CONTROL)
@pytest.mark.slow
def test_killing_a_controller_disturbs_no_client(suite: Suite, victim: str) -> None:
    """Without losses, without doubles, in order, and without a link or an outcome being disturbed."""
    flow = Flow(suite, RATE)
    flow.wait_some()
    pid = kill(suite, victim)
    wait_again(suite, victim, pid)
    flow.wait_some()
    flow.finish()
    flow.check_counts(kills=0)
    assert [client.disturbances for client in flow.clients] == [[]] * 5
    for producer, consumer in flow.pairs:
        assert consumer.came == list(range(producer.sent))


@pytest.mark.parametrize("victim", DATA)
def test_killing_a_router_or_broker_loses_no_message(suite: Suite, victim: str) -> None:
    name = next((carrier(suite, a)["name"] for a in ("orders", "news") if victim.endswith(a)), victim)
    flow = Flow(suite)
    flow.wait_some()
    pid = kill(suite, name)
    wait_again(suite, name, pid)
    flow.wait_some()
    flow.finish()
    flow.check_counts(kills=1)
    assert any(client.disturbances for client in flow.clients)
    for producer, consumer in flow.pairs:
        if victim.startswith("the broker of") and not victim.endswith(producer.address):
            assert producer.disturbances == consumer.disturbances == []
            assert consumer.came == list(range(producer.sent))


@pytest.mark.slow
def test_three_brokers_share_addresses_and_fail_independently(suite: Suite) -> None:
    """Killing one of three brokers stops no producer of the addresses of the two others."""
    pools = {name: carrier(suite, name)["name"] for name in SPREAD}
    brokers = sorted(set(pools.values()))
    assert len(brokers) == 3
    assert {len([n for n in SPREAD if pools[n] == broker]) for broker in brokers} == {3}
    assert len({component(suite, broker)["pid"] for broker in brokers}) == 3
    producers = {name: Producer(suite.url, name, rate=RATE) for name in SPREAD}
    consumers = {name: Consumer(suite.url, name) for name in SPREAD}
    for client in (*producers.values(), *consumers.values()):
        client.start()
    for producer in producers.values():
        producer.wait_accepted(50)
    victim = pools[SPREAD[0]]
    others = [name for name in SPREAD if pools[name] != victim]
    pid = kill(suite, victim)
    for name in others:
        producers[name].wait_accepted(50)
    wait_again(suite, victim, pid)
    for name in SPREAD:
        producers[name].wait_accepted(50)
    for name, producer in producers.items():
        producer.enough()
        producer.wait_end()
        consumers[name].wait_all(producer)
        wait_address(suite, name, messages=0)  # a second copy of what was in doubt comes after the first ones
        consumers[name].stop()
        assert producer.accepted == consumers[name].seen.keys() == set(range(producer.sent))
    for name in others:
        assert producers[name].disturbances == consumers[name].disturbances == []
        assert consumers[name].came == list(range(producers[name].sent))
