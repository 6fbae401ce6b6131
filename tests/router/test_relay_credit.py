"""The links of an anonymous sender to brokers, with brokers in memory: what waits for their credit, and where messages
go when the router's configuration changes."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.message import Message
from services.router.routing.brokers.relay import CAPABILITY
from services.router.routing.configuration import LinkRouteConfig
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.links.in_link import FURTHER
from tests.router.world import World, gateway_rights

WINDOW = 250
MANY = 3000
"""Several windows of the router's credit."""


class Broker(Handler):
    """It takes what its credit, which the test gives, lets come, and accepts it, if it `stores`."""

    stores = True

    def __init__(self, world: World, name: str) -> None:
        self.got: list[bytes] = []
        self.links: list[Receiver] = []
        self.record = record = RouterConnection(
            world.router, name=None, role="route-container", direction="in", host="127.0.0.1:1", capacity=250
        )
        self.far = Connection(RouterHandler(world.router), container_id="r", is_client=False)
        self.far.context = record
        record.amqp = self.far
        self.near = Connection(self, container_id=name, is_client=True, offered_capabilities=(CAPABILITY,))
        self.near.open()

    def on_attach(self, link: Link) -> None:
        assert isinstance(link, Receiver)
        link.accept(link.remote_source, link.remote_target)
        link.on_delivery = self._take
        self.links.append(link)

    def _take(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        self.got.append(payload)
        if not settled and self.stores:
            link.session.settle(delivery_id)

    def pump(self) -> None:
        self.far.receive(self.near.take_output())
        self.near.receive(self.far.take_output())


class Relay:
    """A client with an anonymous sender, or a gateway (`process`), and brokers with a link route each."""

    def __init__(self, *brokers: str, process: bool = False) -> None:
        self.world = World()
        if process:
            self.world.record.rights = gateway_rights()
        self.brokers = [Broker(self.world, name) for name in brokers]
        for name in brokers:
            self.route(name)
        self.sender: Sender = self.world.client.begin().attach_sender("relay", Source(), Target())
        self.pump()

    def route(self, name: str) -> None:
        config = LinkRouteConfig(self.world.router.next_identity(), name, "in", prefix="news", container_id=name)
        self.world.router.link_routes.add(config)

    def pump(self) -> None:
        for _ in range(4):
            for broker in self.brokers:
                broker.pump()
            self.world.pump()

    def send(self, number: int, settled: bool = True) -> bool:
        if self.sender.credit <= 0:
            self.pump()
        if self.sender.credit <= 0:
            return False
        self.sender.send(Message(str(number).encode(), to="news/one").encode(), object(), settled=settled)
        return True


def test_what_comes_settled_waits_for_a_slow_broker() -> None:
    relay = Relay("b")
    (broker,) = relay.brokers
    sent = 0
    for _ in range(MANY):
        if sent < MANY and relay.send(sent):
            sent += 1
            continue
        if broker.links:
            broker.links[0].grant(40)  # much slower than the sender
        relay.pump()
    assert sent > 1000
    while len(broker.got) < sent:
        before = len(broker.got)
        broker.links[0].grant(40)
        relay.pump()
        assert len(broker.got) > before, "something was lost"
    assert [Message.decode(payload).body for payload in broker.got] == [str(n).encode() for n in range(sent)]


def test_a_broker_that_takes_nothing_holds_up_nobody_for_long() -> None:
    relay = Relay("b")
    sent = 0
    while sent < MANY and relay.send(sent):
        sent += 1
    assert sent <= 3 * 250
    relay.world.look(2)
    for number in range(1000):  # dropped, as for every receiver without credit
        assert relay.send(sent + number)
    (broker,) = relay.brokers
    broker.links[0].grant(1000)
    relay.pump()
    assert Message.decode(broker.got[-1]).body == str(sent + 999).encode()


@pytest.mark.parametrize(
    ("process", "credit", "unsettled"), [(True, MANY, (1 + FURTHER) * WINDOW), (True, 0, WINDOW), (False, MANY, WINDOW)]
)
def test_a_gateway_has_several_windows_at_a_broker_that_takes_them(process: bool, credit: int, unsettled: int) -> None:
    relay = Relay("b", process=process)
    (broker,) = relay.brokers
    assert relay.send(-1, settled=False)
    relay.pump()
    broker.links[0].grant(1)
    relay.pump()
    broker.stores = False
    broker.links[0].grant(credit)
    sent = 0
    while sent < MANY and relay.send(sent, settled=False):
        sent += 1
        if sent % 16 == 0:
            relay.pump()
    assert unsettled - WINDOW // 2 < sent <= unsettled  # credit is topped up in steps of half a window


def test_a_message_goes_where_the_link_route_leads_now() -> None:
    relay = Relay("b", "c")
    first, second = relay.brokers
    router = relay.world.router
    router.link_routes.remove(router.link_routes.by_name["c"])
    for broker, number in ((first, 1), (first, 2)):
        assert relay.send(number, settled=False)
        relay.pump()
        for link in broker.links:
            link.credit_window = 100
        relay.pump()
    assert (len(first.got), len(second.got)) == (2, 0)
    relay.route("c")
    router.link_routes.remove(router.link_routes.by_name["b"])
    assert relay.send(3, settled=False)
    relay.pump()
    second.links[0].credit_window = 100
    relay.pump()
    assert (len(first.got), len(second.got)) == (2, 1)


def test_brokers_that_share_a_link_route_take_turns() -> None:
    relay = Relay("b", "c")
    for number in range(10):
        assert relay.send(number, settled=False)
        relay.pump()
        for broker in relay.brokers:
            for link in broker.links:
                link.credit_window = 100
    relay.pump()
    assert [len(broker.got) for broker in relay.brokers] == [5, 5]


@pytest.mark.parametrize("settled", [True, False])
def test_what_comes_together_is_forwarded_as_one_by_one(settled: bool) -> None:
    """Messages to two addresses of a broker and to none, with and without annotations, some that are no messages."""
    usual = [Message(b"%d" % n, to=f"news/{'one' if n % 20 < 15 else 'two'}").encode() for n in range(60)]
    strange = {
        11: b"\xff",
        12: Message(b"x").encode(),
        13: Message(b"x", to="nowhere").encode(),
        14: Message(b"x", to="news/one", annotations={"x-opt-qd.trace": "r"}).encode(),
        15: Message(b"x", to="news/one", annotations={"x-opt-other": 1}).encode(),
    }
    payloads = [strange.get(n, payload) for n, payload in enumerate(usual)]
    found = []
    for together in (True, False):
        relay = Relay("b")
        (broker,) = relay.brokers
        outcomes: list[tuple[int, str]] = []

        def note(link: object, tokens: list[int], state: object, settled: bool, into: list[Any] = outcomes) -> None:
            into.extend((token, type(state).__name__) for token in tokens)

        relay.world.client.handler.handler.on_outcomes = note  # type: ignore[method-assign]  # replaced by the test
        relay.send(-1)
        relay.send(-2, settled=False)
        relay.pump()
        broker.links[0].grant(1000)
        relay.pump()
        for n, payload in enumerate(payloads):
            relay.sender.send(payload, n, settled=settled)
            if not together:
                relay.pump()
        relay.pump()
        inlink = next(link for link in relay.world.record.links.values() if link.name == "relay")
        outlink = next(link for link in broker.record.links.values())
        counts = [(link.presettled, link.dropped, link.link.bytes) for link in (inlink, outlink)]
        found.append((broker.got, sorted(outcomes[1:], key=str), counts, outlink.address.relayed))  # type: ignore[attr-defined]  # of a RelayOut
    assert found[0] == found[1]
    assert len(found[0][0]) == 2 + 60 - 3
    assert len(found[0][1]) == (0 if settled else 60)
