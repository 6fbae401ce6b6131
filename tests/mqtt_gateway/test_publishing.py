"""Messages from a client: acknowledgements, their order, what is refused, limits."""

from __future__ import annotations

import pytest

from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt import encode, reasons
from enmasse.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
)
from services.mqtt_gateway.interfaces import UNKNOWN, Ending
from services.mqtt_gateway.protocol.inbound import FEW
from tests.mqtt_gateway.peer import Peer, World

VERSIONS = pytest.mark.parametrize("version", [V311, V5])


def _connected(world: World, version: int = V5, client_id: str = "c", **more: object) -> Peer:
    peer = world.connected(client_id, version, **more)
    peer.expect(ConnAck)
    return peer


def _payloads(world: World) -> list[bytes]:
    return [payload for _, _, payload in world.backend.routed]


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.3.4-1", "MQTT-4.3.1-1", "MQTT-4.3.2-2", "MQTT-4.3.3-2", "MQTT-2.3.1-6")
@pytest.mark.clause("v5", "MQTT-3.3.4-1", "MQTT-4.3.2-4", "MQTT-4.3.3-8", "MQTT-4.3.3-11", "MQTT-2.2.1-5")
def test_each_qos_is_answered_as_it_demands(version: int) -> None:
    world = World()
    peer = _connected(world, version)
    peer.send(Publish("a", b"0"), Publish("a", b"1", 1, packet_id=65535), Publish("a", b"2", 2, packet_id=1))
    assert peer.take() == [PubAck(65535), PubRec(1)]
    peer.send(PubRel(1))
    assert peer.take() == [PubComp(1)]
    assert _payloads(world) == [b"0", b"1", b"2"]
    assert not world.backend.stored["c"].received


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-4.6.0-2", "MQTT-4.6.0-3")
@pytest.mark.clause("v5", "MQTT-4.6.0-2", "MQTT-4.6.0-3")
def test_acknowledgements_are_in_the_order_of_the_messages(version: int) -> None:
    world = World()
    peer = _connected(world, version)
    world.backend.outcome = lambda publish: None
    session = peer.session
    for qos in (1, 2):
        for packet_id in (5, 3, 9):
            peer.send(Publish("a", b"", qos, packet_id=packet_id + 100 * qos))
    answers: list[object] = []
    for packet_id in (103, 209, 109, 203):
        session.answer(packet_id, 0)
        answers += peer.take()
    assert answers == []
    session.answer(105, 0)
    assert peer.take() == [PubAck(105), PubAck(103), PubAck(109)]
    session.answer(205, 0)
    assert peer.take() == [PubRec(205), PubRec(203), PubRec(209)]


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1])
def test_messages_of_one_topic_that_come_together_go_together(version: int, qos: int) -> None:
    world = World(Limits(unanswered=7))
    peer = _connected(world, version)
    world.backend.slow = True
    messages = [Publish("a", b"%d" % number, qos, packet_id=qos * (number + 1)) for number in range(9)]
    messages += [Publish("b", b"other", qos, packet_id=qos * 10), Publish("b", b"kept", qos, True, packet_id=qos * 11)]
    peer.send(*messages)
    assert world.backend.together == [7 if qos else 9]
    assert len(_payloads(world)) == (7 if qos else 11)
    world.backend.store()
    peer.flush()
    world.turn()
    assert _payloads(world) == [each.payload for each in messages]
    assert peer.take() == [PubAck(each.packet_id) for each in messages] * qos
    assert peer.connection.intake.packets == 1 + len(messages)


@VERSIONS
@pytest.mark.parametrize(
    "groups", [[[1, 2, 3, 4, 5, 6, 7, 8]], [[2, 3], [1], [4, 5, 6]], [[3, 1], [2, 8, 7], [4, 5, 6]]]
)
def test_messages_that_are_stored_together_are_acknowledged_in_order(version: int, groups: list[list[int]]) -> None:
    """And the window of 8 lets the client send as many again."""
    world = World(Limits(unanswered=8))
    peer = _connected(world, version)
    world.backend.outcome = lambda publish: None
    peer.send(*(Publish("a", b"", 1, packet_id=number) for number in range(1, 10)))
    for ids in groups:
        peer.session.publications.accepted(ids)
    done = sorted(number for ids in groups for number in ids)
    assert peer.take() == [PubAck(number) for number in range(1, 9) if number in done]
    assert len(peer.session.asked) == 9
    assert peer.connection.in_flight == (9 - len(done), 0)
    assert not peer.paused


