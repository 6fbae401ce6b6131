"""A topic moves to another broker, again and again, under load: everything that was acknowledged reaches everybody."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Endpoint, Message, Timeout
from proton.utils import BlockingConnection, LinkDetached

from enmasse.testing import Suite, running, wait_for
from tests.broker.harness import BrokerProcess
from tests.conformance.exchange import Receiver, Sender
from tests.kit.waiting import DEADLINE
from tests.load import MADE, Consumer, Durable, Producer
from tests.system.mqtt_devices import INTERVAL, MOST, PATIENCE, Device
from tests.system.seeing import carrier, component, find, wait_address, wait_message, wait_process
from tests.test_artemis import manage

TOPIC = "moved"
FLAVORS = {
    name: {"type": "topic", "templateName": "topic-persisted", "templateParameters": {"BROKERS": 1}}
    for name in ("first", "second")
}
QUEUES = {"stored": {"type": "queue", "templateName": "queue-persisted", "templateParameters": {"BROKERS": 1}}}
ADDRESSES = {
    TOPIC: {"type": "topic", "flavor": "first"},
    **{f"of-{name}": {"type": "topic", "flavor": name} for name in FLAVORS},
    "of-stored": {"type": "queue", "flavor": "stored"},
}
TYPES = {"topic": {"type": "topic", "flavor": "first"}, "queue": {"type": "queue", "flavor": "stored"}}
EDITS = 2
RATE = 40
"""Messages a second of the AMQP publisher, and about as many of each MQTT one."""
PAUSE = 0.25
"""Seconds between two questions for the addresses of a subscription by `$subctrl`."""
ONE_SOON = [pytest.param(False, id="of one"), pytest.param(True, id="shared", marks=pytest.mark.slow)]
"""Durable subscriptions of one client and shared ones: `make test` has one in each test, `make test-slow` the other."""


@pytest.fixture(scope="module")
def running_suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("moving"), ADDRESSES, FLAVORS | QUEUES, options=()) as found:
        found.up()
        yield found
        assert found.down() == 0


@pytest.fixture
def suite(running_suite: Suite) -> Iterator[Suite]:
    """The topic is on one broker: one that still has it is chosen again, and is bound there as it was."""
    running_suite.wait_ready()
    wait_for("the former broker to let go", lambda: not (find(running_suite, TOPIC) or {"message": ""})["message"])
    yield running_suite
    for client in MADE:
        print(client.describe())  # shown where the test has failed
        client.abandon()
    MADE.clear()
    for load in LOADS:
        with contextlib.suppress(Exception):  # the suite may be what has failed
            load.abandon()
    LOADS.clear()


LOADS: list[Load] = []
"""Those of a test: what it has left behind would take the sessions of the next one's clients."""


class Sensor:
    """An MQTT client that publishes numbers; `acknowledged`: those whose acknowledgement was no refusal."""

    def __init__(self, suite: Suite, name: str, qos: int, topic: str = TOPIC) -> None:
        self.device = Device(name, suite.mqtt_port)
        self.name, self._qos, self._topic = name, qos, topic
        self.acknowledged: set[str] = set()
        self.refused: list[str] = []
        self._texts: dict[int, str] = {}
        self._answers: deque[tuple[int, Any]] = deque()
        self.sent = 0
        self.device.client.on_publish = self._on_publish
        self.device.connect()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _on_publish(self, client: Any, data: Any, packet_id: int, reason: Any, properties: Any) -> None:
        self._answers.append((packet_id, reason))

    def settle(self) -> int:
        """Take the answers that have come; return how many are missing."""
        for _ in range(len(self._answers)):
            packet_id, reason = self._answers.popleft()
            text = self._texts.pop(packet_id)
            if reason.is_failure:
                self.refused.append(f"{text}: {reason}")
            else:
                self.acknowledged.add(text)
        return len(self._texts)

    def _run(self) -> None:
        while not self._stop.wait(1 / RATE):
            if self.settle() >= MOST:
                continue
            text = f"{self.name} {self.sent}"
            # No lock is held here: paho calls `_on_publish` with its own.
            info = self.device.client.publish(f"{self._topic}/{self.name}", text, qos=self._qos)
            self._texts[info.mid] = text
            self.sent += 1

    def halt(self) -> None:
        """Publish nothing further."""
        self._stop.set()
        self._thread.join()

    def stop(self) -> None:
        self.halt()
        wait_for(f"answers to {self.name}", lambda: not self.settle(), PATIENCE)


