"""MQTT clients of a suite with users: who is let in, what they may do, and changes on open connections and sessions."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion

from enmasse.mqtt import reasons
from enmasse.mqtt.packets import V5, V311, Auth, Properties, Publish, Subscribe, Subscription, Will
from enmasse.testing import Suite, wait_for
from tests.kit.processes import COMMAND, run
from tests.system.mqtt_users import CODES, PATIENCE, Device, Front, front
from tests.system.seeing import kill, status, wait_process
from tests.system.users import allow, apply, entry, with_users, write_users

TOPIC, QUEUE = "small-persisted-topic", "small-persisted-queue"
ADDRESSES = {
    "devices": {"type": "topic", "flavor": TOPIC},
    "news": {"type": "topic", "flavor": TOPIC},
    "jobs": {"type": "queue", "flavor": QUEUE},
    "chat": {"type": "multicast"},
    "rest": {"type": "topic", "flavor": TOPIC, "mqttDefault": True},
}
OWN = allow("devices/${user}/#")
ALICE = entry("pw-a", OWN, allow("news/#", operations=["recv"]), allow("jobs/#", "rest/own/*", "chat"))
BOB = entry("pw-b", OWN)
ADMIN = entry("pw-admin", allow("#"))
USERS = {"alice": ALICE, "bob": BOB, "admin": ADMIN}
VERSIONS = pytest.mark.parametrize("version", [V311, V5])


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with with_users(tmp_path_factory.mktemp("users"), ADDRESSES, USERS, options=()) as found:
        yield found


@pytest.fixture
def clients(suite: Suite) -> Iterator[Front]:
    with front(suite) as found:
        found.wait_code(0, "admin", "pw-admin")
        yield found


@pytest.fixture
def users(suite: Suite, clients: Front) -> Iterator[dict[str, Any]]:
    """Entries that a test may change; afterwards those of before are in force again."""
    yield dict(USERS)
    apply(suite, USERS)


# --- login ------------------------------------------------------------------------------------------------------------


@VERSIONS
def test_connect_is_answered_by_the_code_for_its_login(clients: Front, version: int) -> None:
    codes = CODES[version]
    assert clients.code("alice", "pw-a", version=version) == 0
    assert clients.code("alice", "wrong", version=version) == codes["bad"]
    assert clients.code("nobody", "pw-a", version=version) == codes["bad"]
    assert clients.code("alice", None, version=version) == codes["bad"]
    assert clients.code("anonymous", "anonymous", version=version) == codes["bad"]
    assert clients.code(None, None, version=version) == codes["forbidden"]


def test_a_password_without_a_user_name_is_refused(clients: Front) -> None:
    assert clients.code(None, "pw-a") == CODES[5]["bad"]


@pytest.mark.parametrize("protocol", [MQTTv311, MQTTv5])
def test_paho_logs_in(suite: Suite, clients: Front, protocol: int) -> None:
    codes: list[str] = []
    got = threading.Event()
    for password in ("wrong", "pw-a"):
        client = Client(CallbackAPIVersion.VERSION2, protocol=protocol, reconnect_on_failure=False)
        client.username_pw_set("alice", password)
        client.on_connect = lambda c, data, flags, reason, given: codes.append(str(reason))
        client.on_subscribe = lambda c, data, mid, reasons, given: c.publish("devices/alice/x", b"hello", 1)
        client.on_message = lambda c, data, message: got.set()
        client.connect("127.0.0.1", suite.mqtt_port)
        client.loop_start()
        wait_for("CONNACK", lambda: codes)
        if password == "pw-a":
            client.subscribe("devices/alice/#", 1)
            assert got.wait(PATIENCE)
            assert codes == ["Success"]
        else:
            assert codes == ["Bad user name or password"]
        codes.clear()
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_clients_log_in_and_publish_what_they_may(suite: Suite, clients: Front, version: str) -> None:
    def publish(user: str, password: str, topic: str) -> int:
        command = ["mosquitto_pub", "-p", str(suite.mqtt_port), "-V", version, "-u", user, "-P", password]
        return subprocess.run([*command, "-q", "1", "-t", topic, "-m", "hello"], timeout=PATIENCE).returncode

    reader = clients.device("reader", "admin", "pw-admin")
    assert reader.subscribe("devices/alice/m") == [1]
    assert publish("alice", "pw-a", "devices/alice/m") == 0
    assert reader.receive() == b"hello"
    assert publish("alice", "wrong", "devices/alice/m") != 0


SCRAM = pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])


@pytest.mark.clause("v5", "MQTT-4.12.0-2", "MQTT-4.12.0-5", "MQTT-4.12.1-2")
@SCRAM
@pytest.mark.parametrize("first", [True, False])
def test_enhanced_authentication_by_scram_logs_in(suite: Suite, clients: Front, mechanism: str, first: bool) -> None:
    with Device.by_scram(suite.mqtt_port, "scram", "alice", "pw-a", mechanism, first=first) as device:
        assert device.answer.reason == 0
        assert device.subscribe("devices/alice/#", "devices/bob/#") == [1, 0x87]
        assert device.publish("devices/alice/x", b"hello") == 0
        assert device.receive() == b"hello"
        device.send(Auth(reasons.REAUTHENTICATE, Properties(auth_method=mechanism)))
        assert device.until_closed() == reasons.IMPLEMENTATION_SPECIFIC_ERROR


@pytest.mark.clause("v5", "MQTT-4.12.0-4")
@SCRAM
def test_enhanced_authentication_with_wrong_credentials_is_refused(
    suite: Suite, clients: Front, mechanism: str
) -> None:
    for user, password in (("alice", "wrong"), ("nobody", "pw-a")):
        with Device.by_scram(suite.mqtt_port, "scram", user, password, mechanism) as device:
            assert device.answer.reason == CODES[V5]["bad"]
            assert device.until_closed() is None


@pytest.mark.parametrize("data", [None, b"", b"n,,n=alice,r=abc"])
def test_packets_other_than_the_expected_auth_end_the_connection(
    suite: Suite, clients: Front, data: bytes | None
) -> None:
    first = Properties(auth_method="SCRAM-SHA-256", auth_data=data)
    again = reasons.CONTINUE_AUTHENTICATION
    for packet in (
        Publish("devices/alice/x", b"early"),
        Subscribe(1, (Subscription("devices/alice/#"),)),
        Auth(again, Properties(auth_method="SCRAM-SHA-512", auth_data=b"x")),
        Auth(reasons.REAUTHENTICATE, Properties(auth_method="SCRAM-SHA-256", auth_data=b"x")),
        Auth(again, Properties(auth_method="SCRAM-SHA-256", auth_data=b"x" * 60_000)),
    ):
        with Device(suite.mqtt_port, "early", None, None, properties=first) as device:
            device.send(packet)
            reason = device.connected(after=Auth).answer.reason
            assert reason in (reasons.PROTOCOL_ERROR, reasons.BAD_USER_NAME_OR_PASSWORD, reasons.PACKET_TOO_LARGE)
            assert device.until_closed() is None
    assert clients.code("alice", "pw-a") == 0


def test_the_anonymous_user_needs_an_entry(suite: Suite, clients: Front, users: dict[str, Any]) -> None:
    users["anonymous"] = {"permissions": [allow("news/#")]}
    apply(suite, users)
    device = clients.device("anon", None, None)
    assert device.subscribe("news/#", "devices/#") == [1, 0x87]
    assert clients.code("alice", "wrong") == CODES[5]["bad"]
    del users["anonymous"]
    write_users(suite, users)
    assert device.until_closed() == 0x87


def test_clients_log_in_again_after_the_authentication_service_was_killed(suite: Suite, clients: Front) -> None:
    device = clients.device("stays", "alice", "pw-a")
    assert device.subscribe("devices/alice/#") == [1]
    pid = kill(suite, "authserv")
    seen = {clients.code("alice", "pw-a", version=V311)}
    assert device.publish("devices/alice/x", b"still here") == 0
    assert device.receive() == b"still here"
    wait_process(suite, "authserv", pid)
    clients.wait_code(0, "alice", "pw-a")
    assert seen <= {0, CODES[V311]["away"]}


@pytest.mark.slow
def test_a_flood_of_wrong_logins_does_not_stop_other_clients(suite: Suite, clients: Front) -> None:
    flood = [Device(suite.mqtt_port, f"f{n}", f"nobody-{n}", "x", source="127.0.0.2") for n in range(400)]
    try:
        assert clients.code("alice", "pw-a") == 0
        device = clients.device("other", "bob", "pw-b")
        assert device.publish("devices/bob/x") == 0
        codes = {each.connected().answer.reason for each in flood}
    finally:
        for each in flood:
            each.lose()
    assert codes <= {CODES[5]["bad"], CODES[5]["away"]}
    assert CODES[5]["bad"] in codes


def test_200_clients_connect_at_once(suite: Suite, clients: Front) -> None:
    """On a slow machine some may have to come again: the answer tells them to."""
    ids = {f"d{n}" for n in range(200)}

    def all_are_in() -> bool:
        devices = {each: Device(suite.mqtt_port, each, "bob", "pw-b") for each in sorted(ids)}
        try:
            codes = {each: device.connected().answer.reason for each, device in devices.items()}
        finally:
            for device in devices.values():
                device.lose()
        assert set(codes.values()) <= {0, CODES[V5]["away"]}
        ids.intersection_update(each for each, code in codes.items() if code)
        return not ids

    wait_for("all have connected", all_are_in)


# --- permissions ------------------------------------------------------------------------------------------------------


def test_publishing_with_mqtt_5(clients: Front) -> None:
    device = clients.device("p5", "alice", "pw-a")
    assert device.publish("devices/alice/x") in (0, 0x10)
    assert device.publish("devices/bob/x") == 0x87
    assert device.publish("news/x", retain=True) == 0x87
    assert device.publish("own/x") in (0, 0x10)  # rest/own/x
    assert device.publish("own/x/y") == 0x87
    allowed = ("devices/alice/x", "news/x", "$reply/_topo/0/r/temp.1")
    for topic in (*allowed, "devices/bob/x", "own/x/y", "$reply/_topo/0/r/q"):
        reason = 0 if topic in allowed else 0x87
        given = Properties(response_topic=topic)
        assert device.publish("devices/alice/x", properties=given) in ((0, 0x10) if not reason else (reason,)), topic
        will = Will("devices/alice/x", b"", properties=given)
        assert clients.code("alice", "pw-a", will=will) == reason
    device.send(Publish("devices/bob/x", b"x", 0))
    assert device.until_closed() == 0x87


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publishing_with_3_1_1_closes_the_connection(clients: Front, qos: int) -> None:
    reader = clients.device("reader", "bob", "pw-b")
    assert reader.subscribe("devices/bob/#") == [1]
    device = clients.device("p3", "alice", "pw-a", version=V311)
    device.send(Publish("devices/bob/x", b"forbidden", qos, packet_id=1 if qos else 0))
    assert device.until_closed() is None
    assert reader.publish("devices/bob/x", b"mine") == 0
    assert reader.receive() == b"mine"


@VERSIONS
def test_each_filter_needs_recv_on_all_names_that_it_matches(clients: Front, version: int) -> None:
    no = 0x87 if version == V5 else 0x80
    device = clients.device("s", "alice", "pw-a", version=version)
    filters = ("devices/alice/#", "devices/#", "#", "news/+/x", "devices/+/x", "own/+", "own/#", "$share/g/news/#",
               "$share/g/devices/#", "jobs", "chat", "chat/#")  # fmt: skip
    assert device.subscribe(*filters) == [1, no, no, 1, no, 1, no, 1, no, 1, 1, no]
    assert device.subscribe("devices/#") == [no]


def test_a_refused_subscription_gets_nothing(clients: Front) -> None:
    device = clients.device("s", "alice", "pw-a")
    assert device.subscribe("devices/#", "news/#") == [0x87, 1]
    admin = clients.device("admin", "admin", "pw-admin")
    for topic in ("devices/bob/x", "devices/alice/x", "news/x"):
        assert admin.publish(topic, topic.encode()) in (0, 0x10)
    assert device.receive() == b"news/x"


@VERSIONS
def test_a_will_needs_the_right_to_send_and_is_published_only_with_it(
    suite: Suite, clients: Front, version: int
) -> None:
    codes = CODES[version]
    will = Will("devices/bob/will", b"bye", 1)
    with Device(suite.mqtt_port, "w", "alice", "pw-a", version=version, will=will) as device:
        assert device.connected().answer.reason == codes["forbidden"]
    reader = clients.device("reader", "bob", "pw-b")
    assert reader.subscribe("devices/bob/#") == [1]
    clients.device("w", "bob", "pw-b", version=version, will=will).lose()
    assert reader.receive() == b"bye"


# --- changes ----------------------------------------------------------------------------------------------------------


@VERSIONS
def test_clients_of_removed_users_and_changed_passwords_are_disconnected(
    suite: Suite, clients: Front, users: dict[str, Any], version: int
) -> None:
    for changed in (None, entry("other", OWN)):
        apply(suite, {**users, "temp": entry("pw-t", OWN)})
        device = clients.device("c", "temp", "pw-t", version=version)
        other = clients.device("c", "alice", "pw-a")
        write_users(suite, users if changed is None else {**users, "temp": changed})
        assert device.until_closed() == (0x87 if version == V5 else None)
        assert other.publish("devices/alice/x") in (0, 0x10)


@VERSIONS
def test_a_user_has_as_many_connections_as_its_limit(
    suite: Suite, clients: Front, users: dict[str, Any], version: int
) -> None:
    full = reasons.QUOTA_EXCEEDED if version == V5 else CODES[4]["away"]
    apply(suite, {**users, "temp": {**entry("pw-t", OWN), "groups": ["few"]}, "@few": {"limits": {"connections": 2}}})
    first, second = (clients.device(f"c{n}", "temp", "pw-t", version=version) for n in range(2))
    assert clients.code("temp", "pw-t", version=version) == full
    assert clients.code("alice", "pw-a", version=version) == 0, "other users are not affected"
    again = clients.device("c0", "temp", "pw-t", version=version)
    assert again.answer.reason == 0, "a client takes its own place"
    assert first.until_closed() == (reasons.SESSION_TAKEN_OVER if version == V5 else None)
    second.close()
    clients.wait_code(0, "temp", "pw-t", version=version)
    assert again.publish("devices/temp/x") in (0, 0x10)


@VERSIONS
def test_a_user_connects_as_often_as_its_limit(
    suite: Suite, clients: Front, users: dict[str, Any], version: int
) -> None:
    often = reasons.CONNECTION_RATE_EXCEEDED if version == V5 else CODES[4]["away"]
    apply(suite, {**users, "temp": {**entry("pw-t", OWN), "limits": {"connects_per_second": 1}}})
    clients.wait_code(often, "temp", "pw-t", version=version)
    clients.wait_code(0, "temp", "pw-t", version=version)


def test_the_will_of_a_removed_user_is_dropped(suite: Suite, clients: Front, users: dict[str, Any]) -> None:
    apply(suite, {**users, "temp": entry("pw-t", allow("devices/bob/#"))})
    reader = clients.device("reader", "bob", "pw-b")
    assert reader.subscribe("devices/bob/#") == [1]
    device = clients.device("c", "temp", "pw-t", will=Will("devices/bob/will", b"bye", 1))
    write_users(suite, users)
    assert device.until_closed() == 0x87
    assert reader.publish("devices/bob/x", b"mine") == 0
    assert reader.receive() == b"mine"


def test_a_will_left_by_a_lost_gateway_is_published_only_if_its_user_may_still_send(
    suite: Suite, clients: Front, users: dict[str, Any]
) -> None:
    """The right of one user is taken away while its will waits; another user's will is published."""
    apply(suite, {**users, "temp": entry("pw-t", allow("devices/bob/#"))})
    delayed = Properties(will_delay=1)
    mine, other = (Will("devices/bob/will", text, 1, properties=delayed) for text in (b"of temp", b"of bob"))
    reader = clients.device("reader", "bob", "pw-b", clean=False)
    assert reader.subscribe("devices/bob/#") == [1]
    clients.device("w", "temp", "pw-t", will=mine)
    clients.device("w", "bob", "pw-b", will=other)
    for name in (each["name"] for each in status(suite)["components"] if each["kind"] == "mqtt_gateway"):
        pid = kill(suite, name)
        write_users(suite, {**users, "temp": entry("pw-t", OWN)})
        wait_process(suite, name, pid)
    clients.wait_code(0, "bob", "pw-b")
    reader = clients.device("reader", "bob", "pw-b", clean=False)
    assert reader.receive() == b"of bob"
    wait_for("the other is dropped", lambda: '"audit.will.dropped"' in (suite.data / "logs/audit.log").read_text())
    assert reader.publish("devices/bob/x", b"mine") == 0
    assert reader.receive() == b"mine"