def test_a_session_that_looks_at_each_message_is_asked_for_no_run() -> None:
    world = World()
    peer = _connected(world, V311)
    assert not peer.session.takes_runs
    peer.send(*(Publish("a", b"%d" % number) for number in range(2 * FEW)))
    assert len(_payloads(world)) == 2 * FEW
    assert not peer.closed


@pytest.mark.clause("v3.1.1", "MQTT-2.3.1-2")
@pytest.mark.parametrize("ids", [(*range(2, 2 + FEW), 2), (*range(2, 2 + FEW), 1)])
def test_an_id_in_use_among_messages_that_come_together_is_refused(ids: tuple[int, ...]) -> None:
    world = World()
    peer = _connected(world, V311)
    world.backend.slow = True
    peer.send(Publish("a", b"", 1, packet_id=1))
    peer.send(*(Publish("a", b"", 1, packet_id=packet_id) for packet_id in ids))
    peer.expect_end(0)


@pytest.mark.clause("v5", "MQTT-3.4.2-1", "MQTT-3.5.2-1")
@pytest.mark.parametrize("reason", [reasons.NO_MATCHING_SUBSCRIBERS, reasons.NOT_AUTHORIZED, reasons.QUOTA_EXCEEDED])
def test_5_gets_the_reason_code(reason: int) -> None:
    world = World()
    peer = _connected(world)
    world.backend.outcome = lambda publish: None
    peer.send(Publish("a", b"", 1, packet_id=1), Publish("a", b"", 2, packet_id=2))
    for packet_id in (1, 2):
        peer.session.answer(packet_id, reason, "because")
    one, two = peer.take()
    assert isinstance(one, PubAck)
    assert isinstance(two, PubRec)
    for each in (one, two):
        assert (each.reason, each.properties.reason_string) == (reason, "because")
    assert not peer.closed
    # a refused id is free again; an accepted one is not before PUBREL
    world.backend.outcome = lambda publish: 0
    peer.send(Publish("a", b"", 1, packet_id=1), Publish("a", b"", 2, packet_id=2))
    assert peer.take() == [PubAck(1), PubRec(2)]
    assert len(world.backend.routed) == (3 if reason < 0x80 else 2)


@pytest.mark.clause("v5", "MQTT-3.1.2-29")
def test_a_reason_string_is_not_sent_to_those_who_do_not_want_it() -> None:
    world = World()
    peer = _connected(world, properties=Properties(request_problem_info=0))
    world.backend.outcome = lambda publish: None
    peer.send(Publish("a", b"", 1, packet_id=1))
    peer.session.answer(1, reasons.NOT_AUTHORIZED, "because")
    assert peer.take() == [PubAck(1, reasons.NOT_AUTHORIZED)]


@pytest.mark.clause("v5", "MQTT-3.4.2-2", "MQTT-3.5.2-2", "MQTT-3.1.2-24")
def test_a_reason_string_is_left_out_if_the_packet_would_be_too_large() -> None:
    world = World()
    peer = _connected(world, properties=Properties(maximum_packet_size=40))
    world.backend.outcome = lambda publish: None
    peer.send(Publish("a", b"", 1, packet_id=1))
    peer.session.answer(1, reasons.NOT_AUTHORIZED, "because" * 10)
    assert peer.take() == [PubAck(1, reasons.NOT_AUTHORIZED)]


