from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Condition, Delivery, Link, Message, Terminus, symbol
from proton.reactor import Container, DurableSubscription, ReceiverOption, Selector
from proton.utils import BlockingConnection, LinkDetached

from tests.kit.transactions import Refused, Transacted
from tests.router.harness import (
    ADDRESS,
    AUTO_LINK,
    CONNECTOR,
    LINK_ROUTE,
    Broker,
    Management,
    RouterProcess,
    body_of,
    post,
    pump,
    pump_until,
    wait_for,
)


class Second(ReceiverOption):
    """A receiver that settles when the sender has settled."""

    def apply(self, link: Link) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND


@pytest.fixture
def dialled(management: Management, broker: Broker) -> Iterator[Broker]:
    """The broker, dialled by the router as a route container."""
    connector(management, broker)
    yield broker
    management.clear("t-", CONNECTOR, ADDRESS, AUTO_LINK, LINK_ROUTE)


def connector(management: Management, broker: Broker) -> None:
    management.create(CONNECTOR, "t-b0", role="route-container", host="127.0.0.1", port=str(broker.port))
    wait_for(lambda: management.one(CONNECTOR, "t-b0")["connectionStatus"] == "SUCCESS")
    wait_for(lambda: broker.connections)


def queue(management: Management, name: str, container: str = "b0") -> None:
    management.create(ADDRESS, f"t-{name}", pattern=name, waypoint=True)
    for direction in ("in", "out"):
        management.create(AUTO_LINK, f"t-{name}-{direction}", address=name, direction=direction, containerId=container)


def topic(management: Management, name: str, container: str = "b0", **more: Any) -> None:
    for direction in ("in", "out"):
        management.create(
            LINK_ROUTE, f"t-{name}-{direction}", prefix=name, direction=direction, containerId=container, **more
        )


def status(management: Management, name: str, kind: str = AUTO_LINK) -> str:
    return str(management.one(kind, name)["operStatus"])


def active(management: Management, name: str) -> None:
    def both() -> bool:
        rows = {row["name"]: row["operStatus"] for row in management.query(AUTO_LINK, "name", "operStatus")}
        return {rows[f"t-{name}-in"], rows[f"t-{name}-out"]} == {"active"}

    wait_for(both, f"both auto-links of {name} are active")


def outcome_of(connection: BlockingConnection, delivery: Any) -> Any:
    connection.wait(lambda: delivery.settled, msg="the outcome")
    return delivery.remote_state


# Auto-links


def test_a_queue_from_end_to_end(router: RouterProcess, management: Management, dialled: Broker) -> None:
    connection = router.connect()
    management.create(ADDRESS, "t-q1", pattern="q1", waypoint=True)
    sender = connection.create_sender("q1")
    receiver = None
    pump(connection)
    assert sender.link.credit == 0
    management.create(AUTO_LINK, "t-q1-in", address="q1", direction="in", containerId="b0")
    management.create(AUTO_LINK, "t-q1-out", address="q1", direction="out", containerId="b0")
    active(management, "q1")
    connection.wait(lambda: sender.link.credit == 250, msg="credit as soon as the out auto-link is there")
    assert dialled.credit("q1") == 0
    delivery = post(sender, Message(body="stored", durable=True))
    assert outcome_of(connection, delivery) == Delivery.ACCEPTED
    assert dialled.stored["q1"] == ["stored"]
    receiver = connection.create_receiver("q1", credit=10)
    wait_for(lambda: dialled.credit("q1") == 250)
    dialled.put("q1", Message(body="one"), Message(body="two"))
    assert [receiver.receive().body for _ in range(2)] == ["one", "two"]
    receiver.accept()
    receiver.reject()
    pump(connection)
    wait_for(lambda: len(dialled.outcomes) == 2)
    assert sorted(state for _, state in dialled.outcomes) == [int(Delivery.ACCEPTED), int(Delivery.REJECTED)]
    receiver.close()
    wait_for(lambda: dialled.credit("q1") == 0)
    names = dialled.names()
    assert names and all(name.startswith("qdlink.") for name in names)
    connection.close()


