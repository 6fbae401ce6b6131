"""The control plane's connections against Proton's own clients and servers, and against peers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import proton
import pytest
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, LinkDetached, SendException

from enmasse.control import (
    ConnectionLost,
    ControlConnection,
    ControlError,
    ControlLink,
    ControlReceiver,
    ControlSender,
    LinkClosed,
    Listener,
    connect,
    keep_connected,
    listen,
)
from enmasse.control import connection as connection_module
from enmasse.control.jsonmessage import encode
from enmasse.testing import free_port
from tests.kit.logs import logged
from tests.kit.running import asyncio_test, uvloop_test
from tests.kit.waiting import DEADLINE, until

HEADER = b"AMQP\x00\x01\x00\x00"
Attach = Callable[[ControlLink], None]


@asynccontextmanager
async def serving(
    on_attach: Attach | None = None,
    *,
    port: int = 0,
    accept: Callable[[ControlConnection], None] = lambda connection: None,
    **options: Any,
) -> AsyncIterator[Listener]:
    def accepted(connection: ControlConnection) -> None:
        connection.on_attach = on_attach
        accept(connection)

    listener = await listen("127.0.0.1", port, accepted, container="server", **options)
    try:
        yield listener
    finally:
        await listener.close()


def collect(into: list[Any], window: int = 10) -> Attach:
    """Accepts receivers and accepts what they get."""

    def attach(link: ControlLink) -> None:
        link.accept()
        if isinstance(link, ControlReceiver):

            def take(delivery: Any) -> None:
                into.append(delivery.message.body)
                delivery.accept()

            link.window = window
            link.on_message = take
            link.grant(window)

    return attach


@asyncio_test
async def test_a_proton_client_sends_and_is_told_outcomes() -> None:
    got: list[Any] = []

    def attach(link: ControlLink) -> None:
        collect(got)(link)
        if isinstance(link, ControlReceiver) and link.remote_target == "rejects":
            link.on_message = lambda delivery: delivery.reject("amqp:not-allowed", "not today")

    def client(port: int) -> None:
        connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE)
        sender = connection.create_sender("accepts")
        for number in range(50):  # more than the window
            sender.send(proton.Message(body=number))
        with pytest.raises(SendException):
            connection.create_sender("rejects", name="second").send(proton.Message(body="no"))
        connection.close()

    async with serving(attach) as listener:
        await asyncio.to_thread(client, listener.port)
    assert got == list(range(50))


@asyncio_test
async def test_a_proton_client_receives_on_credit_only() -> None:
    senders: list[ControlSender] = []

    def attach(link: ControlLink) -> None:
        link.accept()
        assert isinstance(link, ControlSender)
        senders.append(link)

    def client(port: int) -> list[Any]:
        connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE)
        receiver = connection.create_receiver("feed", credit=2)
        bodies = []
        for _ in range(4):
            bodies.append(receiver.receive(timeout=DEADLINE).body)
            receiver.accept()
        connection.close()
        return bodies

    async with serving(attach) as listener:
        running = asyncio.ensure_future(asyncio.to_thread(client, listener.port))
        await until(lambda: senders)
        outcomes = [await senders[0].deliver(encode("subject", str(number).encode())) for number in range(4)]
        assert await running == ["0", "1", "2", "3"]
    assert all(outcome.accepted for outcome in outcomes)


@asyncio_test
async def test_a_refused_link_says_why() -> None:
    def client(port: int) -> str:
        connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE)
        with pytest.raises(LinkDetached) as refused:
            connection.create_receiver("nowhere")
        connection.create_sender("here")  # the connection is still good
        connection.close()
        return str(refused.value)

    def attach(link: ControlLink) -> None:
        if link.is_sender:
            link.refuse("amqp:not-found", "no such feed")
        else:
            link.accept()

    async with serving(attach) as listener:
        assert "no such feed" in await asyncio.to_thread(client, listener.port)
        connection = await connect("127.0.0.1", listener.port, container="me")
        with pytest.raises(LinkClosed) as refused:
            await connection.receiver("nowhere").opened()
        assert (refused.value.condition, refused.value.description) == ("amqp:not-found", "no such feed")
        await connection.sender("here").opened()
        connection.close()


@asyncio_test
async def test_several_megabytes_in_both_directions() -> None:
    text = "x" * 5_000_000
    got: list[Any] = []

    def attach(link: ControlLink) -> None:
        collect(got)(link)
        if isinstance(link, ControlSender):
            link.on_credit = lambda: link.send(encode("big", text.encode())) if not link.unsettled else None

    async with serving(attach) as listener:
        connection = await connect("127.0.0.1", listener.port, container="me")
        sender = connection.sender("in")
        outcome = await sender.deliver(proton.Message(body=text))
        receiver = connection.receiver("out", window=1)
        delivery = await anext(aiter(receiver))
        assert (delivery.message.subject, delivery.message.body) == ("big", text)
        delivery.accept()
        connection.close()
    assert outcome.accepted and got == [text]


@uvloop_test
async def test_the_same_on_uvloop() -> None:
    got: list[Any] = []
    async with serving(collect(got), max_connections=1) as listener:
        connection = await connect("127.0.0.1", listener.port, container="me")
        assert (await connection.sender("in").deliver(proton.Message(body="x" * 5_000_000))).accepted
        with pytest.raises(ConnectionLost):
            await connect("127.0.0.1", listener.port, container="too many")
        connection.close()
    assert [len(body) for body in got] == [5_000_000]


@asyncio_test
async def test_a_message_over_the_limit_detaches_the_link() -> None:
    async with serving(collect([]), max_message_size=100_000) as listener:
        connection = await connect("127.0.0.1", listener.port, container="me")
        sender = connection.sender("in")
        with pytest.raises(LinkClosed, match="message-size-exceeded"):
            await sender.deliver(proton.Message(body="x" * 500_000))
        assert (await connection.sender("in").deliver(proton.Message(body="small"))).accepted
        connection.close()


@asyncio_test
async def test_an_aborted_message_is_forgotten() -> None:
    got: list[Any] = []
    async with serving(collect(got)) as listener:
        connection = await connect("127.0.0.1", listener.port, container="me")
        sender = connection.sender("in")
        await sender.has_credit()
        half = sender.proton_link.delivery("half")
        sender.proton_link.stream(b"\x00\x53\x77\xa1\x05he")
        connection.wake()
        await until(lambda: not sender.proton_link.queued or sender.proton_link.connection.transport.pending() == 0)
        half.abort()
        connection.wake()
        assert (await sender.deliver(proton.Message(body="whole"))).accepted
        connection.close()
    assert got == ["whole"]


@asyncio_test
async def test_a_body_nested_deeply_is_a_decode_error_and_no_more() -> None:
    reasons: list[str] = []

    def attach(link: ControlLink) -> None:
        assert isinstance(link, ControlReceiver)
        link.accept()

        def take(delivery: Any) -> None:
            try:
                assert delivery.message is not None
            except ControlError as error:
                reasons.append(error.description)
                delivery.reject(error.condition, error.description)
            else:
                delivery.accept()

        link.on_message = take
        link.window = 5
        link.grant(5)

    body, size = b"\x40", 1
    parts = [body]
    for _ in range(50_000):
        parts.append(b"\xd0" + (size + 4).to_bytes(4, "big") + (1).to_bytes(4, "big"))
        size += 9
    nested = b"\x00\x53\x77" + b"".join(reversed(parts))
    async with serving(attach) as listener:
        connection = await connect("127.0.0.1", listener.port, container="me")
        sender = connection.sender("in")
        assert (await sender.deliver(nested)).condition == "amqp:decode-error"
        assert (await sender.deliver(b"")).accepted  # no sections at all: an empty message
        assert (await sender.deliver(proton.Message(body=1))).accepted
        connection.close()
    assert len(reasons) == 1


@asyncio_test
async def test_a_silent_peer_is_noticed_on_both_sides() -> None:
    class Silent(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            pass

    accepted: list[ControlConnection] = []
    async with serving(accept=accepted.append, idle=0.2) as listener:
        # A client that opens and then never says anything again, heartbeats included.
        engine = proton.Transport()
        silent = proton.Connection()
        silent.container = "silent"
        engine.bind(silent)
        silent.open()
        transport, _ = await asyncio.get_running_loop().create_connection(Silent, "127.0.0.1", listener.port)
        transport.write(bytes(engine.peek(engine.pending())))
        await until(lambda: accepted)
        (connection,) = accepted
        await connection.wait_closed()
        assert connection.error is not None and "idle" in str(connection.error) + connection.error.description
        transport.abort()

    servers: list[asyncio.Transport] = []

    class Opens(asyncio.Protocol):
        """A server that opens and then is silent."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            servers.append(transport)
            self.engine = proton.Transport(proton.Transport.SERVER)
            self.connection = proton.Connection()
            self.engine.bind(self.connection)
            self.connection.open()
            self.engine.sasl().allowed_mechs("ANONYMOUS")

        def data_received(self, data: bytes) -> None:
            if self.connection.state & proton.Endpoint.REMOTE_ACTIVE:
                return
            self.engine.push(data)
            servers[-1].write(bytes(self.engine.peek(self.engine.pending())))
            self.engine.pop(self.engine.pending())

    server = await asyncio.get_running_loop().create_server(Opens, "127.0.0.1", 0)
    dialled: list[ControlConnection] = []
    with contextlib.suppress(ConnectionLost):  # where this process stands still, the silence is over before the open
        await connect(
            "127.0.0.1",
            server.sockets[0].getsockname()[1],
            container="me",
            idle=0.2,
            prepare=dialled.append,
        )
    (client,) = dialled
    await client.wait_closed()
    assert client.error is not None and "idle" in str(client.error)
    server.close()


