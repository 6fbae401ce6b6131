"""Drains: how a receiver learns that it has got all there is for its credit (AMQP 1.0, 2.6.7). A router in memory."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from services.router.routing.configuration import MULTICAST, AddressConfig, AutoLinkConfig, LinkRouteConfig
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.router import Router
from tests.router.world import Clock

BODY = b"\x00\x53\x75\xa0\x01x"


class Peer(Handler):
    """A client, or the broker `b`, which has as many messages as the test gives it."""

    def __init__(self, router: Router, role: str, container: str) -> None:
        self.messages = 0
        self.got = 0
        self.drained = 0
        record = RouterConnection(router, name=None, role=role, direction="in", host="127.0.0.1:1", capacity=250)
        self.far = Connection(RouterHandler(router), container_id="r", is_client=False)
        self.far.context = record
        record.amqp = self.far
        self.near = Connection(self, container_id=container, is_client=True)
        self.near.open()

    def on_attach(self, link: Link) -> None:
        link.accept()

    def on_flow(self, link: Sender) -> None:
        while self.messages and link.credit > 0:
            self.messages -= 1
            link.send(BODY, object())
        if link.drain:
            link.drained()

    def on_delivery(
        self, link: Any, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        self.got += 1
        link.session.settle(delivery_id)

    def on_drained(self, link: Receiver) -> None:
        self.drained += 1


class World:
    """A router with an address `a` of this `kind` in which `waiting` messages wait for one receiver."""

    def __init__(self, kind: str) -> None:
        self.clock = Clock()
        self.router = router = Router("r", self.clock)
        self.client, self.broker = Peer(router, "normal", "c"), Peer(router, "route-container", "b")
        if kind == "multicast":
            router.add_address_config(AddressConfig(1, "a", pattern="a", treatment=MULTICAST))
        elif kind == "queue":
            router.add_address_config(AddressConfig(1, "a", pattern="a", ingress_phase=0, egress_phase=1))
            router.auto_links.add(AutoLinkConfig(2, "in", "a", "in", container_id="b"))
        elif kind == "routed":
            router.link_routes.add(LinkRouteConfig(2, "out", "out", pattern="a", container_id="b"))
        self.run()
        self.receiver = self.client.near.begin().attach_receiver("r", Source(address="a"), Target())
        self.run()
        self.stored = kind in ("queue", "routed")
        if not self.stored:
            self.sender = self.client.near.begin().attach_sender("s", Source(), Target(address="a"))
            self.run()

    def run(self) -> None:
        for _ in range(8):
            for peer in (self.client, self.broker):
                peer.far.receive(peer.near.take_output())
                self.clock.run()
                peer.near.receive(peer.far.take_output())

    def put(self, count: int) -> None:
        if self.stored:
            self.broker.messages += count
            for session in self.broker.near.sessions():
                session.resume_senders()
        else:
            for _ in range(count):
                self.sender.send(BODY, object())
        self.run()

    def drain(self) -> None:
        """Ask for a drain with whatever credit there is; clients' libraries do so with none, too."""
        self.receiver.draining = True
        self.receiver.want_flow()
        self.run()


@pytest.mark.parametrize("kind", ["anycast", "multicast", "queue", "routed"])
@pytest.mark.parametrize(("credit", "waiting"), list(product([0, 1, 5], [0, 1, 5, 6, 12])))
def test_a_drain_is_answered_whatever_credit_there_is_and_messages_wait(kind: str, credit: int, waiting: int) -> None:
    world = World(kind)
    world.put(waiting)
    world.receiver.grant(credit)
    world.run()
    assert world.client.got == min(credit, waiting)
    world.drain()
    assert world.client.drained == 1
    assert (world.receiver.credit, world.client.got) == (0, min(credit, waiting))
    world.receiver.grant(20)  # what is left was not lost
    world.run()
    assert world.client.got == waiting
    world.drain()
    assert world.client.drained == 2 and world.receiver.credit == 0


@pytest.mark.parametrize("kind", ["queue", "routed"])
@pytest.mark.parametrize("before", [False, True], ids=["flow-first", "messages-first"])
@pytest.mark.parametrize(("credit", "waiting"), list(product([1, 5], [0, 1, 4, 5, 6, 12])))
def test_a_drain_that_comes_with_its_credit_is_answered(kind: str, before: bool, credit: int, waiting: int) -> None:
    """The broker may have sent more than the receiver has credit for before it learns of the drain."""
    world = World(kind)
    if before:
        world.put(waiting)
    world.receiver.limit += credit
    world.receiver.draining = True
    world.receiver.want_flow()
    world.client.far.receive(world.client.near.take_output())
    if not before:
        world.put(waiting)
    world.run()
    assert world.client.got == min(credit, waiting)
    assert world.client.drained == 1 and world.receiver.credit == 0
    world.receiver.grant(20)
    world.run()
    assert world.client.got == waiting


def test_a_drain_is_answered_after_the_credit_was_taken_back() -> None:
    """The broker has sent what there was credit for, and the receiver takes less meanwhile."""
    world = World("routed")
    world.receiver.grant(5)
    world.run()
    world.receiver.limit = 0  # the engine's own receivers do not take credit back; other peers do
    world.receiver.want_flow()
    world.client.far.receive(world.client.near.take_output())
    world.put(5)
    assert world.client.got == 0
    world.drain()
    assert world.client.drained == 1
    world.receiver.grant(5)
    world.run()
    assert world.client.got == 5
