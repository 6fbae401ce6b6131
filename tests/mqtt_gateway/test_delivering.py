"""Messages to a client: packet ids, acknowledgements, what is sent again, limits of the client."""

from __future__ import annotations

import gc
from copy import copy
from typing import Any

import pytest
from msgspec.structs import replace

from enmasse.model.mqtt_limits import Limits
from enmasse.model.sessions import Outgoing
from enmasse.mqtt import encode, reasons
from enmasse.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
)
from services.mqtt_gateway.interfaces import Delivery, Ending
from services.mqtt_gateway.protocol.inbound import Inbound
from services.mqtt_gateway.protocol.outbound import Outbound
from services.mqtt_gateway.protocol.subscribing import Subscribing
from tests.mqtt_gateway.peer import Peer, World

VERSIONS = pytest.mark.parametrize("version", [V311, V5])


def _subscribed(world: World, version: int = V5, qos: int = 2, **more: Any) -> Peer:
    """A client of a session that is kept, subscribed to everything."""
    given = more.pop("properties", Properties())
    if version == V5:
        given = replace(given, session_expiry=1000)
    peer = world.connected("sub", version, clean=False, properties=given, **more)
    answer = peer.expect_first(ConnAck)
    if not answer.session_present:
        peer.send(Subscribe(1, (Subscription("#", qos),)))
        peer.expect(SubAck)
    return peer


def _publish(world: World, payload: bytes, qos: int, topic: str = "a", **more: Any) -> None:
    world.backend.route(Publish(topic, payload, qos, **more), "pub")


def _messages(packets: list[Packet]) -> list[tuple[bytes, int, bool, int]]:
    return [(each.payload, each.qos, each.dup, each.packet_id) for each in packets if isinstance(each, Publish)]


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-4.3.1-1", "MQTT-4.3.2-1", "MQTT-4.3.3-1", "MQTT-2.3.1-5", "MQTT-3.3.1-2")
@pytest.mark.clause("v5", "MQTT-4.3.1-1", "MQTT-4.3.2-2", "MQTT-4.3.3-2", "MQTT-4.3.3-5", "MQTT-2.2.1-2")
def test_each_qos_is_sent_and_settled_as_it_demands(version: int) -> None:
    world = World()
    peer = _subscribed(world, version)
    for qos in (0, 1, 2):
        _publish(world, b"%d" % qos, qos)
    assert _messages(peer.take()) == [(b"0", 0, False, 0), (b"1", 1, False, 1), (b"2", 2, False, 2)]
    assert dict(world.backend.settled) == {b"0": 1}
    peer.send(PubAck(1), PubRec(2))
    assert peer.take() == [PubRel(2)]
    assert dict(world.backend.settled) == {b"0": 1, b"1": 1, b"2": 1}
    assert world.backend.stored["sub"].sent[2].state == "released"
    peer.send(PubComp(2))
    assert not world.backend.stored["sub"].sent
    peer.expect_nothing()


def _together(peer: Peer, *payloads: bytes) -> bool:
    """Messages of QoS 1 come together."""
    deliveries = [Delivery("a", payload, 1, identity=payload.hex(), source="s") for payload in payloads]
    if not peer.session.deliveries.deliver_together(deliveries):
        return False
    peer.session.unsettled.update(
        (each.identity or "", replace(each, payload=payload))
        for each, payload in zip(deliveries, payloads, strict=True)
    )
    return True


@VERSIONS
def test_messages_of_qos_1_that_come_together_are_sent_and_settled_together(version: int) -> None:
    world = World()
    peer = _subscribed(world, version)
    _publish(world, b"0", 1)
    assert _together(peer, b"1", b"2", b"3", b"4")
    assert _messages(peer.take()) == [(b"%d" % number, 1, False, number + 1) for number in range(5)]
    peer.send(PubAck(2), PubAck(1), PubAck(4), PubAck(4), PubAck(3))  # one of them twice
    assert dict(world.backend.settled) == {b"0": 1, b"1": 1, b"2": 1, b"3": 1}
    assert not peer.closed
    peer.vanish()
    assert [(each.pid, each.identity) for each in world.backend.stored["sub"].sent.values()] == [(5, b"4".hex())]


