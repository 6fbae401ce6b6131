"""A gateway that leaves: its clients are closed a few at a time, once what they have begun has ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.mqtt import encode, reasons
from enmasse.mqtt.packets import V5, V311, Connect, Disconnect, PingReq, PingResp, PubAck, Publish, PubRec
from enmasse.network.trickle import MOST, Trickle, pace
from services.mqtt_gateway.interfaces import Ending
from services.mqtt_gateway.moving import MovingClients
from tests.kit.waiting import DEADLINE, wait_for
from tests.kit.websocket import RawWebSocket, frame
from tests.mqtt_gateway.live import Live, Raw, live


@pytest.fixture
def gateway() -> Iterator[Live]:
    with live() as found:
        yield found


def leave(gateway: Live, within: float, hurry: asyncio.Event | None = None) -> Future[None]:
    return gateway.begin(gateway.gateway.leave(within, hurry or asyncio.Event()))


def test_each_client_is_told_to_connect_again_and_none_connects_here(gateway: Live) -> None:
    five, three = Raw(gateway.ports["mqtt"]).connect("5"), Raw(gateway.ports["mqtt"], V311).connect("3")
    with RawWebSocket(gateway.ports["ws"], "Sec-WebSocket-Protocol: mqtt", path="/mqtt") as web:
        web.send(frame(encode.encode(Connect("web"), V5, of_client=True)))
        wait_for(lambda: gateway.clients == 3)
        left = leave(gateway, within=2.0)
        (last,) = five.until_closed()
        assert isinstance(last, Disconnect) and last.reason == reasons.SERVER_MOVED
        assert last.properties.reason_string == "this gateway hands clients on: connect again"
        assert three.until_closed() == []
        assert web.close_code() == 1001
        left.result(DEADLINE)
    assert sorted(gateway.inside(lambda: gateway.backend.endings)) == [
        (client, Ending.MOVED, None) for client in ("3", "5", "web")
    ]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", gateway.ports["mqtt"]))
    for each in (five, three):
        each.socket.close()


def test_it_says_how_far_it_is_and_ends_at_a_second_order(gateway: Live) -> None:
    peers = [Raw(gateway.ports["mqtt"]).connect(f"c{n}") for n in range(30)]
    hurry = gateway.inside(asyncio.Event)
    left = leave(gateway, 600.0, hurry)
    wait_for(lambda: 0 < gateway.clients < 30)
    number = gateway.inside(lambda: (gateway.gateway.leaving, len(gateway.gateway.server_state.clients)))
    assert number[0] == f"leaving, {number[1]} of 30 connections"
    gateway.inside(hurry.set)
    left.result(DEADLINE)
    assert gateway.clients > 0, "the others are closed with the gateway"
    for each in peers:
        each.socket.close()


def test_who_was_accepted_before_is_served_until_it_is_its_turn(gateway: Live) -> None:
    late = Raw(gateway.ports["mqtt"])
    gateway.inside(gateway.gateway.listeners.stop_listening)
    moving = gateway.inside(lambda: MovingClients(gateway.gateway.server_state, None, lambda: 0.0, also_later=True))
    assert gateway.inside(lambda: moving.begin(1)) == 0
    late.connect("late").send(PingReq())
    late.next(PingResp)
    assert gateway.inside(lambda: moving.begin(1)) == 1
    gateway.inside(lambda: moving.look(0.0))
    assert isinstance(late.until_closed()[-1], Disconnect)
    late.socket.close()


def test_what_has_begun_ends_and_nothing_else_begins(gateway: Live) -> None:
    peer = Raw(gateway.ports["mqtt"]).connect("c")
    gateway.backend.outcome = lambda publish: None
    peer.send(Publish("a", b"1", 1, packet_id=1), Publish("a", b"2", 2, packet_id=2))
    session = gateway.backend.sessions[0]
    wait_for(lambda: len(session.asked) == 2)
    moving = gateway.inside(lambda: MovingClients(gateway.gateway.server_state, None, lambda: 0.0, also_later=False))
    assert gateway.inside(lambda: (moving.begin(5), moving.begin(5))) == (1, 0)
    peer.send(Publish("a", b"3", 1, packet_id=3))
    gateway.inside(lambda: moving.look(0.0))
    gateway.inside(lambda: session.answer(1, 0))
    assert peer.next(PubAck).packet_id == 1
    gateway.inside(lambda: moving.look(0.1))
    gateway.inside(lambda: session.answer(2, 0))
    assert peer.next(PubRec).packet_id == 2
    assert gateway.clients == 1 and not session.asked, "the third message was not taken"
    gateway.inside(lambda: moving.look(1.0))
    assert isinstance(peer.until_closed()[-1], Disconnect)
    assert gateway.inside(lambda: (moving.number, moving.moved)) == (0, 1)
    peer.socket.close()


@given(number=st.integers(0, 100_000), times=st.lists(st.floats(0.0, 30.0), max_size=60), within=st.floats(0.0, 300.0))
def test_no_second_has_more_than_its_share(number: int, times: list[float], within: float) -> None:
    rate = pace(number, within)
    assert 1.0 <= rate <= max(MOST, number)
    trickle = Trickle(rate, 0.0)
    closed = [(now, trickle.due(now)) for now in sorted(times)]
    for start in [now for now, _ in closed]:
        assert sum(count for now, count in closed if start <= now <= start + 1.0) <= 2 * rate + 1