class Control:
    """A connection of an AMQP client that asks `$subctrl`."""

    def __init__(self, suite: Suite) -> None:
        self.connection = BlockingConnection(suite.url, timeout=PATIENCE)
        try:
            self._replies = self.connection.create_receiver(None, dynamic=True, credit=10)
            self._requests = self.connection.create_sender("$subctrl")
        except LinkDetached:  # Proton keeps the socket of a connection that is not closed
            self.connection.close()
            raise

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, subject: str, body: Any = None) -> list[str]:
        """Return the addresses of the reply."""
        to = self._replies.link.remote_source.address if subject != "close" else None
        self._requests.send(Message(subject=subject, correlation_id="controlled", body=body, reply_to=to))
        if to is None:
            return []
        return str((self._replies.receive(PATIENCE).properties or {}).get("addresses", "")).split()


class Controlled(threading.Thread):
    """An AMQP client with a subscription by `$subctrl`, which receives from every broker that this is on."""

    def __init__(self, suite: Suite) -> None:
        super().__init__(daemon=True)
        self.got: Counter[str] = Counter()
        self._suite = suite
        self._ended = threading.Event()
        with Control(suite) as control:
            control.ask("subscribe", f"{TOPIC}/#")

    def run(self) -> None:
        while not self._ended.wait(INTERVAL):
            with contextlib.suppress(LinkDetached), Control(self._suite) as control:
                self._receive(control)

    def _receive(self, control: Control) -> None:
        """Receive until the end. Raises LinkDetached: a queue is gone, or the routers do not know the way to it yet."""
        receivers: dict[str, Any] = {}
        while not self._ended.wait(PAUSE):
            for address in control.ask("list"):
                if address not in receivers:
                    receivers[address] = control.connection.create_receiver(address, credit=MOST)
            for receiver in receivers.values():
                self._take(receiver)

    def _take(self, receiver: Any) -> None:
        with contextlib.suppress(Timeout):
            while True:
                message = receiver.receive(timeout=INTERVAL)  # a body is of no use without its message
                body = message.body
                receiver.accept()
                self.got[bytes(body).decode() if isinstance(body, memoryview) else str(body)] += 1

    def end(self) -> None:
        self._ended.set()
        self.join()
        with Control(self._suite) as control:
            control.ask("close")


class TextConsumer(Consumer):
    """Counts what comes as text, as it comes from MQTT clients."""

    def __init__(self, url: str, address: str) -> None:
        super().__init__(url, address)
        self.got: Counter[str] = Counter()

    def take(self, body: Any) -> None:
        self.got[bytes(body).decode() if isinstance(body, memoryview) else str(body)] += 1


