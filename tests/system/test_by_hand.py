"""Flavors that name a broker managed by hand, beside flavors whose brokers are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from enmasse.testing import Suite
from tests.broker.harness import BrokerProcess
from tests.load import receive, send
from tests.router.harness import Broker
from tests.system.conftest import QUEUE
from tests.system.exchange import exchange
from tests.system.seeing import carrier, kill, status, wait_address, wait_message, wait_process

NOTHING_BY_ITSELF = {"autoCreateQueues": False, "autoCreateAddresses": False}


@contextmanager
def using(suite: Suite, port: int, addresses: dict[str, Any]) -> Iterator[None]:
    """The suite has these addresses, on a broker that listens there; then neither any more."""
    parameters = {"HOST": "127.0.0.1", "PORT": port}
    flavors = {
        kind: {"type": kind, "templateName": f"{kind}-external", "templateParameters": parameters}
        for kind in ("queue", "topic")
    }
    suite.edit("flavors.json", flavors)
    suite.edit("addresses.json", addresses)
    try:
        yield
    finally:
        suite.edit("addresses.json", {}, remove=addresses)
        suite.edit("flavors.json", {}, remove=flavors)


def brokers(suite: Suite) -> set[str]:
    """Those that run as processes of the suite."""
    return {c["name"] for c in status(suite)["components"] if c["kind"] == "broker"}


def test_a_broker_managed_by_hand_serves_its_addresses_beside_others(suite: Suite, tmp_path: Path) -> None:
    hand = BrokerProcess(tmp_path, settings=NOTHING_BY_ITSELF)
    addresses = {
        "stock": {"type": "queue", "flavor": "queue"},
        "ticks": {"type": "topic", "flavor": "topic"},
        "beside": {"type": "queue", "flavor": QUEUE},
    }
    name = hand.url
    before = brokers(suite)
    try:
        with using(suite, hand.port, addresses):
            wait_message(suite, "stock", f"broker {name} cannot be reached at {name}")
            wait_address(suite, "beside", phase="Active")
            hand.start()
            wait_message(suite, "stock", f"broker {name} has no queue 'stock': make an address with an ANYCAST queue")
            wait_message(suite, "ticks", f"broker {name} has no topic 'ticks': make an address of this name with MULTI")
            with hand.manage() as m:
                m.queue("stock")
                m("createAddress", "ticks", "MULTICAST")
            suite.wait_ready()
            assert name in wait_address(suite, "stock", message="")["components"]
            exchange(suite.url, addresses)
            assert brokers(suite) == before, "none is made for it"
            controller = kill(suite, "storage_controller")
            hand.kill()
            wait_message(suite, "ticks", f"broker {name} cannot be reached")
            hand.start()
            wait_process(suite, "storage_controller", controller)
            suite.wait_ready()
            exchange(suite.url, addresses)
            _move(suite, hand)
        suite.wait_ready()
        with hand.manage() as m:
            mine = [each for each in m("getAddressNames") if len(each) < 36]  # the others are replies to who asks
            assert sorted(mine) == ["stock", "ticks"]
    finally:
        hand.stop()


def _move(suite: Suite, hand: BrokerProcess) -> None:
    """What lies on a made broker is drained; what lies on the other one stays there, and nobody of us touches it."""
    send(hand.url, "stock", 1)
    suite.edit("addresses.json", {"stock": {"type": "queue", "flavor": QUEUE}})
    suite.wait_ready()
    assert carrier(suite, "stock")["name"].startswith(QUEUE)
    exchange(suite.url, ["stock"])
    send(suite.url, "stock", 1)
    suite.edit("addresses.json", {"stock": {"type": "queue", "flavor": "queue"}})
    wait_message(suite, "stock", "still holds 1 message on broker")
    suite.wait_ready()
    assert len(receive(suite.url, "stock", 2)) == 2
    wait_address(suite, "stock", message="", phase="Active")


def test_a_broker_of_another_product_serves_its_addresses(suite: Suite) -> None:
    """It has no management that the suite knows: whether a queue is there the routers learn by their links."""
    other = Broker("other")
    other.refuse["stock"] = "amqp:not-found"
    addresses = {"stock": {"type": "queue", "flavor": "queue"}, "ticks": {"type": "topic", "flavor": "topic"}}
    with using(suite, other.port, addresses):
        wait_message(suite, "stock", "is failed: ")
        del other.refuse["stock"]
        suite.wait_ready()
        assert not wait_address(suite, "stock", phase="Active")["message"]
        wait_message(suite, "ticks", f"whether broker 127.0.0.1:{other.port} has this topic cannot be looked up")
        send(suite.url, "stock", 3)
    suite.wait_ready()
    assert {name: len(bodies) for name, bodies in other.stored.items()} == {"stock": 3}
    other.stop()
