"""An error of one client, injected at each place that serves all of them, ends that client's connection only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Rejected
from enmasse.bridge.lanes import Counters, Entry, Lane
from enmasse.bridge.message_outcomes import MessageOutcome
from enmasse.model.address_types import TYPES
from enmasse.model.addresses import Address
from enmasse.model.names import AddressName
from enmasse.model.sessions import PacketChange, Packets, PacketsReply, Subscription
from enmasse.model.topic_map import TopicMap
from enmasse.mqtt.packets import V5, Disconnect, PingReq, PingResp, Publish, SubAck, Subscribe
from enmasse.mqtt.packets import Subscription as Filter
from services.mqtt_gateway.address_use import AddressUse
from services.mqtt_gateway.amqp.filters import SessionFilters
from services.mqtt_gateway.amqp.mapping import MessageReader, TopicRoute
from services.mqtt_gateway.amqp.session_service import Control, PacketIdOutcome
from services.mqtt_gateway.amqp.sources import SessionSource
from services.mqtt_gateway.network.wire import Flusher
from tests.mqtt_gateway.peer import World
from tests.mqtt_gateway.test_lanes import Who

unused: Any = None
FAULT = RuntimeError("injected")


def _fault(*_: Any, **__: Any) -> Any:
    raise FAULT


class _Faulty(Who):
    def __init__(self) -> None:
        super().__init__("faulty")
        self.errors: list[Exception] = []

    def sent(self, key: int, qos: int, outcome: MessageOutcome, condition: str, text: str) -> None:
        _fault()

    def proceed(self) -> None:
        _fault()

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


@pytest.mark.parametrize(("state", "type"), [(ACCEPTED, "topic"), (Rejected(), "topic"), (RELEASED, "multicast")])
def test_outcomes_reach_the_other_clients_of_a_lane(state: Any, type: Any) -> None:
    lane, faulty, good = Lane(None, TYPES[type], Counters()), _Faulty(), Who("good")
    tokens = [Entry(who, packet_id, 1, b"", 0, packet_id) for packet_id, who in enumerate((good, faulty, good), 1)]
    lane.on_outcomes(cast(Any, None), tokens, state, True)
    assert [packet_id for packet_id, _ in good.outcomes] == [1, 3]
    assert faulty.errors == [FAULT]


def test_a_delivery_that_fails_ends_its_client() -> None:
    topics = TopicMap({AddressName("t"): Address(type="topic")})
    route = TopicRoute.find("t", topics)
    assert route is not None
    errors: list[Exception] = []

    class Session:
        arrived = staticmethod(_fault)
        rejected = expired = unmatched = delivered = 0
        reader = MessageReader(topics)

    session = cast(Any, Session())
    interest = SessionFilters("c", topics, [Subscription(filter="#", qos=1)], AddressUse(topics))
    source = SessionSource(session, session, interest, "q", window=5, v5=False, failed=errors.append, final=False)
    message = route.full(Publish("t", b"x"), topics, 0.0)
    link = SimpleNamespace(on_run=None, second=False)
    source.deliver(cast(Any, link), 1, True, message, b"", 0)
    assert errors == [FAULT]


def test_answers_of_a_batch_reach_the_other_clients() -> None:
    failed: list[tuple[str, int]] = []
    stored: list[Any] = []

    async def run() -> None:
        control = Control(
            "g", unused, unused, unused, unused, lambda client, epoch, error: failed.append((client, epoch))
        )
        callbacks: list[tuple[str, Callable[[Any], Any]]] = [("a", stored.append), ("b", _fault), ("c", stored.append)]
        for epoch, (client, done) in enumerate(callbacks):
            control.change(PacketChange(client, epoch, "out", 1, "k", "s", b""), done)
        await asyncio.sleep(0)
        (batch,) = control._batches
        control._stored(batch, "packets", msgspec.json.encode(PacketsReply()))
        assert not control.unanswered

    asyncio.run(run())
    assert len(stored) == 2
    assert failed == [("b", 1)]


def test_a_request_that_is_repeated_after_its_delivery_was_lost_is_late() -> None:
    sent: list[Packets] = []
    verdicts: list[PacketIdOutcome] = []

    async def run() -> None:
        control = Control("g", unused, unused, unused, unused, unused)
        control._send = lambda subject, key, body: sent.append(body)  # type: ignore[method-assign]  # no link here
        for late in (True, False):
            control.change(PacketChange("a", 3, "rel", 1, "k", "s"), None)
            control.change(PacketChange("a", 3, "out", 1, "k", "s"), verdicts.append)
            control.change(PacketChange("a", 3, "out", 2, "l", "s"), verdicts.append)
            await asyncio.sleep(0)
            (batch,) = control._batches
            control._send_batch(batch)
            if late:
                control.late("a", 3, 1)
            control._send_batch(batch)
            control._stored(batch, "packets", msgspec.json.encode(PacketsReply(late=[("a", 1)] if late else [])))

    asyncio.run(run())
    assert [[change.late for change in each.changes] for each in sent] == [
        [False, False, False], [False, True, False], [False, False, False], [False, False, False],
    ]  # fmt: skip
    assert verdicts == [PacketIdOutcome.LATE, PacketIdOutcome.DONE, PacketIdOutcome.DONE, PacketIdOutcome.DONE]


def test_a_deadline_that_fails_leaves_those_of_others() -> None:
    world = World()
    faulty, good = world.connected("faulty", keep_alive=5), world.connected("good", keep_alive=5)
    good.take()
    world.backend.live["faulty"].close = _fault  # type: ignore[method-assign]  # replaced by the test
    world.pass_time(20)
    assert isinstance(good.take()[-1], Disconnect)
    assert faulty.closed and good.closed


def test_output_that_fails_leaves_that_of_others() -> None:
    flushed: list[str] = []

    class Wire:
        def __init__(self, name: str) -> None:
            self.name = name

        def flush(self) -> None:
            if self.name == "b":
                _fault()
            flushed.append(self.name)

        def failed(self, error: Exception) -> None:
            flushed.append(f"{self.name} failed")

    async def run() -> None:
        flusher = Flusher(asyncio.get_running_loop())
        for name in "abc":
            flusher.mark(Wire(name))
        await asyncio.sleep(0)

    asyncio.run(run())
    assert flushed == ["a", "b failed", "c"]


def test_a_publisher_that_fails_does_not_keep_another_client_from_its_suback() -> None:
    world = World()
    subscriber, publisher = world.connected("sub"), world.connected("pub", V5)
    for peer in (subscriber, publisher):
        peer.take()
    subscribe: list[Any] = []
    session = world.backend.live["sub"]
    session.subscribe, later = subscribe.append, session.subscribe  # type: ignore[method-assign, assignment]  # replaced by the test
    subscriber.send(Subscribe(1, (Filter("a"),)))
    publisher.send(Publish("a", b"waits"))
    world.backend.live["pub"].publish = _fault  # type: ignore[method-assign]  # replaced by the test
    later(subscribe[0])
    subscriber.expect(SubAck)
    assert publisher.closed
    subscriber.send(PingReq())
    subscriber.expect(PingResp)