class Load:
    """Publishers of MQTT (QoS 1 and 2) and AMQP, a reader, a session whose client is away, and a subscription by
    `$subctrl`."""

    def __init__(self, suite: Suite, to: str = f"{TOPIC}/amqp") -> None:
        LOADS.append(self)
        self.ended = False
        self.controlled = Controlled(suite)
        self.controlled.start()
        self.reader, self.away = Device("reader", suite.mqtt_port), Device("away", suite.mqtt_port)
        for device in (self.reader, self.away):
            device.connect()
            device.subscribe(f"{TOPIC}/#", 2)
        self.away.close()
        self.sensors = [Sensor(suite, f"qos{qos}", qos) for qos in (1, 2)]
        self.producer = Producer(suite.url, to, rate=RATE)
        self.producer.start()
        for sensor in self.sensors:
            sensor.start()
        self.go_on()

    def go_on(self) -> None:
        """Wait until every publisher has had some more acknowledged."""
        self.producer.wait_accepted(20)
        self.sensors_go_on()

    def sensors_go_on(self) -> None:
        """Wait until every MQTT publisher has had some more acknowledged."""
        for sensor, count in {sensor: len(sensor.acknowledged) for sensor in self.sensors}.items():
            wait_for(
                f"acknowledgements to {sensor.name}",
                lambda sensor=sensor, count=count: len(sensor.acknowledged) > count + 20,  # type: ignore[misc]  # mypy infers no type of a lambda's default
                PATIENCE,
            )

    def acknowledged(self) -> set[str]:
        """What was acknowledged until now."""
        sent = {text for sensor in self.sensors for text in set(sensor.acknowledged)}
        return sent | {str(number) for number in set(self.producer.accepted)}

    def sent(self) -> set[str]:
        """What was sent until now."""
        texts = {f"{sensor.name} {number}" for sensor in self.sensors for number in range(sensor.sent + 1)}
        return texts | {str(number) for number in range(self.producer.sent)}

    def all_came(self, but: Collection[str] = ()) -> None:
        """What was acknowledged, `but` this, has reached everybody; what MQTT clients sent with QoS 2 once."""
        for sensor in self.sensors:
            sensor.stop()
        self.producer.enough()
        self.producer.wait_end()
        sent = self.acknowledged() - set(but)
        self.away.connect()
        everybody = (self.reader, self.away, self.controlled)
        for each in everybody:
            _came(each, sent)
        for device in (self.reader, self.away):  # AMQP is at least once
            doubles = {text for text, count in device.got.items() if count > 1 and text.startswith("qos2")}
            assert not doubles - set(but)
        self.end()

    def end(self) -> None:
        """End every client and session."""
        self.controlled.end()
        for device in (self.reader, self.away, *(sensor.device for sensor in self.sensors)):
            device.end()
        self.ended = True

    def abandon(self) -> None:
        """End what a test that has failed has left."""
        if not self.ended:
            for sensor in self.sensors:
                sensor.halt()
            self.end()


def _came(each: Device | Controlled, sent: set[str]) -> None:
    try:
        wait_for("everything", lambda: each.got.keys() >= sent, DEADLINE)
    except TimeoutError:
        missing, who = sorted(sent - each.got.keys()), "$subctrl"
        if isinstance(each, Device):
            who = each.client._client_id.decode()
        raise AssertionError(f"{who}: {len(missing)} of {len(sent)} are missing: {missing[:20]}") from None


@pytest.fixture
def load(suite: Suite) -> Load:
    return Load(suite)


def edit(suite: Suite, flavor: str) -> None:
    suite.edit("addresses.json", {TOPIC: {"type": "topic", "flavor": flavor}})


def wait_moved(suite: Suite, flavor: str) -> None:
    suite.wait_ready()
    _wait_move(suite, lambda: carrier(suite, TOPIC)["name"].startswith(flavor))


def _wait_move(suite: Suite, moved: Callable[[], bool]) -> None:
    try:
        wait_for("the move", moved)
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {find(suite, TOPIC)}") from None


def other(suite: Suite) -> str:
    """The flavor that the topic does not have now."""
    return "second" if carrier(suite, TOPIC)["name"].startswith("first") else "first"


def test_moves_lose_nothing_that_was_acknowledged(suite: Suite, load: Load) -> None:
    for _ in range(EDITS):
        flavor = other(suite)
        edit(suite, flavor)
        wait_moved(suite, flavor)
        load.go_on()
    load.all_came()


