"""A message that was read after another client's SUBSCRIBE, and matches it, waits for it: not long, and not often."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.mqtt.packets import V5, V311, PubAck, Publish, SubAck, Subscribe, Subscription
from services.mqtt_gateway.protocol.unanswered import MOST, MOST_FILTERS, PATIENCE, REST
from tests.mqtt_gateway.peer import Peer, World


class Stage:
    """A subscriber whose SUBSCRIBEs are answered by `answer`, a publisher."""

    def __init__(self, version: int = V5) -> None:
        self.world = World()
        self.subscriber = self.world.connected("s", version)
        self.session = self.subscriber.session
        self.asked: list[Subscribe] = []
        self._subscribe = self.session.subscribe
        self.session.subscribe = self.asked.append  # type: ignore[method-assign, assignment]  # replaced by the test
        self.publisher = self.world.connected("p", version)
        self.published: list[Publish] = []
        publish = self.publisher.session.publish

        def note(packet: Publish) -> None:
            self.published.append(packet)
            publish(packet)

        self.publisher.session.publish = note  # type: ignore[method-assign, assignment]  # replaced by the test
        for peer in (self.subscriber, self.publisher):
            peer.take()

    def subscribe(self, *filters: str, packet_id: int = 1) -> None:
        self.subscriber.send(Subscribe(packet_id, tuple(Subscription(each, 1) for each in filters)))

    def answer(self) -> None:
        self._subscribe(self.asked.pop(0))

    def publish(self, *topics: str, **more: Any) -> None:
        self.publisher.send(*(Publish(topic, topic.encode(), **more) for topic in topics))

    @property
    def sent(self) -> list[str]:
        return [each.topic for each in self.published]


def got(peer: Peer) -> list[str]:
    return [each.topic for each in peer.take() if isinstance(each, Publish)]


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("filter", ["a", "+", "#", "$share/g/a"])
def test_a_message_waits_for_the_subscribe_before_it(version: int, filter: str) -> None:
    stage = Stage(version)
    stage.subscribe(filter)
    stage.publish("a", "other", qos=0)
    stage.publisher.send(Publish("a", b"", 1, packet_id=7))
    assert stage.sent == []
    stage.answer()
    assert stage.sent == ["a", "other", "a"], "in their order"
    assert [each.packet_id for each in stage.publisher.take() if isinstance(each, PubAck)] == [7]
    answer, *rest = stage.subscriber.take()
    assert isinstance(answer, SubAck) and "a" in [each.topic for each in rest if isinstance(each, Publish)]


def test_what_it_does_not_match_and_what_came_before_do_not_wait() -> None:
    stage = Stage()
    stage.publish("a")
    stage.subscribe("b", "c/#")
    stage.publish("a", "d", "$x")
    assert stage.sent == ["a", "a", "d", "$x"]
    stage.publish("c/1")
    assert stage.sent == ["a", "a", "d", "$x"]
    other = stage.world.connected("o")
    other.session.subscribe = lambda packet: None  # type: ignore[method-assign, assignment]  # replaced by the test
    other.send(Subscribe(1, (Subscription("#", 1),)))
    stage.answer()
    assert stage.sent[4:] == ["c/1"], "it does not wait for the SUBSCRIBE that came after it"


def test_nobody_waits_longer_than_that() -> None:
    stage = Stage()
    stage.subscribe("#")
    stage.publish("a")
    stage.world.pass_time(PATIENCE + 0.5)
    assert stage.sent == ["a"]
    stage.answer()
    assert not stage.world.server_state.unanswered


def test_who_has_waited_does_not_wait_again_for_a_while() -> None:
    """A client that subscribes again and again holds up nobody."""
    stage = Stage()
    stage.subscribe("#")
    stage.publish("a")
    stage.answer()
    stage.subscribe("#", packet_id=2)
    stage.publish("b")
    assert stage.sent == ["a", "b"]
    stage.answer()
    stage.world.pass_time(REST + 0.5)
    stage.subscribe("#", packet_id=3)
    stage.publish("c")
    assert stage.sent == ["a", "b"]
    stage.answer()
    assert stage.sent == ["a", "b", "c"]


def test_a_subscriber_that_goes_lets_messages_go_on() -> None:
    stage = Stage()
    stage.subscribe("#")
    stage.publish("a")
    stage.subscriber.vanish()
    assert stage.sent == ["a"]
    assert not stage.world.server_state.unanswered


def test_a_publisher_that_goes_while_it_waits() -> None:
    stage = Stage()
    stage.subscribe("#")
    stage.publish("a")
    stage.publisher.vanish()
    stage.answer()
    assert stage.sent == []
    assert stage.world.server_state.memory.total == 0


def test_in_a_storm_nobody_waits_for_the_others() -> None:
    stage = Stage()
    stage.subscribe(*(f"x/{number}" for number in range(MOST_FILTERS + 1)))
    stage.publish("x/1")
    assert stage.sent == ["x/1"]
    for number in range(MOST + 5):
        peer = stage.world.connected(f"c{number}")
        peer.session.subscribe = lambda packet: None  # type: ignore[method-assign, assignment]  # replaced by the test
        peer.send(Subscribe(1, (Subscription(f"y/{number}", 1),)))
    assert len(stage.world.server_state.unanswered) == MOST
    stage.publish(f"y/{MOST + 4}")
    assert stage.sent == ["x/1", f"y/{MOST + 4}"]
