"""Senders without a target, and reply addresses that the router makes."""

from __future__ import annotations

from proton import Delivery, Message

from tests.router.harness import ADDRESS, Management, RouterProcess, outcome_of, post


def test_anonymous_relay(router: RouterProcess, address: str) -> None:
    connection = router.connect()
    sender = connection.create_sender(None)
    connection.wait(lambda: sender.link.credit == 250)
    receiver = connection.create_receiver(address, credit=5)
    delivery = post(sender, Message(address=address, body="to you"))
    assert receiver.receive().body == "to you"
    receiver.accept()
    assert outcome_of(connection, delivery) == Delivery.ACCEPTED
    nobody = post(sender, Message(address="any", body="x"))
    assert outcome_of(connection, nobody) == Delivery.RELEASED
    unknown = post(sender, Message(address="nowhere", body="x"))
    assert outcome_of(connection, unknown) == Delivery.REJECTED
    assert unknown.remote.condition.name == "amqp:not-found"
    without = post(sender, Message(body="x"))
    assert outcome_of(connection, without) == Delivery.REJECTED
    assert without.remote.condition.name == "amqp:precondition-failed"
    assert without.remote.condition.description == "Routing failure: no address present"
    connection.close()


def test_anonymous_relay_follows_the_configuration(router: RouterProcess, management: Management) -> None:
    connection = router.connect()
    sender = connection.create_sender(None)
    for _ in range(2):
        assert outcome_of(connection, post(sender, Message(address="comes.and.goes"))) == Delivery.REJECTED
        management.create(ADDRESS, "comes", pattern="comes/and/goes")
        receiver = connection.create_receiver("comes.and.goes", credit=1)
        delivery = post(sender, Message(address="comes.and.goes"))
        receiver.receive()
        receiver.accept()
        assert outcome_of(connection, delivery) == Delivery.ACCEPTED
        receiver.close()
        management.delete(ADDRESS, "comes")
    connection.close()


def test_anonymous_multicast(router: RouterProcess, multicast: str) -> None:
    connection = router.connect()
    receivers = [connection.create_receiver(multicast, credit=1, name=f"r{i}") for i in range(3)]
    sender = connection.create_sender(None)
    delivery = post(sender, Message(address=multicast, body="all"))
    for receiver in receivers:
        receiver.receive()
        receiver.accept()
    assert outcome_of(connection, delivery) == Delivery.ACCEPTED
    connection.close()


def test_a_message_that_is_none_is_rejected(router: RouterProcess) -> None:
    connection = router.connect()
    sender = connection.create_sender(None)
    for garbage in (b"\xff\xff\xff", b"\x00\x53\x73\xc0\xff", b"\x00"):
        delivery = sender.link.delivery(sender.link.delivery_tag())
        sender.link.stream(garbage)
        sender.link.advance()
        assert outcome_of(connection, delivery) == Delivery.REJECTED
        assert delivery.remote.condition.name == "amqp:decode-error"
    connection.close()


def test_request_and_reply_over_two_connections(router: RouterProcess, address: str) -> None:
    asker, server = router.connect(), router.connect()
    inbox = asker.create_receiver(None, dynamic=True, credit=1)
    reply_to = inbox.link.remote_source.address
    assert reply_to.startswith("amqp:/_topo/0/r1/temp.")
    requests = server.create_receiver(address, credit=1)
    to_server = asker.create_sender(address)
    post(to_server, Message(reply_to=reply_to, correlation_id="7", body="hello"))
    request = requests.receive()
    requests.accept()
    replies = server.create_sender(None)
    post(replies, Message(address=request.reply_to, correlation_id=request.correlation_id, body="HELLO"))
    assert inbox.receive().body == "HELLO"
    direct = server.create_sender(reply_to)
    inbox.flow(1)
    post(direct, Message(body="again"))
    assert inbox.receive().body == "again"
    asker.close()
    server.close()


def test_two_dynamic_addresses_differ(router: RouterProcess) -> None:
    connection = router.connect()
    one = connection.create_receiver(None, dynamic=True, name="one")
    two = connection.create_receiver(None, dynamic=True, name="two")
    assert one.link.remote_source.address != two.link.remote_source.address
    connection.close()
