"""The name of a subscription's queue is its client's choice: alone it leads nowhere, and it is in nobody's way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message, symbol
from proton.utils import BlockingConnection, LinkDetached, SendException

from enmasse.amqp.termini import passed_on_name
from tests.broker.harness import BrokerProcess, Management, Terminus, attach, bodies, nothing
from tests.contract.test_termini import NullSource

KINDS = {
    "durable": (Terminus(durable=True), "a/b.c"),
    "shared": (Terminus("shared", durable=True), "a/b.c"),
    "shared-volatile": (Terminus("shared"), "a/b.c:shared-volatile"),
    "global": (Terminus("shared", "global", durable=True), "a/b.c:global"),
}
LINK = {"durable": "c", "shared": "c", "shared-volatile": "c", "global": "a/b.c"}
ROUTER = {symbol("product"): "qpid-dispatch-router"}


@pytest.fixture(scope="module", params=[False, True], ids=["direct", "behind a router"])
def through_router(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


@pytest.fixture(scope="module", params=["a", "a/b.c", "other"])
def topics(request: pytest.FixtureRequest, m_of: BrokerProcess) -> Iterator[str]:
    """The topic that is there: it covers the name of the subscription, or has it, or neither."""
    with m_of.manage() as manage:
        manage("createAddress", request.param, "MULTICAST")
        yield request.param
        manage("deleteAddress", request.param, True)


@pytest.fixture(scope="module")
def m_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"autoCreateAddresses": False, "autoCreateQueues": False}
    process = BrokerProcess(tmp_path_factory.mktemp("names"), settings=settings).start()
    yield process
    process.stop()


@pytest.fixture
def broker(m_of: BrokerProcess) -> BrokerProcess:
    return m_of


def connected(broker: BrokerProcess, client: str, through_router: bool) -> Any:
    return broker.connect("router" if through_router else client, properties=ROUTER if through_router else {})


@pytest.mark.parametrize("kind", KINDS)
def test_the_bare_name_of_a_subscription_leads_nowhere(
    broker: BrokerProcess, m: Management, topics: str, through_router: bool, kind: str
) -> None:
    """In neither direction: no receiver gets its messages, browses them or shares them, no sender puts any into it."""
    options, queue = KINDS[kind]

    def name(link: str, client: str) -> str:
        return passed_on_name(link, client) if through_router else link

    with connected(broker, "a/b", through_router) as c, connected(broker, "other", through_router) as d:
        mine = attach(c, topics, 0, name=name(LINK[kind], "a/b"), options=options)
        assert m.rows()[queue]["address"] == topics
        d.create_sender(topics, name=name("s", "other")).send(Message("kept"))
        for number, (capabilities, copy) in enumerate(itertools.product([(), ("queue",), ("topic",)], [False, True])):
            for address in (queue, f"::{queue}"):
                try:
                    theirs = attach(
                        d,
                        address,
                        5,
                        name=name(f"r{number}{address}", "other"),
                        options=Terminus(*capabilities, copy=copy),
                    )
                except LinkDetached:
                    continue
                nothing(theirs)  # a subscription of their own to a topic of this name
                assert m.rows()[queue]["consumerCount"] == "1"
                theirs.close()
        relay = d.create_sender(None, name=name("relay", "other"))
        for address in (queue, f"::{queue}"):
            if address.startswith("::") or not (topics == "a" or address == topics):
                with pytest.raises((SendException, LinkDetached)):
                    relay.send(Message("faked", address=address))
                with pytest.raises(LinkDetached):
                    d.create_sender(address, name=name(f"s{address}", "other"))
            elif topics == "a":
                relay.send(Message("to the topic's level", address=address))
        assert m.count(queue) == 1
        assert bodies(mine, 1) == ["kept"]
        mine.close()


@pytest.mark.parametrize("client", ["orders", "$sub/b0/mqtt", "DLQ"])
def test_the_name_of_a_subscription_is_in_nobodys_way(tmp_path: Path, client: str) -> None:
    """A queue that is to have its name gets it; the subscription stays its client's, also after a restart, with its
    messages."""
    broker = BrokerProcess(tmp_path).start()
    taken = f"{client}.eu"

    def subscribe(c: BlockingConnection) -> Any:
        return attach(c, "news", 0, name="eu", options=Terminus("topic", durable=True))

    with broker.manage() as m, broker.connect(client) as c:
        m("createAddress", "news", "MULTICAST")
        mine = subscribe(c)
        assert m.rows()[taken]["address"] == "news"
        sender = c.create_sender("news")
        sender.send(Message("before", durable=True))
        m.queue(taken)
        assert (m.rows()[taken]["address"], m.count(taken)) == (taken, 0)
        sender.send(Message("after", durable=True))
        c.create_sender(taken).send(Message("an order", durable=True))
        assert m.count(taken) == 1
        assert m.rows()[f"%1.{taken}"]["messageCount"] == "2"
        mine.detach()
    for _ in range(2):
        broker.restart()
        with broker.manage() as m, broker.connect(client) as c:
            mine = subscribe(c)
            assert {name: row["messageCount"] for name, row in m.rows().items() if taken in name} == {
                taken: "1",
                f"%1.{taken}": "2",
            }
            mine.detach()
    with broker.manage() as m, broker.connect(client) as c:
        mine = c.create_receiver(None, name="eu", credit=0, options=NullSource())  # by the link's name alone
        assert bodies(mine, 2) == ["before", "after"]
        mine.close()
        assert f"%1.{taken}" not in m.rows()
        assert bodies(attach(c, taken, 1), 1) == ["an order"]
        with pytest.raises(LinkDetached, match="already exists"):
            subscribe(c)
    broker.stop()


def test_a_queue_that_is_made_for_a_subscriber_is_the_subscription(broker: BrokerProcess, m: Management) -> None:
    m("createAddress", "sport", "MULTICAST")
    m("createQueue", "sport", "MULTICAST", "fan.goals", None, True, -1, False, False)
    with broker.connect("fan") as c:
        mine = attach(c, "sport", 0, name="goals", options=Terminus("topic", durable=True))
        with pytest.raises(LinkDetached):
            attach(c, "fan.goals", 0)
        c.create_sender("sport").send(Message("goal"))
        assert bodies(mine, 1) == ["goal"]
    m("deleteAddress", "sport", True)
