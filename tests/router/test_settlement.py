"""Settlement at random, all in memory: receivers of a broker's queue (at the broker, behind a router, over a routed
link) and of an anycast address state outcomes in any order, of any range, with and without settling, and leave.

Each delivery has exactly one outcome, and none reaches another delivery.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Disposition,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Terminal,
)
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import FIRST, SECOND, Receiver, Sender
from enmasse.amqp.messages.message import Message
from services.router.routing.configuration import AddressConfig, AutoLinkConfig, LinkRouteConfig
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.router import Router
from tests.broker.sansio import Core, broker_connection
from tests.router.world import Clock

FAILED = Modified(delivery_failed=True)
RECEIVED = Received(section_number=0, section_offset=0)
STATES = [None, RECEIVED, ACCEPTED, RELEASED, FAILED, Rejected()]
DEFAULTS = [None, ACCEPTED, RELEASED, FAILED]
MANY = 12
"""Messages of a run."""


class Wire:
    """Two connections back to back."""

    def __init__(self, near: Connection, far: Connection) -> None:
        self.near, self.far = near, far

    def pump(self) -> bool:
        there = self.near.take_output()
        self.far.receive(there)
        back = self.far.take_output()
        self.near.receive(back)
        return bool(there or back)


class Held:
    """A delivery at a client, and what that has stated of it."""

    def __init__(self, link: Receiver, number: int) -> None:
        self.link, self.number = link, number
        self.stated: Any = None


class Client(Handler):
    """Keeps what comes; its dispositions are raw frames, as no engine of ours would send them."""

    def __init__(self, world: World, far: Connection) -> None:
        self.world = world
        self.near = Connection(self, container_id="c", is_client=True)
        self.wire = Wire(self.near, far)
        self.near.open()
        world.wires.append(self.wire)
        world.run()
        self.session = self.near.begin()
        self.held: dict[int, Held] = {}
        self.links: list[Receiver] = []

    def attach(self, mode: int, default: Any, credit: int) -> None:
        source = Source(address="a", default_outcome=default)
        name = f"r{next(self.world.names)}"
        link = self.session.attach_receiver(name, source, Target(), rcv_settle_mode=mode)
        link.grant(credit)
        self.links.append(link)

    def on_delivery(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        message = Message.decode(payload)
        self.world.came(message)
        self.held[delivery_id] = Held(link, message.body)

    def on_settled(self, link: Receiver, delivery_ids: Any) -> None:
        for delivery_id in delivery_ids:
            if self.held.pop(delivery_id).stated is None:
                self.world.wrong.append(f"{delivery_id} was settled by its sender without an outcome")

    def dispose(self, first: int, last: int, state: Any, settled: bool) -> None:
        """One frame for a range, which may hold deliveries of other links, settled ones and none at all."""
        self.session.send(Disposition(role=True, first=first, last=last, settled=settled, state=state))
        for delivery_id in range(first, last + 1):
            held = self.held.get(delivery_id)
            if held is None:
                continue
            if isinstance(state, Terminal) and held.stated is None:
                held.stated = state
                self.world.decided(held.number, state)
            if settled:
                del self.held[delivery_id]
                self.session.incoming.unsettled.pop(delivery_id, None)
                if held.stated is None:
                    default = held.link.source.default_outcome
                    self.world.decided(held.number, default or RELEASED)

    def leave(self, links: list[Receiver], *, lost: bool) -> None:
        """These links end; of each that is `lost` the oldest undecided delivery counts as failed."""
        for link in links:
            self.links.remove(link)
            mine = [delivery_id for delivery_id, held in self.held.items() if held.link is link]
            undecided = [held for held in map(self.held.pop, mine) if held.stated is None]
            blamed = lost and not isinstance(link.source.default_outcome, Released)
            for at, held in enumerate(undecided):
                self.world.left(held.number, blamed and not at)


class World:
    """A queue or anycast address `a`, and what is to become of its messages. `kind`: "broker", "queue" (behind a
    router), "routed" or "anycast"."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.wrong: list[str] = []  # what callbacks have seen
        self.wires: list[Wire] = []
        self.clock = Clock()
        self.router = router = Router("r", self.clock)
        self.core = Core()
        self.core.broker.catalogue.put_settings("a", {"maxDeliveryAttempts": 1000})  # no delay, no dead letters
        self.queue = self.core.queue("a")
        self.names = iter(range(10_000))
        self.waiting: set[int] = set(range(MANY))  # those that no client has
        self.attempts: Counter[int] = Counter()  # failed deliveries
        self.outcomes: dict[int, Any] = {}  # of those that are done
        if kind == "queue":
            router.add_address_config(AddressConfig(1, "a", pattern="a", ingress_phase=0, egress_phase=1))
            router.auto_links.add(AutoLinkConfig(2, "in", "a", "in", container_id="b"))
        elif kind == "routed":
            router.link_routes.add(LinkRouteConfig(2, "out", "out", pattern="a", container_id="b"))
        if kind in ("queue", "routed"):
            near, far = self.to_broker("r", is_router=True), self.to_router("route-container")
            near.open()
            self.wires.append(Wire(near, far))
        self.run()
        self.clients = [self.client(), self.client()]
        self.learned: list[tuple[int, Any]] = []
        if kind == "anycast":
            self.sending = Connection(Sending(self), container_id="s", is_client=True)
            self.sending.open()
            self.wires.append(Wire(self.sending, self.to_router("normal")))
            self.run()
            self.sender = self.sending.begin().attach_sender("s", Source(), Target(address="a"))
            self.unsent = list(range(MANY))
        else:
            for number in range(MANY):
                self.core.send(number, "a", durable=True)
        self.run()

    def to_router(self, role: str) -> Connection:
        record = RouterConnection(self.router, name=None, role=role, direction="in", host="1:1", capacity=250)
        far = Connection(RouterHandler(self.router), container_id="r", is_client=False)
        far.context, record.amqp = record, far
        return far

    def to_broker(self, container: str, *, is_router: bool = False) -> Connection:
        call_soon = self.clock.call_soon
        return broker_connection(self.core.broker, lambda go_on, _: call_soon(go_on), is_client=is_router)[1]

    def client(self) -> Client:
        return Client(self, self.to_broker("c") if self.kind == "broker" else self.to_router("normal"))

    def run(self) -> None:
        for _ in range(1000):
            busy = [wire.pump() for wire in self.wires] + [bool(self.clock.soon)]
            self.clock.run()
            self.core.broker.run_pending(lambda: False)
            self.core.commit()
            assert self.wrong == []
            if not any(busy):
                return
        raise AssertionError("they never fall silent")

    # what is expected
    def came(self, message: Message) -> None:
        number, count = message.body, message.delivery_count
        if number not in self.waiting:
            self.wrong.append(f"{number} came, though it is {self.outcomes.get(number, 'at a client')}")
        if count != self.attempts[number]:
            self.wrong.append(f"{number} came with delivery-count {count}, not {self.attempts[number]}")
        self.waiting.discard(number)

    def decided(self, number: int, outcome: Any) -> None:
        if self.kind == "anycast" or isinstance(outcome, Accepted | Rejected):
            self.outcomes[number] = outcome
            return
        self.attempts[number] += isinstance(outcome, Modified)
        self.waiting.add(number)

    def left(self, number: int, failed: bool) -> None:
        self.decided(number, FAILED if failed or self.kind == "anycast" else RELEASED)

    def check(self) -> None:
        """All clients have left: what is not done waits in the queue, and each sender knows what became of its own."""
        if self.kind != "anycast":
            assert self.queue.count == len(self.waiting)
            client = self.client()
            client.attach(FIRST, None, MANY)
            self.run()
            assert not self.waiting
            return
        sent = set(range(MANY)) - set(self.unsent)
        for number in sent & self.waiting:
            self.outcomes[number] = RELEASED  # it waited for credit
        assert sorted(number for number, _ in self.learned) == sorted(sent)
        assert dict(self.learned) == self.outcomes
        assert self.sender.unsettled == 0


