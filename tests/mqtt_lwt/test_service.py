"""The contract of `$lwt`, with a real router, broker and both stores."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from proton import Delivery, Message, symbol
from proton.utils import BlockingConnection, LinkDetached

from enmasse.testing import wait_for
from tests.kit.waiting import DEADLINE
from tests.mqtt_lwt.house import ANYCAST, MULTICAST, PATIENCE, QUEUE, TOPIC, Client, House


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("address", [QUEUE, f"{TOPIC}/x/y", ANYCAST, MULTICAST])
def test_a_client_that_detaches_with_an_error_has_its_will_published(running: House, address: str, qos: int) -> None:
    with running.receiver(address) as receiver:
        client = running.client()
        client.will(to=address, qos=qos, body=b"failed", x_opt_retain_message=False)
        client.detach("my:failure")
        message = receiver.receive(DEADLINE)
        with contextlib.suppress(IndexError):  # QoS 0 may come settled
            receiver.accept()
        assert bytes(message.body) == b"failed"
        assert message.annotations[symbol("x-opt-mqtt-qos")] == qos
        assert message.durable == (qos > 0)
        assert message.address == address
    wait_for("it is forgotten", lambda: running.service.wills() == 0)


def test_clients_that_end_well_and_those_that_are_lost(running: House) -> None:
    ends_well, is_lost, cleared, published, comes_again = (running.client(f"c{n}") for n in range(5))
    ends_well.will(body=b"ends well")
    is_lost.will(body=b"is lost")
    cleared.will(body=b"cleared")
    published.will(body=b"published")
    comes_again.will(body=b"before")
    comes_again.vanish()
    is_lost.vanish()
    comes_again.attach()
    comes_again.will(body=b"after")
    assert cleared.ask("will-clear") == Delivery.ACCEPTED
    assert published.ask("will-publish") == Delivery.ACCEPTED
    for client in (cleared, published, ends_well, comes_again):
        client.detach()
    assert sorted(running.published()) == [b"is lost", b"published"]


def test_one_link_with_the_wills_of_many(running: House) -> None:
    gateway = running.gateway()
    for key in ("a", "b", "c", "d"):
        gateway.will(key, body=key.encode())
    gateway.will("a", body=b"a again")
    gateway.insist("will-publish", "a")
    gateway.insist("will-clear", "b")
    other = running.gateway("other")
    other.will("c", body=b"c taken over")
    gateway.insist("will-publish", "c")  # too late: it is the other's now
    gateway.vanish()
    running.service.pass_time()
    wait_for("only the other's is left", lambda: running.service.wills() == 1)
    other.detach()
    assert sorted(running.published()) == [b"a again", b"d"]


@pytest.mark.parametrize("between", ["nothing", "the former link is lost", "the service is killed"])
def test_what_a_gateway_says_late_of_a_client_that_is_connected_at_another(running: House, between: str) -> None:
    """Its epoch says so, whichever link it comes over, and whether the client has a will by now."""
    former, other = running.gateway("former"), running.gateway("other")

    def say(gateway: Client, subject: str, key: str, epoch: int, **more: Any) -> None:
        to = QUEUE if subject == "will" else ""
        gateway.insist(subject, key, to, f"{key} {epoch}".encode(), x_opt_mqtt_epoch=epoch, **more)

    for key in ("device", "cleared", "back", "delayed"):
        say(former, "will", key, 5, x_opt_will_delay=60)
    if between == "the former link is lost":
        former.vanish()
    say(other, "will", "device", 6)
    say(other, "will-clear", "cleared", 6)
    say(other, "will", "back", 6, x_opt_will_delay=60)
    say(other, "will", "delayed", 6, x_opt_will_delay=60)
    say(other, "will-publish", "delayed", 6)
    if between == "the former link is lost":
        former.attach()
    elif between == "the service is killed":
        running.service.kill()
        running.service.start()
        for key in ("device", "back"):  # as it does over each new link
            say(other, "will", key, 6, x_opt_will_delay=60)
        say(other, "will-clear", "cleared", 6)
    for subject in ("session-ended", "session-deleted", "will-publish", "will-clear", "will", "will-publish"):
        for key in ("device", "cleared", "delayed"):
            say(former, subject, key, 5)
    say(former, "will-clear", "back", 7)  # back at the first, without a will
    say(other, "will-publish", "back", 6)
    assert running.service.wills() == 2
    say(other, "will-publish", "device", 6, x_opt_will_delay=0)
    for gateway in (former, other):
        gateway.detach()
    assert sorted(running.published()) == [b"delayed 6", b"device 6"]


def test_amqp_clients_do_not_speak_for_the_clients_of_gateways_nor_for_each_other(running: House) -> None:
    gateway, one, two = running.gateway(), running.client("one"), running.client("two")
    for client in (gateway, one, two):
        client.will("device", body=client.name.encode())
    gateway.will("will", body=b"another device's")
    one.will(body=b"its own")
    assert running.service.wills() == 5
    for operation in ("will-clear", "will-publish", "session-ended"):
        assert one.ask(operation, "device") == Delivery.ACCEPTED
    one.insist("will-clear", "will")
    two.detach()
    wait_for("theirs are over", lambda: running.service.wills() == 3)
    gateway.insist("will-publish", "device")
    gateway.detach()
    one.detach("my:failure")
    assert sorted(running.published()) == [b"gateway", b"its own"]


def test_clients_do_not_reach_the_node_of_gateways(running: House) -> None:
    connection = BlockingConnection(f"127.0.0.1:{running.router.clients}", timeout=PATIENCE)
    try:
        for node in ("$mqtt/wills", "amqp:/$mqtt.wills", "/$mqtt/wills"):
            with pytest.raises(LinkDetached, match="unauthorized-access"):
                connection.create_sender(node)
        relay = connection.create_sender(None)
        delivery = relay.link.send(Message(address="$mqtt/wills", subject="will-clear"))
        connection.wait(lambda: delivery.settled)
        assert delivery.remote_state == Delivery.REJECTED
    finally:
        connection.close()


def test_a_will_delay_runs_and_ends_when_the_client_comes(running: House) -> None:
    gateway = running.gateway()
    for key in ("waits", "comes"):
        gateway.will(key, body=key.encode(), x_opt_will_delay=1800)
        gateway.insist("will-publish", key)
    gateway.will("comes", body=b"new")
    assert running.service.wills() == 2
    gateway.insist("will-clear", "comes")
    gateway.detach()
    assert running.published() == [b"waits"]


def test_what_is_refused_harms_nobody(running: House) -> None:
    client = running.client()
    client.will(body=b"good")
    assert client.ask("will", to="") == Delivery.REJECTED
    assert client.ask("whatever", to=QUEUE) == Delivery.REJECTED
    assert client.ask("will", to=QUEUE, x_opt_mqtt_qos=9) == Delivery.REJECTED
    settled = client.sender.link.send(Message(subject="will", address=QUEUE, body=b"settled"))
    settled.settle()
    with pytest.raises(LinkDetached):
        client.connection.create_receiver("$lwt")
    assert client.ask("will", to=QUEUE, body=b"\0" * 300_000) == Delivery.REJECTED
    client.detach("my:failure")
    assert running.published() == [b"good"]


def test_a_message_without_end_closes_its_link_only(running: House) -> None:
    other, client = running.client("other"), running.client()
    other.will(body=b"other")
    with pytest.raises(LinkDetached, match="message-size-exceeded"):
        client.ask("will", to=QUEUE, body=b"\0" * 5_000_000)
    other.insist("will-publish")
    other.detach()
    assert running.published() == [b"other"]


def test_names_that_no_address_takes(running: House) -> None:
    """Nodes of routers and services among them: the service reaches these, and clients must not by their wills."""
    before = running.service.metric("lwt_dropped_total")
    client = running.client()
    names = ("nowhere/at/all", "$management", "_local/$management", "amqp:/$mqtt/control", "$sub/b/mqtt.c", "$lwt")
    for name in names:
        client.will(name, to=name)
    client.detach("my:failure")
    wait_for("they are dropped", lambda: running.service.metric("lwt_dropped_total") == before + len(names))
    wait_for("they are forgotten", lambda: running.service.wills() == 0)


def test_a_broker_that_is_away(running: House) -> None:
    client = running.client()
    for number in range(20):
        client.will(f"c{number}", body=b"%d" % number)
    running.broker.kill()
    client.detach("my:failure")
    wait_for("it is tried", lambda: running.service.metric("lwt_wills") == 20)
    running.broker.start()
    assert sorted(map(int, running.published())) == list(range(20))


@pytest.mark.parametrize("operation", ["will", "will-clear"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_retained_will_does_not_replace_what_its_client_publishes_after_its_return(
    running: House, operation: str, killed: bool
) -> None:
    """The answer, for which the client waits, comes after the will, or the will is no longer retained."""
    gateway = running.gateway()
    gateway.will("c", body=b"gone", x_opt_retain_message=True)
    running.broker.kill()
    gateway.insist("will-publish", "c")
    gateway.insist(operation, "c", to=QUEUE, body=b"new")
    if killed:
        running.service.kill()
        running.service.start()
    gateway.insist("will-clear", "c")
    gateway.detach()
    running.broker.start()
    wait_for("it is published", lambda: running.service.wills() == 0)
    with running.broker.connect() as connection:
        receiver = connection.create_receiver(QUEUE, credit=1)
        message = receiver.receive(PATIENCE)
        receiver.accept()
    assert bytes(message.body) == b"gone"
    assert symbol("x-opt-retain-message") not in message.annotations


def test_a_client_that_is_back_is_answered_after_its_retained_will(running: House) -> None:
    gateway = running.gateway()
    with running.receiver(f"{TOPIC}/#") as receiver:
        gateway.will("c", to=f"{TOPIC}/state", body=b"gone", x_opt_retain_message=True)
        gateway.insist("will-publish", "c")
        gateway.insist("will-clear", "c")
        assert running.service.wills() == 0
        message = receiver.receive(DEADLINE)
        receiver.accept()
        assert message.annotations[symbol("x-opt-retain-message")] is True
    gateway.detach()


def test_anycast_waits_for_a_consumer(running: House) -> None:
    client = running.client()
    client.will(to=ANYCAST, body=b"waits")
    client.detach("my:failure")
    wait_for("it is known", lambda: running.service.wills() == 1)
    with running.receiver(ANYCAST) as receiver:
        assert bytes(receiver.receive(DEADLINE).body) == b"waits"
        receiver.accept()
    wait_for("it is forgotten", lambda: running.service.wills() == 0)


def test_multicast_without_receivers_keeps_no_will(running: House) -> None:
    client = running.client()
    for qos in range(3):
        client.will(f"c{qos}", to=MULTICAST, qos=qos)
    client.detach("my:failure")
    wait_for("they are forgotten", lambda: running.service.wills() == 0)
