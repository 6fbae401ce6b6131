"""QoS 1 and 2 in both directions under losses, in any order: nothing lost, QoS 2 never twice (4.3, 4.4).

A device publishes and receives. Its connection is lost at any point, bytes in both directions with it; what is to be
stored is stored step by step; the gateway dies, so that nothing of the connection is said to the session.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Packet,
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
from services.mqtt_gateway.interfaces import Ending
from tests.mqtt_gateway.peer import Peer, World


class Exchanges(RuleBasedStateMachine):
    """The device's own state is what a correct client stores (4.1)."""

    @initialize(version=st.sampled_from([V311, V5]), window=st.integers(1, 6), maximum=st.integers(1, 6))
    def begin(self, version: int, window: int, maximum: int) -> None:
        self.version = version
        self.world = World(Limits(window=window, receive_maximum=maximum, topic_aliases=3))
        self.world.backend.slow = True
        self.maximum = maximum
        self.numbers = count()
        self.unacknowledged: dict[int, tuple[bytes, int]] = {}  # PUBLISH sent, by id: payload, QoS
        self.to_release: dict[int, bytes] = {}  # PUBREC came
        self.sent: set[bytes] = set()
        self.qos: dict[bytes, int] = {}
        self.accepted: set[bytes] = set()
        self.held: set[int] = set()  # ids of QoS 2 messages that came, until PUBREL
        self.got: Counter[bytes] = Counter()
        self.due: set[tuple[bytes, int]] = set()  # routed to the device
        self.last_id = 0
        self.to_answer: list[Packet] = []  # packets of the gateway that the device has read
        self.peer = self._connect()
        self.peer.send(Subscribe(60_000, (Subscription("in/#", 2),)))
        assert self.peer.expect(SubAck).codes == (2,)

    def _connect(self) -> Peer:
        given = Properties(session_expiry=1000, receive_maximum=3) if self.version == V5 else Properties()
        peer = self.world.connected("device", self.version, clean=False, properties=given)
        peer.expect_first(ConnAck)
        self.to_answer.clear()
        for packet_id, (payload, qos) in self.unacknowledged.items():
            peer.send(Publish("out", payload, qos, dup=True, packet_id=packet_id))
        for packet_id in self.to_release:
            peer.send(PubRel(packet_id))
        return peer

    @property
    def under_way(self) -> int:
        return len(self.unacknowledged) + len(self.to_release)

    @precondition(lambda self: self.under_way < self.maximum)
    @rule(qos=st.integers(1, 2))
    def publish(self, qos: int) -> None:
        payload = b"out%d" % next(self.numbers)
        self.last_id += 1
        while self.last_id in self.unacknowledged or self.last_id in self.to_release:
            self.last_id += 1
        self.unacknowledged[self.last_id] = (payload, qos)
        self.sent.add(payload)
        self.qos[payload] = qos
        self.peer.send(Publish("out", payload, qos, packet_id=self.last_id))

    @rule(qos=st.integers(0, 2))
    def somebody_publishes(self, qos: int) -> None:
        payload = b"in%d" % next(self.numbers)
        if qos:
            self.due.add((payload, qos))
        self.world.backend.route(Publish("in/x", payload, qos), "other")

    @rule(steps=st.integers(1, 5))
    def store(self, steps: int) -> None:
        self.world.backend.store(steps)

    @rule()
    def read(self) -> None:
        """The device reads what has come, and stores what it says."""
        for packet in self.peer.take():
            self._read(packet)
        assert not self.peer.closed

    def _read(self, packet: Packet) -> None:
        match packet:
            case PubAck(packet_id=packet_id):
                self.accepted.add(self.unacknowledged.pop(packet_id)[0])
            case PubRec(packet_id=packet_id):
                found = self.unacknowledged.pop(packet_id, None)
                if found is not None:
                    self.accepted.add(found[0])
                    self.to_release[packet_id] = found[0]
                self.to_answer.append(PubRel(packet_id))
            case PubComp(packet_id=packet_id):
                self.to_release.pop(packet_id, None)
            case Publish(qos=1):
                self.got[packet.payload] += 1
                self.to_answer.append(PubAck(packet.packet_id))
            case Publish(qos=2):
                if packet.packet_id not in self.held:
                    self.held.add(packet.packet_id)
                    self.got[packet.payload] += 1
                self.to_answer.append(PubRec(packet.packet_id))
            case PubRel(packet_id=packet_id):
                self.held.discard(packet_id)
                self.to_answer.append(PubComp(packet_id))
            case Publish():
                pass
            case _:
                raise AssertionError(packet)

    @precondition(lambda self: self.to_answer)
    @rule(some=st.integers(1, 4))
    def answer(self, some: int) -> None:
        """In order, as a client must (4.6)."""
        for _ in range(min(some, len(self.to_answer))):
            self.peer.send(self.to_answer.pop(0))

    @rule()
    def lose_the_connection(self) -> None:
        self.peer.vanish()
        self.peer = self._connect()

    @rule()
    def kill_the_gateway(self) -> None:
        """Its connections and all that it knew are gone; what it had asked for may still be done, or not."""
        backend = self.world.backend
        session = backend.live["device"]
        session.close(Ending.LOST, None, ())
        backend.to_store.clear()
        self.world = World(self.world.server_state.limits, backend)
        self.peer = self._connect()

    @invariant()
    def qos_2_is_never_twice(self) -> None:
        if not hasattr(self, "world"):
            return
        routed = Counter(payload for _, topic, payload in self.world.backend.routed if topic == "out")
        assert all(routed[payload] for payload in self.accepted)
        assert all(routed[payload] <= 1 for payload in self.sent if self.qos[payload] == 2)
        assert all(self.got[payload] <= 1 for payload, qos in self.due if qos == 2)

    def teardown(self) -> None:
        """Everything goes on without losses: all that was sent arrives."""
        if not hasattr(self, "world"):
            return
        for _ in range(2000):
            self.world.backend.store()
            self.read()
            while self.to_answer:
                self.peer.send(self.to_answer.pop(0))
            if not (self.under_way or self.world.backend.to_store or self.peer.session.unsettled):
                break
        assert not self.unacknowledged
        assert not self.to_release
        assert self.sent == self.accepted
        assert {payload for payload, _ in self.due} <= set(self.got)
        stored = self.world.backend.stored["device"]
        assert not stored.received
        assert not [each for each in stored.sent.values() if each.qos == 2]
        assert not stored.queue
        self.qos_2_is_never_twice()


Exchanges.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestExchanges = Exchanges.TestCase
