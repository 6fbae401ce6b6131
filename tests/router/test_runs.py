"""Deliveries that arrive together are forwarded together, as each would be alone."""

from __future__ import annotations

from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Link
from tests.router.world import World

HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"
BODY = b"\x00\x53\x75\xa0\x01"
ANNOTATIONS = b"\x00\x53\x72" + encode({Symbol("x-opt-qd.trace"): "r"})


class Traffic(World):
    """Notes what the receiver gets and what the sender learns."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[bytes] = []
        self.outcomes: list[tuple[int, object]] = []

        def take(link: object, delivery_id: int, settled: bool, payload: bytes, *_: object) -> None:
            self.got.append(payload)
            self.receiver.session.settle(delivery_id)

        self.receiver.on_delivery = take
        self.client.handler.handler.on_outcomes = (  # type: ignore[method-assign]  # replaced by the test
            lambda link, tokens, state, settled: self.outcomes.extend((token, state) for token in tokens)
        )

    def limit(self, credit: int) -> None:
        """Give the receiver this much credit, which is not topped up."""
        self.receiver.credit_window = 0
        self.receiver.drain_credit()
        self.pump()
        self.receiver.grant(credit)
        self.pump()

    def send_all(self, payloads: list[bytes]) -> None:
        for number, payload in enumerate(payloads):
            self.sender.send(payload, number)
        self.pump()


def test_run_keeps_order_and_loses_its_router_annotations() -> None:
    world = Traffic()
    plain = [HEADER * (i % 2) + BODY + b"%c" % i for i in range(100)]
    world.send_all([ANNOTATIONS + payload if i == 50 else payload for i, payload in enumerate(plain)])
    assert world.got == plain
    assert sorted(token for token, _ in world.outcomes) == list(range(100))


def test_run_beyond_the_receivers_credit_waits_and_follows_in_order() -> None:
    world = Traffic()
    world.limit(7)
    payloads = [BODY + b"%c" % i for i in range(20)]
    world.send_all(payloads)
    assert world.got == payloads[:7]
    world.receiver.grant(20)
    world.pump()
    assert world.got == payloads
    assert len(world.outcomes) == 20


def test_run_with_a_message_that_cannot_be_decoded_is_forwarded_without_it() -> None:
    world = Traffic()
    world.send_all([BODY + b"a", b"x", BODY + b"b"])
    assert world.got == [BODY + b"a", BODY + b"b"]
    states = dict(world.outcomes)
    assert type(states[1]).__name__ == "Rejected"


def test_run_of_settled_deliveries_is_forwarded_as_far_as_credit_goes_and_counted() -> None:
    world = Traffic()
    world.limit(30)
    payloads = [BODY + b"%c" % i for i in range(50)]
    world.sender.send(payloads[0], settled=True)  # the engine learns how they end
    world.pump()
    for payload in payloads[1:]:
        world.sender.send(payload, settled=True)
    world.pump()
    assert world.got == payloads[:30]
    world.receiver.grant(30)
    world.pump()
    assert world.got == payloads
    assert world.outcomes == []
    assert world.sender.unsettled == world.receiver.unsettled == 0
    assert [link.presettled for link in world.record.links.values()] == [50, 50]


def test_run_of_settled_deliveries_goes_to_receivers_in_equal_parts_and_to_each_together() -> None:
    world = World()
    second = world.client.begin().attach_receiver("r2", Source(address="a"), Target())
    got: list[tuple[str, bytes]] = []

    def take(link: Link, delivery_id: int, settled: bool, payload: bytes, *_: object) -> None:
        got.append((link.name, payload))

    for link in (world.receiver, second):
        link.on_delivery = take
        link.credit_window = 0
        link.drain_credit()
        world.pump()
        link.grant(13)
    payloads = [BODY + b"%c" % i for i in range(31)]
    world.pump()
    world.sender.send(payloads[0], settled=True)  # the engine learns how they end
    world.pump()
    for payload in payloads[1:]:
        world.sender.send(payload, settled=True)
    world.pump()
    assert [link for link, _ in got[1:26]] == [got[1][0]] * 13 + [got[0][0]] * 12
    by_link = {name: [payload for each, payload in got if each == name] for name in ("r", "r2")}
    first, other = got[0][0], got[1][0]
    assert by_link[first] == [payloads[0], *payloads[14:26]]
    assert by_link[other] == payloads[1:14]
    world.receiver.grant(10)
    second.grant(10)
    world.pump()
    assert sorted(payload for _, payload in got) == payloads
    assert sum(link.presettled for link in world.record.links.values() if link.direction == "out") == 31