class Sending(Handler):
    """Sends the numbers while there is credit, and settles what its receiver states in a second step."""

    def __init__(self, world: World) -> None:
        self.world = world

    def on_flow(self, link: Sender) -> None:
        while self.world.unsent and link.credit > 0:
            number = self.world.unsent.pop(0)
            link.send(Message(number).encode(), number)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        if isinstance(state, Terminal):
            self.world.learned += [(number, state) for number in tokens]
        if not settled:
            link.settle_ids(link.stated(tokens))

    def on_concluded(self, link: Sender, tokens: list[Any], state: Any) -> None:
        """They were settled when the outcome was stated."""


def _act(world: World, client: Client, action: tuple[Any, ...]) -> None:
    kind, *rest = action
    if kind == "attach" and len(client.links) < 3:
        client.attach(*rest)
    elif kind == "dispose":
        at, more, state, settled = rest
        newest = max(client.held, default=0)
        first = max(0, newest - at)
        client.dispose(first, first + more, state, settled)
    elif kind == "grant" and client.links:
        client.links[rest[0] % len(client.links)].grant(1 + rest[0])
    elif kind == "detach" and client.links:
        link = client.links[rest[0] % len(client.links)]
        world.run()
        client.leave([link], lost=False)
        link.detach()
        world.run()
    elif kind in ("close", "vanish"):
        world.run()
        client.leave(client.links[:], lost=kind == "vanish")
        if kind == "vanish":
            client.wire.far.transport_closed()
            world.wires.remove(client.wire)
        else:
            client.near.close()
        world.run()
        world.clients[world.clients.index(client)] = world.client()
    elif kind == "run":
        world.run()