@pytest.mark.clause("v3.1.1", "MQTT-3.3.5-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_3_1_1_is_closed_if_its_message_was_not_taken(qos: int) -> None:
    world = World()
    peer = _connected(world, V311)
    world.backend.outcome = lambda publish: reasons.NOT_AUTHORIZED
    peer.send(Publish("a", b"", qos, packet_id=1), Publish("a", b"", qos, packet_id=2))
    peer.expect_end(0)
    assert world.backend.endings == [("c", Ending.LOST, None)]


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_an_unknown_outcome_closes_the_connection_and_is_not_acknowledged(version: int, qos: int) -> None:
    world = World()
    peer = _connected(world, version)
    world.backend.outcome = lambda publish: UNKNOWN
    peer.send(Publish("a", b"", qos, packet_id=1))
    peer.expect_end(reasons.UNSPECIFIED_ERROR)


# QoS 2


@VERSIONS
@pytest.mark.parametrize("dup", [False, True])
@pytest.mark.clause("v3.1.1", "MQTT-4.3.3-2")
@pytest.mark.clause("v5", "MQTT-4.3.3-10")
def test_a_message_that_comes_again_before_pubrel_is_acknowledged_and_not_sent_on(version: int, dup: bool) -> None:
    world = World()
    peer = _connected(world, version)
    for _ in range(3):
        peer.send(Publish("a", b"x", 2, dup=dup, packet_id=4))
        assert peer.take() == [PubRec(4)]
    peer.send(PubRel(4))
    assert peer.take() == [PubComp(4)]
    assert _payloads(world) == [b"x"]
    peer.send(Publish("a", b"y", 2, packet_id=4))  # v5 MQTT-4.3.3-12: a new message
    assert peer.take() == [PubRec(4)]
    assert _payloads(world) == [b"x", b"y"]


@VERSIONS
def test_a_message_that_comes_again_while_its_outcome_is_open_is_acknowledged_once(version: int) -> None:
    world = World()
    peer = _connected(world, version)
    world.backend.outcome = lambda publish: None
    peer.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"1", 1, dup=True, packet_id=1))
    peer.send(Publish("a", b"2", 2, packet_id=2), Publish("a", b"2", 2, dup=True, packet_id=2))
    peer.session.answer(1, 0)
    peer.session.answer(2, 0)
    assert peer.take() == [PubAck(1), PubRec(2)]
    assert _payloads(world) == [b"1", b"2"]


@VERSIONS
@pytest.mark.clause("v5", "MQTT-2.2.1-3")
def test_a_new_message_under_an_id_in_use_ends_the_connection(version: int) -> None:
    world = World()
    peer = _connected(world, version)
    world.backend.outcome = lambda publish: None
    peer.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 1, packet_id=1))
    peer.expect_end(reasons.PROTOCOL_ERROR)


@pytest.mark.parametrize(("version", "reason"), [(V311, 0), (V5, reasons.PACKET_IDENTIFIER_NOT_FOUND)])
@pytest.mark.clause("v5", "MQTT-4.3.3-11")
def test_pubrel_of_an_unknown_id_is_answered(version: int, reason: int) -> None:
    peer = _connected(World(), version)
    peer.send(PubRel(77))
    assert peer.take() == [PubComp(77, reason)]


@VERSIONS
def test_pubrel_that_comes_twice_is_answered_once_it_is_stored(version: int) -> None:
    world = World()
    peer = _connected(world, version)
    peer.send(Publish("a", b"x", 2, packet_id=4))
    peer.take()
    world.backend.slow = True
    peer.send(PubRel(4), PubRel(4))
    assert peer.take() == []
    world.backend.store()
    assert peer.take() == [PubComp(4)]


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-4.4.0-1")
@pytest.mark.clause("v5", "MQTT-4.3.3-10", "MQTT-4.4.0-1")
def test_qos_2_goes_on_after_a_lost_connection(version: int) -> None:
    world = World()
    keep = Properties(session_expiry=100) if version == V5 else Properties()

    def again() -> Peer:
        return _connected(world, version, clean=False, properties=keep)

    peer = again()
    peer.send(Publish("a", b"1", 2, packet_id=1), Publish("a", b"2", 2, packet_id=2))
    peer.vanish()  # before it could read PUBREC
    peer = again()
    assert sorted(peer.session.incoming) == [1, 2]
    peer.send(Publish("a", b"1", 2, dup=True, packet_id=1))
    assert peer.take() == [PubRec(1)]
    peer.vanish()
    peer = again()
    peer.send(PubRel(1), PubRel(2))
    assert peer.take() == [PubComp(1), PubComp(2)]
    assert _payloads(world) == [b"1", b"2"]
    assert not world.backend.stored["c"].received


@VERSIONS
def test_a_device_that_counts_from_1_again_sends_new_messages(version: int) -> None:
    world = World()
    keep = Properties(session_expiry=100) if version == V5 else Properties()
    peer = _connected(world, version, clean=False, properties=keep)
    peer.send(Publish("a", b"old", 2, packet_id=1))
    peer.vanish()
    peer = _connected(world, version, clean=False, properties=keep)
    peer.send(Publish("a", b"new", 2, packet_id=1))
    assert peer.take() == [PubRec(1)]
    assert _payloads(world) == [b"old", b"new"]


