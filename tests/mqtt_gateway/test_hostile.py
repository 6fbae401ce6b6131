"""Bad input on real sockets: what costs the gateway little and harms nobody else."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator

import pytest

from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
)
from enmasse.testing import wait_for
from services.mqtt_gateway.interfaces import Ending
from tests.kit.waiting import DEADLINE
from tests.mqtt_gateway.live import Live, Raw, live

LIMITS = Limits(
    connect_seconds=2,
    packet_seconds=2,
    stall_seconds=2,
    max_packet=64 * 1024,
    subscriptions=50,
    connections=300,
    window=100,
)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Live]:
    with live(LIMITS) as found:
        yield found


@pytest.fixture
def witness(gateway: Live) -> Iterator[Raw]:
    """Somebody else, who is served before and after, and is not disconnected."""
    with Raw(gateway.ports["mqtt"]).connect("witness") as client:
        client.send(Subscribe(1, (Subscription("witness/#", 1),)))
        client.next(SubAck)
        yield client
        client.send(Publish("witness/x", b"still here", 1, packet_id=9))
        packets = [client.next(object), client.next(object)]
        assert {type(each) for each in packets} == {Publish, PubAck}


@pytest.mark.parametrize("kind", ["mqtt", "ws"])
def test_those_who_connect_and_say_nothing_are_gone_in_time(gateway: Live, witness: Raw, kind: str) -> None:
    silent = [socket.create_connection(("127.0.0.1", gateway.ports[kind])) for _ in range(200)]
    for number, each in enumerate(silent):
        each.settimeout(DEADLINE)
        if number % 2:
            each.sendall(b"\x10" if kind == "mqtt" else b"GET /mq")
    with Raw(gateway.ports["mqtt"]).connect("punctual"):
        for each in silent:
            with contextlib.suppress(ConnectionError):
                assert each.recv(100) == b""
            each.close()


@pytest.mark.parametrize(
    "rubbish",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 100, b"\xff" * 100, b"AMQP\0\1\0\0", b"\x16\3\1\2\0\1\0\1\xfc\3\3"],
)
def test_what_is_no_mqtt_is_closed_without_an_answer(gateway: Live, witness: Raw, rubbish: bytes) -> None:
    with Raw(gateway.ports["mqtt"]) as peer:
        peer.socket.sendall(rubbish)
        assert peer.until_closed() == []


@pytest.mark.parametrize(
    "rubbish",
    [b"\xff" * 100, b"GET " + b"/" * 5000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 100 + b"\r\n"],
)
def test_what_is_no_http_does_not_fill_the_log(
    gateway: Live, witness: Raw, rubbish: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Raw(gateway.ports["ws"]) as peer:
        peer.socket.sendall(rubbish)
        assert peer.socket.recv(12) == b"HTTP/1.0 400"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("version", [V311, V5])
def test_a_packet_that_dribbles_is_not_waited_for(gateway: Live, witness: Raw, version: int) -> None:
    with Raw(gateway.ports["mqtt"], version).connect("slow") as peer:
        peer.socket.sendall(b"\x30\x7f\0\1a")
        packets = peer.until_closed()
    assert packets == [] if version == V311 else isinstance(packets[-1], Disconnect)


@pytest.mark.parametrize("version", [V311, V5])
def test_an_oversized_packet_is_refused_on_its_header(gateway: Live, witness: Raw, version: int) -> None:
    with Raw(gateway.ports["mqtt"], version).connect("large") as peer:
        peer.socket.sendall(b"\x30\xff\xff\xff\x7f")
        packets = peer.until_closed()
    if version == V5:
        assert isinstance(packets[-1], Disconnect)
        assert packets[-1].reason == reasons.PACKET_TOO_LARGE
    else:
        assert packets == []


def test_a_client_that_goes_on_sending_reads_why_it_was_disconnected(gateway: Live, witness: Raw) -> None:
    """Without a reset, which would take the DISCONNECT away."""
    with Raw(gateway.ports["mqtt"], V5).connect("goes-on") as peer:
        peer.socket.sendall(b"\x30\xff\xff\xff\x7f" + b"x" * 200_000)
        packets = peer.until_closed()
    assert isinstance(packets[-1], Disconnect)
    assert packets[-1].reason == reasons.PACKET_TOO_LARGE


def test_a_subscriber_that_never_reads_is_disconnected_and_the_others_get_everything(gateway: Live) -> None:
    with (
        Raw(gateway.ports["mqtt"], buffer=4096).connect("sloth") as sloth,
        Raw(gateway.ports["mqtt"]).connect("hare") as hare,
        Raw(gateway.ports["mqtt"]).connect("source") as source,
    ):
        for each in (sloth, hare):
            each.send(Subscribe(1, (Subscription("flood", 0),)))
            each.next(SubAck)
        for number in range(500):
            source.send(Publish("flood", b"%d " % number + b"x" * 30_000, 1, packet_id=1 + number))
            assert source.next(PubAck).packet_id == 1 + number
            assert hare.next(Publish).payload.startswith(b"%d " % number)
        # what it does not take is not kept for it: 15 MB were sent, its window is 100 messages
        session = gateway.inside(lambda: gateway.backend.live.get("sloth"))
        assert session is None or gateway.inside(lambda: len(session.unsettled)) <= LIMITS.window
        wait_for(
            "the end of the sloth",
            lambda: gateway.inside(lambda: ("sloth", Ending.LOST, None) in gateway.backend.endings),
        )
        hare.send(PingReq())
        hare.next(PingResp)


def test_a_client_that_sends_and_never_reads_is_disconnected(gateway: Live, witness: Raw) -> None:
    with Raw(gateway.ports["mqtt"], V311, buffer=4096).connect("shouter") as shouter:
        shouter.socket.setblocking(False)
        request = b"\xc0\0" * 500_000

        def gone() -> bool:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                shouter.socket.send(request)
            return gateway.inside(lambda: ("shouter", Ending.LOST, None) in gateway.backend.endings)

        wait_for("its end", gone)


def test_thousands_of_subscriptions(gateway: Live, witness: Raw) -> None:
    with Raw(gateway.ports["mqtt"]).connect("greedy") as greedy:
        granted = 0
        for start in range(0, 3000, 1000):
            filters = tuple(Subscription(f"greedy/{number}/+/#", 1) for number in range(start, start + 1000))
            greedy.send(Subscribe(1 + start, filters))
            codes = greedy.next(SubAck).codes
            assert set(codes) <= {1, reasons.QUOTA_EXCEEDED}
            granted += codes.count(1)
        assert granted == LIMITS.subscriptions


@pytest.mark.parametrize("version", [V311, V5])
def test_a_storm_of_one_client_identifier_leaves_one(gateway: Live, witness: Raw, version: int) -> None:
    before = gateway.clients
    many = [Raw(gateway.ports["mqtt"], version) for _ in range(150)]
    for each in many:
        each.send(Connect("storm", version=version))
    wait_for("one that is left", lambda: gateway.clients == before + 1)
    assert gateway.inside(lambda: "storm" in gateway.backend.live)
    ended = 0
    for each in many:
        each.socket.settimeout(0.2)
        try:
            packets = each.until_closed()
        except TimeoutError:
            survivor = each
            continue
        ended += 1
        if version == V5 and len(packets) == 2:
            assert isinstance(packets[1], Disconnect)
            assert packets[1].reason == reasons.SESSION_TAKEN_OVER
    assert ended == len(many) - 1
    survivor.socket.settimeout(DEADLINE)
    survivor.send(PingReq())
    for each in many:
        each.socket.close()


def test_more_connections_than_the_limit_are_refused_with_a_reason(gateway: Live, witness: Raw) -> None:
    wait_for("a quiet gateway", lambda: gateway.clients == 1)
    many = [Raw(gateway.ports["mqtt"]).connect(f"m{number}") for number in range(LIMITS.connections - 1)]
    with Raw(gateway.ports["mqtt"]) as late:
        late.send(Connect("late"))
        assert late.next(ConnAck).reason == reasons.QUOTA_EXCEEDED
        assert late.until_closed() == []
    for each in many:
        each.socket.close()
    wait_for("room", lambda: gateway.clients == 1)
    with Raw(gateway.ports["mqtt"]).connect("late"):
        pass


def test_a_flood_of_small_packets_leaves_the_others_their_turns(gateway: Live, witness: Raw) -> None:
    with Raw(gateway.ports["mqtt"]).connect("flooder") as flooder:
        flooder.socket.sendall(b"\x30\5\0\1f\0x" * 200_000)
        for _ in range(20):
            witness.send(PingReq())
            witness.next(PingResp)
        flooder.send(PingReq())
        flooder.next(PingResp)


def test_a_flood_of_topics_costs_no_memory_that_stays(gateway: Live, witness: Raw) -> None:
    with Raw(gateway.ports["mqtt"]).connect("topics") as peer:
        for start in range(0, 20_000, 1000):
            peer.send(*(Publish(f"flood/of/topics/{number}", b"") for number in range(start, start + 1000)))
        peer.send(PingReq())
        peer.next(PingResp)
    from enmasse.mqtt import fields
    from services.mqtt_gateway.protocol import outbound

    assert len(fields.topics) <= 4096
    assert len(outbound._TOPICS) <= 4096


def test_the_end_of_the_gateway_is_said_to_clients_of_5_and_keeps_the_wills() -> None:
    with live() as gateway:
        five, three = Raw(gateway.ports["mqtt"]).connect("5"), Raw(gateway.ports["mqtt"], V311).connect("3")
        gateway.end()
        packets = five.until_closed()
        assert isinstance(packets[-1], Disconnect)
        assert packets[-1].reason == reasons.SERVER_SHUTTING_DOWN
        assert three.until_closed() == []
        endings = gateway.inside(lambda: sorted(gateway.backend.endings))
        assert endings == [("3", Ending.STOPPED, None), ("5", Ending.STOPPED, None)]
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", gateway.ports["mqtt"]))
        for each in (five, three):
            each.socket.close()