ACTION = st.one_of(
    st.tuples(st.just("attach"), st.sampled_from([FIRST, SECOND]), st.sampled_from(DEFAULTS), st.integers(1, 6)),
    *[st.tuples(st.just("dispose"), st.integers(0, 6), st.integers(0, 5), st.sampled_from(STATES), st.booleans())] * 3,
    st.tuples(st.just("grant"), st.integers(0, 3)),
    st.tuples(st.just("detach"), st.integers(0, 3)),
    st.sampled_from([("run",), ("run",), ("close",), ("vanish",)]),
)


@pytest.mark.parametrize("kind", ["broker", "queue", "routed", "anycast"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=st.lists(st.tuples(st.integers(0, 1), ACTION), max_size=40))
@example(actions=[(1, ("attach", FIRST, None, 9)), (1, ("vanish",))])
@example(
    actions=[
        (0, ("grant", 0)),
        *[(0, ("attach", FIRST, None, 1))] * 2,
        (1, ("attach", FIRST, RELEASED, 1)),
        (1, ("attach", FIRST, None, 1)),
        (1, ("vanish",)),
    ]
)
def test_each_delivery_has_one_outcome_and_it_is_its_own(kind: str, actions: list[Any]) -> None:
    world = World(kind)
    for which, action in [(0, ("attach", SECOND, None, 5)), (1, ("attach", FIRST, None, 3)), (0, ("run",)), *actions]:
        _act(world, world.clients[which], action)
    for which in (0, 1):
        _act(world, world.clients[which], ("close",))
    world.check()


@pytest.mark.parametrize("kind", ["broker", "queue", "routed"])
def test_what_a_lost_client_had_comes_in_order_to_one_that_waits(kind: str) -> None:
    """Its oldest message, which counts as failed, before those behind it, though their outcome is another."""
    world = World(kind)
    lost, waits = world.clients
    for client in (lost, waits):
        client.attach(FIRST, None, MANY)
        world.run()
    _act(world, lost, ("vanish",))
    assert [held.number for held in waits.held.values()] == list(range(MANY))