# topics and properties


@pytest.mark.clause("v5", "MQTT-3.3.2-8", "MQTT-3.3.2-9")
@pytest.mark.parametrize("alias", [4, 65535])
def test_a_topic_alias_above_the_maximum_ends_the_connection(alias: int) -> None:
    world = World(Limits(topic_aliases=3))
    peer = _connected(world)
    peer.send(Publish("a", b"", properties=Properties(topic_alias=alias)))
    peer.expect_end(reasons.TOPIC_ALIAS_INVALID)
    assert not world.backend.routed


def test_topic_aliases_stand_for_topics() -> None:
    world = World(Limits(topic_aliases=3))
    peer = _connected(world)
    one, three = Properties(topic_alias=1), Properties(topic_alias=3, user_properties=(("k", "v"),))
    peer.send(Publish("x", b"1", properties=one), Publish("y", b"2", 1, packet_id=1, properties=three))
    peer.send_bytes(encode.encode(Publish("", b"3", properties=one), V5, of_client=True))
    peer.send(Publish("z", b"4", properties=one))
    peer.send_bytes(encode.encode(Publish("", b"5", properties=one), V5, of_client=True))
    peer.send_bytes(encode.encode(Publish("", b"6", properties=three), V5, of_client=True))
    assert [(topic, payload) for _, topic, payload in world.backend.routed] == [
        ("x", b"1"),
        ("y", b"2"),
        ("x", b"3"),
        ("z", b"4"),
        ("z", b"5"),
        ("y", b"6"),
    ]


@pytest.mark.clause("v5", "MQTT-3.3.2-7")
def test_an_alias_that_was_never_set_is_a_protocol_error_also_after_a_reconnect() -> None:
    world = World()
    peer = _connected(world)
    peer.send(Publish("x", b"1", properties=Properties(topic_alias=1)))
    peer.vanish()
    peer = _connected(world)
    peer.send_bytes(encode.encode(Publish("", b"3", properties=Properties(topic_alias=1)), V5, of_client=True))
    peer.expect_end(reasons.PROTOCOL_ERROR)


@pytest.mark.clause("v5", "MQTT-3.3.4-6")
def test_a_client_may_not_set_a_subscription_identifier() -> None:
    peer = _connected(World())
    data = encode.encode(Publish("a", b"", properties=Properties(subscription_ids=(1,))), V5)
    peer.send_bytes(data)
    peer.expect_end(reasons.PROTOCOL_ERROR)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_payload_that_is_not_the_text_it_says_is_refused(qos: int) -> None:
    world = World()
    peer = _connected(world)
    text = Properties(payload_format=1)
    peer.send(Publish("a", "ü".encode(), 1, packet_id=9, properties=text))
    assert peer.take() == [PubAck(9)]
    peer.send(Publish("a", b"\xff", qos, packet_id=qos, properties=text))
    if qos == 0:
        peer.expect_end(reasons.PAYLOAD_FORMAT_INVALID)
    else:
        answer = peer.take()[0]
        assert isinstance(answer, PubAck if qos == 1 else PubRec)
        assert answer.reason == reasons.PAYLOAD_FORMAT_INVALID
        assert not peer.closed
    assert len(world.backend.routed) == 1


# limits


@pytest.mark.clause("v5", "MQTT-3.3.4-7")
def test_5_is_closed_if_it_exceeds_the_receive_maximum() -> None:
    world = World(Limits(receive_maximum=3))
    peer = _connected(world)
    peer.send(Publish("a", b"", 2, packet_id=1))
    peer.take()  # PUBREC: it counts until PUBCOMP
    world.backend.outcome = lambda publish: None
    peer.send(Publish("a", b"", 1, packet_id=2))
    peer.send(Publish("a", b"", 0))
    peer.send(Publish("a", b"", 1, packet_id=3))
    assert not peer.closed
    peer.send(Publish("a", b"", 1, packet_id=4))
    peer.expect_end(reasons.RECEIVE_MAXIMUM_EXCEEDED)


