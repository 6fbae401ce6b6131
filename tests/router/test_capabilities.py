"""Capabilities that clients desire of links which the router passes on. Client and broker are raw peers in memory."""

from __future__ import annotations

import pytest

from enmasse.amqp.callbacks import Guard
from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link
from services.router.routing.configuration import AddressConfig, AutoLinkConfig, LinkRouteConfig
from tests.router.test_section_checks import Foreign
from tests.router.world import World

KNOWN = ["DELAYED_DELIVERY", "SHARED-SUBS", "message-identity"]
FOREIGN = [
    "amq.mirror",
    "AMQ_FEDERATION_CONTROL_LINK",
    "AMQ_FEDERATION_QUEUE_RECEIVER",
    "AMQ_FEDERATION_ADDRESS_RECEIVER",
    "AMQ_CORE_MESSAGE_TUNNELING",
    "Delayed_Delivery",
    "qd.streaming-links",
]


class Broker(Foreign):
    """Notes what each attach desires."""

    def __init__(self, world: World) -> None:
        super().__init__(world, None, gateway=False)
        self.desired: list[tuple[str, ...]] = []
        self.termini: list[tuple[str, ...]] = []

    def on_attach(self, link: Link) -> None:
        assert link.remote_attach is not None
        self.desired.append(tuple(map(str, link.remote_attach.desired_capabilities or ())))
        for terminus in (link.remote_source, link.remote_target):
            self.termini.append(tuple(map(str, terminus.capabilities or ())))
        super().on_attach(link)


@pytest.mark.parametrize(
    ("desired", "passed_on"), [(FOREIGN + KNOWN, KNOWN), (KNOWN, KNOWN), *(([name], []) for name in FOREIGN)]
)
@pytest.mark.parametrize("way", ["sender", "receiver", "temporary queue", "queue with a filter"])
def test_a_broker_learns_of_those_that_the_suite_knows(way: str, desired: list[str], passed_on: list[str]) -> None:
    world = World()
    router = world.router
    router.add_address_config(AddressConfig(1001, "q", pattern="q", ingress_phase=0, egress_phase=1))
    for number, (direction, side) in enumerate([("q", "out"), ("q", "in")]):
        router.auto_links.add(AutoLinkConfig(1002 + number, side, direction, side, container_id="b"))
    for number, side in enumerate(["in", "out"]):
        router.link_routes.add(LinkRouteConfig(1010 + number, side, side, prefix="news", container_id="b"))
    broker = Broker(world)

    def pump() -> None:
        for _ in range(6):
            world.pump()
            broker.pump()

    pump()
    broker.desired.clear()
    world.client.handler = Guard(Handler())
    session = world.client.begin()
    wanted = tuple(map(Symbol, desired))
    if way == "sender":
        session.attach_sender("l", Source(), Target(address="news/one"), desired_capabilities=wanted)
    else:
        source = {
            "receiver": Source(address="news/one"),
            "temporary queue": Source(dynamic=True, capabilities=(Symbol("temporary-queue"),)),
            "queue with a filter": Source(address="q", distribution_mode=Symbol("copy")),
        }[way]
        session.attach_receiver("l", source, Target(), desired_capabilities=wanted)
    pump()
    assert broker.desired == [tuple(passed_on)]


@pytest.mark.parametrize("sends", [True, False])
def test_so_are_those_of_sources_and_targets(sends: bool) -> None:
    world = World()
    for number, side in enumerate(["in", "out"]):
        world.router.link_routes.add(LinkRouteConfig(1010 + number, side, side, prefix="news", container_id="b"))
    broker = Broker(world)
    for _ in range(3):
        world.pump()
        broker.pump()
    world.client.handler = Guard(Handler())
    session = world.client.begin()
    asked = tuple(map(Symbol, [*FOREIGN, "topic", "SHARED", "global"]))
    if sends:
        session.attach_sender("l", Source(capabilities=asked), Target(address="news/one", capabilities=asked))
    else:
        session.attach_receiver("l", Source(address="news/one", capabilities=asked), Target(capabilities=asked))
    for _ in range(6):
        world.pump()
        broker.pump()
    assert broker.termini == [("topic", "SHARED", "global")] * 2