def test_clients_whose_subscriptions_are_no_longer_allowed_are_disconnected(
    suite: Suite, clients: Front, users: dict[str, Any]
) -> None:
    apply(suite, {**users, "temp": entry("pw-t", OWN, allow("news/#"))})
    publisher, subscriber, other = (clients.device(name, "temp", "pw-t", clean=False) for name in "pso")
    assert publisher.publish("news/x") in (0, 0x10)
    assert subscriber.subscribe("news/#", "devices/temp/#", "$share/g/news/#") == [1, 1, 1]
    assert other.subscribe("devices/temp/#") == [1]
    write_users(suite, {**users, "temp": entry("pw-t", OWN)})
    assert subscriber.until_closed() == 0x87
    wait_for("the publisher may not publish", lambda: publisher.publish("news/x") == 0x87)
    admin = clients.device("admin", "admin", "pw-admin")
    assert admin.publish("news/x", b"secret") in (0, 0x10)
    assert admin.publish("devices/temp/x", b"own") in (0, 0x10)
    assert other.receive() == b"own"
    subscriber = clients.device("s", "temp", "pw-t", clean=False)
    assert subscriber.answer.session_present
    assert subscriber.receive() == b"own"
    # with the right the subscription does not come back: it has ended
    write_users(suite, {**users, "temp": entry("pw-t", OWN, allow("news/#"))})
    wait_for("the publisher may publish", lambda: publisher.publish("news/x") != 0x87)
    subscriber.close()
    again = clients.device("s", "temp", "pw-t", clean=False)
    assert admin.publish("news/x", b"news") in (0, 0x10)
    assert admin.publish("devices/temp/x", b"last") in (0, 0x10)
    assert again.receive() == b"last"
    assert again.subscribe("news/#") == [1]