@pytest.mark.slow  # tests/subserv/test_preparing.py, and the controller's tests
@pytest.mark.parametrize(
    "victims",
    [
        [],
        ["storage_controller"],
        ["configserv"],
        ["subserv"],
        ["storage_controller", "configserv", "ragent"],
    ],
)
def test_nothing_moves_before_the_subscription_service_has_bound(suite: Suite, load: Load, victims: list[str]) -> None:
    """Whoever is killed while the new broker is prepared."""
    flavor, before = other(suite), carrier(suite, TOPIC)["name"]
    processes = {name: component(suite, name) for name in {*victims, "subserv"}}
    os.kill(processes["subserv"]["pid"], signal.SIGSTOP)
    try:
        edit(suite, flavor)
        wait_message(suite, TOPIC, "waits until subserv has bound subscriptions on broker ")
        suite.kill(*(processes[name] for name in victims))
        for name in victims:
            wait_process(suite, name, processes[name]["pid"])
        load.producer.wait_accepted(20)
        if "subserv" not in victims:
            wait_message(suite, TOPIC, "waits until subserv has bound subscriptions on broker ")
            assert before in wait_address(suite, TOPIC, ready=False)["components"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(processes["subserv"]["pid"], signal.SIGCONT)
    wait_moved(suite, flavor)
    load.go_on()
    load.all_came()


@pytest.mark.slow  # moves and removals have tests of their own
def test_a_topic_that_is_removed_and_comes_back(suite: Suite, load: Load) -> None:
    """Its publishers are refused meanwhile; what was acknowledged before and after has come."""
    flavor = "first" if other(suite) == "second" else "second"
    suite.edit("addresses.json", {}, remove=[TOPIC])
    wait_for("the removal", lambda: not (find(suite, TOPIC) or {"ready": False})["ready"])
    edit(suite, flavor)
    suite.wait_ready()
    load.go_on()
    load.all_came()


@pytest.mark.slow
def test_what_lies_on_a_broker_managed_by_hand_comes_when_its_topic_has_left(
    suite: Suite, load: Load, tmp_path: Path
) -> None:
    """No topic is there any more when the client of the session comes back; its queue goes when it is empty."""
    hand = BrokerProcess(tmp_path).start()
    address = f"127.0.0.1:{hand.port}"
    control = BlockingConnection(address, timeout=PATIENCE)
    manage(control, "createAddress", TOPIC, "MULTICAST")
    flavor = {"type": "topic", "templateName": "topic-external"}
    parameters = {"HOST": "127.0.0.1", "PORT": hand.port}
    suite.edit("flavors.json", {"hand": {**flavor, "templateParameters": parameters}})
    before = other(suite)
    edit(suite, "hand")
    suite.wait_ready()
    wait_for("the move", lambda: address in (find(suite, TOPIC) or {"components": ()})["components"])
    load.go_on()
    edit(suite, before)
    wait_moved(suite, before)
    wait_for("the end of the topic there", lambda: address not in (find(suite, TOPIC) or {})["components"])
    load.go_on()
    load.all_came()
    wait_for("empty queues to go", lambda: "mqtt." not in str(manage(control, "getQueueNames")))
    control.close()
    suite.edit("flavors.json", {}, remove=["hand"])
    suite.wait_ready()
    hand.kill()


@contextlib.contextmanager
def flavored(suite: Suite, name: str, **parameters: object) -> Iterator[None]:
    """A flavor has these parameters for a while."""
    before = FLAVORS[name]
    suite.edit("flavors.json", {name: {**before, "templateParameters": parameters}})
    suite.wait_ready()
    try:
        yield
    finally:
        suite.edit("flavors.json", {name: before})


def wait_elsewhere(suite: Suite, before: str) -> str:
    """Wait until the topic is on another broker. Return its name."""
    suite.wait_ready()
    _wait_move(suite, lambda: carrier(suite, TOPIC)["name"] != before)
    name: str = carrier(suite, TOPIC)["name"]
    return name


@pytest.mark.slow  # the move is that of test_moves_lose_nothing_that_was_acknowledged
@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"BROKERS": 2}, id="BROKERS"),
        pytest.param({"DEDICATED": True}, id="DEDICATED"),
    ],
)
def test_an_edit_of_the_flavor_that_moves_the_topic_loses_nothing(
    suite: Suite, load: Load, parameters: dict[str, object]
) -> None:
    """To a second broker of the flavor, or to one of its own, and back to the first one."""
    here = carrier(suite, TOPIC)["name"]
    flavor = other(suite)
    with flavored(suite, flavor, **parameters):
        edit(suite, flavor)
        second = wait_elsewhere(suite, here)
        assert second != f"{flavor}-0"
        load.go_on()
    assert wait_elsewhere(suite, second) == f"{flavor}-0"
    load.go_on()
    load.all_came()


def durable_consumers(suite: Suite, shared: bool) -> list[Consumer]:
    return [
        Consumer(suite.url, f"{TOPIC}/amqp", container_id="durable-client", subscription="durable", shared=shared)
        for _ in range(2 if shared else 1)
    ]


