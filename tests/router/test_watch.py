"""Deliveries that take long: looked at once a second, with a clock of the test's own and the engine at both ends."""

from __future__ import annotations

import time
from typing import Any

import pytest
from proton import Message

from services.router.routing.periodic_checks import STUCK, UnsettledByAge
from tests.router.harness import PREFIX, Management, RouterProcess, outcome_of, post, pump, wait_for
from tests.router.world import World


class Record:
    """The books of a link."""

    delayed1 = delayed10 = slow = stuck = 0

    def expect(self, waiting: int) -> None:
        """Credit is the engine's business."""


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


@pytest.mark.parametrize("quiet", [1, STUCK + 5])
def test_what_took_more_than_a_second_is_delayed(quiet: int) -> None:
    world = World()
    world.look(quiet)
    world.send(3)
    world.look(3)
    assert world.counts() == [(0, 0, 0)] * 3  # it is counted when it is settled
    world.settle(*world.arrived[:2])
    world.look()
    assert world.counts() == [(2, 0, 0), (2, 0, 0), (2, 0, 0)]


@pytest.mark.parametrize("quiet", [1, STUCK + 5])
def test_what_takes_more_than_ten_seconds_is_stuck_until_it_is_settled(quiet: int) -> None:
    world = World()
    world.look(quiet)
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
    held = UnsettledByAge()
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
    held = UnsettledByAge()
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