def test_a_resumed_session_has_lost_the_subscriptions_that_are_no_longer_allowed(
    suite: Suite, clients: Front, users: dict[str, Any]
) -> None:
    write_users(suite, {**users, "temp": entry("pw-t", OWN, allow("news/#"))})
    clients.wait_code(0, "temp", "pw-t")
    device = clients.device("stored", "temp", "pw-t", clean=False)
    assert device.subscribe("news/#", "devices/temp/#") == [1, 1]
    device.close()
    admin = clients.device("admin", "admin", "pw-admin")
    assert admin.publish("news/x", b"before") in (0, 0x10)
    write_users(suite, {**users, "temp": entry("pw-new", OWN)})
    clients.wait_code(0, "temp", "pw-new")

    def refused() -> bool:
        """Return whether the gateway, too, has the new permissions: authserv may be first."""
        device = clients.device("", "temp", "pw-new", expiry=0)
        try:
            return device.subscribe("news/#") == [0x87]
        except ConnectionError:  # the permissions arrived meanwhile
            return False
        finally:
            device.close()

    wait_for("the gateway has the permissions", refused)
    assert admin.publish("devices/temp/x", b"own") in (0, 0x10)
    device = clients.device("stored", "temp", "pw-new", clean=False)
    assert device.answer.session_present
    assert device.receive() == b"own"


