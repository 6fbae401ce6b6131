"""Deliveries that take long: looked at once a second, with a clock of the test's own and the engine at both ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from proton import Message

from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.performatives import Source, Target
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.router import Router
from services.router.routing.watch import STUCK, Held
from tests.router.harness import PREFIX, Management, RouterProcess, outcome_of, post, pump, wait_for


class Clock:
    """Time stands still; what is to be done soon is done by `run`."""

    now = 0.0

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, what: Callable[[], None]) -> None:
        self.soon.append(what)

    def call_later(self, delay: float, what: Callable[[], None]) -> None:
        """Looks are made by the test."""

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class Record:
    """The books of a link."""

    delayed1 = delayed10 = slow = stuck = 0

    def expect(self, waiting: int) -> None:
        """Credit is the engine's business."""


class World:
    """A router with one client's connection, all in memory."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.router = Router("r", self.clock)
        handler = RouterHandler(self.router)
        self.record = RouterConnection(
            self.router, name=None, role="normal", direction="in", host="127.0.0.1:1", capacity=250
        )
        self.server = Connection(handler, container_id="r", is_client=False)
        self.server.context = self.record
        self.record.amqp = self.server
        self.client = Connection(Handler(), container_id="c", is_client=True)
        self.client.open()
        self.pump()
        session = self.client.begin()
        self.receiver: Receiver = session.attach_receiver("r", Source(address="a"), Target())
        self.receiver.credit_window = 1000
        self.arrived: list[int] = []
        self.receiver.on_delivery = lambda link, delivery_id, *_: self.arrived.append(delivery_id)
        self.pump()
        self.sender: Sender = session.attach_sender("s", Source(), Target(address="a"))
        self.pump()

    def pump(self) -> None:
        for _ in range(6):
            self.server.receive(self.client.take_output())
            self.clock.run()
            self.client.receive(self.server.take_output())

    def send(self, count: int) -> None:
        for _ in range(count):
            self.sender.send(b"\x00\x53\x75\xa0\x01x", object())
        self.pump()

    def settle(self, *delivery_ids: int) -> None:
        for delivery_id in delivery_ids:
            self.receiver.session.settle(delivery_id)
        self.pump()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.now += 1.0
            self.router.watch.start()
            self.clock.run()

    def counts(self) -> list[tuple[int, int, int]]:
        """Delayed 1 s, delayed 10 s, stuck: of the link that comes in, of the one that goes out, of the router."""
        total = self.router.totals()
        links: list[Any] = sorted(self.record.links.values(), key=lambda link: link.direction)
        return [(x.delayed1, x.delayed10, x.stuck) for x in (*links, total)]


def test_a_delivery_settled_at_once_counts_nowhere() -> None:
    world = World()
    world.look(3)
    for _ in range(5):
        world.send(10)
        world.settle(*world.arrived)
        world.arrived.clear()
        world.look()
    world.look(STUCK)
    assert world.counts() == [(0, 0, 0)] * 3


def test_what_took_more_than_a_second_is_delayed() -> None:
    world = World()
    world.look()
    world.send(3)
    world.look(3)
    assert world.counts() == [(0, 0, 0)] * 3  # it is counted when it is settled
    world.settle(*world.arrived[:2])
    world.look()
    assert world.counts() == [(2, 0, 0), (2, 0, 0), (2, 0, 0)]


def test_what_takes_more_than_ten_seconds_is_stuck_until_it_is_settled() -> None:
    world = World()
    world.look()
    world.send(4)
    world.look(STUCK + 1)
    assert world.counts() == [(0, 0, 4), (0, 0, 4), (0, 0, 8)]
    world.send(2)
    world.look()
    assert world.counts() == [(0, 0, 4), (0, 0, 4), (0, 0, 8)]
    world.settle(world.arrived[1])
    world.look()
    assert world.counts() == [(0, 1, 3), (0, 1, 3), (0, 1, 6)]
    world.settle(*world.arrived)
    world.look()
    assert world.counts() == [(2, 4, 0), (2, 4, 0), (2, 4, 0)]


def test_a_link_that_goes_leaves_nothing_stuck() -> None:
    world = World()
    world.look()
    world.send(4)
    world.look(STUCK + 1)
    world.receiver.detach()
    world.pump()
    world.look()
    assert world.router.totals().stuck == 0
    assert world.router.totals().delayed10 == 4


def test_credit_does_not_wait_for_what_is_held() -> None:
    """More than half of the window is held: the rest goes round all the same."""
    world = World()
    world.look()
    world.send(250)
    assert world.sender.credit == 0
    world.settle(*world.arrived[:100])
    assert world.sender.credit == 0  # not half of the window yet
    world.look(2)
    world.pump()
    assert world.sender.credit == 100
    for _ in range(5):
        before = len(world.arrived)
        world.send(100)
        world.settle(*world.arrived[before:])
        assert world.sender.credit == 100
    world.settle(*world.arrived)
    world.look()
    world.pump()
    assert world.sender.credit == 250


def test_ids_that_wrap_around_are_still_in_order() -> None:
    held = Held()
    records: dict[int, Any] = {}

    def record_of(value: int) -> Any:
        return records.setdefault(value, Record())

    ids = [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]
    held.look(0xFFFFFFFE, {}, record_of)
    for _ in range(STUCK + 1):
        held.look(2, {i: i for i in ids}, record_of)
    assert [records[i].stuck for i in ids] == [1, 1, 1, 1]


def test_many_that_wait_are_looked_at_once_each() -> None:
    """A look costs what crosses a threshold, however many have crossed it before."""
    held = Held()
    asked = []
    waiting = {i: i for i in range(50_000)}

    def record_of(value: int) -> Any:
        asked.append(value)
        return Record()

    held.look(0, {}, record_of)
    for _ in range(3 * STUCK):
        held.look(50_000, waiting, record_of)
    assert len(asked) == 50_000


def test_delays_and_silence_as_tools_see_them(router: RouterProcess, management: Management, address: str) -> None:
    connection = router.connect()
    link = PREFIX + "router.link"
    connection.create_receiver(address, credit=0, name="no-credit" + address)
    receiver = connection.create_receiver(address, credit=1, name="slow" + address)
    sender = connection.create_sender(address, name="sender" + address)
    started = time.monotonic()
    delivery = post(sender, Message(body="x"))
    receiver.receive()
    container = connection.container.container_id

    def silent() -> Any:
        rows = management.query(PREFIX + "connection")
        row = next(row for row in rows if row["container"] == container)
        return row["lastDlvSeconds"] is not None and row["lastDlvSeconds"] >= 2

    wait_for(silent)
    receiver.accept()
    pump(connection)
    outcome_of(connection, delivery)
    most = time.monotonic() - started

    def counted(name: str) -> dict[str, Any] | None:
        row = management.one(link, name + address)
        return row if row["deliveriesDelayed1Sec"] + row["deliveriesDelayed10Sec"] == 1 else None

    for name in ("slow", "sender"):
        row = wait_for(lambda: counted(name), name)
        assert row is not None and (row["deliveriesStuck"], row["priority"]) == (0, 4)
        assert row["deliveriesDelayed1Sec"] == 1 or most > 10  # where the questions alone took that long
    totals = management.query(PREFIX + "router")[0]
    assert totals["deliveriesDelayed1Sec"] >= 1 or most > 10
    waiting = post(sender, Message(body="nobody has credit"))
    wait_for(lambda: management.one(link, "no-credit" + address)["zeroCreditSeconds"] >= 1)
    connection.close()
    assert waiting is not None


@pytest.mark.parametrize("direction", ["in", "out"])
def test_deliveries_of_routed_links_are_counted(management: Management, direction: str) -> None:
    """The router's totals count them as those of any other link."""
    from tests.router.harness import CONNECTOR, LINK_ROUTE, Broker

    broker = Broker("counting")
    management.create(CONNECTOR, "counting", host="127.0.0.1", port=str(broker.port), role="route-container")
    management.create(LINK_ROUTE, "counted", prefix="counted", direction=direction, containerId="counting")
    wait_for(lambda: management.one(LINK_ROUTE, "counted")["operStatus"] == "active")
    before = management.query(PREFIX + "router")[0]
    connection = management.connection
    if direction == "in":
        sender = connection.create_sender("counted")
        for i in range(3):
            assert outcome_of(connection, post(sender, Message(body=i)))
        sender.close()
    else:
        receiver = connection.create_receiver("counted", credit=3)
        broker.put("counted", *(Message(body=i) for i in range(3)))
        for _ in range(3):
            receiver.receive()
            receiver.accept()
        pump(connection)
        wait_for(lambda: len(broker.outcomes) == 3)
        receiver.close()
    after = management.query(PREFIX + "router")[0]
    container = "deliveriesEgressRouteContainer" if direction == "in" else "deliveriesIngressRouteContainer"
    assert after[container] - before[container] == 3
    assert after["acceptedDeliveries"] - before["acceptedDeliveries"] >= 3
    management.delete(LINK_ROUTE, "counted")
    management.delete(CONNECTOR, "counting")
    broker.stop()
