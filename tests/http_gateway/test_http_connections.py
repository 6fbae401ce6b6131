"""Connections of HTTP clients, friendly and hostile: both versions, what is refused, and what a peer may cost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import pytest
from h2.settings import SettingCodes

from enmasse.network.small_reads import SmallReads
from services.http_gateway.wire import frame_budget, http_exchange, peer_connection
from services.http_gateway.wire.frame_budget import BUDGET, PREFACE, FrameBudget
from services.http_gateway.wire.http2 import STREAMS
from services.http_gateway.wire.http_exchange import (
    BodyTooLarge,
    BodyTooSlow,
    ClientGone,
    HttpExchange,
    IncomingBody,
    PeerFacts,
    UnsafeHeader,
)
from services.http_gateway.wire.peer_connection import PeerConnection
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until

MOST = 1 << 20


class State:
    def __init__(self, facts: PeerFacts) -> None:
        self.facts = facts

    def leave(self) -> None:
        """As ConnectionState."""

    def closed(self) -> None:
        """As ConnectionState."""


class Echo:
    """Answers each request with its body; counts what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.connections: set[PeerConnection] = set()
        self.seen: list[str] = []
        self.gone = 0
        self.most = MOST
        self.headers: list[tuple[str, str]] = []
        self.noted: list[str] = []
        self.working = 0
        self.unread = asyncio.Event()
        """While it is clear, no body is read."""
        self.unread.set()
        self.login: bool | None = None
        """Requests log in, or fail to; None: neither."""

    def note(self, peer: str, space: str | None, reason: str) -> None:
        self.noted.append(reason)

    async def serve(self, exchange: HttpExchange) -> None:
        self.seen.append(f"{exchange.head.method} {exchange.head.target}")
        self.working += 1
        try:
            if self.login is not None:
                await asyncio.sleep(0)
                if not self.login:
                    await exchange.answer(401, [])
                    return
                exchange.trust()
            await self.unread.wait()
            try:
                body = await exchange.body(self.most)
            except BodyTooLarge:
                await exchange.answer(413, [])
                return
            except BodyTooSlow:
                await exchange.answer(408, [])
                return
            try:
                await exchange.answer(200, self.headers, body)
            except UnsafeHeader:
                await exchange.answer(500, [])
        except ClientGone:
            self.gone += 1
        finally:
            self.working -= 1

    def make(self) -> SmallReads:
        connection = PeerConnection(
            self.serve, State, self.connections.discard, lambda: None, len(self.connections), None, self.note
        )
        self.connections.add(connection)
        return SmallReads(connection)