def test_a_new_address_that_the_user_may_not_receive_ends_a_subscription_that_covers_it(
    suite: Suite, clients: Front
) -> None:
    device = clients.device("n", "alice", "pw-a")
    assert device.subscribe("own/+") == [1]  # rest/own/+ until there is an address `own`
    suite.edit("addresses.json", {"own": {"type": "topic", "flavor": TOPIC}})
    try:
        assert device.until_closed() == 0x87
    finally:
        suite.edit("addresses.json", {}, remove=["own"])

        def subscribes() -> bool:
            return clients.device("", "alice", "pw-a", expiry=0).subscribe("own/+") == [1]

        wait_for("the address is gone", subscribes)


@pytest.mark.parametrize(
    "kind", ["publish", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("once", "will"))]
)
def test_retained_messages_are_given_while_their_user_may_send_there(
    suite: Suite, clients: Front, users: dict[str, Any], kind: str
) -> None:
    """Another user reads them as long as their user may send there."""
    temp = entry("pw-t", allow(f"devices/bob/{kind}", operations=["send"]))
    apply(suite, {**users, "temp": temp})
    topic = f"devices/bob/{kind}"
    if kind == "will":
        clients.device("r", "temp", "pw-t", will=Will(topic, b"kept", 1, True)).lose()
    elif kind == "once":
        clients.device("r", "temp", "pw-t").publish_once(topic, b"kept")
    else:
        assert clients.device("r", "temp", "pw-t").publish(topic, b"kept", retain=True) in (0, 0x10)
    assert clients.device("own", "bob", "pw-b").publish("devices/bob/own", b"own", retain=True) in (0, 0x10)

    def given() -> set[bytes]:
        device = clients.device("", "bob", "pw-b", expiry=0)
        assert device.subscribe(topic, "devices/bob/own", "devices/bob/last") == [1, 1, 1]
        assert device.publish("devices/bob/last", b"last") == 0
        found = set()
        while (payload := device.receive()) != b"last":
            found.add(payload)
        device.close()
        return found

    wait_for("both are given", lambda: given() == {b"kept", b"own"})
    write_users(suite, {**users, "temp": entry("pw-t", OWN)})
    wait_for("it is not given", lambda: given() == {b"own"})
    shown = [line.split() for line in asked(suite, "retained", "list", topic) if topic in line]
    assert [(row[0], row[-2:]) for row in shown] == [(topic, ["temp", "!"])]
    write_users(suite, users)
    wait_for("temp is removed", lambda: clients.code("temp", "pw-t") == CODES[V5]["bad"])
    assert given() == {b"own"}
    write_users(suite, {**users, "temp": temp})
    wait_for("it is given again", lambda: given() == {b"kept", b"own"})
    asked(suite, "retained", "clear", "devices/bob/#", "--force")