@pytest.mark.parametrize("limits", [Properties(receive_maximum=2), Properties(maximum_packet_size=20)])
def test_messages_that_come_together_go_one_by_one_if_the_client_does_not_take_all(limits: Properties) -> None:
    world = World()
    peer = _subscribed(world, properties=limits)
    assert not _together(peer, b"1", b"2", b"x" * 20)
    peer.expect_nothing()
    _publish(world, b"next", 1)
    assert _messages(peer.take()) == [(b"next", 1, False, 1)]


@VERSIONS
def test_qos_2_is_published_once_its_id_is_stored_and_released_once_that_is(version: int) -> None:
    world = World()
    peer = _subscribed(world, version)
    world.backend.slow = True
    _publish(world, b"2", 2)
    assert peer.take() == []
    world.backend.store()
    assert _messages(peer.take()) == [(b"2", 2, False, 1)]
    peer.send(PubRec(1))
    assert peer.take() == []
    world.backend.store()
    assert peer.take() == [PubRel(1)]


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.6.0-1", "MQTT-2.3.1-4")
@pytest.mark.clause("v5", "MQTT-4.4.0-1", "MQTT-4.4.0-2", "MQTT-3.3.1-1", "MQTT-4.6.0-1", "MQTT-4.3.2-1")
def test_what_was_not_acknowledged_comes_again_with_its_id_and_dup(version: int) -> None:
    world = World()
    peer = _subscribed(world, version)
    for number in range(6):
        _publish(world, b"%d" % number, 1 + number % 2)
    peer.take()
    peer.send(PubAck(1), PubRec(2))
    peer.vanish()
    peer = _subscribed(world, version)
    _publish(world, b"new", 1)
    packets = peer.take()
    assert packets[0] == PubRel(2)
    assert _messages(packets) == [
        (b"2", 1, True, 3),
        (b"3", 2, True, 4),
        (b"4", 1, True, 5),
        (b"5", 2, True, 6),
        (b"new", 1, False, 1),
    ]
    peer.send(PubComp(2))
    assert 2 not in world.backend.stored["sub"].sent


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-4.6.0-6")
def test_a_message_whose_id_is_stored_does_not_overtake_one_whose_id_is_not(version: int) -> None:
    """The store was full for one of them, and the client was disconnected."""
    world = World()
    peer = _subscribed(world, version)
    for number in range(4):
        _publish(world, b"%d" % number, 2)
    assert [packet_id for *_, packet_id in _messages(peer.take())] == [1, 2, 3, 4]
    peer.vanish()
    for packet_id in (1, 3):
        del world.backend.stored["sub"].sent[packet_id]
    world.backend.slow = True
    peer = _subscribed(world, version)
    _publish(world, b"new", 2)
    got: list[Any] = []
    while world.backend.to_store:
        world.backend.to_store.popleft()()
        got += [packet for packet in peer.take() if isinstance(packet, Publish)]
    assert _messages(got) == [
        (b"0", 2, False, 1),
        (b"1", 2, True, 2),
        (b"2", 2, False, 3),
        (b"3", 2, True, 4),
        (b"new", 2, False, 5),
    ]


