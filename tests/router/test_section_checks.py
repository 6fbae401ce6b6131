"""Messages that a broker which is not ours may read differently from the router: none reaches it, by whichever link and
in however many pieces it comes. The client and the broker are raw peers in memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.amqp.callbacks import Guard
from enmasse.amqp.codec.encoder import encode
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Accepted, Rejected, Source, Target
from enmasse.amqp.codec.types import Described, Symbol, ULong
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.section_checks import check_leading_sections
from enmasse.amqp.messages.sections import Sections
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.roles import Role
from services.router.routing.brokers.relay import CAPABILITY
from services.router.routing.configuration import AddressConfig, AutoLinkConfig, LinkRouteConfig
from services.router.routing.connection import RouterConnection
from services.router.routing.handler import RouterHandler
from services.router.routing.links import streaming
from services.router.routing.peers import PeerRights
from tests.router.world import World


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def filled(code: int, kind: int, count: int, elements: bytes, more: bytes) -> bytes:
    """A section whose size has room for `more` behind its elements."""
    inside = bytes((count,)) + elements + more
    return b"\x00\x53" + bytes((code, kind, len(inside))) + inside


HEADER = section(0x70, [True])
HOP = section(0x71, {Symbol("hop"): 1})
ANNOTATIONS = section(0x72, {Symbol("k"): 1})
FACT = section(0x72, {Symbol("x-opt-death"): "stated"})
APPLICATION = section(0x74, {"p": [1, {"q": None}]})
SECRET = section(0x73, [None, None, "secret/door"])
WAYS = {"queue": "q", "topic": "news/one", "relay to a queue": "q", "relay to a topic": "news/one"}
PIECES = ["whole", "together", "frames", "large", "trickle"]


def faults(to: str) -> dict[str, bytes]:
    """Fronts of messages to `to` of which a reader may see something else than the router."""
    properties = section(0x73, [None, None, to])
    texts = b"\x40\x40\xa1" + bytes((len(to),)) + to.encode()
    return {
        "properties twice": properties + SECRET,
        "properties again behind others": HEADER + ANNOTATIONS + properties + APPLICATION + SECRET,
        "annotations behind properties": properties + FACT,
        "annotations behind application properties": HEADER + properties + APPLICATION + FACT,
        "annotations twice": ANNOTATIONS + FACT + properties,
        "header behind properties": properties + HEADER,
        "delivery annotations behind annotations": ANNOTATIONS + HOP + properties,
        "application properties twice": properties + APPLICATION + APPLICATION,
        "properties with another form of the descriptor": properties + b"\x00\xa3\x14amqp:properties:list" + SECRET[3:],
        "properties with more than their fields": filled(0x73, 0xC0, 3, texts, SECRET),
        "annotations with more than their entries": filled(0x72, 0xC1, 0, b"", SECRET) + properties,
        "a header with more than its fields": filled(0x70, 0xC0, 0, b"", FACT) + properties,
        "a list inside with more than its elements": properties + filled(
            0x74, 0xC1, 2, b"\xa1\x01p\xc0" + bytes((len(SECRET) + 1,)) + b"\x00" + SECRET, b""
        ),
        "a field that is larger than its list": filled(0x73, 0xC0, 4, texts + b"\xa1\x09x", b""),
        "no map as application properties": properties + section(0x74, ["p", 1]),
        "an unknown section": properties + b"\x00\x53\x6f\x45",
    }  # fmt: skip


def sound(to: str) -> bytes:
    return HEADER + HOP + ANNOTATIONS + section(0x73, ["id", b"user", to, None, None, 7]) + APPLICATION


class _Gateway(PeerCheck):
    """A peer that has proven to be a gateway, and serves what comes."""

    role = Role.GATEWAY

    def __init__(self) -> None:
        pass

    def may_serve(self, pattern: str) -> bool:
        return True


class Foreign(Handler):
    """Takes whatever comes. `engine`: what it states to be; `gateway`: proved to be one of the suite."""

    def __init__(self, world: World, engine: str | None, *, gateway: bool) -> None:
        self.got: list[bytes] = []
        self._parts = bytearray()
        record = RouterConnection(
            world.router, name=None, role="route-container", direction="out", host="127.0.0.1:1", capacity=250
        )
        if gateway:
            record.rights = PeerRights(_Gateway(), "r", 0)
        self.far = Connection(RouterHandler(world.router), container_id="r", is_client=True)
        self.far.context = record
        record.amqp = self.far
        properties = {} if engine is None else {"engine": engine}
        self.near = Connection(
            self, container_id="b", is_client=False, offered_capabilities=(CAPABILITY,), properties=properties
        )
        self.far.open()

    def on_attach(self, link: Link) -> None:
        link.accept(link.remote_source, link.remote_target)
        if isinstance(link, Receiver):
            link.on_delivery = self._take
            link.credit_window = 100

    def _take(self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, *_: Any) -> None:
        self.got.append(payload)
        if not settled:
            link.session.settle(delivery_id)

    def pump(self) -> None:
        self.near.receive(self.far.take_output())
        self.far.receive(self.near.take_output())


class Way(Handler):
    """A client whose messages a broker gets in this way."""

    def __init__(self, way: str, engine: str | None = None, *, gateway: bool = False) -> None:
        self.world = World()
        router = self.world.router
        router.add_address_config(AddressConfig(1001, "q", pattern="q", ingress_phase=0, egress_phase=1))
        router.auto_links.add(AutoLinkConfig(1002, "out", "q", "out", container_id="b"))
        router.link_routes.add(LinkRouteConfig(1003, "news", "in", prefix="news", container_id="b"))
        self.broker = Foreign(self.world, engine, gateway=gateway)
        self.pump()
        self.outcomes: list[Any] = []
        self.world.client.handler = Guard(self)
        target = Target() if way.startswith("relay") else Target(address=WAYS[way])
        self.sender: Sender = self.world.client.begin().attach_sender("s", Source(), target)
        self.pump()

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        self.outcomes += [state] * len(tokens)

    def pump(self) -> None:
        for _ in range(4):
            self.world.pump()
            self.broker.pump()
        self.world.pump()

    def send(self, front: bytes, pieces: str, *, settled: bool) -> bytes:
        """Send one message with this front; returns it."""
        body = section(0x75, b"x" * (200_000 if pieces == "large" else 500))
        message = front + body
        token = None if settled else object()
        if pieces == "whole":
            self.sender.send(message, token, settled=settled)
        elif pieces == "together":
            for _ in range(2):
                self.sender.send(message, None if settled else object(), settled=settled)
        else:
            outgoing = self.sender.begin(token, settled=settled)
            step = {"frames": 300, "large": 30_000, "trickle": 7}[pieces]
            for at in range(0, len(message), step):
                outgoing.write(message[at : at + step])
                if pieces != "frames":
                    self.pump()
            outgoing.finish()
        self.pump()
        return message


@pytest.fixture(params=PIECES)
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    found: str = request.param
    if found == "trickle":  # as if many others were collected: forwarded from the first byte
        monkeypatch.setattr(streaming, "GATHERING", 0)
    return found


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_none_reaches_the_broker_and_what_follows_does(way: str, pieces: str, settled: bool) -> None:
    there = Way(way)
    sent: list[bytes] = []
    number = 2 if pieces == "together" else 1
    conditions = ["amqp:decode-error"] + ["amqp:not-allowed"] * (pieces in ("large", "trickle"))
    for name, front in faults(WAYS[way]).items():
        there.outcomes.clear()
        there.send(front, pieces, settled=settled)
        assert there.broker.got == sent, name
        if not settled:
            assert [type(state) for state in there.outcomes] == [Rejected] * number, name
            assert there.outcomes[0].error.condition in conditions
        there.outcomes.clear()
        sent += [there.send(sound(WAYS[way]), pieces, settled=settled)] * number
        assert there.broker.got == sent, name
        if not settled:
            assert [type(state) for state in there.outcomes] == [Accepted] * number


@pytest.mark.parametrize("way", ["queue", "relay to a topic"])
def test_the_sound_messages_of_a_run_pass_in_their_order(way: str) -> None:
    there = Way(way)
    bad, body = faults(WAYS[way])["properties twice"], section(0x75, b"x" * 100)
    good = [section(0x73, [n, None, WAYS[way]]) + body for n in range(4)]
    for each in (good[0], bad + body, good[1], good[2], bad + body, good[3]):
        there.sender.send(each, object())
    there.pump()
    assert there.broker.got == good
    assert sorted(type(state).__name__ for state in there.outcomes) == ["Accepted"] * 4 + ["Rejected"] * 2


@pytest.mark.parametrize("way", WAYS)
def test_a_front_without_an_end_is_rejected(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is forwarded while it comes, 64 KiB are waited for."""
    monkeypatch.setattr(streaming, "GATHERING", 0)
    there = Way(way)
    outgoing = there.sender.begin(object())
    outgoing.write(section(0x73, [None, None, WAYS[way]]) + b"\x00\x53\x74\xd1\x00\x0f\xff\xff\x00\x00\x00\x02")
    for _ in range(5):
        assert there.outcomes == []
        outgoing.write(b"\xa1\xffx" * 5000)
        there.pump()
    assert [type(state) for state in there.outcomes] == [Rejected]
    assert "65536" in there.outcomes[0].error.description
    outgoing.abort()
    sent = there.send(sound(WAYS[way]), "whole", settled=False)
    assert there.broker.got == [sent]


