"""MQTT clients of several users in a suite of two gateways: groups, requests and replies, sessions that move; and
sessions of the time without users."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from proton import Condition, Message, symbol
from proton.reactor import Container
from proton.utils import BlockingReceiver, LinkDetached, SendException

from enmasse.identity.annotations import FACTS, OF_FACTS, ORIGINAL_ADDRESS, RETAIN, RETAINED_FOR
from enmasse.identity.permissions import NO_MANAGER
from enmasse.mqtt.packets import NONE, V5, V311, Properties, Will
from enmasse.testing import Suite, running, wait_for
from services.console.rest.users import FIRST_USER
from tests.console.client import Client as Rest
from tests.system import amqp_users
from tests.system.mqtt_users import CODES, PATIENCE, Front, front
from tests.system.test_mqtt import ask
from tests.system.users import allow, apply, entry, gateway_ports, with_users, write_users

TOPIC, QUEUE = "small-persisted-topic", "small-persisted-queue"
ADDRESSES = {
    "devices": {"type": "topic", "flavor": TOPIC},
    "news": {"type": "topic", "flavor": TOPIC},
    "jobs": {"type": "queue", "flavor": QUEUE},
    "ask": {"type": "anycast"},
    "all": {"type": "multicast"},
}
OWN = allow("devices/${user}/#")
READS = allow("news/#", operations=["recv"])
USERS = {
    "alice": entry("pw-a", OWN, READS, allow("ask", operations=["send"])),
    "bob": entry("pw-b", OWN, READS, allow("ask", operations=["recv"]), allow("devices/alice/replies")),
    "admin": entry("pw-admin", allow("#")),
}
TEMP = entry("pw-t", OWN, READS)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with with_users(tmp_path_factory.mktemp("together"), ADDRESSES, USERS, options=()) as found:
        ask(found, "scale", "mqtt_gateway=2")
        found.wait_ready()
        yield found


@pytest.fixture
def clients(suite: Suite) -> Iterator[Front]:
    with front(suite) as found:
        found.wait_code(0, "admin", "pw-admin")
        yield found


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gateways", [(0, 0), (0, 1)])
def test_groups_belong_to_their_users(suite: Suite, clients: Front, gateways: tuple[int, int]) -> None:
    """Each user's group of this name gets all messages, and what waits for it goes to no other user's clients."""
    apply(suite, {**USERS, "temp": TEMP})
    first, second = (gateway_ports(suite)[number] for number in gateways)
    ours = [clients.device(f"ours-{n}", "temp", "pw-t", port=port) for n, port in enumerate((first, second))]
    theirs = clients.device("theirs", "alice", "pw-a", port=second)
    for member in (*ours, theirs):
        assert member.subscribe("$share/team/news/#", "$share/team/#") == [1, 0x87]
    admin = clients.device("source", "admin", "pw-admin")
    for member in ours:
        member.close()
    wanted = [b"%d" % number for number in range(10, 20)]
    for payload in wanted:
        assert admin.publish("news/x", payload) == 0
    assert [theirs.receive() for _ in wanted] == wanted
    other = clients.device("other", "alice", "pw-a", port=first)
    assert other.subscribe("$share/team/news/#") == [1]
    theirs.close()
    assert admin.publish("news/x", b"last") == 0
    assert other.receive() == b"last"  # and nothing of what waits for the other user's group
    back = clients.device("ours-0", "temp", "pw-t", port=second, clean=False)
    assert [back.receive() for _ in (*wanted, b"last")] == [*wanted, b"last"]


def test_a_group_of_a_user_without_the_right_gets_nothing(suite: Suite, clients: Front) -> None:
    apply(suite, {**USERS, "temp": TEMP})
    member = clients.device("leaves", "temp", "pw-t")
    assert member.subscribe("$share/team/news/#") == [1]
    write_users(suite, USERS)
    assert member.until_closed() == 0x87


# --- requests and replies ---------------------------------------------------------------------------------------------


def test_a_reply_to_another_user_needs_the_right_to_send_there(clients: Front) -> None:
    alice, bob = clients.device("asks", "alice", "pw-a"), clients.device("replies", "bob", "pw-b")
    assert bob.subscribe("ask", qos=0) == [0]
    assert alice.subscribe("devices/alice/replies") == [1]
    for topic, reason in (("devices/alice/replies", 0), ("devices/alice/secret", 0x87)):
        given = Properties(response_topic=topic, correlation_data=b"7")
        assert alice.publish("ask", b"status?", properties=given) == 0
        request = bob.message()
        assert request.properties.response_topic == topic
        answer = Properties(correlation_data=request.properties.correlation_data)
        assert bob.publish(topic, b"fine", properties=answer) == reason
    reply = alice.message()
    assert (reply.payload, reply.properties.correlation_data) == (b"fine", b"7")


def test_a_reply_to_a_temporary_address_of_amqp_needs_no_permission(suite: Suite, clients: Front) -> None:
    """By a temporary address, to which a reply needs no permission."""
    bob = clients.device("replies", "bob", "pw-b")
    assert bob.subscribe("ask", qos=0) == [0]
    connection = amqp_users.proton(suite, "alice", "pw-a")
    with contextlib.closing(connection):
        receiver = connection.create_receiver(None, dynamic=True, credit=1)
        sender = connection.create_sender("ask")
        sender.send(Message(id="q-1", body=b"status?", reply_to=receiver.link.remote_source.address))
        request = bob.message()
        topic = request.properties.response_topic
        assert topic is not None
        assert topic.startswith("$reply/")
        answer = Properties(correlation_data=request.properties.correlation_data)
        assert bob.publish(topic, b"fine", properties=answer) in (0, 0x10)  # as the receiver settles it
        reply = receiver.receive(PATIENCE)
        assert (bytes(reply.body), reply.correlation_id) == (b"fine", "q-1")
    for forbidden in ("$reply/jobs", "$reply/devices/alice/x", "$reply/_topo/0/../jobs"):
        assert bob.publish(forbidden, b"x") in (0x87, 0x90)


# --- subscriptions of AMQP clients ------------------------------------------------------------------------------------

CONTROL = allow("$subctrl", operations=["send"]), allow("$sub/#", operations=["recv"])


def as_container(id: str) -> Container:
    """Return what gives a connection this container-id."""
    made = Container()
    made.container_id = id
    return made


class Control:
    """An AMQP client that asks `$subctrl`."""

    def __init__(
        self, suite: Suite, user: str | None, password: str | None, stack: contextlib.ExitStack, **more: Any
    ) -> None:
        self.connection = amqp_users.proton(suite, user, password, **more)
        stack.callback(self.connection.close)
        self._replies = self.connection.create_receiver(None, dynamic=True, credit=10)
        self._sender = self.connection.create_sender("$subctrl")
        self.own = self._replies.link.remote_source.address

    def ask(self, subject: str, id: str = "dev", body: Any = None, *, to: str | None = None) -> Any:
        """Return the body of the reply and the addresses; None: the request was rejected."""
        request = Message(subject=subject, id="1", correlation_id=id, body=body, reply_to=to or self.own)
        try:
            self._sender.send(request)
        except SendException:
            return None
        if to is not None:
            return "accepted"
        reply = self._replies.receive(PATIENCE)
        return reply.body, (reply.properties or {}).get("addresses", "").split()

    def reads(self, address: str) -> BlockingReceiver | None:
        """Return a receiver; None: it is refused."""
        try:
            return self.connection.create_receiver(address, credit=1)
        except LinkDetached:
            return None


def test_subscriptions_of_amqp_clients_belong_to_their_users(suite: Suite) -> None:
    """With the same ids, and with those of other users: nothing is subscribed, listed, closed or read for another."""
    users = {
        **USERS,
        "temp": entry("pw-t", *CONTROL, allow("news/#")),
        "spy": entry("pw-s", *CONTROL, OWN),
        "anonymous": {"permissions": [*CONTROL, READS]},
    }
    apply(suite, users)
    with contextlib.ExitStack() as stack:
        temp = Control(suite, "temp", "pw-t", stack)
        spy = Control(suite, "spy", "pw-s", stack, container=as_container("~temp/c"))
        nobody = Control(suite, None, None, stack, container=as_container("~temp/c"))
        wait_for("subserv knows the users", lambda: temp.ask("list_topics") == (["news"], []))
        assert spy.ask("list_topics") == ([], [])
        answers, own = temp.ask("subscribe", body={"news/a": "1", "devices/temp": "1"})
        assert answers == {"news/a": True, "devices/temp": "user temp may not receive from devices/temp"}
        assert len(own) == 1 and "/~temp%2Fdev@" in own[0]
        for filter in ("news/a", "news/#", "devices/#", "devices/temp/#", "devices/spy", "unknown/#"):
            allowed = filter == "devices/spy"
            assert (spy.ask("subscribe", "mine", filter) is not None) is allowed, filter
        for each in (spy, nobody):
            for id in ("dev", "~temp/dev"):
                assert each.ask("list", id) == ({}, [])
                assert each.ask("unsubscribe", id, "news/a", to=each.own) == "accepted"
                assert each.ask("close", id, to=each.own) == "accepted"
            for address in (own[0], f"/{own[0]}", own[0].replace("%2F", "/"), f"{own[0].rpartition('/')[0]}/#"):
                assert each.reads(address) is None, address
        assert nobody.ask("subscribe", body="news/b")[0] == {"news/b": True}
        ((free,),) = [addresses for _, addresses in [nobody.ask("list")]]
        assert free.rpartition("/")[2].startswith("dev@")
        assert temp.reads(free) is None and spy.reads(free) is None and nobody.reads(free) is not None
        assert temp.ask("list")[0] == {"news/a": "1"}
        amqp_users.send_one(temp.connection, "news/a", "for temp")
        found = temp.reads(own[0])
        assert found is not None and found.receive(PATIENCE).body == "for temp"
        found.close()
        assert temp.ask("subscribe", body="news/b")[0] == {"news/b": True}
        apply(suite, {**users, "temp": entry("pw-t", *CONTROL, allow("news/b"))})
        wait_for("one filter is ended", lambda: temp.ask("list")[0] == {"news/b": True})
        apply(suite, {**users, "temp": entry("pw-t", *CONTROL)})
        wait_for("the subscription is ended", lambda: temp.ask("list") == ({}, []))
    write_users(suite, USERS)


def test_replies_of_the_subscription_service_go_where_their_user_may_send(suite: Suite) -> None:
    """The service may send everywhere."""
    apply(suite, {**USERS, "temp": entry("pw-t", *CONTROL, allow("news/#"))})
    with contextlib.ExitStack() as stack:
        temp = Control(suite, "temp", "pw-t", stack)
        wait_for("subserv knows the users", lambda: temp.ask("list_topics") == (["news"], []))
        for address in ("jobs", "amqp:/jobs", "/jobs", "jobs/", "devices/x", "$mqtt/control", "/news"):
            assert temp.ask("list_topics", to=address) is None, address
        assert temp.ask("list_topics", to="news/replies") == "accepted"
        relay = temp.connection.create_sender(None)
        with pytest.raises(SendException):  # its user would not be known
            relay.send(Message(address="$subctrl", subject="list_topics", correlation_id="x", reply_to=temp.own))
    write_users(suite, USERS)


# --- wills of AMQP clients --------------------------------------------------------------------------------------------


def test_a_will_of_an_amqp_client_needs_the_right_to_send_there(suite: Suite, clients: Front) -> None:
    """The right to send to `$lwt` is not one to send wherever the service may."""
    wills = allow("$lwt", operations=["send"])
    apply(suite, {**USERS, "temp": entry("pw-t", wills, OWN)})
    reader = clients.device("reader", "admin", "pw-admin")
    assert reader.subscribe("devices/temp/#", "news/#", "devices/alice/#") == [1, 1, 1]
    connection = amqp_users.proton(suite, "temp", "pw-t")
    sender = connection.create_sender("$lwt", name="will")

    def stored(to: str, **stated: str) -> bool:
        annotations = {symbol(name.replace("_", "-")): value for name, value in stated.items()}
        message = Message(subject="will", address=to, body=b"bye", durable=True, annotations=annotations)
        try:
            sender.send(message)
        except SendException:
            return False
        return True

    assert stored("devices/temp/will")
    for to in ("news/will", "devices/alice/will", "jobs", "$mqtt/wills"):
        assert not stored(to)
        assert not stored(to, x_opt_user="admin")
    sender.link.condition = Condition("my:failure", "the client has failed")
    sender.close()
    connection.close()
    assert reader.receive() == b"bye"
    assert reader.publish("news/x", b"last") == 0
    assert reader.receive() == b"last"
    write_users(suite, USERS)


# --- other clients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_sub_receives_what_its_user_may(suite: Suite, clients: Front, version: str) -> None:
    command = ["mosquitto_sub", "-p", str(suite.mqtt_port), "-V", version, "-u", "alice", "-q", "1", "-W", "120"]
    reading = [*command, "-P", "pw-a", "-C", "1", "-v", "-t", "devices/alice/#"]
    with subprocess.Popen(reading, stdout=subprocess.PIPE, text=True) as listening:
        alice = clients.device("source", "alice", "pw-a")
        wait_for("it gets a message", lambda: alice.publish("devices/alice/x", b"hello") == 0 and _ended(listening))
        assert listening.stdout is not None
        assert listening.stdout.read() == "devices/alice/x hello\n"
    wrong = subprocess.run([*command, "-P", "wrong", "-t", "devices/alice/#"], capture_output=True, timeout=PATIENCE)
    assert wrong.returncode != 0
    refused = subprocess.run(
        [*command, "-P", "pw-a", "-t", "devices/bob/#"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert "denied" in refused.stderr.lower()


def _ended(process: subprocess.Popen[str]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.1)
        return True
    return False


@pytest.mark.parametrize("protocol", [MQTTv311, MQTTv5])
def test_clients_log_in_over_websocket(suite: Suite, clients: Front, protocol: int) -> None:
    seen: list[str] = []
    granted: list[list[int]] = []
    got = threading.Event()
    for password, code in (("wrong", "Bad user name or password"), ("pw-a", "Success")):
        client = Client(
            CallbackAPIVersion.VERSION2, protocol=protocol, transport="websockets", reconnect_on_failure=False
        )
        client.username_pw_set("alice", password)
        client.on_connect = lambda c, data, flags, reason, given: seen.append(str(reason))
        client.on_subscribe = lambda c, data, mid, reasons, given: granted.append([each.value for each in reasons])
        client.on_message = lambda c, data, message: got.set()
        client.connect("127.0.0.1", 8083 + suite.offset)
        client.loop_start()
        wait_for("CONNACK", lambda: seen)
        assert seen.pop() == code
        if password == "pw-a":
            client.subscribe([("devices/alice/#", 1), ("devices/bob/#", 1)])
            wait_for("SUBACK", lambda: granted)
            assert granted == [[1, 0x87 if protocol == MQTTv5 else 0x80]]
            client.publish("devices/alice/x", b"hello", 1)
            assert got.wait(PATIENCE)
        client.disconnect()
        client.loop_stop()


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V311, V5])
def test_a_session_moves_to_another_gateway_with_its_user_only(suite: Suite, clients: Front, version: int) -> None:
    first, second = gateway_ports(suite)
    here = clients.device(f"moves-{version}", "alice", "pw-a", clean=False, port=first, version=version)
    assert here.subscribe("devices/alice/#") == [1]
    other = clients.device(f"moves-{version}", "bob", "pw-b", clean=False, port=second, version=version)
    assert not other.answer.session_present
    assert here.publish("devices/alice/x", b"stays") == 0
    assert here.receive() == b"stays"
    there = clients.device(f"moves-{version}", "alice", "pw-a", clean=False, port=second, version=version)
    assert there.answer.session_present
    assert here.until_closed() == (0x8E if version == V5 else None)
    assert there.publish("devices/alice/x", b"moved") == 0
    assert there.receive() == b"moved"
    assert other.publish("devices/bob/x", b"x") in (0, 0x10)  # not taken over


def test_users_appear_while_anonymous_clients_are_connected(tmp_path: Path) -> None:
    with running(tmp_path, ADDRESSES, options=()) as suite, front(suite) as clients:
        suite.up()
        will = Will("news/will", b"of the anonymous user", 1, properties=Properties(will_delay=3600))
        device = clients.device("same", clean=False)
        assert device.subscribe("news/#", "devices/#") == [1, 1]
        old = clients.device("old", version=V311)
        named = clients.device("named", "alice", "any")  # nobody looks at the password: there are no users
        retained = clients.device("keeper")
        assert retained.publish("news/kept", b"kept", retain=True) == 0
        assert device.receive() == b"kept"
        away = clients.device("away", clean=False)
        assert away.subscribe("news/#") == [1]
        away.close()
        waits = clients.device("waits", will=will)

        with Rest(suite) as anyone:
            made = anyone("PUT", "users/first", {"permissions": []})
            assert (made.status, made.body["warnings"]) == (201, [FIRST_USER, NO_MANAGER])
        write_users(suite, USERS)
        assert [each.until_closed() for each in (device, named, retained, waits)] == [0x87] * 4
        assert old.until_closed() is None
        clients.wait_code(CODES[V5]["forbidden"], None, None)
        clients.wait_code(0, "admin", "pw-admin")
        admin = clients.device("admin", "admin", "pw-admin")
        wait_for("it may publish", lambda: admin.publish("news/x", b"news") == 0)
        for user, password in (("alice", "pw-a"), ("admin", "pw-admin")):
            for client_id in ("same", "away"):
                mine = clients.device(client_id, user, password, clean=False)
                assert not mine.answer.session_present
        assert mine.subscribe("news/kept") == [1]
        assert mine.receive() == b"kept"  # of nobody: as before

        write_users(suite, {**USERS, "anonymous": {"permissions": [allow("news/#")]}})
        clients.wait_code(0, None, None)
        again = clients.device("away", clean=False)
        assert again.answer.session_present
        assert [again.receive(), again.receive()] == [b"kept", b"news"]
        device = clients.device("same", clean=False)
        assert device.answer.session_present
        assert device.receive() == b"news"
        assert device.subscribe("devices/#") == [0x87]


# --- what clients state -----------------------------------------------------------------------------------------------

STATED: dict[Any, Any] = {symbol(each.name + "ADDRESS" * each.is_prefix): "devices/alice/state" for each in FACTS}
MALLORY = entry("pw-m", OWN, allow("jobs", "ask", "all", operations=["send"]), allow("$lwt", operations=["send"]))
WAYS = ["link", "anonymous", "pieces", "will"]
"""How a message of an AMQP client enters. `pieces`: too large for the router to wait for its end."""
TARGETS = {"topic": "devices/mallory/x", "queue": "jobs", "anycast": "ask", "multicast": "all"}


class Mallory:
    """An AMQP client that states facts."""

    def __init__(self, suite: Suite, stack: contextlib.ExitStack) -> None:
        self.connection = amqp_users.proton(suite, "mallory", "pw-m")
        stack.callback(self.connection.close)

    def send(self, way: str, to: str, body: bytes, annotations: dict[Any, Any]) -> None:
        message = Message(address=to, body=body, durable=True, annotations=annotations)
        if way == "will":
            sender = self.connection.create_sender("$lwt")
            message.subject = "will"
            sender.send(message)
            sender.send(Message(subject="will-publish", durable=True))
            sender.close()
            return
        sender = self.connection.create_sender(None if way == "anonymous" else to)
        if way == "pieces":
            message.properties = {"filling": "x" * 200_000}
        sender.send(message)
        sender.close()


@pytest.mark.parametrize("kind", TARGETS)
def test_no_receiver_is_told_a_fact_by_a_client(suite: Suite, clients: Front, kind: str) -> None:
    """On no way that a message enters, AMQP, MQTT and wills, is an annotation passed on that the suite would believe;
    others are."""
    apply(suite, {**USERS, "mallory": MALLORY})
    to = TARGETS[kind]
    with contextlib.ExitStack() as stack:
        admin = amqp_users.proton(suite, "admin", "pw-admin")
        stack.callback(admin.close)
        receiver = admin.create_receiver(to, credit=20)
        found: list[Message] = []

        def receive() -> None:
            for _ in (*WAYS, V311, V5):
                found.append(receiver.receive(PATIENCE))
                receiver.accept()
            receiver.close()  # the last outcome leaves with it

        receiving = threading.Thread(target=receive)
        receiving.start()
        mallory = Mallory(suite, stack)
        for way in WAYS:
            mallory.send(way, to, way.encode(), {**STATED, symbol("x-opt-mine"): "kept"})
        pairs = tuple((str(name), "devices/alice/state") for name in STATED)
        for version in (V311, V5):
            device = clients.device(f"states-{version}", "mallory", "pw-m", version=version)
            given = Properties(user_properties=pairs) if version == V5 else NONE
            assert device.publish(to, b"mqtt", properties=given) == 0
        receiving.join()
    assert sorted(bytes(each.body).decode() for each in found) == sorted([*WAYS, "mqtt", "mqtt"])
    for each in found:
        stated = {str(key): value for key, value in (each.annotations or {}).items()}
        assert {key for key in stated if OF_FACTS.has(key)} == set(), bytes(each.body)
        assert stated.get("x-opt-mine") == (None if bytes(each.body) == b"mqtt" else "kept")


@pytest.mark.parametrize("way", WAYS)
def test_a_client_publishes_under_no_other_name_and_changes_no_other_retained_message(
    suite: Suite, clients: Front, way: str
) -> None:
    """With the permission `devices/${user}/#` no device is another one: what one states replaces, deletes and creates
    none of the other's retained messages, and arrives as what it is."""
    apply(suite, {**USERS, "mallory": MALLORY})
    alice = clients.device("alice-1", "alice", "pw-a")
    assert alice.publish("devices/alice/state", b"true", retain=True) == 0
    live = {version: clients.device(f"live-{version}", "admin", "pw-admin", version=version) for version in (V311, V5)}
    for device in live.values():
        assert device.subscribe("devices/#") == [1]
        while device.message().payload != b"true":
            pass
    with contextlib.ExitStack() as stack:
        mallory = Mallory(suite, stack)
        for name in ("devices/alice/state", "devices/alice/new"):
            for body in (b"false", b""):
                stated = {symbol(ORIGINAL_ADDRESS): name, symbol(RETAIN): True}
                mallory.send(way, "devices/mallory/x", body, stated)
        stated = {symbol(ORIGINAL_ADDRESS): "devices/alice/state", symbol(RETAINED_FOR): "devices/#"}
        mallory.send(way, "devices/mallory/x", b"copy", stated)
        mallory.send("link", "devices/mallory/last", b"last", {symbol(RETAIN): True})
    for version, device in live.items():
        came = [device.message() for _ in range(6)]
        found = [(each.topic, each.payload, each.retain) for each in came if each.payload != b"last"]
        bodies = [b"copy", b"false", b"false", b"", b""]
        assert sorted(found) == sorted(("devices/mallory/x", body, False) for body in bodies), version

    def retained() -> dict[str, bytes]:
        reader = clients.device("", "admin", "pw-admin", clean=True, expiry=0)
        assert reader.subscribe("devices/#") == [1]
        assert reader.publish("devices/end", b"end") == 0
        kept = {}
        while (message := reader.message()).payload != b"end":
            kept[message.topic] = message.payload
        return kept

    wait_for("the last one is retained", lambda: "devices/mallory/last" in retained())
    kept = retained()
    assert kept["devices/alice/state"] == b"true" and "devices/alice/new" not in kept
    assert clients.device("mallory-1", "mallory", "pw-m").publish("devices/mallory/last", b"", retain=True) == 0