@asynccontextmanager
async def echo() -> AsyncIterator[Echo]:
    found = Echo()
    server = await asyncio.get_running_loop().create_server(found.make, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    for connection in list(found.connections):
        connection.abort()
    await server.wait_closed()


def inside(test: Callable[[Echo], Awaitable[None]]) -> None:
    @asyncio_test
    async def run() -> None:
        async with echo() as found:
            await test(found)

    run()


def test_a_peer_that_speaks_another_protocol_is_answered_at_once_and_noted() -> None:
    async def test(found: Echo) -> None:
        for data in (b"\x16\x03\x01\x02\0\1", b"AMQP\3\1\0\0", b"\x10\x10\0\4MQTT"):
            assert (await raw(found, data)).startswith(b"HTTP/1.1 400 ")
        assert len(found.noted) == 3
        for name, reason in zip(("TLS", "AMQP", "MQTT"), found.noted, strict=True):
            assert name in reason
        assert not found.seen

    inside(test)


async def raw(found: Echo, data: bytes) -> bytes:
    """Return all that the gateway answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", found.port)
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nabcd", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\nx: b\r\n folded: c\r\ncontent-length: 0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\nhost: a\ncontent-length: 0\n\n" + b"\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\nx: b\rc\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\nx: b\0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +4\r\n\r\nabcd", 400),
        (b"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET http://b/ HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET http://a:1/ HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET http://b?http://a/ HTTP/1.1\r\nhost: b?http:\r\n\r\n", 400),
        (b"GET no-path HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\nhost: a\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nhost: a\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(200)) + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * (20 << 10), 431),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
    ],
)
def test_a_head_that_others_may_read_differently_is_refused_and_ends_the_connection(head: bytes, status: int) -> None:
    async def test(found: Echo) -> None:
        answer = await raw(found, head + SMUGGLED)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert answer.count(b"\r\n\r\n") == 1
        assert found.seen == []

    inside(test)


CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("chunks", [b"4\r\nabcdefg", b"x\r\n", b"-1\r\n", b"4\nabcd\r\n0\r\n\r\n", b"1" * 40 + b"\r\n"])
def test_chunks_that_are_none_are_refused_and_end_the_connection(chunks: bytes) -> None:
    async def test(found: Echo) -> None:
        answer = await raw(found, CHUNKED + chunks + SMUGGLED)
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert answer.count(b"HTTP/1.1") == 1
        assert found.seen == ["POST /"]
        assert found.gone == 1

    inside(test)


def test_a_request_is_answered_whose_chunks_nobody_reads() -> None:
    async def test(found: Echo) -> None:
        found.most = -1
        answer = await raw(found, CHUNKED + b"x\r\n" + SMUGGLED)
        assert answer.startswith(b"HTTP/1.1 413 "), answer
        assert b"connection: close" in answer
        assert answer.count(b"HTTP/1.1") == 1

    inside(test)


BREAKING = ("a\r\nx: b", "a\nb", "a\rb", "a\0b", " a", "a ", "gr\xfcn", "\u20ac", "\x7f")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("header", [*(("x", value) for value in BREAKING), ("x\r\ny", "a"), ("x: y", "a"), ("", "a")])
def test_no_answer_has_a_header_that_begins_another_one(version: int, header: tuple[str, str]) -> None:
    """Values that a message brings have the percent form before; this is the last guard, for both versions."""

    async def test(found: Echo) -> None:
        found.headers = [header]
        if version == 1:
            answer = await raw(found, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 500 ")
            return
        async with client2(found) as client:
            client.request(1)
            await until(lambda: client.of(h2.events.ResponseReceived))
            (response,) = client.of(h2.events.ResponseReceived)
            assert dict(response.headers)[b":status"] == b"500"

    inside(test)


def test_the_target_of_a_request_may_have_the_host() -> None:
    async def test(found: Echo) -> None:
        answer = await raw(found, b"GET http://A:80/b?c HTTP/1.1\r\nhost: a:80\r\nconnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert found.seen == ["GET /b?c"]

    inside(test)


def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def test(found: Echo) -> None:
        posts = [b"POST /%d HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n%d" % (n, n) for n in range(5)]
        chunked = b"POST /5 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\n5\r\n0\r\n\r\n"
        last = b"GET /6 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        answer = await raw(found, b"".join(posts) + chunked + last)
        bodies = [part[:1] for part in answer.split(b"\r\n\r\n")[1:]]
        assert bodies == [b"0", b"1", b"2", b"3", b"4", b"5", b""]
        assert found.seen == [*(f"POST /{n}" for n in range(6)), "GET /6"]
        assert answer.count(b"HTTP/1.1 200 OK\r\n") == 7

    inside(test)


def test_a_body_is_not_read_before_it_is_asked_for() -> None:
    """A peer that has not logged in costs a bounded number of bytes, however much it sends."""

    async def test(found: Echo) -> None:
        found.unread.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", found.port)
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (64 << 20))
        await until(lambda: found.working == 1)
        writer.write(bytes(64 << 20))
        (connection,) = found.connections
        await until(lambda: connection._paused, "the gateway reads no further")
        http: Any = connection._http
        assert len(http._buffer) <= 64 << 10
        found.unread.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        writer.close()

    inside(test)


@pytest.mark.parametrize("fault", [BodyTooLarge, BodyTooSlow, ClientGone])
def test_a_body_that_is_not_taken_is_forgotten(fault: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange, "BODY_SECONDS", 0.01)

    @asyncio_test
    async def test() -> None:
        body = IncomingBody(None, asyncio.get_running_loop())

        def more() -> None:
            if not body._pieces:
                body.add(bytes(8))
            if fault is ClientGone:
                body.end(whole=False)

        with pytest.raises(fault):
            await body.read(0 if fault is BodyTooLarge else MOST, more)
        assert not body._pieces

    test()


@pytest.mark.parametrize("asked", [True, False])
def test_a_connection_that_ends_early_is_freed_at_once(asked: bool) -> None:
    """Not when the garbage collector runs, which is rarely."""

    async def test(found: Echo) -> None:
        if not asked:
            found.unread.clear()
        gc.disable()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", found.port)
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n" + bytes(10_000))
            await until(lambda: found.working == 1)
            left = weakref.ref(next(iter(found.connections)))
            writer.transport.abort()
            found.unread.set()
            await until(lambda: found.gone == 1)
            await until(lambda: left() is None, "nothing refers to it")
        finally:
            gc.enable()

    inside(test)


def test_what_is_slow_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_connection, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(peer_connection, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(http_exchange, "BODY_SECONDS", 0.2)

    async def test(found: Echo) -> None:
        assert (await raw(found, b"")).startswith(b"HTTP/1.1 408")
        assert (await raw(found, b"GET / HT")).startswith(b"HTTP/1.1 408")
        assert (await raw(found, b"PRI * HT")).startswith(b"HTTP/1.1 408")
        slow = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc"
        assert (await raw(found, slow)).startswith(b"HTTP/1.1 408")
        answer = await raw(found, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")  # then it is idle
        assert answer.startswith(b"HTTP/1.1 200")

    inside(test)


# HTTP/2


class Client2:
    """A client of HTTP/2 that does what a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False))
        self.h2.initiate_connection()
        self.events: list[Any] = []
        self.closed = False
        self.task = asyncio.create_task(self._read())

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def request(self, stream: int, method: str = "GET", *, end: bool = True, path: str = "/") -> None:
        self.h2.send_headers(
            stream, [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a")], end_stream=end
        )
        self.flush()

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self.reader.read(1 << 16):
                with contextlib.suppress(h2.exceptions.ProtocolError):
                    self.events += self.h2.receive_data(data)
                    self.flush()
        self.closed = True

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def client2(found: Echo, *, informed: bool = True) -> AsyncIterator[Client2]:
    """`informed`: it has read the settings of the gateway."""
    reader, writer = await asyncio.open_connection("127.0.0.1", found.port)
    client = Client2(reader, writer)
    client.flush()
    if informed:
        await until(lambda: client.of(h2.events.RemoteSettingsChanged))
    yield client
    client.task.cancel()
    writer.close()


def test_http_2_of_curl_and_of_a_client_with_many_requests() -> None:
    async def test(found: Echo) -> None:
        url = f"http://127.0.0.1:{found.port}/a"
        command = ["curl", "-s", "--http2-prior-knowledge", "--data-binary", "@-", url]
        body = bytes(range(256)) * 2000
        got = await asyncio.to_thread(subprocess.run, command, input=body, capture_output=True, check=True)
        assert got.stdout == body
        async with client2(found) as client:
            for stream in (1, 3, 5):
                client.request(stream)
            await until(lambda: len(client.of(h2.events.StreamEnded)) == 3)

    inside(test)


def test_a_client_that_has_not_logged_in_has_few_requests_that_share_a_window() -> None:
    async def test(found: Echo) -> None:
        found.unread.clear()
        async with client2(found) as client:
            most = client.h2.remote_settings.max_concurrent_streams
            assert most == STREAMS
            for stream in range(1, 2 * most, 2):
                client.request(stream, "POST", end=False)
            while client.h2.local_flow_control_window(1):  # that of the connection too
                size = min(16384, client.h2.local_flow_control_window(1))
                client.h2.send_data(1, bytes(size))
                client.flush()
            await until(lambda: found.working == most)
            (connection,) = found.connections
            http: Any = connection._http
            await until(lambda: sum(each._body._size for each in http.exchanges.values()) == 65535)
            assert client.h2.local_flow_control_window(3) == 0
            client.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 100
            client.h2.remote_settings.acknowledge()
            client.request(2 * most + 1, "POST", end=False)
            await until(lambda: client.of(h2.events.StreamReset), "one more than it may have is refused")
            (reset,) = client.of(h2.events.StreamReset)
            assert reset.error_code == h2.errors.ErrorCodes.REFUSED_STREAM and not client.closed
            assert len(found.seen) == most

    inside(test)


@pytest.mark.parametrize("login", [True, False])
def test_requests_that_a_client_sends_before_it_knows_how_many_it_may_send_wait(login: bool) -> None:
    """As h2load and Go send them; the bodies come behind the heads of all of them."""

    async def test(found: Echo) -> None:
        found.login = login
        streams = range(1, 10 * STREAMS, 2)
        async with client2(found, informed=False) as client:
            for stream in streams:
                client.request(stream, "POST", end=False)
            for stream in streams:
                client.h2.send_data(stream, f"body {stream}".encode(), end_stream=True)
            client.flush()
            await until(lambda: len(client.of(h2.events.ResponseReceived)) == len(streams))
            if login:
                await until(lambda: len(client.of(h2.events.StreamEnded)) == len(streams))
            got = {event.stream_id: event.data for event in client.of(h2.events.DataReceived)}
            assert got == ({stream: f"body {stream}".encode() for stream in streams} if login else {})
            assert not client.closed

    inside(test)


@pytest.mark.parametrize("step", [1, 8, 9, 10, 100])
def test_frames_are_counted_up_to_the_head_of_the_stream_that_is_too_many(step: int) -> None:
    before = PREFACE + _frame(4, 0, 0) + _frame(1, 4, 1, b"head") + _frame(0, 0, 1, b"data")
    after = _frame(1, 5, 1, b"trailer") + _frame(1, 4, 3, b"head") + _frame(0, 1, 3)
    budget, counted = FrameBudget(), 0
    assert budget.feed(before, 0.0, 1) == len(before)
    for end in range(step, len(after) + step, step):
        counted += budget.feed(after[counted:end], 0.0, 0)
    assert 16 <= counted < 16 + 9
    assert budget.feed(after[counted:], 0.0) == len(after) - counted


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


FLOODS = {
    "resets": lambda: b"".join(
        _frame(1, 5, stream, b"\x82\x86\x84\x41\x01a") + _frame(3, 0, stream, b"\0\0\0\x08")
        for stream in range(1, 4 * BUDGET, 2)
    ),
    "pings": lambda: _frame(6, 0, 0, b"12345678") * (2 * BUDGET),
    "settings": lambda: _frame(4, 0, 0) * (2 * BUDGET),
    "empty data": lambda: _frame(1, 4, 1, b"\x83\x86\x84\x41\x01a") + _frame(0, 0, 1) * (2 * BUDGET),
    "continuations": lambda: _frame(1, 0, 1, b"\x82\x86\x84\x41\x01a") + _frame(9, 0, 1, b"") * (2 * BUDGET),
    "a long header block": lambda: (
        _frame(1, 0, 1, b"\x82\x86\x84\x41\x01a") + _frame(9, 0, 1, b"\x00\x01a\x01b" * 3000) * 10
    ),
    "a header that grows when it is unpacked": lambda: _frame(
        1, 5, 1, b"\x82\x86\x84\x41\x01a" + b"\x40\x01a\x7f\x81\x1f" + b"b" * 4096 + b"\xbe" * 8000
    ),
    "a priority for each number": lambda: b"".join(
        _frame(2, 0, stream, b"\0\0\0\0\x10") for stream in range(1, 4 * BUDGET, 2)
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_what_is_cheap_ends_the_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_budget, "REFILL", 0.0)  # so that it does not matter how long it takes

    async def test(found: Echo) -> None:
        settings = _frame(4, 0, 0)
        async with asyncio.timeout(DEADLINE):
            answer = await raw(found, PREFACE + settings + FLOODS[name]())
        assert b"\x07\x00" in answer, "GOAWAY"
        await until(lambda: not found.working)
        assert len(found.seen) <= BUDGET + 1
        async with client2(found) as other:
            other.request(1)
            await until(lambda: other.of(h2.events.StreamEnded), "other clients are served")

    inside(test)


def test_a_client_that_opens_no_window_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(found: Echo) -> None:
        async with client2(found) as client:
            client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
            client.flush()
            await until(lambda: client.of(h2.events.SettingsAcknowledged))
            client.request(1, "POST", end=False)
            client.h2.send_data(1, b"x" * 1000, end_stream=True)
            client.flush()
            await until(lambda: client.of(h2.events.ResponseReceived))
            client.request(3)
            await until(lambda: [each.stream_id for each in client.of(h2.events.StreamEnded)] == [3])
            assert not client.of(h2.events.DataReceived)
            client.h2.increment_flow_control_window(1000, 1)
            client.flush()
            await until(lambda: [each.stream_id for each in client.of(h2.events.StreamEnded)] == [3, 1])

    inside(test)