def test_a_consumer_alone_gives_a_producer_no_credit(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    connection = router.connect()
    management.create(ADDRESS, "t-q2", pattern="q2", waypoint=True)
    connection.create_receiver("q2", credit=10)
    sender = connection.create_sender("q2")
    for _ in range(5):
        pump(connection)
    assert sender.link.credit == 0
    connection.close()


def test_a_consumer_leaves_with_messages_of_the_queue(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    queue(management, "q3")
    active(management, "q3")
    connection = router.connect()
    receiver = connection.create_receiver("q3", credit=0)
    receiver.link.flow(1)
    pump(connection)
    wait_for(lambda: dialled.credit("q3") == 250)
    dialled.put("q3", *(Message(body=i) for i in range(3)))
    connection.wait(lambda: bool(receiver.fetcher.incoming))
    connection.close()
    wait_for(lambda: len(dialled.outcomes) == 3)
    assert {state for _, state in dialled.outcomes} == {int(Delivery.RELEASED)}


def test_a_broker_is_lost_with_messages_under_way(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    queue(management, "q4")
    active(management, "q4")
    dialled.hold = True
    connection = router.connect()
    sender = connection.create_sender("q4")
    delivery = post(sender, Message(body="x"))
    wait_for(lambda: dialled.held)
    dialled.drop_connections()
    assert outcome_of(connection, delivery) == Delivery.MODIFIED
    connection.wait(lambda: sender.link.drain_mode)
    dialled.hold = False
    active(management, "q4")  # the connector has dialled again, the auto-links are back
    again = post(sender, Message(body="y"))
    assert outcome_of(connection, again) == Delivery.ACCEPTED
    connection.close()


def test_a_broker_is_lost_before_it_settled_what_a_receiver_accepted(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    """A receiver that settles second learns by the end of its link that the messages may come again; else it would
    wait for ever. One that has settled everything goes on."""
    queue(management, "q5")
    active(management, "q5")
    connection, other = router.connect(), router.connect()
    receiver, settling = (c.create_receiver("q5", credit=1, name="r") for c in (connection, other))
    wait_for(lambda: dialled.credit("q5") > 1)
    dialled.settle_outcomes(False)
    dialled.put("q5", Message(body=1), Message(body=2))
    connection.wait(lambda: bool(receiver.fetcher.incoming))
    receiver.fetcher.incoming[0][1].update(Delivery.ACCEPTED)
    settling.receive()
    settling.accept()
    pump(connection, other)
    wait_for(lambda: len(dialled.outcomes) == 2)
    dialled.drop_connections()
    with pytest.raises(LinkDetached, match="before it had settled"):
        connection.wait(lambda: False)
    dialled.settle_outcomes(True)
    active(management, "q5")
    settling.link.flow(1)
    pump(other)
    dialled.put("q5", Message(body=3))
    assert settling.receive().body == 3
    connection.close()
    other.close()


def test_a_broker_is_lost_before_a_receiver_that_settles_second_has_accepted(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    """The link of this receiver ends before the broker sends the message again. Others keep their links."""
    queue(management, "q9")
    active(management, "q9")
    connection, other = router.connect(), router.connect()
    receiver = connection.create_receiver("q9", credit=1, name="r", options=Second())
    plain = other.create_receiver("q9", credit=1, name="r")
    wait_for(lambda: dialled.credit("q9") > 1)
    dialled.put("q9", Message(body=1), Message(body=2))
    for each, fetcher in ((connection, receiver.fetcher), (other, plain.fetcher)):
        each.wait(lambda fetcher=fetcher: bool(fetcher.incoming))
    dialled.drop_connections()
    with pytest.raises(LinkDetached, match="before it had settled"):
        connection.wait(lambda: False)
    active(management, "q9")
    plain.receive()
    plain.accept()
    plain.link.flow(1)
    pump(other)
    dialled.put("q9", Message(body=3))
    assert plain.receive().body == 3
    connection.close()
    other.close()


def test_without_its_container_an_autolink_is_inactive(management: Management, dialled: Broker) -> None:
    queue(management, "q5", container="nobody")
    assert status(management, "t-q5-in") == "inactive"
    management.delete(CONNECTOR, "t-b0")
    queue(management, "q6")
    wait_for(lambda: status(management, "t-q6-in") == "inactive")
    connector(management, dialled)
    active(management, "q6")


def test_an_autolink_by_the_name_of_the_connection(management: Management, dialled: Broker) -> None:
    management.create(AUTO_LINK, "t-named", address="q7", direction="out", connection="t-b0", externalAddress="q7::x")
    wait_for(lambda: status(management, "t-named") == "active")
    assert dialled.link("q7::x", sender=False) is not None
    row = management.one(AUTO_LINK, "t-named")
    link = next(r for r in management.query("org.apache.qpid.dispatch.router.link") if r["identity"] == row["linkRef"])
    assert link["owningAddr"] == "M0q7"
    management.delete(AUTO_LINK, "t-named")
    wait_for(lambda: dialled.link("q7::x", sender=False) is None)


def test_a_refused_autolink_says_why_and_is_tried_again(management: Management, dialled: Broker) -> None:
    dialled.refuse["q8"] = "amqp:not-found"
    management.create(AUTO_LINK, "t-q8", address="q8", direction="out", containerId="b0")
    wait_for(lambda: status(management, "t-q8") == "failed")
    assert management.one(AUTO_LINK, "t-q8")["lastError"] == "q8 is refused"
    del dialled.refuse["q8"]
    wait_for(lambda: status(management, "t-q8") == "active")
    assert management.one(AUTO_LINK, "t-q8")["lastError"] is None


def test_an_autolink_taken_away_by_the_broker_comes_back(management: Management, dialled: Broker) -> None:
    queue(management, "q9")
    active(management, "q9")
    # However long it takes to look: the link stays away until the broker has the queue again.
    dialled.reason["q9"] = "the queue was deleted"
    dialled.refuse["q9"] = "amqp:resource-deleted"
    dialled.take_away("q9", sender=False, condition="amqp:resource-deleted", description="the queue was deleted")

    def failed() -> dict[str, Any] | None:
        row = management.one(AUTO_LINK, "t-q9-out")
        return row if row["operStatus"] == "failed" else None

    row = wait_for(failed, "the auto-link has failed")
    assert row is not None and row["lastError"] == "the queue was deleted"
    del dialled.refuse["q9"]
    active(management, "q9")


def test_anonymous_messages_reach_a_queue(router: RouterProcess, management: Management, dialled: Broker) -> None:
    queue(management, "q10")
    active(management, "q10")
    connection = router.connect()
    sender = connection.create_sender(None)
    assert outcome_of(connection, post(sender, Message(address="q10", body="x"))) == Delivery.ACCEPTED
    assert dialled.stored["q10"] == ["x"]
    connection.close()


def test_a_container_that_dials_in(router: RouterProcess, management: Management) -> None:
    """A peer whose connection came through the route-container listener gets auto-links too."""
    management.create(AUTO_LINK, "dialling", address="q11", direction="out", containerId="b1")
    peer = Broker("b1", dial=f"127.0.0.1:{router.container_port}")
    wait_for(lambda: status(management, "dialling") == "active")
    assert peer.link("q11", sender=False) is not None
    peer.stop()
    wait_for(lambda: status(management, "dialling") == "inactive")
    management.delete(AUTO_LINK, "dialling")


# Link routes


def test_a_topic_from_end_to_end(router: RouterProcess, management: Management, dialled: Broker) -> None:
    topic(management, "topic1")
    assert status(management, "t-topic1-in", LINK_ROUTE) == "active"
    connection = router.connect()
    sender = connection.create_sender("topic1/a", name="pub")
    connection.wait(lambda: sender.link.credit == dialled.window, msg="the broker's credit, no other")
    assert outcome_of(connection, post(sender, Message(body="hello"))) == Delivery.ACCEPTED
    assert dialled.stored["topic1/a"] == ["hello"]
    receiver = connection.create_receiver("topic1.b", name="sub", credit=0, options=Selector("x = 1"))
    assert receiver.link.remote_source.address == "topic1.b"
    container = connection.container.container_id
    assert set(dialled.names()) == {f"pub@{container}", f"sub@{container}"}
    at_broker = dialled.link("topic1.b", sender=True)
    assert at_broker is not None and at_broker.filtered
    assert dialled.credit("topic1.b") == 0
    receiver.link.flow(7)
    pump(connection)
    wait_for(lambda: dialled.credit("topic1.b") == 7)
    dialled.put("topic1.b", Message(body="news"))
    assert receiver.receive().body == "news"
    receiver.settle(Delivery.RELEASED)
    pump(connection)
    wait_for(lambda: dialled.outcomes)
    assert dialled.outcomes == [("topic1.b", int(Delivery.RELEASED))]
    rows = [r for r in management.query("org.apache.qpid.dispatch.router.link") if r["owningAddr"] == "M0topic1/a"]
    assert len(rows) == 2 and {rows[0]["peer"], rows[1]["peer"]} == {rows[0]["identity"], rows[1]["identity"]}
    receiver.close()
    wait_for(lambda: any(closed and name == f"sub@{container}" for name, closed, _ in dialled.detached))
    connection.close()


def test_tags_and_settlement_pass(router: RouterProcess, management: Management, dialled: Broker) -> None:
    topic(management, "topic2")
    connection = router.connect()
    sender = connection.create_sender("topic2")
    connection.wait(lambda: sender.link.credit > 0)
    delivery = sender.link.delivery("my-own-tag")
    sender.link.stream(Message(body="x").encode())
    sender.link.advance()
    assert outcome_of(connection, delivery) == Delivery.ACCEPTED
    assert dialled.tags == ["my-own-tag"]
    post(sender, Message(body="y"), settled=True)
    wait_for(lambda: len(dialled.stored["topic2"]) == 2)
    connection.close()


def test_a_state_without_settlement_passes_a_link_route(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    topic(management, "topic3")
    dialled.hold = True
    connection = router.connect()
    sender = connection.create_sender("topic3")
    delivery = post(sender, Message(body="x"))
    wait_for(lambda: dialled.held)
    dialled.do(lambda: dialled.held[0].update(Delivery.ACCEPTED))
    connection.wait(lambda: delivery.remote_state == Delivery.ACCEPTED)
    assert not delivery.settled
    delivery.settle()
    pump(connection)
    wait_for(lambda: dialled.do(lambda: dialled.held[0].settled))
    connection.close()


def test_drain_passes_a_link_route(router: RouterProcess, management: Management, dialled: Broker) -> None:
    topic(management, "topic4")
    connection = router.connect()
    receiver = connection.create_receiver("topic4", credit=0)
    dialled.put("topic4", Message(body="only"))
    receiver.link.drain(10)
    connection.wait(lambda: receiver.link.credit == 0, msg="the drain")
    assert receiver.receive().body == "only"
    connection.close()


def test_a_refusal_by_the_container_reaches_the_client(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    topic(management, "topic5")
    dialled.refuse["topic5"] = "amqp:unauthorized-access"
    connection = router.connect()
    with pytest.raises(LinkDetached) as refused:
        connection.create_receiver("topic5")
    assert refused.value.condition == "amqp:unauthorized-access"
    with pytest.raises(LinkDetached) as refused:
        connection.create_sender("topic5")
    assert refused.value.condition == "amqp:unauthorized-access"
    dialled.refuse["topic5"] = ""
    for create in (connection.create_receiver, connection.create_sender):
        with pytest.raises(LinkDetached, match="ended the link to 'topic5' without an error") as refused:
            create("topic5")
        assert refused.value.condition == "amqp:not-found"
    connection.close()


def test_a_detach_by_the_container_reaches_the_client(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    topic(management, "topic6")
    connection = router.connect()
    receiver = connection.create_receiver("topic6", credit=1)
    dialled.take_away("topic6", sender=True, condition="amqp:resource-deleted", description="gone")
    with pytest.raises(LinkDetached) as lost:
        receiver.receive()
    assert lost.value.condition == "amqp:resource-deleted"
    connection.close()


def test_a_route_without_its_container(router: RouterProcess, management: Management, dialled: Broker) -> None:
    topic(management, "topic7", container="nobody")
    connection = router.connect()
    with pytest.raises(LinkDetached) as refused:
        connection.create_receiver("topic7")
    assert refused.value.condition == "qd:no-route-to-dest"
    connection.close()


def test_the_container_is_lost(router: RouterProcess, management: Management, dialled: Broker) -> None:
    topic(management, "topic8")
    connection = router.connect()
    receiver = connection.create_receiver("topic8", credit=1)
    before = list(dialled.connections)
    dialled.drop_connections()
    with pytest.raises(LinkDetached) as lost:
        receiver.receive()
    assert lost.value.condition == "qd:routed-link-lost"
    connection.close()
    wait_for(lambda: dialled.connections and dialled.connections != before, "the connector has dialled again")


def test_a_durable_subscription_outlives_its_client(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    topic(management, "topic9")
    for options, closed in ((DurableSubscription(), False), (None, True)):
        dialled.detached.clear()
        client = router.connect()
        name = f"sub-{closed}"
        receiver = client.create_receiver("topic9", name=name, credit=1, options=options)
        expected = f"{name}@{client.container.container_id}"
        link = dialled.link("topic9", sender=True)
        assert link is not None and link.name == expected
        if not closed:
            assert (link.durability, link.expiry_policy) == (Terminus.DELIVERIES, Terminus.EXPIRE_NEVER)
        assert receiver.link.remote_source.address == "topic9"
        client.close()
        wait_for(lambda: dialled.detached)
        assert [one[:2] for one in dialled.detached] == [(expected, closed)]


def test_a_durable_subscription_is_left_and_unsubscribed(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    topic(management, "topic10")
    connection = router.connect()
    receiver = connection.create_receiver("topic10", name="s", credit=1, options=DurableSubscription())
    receiver.link.detach()
    pump(connection)
    wait_for(lambda: [closed for _, closed, _ in dialled.detached] == [False])
    receiver = connection.create_receiver("topic10", name="s2", credit=1, options=DurableSubscription())
    receiver.close()
    wait_for(lambda: [closed for _, closed, _ in dialled.detached] == [False, True])
    connection.close()


def test_large_messages_pass_a_link_route(router: RouterProcess, management: Management, dialled: Broker) -> None:
    topic(management, "topic11")
    connection = router.connect()
    sender = connection.create_sender("topic11")
    body = b"0123456789" * 100_000
    deliveries = [post(sender, Message(body=body)) for _ in range(3)]
    assert [outcome_of(connection, d) for d in deliveries] == [Delivery.ACCEPTED] * 3
    assert [bytes(got) for got in dialled.stored["topic11"]] == [body] * 3
    receiver = connection.create_receiver("topic11", credit=3)
    dialled.put("topic11", *(Message(body=body) for _ in range(2)))
    assert [body_of(receiver.receive()) for _ in range(2)] == [body] * 2
    connection.close()


def test_external_prefixes(router: RouterProcess, management: Management, dialled: Broker) -> None:
    topic(management, "outside", delExternalPrefix="outside/", addExternalPrefix="in/")
    connection = router.connect()
    connection.create_sender("outside/x")
    wait_for(lambda: dialled.link("in/x", sender=False))
    connection.close()


def test_a_link_of_the_same_name_takes_the_place_of_an_older_one(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    topic(management, "topic12")

    def connect() -> BlockingConnection:
        container = Container()
        container.container_id = "always-me"
        return router.connect(container=container)

    old, new = connect(), connect()
    first = old.create_receiver("topic12", name="s", credit=1, options=DurableSubscription())
    second = new.create_receiver("topic12", name="s", credit=1, options=DurableSubscription())
    with pytest.raises(LinkDetached) as lost:
        first.receive()
    assert lost.value.condition == "amqp:link:stolen"
    wait_for(lambda: [closed for _, closed, _ in dialled.detached] == [False])
    dialled.put("topic12", Message(body="to the new one"))
    assert second.receive().body == "to the new one"
    assert second.link.remote_source.address == "topic12"
    old.close()
    new.close()


def test_a_transaction_without_work(router: RouterProcess) -> None:
    connection = router.connect()
    work = Transacted(connection)
    for end in (work.commit, work.roll_back):
        work.begin()
        end()
        with pytest.raises(Refused) as refused:
            end()
        assert refused.value.condition == "amqp:transaction:unknown-id"
    connection.close()


# What one peer says is passed on to another, who may take smaller frames


def test_an_answer_too_large_for_a_client_costs_its_link_only(
    router: RouterProcess, management: Management, dialled: Broker
) -> None:
    """Not the container's connection, which carries everybody's messages."""
    topic(management, "large1")
    wait_for(lambda: status(management, "t-large1-out", LINK_ROUTE) == "active")
    other = router.connect()
    good = other.create_receiver("large1", credit=1)
    client = router.connect(max_frame_size=512)
    for _ in range(3):
        with pytest.raises(LinkDetached, match="amqp:frame-size-too-small"):
            client.create_receiver("large1", options=Selector("n = '" + "x" * 600 + "'"))
    dialled.put("large1", Message(body="still here"))
    assert good.receive().body == "still here"
    assert len(dialled.connections) == 1
    pump_until(lambda: len(dialled.names()) == 1, "the links of those refused are gone", client)
    client.close()
    other.close()


def test_a_reason_too_large_for_the_sender_is_shortened(
    router: RouterProcess, management: Management, address: str
) -> None:
    sending, receiving = router.connect(max_frame_size=512), router.connect()
    receiver = receiving.create_receiver(address, credit=1)
    sender = sending.create_sender(address)
    delivery = post(sender, Message(body="x"))
    receiver.receive()
    rejected = receiver.fetcher.unsettled[-1]
    rejected.local.condition = Condition("a:b", "z" * 8000)
    receiver.settle(Delivery.REJECTED)
    pump(receiving)
    assert outcome_of(sending, delivery) == Delivery.REJECTED
    assert delivery.remote.condition == Condition("a:b", "z" * 200)
    sending.close()
    receiving.close()


def test_a_phase_of_many_digits(router: RouterProcess, address: str) -> None:
    class Phase(ReceiverOption):
        def apply(self, receiver: Any) -> None:
            receiver.source.capabilities.put_object(symbol("qd.waypoint." + "1" * 5000))

    connection = router.connect()
    connection.create_receiver(address, options=Phase())
    connection.close()


def test_links_end_when_their_address_moves(router: RouterProcess, management: Management, dialled: Broker) -> None:
    """Another link route leads elsewhere, and the one that made them is deleted. Without another one they stay."""
    topic(management, "moves")
    topic(management, "stays")
    sending, receiving, staying = (router.connect() for _ in range(3))
    sender, other = sending.create_sender("moves"), staying.create_sender("stays")
    receiving.create_receiver("moves")
    assert outcome_of(sending, post(sender, Message(body="x"))) == Delivery.ACCEPTED
    for name in ("in", "out"):
        management.create(LINK_ROUTE, f"t-moved-{name}", prefix="moves", direction=name, containerId="elsewhere")
        management.delete(LINK_ROUTE, f"t-moves-{name}")
        management.delete(LINK_ROUTE, f"t-stays-{name}")
    for connection in (sending, receiving):
        with pytest.raises(LinkDetached, match=r"amqp:resource-deleted.*has moved to another broker"):
            connection.wait(lambda: False)
        connection.close()
    wait_for(lambda: len(dialled.detached) == 2)
    assert outcome_of(staying, post(other, Message(body="y"))) == Delivery.ACCEPTED
    staying.close()


@pytest.mark.parametrize("before", ["queue", "anycast"])
def test_links_end_when_their_address_becomes_a_topic(
    router: RouterProcess, management: Management, dialled: Broker, before: str
) -> None:
    """Nothing would come to them any more: the clients attach again, and are where the address is now."""
    if before == "queue":
        queue(management, "becomes")
        for direction in ("in", "out"):
            wait_for(lambda d=direction: status(management, f"t-becomes-{d}") == "active")  # type: ignore[misc]  # mypy infers no type of a lambda's default
    else:
        management.create(ADDRESS, "t-becomes", pattern="becomes", distribution="balanced")
    sending, receiving = router.connect(), router.connect()
    sending.create_sender("becomes")
    receiving.create_receiver("becomes")
    management.clear("t-becomes", ADDRESS, AUTO_LINK)
    topic(management, "becomes")
    for connection in (sending, receiving):
        with pytest.raises(LinkDetached, match=r"amqp:resource-deleted.*has a new configuration"):
            connection.wait(lambda: False)
    sender = sending.create_sender("becomes", name="again")
    assert outcome_of(sending, post(sender, Message(body="x"))) == Delivery.ACCEPTED
    for connection in (sending, receiving):
        connection.close()