@VERSIONS
def test_no_more_is_read_than_may_wait_for_an_outcome(version: int) -> None:
    world = World(Limits(unanswered=3))
    peer = _connected(world, version)
    world.backend.outcome = lambda publish: None
    peer.send(*(Publish("a", b"%d" % number, 1, packet_id=number) for number in range(1, 6)))
    peer.send(Publish("a", b"6", 1, packet_id=6))
    session = peer.session
    assert sorted(session.asked) == [1, 2, 3]
    assert peer.paused
    for number in range(1, 7):
        session.answer(number, 0)
        assert len(session.asked) <= 3
    assert peer.take() == [PubAck(number) for number in range(1, 7)]
    assert not peer.paused


@VERSIONS
def test_messages_that_wait_for_pubrel_do_not_stop_3_1_1_from_sending_it(version: int) -> None:
    world = World(Limits(receive_maximum=3))
    peer = _connected(world, version)
    for number in (1, 2, 3):
        peer.send(Publish("a", b"", 2, packet_id=number))
    assert peer.take() == [PubRec(1), PubRec(2), PubRec(3)]
    peer.send(PubRel(1), PubRel(2), PubRel(3))
    assert peer.take() == [PubComp(1), PubComp(2), PubComp(3)]


def test_nothing_is_read_while_the_session_has_no_room() -> None:
    world = World()
    peer = _connected(world)
    client = peer.session.publications
    client.hold()
    assert peer.paused
    peer.send(Publish("a", b"1"), Publish("a", b"2"))
    assert not world.backend.routed
    client.proceed()
    assert _payloads(world) == [b"1", b"2"]
    assert not peer.paused


def test_a_session_that_says_no_room_in_the_middle_of_a_read_gets_the_rest_later_and_once() -> None:
    world = World()
    peer = _connected(world)
    session = peer.session

    def every_third(publish: Publish) -> int:
        if int(publish.payload) % 3 == 0:
            session.publications.hold()
        return 0

    world.backend.outcome = every_third
    peer.send(*(Publish("a", b"%d" % number) for number in range(20)))
    rounds = 0
    while len(world.backend.routed) < 20:
        rounds += 1
        session.publications.proceed()
        assert rounds < 20
    assert _payloads(world) == [b"%d" % number for number in range(20)]


def test_a_large_read_is_shared_out_over_turns_of_the_loop() -> None:
    world = World()
    peer = _connected(world)
    many = 40_000
    peer.send_bytes(encode.encode(Publish("a", b""), V5) * many)
    assert 0 < len(world.backend.routed) < many
    assert peer.paused
    turns = 0
    while world.calls:
        turns += 1
        world.one_turn()
    assert turns > 2
    assert len(world.backend.routed) == many
    assert not peer.paused


@VERSIONS
def test_a_packet_that_is_too_large_is_refused_on_its_header(version: int) -> None:
    world = World(Limits(max_packet=2048))
    peer = _connected(world, version)
    fits = Publish("a", b"x" * (2048 - 6 - (version == V5)))
    assert len(encode.encode(fits, version)) == 2048
    peer.send(fits)
    assert len(world.backend.routed) == 1
    peer.send_bytes(b"\x30\x80\x80\x80\x01")
    peer.expect_end(reasons.PACKET_TOO_LARGE)


def test_what_came_before_a_fault_in_the_same_read_still_holds() -> None:
    world = World()
    peer = _connected(world)
    peer.send_bytes(encode.encode(Publish("a", b"1", 1, packet_id=1), V5) + b"\x36\x00")
    answers = peer.take()
    assert answers[0] == PubAck(1)
    assert peer.closed
    assert _payloads(world) == [b"1"]


@pytest.mark.parametrize(("noted", "events"), [("why", 0), ("another", 1)])
def test_a_refusal_that_ends_the_connection_is_one_event(noted: str, events: int) -> None:
    world, seen = World(), list[object]()
    world.server_state.refusals.seen = seen.append
    peer = _connected(world, V311)
    world.backend.outcome = lambda publish: None
    peer.send(Publish("a", b"", 1, packet_id=1))
    session = peer.session
    session.noted = (reasons.NOT_AUTHORIZED, noted)
    session.answer(1, reasons.NOT_AUTHORIZED, "why")
    assert peer.take() == [] and peer.closed
    assert len(seen) == events