class Clock:
    """A connection's loop whose time goes on only when the test says so: a machine that stands still is no silence."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time()
        self.timers: list[tuple[float, asyncio.Handle, Callable[[], None]]] = []

    def give(self, connection: ControlConnection) -> None:
        connection.loop = self  # type: ignore[assignment]  # a clock of the test

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.Handle:
        handle = asyncio.Handle(callback, (), self.loop)
        self.timers.append((when, handle, callback))
        return handle

    def waiting(self) -> int:
        """Return the number of timers that are not cancelled."""
        return sum(not handle.cancelled() for _, handle, _ in self.timers)

    def go_on(self) -> None:
        """To the next moment at which something is due."""
        self.now = min(when for when, handle, _ in self.timers if not handle.cancelled())
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for _, handle, callback in due:
            if not handle.cancelled():
                callback()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


@asyncio_test
async def test_heartbeats_keep_an_idle_connection() -> None:
    clock = Clock()
    accepted: list[ControlConnection] = []

    def accept(connection: ControlConnection) -> None:
        accepted.append(connection)
        clock.give(connection)

    async with serving(accept=accept, idle=8) as listener:
        connection = await connect("127.0.0.1", listener.port, container="me", idle=8, prepare=clock.give)
        peers = accepted[0]
        await until(lambda: clock.waiting() == 2, "both sides watch")
        frames, began = connection.frames.received, clock.now
        while clock.now < began + 10 * 8:
            clock.go_on()
            await until(lambda: connection.frames.received == peers.frames.sent)
            await until(lambda: peers.frames.received == connection.frames.sent)
            assert connection.is_open and peers.is_open
        assert connection.frames.received >= frames + 10
        connection.close()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", HEADER + b"\xff" * 100, b"\x00" * 4096])
@asyncio_test
async def test_garbage_is_answered_and_dropped(data: bytes) -> None:
    async with serving() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(data)
        answer = b""
        with contextlib.suppress(ConnectionResetError):  # it has closed before it had read all
            answer = await reader.read()
        assert answer == b"" or answer.startswith(b"AMQP")
        writer.close()
        await until(lambda: not listener.connections)


@asyncio_test
async def test_a_peer_that_never_opens_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HANDSHAKE", 0.1)
    async with serving() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(HEADER)
        while await reader.read(1000):
            pass
        writer.close()
        await until(lambda: not listener.connections)


@asyncio_test
async def test_links_and_connections_are_bounded() -> None:
    async with serving(collect([]), max_links=10, max_connections=2) as listener:
        first = await connect("127.0.0.1", listener.port, container="one")
        for number in range(11):
            first.sender(f"address-{number}")
        await first.wait_closed()
        assert first.error is not None and first.error.condition == "amqp:resource-limit-exceeded"
        await until(lambda: not listener.connections, "the other side has given it up too")
        kept = [await connect("127.0.0.1", listener.port, container=f"c{number}") for number in range(2)]
        with pytest.raises(ConnectionLost):
            await connect("127.0.0.1", listener.port, container="too many")
        for connection in kept:
            connection.close()


@asynccontextmanager
async def way_to(port: int, reads: asyncio.Event) -> AsyncIterator[int]:
    """A port that leads to `port`; what comes from there is read only while `reads` is set."""
    always = asyncio.Event()
    always.set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may: asyncio.Event) -> None:
        while data := await reader.read(65536):
            await may.wait()
            writer.write(data)
            await writer.drain()
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(pass_on(reader, to_there, always), pass_on(there, writer, reads))

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asyncio_test
async def test_who_does_not_read_costs_a_bounded_amount_of_writing() -> None:
    senders: list[ControlSender] = []

    def attach(link: ControlLink) -> None:
        link.accept()
        assert isinstance(link, ControlSender)
        senders.append(link)

    def take_much(link: Any) -> None:
        link.session.incoming_capacity = 100_000_000

    reads = asyncio.Event()
    reads.set()
    async with serving(attach) as listener, way_to(listener.port, reads) as port:
        connection = await connect("127.0.0.1", port, container="me")
        connection.receiver("feed", window=100, configure=take_much)
        await until(lambda: senders and senders[0].credit)
        reads.clear()
        for _ in range(20):
            senders[0].send(encode(None, b"x" * 1_000_000))
        (server,) = listener.connections
        await until(lambda: server.blocked)
        assert server.unsent < 8_000_000
        reads.set()
        await until(lambda: not server.blocked and not senders[0].queued)
        connection.close()


@asyncio_test
async def test_links_end_with_their_session_and_connection() -> None:
    links: list[ControlLink] = []

    def attach(link: ControlLink) -> None:
        link.accept()
        links.append(link)

    async with serving(attach) as listener:
        connection = await connect("127.0.0.1", listener.port, container="me")
        sender = connection.sender("a")
        await sender.opened()
        waiting = asyncio.ensure_future(sender.deliver(proton.Message(body="no credit is ever given")))
        sender.proton_link.session.close()
        connection.wake()
        await until(lambda: links and links[0].closed)
        receiver = connection.receiver("b")
        iterating = asyncio.ensure_future(anext(aiter(receiver)))
        await receiver.opened()
        connection.abort()
        for task in (waiting, iterating):
            with pytest.raises(LinkClosed):
                await task
        await until(lambda: all(link.closed for link in links) and not listener.connections)


@asyncio_test
async def test_keep_connected_comes_back() -> None:
    sessions: list[ControlConnection] = []

    async def session(connection: ControlConnection) -> None:
        sessions.append(connection)
        await asyncio.Event().wait()

    port = free_port()  # not of those that dialling takes: while nobody listens, it could be dialled from there
    async with serving(port=port) as listener:
        keeping = asyncio.ensure_future(keep_connected("127.0.0.1", port, session, container="me"))
        await until(lambda: len(sessions) == 1)
        for connection in list(listener.connections):
            connection.abort()
        await until(lambda: len(sessions) == 2)
    # nobody listens for a while
    await until(lambda: sessions[1].is_gone)
    again = await listen("127.0.0.1", port, lambda connection: None, container="server")
    await until(lambda: len(sessions) == 3)
    keeping.cancel()
    await again.close()


@asyncio_test
async def test_keep_connected_ends_where_it_is_cancelled_while_a_lost_session_unwinds() -> None:
    sessions, unwinding, unwound = 0, asyncio.Event(), asyncio.Event()

    async def session(connection: ControlConnection) -> None:
        nonlocal sessions
        sessions += 1
        try:
            await asyncio.Event().wait()
        finally:
            unwinding.set()
            await unwound.wait()

    async with serving() as listener:
        keeping = asyncio.ensure_future(keep_connected("127.0.0.1", listener.port, session, container="me"))
        await until(lambda: sessions == 1)
        for connection in list(listener.connections):
            connection.abort()
        await unwinding.wait()
        keeping.cancel()
        unwound.set()
        await until(lambda: keeping.done() or sessions == 2)
        assert keeping.cancelled() and sessions == 1


@asyncio_test
async def test_a_loss_in_a_task_group_of_a_session_is_no_error_of_the_program() -> None:
    sessions: list[str] = []

    async def lost(connection: ControlConnection, error: Exception) -> None:
        raise error

    async def session(connection: ControlConnection) -> None:
        which = ("ordinary", "own", "ordinary", "last")[len(sessions)]
        sessions.append(which)
        if which == "last":
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as outer:
            outer.create_task(lost(connection, ConnectionLost("closed", which)))
            if which == "own":
                outer.create_task(lost(connection, KeyError("own")))
            async with asyncio.TaskGroup() as group:
                group.create_task(lost(connection, LinkClosed("detached", which)))

    async with serving() as listener:
        with logged() as written:
            keeping = asyncio.ensure_future(keep_connected("127.0.0.1", listener.port, session, container="me"))
            await until(lambda: len(sessions) == 4)
            keeping.cancel()
            await asyncio.wait((keeping,))
    lines = written.getvalue().splitlines()
    ended = [line for line in lines if "control.conversation.ended" in line]
    failed = [line for line in lines if "control.conversation.failed" in line]
    assert len(ended) == 2 and "ordinary" in ended[0]
    assert len(failed) == 1 and "KeyError" in failed[0] and "ConnectionLost" not in failed[0]


@asyncio_test
async def test_nobody_listens() -> None:
    port = free_port()
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", port)
    with pytest.raises(ConnectionLost, match="did not answer"):  # it listens, and says nothing
        await connect("127.0.0.1", port, container="me", timeout=0.1)
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionLost, match="refused"):
        await connect("127.0.0.1", port, container="me")


class Echo(MessagingHandler):
    """A server on Proton's reactor that sends everything back to its reply-to."""

    def __init__(self) -> None:
        super().__init__(auto_accept=True)
        self.port = 0
        self.ready = threading.Event()
        self.replies: dict[str, Any] = {}

    def on_start(self, event: Any) -> None:
        self.port = free_port()
        self.acceptor = event.container.listen(f"127.0.0.1:{self.port}")
        self.ready.set()

    def on_link_opening(self, event: Any) -> None:
        if event.link.is_sender and event.link.remote_source.dynamic:
            event.link.source.address = f"reply-{len(self.replies)}"
            self.replies[event.link.source.address] = event.link
        elif event.link.is_receiver:
            event.link.target.address = event.link.remote_target.address

    def on_message(self, event: Any) -> None:
        self.replies[event.message.reply_to].send(
            proton.Message(correlation_id=event.message.correlation_id, body=event.message.body)
        )
        if event.message.body == "stop":
            self.acceptor.close()


@asyncio_test
async def test_a_server_on_protons_reactor() -> None:
    echo = Echo()
    thread = threading.Thread(target=Container(echo).run, daemon=True)
    thread.start()
    assert await asyncio.to_thread(echo.ready.wait, 60)
    connection = await connect("127.0.0.1", echo.port, container="me", properties={"product": "test"})
    receiver = connection.receiver(None, dynamic=True, window=5)
    await receiver.opened()
    sender = connection.sender("echo")
    for body in [*range(20), "stop"]:
        message = proton.Message(body=body, reply_to=receiver.remote_source, correlation_id=str(body))
        assert (await sender.deliver(message)).accepted
        reply = await anext(aiter(receiver))
        assert (reply.message.body, reply.message.correlation_id) == (body, str(body))
        reply.accept()
    connection.close()
    await connection.wait_closed()
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()
