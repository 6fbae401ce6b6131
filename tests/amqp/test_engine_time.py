"""Silence, heartbeats and deadlines, with a clock that is a number."""

from __future__ import annotations

from typing import Any

from enmasse.amqp.codec.performatives import Close, Open
from enmasse.amqp.connection import Connection
from enmasse.amqp.limits import Limits
from tests.amqp.engine_kit import AMQP, Pair, Recorder, condition_of, frame, frames


def sent_by_server(pair: Pair, kind: type) -> list[Any]:
    return [p for _, p, _ in frames(pair.to_client) if type(p) is kind]


def sent_by_client(pair: Pair, kind: type) -> list[Any]:
    return [p for _, p, _ in frames(pair.to_server) if type(p) is kind]


def test_silent_peer_is_closed() -> None:
    pair = Pair(server_fields={"idle_timeout_ms": 1000})
    assert pair.c.remote_open is not None and pair.c.remote_open.idle_time_out == 500
    assert pair.s.tick(10_000) == 10_250
    assert pair.s.tick(10_250) == 11_000
    assert pair.s.tick(10_900) == 11_000
    assert pair.s.tick(11_000) is None
    (close,) = [p for _, p, _ in frames(pair.s.take_output()) if type(p) is Close]
    assert condition_of(close) == "amqp:resource-limit-exceeded"
    assert close.error is not None and close.error.description == "local-idle-timeout expired"
    assert pair.s.finished, "the socket does not wait for an answer"
    assert pair.server.events[-1] == ("close", "amqp:resource-limit-exceeded")


def test_silence_right_after_a_tick_is_noticed_a_quarter_late_at_most() -> None:
    pair = Pair(server_fields={"idle_timeout_ms": 1000})
    now = pair.s.tick(10_000)
    pair.s.receive(bytes.fromhex("0000000802000000"))  # a heartbeat at 10,000, and no more
    while pair.s.state == "open":
        assert now is not None and now <= 11_250
        due, now = now, pair.s.tick(now)
    assert 11_000 <= due <= 11_250


def test_heartbeats_keep_a_connection() -> None:
    pair = Pair(server_fields={"idle_timeout_ms": 1000}, client_fields={"idle_timeout_ms": 0})
    for now in range(0, 10_000, 125):
        assert pair.s.tick(now) is not None
        due = pair.c.tick(now)
        assert due is not None and due <= now + 250
        pair.run()
    assert pair.c.state == pair.s.state == "open"
    beats = [p for _, p, _ in frames(pair.to_server) if p is None]
    assert 30 <= len(beats) <= 45


def test_a_client_that_has_nothing_to_send_asks_for_the_deadlines_of_an_open_connection() -> None:
    client = Connection(Recorder(), container_id="c", is_client=True)
    client.open()
    client.take_output()
    woken: list[bool] = []
    client.output.on_dirty = lambda: woken.append(True)
    client.receive(AMQP + frame(0, Open(container_id="s", idle_time_out=500)))
    assert client.state == "open" and woken


def test_something_is_sent_as_often_as_the_skin_wants() -> None:
    """Whatever silence the peer allows."""
    pair = Pair(client_fields={"idle_timeout_ms": 0}, server_fields={"idle_timeout_ms": 60_000})
    for now in range(0, 10_000, 125):
        pair.c.tick(now, 500)
        pair.run()
    assert 18 <= len([p for _, p, _ in frames(pair.to_server) if p is None]) <= 21


def test_no_ticks_where_none_are_needed() -> None:
    pair = Pair(client_fields={"idle_timeout_ms": 0}, server_fields={"idle_timeout_ms": 0})
    assert pair.c.tick(0) is None


def test_handshake_has_a_limit() -> None:
    handler = Recorder()
    connection = Connection(handler, container_id="s", is_client=False, limits=Limits(handshake_timeout_ms=100))
    assert connection.tick(1000) == 1100
    connection.receive(b"AMQP")
    assert connection.tick(1099) == 1100
    assert connection.tick(1100) is None
    assert connection.finished and handler.events == [("close", "amqp:resource-limit-exceeded")]


def test_close_that_is_never_answered() -> None:
    pair = Pair()
    pair.c.close()
    assert pair.c.tick(0) == pair.c.limits.close_timeout_ms
    assert pair.c.tick(pair.c.limits.close_timeout_ms) is None
    assert pair.c.finished and pair.client.events[-1] == ("close", None)


def test_a_late_tick_judges_nobody_before_what_has_come_is_read() -> None:
    """The process was stopped until after the deadline; what the peer owes of us is sent at once."""
    pair = Pair(server_fields={"idle_timeout_ms": 1000}, client_fields={"idle_timeout_ms": 1000})
    pair.s.tick(10_000)
    assert pair.s.tick(10_250) == 10_500, "the next heartbeat is due"
    pair.s.take_output()
    again = pair.s.tick(20_000)
    assert [p for _, p, _ in frames(pair.s.take_output())] == [None]
    assert again is not None and pair.s.state == "open"
    pair.s.receive(bytes.fromhex("0000000802000000"))
    pair.s.tick(again)
    pair.s.tick(again + 1000)
    assert pair.s.state == "closed", "it was silent for the whole time-out after that"


def test_a_peer_that_stays_silent_after_a_late_tick_is_closed() -> None:
    """However many ticks there are meanwhile."""
    pair = Pair(server_fields={"idle_timeout_ms": 1000})
    pair.s.tick(10_000)
    pair.s.tick(10_250)
    due = pair.s.tick(20_000)
    assert due is not None and due > 20_000
    assert pair.s.tick(due - 1) == due and pair.s.state == "open"
    pair.s.tick(due)
    assert pair.s.state == "closed"


def test_a_late_tick_ends_no_handshake() -> None:
    connection = Connection(Recorder(), container_id="s", is_client=False, limits=Limits(handshake_timeout_ms=100))
    connection.tick(1000)
    due = connection.tick(5000)
    assert due is not None and not connection.finished
    assert connection.tick(due) is None
    assert connection.finished
