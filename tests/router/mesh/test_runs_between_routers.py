"""Deliveries that arrive together go to other routers together, as each would alone."""

from __future__ import annotations

import sys
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Modified, Rejected, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Receiver
from services.router.routing.configuration import CLOSEST, MULTICAST, AddressConfig
from tests.router.mesh.in_memory import Line

BODY = b"\x00\x53\x75\xa0\x02"
FRONTS = (
    b"",
    b"\x00\x53\x70\xc0\x02\x01\x41",  # durable
    b"\x00\x53\x70\xc0\x04\x02\x42\x50\x09",  # priority 9
    b"\x00\x53\x72" + encode({Symbol("x-opt-mine"): 1}),
    b"\x00\x53\x72" + encode({Symbol("x-opt-qd.trace"): "r"}),  # which clients may not state
    b"\x00\x53\x72\x45",  # annotations that are no map
    b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa1\x01x",
    b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x72" + encode({Symbol("x-opt-mine"): 1}),  # another descriptor
    b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x00",  # the same, of a part of the body
)
OUTCOMES = (ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, Rejected(), Modified(delivery_failed=True))
RECEIVERS = ("b", "c", "c")
ADDRESSES = [
    AddressConfig(1, "all", prefix="all", treatment=MULTICAST),
    AddressConfig(2, "near", prefix="near", treatment=CLOSEST),
    AddressConfig(3, "high", prefix="high", priority=7),
]
names = count()


class Message(NamedTuple):
    """`front`: a place in FRONTS; `short`: the message is cut; `to`: which of two addresses."""

    front: int
    settled: bool
    short: bool
    to: int


MESSAGES = st.lists(
    st.builds(
        Message,
        st.one_of(st.just(0), st.integers(0, len(FRONTS) - 1)),
        st.booleans(),
        st.sampled_from([False] * 9 + [True]),
        st.sampled_from([0, 0, 0, 1]),
    ).flatmap(lambda message: st.integers(1, 8).map(lambda times: [message] * times)),
    min_size=1,
    max_size=12,
).map(lambda groups: [message for group in groups for message in group])


class Outcomes(Handler):
    """Notes what a sender learns."""

    def __init__(self) -> None:
        self.known: list[tuple[int, Any]] = []

    def on_outcomes(self, link: Any, tokens: list[Any], state: Any, settled: bool) -> None:
        """Note them."""
        self.known += [(token, state) for token in tokens]


@pytest.fixture(scope="module")
def line() -> Line:
    return Line("abc", ADDRESSES)


def seen(line: Line, messages: list[Message], kind: str, receivers: int, credit: int, together: bool) -> Any:
    """Send messages from `a`, in one read or each by itself. Return what each receiver got, the outcomes, and what the
    routers have counted."""
    addresses = [f"{kind}/{next(names)}" for _ in range(2)]
    before = [(r.transit, r.egress, r.ingress, r.dropped) for r in (x.totals() for x in line.routers.values())]
    got: list[list[tuple[bytes, bool]]] = []
    links: list[Receiver] = []
    unsettled: list[tuple[Receiver, int, Any]] = []
    clients = []
    for at in RECEIVERS[-receivers:]:
        client = line.client(at)
        clients.append(client)
        for address in addresses:
            link = client.begin().attach_receiver(address, Source(address=address), Target())
            got.append([])

            def take(link: Receiver, id: int, settled: bool, payload: bytes, *_: Any, to: Any = got[-1]) -> None:
                to.append((payload, settled))
                if not settled:
                    unsettled.append((link, id, OUTCOMES[payload[-1] % len(OUTCOMES)]))

            link.on_delivery = take
            link.grant(credit)
            links.append(link)
    line.pump()
    outcomes = Outcomes()
    client = line.client("a", outcomes)
    clients.append(client)
    session = client.begin()
    senders = [session.attach_sender(address, Source(), Target(address=address)) for address in addresses]
    line.pump()
    assert all(sender.credit for sender in senders)
    for number, message in enumerate(messages):
        payload = b"x" if message.short else FRONTS[message.front] + BODY + b"%c%c" % (number, number)
        senders[message.to].send(payload, number, settled=message.settled)
        if not together:
            line.pump()
    line.pump()
    for link in links:
        link.grant(len(messages))
    line.pump()
    while unsettled:
        for link, id, state in unsettled:
            link.session.settle(id, state)
        unsettled.clear()
        line.pump()
    for client in clients:
        line.close(client)
    after = [(r.transit, r.egress, r.ingress, r.dropped) for r in (x.totals() for x in line.routers.values())]
    counted = [tuple(y - x for x, y in zip(*each, strict=True)) for each in zip(before, after, strict=True)]
    return got, sorted(outcomes.known, key=lambda each: each[0]), counted


@example([Message(front, False, False, 0) for front in (0, 8, 7)], "any", 1, 100)
@given(
    messages=MESSAGES,
    kind=st.sampled_from(["any", "near", "high", "all"]),
    receivers=st.integers(1, 3),
    credit=st.sampled_from([1, 7, 100]),
)
def test_same_messages_order_and_outcomes(
    line: Line, messages: list[Message], kind: str, receivers: int, credit: int
) -> None:
    alone = seen(line, messages, kind, receivers, credit, together=False)
    assert seen(line, messages, kind, receivers, credit, together=True) == alone
    assert len(alone[1]) == sum(not message.settled for message in messages)


@pytest.mark.parametrize("settled", [False, True])
def test_messages_that_arrive_together_cost_few_calls(line: Line, settled: bool) -> None:
    """Over two hops, their outcomes included."""
    address = f"any/{next(names)}"
    consumer, producer = line.client("c"), line.client("a")
    receiver = consumer.begin().attach_receiver("r", Source(address=address), Target())
    receiver.on_run = lambda link, first, payloads, settled: None if settled else link.settle_run(first, len(payloads))
    receiver.credit_window = 1000
    line.pump()
    sender = producer.begin().attach_sender("s", Source(), Target(address=address))
    line.pump()
    calls = 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    def send(messages: int) -> None:
        for number in range(messages):
            sender.send(BODY + b"xx", number, settled=settled)
        before = sys.getprofile()
        sys.setprofile(called)
        try:
            line.pump()
        finally:
            sys.setprofile(before)

    send(10)  # routers learn how the frames end
    calls = 0
    send(200)
    assert receiver.deliveries == 210 and sender.unsettled == 0
    assert calls < 3 * 200
    line.close(consumer)
    line.close(producer)