def test_a_subscription_to_everything_ends_when_an_address_comes_that_is_not_allowed(
    suite: Suite, clients: Front, users: dict[str, Any]
) -> None:
    """All addresses that exist are allowed: the subscription ends with an address that is not."""
    everything = [f"{name}/#" for name in json.loads((suite.config / "addresses.json").read_text())]
    apply(suite, {**users, "temp": entry("pw-t", allow(*everything))})
    device, admin = clients.device("n", "temp", "pw-t", clean=False), clients.device("all", "admin", "pw-admin")
    assert device.subscribe("#", "news/#") == [1, 1]
    suite.edit("addresses.json", {"secret": {"type": "topic", "flavor": TOPIC}})
    try:
        assert device.until_closed() == 0x87
        suite.wait_ready()
        assert admin.subscribe("secret/#") == [1]
        assert admin.publish("secret/x", b"secret") == 0
        assert admin.receive() == b"secret"
        assert admin.publish("news/x", b"news") == 0
        device = clients.device("n", "temp", "pw-t", clean=False)
        assert device.answer.session_present
        assert device.receive() == b"news"
        assert device.subscribe("#", "+/x") == [0x87, 0x87]
    finally:
        suite.edit("addresses.json", {}, remove=["secret"])
        wait_for("the address is gone", lambda: device.subscribe("#") == [1])


