"""CONNECT and the end of a connection: what is refused, how, and what the session hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.identity.owned import owned
from enmasse.identity.principal import Principal
from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt import encode, reasons
from enmasse.mqtt.packets import (
    NEVER,
    V5,
    V311,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    SubAck,
    Subscribe,
    Subscription,
    Will,
)
from services.mqtt_gateway.interfaces import Ending, Refused, Request
from services.mqtt_gateway.protocol.server_state import Connected
from tests.mqtt_gateway.peer import Peer, World

VERSIONS = pytest.mark.parametrize("version", [V311, V5])


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.1.4-4", "MQTT-3.2.0-1")
@pytest.mark.clause("v5", "MQTT-3.2.0-1")
@pytest.mark.clause("v5", "MQTT-3.1.4-5")
def test_connack_is_the_first_packet_and_says_success(version: int) -> None:
    world = World()
    peer = world.connected(version=version)
    answer = peer.expect(ConnAck)
    assert (answer.reason, answer.session_present) == (0, False)
    assert peer.known


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.1.0-1")
@pytest.mark.clause("v5", "MQTT-3.1.0-1")
@pytest.mark.clause("v3.1.1", "MQTT-3.1.4-1")
def test_the_first_packet_must_be_connect(version: int) -> None:
    world = World()
    peer = world.peer(version)
    peer.send(PingReq())
    assert peer.take_bytes() == b""
    assert peer.closed
    assert not world.backend.requests


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.1.0-2")
@pytest.mark.clause("v5", "MQTT-3.1.0-2")
def test_a_second_connect_ends_the_connection(version: int) -> None:
    world = World()
    peer = world.connected(version=version)
    peer.take()
    peer.send(Connect("c", version=version))
    peer.expect_end(reasons.PROTOCOL_ERROR)
    assert world.backend.endings == [("c", Ending.LOST, None)]


@pytest.mark.clause("v3.1.1", "MQTT-3.1.2-2")
@pytest.mark.clause("v5", "MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [3, 6, 0x83, 0x85])
def test_other_protocol_levels_are_refused_in_the_form_of_3_1_1(level: int) -> None:
    peer = World().peer()
    peer.send_bytes(b"\x10\x0d\0\4MQTT" + bytes((level,)) + b"\2\0\0\0\1c")
    assert peer.take_bytes() == b"\x20\2\0\1"
    assert peer.closed


@VERSIONS
def test_a_connect_that_is_too_large_is_refused_at_its_beginning(version: int) -> None:
    """A client of MQTT 5 gets the reason; the event names the client."""
    world, events = World(), list[dict[str, Any]]()
    world.server_state.refusals.seen = events.append
    will = Will("gone", b"x" * 45_000)
    packet = encode.encode(Connect("device-7", will=will, version=version), version, True)
    peer = world.peer(version)
    peer.send_bytes(packet[:5])
    assert not peer.closed  # the version has not come yet
    peer.send_bytes(packet[5:60])
    if version == V5:
        assert peer.expect(ConnAck).reason == reasons.PACKET_TOO_LARGE
    else:
        assert peer.take_bytes() == b""
    assert peer.closed
    [event] = events
    assert (event["what"], event["client"], event["condition"]) == ("connect", "device-7", "packet too large")
    assert "send a smaller will" in event["reason"]


def _published(peer: Peer) -> list[Publish]:
    return [each for each in peer.take() if isinstance(each, Publish)]


def test_a_bridge_of_3_1_1_gets_nothing_of_its_own_and_the_retain_flag_as_published() -> None:
    world = World()
    bridge, other = world.connected("bridge", V311, bridge=True), world.connected("other", V311)
    for peer in (bridge, other):
        peer.take()
        peer.send(Subscribe(1, (Subscription("#", 1), Subscription("$share/g/a", 1))))
        peer.expect(SubAck)
    wanted = world.backend.live["bridge"].filters
    assert [(each.no_local, each.retain_as_published) for each in wanted.values()] == [(True, True), (False, True)]
    assert not any(each.no_local for each in world.backend.live["other"].filters.values())
    bridge.send(Publish("b", b"mine"))
    other.send(Publish("b", b"retained", retain=True))
    assert [(each.payload, each.retain) for each in _published(bridge)] == [(b"retained", True)]
    assert {each.payload for each in _published(other)} == {b"mine", b"retained"}


def test_a_client_of_3_1_1_has_at_most_20_messages_of_qos_2_under_way() -> None:
    world = World()
    for version, most in ((V311, 20), (V5, 100)):
        peer = world.connected("c", version)
        peer.send(Subscribe(1, (Subscription("#", 2),)))
        peer.take()
        for number in range(100):
            world.backend.route(Publish("a", b"%d" % number, 2), "pub")
        first = peer.take()
        assert len(first) == most
        for number in range(100 - most):
            peer.send(PubRec(number + 1), PubComp(number + 1))
        assert len(_published(peer)) == 100 - most
        peer.vanish()


@pytest.mark.clause("v3.1.1", "MQTT-3.1.2-1")
@pytest.mark.clause("v5", "MQTT-3.1.2-1")
def test_another_protocol_name_is_refused() -> None:
    world = World()
    peer = world.peer()
    peer.send_bytes(b"\x10\x0d\0\4MQTX\4\2\0\0\0\1c")
    peer.take_bytes()
    assert peer.closed
    assert not world.backend.requests


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.1.2-3")
@pytest.mark.clause("v5", "MQTT-3.1.2-3")
def test_a_reserved_connect_flag_ends_the_connection(version: int) -> None:
    world = World()
    peer = world.peer(version)
    data = bytearray(encode.encode(Connect("c", version=version), version, of_client=True))
    data[9] |= 1
    peer.send_bytes(bytes(data))
    answers = peer.take()
    assert peer.closed
    assert not world.backend.requests
    if version == V5:
        assert isinstance(answers[0], ConnAck)
        assert answers[0].reason == reasons.MALFORMED_PACKET
    else:
        assert answers == []


# client identifiers


@pytest.mark.clause("v3.1.1", "MQTT-3.1.3-8")
@pytest.mark.clause("v3.1.1", "MQTT-3.1.3-9")
@pytest.mark.clause("v3.1.1", "MQTT-3.2.2-5")
def test_without_an_identifier_3_1_1_cannot_keep_a_session() -> None:
    world = World()
    peer = world.connected("", V311, clean=False)
    assert peer.expect(ConnAck).reason == 2
    assert peer.closed
    assert not world.backend.requests


@pytest.mark.clause("v3.1.1", "MQTT-3.1.3-6")
def test_without_an_identifier_3_1_1_gets_one_of_its_own_for_a_clean_session() -> None:
    world = World()
    for _ in range(2):
        assert world.connected("", V311).expect(ConnAck).reason == 0
    names = [each.client_id for each in world.backend.requests]
    assert len(set(names)) == 2
    assert all(names)


@pytest.mark.clause("v5", "MQTT-3.1.3-6")
@pytest.mark.clause("v5", "MQTT-3.1.3-7")
@pytest.mark.clause("v5", "MQTT-3.2.2-16")
@pytest.mark.parametrize("clean", [True, False])
def test_without_an_identifier_5_is_told_the_one_it_got(clean: bool) -> None:
    world = World()
    first, second = world.connected("", clean=clean), world.connected("", clean=clean)
    assigned = [peer.expect(ConnAck).properties.assigned_client_id for peer in (first, second)]
    assert assigned == [each.client_id for each in world.backend.requests]
    assert len(set(assigned)) == 2


@pytest.mark.clause("v3.1.1", "MQTT-3.1.3-4")
@pytest.mark.clause("v3.1.1", "MQTT-3.1.3-5")
@pytest.mark.clause("v5", "MQTT-3.1.3-4")
@pytest.mark.clause("v5", "MQTT-3.1.3-5")
@VERSIONS
@pytest.mark.parametrize("name", ["0123456789abcXYZ", "x" * 1024, "a/b +#$ü", "€" * 100])
def test_identifiers_of_many_kinds_are_taken_as_they_are(version: int, name: str) -> None:
    world = World()
    answer = world.connected(name, version).expect(ConnAck)
    assert answer.reason == 0
    assert answer.properties.assigned_client_id is None
    assert world.backend.requests[0].client_id == name


@pytest.mark.clause("v5", "MQTT-3.1.3-8")
@pytest.mark.parametrize(("version", "reason"), [(V311, 2), (V5, reasons.CLIENT_IDENTIFIER_NOT_VALID)])
def test_an_identifier_that_is_too_long_is_refused(version: int, reason: int) -> None:
    world = World()
    peer = world.connected("€" * 400, version)
    assert peer.expect(ConnAck).reason == reason
    assert peer.closed


# what is refused


@pytest.mark.parametrize("client_id", ["~alice/d", "~alice@one/d", "~@one/d"])
def test_until_it_has_logged_in_a_client_is_of_no_user_whatever_its_identifier_states(client_id: str) -> None:
    world, events = World(), list[dict[str, Any]]()
    world.server_state.refusals.seen = events.append
    seen = []

    def refuse(request: Request, client: Connected) -> None:
        seen.append(client.described(0.0))
        client.refused(reasons.NOT_AUTHORIZED, "who knows", "we do")

    world.server_state.open = refuse
    answer = world.connected(client_id).expect(ConnAck)
    assert (answer.reason, answer.properties.reason_string) == (reasons.NOT_AUTHORIZED, "who knows")
    (row,), (event,) = seen, events
    assert (row["user"], row["client"]) == ("anonymous", client_id)
    assert (event["user"], event["client"], event["reason"]) == ("", client_id, "we do") and "space" not in event


@pytest.mark.parametrize(
    ("username", "user", "proved"), [("alice", "alice", False), ("hunter2", "", False), (None, "", None)]
)
@pytest.mark.parametrize("client_id", ["d", "d" * 2000])
def test_the_event_of_a_refused_client_names_the_user_that_it_states(
    client_id: str, username: str | None, user: str, proved: bool | None
) -> None:
    """Whatever it is refused for. A name that no user has may be a password."""
    world, events = World(), list[dict[str, Any]]()
    refusals = world.server_state.refusals
    refusals.seen = events.append
    refusals.tried = lambda stated, _: Principal(stated) if stated == "alice" else None
    world.server_state.open = lambda request, client: client.refused(reasons.SERVER_BUSY, "come later")
    assert world.connected(client_id, username=username).expect(ConnAck).reason >= 0x80
    refusals.tick()
    assert [(event["what"], event["user"], event.get("proved")) for event in events] == [("connect", user, proved)]


def test_the_event_of_a_client_that_is_refused_after_its_login_has_its_user() -> None:
    world, events = World(), list[dict[str, Any]]()
    world.server_state.refusals.seen = events.append

    def refuse(request: Request, client: Connected) -> None:
        client.admitted(owned(Principal("alice"), "d"))
        client.refused(reasons.QUOTA_EXCEEDED, "alice has 2 of 2 connections")

    world.server_state.open = refuse
    world.connected("d", username="alice")
    assert [(event["user"], event["client"], event.get("proved")) for event in events] == [("alice", "~alice/d", None)]


@pytest.mark.clause("v5", "MQTT-4.12.0-1")
@pytest.mark.clause("v5", "MQTT-4.12.0-6")
def test_an_authentication_method_is_refused() -> None:
    world = World()
    peer = world.connected(properties=Properties(auth_method="SCRAM-SHA-1", auth_data=b"n,,n=u"))
    assert peer.expect(ConnAck).reason == reasons.BAD_AUTHENTICATION_METHOD
    assert peer.closed
    assert not world.backend.requests


@pytest.mark.clause("v5", "MQTT-4.12.0-7")
def test_auth_without_a_method_in_connect_is_a_protocol_error() -> None:
    peer = World().connected()
    peer.take()
    peer.send(Auth(reasons.REAUTHENTICATE, Properties(auth_method="SCRAM-SHA-1")))
    peer.expect_end(reasons.PROTOCOL_ERROR)


@pytest.mark.clause("v3.1.1", "MQTT-3.2.2-4", "MQTT-3.2.2-5", "MQTT-3.2.2-6")
@pytest.mark.clause("v5", "MQTT-3.2.2-7")
@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (reasons.SERVER_UNAVAILABLE, 3),
        (reasons.QUOTA_EXCEEDED, 3),
        (reasons.NOT_AUTHORIZED, 5),
        (reasons.BAD_USER_NAME_OR_PASSWORD, 4),
        (reasons.TOPIC_NAME_INVALID, None),
    ],
)
def test_what_the_session_refuses_is_said_in_both_versions(reason: int, code: int | None) -> None:
    world = World()
    world.backend.refusal = Refused(reason, "because of that")
    five = world.connected("5")
    answer = five.expect(ConnAck)
    assert (answer.reason, answer.session_present) == (reason, False)
    assert answer.properties.reason_string == "because of that"
    assert five.closed
    three = world.connected("3", V311)
    packets = three.take()
    if code is None:
        assert packets == []
    else:
        assert packets == [ConnAck(False, code)]
    assert three.closed
    assert not world.server_state.clients


@pytest.mark.clause("v5", "MQTT-3.2.2-19")
def test_a_reason_string_that_makes_connack_too_large_is_left_out() -> None:
    world = World()
    world.backend.refusal = Refused(reasons.NOT_AUTHORIZED, "x" * 200)
    answer = world.connected(properties=Properties(maximum_packet_size=60)).expect(ConnAck)
    assert answer.reason == reasons.NOT_AUTHORIZED
    assert answer.properties.reason_string is None


def test_more_clients_than_the_limit_are_refused_and_get_in_when_there_is_room() -> None:
    world = World(Limits(connections=2))
    first = world.connected("1")
    world.connected("2")
    third = world.connected("3")
    assert third.expect(ConnAck).reason == reasons.QUOTA_EXCEEDED
    assert world.connected("3", V311).expect(ConnAck).reason == 3
    first.vanish()
    assert world.connected("3").expect(ConnAck).reason == 0


# wills


@VERSIONS
def test_the_will_is_with_the_session_before_connack(version: int) -> None:
    world = World()
    world.at_once = False
    will = Will("gone/c", b"bye", 1, True)
    peer = world.connected(version=version, will=will)
    assert peer.take() == []
    world.opening[0]()
    assert world.backend.wills["c"] == will
    assert peer.expect(ConnAck).reason == 0


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.1.2-10")
@pytest.mark.clause("v5", "MQTT-3.1.2-10")
@pytest.mark.clause("v3.1.1", "MQTT-3.14.4-3")
@pytest.mark.clause("v5", "MQTT-3.14.4-3")
def test_a_normal_disconnect_drops_the_will(version: int) -> None:
    world = World()
    peer = world.connected(version=version, will=Will("gone/c", b"bye"))
    peer.take()
    peer.send(Disconnect())
    assert peer.take() == []
    assert peer.closed
    assert world.backend.endings == [("c", Ending.CLEAN, None)]


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.1.2-8")
@pytest.mark.clause("v5", "MQTT-3.1.2-8")
def test_a_lost_connection_does_not_drop_the_will(version: int) -> None:
    world = World()
    peer = world.connected(version=version, will=Will("gone/c", b"bye"))
    peer.vanish()
    assert world.backend.endings == [("c", Ending.LOST, None)]


@pytest.mark.clause("v5", "MQTT-3.1.2-8")
def test_disconnect_with_will_does_not_drop_it() -> None:
    world = World()
    peer = world.connected(will=Will("gone/c", b"bye"))
    peer.send(Disconnect(reasons.DISCONNECT_WITH_WILL))
    peer.take()
    assert peer.closed
    assert world.backend.endings == [("c", Ending.LOST, None)]


def test_a_will_whose_payload_is_not_the_text_it_says_is_refused() -> None:
    world = World()
    peer = world.connected(will=Will("gone/c", b"\xff", properties=Properties(payload_format=1)))
    assert peer.expect(ConnAck).reason == reasons.PAYLOAD_FORMAT_INVALID
    assert not world.backend.requests


# sessions


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.2.2-1")
@pytest.mark.clause("v3.1.1", "MQTT-3.2.2-2")
@pytest.mark.clause("v3.1.1", "MQTT-3.2.2-3")
@pytest.mark.clause("v3.1.1", "MQTT-3.1.2-4")
@pytest.mark.clause("v3.1.1", "MQTT-3.1.2-6")
@pytest.mark.clause("v5", "MQTT-3.2.2-2")
@pytest.mark.clause("v5", "MQTT-3.2.2-3")
@pytest.mark.clause("v5", "MQTT-3.1.2-4")
@pytest.mark.clause("v5", "MQTT-3.1.2-5")
@pytest.mark.clause("v5", "MQTT-3.1.2-6")
def test_session_present_says_whether_a_session_continues(version: int) -> None:
    world = World()
    keep = Properties(session_expiry=1000) if version == V5 else Properties()
    found = []
    for clean in (False, False, True, False):
        peer = world.connected(version=version, clean=clean, properties=keep)
        found.append(peer.expect(ConnAck).session_present)
        peer.vanish()
    # 3.1.1: a clean session is not kept; 5: only its beginning was clean
    assert found == [False, True, False, version == V5]


@pytest.mark.clause("v5", "MQTT-3.1.2-23")
@pytest.mark.parametrize(
    ("version", "clean", "given", "expiry"),
    [
        (V311, True, None, 0),
        (V311, False, None, NEVER),
        (V5, True, None, 0),
        (V5, False, None, 0),
        (V5, False, 7, 7),
        (V5, True, NEVER, NEVER),
    ],
)
def test_session_expiry_of_connect(version: int, clean: bool, given: int | None, expiry: int) -> None:
    world = World()
    properties = Properties(session_expiry=given) if given is not None else Properties()
    world.connected(version=version, clean=clean, properties=properties)
    assert world.backend.requests[0].expiry == expiry


def test_session_expiry_is_changed_by_disconnect() -> None:
    world = World()
    peer = world.connected(properties=Properties(session_expiry=10))
    peer.send(Disconnect(0, Properties(session_expiry=99)))
    assert world.backend.endings == [("c", Ending.CLEAN, 99)]


def test_disconnect_cannot_keep_a_session_that_connect_did_not() -> None:
    world = World()
    peer = world.connected()
    peer.take()
    peer.send(Disconnect(0, Properties(session_expiry=99)))
    peer.expect_end(reasons.PROTOCOL_ERROR)
    assert world.backend.endings == [("c", Ending.LOST, None)]


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.1.4-2")
@pytest.mark.clause("v5", "MQTT-3.1.4-3")
def test_the_older_connection_of_a_client_gives_way(version: int) -> None:
    world, events = World(), list[dict[str, Any]]()
    world.server_state.refusals.seen = events.append
    older = world.connected(version=version)
    older.take()
    newer = world.connected(version=version)
    older.expect_end(reasons.SESSION_TAKEN_OVER)
    assert newer.expect(ConnAck).reason == 0
    assert world.backend.endings == [("c", Ending.TAKEN, None)]
    newer.send(PingReq())
    newer.expect(PingResp)
    [event] = events
    assert (event["what"], event["client"], event["condition"]) == ("close", "c", "session taken over")
    assert event["reason"] == "a further connection has its client identifier"


def test_of_two_that_are_being_opened_the_older_gives_way_too() -> None:
    world = World()
    world.at_once = False
    older, newer = world.connected(), world.connected()
    assert older.take() == []
    assert older.closed
    for opened in world.opening:
        opened()
    assert newer.expect(ConnAck).reason == 0
    assert world.backend.endings == [("c", Ending.TAKEN, None)]
    assert world.backend.live["c"].client is newer.connection


def test_a_client_that_goes_while_its_session_is_opened_leaves_no_session_behind() -> None:
    world = World()
    world.at_once = False
    peer = world.connected()
    peer.vanish()
    world.opening[0]()
    assert world.backend.endings == [("c", Ending.LOST, None)]
    assert not world.server_state.clients
    assert not world.server_state.opening


@VERSIONS
@pytest.mark.clause("v5", "MQTT-3.1.4-6")
@pytest.mark.clause("v3.1.1", "MQTT-3.1.4-5")
def test_what_comes_before_connack_waits_for_it_and_is_lost_with_a_refusal(version: int) -> None:
    world = World()
    world.at_once = False
    peer = world.connected(version=version)
    peer.send(Publish("a", b"1", 1, packet_id=1))
    assert peer.take() == []
    assert peer.paused
    world.opening[0]()
    first, second = peer.take()
    assert (type(first), type(second)) == (ConnAck, PubAck)
    assert not peer.paused
    world.backend.refusal = Refused(reasons.NOT_AUTHORIZED)
    refused = world.connected("d", version)
    refused.send(Publish("a", b"2", 1, packet_id=1))
    world.opening[1]()
    refused.expect(ConnAck)
    assert [payload for _, _, payload in world.backend.routed] == [b"1"]


# time


def test_a_connect_must_come_in_time() -> None:
    world = World(Limits(connect_seconds=10))
    silent, slow, good = world.peer(), world.peer(), world.peer()
    good.send(Connect("c"))
    data = encode.encode(Connect("s"), V5, of_client=True)
    for byte in data[:9]:
        slow.send_bytes(bytes((byte,)))
        world.pass_time(1)
    world.pass_time(2)
    for peer in (silent, slow):
        assert peer.take_bytes() == b""
        assert peer.closed
    assert not good.closed


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.1.2-24")
@pytest.mark.clause("v5", "MQTT-3.1.2-22")
def test_a_client_that_is_silent_for_one_and_a_half_keep_alives_is_gone(version: int) -> None:
    world, events = World(), list[dict[str, Any]]()
    world.server_state.refusals.seen = events.append
    silent = world.connected("silent", version, keep_alive=10)
    alive = world.connected("alive", version, keep_alive=10)
    silent.take()
    for _ in range(3):
        world.pass_time(4.9)
        alive.send(PingReq())
    assert not silent.take()
    assert not silent.closed
    world.pass_time(2)
    silent.expect_end(reasons.KEEP_ALIVE_TIMEOUT)
    alive.take()
    assert not alive.closed
    assert world.backend.endings == [("silent", Ending.LOST, None)]
    assert [(each["what"], each["client"], each["condition"]) for each in events] == [
        ("close", "silent", "keep alive timeout")
    ]


def test_what_came_while_the_gateway_was_stopped_is_read_before_a_client_is_judged() -> None:
    world = World()
    stopped, gone = (world.connected(name, keep_alive=10) for name in ("stopped", "gone"))
    gone.take()
    world.now += 60
    world.server_state.times.sweep(world.now)
    stopped.send(PingReq())
    world.pass_time(1)
    gone.expect_end(reasons.KEEP_ALIVE_TIMEOUT)
    world.pass_time(10)
    stopped.take()
    assert not stopped.closed


@VERSIONS
def test_keep_alive_0_is_no_keep_alive(version: int) -> None:
    world = World()
    peer = world.connected(version=version, keep_alive=0)
    world.pass_time(200_000)
    peer.take()
    assert not peer.closed


def test_bytes_that_complete_no_packet_do_not_keep_a_connection_alive() -> None:
    world = World()
    peer = world.connected(keep_alive=4)
    peer.take()
    for byte in encode.encode(Publish("a", b"x" * 100), V5)[:9]:
        peer.send_bytes(bytes((byte,)))
        world.pass_time(1)
    peer.expect_end(reasons.KEEP_ALIVE_TIMEOUT)


def test_a_packet_must_be_complete_in_time_without_keep_alive_too() -> None:
    world = World(Limits(packet_seconds=20))
    peer = world.connected()
    peer.take()
    data = encode.encode(Publish("a", b"x" * 100), V5)
    for byte in data[:22]:
        peer.send_bytes(bytes((byte,)))
        world.pass_time(1)
    peer.expect_end(reasons.MALFORMED_PACKET)


@pytest.mark.clause("v5", "MQTT-3.1.2-21")
@pytest.mark.parametrize(("asked", "granted"), [(0, 60), (600, 60), (30, None)])
def test_the_servers_keep_alive_overrules_the_clients(asked: int, granted: int | None) -> None:
    world = World(Limits(keep_alive=60))
    peer = world.connected(keep_alive=asked)
    assert peer.expect(ConnAck).properties.server_keep_alive == granted
    world.pass_time(44)
    assert not peer.closed
    world.pass_time(50)
    peer.expect_end(reasons.KEEP_ALIVE_TIMEOUT)


@VERSIONS
@pytest.mark.clause("v3.1.1", "MQTT-3.12.4-1")
@pytest.mark.clause("v5", "MQTT-3.12.4-1")
def test_pingreq_is_answered(version: int) -> None:
    peer = World().connected(version=version)
    peer.take()
    peer.send(PingReq(), PingReq())
    assert peer.take() == [PingResp(), PingResp()]


@VERSIONS
@pytest.mark.clause("v5", "MQTT-3.14.4-2")
def test_nothing_behind_disconnect_is_processed(version: int) -> None:
    world = World()
    peer = world.connected(version=version)
    peer.send(Disconnect(), Publish("a", b"1"))
    peer.send(Publish("a", b"2"))
    assert not world.backend.routed


@pytest.mark.clause("v5", "MQTT-3.14.0-1")
def test_the_session_can_disconnect_a_client() -> None:
    world = World()
    peer = world.connected(properties=Properties(request_problem_info=0))
    peer.take()
    world.backend.live["c"].client.disconnect(reasons.ADMINISTRATIVE_ACTION, "by hand")
    packet = peer.expect(Disconnect)
    assert packet.reason == reasons.ADMINISTRATIVE_ACTION
    assert packet.properties.reason_string == "by hand"  # may be in DISCONNECT in any case: v5 MQTT-3.1.2-29
    assert peer.closed
    assert world.backend.endings == [("c", Ending.LOST, None)]
    third = world.connected("3", V311)
    third.take()
    world.backend.live["3"].client.disconnect(reasons.ADMINISTRATIVE_ACTION)
    third.expect_end(0)


def test_what_the_server_takes_is_in_connack() -> None:
    answer = World(Limits(receive_maximum=5, max_packet=2048, topic_aliases=3)).connected().expect(ConnAck)
    given = answer.properties
    assert (given.receive_maximum, given.maximum_packet_size, given.topic_alias_maximum) == (5, 2048, 3)
    assert (given.maximum_qos, given.retain_available, given.wildcard_available) == (None, None, None)


@pytest.mark.parametrize(("asked", "granted"), [(10, None), (60, None), (61, 60), (NEVER, 60), (None, None)])
def test_a_session_expiry_beyond_the_limit_is_lowered_and_the_client_informed(
    asked: int | None, granted: int | None
) -> None:
    world = World(Limits(session_expiry=60))
    peer = world.connected(version=V5, properties=Properties(session_expiry=asked))
    assert peer.expect(ConnAck).properties.session_expiry == granted
    assert world.backend.requests[-1].expiry == min(asked or 0, 60)


def test_a_session_of_3_1_1_is_kept_as_long_as_the_limit() -> None:
    world = World(Limits(session_expiry=60))
    world.connected(version=V311, clean=False)
    assert world.backend.requests[-1].expiry == 60
