"""MQTT clients of three address spaces with equal addresses, users and client identifiers: nothing crosses."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions
from prometheus_client.core import Metric
from proton import Condition, Delivery, Message
from proton.utils import BlockingConnection, LinkDetached

from enmasse import metrics
from enmasse.testing import Suite, wait_for
from tests.kit.waiting import DEADLINE
from tests.system import amqp_users
from tests.system.mqtt_of_spaces import ALL, LISTENERS, PASSWORD, PORTS, Device, suite_with_spaces, user

each_space = pytest.mark.parametrize("space", ["default", "one", pytest.param("two", marks=pytest.mark.slow)])
"""A test is of the space in which something happens. `one` and `two` are alike; messages are counted in all three."""
_numbers = itertools.count()


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with suite_with_spaces(tmp_path_factory.mktemp("spaces")) as found:
        yield found


@pytest.fixture
def name() -> str:
    """A topic below `news` of its own for each test."""
    return f"t{next(_numbers)}"


@contextlib.contextmanager
def everywhere(suite: Suite, client_id: str, **more: object) -> Iterator[dict[str, Device]]:
    """Connect a client of this identifier in each space."""
    with contextlib.ExitStack() as stack:
        yield {space: stack.enter_context(Device(suite, space, client_id, **more)) for space in ALL}  # type: ignore[arg-type]  # options of a device


def _any_has(*devices: Device) -> bool:
    return any(not each.messages.empty() for each in devices)


def only(
    space: str, senders: dict[str, Device], receivers: dict[str, Device], topic: str, got: list[str], qos: int = 1
) -> None:
    """Check that in this space these payloads have come, and elsewhere none. `qos`: of what was sent: paho gives out
    a message of QoS 2 when its exchange is over."""
    for each, sender in senders.items():
        sender.publish(topic, f"end of {each}", qos)
    for each, receiver in receivers.items():
        found = [payload for _, payload in receiver.until(f"end of {each}")]
        assert found == (got if each == space else []), each


@pytest.mark.parametrize(("address", "qos"), [*itertools.product(("news", "jobs"), (0, 2)), ("other", 1)])
def test_send_and_receive(suite: Suite, qos: int, address: str, name: str) -> None:
    """QoS 1, and other addresses: tests/tenants."""
    topic = f"{address}/{name}"
    with everywhere(suite, "receiver") as receivers, everywhere(suite, "sender") as senders:
        for each in receivers.values():
            each.subscribe(f"{address}/#" if address == "jobs" else topic, qos)
        for space in ALL:
            senders[space].publish(topic, "x", qos)
            only(space, senders, receivers, topic, ["x"], qos)


@pytest.mark.parametrize("filter", ["#", "+/{}/+", "news/{}/#"])
def test_wildcards_cover_the_own_space_alone(suite: Suite, filter: str, name: str) -> None:
    topic = f"news/{name}/a.b"
    with everywhere(suite, "receiver") as receivers, everywhere(suite, "sender") as senders:
        for each in receivers.values():
            each.subscribe(filter.format(name))
        for space, sender in senders.items():
            sender.publish(topic, f"of {space}")
            sender.publish(topic, "end")
        for space, receiver in receivers.items():
            assert [one for one in receiver.until("end") if name in one[0]] == [(topic, f"of {space}")]


@each_space
def test_members_of_equal_groups_share_in_their_space(suite: Suite, space: str, name: str) -> None:
    topic = f"news/{name}"
    with everywhere(suite, "first") as first, everywhere(suite, "second") as second, everywhere(suite, "s") as senders:
        for members in (first, second):
            for each in members.values():
                each.subscribe(f"$share/group/{topic}")
        for number in range(20):
            senders[space].publish(topic, str(number))

        def got() -> int:
            return first[space].messages.qsize() + second[space].messages.qsize()

        wait_for("all twenty", lambda: got() >= 20)
        for other in ALL:
            if other != space:
                senders[other].publish(topic, "end")
                devices = first[other], second[other]
                wait_for("the end", partial(_any_has, *devices))
                found = [one for device in devices for one in list(device.messages.queue)]
                assert [one.payload for one in found] == [b"end"]
        found = [one for device in (first[space], second[space]) for one in list(device.messages.queue)]
        assert sorted(int(one.payload) for one in found) == list(range(20))


@each_space
def test_retained_messages_of_equal_topics(suite: Suite, space: str, name: str) -> None:
    topic = f"news/{name}"

    def retained(expected: dict[str, list[str]]) -> None:
        with everywhere(suite, "reader") as readers:
            for each, reader in readers.items():
                reader.subscribe(topic)
                reader.publish(topic, f"end of {each}")
                assert [payload for _, payload in reader.until(f"end of {each}")] == expected[each], each

    with everywhere(suite, "writer") as writers:
        writers[space].publish(topic, "only here", retain=True)
        retained({each: ["only here"] if each == space else [] for each in ALL})
        for each, writer in writers.items():
            writer.publish(topic, f"of {each}", retain=True)
        retained({each: [f"of {each}"] for each in ALL})
        writers[space].publish(topic, "", retain=True)
        retained({each: [] if each == space else [f"of {each}"] for each in ALL})


@each_space
@pytest.mark.parametrize(("address", "retain"), [("news", True), ("jobs", False)])
def test_wills_of_equal_clients(suite: Suite, space: str, retain: bool, address: str, name: str) -> None:
    topic = f"{address}/{name}"
    with everywhere(suite, "receiver") as receivers, everywhere(suite, "sender") as senders:
        for each in receivers.values():
            each.subscribe("jobs/#" if address == "jobs" else topic)
        with everywhere(suite, "mortal", will=(topic, "last", 1, retain)) as mortals:
            mortals[space].lose()
            assert receivers[space].receive()[1] == "last"
        only(space, senders, receivers, topic, [])
    if retain:
        with everywhere(suite, "late") as late, everywhere(suite, "sender") as senders:
            for each in late.values():
                each.subscribe(topic)
            only(space, senders, late, topic, ["last"])


@each_space
def test_sessions_of_equal_clients_are_taken_up_again(suite: Suite, space: str, name: str) -> None:
    topic, qos = f"news/{name}", 2
    with everywhere(suite, f"kept-{name}", expiry=600) as clients:
        for each in clients.values():
            each.subscribe(topic, qos)
    with everywhere(suite, "sender") as senders:
        senders[space].publish(topic, "x", qos)
        with everywhere(suite, f"kept-{name}", clean=False) as clients:
            assert all(each.present for each in clients.values())
            only(space, senders, clients, topic, ["x"], qos)


@each_space
@pytest.mark.parametrize("address", ["news", "jobs"])
def test_response_topics_are_names_of_the_space(suite: Suite, space: str, address: str, name: str) -> None:
    request, response = f"news/{name}", f"{address}/{name}/reply"
    with everywhere(suite, "asks") as asking, everywhere(suite, "answers") as answering:
        for each in ALL:
            answering[each].subscribe(request)
            asking[each].subscribe("jobs/#" if address == "jobs" else response)
        asking[space].publish(request, "question", response=response)
        found = answering[space].message()
        assert found.properties is not None and found.topic == request
        stated = found.properties.ResponseTopic
        assert stated in (response, "jobs")
        answering[space].publish(stated, "answer")
        assert asking[space].receive()[1] == "answer"
        only(space, asking, answering, request, [])
        for each in ALL:
            asking[each].publish(response, "end")
            assert [payload for _, payload in asking[each].until("end")] == []


@pytest.mark.parametrize("topic", ["!!two/news", "!!one/news/x", "$reply/!!two/jobs", "$reply/%21%21two/jobs"])
@pytest.mark.parametrize("space", ["default", "one"])
def test_no_client_states_a_space(suite: Suite, space: str, topic: str) -> None:
    with everywhere(suite, "receiver") as receivers, Device(suite, space, "bad") as bad:
        for each in receivers.values():
            each.subscribe("jobs/#")
            each.subscribe("#")
        bad.publish(topic, "crossing")
        if not topic.startswith("$reply"):
            with pytest.raises(AssertionError):
                bad.subscribe(topic)
        for each_space, receiver in receivers.items():
            receiver.publish("jobs", f"end of {each_space}")
            assert "crossing" not in [payload for _, payload in receiver.until(f"end of {each_space}")]


def test_clients_of_mosquitto(suite: Suite, name: str) -> None:
    common = ["-h", "127.0.0.1", "-p", str(suite.mqtt_port), "-t", f"news/{name}", "-P", PASSWORD, "-q", "1"]
    for space in ALL:
        subprocess.run(["mosquitto_pub", *common, "-u", user(space), "-m", space, "-r"], check=True, timeout=DEADLINE)
    for space in ALL:
        command = ["mosquitto_sub", *common, "-u", user(space), "-C", "1", "-W", "60"]
        found = subprocess.run(command, check=True, timeout=DEADLINE, capture_output=True, text=True)
        assert found.stdout.split() == [space]


@each_space
def test_wills_and_subscriptions_of_amqp_clients(suite: Suite, space: str, name: str) -> None:
    """`$lwt` and `$subctrl` look up names in the space of their user; equal container-ids, link names and ids."""
    topic = f"news/{name}"
    with contextlib.ExitStack() as stack:
        readers = stack.enter_context(everywhere(suite, "reader"))
        connections, queues = {}, {}
        for each in ALL:
            readers[each].subscribe(topic)
            connections[each] = connection = amqp_users.proton(suite, user(each), PASSWORD, container_id="same")
            stack.callback(connection.close)
            replies = connection.create_receiver(None, dynamic=True)
            reply_to = replies.link.remote_source.address
            requests = connection.create_sender("$subctrl", name="requests")
            for subject, body in (("list_topics", None), ("subscribe", topic)):
                requests.send(Message(subject=subject, correlation_id=name, reply_to=reply_to, body=body))
                reply = replies.receive(DEADLINE)
                assert "!!" not in f"{reply.address}{reply.reply_to}{reply.body}"
                if subject == "list_topics":
                    assert reply.body == ["news", "rest"]
            assert reply.body == {topic: True}
            queues[each] = connection.create_receiver(reply.properties["addresses"])
        will = connections[space].create_sender("$lwt", name="will")
        will.send(Message(subject="will", address=topic, body=b"bye", durable=True))
        will.link.condition = Condition("my:failure", "the client has failed")
        will.close()
        assert readers[space].receive() == (topic, "bye")
        only(space, readers, readers, topic, [])
        for each in ALL:
            bodies: list[bytes] = []
            while not bodies or not bodies[-1].startswith(b"end"):
                message = queues[each].receive(DEADLINE)
                bodies.append(bytes(message.body))
                queues[each].accept()
            assert bodies == [b"bye"] * (each == space) + [f"end of {each}".encode()]


def test_gateways_of_a_spaces_own(suite: Suite, name: str) -> None:
    """They come and go with an edit; whoever connects to one is in the space, whatever else the name says."""
    file = suite.config / "spaces.json"
    before = file.read_text()
    topic = f"news/{name}"

    def own() -> dict[str, Any]:
        found = {one["name"]: one for one in suite.status()["components"] if one["name"].startswith("mqtt_gateway-one")}
        return found if all(one["ready"] for one in found.values()) else {}

    file.write_text(json.dumps({"one": {"gateways": 2}, "two": {}}))
    wait_for("two gateways", lambda: len(own()) == 2)
    places = {one["endpoints"]["mqtt"] for one in own().values()}
    assert len(places) == 1, "they share the ports"
    port = int(places.pop().rpartition(":")[2])
    with everywhere(suite, f"kept-{name}", expiry=600) as clients, everywhere(suite, "sender") as senders:
        for each in clients.values():
            each.subscribe(topic)
        options: dict[str, Any] = {"clean": False, "expiry": 600, "port": port}
        with Device(suite, "default", f"kept-{name}", **options) as client:  # no @one: the port says it
            assert client.present and clients["one"].gone.wait(DEADLINE)
            only("one", senders, {**clients, "one": client}, topic, [])
            for each in senders.values():
                each.publish(topic, "again")
            assert client.receive() == (topic, "again")
            assert not clients["default"].gone.is_set() and not clients["two"].gone.is_set()
    with pytest.raises(AssertionError):
        Device(suite, "two", "stranger", port=port)
    victim = own()["mqtt_gateway-one-0"]
    suite.kill(victim)
    wait_for("it is back", lambda: own().get("mqtt_gateway-one-0", victim)["pid"] != victim["pid"])
    with Device(suite, "default", f"kept-{name}", **options) as client:
        assert client.present
    file.write_text(json.dumps({"one": {"gateways": 1}, "two": {}}))
    wait_for("one is left", lambda: set(own()) == {"mqtt_gateway-one-0"})
    file.write_text(before)
    wait_for("none is left", lambda: not any("gateway-one" in one["name"] for one in suite.status()["components"]))


def test_kills_of_gateway_and_subscription_service(suite: Suite, name: str) -> None:
    """What was acknowledged before and between the kills comes to its space once each, and nothing else."""
    topic, count = f"news/{name}", 50
    with everywhere(suite, f"kept-{name}", expiry=600) as clients:
        for each in clients.values():
            each.subscribe(topic)
    for round, kind in enumerate(("subserv", "mqtt_gateway", "mqtt_lwt")):
        with everywhere(suite, "sender") as senders:
            for space, sender in senders.items():
                for number in range(count):
                    sender.publish(topic, f"{space} {round} {number}")
                sender.publish(f"{topic}/kept", f"{space} {round}", retain=True)
        suite.kill(suite.component(kind))
        suite.wait_ready()
    expected = {space: {f"{space} {r} {n}" for r in range(3) for n in range(count)} for space in ALL}
    with everywhere(suite, "sender") as senders, everywhere(suite, f"kept-{name}", clean=False) as clients:
        assert all(each.present for each in clients.values())
        for space in ALL:
            senders[space].publish(topic, "end")
            found = [payload for _, payload in clients[space].until("end")]
            assert set(found) == expected[space] and len(found) == len(expected[space])
            clients[space].subscribe(f"{topic}/#")
            assert clients[space].receive() == (f"{topic}/kept", f"{space} 2")


def test_metrics_of_services_count_each_space(suite: Suite) -> None:
    def counted(process: str, name: str) -> dict[str | None, float]:
        samples = [sample for family in scraped(suite, process) for sample in family.samples]
        assert "!!" not in str(samples)
        return {
            each.labels.get("space"): each.value
            for each in samples
            if each.name == name and each.labels.get("state", "connected") == "connected"
        }

    spaces = {None, "one", "two"}
    with everywhere(suite, "counted") as devices:
        for space, device in devices.items():
            device.subscribe("news/counted")
            device.publish("news/counted", space, retain=True)
        for process, name in (
            ("subserv", "subserv_sessions"),
            ("subserv", "subserv_subscriptions"),
            ("subserv", "subserv_retained_messages"),
            ("mqtt_gateway-0", "mqtt_sessions"),
            ("mqtt_gateway-0", "enmasse_connections"),
        ):
            wait_for(name, partial(_are, spaces, partial(counted, process, name)))


def _are(spaces: set[str | None], count: Callable[[], dict[str | None, float]]) -> bool:
    return {space for space, number in count().items() if number} == spaces


def scraped(suite: Suite, process: str) -> list[Metric]:
    """Return the metrics of a process."""
    health = json.loads((suite.data / "run" / f"{process}.json").read_text())["health"]
    request = urllib.request.Request(f"http://{health}/metrics", headers=suite.operator_headers)
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        return metrics.parse(answer.read())


@each_space
@pytest.mark.parametrize("way", ["mqtts", "wss"])
def test_the_host_that_a_client_names_by_tls_is_its_space(suite: Suite, way: str, space: str) -> None:
    port = {"mqtts": 8883, "wss": 8084}[way] + suite.offset
    host = "localhost" if space == "default" else space
    check(suite, space, way, port, host)
    if space != "default":
        other = {"one": "two", "two": "one"}[space]
        with pytest.raises(AssertionError, match="134"):  # 0x86
            connected(suite, way, port, host, f"alice@{other}")


@pytest.mark.parametrize(("way", "space"), [each for each in LISTENERS if each[0] != "amqp"])
def test_a_listener_of_one_space_has_its_clients_alone(suite: Suite, way: str, space: str) -> None:
    port, tls = PORTS[f"{way}@{space}"], way in ("mqtts", "wss")
    check(suite, space, way, port, "localhost" if tls else None)
    other = {"one": "two", "two": "one"}[space]
    if tls:  # the listener counts, not the host
        check(suite, space, way, port, other)
    with pytest.raises(AssertionError, match="134"):  # 0x86
        connected(suite, way, port, "localhost" if tls else None, f"alice@{other}")


def test_a_listener_of_the_router_has_clients_of_its_space_alone(suite: Suite) -> None:
    at = BlockingConnection(
        f"amqp://127.0.0.1:{PORTS['amqp@one']}", timeout=DEADLINE, user="alice", password=PASSWORD,
        allowed_mechs="PLAIN", allow_insecure_mechs=True,
    )  # fmt: skip
    with (
        contextlib.closing(at) as client,
        Device(suite, "one", "reader") as reader,
    ):
        reader.subscribe("news/listener")
        client.create_sender("news/listener").send(Message("by the listener"))
        assert reader.receive() == ("news/listener", "by the listener")


def connected(suite: Suite, way: str, port: int, host: str | None, name: str = "alice") -> Device:
    transport = "websockets" if way in ("ws", "wss") else "tcp"
    return Device(suite, "", "named", transport=transport, name=name, port=port, host=host)


def check(suite: Suite, space: str, way: str, port: int, host: str | None) -> None:
    """Check that alice, who states no space, is a client of this one."""
    with everywhere(suite, "reader") as readers, connected(suite, way, port, host) as device:
        for reader in readers.values():
            reader.subscribe("news/named")
        device.publish("news/named", "x")
        only(space, readers, readers, "news/named", ["x"])


def test_numbers_below_sys_are_those_of_the_space(suite: Suite) -> None:
    with everywhere(suite, "numbers") as devices:
        devices["two"].subscribe("news/numbers")
        devices["two"].publish("news/numbers", "x", retain=True)
        for space in ("one", "two"):
            devices[space].messages.queue.clear()
            devices[space].subscribe("$SYS/#", 0)
            values: dict[str, str] = {}
            wanted = ("$SYS/broker/clients/connected", "$SYS/brokers/enmasse/stats/connections/count")
            while any(values.get(name) != "1" for name in wanted) or "$SYS/broker/subscriptions/count" not in values:
                topic, payload = devices[space].receive()
                values[topic] = payload
            assert "$SYS/broker/bytes/received" not in values and "$SYS/broker/messages/received" not in values


def test_no_text_that_an_amqp_client_gets_has_a_name_inside(suite: Suite) -> None:
    """Errors of links and messages, temporary addresses, annotations: but for what the client has stated itself."""
    texts: list[str] = []
    with contextlib.closing(amqp_users.proton(suite, user("one"), PASSWORD)) as client:
        texts.append(str(client.create_receiver(None, dynamic=True).link.remote_source.address))
        for address in (
            "nothing", "nothing/below", "news::nothing", "jobs::jobs", "$management", "$live", "$sub/nothing/mqtt.x",
            "$mqtt/control", "$lwt", "!!two/news", "!!none/x", "_topo/0/router-0/temp.none", "x" * 600, "news/#/x",
        ):  # fmt: skip
            for make in (client.create_receiver, client.create_sender):
                try:
                    make(address).close()
                except LinkDetached as error:
                    texts.append(str(error))
        for to, reply_to in (
            ("nothing", None), ("!!two/jobs", None), ("$subctrl", "!!two/jobs"), ("$subctrl", "x"), ("$lwt", None),
            ("news::x", None), ("_topo/0/router-0/temp.none", None),
        ):  # fmt: skip
            for body in ("x", {"!!two/news": None}, {"none/x": None}):
                message = Message(body, address=to, reply_to=reply_to, subject="subscribe", id=1, correlation_id="c")
                sent = client.create_sender(to if to == "$subctrl" else None, name=f"s{next(_numbers)}").link.send(
                    message
                )
                client.wait(partial(_has_outcome, sent), DEADLINE)
                texts.append(str(sent.remote.condition))
        reader = client.create_receiver("jobs")
        client.create_sender("jobs").send(Message("annotated"))
        while (found := reader.receive(DEADLINE)).body != "annotated":
            reader.accept()
        texts.append(str((found.annotations, found.instructions, found.address, found.reply_to)))
        reader.accept()
    assert len(texts) > 25
    for text in texts:  # it has stated names of `two` and `none` itself
        assert not re.search(r"!!(?!two/|none/)\w|~\w*@", text), text


def _has_outcome(sent: Delivery) -> bool:
    return bool(sent.remote_state)


def test_no_reason_that_an_mqtt_client_gets_has_a_name_inside(suite: Suite) -> None:
    """Reason strings of SUBACK, PUBACK and DISCONNECT, and topics: but for what the client has stated itself."""
    filters = (
        "nothing/at/all",
        "!!two/news",
        "+/!!two/#",
        "jobs/x/#",
        "$share/g/!!two/news",
        "$share/g/news/#",
        "$x/y",
    )
    topics = ("!!two/news", "nothing/at/all", "$SYS/x", "direct", "jobs/x", "$share/g/x")
    for stated, filter, topic in [*((each, each, "") for each in filters), *((each, "", each) for each in topics)]:
        with Device(suite, "one", f"reasons-{next(_numbers)}") as device:
            if filter:
                device._client.subscribe(filter, options=SubscribeOptions(1))
            else:
                device._client.publish(topic, "x", 1)
            reason = device.reasons.get(timeout=DEADLINE)
        assert not re.search(r"!!\w", reason.replace("!!two", "")), (stated, reason)
        assert "two" not in reason.replace(stated, "").replace("!!two/news", ""), (stated, reason)