def asked(suite: Suite, *words: str) -> list[str]:
    """Return the lines that a command prints."""
    done = run(COMMAND, *words, "--port-offset", str(suite.offset))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_two_users_with_the_same_client_id_have_two_sessions(suite: Suite, clients: Front) -> None:
    will = Will("devices/alice/will", b"will of alice", 1)
    alice = clients.device("same", "alice", "pw-a", clean=False, will=will)
    assert alice.subscribe("devices/alice/#") == [1]
    bob = clients.device("same", "bob", "pw-b", clean=False)
    assert not bob.answer.session_present
    assert bob.subscribe("devices/bob/#") == [1]
    assert alice.publish("devices/alice/x", b"of alice") == 0
    assert alice.receive() == b"of alice"  # not taken over
    shown = [line.split() for line in asked(suite, "mqtt", "clients") if "same" in line]
    assert sorted((row[0], row[1]) for row in shown) == [("~alice/same", "alice"), ("~bob/same", "bob")]
    assert [line.split()[:4] for line in asked(suite, "subscription", "list") if "~bob/same" in line] == [
        ["mqtt.~bob%2Fsame", "mqtt", "~bob/same", "bob"]
    ]
    assert asked(suite, "mqtt", "disconnect", "same", "--owner", "alice") == ["disconnected ~alice/same"]
    assert alice.until_closed() == 0x98
    assert asked(suite, "mqtt", "disconnect", "~bob/same") == ["disconnected ~bob/same"]
    assert bob.until_closed() == 0x98
    admin = clients.device("admin", "admin", "pw-admin")
    for user in ("alice", "bob"):
        assert admin.publish(f"devices/{user}/x", user.encode()) == 0
    bob = clients.device("same", "bob", "pw-b", clean=False)
    alice = clients.device("same", "alice", "pw-a", clean=False)
    assert (bob.answer.session_present, alice.answer.session_present) == (True, True)
    assert bob.receive() == b"bob"
    assert {alice.receive(), alice.receive()} == {b"alice", b"will of alice"}
    again = clients.device("same", "alice", "pw-a", clean=False)
    assert alice.until_closed() == 0x8E
    assert again.answer.session_present
