"""Publisher and subscriber on two gateways; SIGKILL of a process between every two packets of an exchange.

One kill finds as many pairs of clients as an exchange has points, each stopped at another one. All clients count their
packet ids from 1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from enmasse.cli.messages.subctrl import request
from enmasse.model.sessions import SessionsReply
from enmasse.testing import Suite, running, wait_for
from tests.conformance.conftest import ADDRESSES
from tests.conformance.exchange import Endpoint, Lost, Receiver, Sender
from tests.conformance.marks import clauses
from tests.conformance.test_sessions import Name
from tests.conformance.wire import PUBLISH, Raw, Will

pytestmark = pytest.mark.slow  # tests/system/test_mqtt.py kills the same processes once each

VICTIMS = ["publisher's gateway", "subscriber's gateway", "subserv", "broker"]


@dataclass
class Cluster:
    """A suite with two gateways."""

    suite: Suite
    known: list[int] = field(default_factory=list)

    def components(self, kind: str) -> list[dict[str, Any]]:
        found = [c for c in self.suite.status()["components"] if c["kind"] == kind]
        return sorted(found, key=lambda component: str(component["name"]))

    def ports(self, first: int) -> Callable[[], list[int]]:
        """The own ports of the gateways, that of number `first` first. They stay the same over restarts."""
        if not self.known:
            found = [component["endpoints"].get("own", "") for component in self.components("mqtt_gateway")]
            self.known = [int(at.rpartition(":")[2]) for at in found if at]
        return lambda: [self.known[first], *self.known]

    def in_flight(self, client: str) -> int:
        """Return how many packet ids the session of a client uses."""
        rows = request(self.suite.offset, "sessions", None, SessionsReply, 30).sessions
        return next(row.in_flight for row in rows if row.client == client)

    def kill(self, victim: str) -> Callable[[], None]:
        """SIGKILL; gives what waits until the process is back."""
        number = {"publisher's gateway": 0, "subscriber's gateway": 1}.get(victim)
        if number is not None:
            kind, component = "mqtt_gateway", self.components("mqtt_gateway")[number]
        elif victim == "broker":
            kind, component = "broker", self.suite.component("broker", "field")
        else:
            kind, component = victim, self.components(victim)[0]
        self.suite.kill(component)

        def back() -> bool:
            return any(
                c["name"] == component["name"] and c["pid"] != component["pid"] and c["ready"]
                for c in self.components(kind)
            )

        return lambda: wait_for(f"{victim} is back", back) and None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("killed"), ADDRESSES, options=()) as suite:
        suite.up()
        done = suite.command("scale", "mqtt_gateway=2", "--port-offset", str(suite.offset))
        assert done.returncode == 0, done.stderr
        cluster = Cluster(suite)
        wait_for("two gateways", lambda: [bool(c["ready"]) for c in cluster.components("mqtt_gateway")] == [True] * 2)
        yield cluster
        assert suite.down() == 0


@pytest.fixture(params=[4, 5], ids=["v3.1.1", "v5"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@dataclass
class Pair:
    sender: Sender
    receiver: Receiver
    topic: str
    stop: int
    """The point at which it stops."""

    def to(self, done: int) -> None:
        """Steps 0 to `done` of an exchange with QoS 2, in the order in which the packets go."""
        sender, receiver = self.sender, self.receiver
        steps: list[Callable[[], object]] = [
            lambda: None,
            lambda: sender.begin(self.topic, b"message"),
            sender.acknowledged,
            sender.release,
            sender.complete,
        ]
        if sender.qos == 1:
            steps = steps[:3]
        for step in steps[: done + 1]:
            step()
        left = done - len(steps) + 1
        if left <= 0:
            return
        pid = receiver.await_message()
        later: list[Callable[[], object]] = [lambda: receiver.received(pid)]
        if receiver.qos == 2:
            later += [lambda: receiver.released(pid), lambda: receiver.complete(pid)]
        for step in later[: left - 1]:
            step()


POINTS = {1: 5, 2: 9}
"""The points of an exchange, from before PUBLISH to after PUBCOMP (PUBACK) of the subscriber; they are steps."""


def pairs(cluster: Cluster, version: int, qos: int, unique: Name) -> list[Pair]:
    found = []
    for stop in range(POINTS[qos]):
        sender = Sender(unique("p"), version, cluster.ports(0), qos)
        receiver = Receiver(unique("s"), version, cluster.ports(1), qos)
        found.append(Pair(sender, receiver, unique("t"), stop))
        receiver.connected()
        receiver.subscribe(found[-1].topic)
        sender.connected()
    return found


def ended(all_pairs: list[Pair]) -> None:
    """Discard the sessions."""
    for pair in all_pairs:
        for endpoint in (pair.sender, pair.receiver):
            _end(endpoint)


def _end(endpoint: Endpoint) -> None:
    """Discards the session."""
    endpoint.drop()
    raw = Raw("127.0.0.1", endpoint.ports()[0], endpoint.version)
    raw.open(endpoint.client, clean=True)
    raw.leave()


@clauses(v3="4.3.3-1 4.3.3-2 4.4.0-1 4.8.0-2", v5="4.3.3-3 4.3.3-5 4.3.3-6 4.3.3-10 4.4.0-1")
@pytest.mark.parametrize("victim", VICTIMS)
def test_qos_2_is_exactly_once(cluster: Cluster, version: int, unique: Name, victim: str) -> None:
    all_pairs = pairs(cluster, version, 2, unique)
    for pair in sorted(all_pairs, key=lambda pair: pair.stop in (1, 3, 6, 8)):  # what is just written comes last
        pair.to(pair.stop)
    wait_until_back = cluster.kill(victim)
    wait_until_back()
    for pair in all_pairs:
        if pair.sender.stage == "done" and pair.stop == 0:
            pair.sender.send(pair.topic, b"message")
        pair.sender.finish()
        pair.sender.send(pair.topic, b"marker")
    for pair in all_pairs:
        pair.receiver.collect(b"marker")
    assert {pair.stop: pair.receiver.got for pair in all_pairs} == {
        pair.stop: [b"message", b"marker"] for pair in all_pairs
    }
    ended(all_pairs)


@clauses(v5="4.8.2-4 4.8.2-5")
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_message_that_is_on_its_way_to_a_member_is_nobody_elses(
    cluster: Cluster, version: int, unique: Name, victim: str
) -> None:
    """QoS 2 from shared subscriptions: each member stands at another point of its exchange when the process dies, while
    another member of its group is connected elsewhere."""
    members: list[Receiver] = []
    others: list[Receiver] = []
    topics: list[str] = []
    sender = Sender(unique("p"), version, cluster.ports(0), 2)
    for point in range(4):
        topic, group = unique("t"), unique("g")
        member = Receiver(unique("s"), version, cluster.ports(1), 2)
        member.subscribe(f"$share/{group}/{topic}")
        member.subscribe(f"{topic}/own")
        sender.send(topic, b"message")
        pid = member.await_message()
        steps = [member.received, member.released, member.complete]
        other = Receiver(unique("o"), version, cluster.ports(0), 2)
        other.subscribe(f"$share/{group}/{topic}")
        for step in steps[:point]:
            step(pid)
        members.append(member)
        others.append(other)
        topics.append(topic)
    wait_until_back = cluster.kill(victim)
    wait_until_back()
    for member, topic in zip(members, topics, strict=True):
        sender.send(f"{topic}/own", b"marker")
        member.collect(b"marker")
        assert sorted(member.got) == [b"marker", b"message"]
        _end(member)
    for other, topic in zip(others, topics, strict=True):
        sender.send(topic, b"marker")
        other.collect(b"marker")
        assert other.got == [b"marker"]
        _end(other)
    _end(sender)


@pytest.mark.parametrize("connects_again", [False, True])
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_message_of_a_queue_is_completed_by_one_consumer(
    cluster: Cluster, version: int, unique: Name, victim: str, connects_again: bool
) -> None:
    """One consumer stands at each point of an exchange when the process dies, while another one waits for messages."""
    consumer, other, sender = _consumers_of_a_queue(cluster, version, unique)
    wait_until_back = cluster.kill(victim)
    wait_until_back()
    if connects_again:
        consumer.drop()
    consumer.complete_all()
    assert sorted(consumer.got) == QUEUED
    assert _in_flight(cluster, consumer.client) == 0
    _end(consumer)
    sender.send("orders", b"marker")
    other.collect(b"marker")
    assert other.got == [b"marker"]
    for endpoint in (other, sender):
        _end(endpoint)


@pytest.mark.parametrize("victim", VICTIMS)
def test_what_a_session_has_not_confirmed_returns_to_its_queue(
    cluster: Cluster, version: int, unique: Name, victim: str
) -> None:
    consumer, other, sender = _consumers_of_a_queue(cluster, version, unique)
    wait_until_back = cluster.kill(victim)
    wait_until_back()
    _end(consumer)
    other.collect(QUEUED[0])
    sender.send("orders", b"marker")
    other.collect(b"marker")
    # the PUBREC of message 1 may have died with its process
    assert other.got in ([*QUEUED[:1], b"marker"], [*QUEUED[:2], b"marker"], [QUEUED[1], QUEUED[0], b"marker"])
    for endpoint in (other, sender):
        _end(endpoint)


QUEUED = [b"message 0", b"message 1", b"message 2", b"message 3"]


def _consumers_of_a_queue(cluster: Cluster, version: int, unique: Name) -> tuple[Receiver, Receiver, Sender]:
    """A consumer that has received a PUBLISH, has sent PUBREC, has received PUBREL, has sent PUBCOMP; another consumer
    of the queue at the other gateway, which gets no message; and a sender."""
    consumer = Receiver(unique("s"), version, cluster.ports(1), 2)
    consumer.connected()
    consumer.subscribe("orders")
    sender = Sender(unique("p"), version, cluster.ports(0), 2)
    pids = []
    for payload in QUEUED:
        sender.send("orders", payload)
        pids.append(consumer.await_message())
    other = Receiver(unique("o"), version, cluster.ports(0), 2)
    other.subscribe("orders")
    steps = [consumer.received, consumer.released, consumer.complete]
    for point in (3, 2, 1):
        for step in steps[:point]:
            step(pids[point])
    return consumer, other, sender


def _in_flight(cluster: Cluster, client: str) -> int:
    """Wait until the session has no packet id any more; return how many it has."""
    with contextlib.suppress(TimeoutError):
        wait_for("no packet id in use", lambda: not cluster.in_flight(client))
    return cluster.in_flight(client)


@clauses(v3="4.3.2-1 4.4.0-1", v5="4.3.2-3 4.4.0-1")
@pytest.mark.parametrize("victim", VICTIMS)
def test_qos_1_is_at_least_once(cluster: Cluster, version: int, unique: Name, victim: str) -> None:
    all_pairs = pairs(cluster, version, 1, unique)
    for pair in sorted(all_pairs, key=lambda pair: pair.stop in (1, 4)):
        pair.to(pair.stop)
    wait_until_back = cluster.kill(victim)
    wait_until_back()
    for pair in all_pairs:
        if pair.stop == 0:
            pair.sender.send(pair.topic, b"message")
        pair.sender.finish()
        pair.sender.send(pair.topic, b"marker")
    for pair in all_pairs:
        pair.receiver.collect(b"marker")
        assert set(pair.receiver.got) == {b"message", b"marker"}, pair.stop
        assert pair.receiver.got.index(b"message") < pair.receiver.got.index(b"marker")
    ended(all_pairs)


@clauses(v3="3.3.1-5", v5="3.3.1-5")
@pytest.mark.parametrize("victim", ["publisher's gateway", "subserv", "broker"])
def test_a_retained_message_is_kept(cluster: Cluster, version: int, unique: Name, victim: str) -> None:
    """What was acknowledged is what a later subscriber on the other gateway gets; killed before and after it."""
    senders = [Sender(unique("p"), version, cluster.ports(0), qos) for qos in (1, 2, 1, 2)]
    topics = [unique("t") for _ in senders]
    for sender, topic in zip(senders, topics, strict=True):
        sender.send(topic, b"old", retain=True)
    for sender, topic in zip(senders, topics, strict=True):
        sender.begin(topic, b"new", retain=True)
    with contextlib.suppress(Lost):
        for sender in senders[:2]:
            sender.acknowledged()
    wait_until_back = cluster.kill(victim)
    wait_until_back()
    for sender, topic in zip(senders, topics, strict=True):
        sender.finish()
        late = Raw("127.0.0.1", cluster.ports(1)()[0], version)
        late.open(unique("c"))
        late.subscribe(topic)
        got = late.expect(PUBLISH)
        assert (got.payload, got.retain, got.qos) == (b"new", True, sender.qos)
        late.cut()
        sender.send(topic, b"", retain=True)
        sender.drop()


@clauses(v3="3.1.2-8", v5="3.1.2-8")
@pytest.mark.parametrize("victim", ["publisher's gateway", "mqtt_lwt", "subserv", "broker"])
def test_wills(cluster: Cluster, version: int, unique: Name, victim: str) -> None:
    """A client that does not come back: its will, exactly once. One that stays, or that its gateway has left and that
    is back in time: no will."""
    topic = unique("t")
    receiver = Receiver(unique("s"), version, cluster.ports(1), 2)
    receiver.connected()
    receiver.subscribe(f"{topic}/#")
    senders = [Sender(unique("p"), version, cluster.ports(0), 2) for _ in range(3)]
    for number, sender in enumerate(senders):
        sender.will = Will(f"{topic}/will", b"will %d" % number, qos=2)
        sender.connected()
    gone, comes_back, cut_before = senders  # the second one stays unless its gateway dies
    cut_before.drop()  # its will may be under way when the process dies
    wait_until_back = cluster.kill(victim)
    if victim == "publisher's gateway":
        comes_back.drop()
        comes_back.connected()
    gone.drop()
    wait_until_back()
    receiver.collect(b"will 0")
    receiver.collect(b"will 2")
    comes_back.send(f"{topic}/will", b"marker")
    receiver.collect(b"marker")
    assert sorted(receiver.got) == [b"marker", b"will 0", b"will 2"]
    for endpoint in (receiver, *senders):
        endpoint.drop()
        raw = Raw("127.0.0.1", cluster.ports(1)()[0], version)
        raw.open(endpoint.client, clean=True)
        raw.leave()