@VERSIONS
def test_exchanges_that_only_the_broker_has_not_ended_leave_room_for_others(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ids stay in use: the broker may redeliver these messages, but only after it has delivered what waits."""
    world = World()
    peer = _subscribed(world, version, properties=Properties(receive_maximum=20 if version == V5 else None))
    monkeypatch.setattr(peer.session, "complete", lambda packet_id, delivery: None)  # the broker does not settle
    for number in range(40):
        _publish(world, b"%d" % number, 2)
    first = [packet_id for *_, packet_id in _messages(peer.take())]
    assert len(first) == 20
    peer.send(*map(PubRec, first))
    assert peer.take() == [PubRel(packet_id) for packet_id in first]
    peer.send(*map(PubComp, first))
    second = [packet_id for *_, packet_id in _messages(peer.take())]
    assert len(second) == 20 and not set(second) & set(first)


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-4.3.3-1", "MQTT-2.3.1-4")
@pytest.mark.clause("v5", "MQTT-4.3.3-5", "MQTT-2.2.1-4")
def test_of_what_is_complete_nothing_is_said_and_its_id_is_not_taken(version: int) -> None:
    """PUBCOMP came on an earlier connection, and the broker has not settled."""
    world = World()
    _subscribed(world, version).vanish()
    world.backend.stored["sub"].sent[1] = Outgoing(1, 2, "f" * 16, "s", "completed")
    peer = _subscribed(world, version)
    peer.expect_nothing()
    _publish(world, b"x", 2)
    assert peer.expect(Publish).packet_id == 2
    peer.session.deliveries.completed(1)
    peer.expect_nothing()


@pytest.mark.clause("v5", "MQTT-4.3.3-7")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_is_sent_again_though_it_has_expired(qos: int) -> None:
    world = World()
    peer = _subscribed(world)
    _publish(world, b"x", qos)
    peer.expect(Publish)
    for delivery in peer.session.unsettled.values():
        delivery.expires = world.wall + 5
    peer.vanish()
    world.pass_time(10)
    again = _subscribed(world).expect(Publish)
    assert (again.payload, again.dup, again.properties.message_expiry) == (b"x", True, 0)


@VERSIONS
@pytest.mark.clause("v5", "MQTT-4.4.0-1")
def test_nothing_is_sent_again_on_the_same_connection(version: int) -> None:
    world = World()
    peer = _subscribed(world, version)
    _publish(world, b"1", 1)
    peer.take()
    world.pass_time(100_000)
    assert peer.take() == []


@VERSIONS
def test_ids_wrap_and_pass_over_those_in_use(version: int) -> None:
    world = World(Limits(window=10, receive_maximum=10))
    peer = _subscribed(world, version)
    _publish(world, b"held", 1)
    _publish(world, b"held", 2)
    assert [each[3] for each in _messages(peer.take())] == [1, 2]
    seen = []
    for _ in range(65_600):
        _publish(world, b"x", 1)
        packet = peer.expect(Publish)
        seen.append(packet.packet_id)
        peer.send(PubAck(packet.packet_id))
    assert seen[:2] == [3, 4]
    assert seen[65_531:65_536] == [65_534, 65_535, 3, 4, 5][0:5]
    assert not {1, 2} & set(seen)


@pytest.mark.clause("v5", "MQTT-4.3.2-3", "MQTT-4.3.3-4")
def test_a_client_that_refuses_a_message_has_it_nevertheless() -> None:
    world = World()
    peer = _subscribed(world)
    _publish(world, b"1", 1)
    _publish(world, b"2", 2)
    peer.take()
    peer.send(PubAck(1, reasons.UNSPECIFIED_ERROR), PubRec(2, reasons.QUOTA_EXCEEDED))
    peer.expect_nothing()
    assert dict(world.backend.settled) == {b"1": 1, b"2": 1}
    assert not world.backend.stored["sub"].sent
    peer.vanish()
    assert _messages(_subscribed(world).take()) == []


@VERSIONS
def test_acknowledgements_of_nothing_are_ignored_or_answered(version: int) -> None:
    peer = _subscribed(World(), version)
    peer.send(PubAck(9), PubComp(9))
    peer.expect_nothing()
    peer.send(PubRec(9))
    assert peer.take() == [PubRel(9, reasons.PACKET_IDENTIFIER_NOT_FOUND if version == V5 else 0)]
    assert not peer.closed


@VERSIONS
def test_pubrec_that_comes_twice_is_answered_twice(version: int) -> None:
    world = World()
    peer = _subscribed(world, version)
    _publish(world, b"2", 2)
    peer.take()
    peer.send(PubRec(1), PubRec(1))
    assert peer.take() == [PubRel(1), PubRel(1)]


@VERSIONS
@pytest.mark.parametrize(("qos", "answer"), [(1, PubRec(1)), (2, PubAck(1))])
def test_an_acknowledgement_of_another_qos_ends_the_connection(version: int, qos: int, answer: Packet) -> None:
    world = World()
    peer = _subscribed(world, version)
    _publish(world, b"x", qos)
    peer.take()
    peer.send(answer)
    peer.expect_end(reasons.PROTOCOL_ERROR)
    assert not world.backend.settled


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-4.6.0-4")
@pytest.mark.clause("v5", "MQTT-4.6.0-4")
def test_pubrel_is_in_the_order_of_pubrec(version: int) -> None:
    world = World()
    peer = _subscribed(world, version)
    for number in range(3):
        _publish(world, b"%d" % number, 2)
    peer.take()
    world.backend.slow = True
    peer.send(PubRec(3), PubRec(1), PubRec(2))
    world.backend.to_store.reverse()
    answers = []
    while world.backend.to_store:
        world.backend.store(1)
        answers += peer.take()
    assert answers == [PubRel(3), PubRel(1), PubRel(2)]


# what the client takes


@pytest.mark.clause("v5", "MQTT-4.9.0-1", "MQTT-4.9.0-2", "MQTT-4.9.0-3", "MQTT-3.3.4-9")
def test_no_more_is_under_way_than_the_client_allows() -> None:
    world = World()
    peer = _subscribed(world, properties=Properties(receive_maximum=2))
    for number in range(6):
        _publish(world, b"%d" % number, 1 + number % 2)
    assert [each[0] for each in _messages(peer.take())] == [b"0", b"1"]
    peer.send(PingReq())
    assert peer.take() == [PingResp()]
    peer.send(PubAck(1))
    assert [each[0] for each in _messages(peer.take())] == [b"2"]
    peer.send(PubRec(2))
    assert peer.take() == [PubRel(2)]
    peer.send(PubComp(2))
    assert [each[0] for each in _messages(peer.take())] == [b"3"]
    peer.vanish()
    peer = _subscribed(world, properties=Properties(receive_maximum=65535))
    assert len(_messages(peer.take())) == 4


@pytest.mark.clause("v5", "MQTT-3.1.2-24", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_too_large_for_the_client_counts_as_delivered(qos: int) -> None:
    world = World()
    peer = _subscribed(world, properties=Properties(maximum_packet_size=100))
    _publish(world, b"x" * 100, qos)
    _publish(world, b"y", qos)
    assert [each[0] for each in _messages(peer.take())] == [b"y"]
    assert world.backend.settled[b"x" * 100] == 1
    assert world.server_state.dropped == 1


def test_exactly_the_largest_packet_is_sent() -> None:
    world = World()
    peer = _subscribed(world, properties=Properties(maximum_packet_size=100))
    _publish(world, b"x" * 94, 0)
    assert len(peer.take_bytes()) == 100


def _deliver(peer: Peer, **more: Any) -> None:
    delivery = Delivery("a", b"x", **more)
    delivery.identity, delivery.source = f"{id(delivery):016x}", "s"
    peer.session.unsettled[delivery.identity] = delivery
    peer.session.deliveries.deliver(copy(delivery))


@pytest.mark.clause("v5", "MQTT-3.3.2-5", "MQTT-3.3.2-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_message_expiry_is_what_is_left_of_it(qos: int) -> None:
    world = World()
    peer = _subscribed(world)
    _deliver(peer, qos=qos, expires=world.wall + 17.5)
    assert peer.expect(Publish).properties.message_expiry == 18
    _deliver(peer, qos=qos, expires=253_402_300_800.0)  # the year 10,000, as some AMQP clients write "never"
    assert peer.expect(Publish).properties.message_expiry == 0xFFFF_FFFF
    _deliver(peer, qos=qos, expires=world.wall - 0.1)
    peer.expect_nothing()
    assert world.server_state.dropped == 1


def test_a_message_that_expires_while_the_client_takes_no_more_is_not_sent() -> None:
    world = World()
    peer = _subscribed(world, properties=Properties(receive_maximum=1))
    _deliver(peer, qos=1)
    _deliver(peer, qos=1, expires=world.wall + 5)
    _deliver(peer, qos=1)
    peer.expect(Publish)
    world.pass_time(10)
    peer.send(PubAck(1))
    assert peer.expect(Publish).properties.message_expiry is None
    assert world.backend.settled[b"x"] == 2


@pytest.mark.clause("v5", "MQTT-3.3.4-3", "MQTT-3.3.4-4")
def test_a_subscription_identifier_comes_with_each_matching_subscription() -> None:
    world = World()
    peer = world.connected("sub")
    for packet_id, (filter, identifier) in enumerate([("a/#", 7), ("a/b", 300), ("#", 0)], 1):
        given = Properties(subscription_ids=(identifier,)) if identifier else Properties()
        peer.send(Subscribe(packet_id, (Subscription(filter, 0),), given))
    peer.take()
    _publish(world, b"x", 0, "a/b")
    _publish(world, b"x", 0, "a/c")
    _publish(world, b"x", 0, "z")
    found = [each.properties.subscription_ids for each in peer.take() if isinstance(each, Publish)]
    assert [set(each) for each in found] == [{7, 300}, {7}, set()]


@pytest.mark.clause("v5", "MQTT-3.1.2-26", "MQTT-3.1.2-27")
def test_topics_get_aliases_if_the_client_allows_it() -> None:
    world = World(Limits(topic_aliases=5))
    peer = _subscribed(world, properties=Properties(topic_alias_maximum=2))
    topics = ["a", "b", "a", "c", "b", "c", "a"]
    for topic in topics:
        _publish(world, topic.encode(), 0, topic)
    known: dict[int, str] = {}
    got = []
    for each in peer.take():
        assert isinstance(each, Publish)
        alias = each.properties.topic_alias
        if alias is not None:
            assert 1 <= alias <= 2
            if each.topic:
                known[alias] = each.topic
        got.append(each.topic or known[alias or 0])
    assert got == topics
    none = _subscribed(World())
    _publish(none.world, b"x", 0)
    _publish(none.world, b"x", 0)
    assert [each.topic for each in none.take() if isinstance(each, Publish)] == ["a", "a"]


def test_aliases_move_to_topics_that_have_become_frequent() -> None:
    world = World()
    peer = _subscribed(world, properties=Properties(topic_alias_maximum=1))
    _publish(world, b"", 0, "old")
    for _ in range(20):
        _publish(world, b"", 0, "new/and/long")
    known, got = "", []
    for each in peer.take():
        assert isinstance(each, Publish)
        if each.properties.topic_alias and each.topic:
            known = each.topic
        got.append(each.topic or known)
    assert got == ["old"] + ["new/and/long"] * 20
    assert known == "new/and/long"


def test_an_alias_is_not_set_by_a_message_that_waits_for_its_id_to_be_stored() -> None:
    world = World()
    peer = _subscribed(world, properties=Properties(topic_alias_maximum=3))
    world.backend.slow = True
    _publish(world, b"2", 2)
    _publish(world, b"0", 0)
    first = peer.expect(Publish)
    assert (first.topic, first.properties.topic_alias) == ("a", 1)
    world.backend.store()
    second = peer.expect(Publish)
    assert (second.topic, second.properties.topic_alias) == ("", 1)


def test_an_alias_makes_no_packet_of_qos_2_too_large() -> None:
    world = World()
    size = len(encode.encode(Publish("a", b"12", 2, packet_id=1), V5))
    peer = _subscribed(world, properties=Properties(topic_alias_maximum=3, maximum_packet_size=size))
    _publish(world, b"12", 2)
    sent = peer.expect(Publish)
    assert (sent.topic, sent.payload, sent.properties.topic_alias) == ("a", b"12", None)
    peer.send(PubRec(1))
    peer.take()
    peer.send(PubComp(1))
    _publish(world, b"1", 2, "b")
    assert peer.expect(Publish).topic == "b"


def test_a_topic_that_mqtt_cannot_express_is_dropped_and_harms_nobody() -> None:
    world = World()
    peer = _subscribed(world)
    for topic in ("a/+/b", "", "x\0y", "z" * 70_000):
        peer.session.deliveries.deliver(Delivery(topic, b"x", 0, identity=topic or "empty", source="s"))
    _publish(world, b"good", 0)
    assert peer.expect(Publish).payload == b"good"
    assert world.server_state.dropped == 4


# a client that does not read


@VERSIONS
def test_a_client_that_does_not_read_gets_no_more_and_is_disconnected_in_time(version: int) -> None:
    world = World(Limits(stall_seconds=30, window=16))
    peer = _subscribed(world, version)
    peer.connection.set_blocked(True)
    for number in range(100):
        _publish(world, b"%d" % number, number % 3)
    assert peer.take() == []
    assert len(peer.session.unsettled) == 16
    assert not world.backend.settled
    assert peer.paused
    world.pass_time(20)
    peer.connection.set_blocked(False)
    assert not peer.paused
    before = len(peer.take())
    assert before > 5
    peer.connection.set_blocked(True)
    world.pass_time(29)
    assert not peer.closed
    world.pass_time(3)
    assert peer.closed
    assert world.backend.endings == [("sub", Ending.LOST, None)]


@VERSIONS
def test_a_client_that_does_not_take_its_goodbye_is_cut_off(version: int) -> None:
    world = World()
    peer = _subscribed(world, version)
    peer.send(Disconnect())
    peer.keep_socket()
    world.pass_time(6)
    assert peer.closed


@VERSIONS
def test_a_client_that_never_acknowledges_holds_its_window_and_no_more(version: int) -> None:
    world = World(Limits(window=20))
    peer = _subscribed(world, version)
    for number in range(100):
        _publish(world, b"%d" % number, 1)
    assert len(_messages(peer.take())) == 20
    assert len(world.backend.stored["sub"].queue) == 80
    peer.send(PubAck(1))
    assert len(_messages(peer.take())) == 1


# subscriptions


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
@pytest.mark.clause("v5", "MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-6", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
def test_suback_has_a_code_for_each_filter_in_their_order(version: int) -> None:
    world = World()
    world.backend.codes = lambda filter, qos: {"no": reasons.NOT_AUTHORIZED, "low": 1}.get(filter, qos)
    peer = world.connected(version=version)
    peer.take()
    names = [("a", 2), ("no", 1), ("b", 0), ("low", 2), ("no", 0)]
    peer.send(Subscribe(513, tuple(Subscription(*name) for name in names)))
    refused = 0x80 if version == V311 else reasons.NOT_AUTHORIZED
    assert peer.take() == [SubAck(513, (2, refused, 0, 1, refused))]


def test_requests_are_answered_one_after_the_other() -> None:
    world = World()
    peer = world.connected()
    peer.take()
    session = peer.session
    asked: list[Subscribe] = []
    session.subscribe = asked.append  # type: ignore[method-assign, assignment]  # replaced by the test
    for packet_id in range(1, 40):
        peer.send(Subscribe(packet_id, (Subscription(f"f{packet_id}"),)))
    assert [each.packet_id for each in asked] == [1]
    assert peer.paused
    answered = []
    while asked:
        session.replies.subscribed(asked.pop(0).packet_id, [0])
        answered += [each.packet_id for each in peer.take() if isinstance(each, SubAck)]
        assert len(asked) <= 1
    assert answered == list(range(1, 40))
    assert not peer.paused


def test_retained_messages_come_after_suback_and_before_what_follows_them() -> None:
    world = World()
    peer = world.connected()
    peer.take()
    session = peer.session
    asked: list[Subscribe] = []
    session.subscribe = asked.append  # type: ignore[method-assign, assignment]  # replaced by the test
    peer.send(Subscribe(1, (Subscription("#", 1),)))
    session.deliveries.deliver(Delivery("a", b"live", 1, identity="1"))
    session.deliveries.deliver(Delivery("a", b"retained", 1, retain=True, identity="2"))
    session.deliveries.deliver(Delivery("a", b"later", 1, identity="3"))
    first = peer.take()
    assert _messages(first) == [(b"live", 1, False, 1)]
    peer.send(PubAck(1))
    assert peer.take() == []
    session.replies.subscribed(1, [1])
    answer, *rest = peer.take()
    assert isinstance(answer, SubAck)
    assert _messages(rest) == [(b"retained", 1, False, 2), (b"later", 1, False, 3)]


@pytest.mark.parametrize(("version", "full"), [(V311, 0x80), (V5, reasons.QUOTA_EXCEEDED)])
def test_more_subscriptions_than_the_limit_are_refused_one_by_one(version: int, full: int) -> None:
    world = World(Limits(subscriptions=3))
    peer = world.connected(version=version)
    peer.take()
    names = ["a", "b", "a", "c", "d", "b", "e"]
    peer.send(Subscribe(1, tuple(Subscription(name, 1) for name in names)))
    assert peer.expect(SubAck).codes == (1, 1, 1, 1, full, 1, full)
    peer.send(Subscribe(2, (Subscription("x"), Subscription("y"))))
    refused = peer.expect(SubAck)
    assert refused.codes == (full, full)
    told = "a client may have 3 subscriptions and 1 more"
    assert refused.properties.reason_string == (told if version == V5 else None)
    peer.send(Subscribe(3, (Subscription("c", 2),)))
    assert peer.expect(SubAck).codes == (2,)
    assert sorted(peer.session.filters) == ["a", "b", "c"]


@pytest.mark.clause("v5", "MQTT-2.2.1-3")
def test_an_id_in_use_cannot_be_used_for_a_request() -> None:
    world = World()
    peer = world.connected()
    peer.take()
    world.backend.outcome = lambda publish: None
    peer.send(Publish("a", b"", 1, packet_id=5))
    peer.send(Subscribe(5, (Subscription("a"), Subscription("b"))))
    assert peer.expect(SubAck).codes == (reasons.PACKET_IDENTIFIER_IN_USE,) * 2
    assert not peer.session.filters


def test_a_filter_of_very_many_levels_is_refused() -> None:
    world = World()
    peer = world.connected()
    peer.take()
    peer.send(Subscribe(1, (Subscription("/".join("x" * 201)), Subscription("/".join("x" * 200)))))
    assert peer.expect(SubAck).codes == (reasons.TOPIC_FILTER_INVALID, 0)


def test_the_encoded_form_of_everything_sent_is_read_by_our_reader() -> None:
    """A retained message with all properties that a server may send."""
    world = World()
    peer = world.connected("sub")
    peer.take()
    given = Properties(
        payload_format=1,
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\0\1",
        subscription_ids=(1, 268_435_455),
        user_properties=(("k", "1"), ("k", "2")),
    )
    peer.session.deliveries.deliver(Delivery("a", b"x", 0, True, given, identity="1", source="s"))
    packet = peer.expect(Publish)
    assert packet.properties == given
    assert packet.retain
    assert encode.encode(packet, V5)


def test_clients_that_keep_too_much_waiting_are_disconnected_and_those_with_little_are_not() -> None:
    world = World(Limits(memory=1 << 20, window=200))
    greedy = _subscribed(world)
    modest = world.connected("modest", properties=Properties(session_expiry=1000))
    modest.send(Subscribe(1, (Subscription("few", 1),)))
    modest.take()
    for each in (greedy, modest):
        each.connection.set_blocked(True)
    peers = [greedy, modest]
    for number in range(100):
        _publish(world, b"%d" % number * 10_000, 1, "many")
        if not number % 50:
            _publish(world, b"x" * 10_000, 1, "few")
        assert world.server_state.memory.total <= 2 << 20
        greedy.flush()
    assert [peer.closed for peer in peers] == [True, False]
    assert world.backend.endings == [("sub", Ending.LOST, None)]
    assert 20_000 <= world.server_state.memory.total < 30_000  # of the modest client
    assert not world.backend.settled
    modest.connection.set_blocked(False)
    assert len(_messages(modest.take())) == 2
    assert world.server_state.memory.total == 0


def test_packets_that_are_not_complete_count_too() -> None:
    world = World(Limits(memory=1 << 20, max_packet=1 << 20))
    peers = [world.connected(f"p{number}") for number in range(4)]
    part = encode.encode(Publish("a", b"x" * (1 << 19)), V5)[: 400 << 10]
    for peer in peers:
        peer.take()
        for start in range(0, len(part), 50_000):
            peer.send_bytes(part[start : start + 50_000])
            world.turn()
    assert [peer.closed for peer in peers] == [True, True, False, False]
    peers[0].expect_end(reasons.QUOTA_EXCEEDED)
    for peer in peers:
        peer.vanish()
    assert world.server_state.memory.total == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_nobody_keeps_waits_up_to_the_window_and_is_dropped_beyond_it(qos: int) -> None:
    world = World(Limits(window=5))
    peer = _subscribed(world)
    _deliver(peer, qos=qos, fleeting=True)
    assert len(_messages(peer.take())) == 1
    peer.connection.set_blocked(True)
    for _ in range(20):
        _deliver(peer, qos=qos, fleeting=True)
    assert peer.take() == []
    kept = 5 if qos else 0
    assert world.server_state.dropped == 20 - kept
    peer.connection.set_blocked(False)
    assert len(_messages(peer.take())) == kept
    assert world.server_state.memory.total == 0


def test_what_a_connection_held_is_freed_when_it_has_gone() -> None:
    """At once: the collector of the gateway hardly ever looks at what has been there for long."""
    world = World()
    peer = _subscribed(world)
    for qos in (0, 1, 2):
        _publish(world, b"held", qos)
    gc.collect()
    gc.disable()
    try:
        peer.vanish()
        world.peers.clear()
        world.backend.sessions.clear()
        left = [each for each in gc.get_objects() if isinstance(each, Outbound | Inbound | Subscribing)]
        assert not left
    finally:
        gc.enable()