def attach_all(consumers: list[Consumer]) -> None:
    for consumer in consumers:
        consumer.start()
        consumer.wait_attached()


def all_from(load: Load, first: int, *consumers: Consumer) -> None:
    """From number `first` on everything that was accepted has come, to one of them; nothing more is sent."""
    load.producer.enough()
    load.producer.wait_end()
    expected = set(range(first, load.producer.sent))
    wait_for("everything", lambda: set().union(*(each.seen for each in consumers)) >= expected, PATIENCE)


@pytest.mark.slow  # the test of its last moment guards it
@pytest.mark.parametrize("shared", [False, True], ids=["of one", "shared"])
def test_a_topic_with_a_durable_subscription_of_amqp_stays_and_loses_nothing(
    suite: Suite, load: Load, shared: bool
) -> None:
    before, flavor = carrier(suite, TOPIC)["name"], other(suite)
    consumers = durable_consumers(suite, shared)
    attach_all(consumers)
    first = load.producer.sent
    edit(suite, flavor)
    wait_message(suite, TOPIC, f"stays on broker {before}, where it has 1 durable subscription")
    load.go_on()
    all_from(load, first, *consumers)
    for consumer in consumers:
        consumer.stop()
    wait_moved(suite, flavor)
    load.all_came()


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["of one", "shared"])
def test_a_pool_that_grows_and_shrinks_under_a_durable_subscription_loses_nothing(
    suite: Suite, load: Load, shared: bool
) -> None:
    """It is on a broker that the smaller pool does not have: the topic stays there until the subscription ends."""
    here, flavor = carrier(suite, TOPIC)["name"], other(suite)
    consumers = durable_consumers(suite, shared)
    with flavored(suite, flavor, BROKERS=2):
        edit(suite, flavor)
        second = wait_elsewhere(suite, here)
        attach_all(consumers)
        first = load.producer.sent
        load.go_on()
        with flavored(suite, flavor, BROKERS=3):
            load.go_on()
    wait_message(suite, TOPIC, f"stays on broker {second}, where it has 1 durable subscription")
    load.go_on()
    all_from(load, first, *consumers)
    for consumer in consumers:
        consumer.stop()
    assert wait_elsewhere(suite, second) == f"{flavor}-0"
    load.sensors_go_on()
    load.all_came()


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["of one", "shared"])
def test_an_address_that_is_removed_and_comes_back_has_its_durable_subscriptions(
    suite: Suite, load: Load, shared: bool
) -> None:
    """Their clients are away, so the broker keeps the topic with what they have not received."""
    here, flavor = carrier(suite, TOPIC)["name"], other(suite)
    consumers = durable_consumers(suite, shared)
    attach_all(consumers)
    first = load.producer.sent
    for consumer in consumers:
        consumer.stop(detach=True)
    load.go_on()
    suite.edit("addresses.json", {}, remove=[TOPIC])
    wait_message(suite, TOPIC, "was removed: still holds ")
    edit(suite, flavor)
    wait_message(suite, TOPIC, f"stays on broker {here}, where it has 1 durable subscription")
    load.go_on()
    back = durable_consumers(suite, shared)
    attach_all(back)
    load.go_on()
    all_from(load, first, *consumers, *back)
    for consumer in back:
        consumer.stop()
    wait_moved(suite, flavor)
    load.all_came()


@pytest.mark.slow
def test_a_broker_that_starts_with_an_empty_folder_gives_nothing_that_is_taken_for_a_repeat(
    suite: Suite, load: Load
) -> None:
    """Gateways know messages, some of QoS 2 unfinished, by ids of the folder that is gone. What is acknowledged from
    then on comes, from QoS 2 once."""
    unfinished = Receiver("unfinished", 5, lambda: [suite.mqtt_port], 2)
    unfinished.subscribe(f"{TOPIC}/qos2")
    pid, *_ = [unfinished.await_message() for _ in range(20)]
    unfinished.received(pid)
    unfinished.released(pid)  # no exchange is complete
    broker = carrier(suite, TOPIC)
    (suite.data / "brokers" / broker["name"]).rename(suite.folder / "gone")
    suite.kill(broker)
    wait_process(suite, broker["name"], broker["pid"])
    before = load.sent()
    suite.wait_ready()
    load.go_on()
    unfinished.complete_all()
    load.all_came(but=before)
    sender = Sender("last", 5, lambda: [suite.mqtt_port], 2)
    sender.send(f"{TOPIC}/qos2", b"last")
    unfinished.collect(b"last")
    (sensor,) = [sensor for sensor in load.sensors if sensor.name == "qos2"]
    assert {text.decode() for text in unfinished.got} >= sensor.acknowledged - before
    for each in (unfinished, sender):
        each.drop()


