"""Attaches, credit, drain, order, and what a new configuration does to links that are there."""

from __future__ import annotations

import pytest
from proton import Delivery, Message, symbol
from proton.utils import LinkDetached

from tests.router.harness import ADDRESS, Management, RouterProcess, idle, outcome_of, post, pump, pump_until


def test_an_undefined_address_is_refused(router: RouterProcess) -> None:
    connection = router.connect()
    with pytest.raises(LinkDetached) as refused:
        connection.create_receiver("nowhere")
    assert refused.value.condition == "amqp:not-found"
    assert "Node not found: there is no address 'nowhere'" in str(refused.value)
    with pytest.raises(LinkDetached) as refused:
        connection.create_sender("nowhere")
    assert refused.value.condition == "amqp:not-found"
    assert refused.value.link.remote_target.address is None
    assert connection.create_receiver("any").link.remote_source.address == "any"
    connection.close()


def test_a_sender_has_credit_only_while_there_is_a_receiver(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    sender = producer.create_sender(address)
    idle(producer)
    assert sender.link.credit == 0
    receiver = consumer.create_receiver(address, credit=1)
    producer.wait(lambda: sender.link.credit == 250, msg="250 credits")
    receiver.close()
    producer.wait(lambda: sender.link.drain_mode, msg="the drain")
    assert sender.link.drained() == 250
    pump(producer)
    consumer.create_receiver(address, credit=1)
    producer.wait(lambda: sender.link.credit == 250, msg="250 credits again")
    producer.close()
    consumer.close()


def test_a_sender_that_ignores_the_drain_can_go_on(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    sender = producer.create_sender(address)
    consumer.create_receiver(address, credit=1).close()
    producer.wait(lambda: sender.link.drain_mode, msg="the drain")
    lost = post(sender, Message(body="nobody is there"))
    assert outcome_of(producer, lost) == Delivery.RELEASED
    receiver = consumer.create_receiver(address, credit=600)
    got = []

    def credit() -> bool:
        while receiver.fetcher.incoming:
            got.append(receiver.receive().body)
            receiver.accept()
        return bool(sender.link.credit > 0)

    for i in range(600):
        pump_until(credit, "credit for the next", consumer, producer)
        post(sender, Message(body=i))
    pump_until(lambda: credit() and len(got) == 600, "all of them", consumer, producer)
    assert got == list(range(600))
    producer.close()
    consumer.close()


def test_at_most_as_many_unsettled_as_the_capacity(router: RouterProcess, address: str) -> None:
    producer, consumer = router.connect(), router.connect()
    receiver = consumer.create_receiver(address, credit=1000)
    sender = producer.create_sender(address)
    deliveries = [post(sender, Message(body=i)) for i in range(250)]
    idle(producer)
    assert sender.link.credit == 0
    consumer.wait(lambda: len(receiver.fetcher.incoming) == 250)
    for _ in range(250):
        receiver.receive()
        receiver.accept()
    pump(consumer)
    producer.wait(lambda: all(d.settled for d in deliveries) and sender.link.credit > 120)
    producer.close()
    consumer.close()


def test_drain_is_answered(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=0)
    sender = connection.create_sender(address)
    post(sender, Message(body="one"))
    idle(connection)
    receiver.link.drain(10)
    connection.wait(lambda: receiver.link.credit == 0, msg="the drain")
    assert receiver.receive().body == "one"
    receiver.accept()
    receiver.link.drain(5)
    connection.wait(lambda: receiver.link.credit == 0, msg="an empty drain")
    connection.close()


def test_a_filter_that_has_no_effect_is_not_granted(router: RouterProcess, address: str) -> None:
    from proton.reactor import Filter

    connection = router.connect()
    receiver = connection.create_receiver(address, credit=1, options=Filter({symbol("colour"): "red"}))
    receiver.link.remote_source.filter.rewind()
    assert receiver.link.remote_source.filter.next() is None
    connection.close()


def test_order_is_kept_from_one_sender_to_one_receiver(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    receiver = connection.create_receiver(address, credit=7)
    sender = connection.create_sender(address)
    got = []
    for i in range(100):
        post(sender, Message(body=i))
        while receiver.fetcher.incoming:
            got.append(receiver.receive().body)
            receiver.accept()
            receiver.flow(1)
    while len(got) < 100:
        got.append(receiver.receive().body)
        receiver.accept()
        receiver.flow(1)
    assert got == list(range(100))
    connection.close()


def test_an_address_configured_anew_is_treated_anew(router: RouterProcess, management: Management) -> None:
    connection = router.connect()
    management.create(ADDRESS, "changing", pattern="changing")
    receivers = [connection.create_receiver("changing", credit=10, name=f"r{i}") for i in range(2)]
    sender = connection.create_sender("changing")
    post(sender, Message(body="to one"))
    connection.wait(lambda: sum(len(r.fetcher.incoming) for r in receivers) == 1)
    management.delete(ADDRESS, "changing")
    management.create(ADDRESS, "changing", pattern="changing", distribution="multicast")
    post(sender, Message(body="to both"))
    connection.wait(lambda: sum(len(r.fetcher.incoming) for r in receivers) == 3)
    management.delete(ADDRESS, "changing")
    management.create(ADDRESS, "changing", pattern="changing", waypoint=True)
    with pytest.raises(LinkDetached) as detached:
        connection.wait(lambda: False)
    assert detached.value.condition == "amqp:resource-deleted"
    management.delete(ADDRESS, "changing")
    connection.close()


def test_a_removed_address_refuses_new_links_and_leaves_the_old_ones(
    router: RouterProcess, management: Management
) -> None:
    connection = router.connect()
    management.create(ADDRESS, "removed", pattern="removed")
    receiver = connection.create_receiver("removed", credit=10)
    sender = connection.create_sender("removed")
    management.delete(ADDRESS, "removed")
    with pytest.raises(LinkDetached):
        connection.create_receiver("removed", name="late")
    post(sender, Message(body="still"))
    assert receiver.receive().body == "still"
    connection.close()