@pytest.mark.parametrize("own", [{"engine": "embedded"}, {"gateway": True}], ids=["broker", "gateway"])
@pytest.mark.parametrize("way", WAYS)
def test_our_brokers_and_gateways_judge_by_themselves(way: str, own: dict[str, Any]) -> None:
    """Their reading is the router's: the router passes on what it need not look at."""
    there = Way(way, **own)
    sent = there.send(faults(WAYS[way])["properties twice"], "whole", settled=False)
    assert there.broker.got == [sent]


_PARTS = st.sampled_from([HEADER, HOP, ANNOTATIONS, SECRET, APPLICATION, section(0x75, b""), b"\x00\x53\x73\x45"])


@given(st.lists(_PARTS, max_size=6))
def test_the_order_is_that_of_the_other_reader(parts: list[bytes]) -> None:
    payload = b"".join(parts)
    try:
        Sections(payload).positions()
    except AmqpError:
        with pytest.raises(AmqpError):
            check_leading_sections(payload)
    else:
        assert check_leading_sections(payload) == (section(0x75, b"") in parts)


@given(st.integers(0, 200), st.integers(0, 255), st.integers(0, 200))
def test_what_cannot_be_read_is_an_amqp_error(at: int, value: int, cut: int) -> None:
    data = bytearray(sound("a") + section(0x75, b"x"))
    data[at % len(data)] = value
    try:
        check_leading_sections(bytes(data[: max(0, len(data) - cut)]))
    except AmqpError as error:
        assert error.condition == "amqp:decode-error"