def _leaves(suite: Suite, flavor: str) -> bool:
    """Return whether the topic is on its way to this flavor. As long as its broker still shows the subscription of the
    test before, it stays there."""
    message = (find(suite, TOPIC) or {}).get("message", "")
    return f"given flavor {flavor} instead of " in message and ": stays on broker " not in message


@pytest.mark.slow  # moves under load have the test above
@pytest.mark.parametrize("shared", ONE_SOON)
def test_a_durable_subscription_of_the_last_moment_of_a_move_misses_nothing(
    suite: Suite, load: Load, shared: bool
) -> None:
    """The new broker has the topic, and the routers do not know it yet: the attach waits for them, unnoticed. The old
    broker keeps the topic for five seconds, which are over on a loaded machine, unless its controller is stopped."""
    flavor, agent = other(suite), component(suite, "ragent")["pid"]
    controller = component(suite, "storage_controller")["pid"]
    client = BlockingConnection(suite.url, timeout=PATIENCE, container_id="last-moment")
    os.kill(agent, signal.SIGSTOP)
    try:
        edit(suite, flavor)
        wait_for("the topic to have left its broker", lambda: _leaves(suite, flavor))
        os.kill(controller, signal.SIGSTOP)
        session = client.conn.session()
        session.open()
        link = session.receiver("durable")
        link.source.address = f"{TOPIC}/amqp"
        Durable(shared=shared).apply(link)
        link.open()
        client.create_sender(TOPIC).close()  # the old broker has read both attaches
        os.kill(agent, signal.SIGCONT)
        client.wait(lambda: link.state & Endpoint.REMOTE_ACTIVE)
    finally:
        for each in (agent, controller):
            os.kill(each, signal.SIGCONT)
    first = load.producer.sent
    link.detach()
    client.close()
    wait_moved(suite, flavor)
    load.go_on()
    consumer = Consumer(suite.url, f"{TOPIC}/amqp", container_id="last-moment", subscription="durable", shared=shared)
    consumer.start()
    all_from(load, first, consumer)
    consumer.stop()
    load.all_came()


@pytest.mark.slow  # test_removal.py and the controller's tests
def test_an_address_that_becomes_a_queue_and_a_topic_again_loses_nothing(suite: Suite) -> None:
    """What is accepted comes to each subscriber of the topic, or to one client of the queue; from QoS 2 by neither of
    them twice to an MQTT client. What was sent again because its answer was lost at the edit may come by both."""
    load, consumer = Load(suite, TOPIC), TextConsumer(suite.url, TOPIC)
    consumer.start()
    for kind in ("queue", "topic") * 2:
        suite.edit("addresses.json", {TOPIC: TYPES[kind]})
        wait_address(suite, TOPIC, type=kind, ready=True)
        load.go_on()
    for sensor in load.sensors:
        sensor.stop()
        assert not sensor.refused
    load.producer.enough()
    load.producer.wait_end()
    sent, reader, away = load.acknowledged(), load.reader, load.away
    away.connect()
    wait_for("everything", lambda: {*reader.got, *away.got, *consumer.got} >= sent)
    last = {f"{sensor.name} {sensor.sent - 1}" for sensor in load.sensors}
    wait_for("everything of the topic", lambda: away.got.keys() >= last and reader.got.keys() >= away.got.keys())
    by_topic = {text: count for text, count in away.got.items() if text.startswith("qos2")}
    assert set(by_topic.values()) == {1}
    by_queue = {text: reader.got[text] - by_topic.get(text, 0) for text in reader.got if text.startswith("qos2")}
    assert set(by_queue.values()) <= {0, 1}
    consumer.stop()
    load.end()
