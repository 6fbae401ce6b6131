"""The asyncio skin on asyncio's loop and on uvloop, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio.client import connect
from enmasse.aio.transport import Hub, Wire, dial, new_event_loop, serve
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import Begin, Close, Flow, Open, Source, Target
from enmasse.amqp.connection import Connection
from enmasse.amqp.delivery import Outgoing
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.receiver import Partial
from enmasse.amqp.sasl.layer import SaslServer, external
from enmasse.identity.proofs.certificates import certified
from enmasse.testing import free_port
from tests.amqp.engine_kit import AMQP, Recorder, condition_of, frame, frames
from tests.amqp.server_kit import BOTH, ONE_SOON, Store, Watched, run, start
from tests.certificates import Authority
from tests.kit.waiting import DEADLINE, until


@BOTH
def test_messages_over_a_socket(loop: str) -> None:
    async def main() -> None:
        store = Store()
        server = await start(store)
        async with connect("127.0.0.1", server.port) as client:
            sender = await client.sender("q")
            receiver = await client.receiver("q", credit=50)
            bodies = [b"\x00Su\xa0\x02%02d" % (i % 100) for i in range(3000)] + [
                b"\x00Su\xb0\x00\x4c\x4b\x40" + b"x" * 5_000_000
            ]
            outcomes = []
            got: list[bytes] = []

            async def send() -> None:
                for body in bodies:
                    await sender.wait_credit()
                    outcomes.append(sender.send_nowait(body))

            sending = asyncio.ensure_future(send())
            while len(got) < len(bodies):
                delivery = await receiver.receive(timeout=DEADLINE)
                got.append(delivery.payload)
                await delivery.accept()
            await sending
            await asyncio.gather(*[o for o in outcomes if o is not None])
            assert got == bodies
            raw: Any = store.connections[0]
            assert raw.state == "open"
        await until(lambda: store.closed == [None], "the close to arrive")
        server.close()
        await server.wait_closed()
        assert server.hub.wires == set()

    run(loop, main)


@BOTH
def test_tcp_nodelay_and_port(loop: str) -> None:
    async def main() -> None:
        store = Store()
        server = await start(store)
        async with connect("127.0.0.1", server.port):
            (wire,) = server.hub.wires
            assert wire.transport is not None
            raw = wire.transport.get_extra_info("socket")
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            peer = store.connections[0].context
            assert peer.address.startswith("127.0.0.1:") and not peer.tls
            assert server.hub.connections == store.connections
        with pytest.raises(OSError, match=r"in use|Errno 98"):
            await serve(Hub(), "127.0.0.1", server.port, store.make)
        server.close()

    run(loop, main)


@BOTH
def test_nobody_listens(loop: str) -> None:
    async def main() -> None:
        port = free_port()
        connection = Connection(Handler(), container_id="c", is_client=True)
        with pytest.raises(OSError, match=r"\[Errno 111\]|refused|Connect call failed"):
            await dial(Hub(), "127.0.0.1", port, connection)
        with pytest.raises(ValueError, match="is_client"):
            await dial(Hub(), "127.0.0.1", port, Connection(Handler(), container_id="c", is_client=False))

    run(loop, main)


@BOTH
def test_nothing_is_left_of_a_connection_that_is_cancelled_as_it_is_made(loop: str) -> None:
    """The socket is connected, and whoever waits for that is cancelled before it knows."""

    async def main() -> None:
        class Unwanted(Connection):
            def open(self) -> None:
                dialling.cancel()

        hub, server = Hub(), await start(Store())
        connection = Unwanted(Recorder(), container_id="c", is_client=True)
        dialling = asyncio.create_task(dial(hub, "127.0.0.1", server.port, connection))
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await until(lambda: not hub.wires and not server.hub.wires, "both ends to let go")
        assert connection.finished and hub.deadlines <= 1
        server.close()

    run(loop, main)


@BOTH
def test_tls_and_external(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        store = Store()

        def make(peer: Any) -> Connection:
            found = certified(peer.ssl)
            return store.make(peer, sasl=SaslServer({"EXTERNAL": external(lambda: found and found.user)}))

        server = await serve(Hub(), "127.0.0.1", 0, make, ssl=authority.server_context(clients=True))
        url = f"amqps://localhost:{server.port}"
        async with connect(url, ssl=authority.client_context("device-7"), external=True) as client:
            sender = await client.sender("q")
            await sender.send(b"\x00Su\xb0\x00\x0f\x42\x40" + b"x" * 1_000_000, timeout=DEADLINE)
            assert store.connections[0].user == "device-7"
            assert store.connections[0].context.tls
        with pytest.raises((OSError, AmqpError)):
            await connect(url, ssl=authority.client_context(), external=True).open(60)
        with pytest.raises(OSError, match=r"(?i)certificate"):
            await connect(url, ssl=True).open(60)
        server.close()
        await server.wait_closed()

    run(loop, main)


class Raw:
    """A peer of plain bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> Raw:
        raw = cls(*await asyncio.open_connection("127.0.0.1", port))
        raw.writer.write(AMQP + frame(0, Open(container_id="raw")))
        return raw

    async def rest(self) -> list[Any]:
        """All frames until the other side closes the socket."""
        data = await asyncio.wait_for(self.reader.read(-1), DEADLINE)
        self.writer.close()
        return [p for _, p, _ in frames(data)]


@BOTH
def test_silent_peer_is_told_and_dropped(loop: str) -> None:
    async def main() -> None:
        store = Store()
        server = await start(store, idle_timeout_ms=1000)
        raw = await Raw.open(server.port)
        close = (await raw.rest())[-1]
        assert condition_of(close) == "amqp:resource-limit-exceeded"
        assert close.error.description == "local-idle-timeout expired"
        assert [str(e.condition) for e in store.closed if e] == ["amqp:resource-limit-exceeded"]
        await until(lambda: not server.hub.wires)
        server.close()

    run(loop, main)


@BOTH
def test_heartbeats_over_a_socket(loop: str) -> None:
    async def main() -> None:
        store = Store()
        server = await start(store, idle_timeout_ms=3000)
        beats = 0
        async with connect("127.0.0.1", server.port, idle_timeout=3) as client:

            def count(data: bytes) -> None:
                nonlocal beats
                beats += data == b"\x00\x00\x00\x08\x02\x00\x00\x00"

            (wire,) = client.connection_hub.wires
            assert wire.transport is not None
            Watched(wire.transport, count)
            await until(lambda: beats >= 6, "six heartbeats")
            assert client.connection.state == "open" == store.connections[0].state
        server.close()

    run(loop, main)


@BOTH
def test_handshake_that_stalls(loop: str) -> None:
    async def main() -> None:
        store = Store()
        server = await start(store, limits=Limits(handshake_timeout_ms=100))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"AMQP")
        assert await asyncio.wait_for(reader.read(-1), DEADLINE) == b""
        writer.close()
        server.close()

    run(loop, main)


@ONE_SOON
def test_peer_that_asks_and_never_reads_is_dropped(loop: str) -> None:
    async def main() -> None:
        store = Store()
        server = await start(store, limits=Limits(max_buffered=1_000_000))
        loop_ = asyncio.get_running_loop()
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", server.port))
        raw.setblocking(False)
        begin = Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10)
        echo = frame(0, Flow(incoming_window=9, next_outgoing_id=0, outgoing_window=9, echo=True)) * 1000
        await loop_.sock_sendall(raw, AMQP + frame(0, Open(container_id="raw")) + frame(0, begin))
        with pytest.raises(OSError):
            for _ in range(100_000):
                await asyncio.wait_for(loop_.sock_sendall(raw, echo), DEADLINE)
        raw.close()
        await until(lambda: store.closed, "the connection to be given up")
        assert store.closed[0] is not None and str(store.closed[0].condition) == "amqp:resource-limit-exceeded"
        server.close()

    run(loop, main)


@BOTH
def test_sender_stops_for_a_peer_that_does_not_read(loop: str) -> None:
    class Flood(Recorder):
        sent = 0

        def on_flow(self, link: Sender) -> None:
            while link.credit:
                link.send(b"x" * 10_000, self.sent)
                self.sent += 1

    async def main() -> None:
        flood = Flood()
        server = await serve(Hub(), "127.0.0.1", 0, lambda _: Connection(flood, container_id="s", is_client=False))
        handler = Recorder(outcome=None)
        client = Connection(handler, container_id="c", is_client=True)
        wire = await dial(Hub(), "127.0.0.1", server.port, client)
        await until(lambda: client.state == "open")
        receiver = client.begin().attach_receiver("r", Source(address="a"), Target())
        receiver.grant(1_000_000)
        await until(lambda: flood.sent)
        assert wire.transport is not None
        wire.transport.pause_reading()
        connection = next(iter(server.hub.wires)).connection
        await until(lambda: connection.blocked, "the server to be blocked")
        sent = flood.sent
        assert sent * 10_000 < 50_000_000
        link = flood.links["r"]
        assert isinstance(link, Sender) and link.credit == 0 and link.granted > 0
        wire.transport.resume_reading()
        await until(lambda: flood.sent > sent + 1000, "the sender to go on")
        assert "writable" in flood.names()
        server.close()
        client.close()
        await until(lambda: not server.hub.wires)

    run(loop, main)


@BOTH
def test_who_sends_is_not_called_again_while_it_sends(loop: str) -> None:
    """A socket that takes much at once is blocked and free again within one write."""

    class Flood(Recorder):
        sent = depth = deepest = 0

        def on_flow(self, link: Sender) -> None:
            self.depth += 1
            self.deepest = max(self.deepest, self.depth)
            while link.credit and self.sent < 3000:
                link.send(b"x" * 20_000, self.sent)
                self.sent += 1
            self.depth -= 1

        def on_writable(self, connection: Connection) -> None:
            self.events.append(("writable",))
            for link in self.links.values():
                if isinstance(link, Sender):
                    self.on_flow(link)

    async def main() -> None:
        flood = Flood()
        server = await serve(Hub(), "127.0.0.1", 0, lambda _: Connection(flood, container_id="s", is_client=False))
        handler = Recorder(window=0)
        client = Connection(handler, container_id="c", is_client=True)
        await dial(Hub(), "127.0.0.1", server.port, client)
        await until(lambda: client.state == "open")
        receiver = client.begin().attach_receiver("r", Source(address="a"), Target())
        receiver.credit_window = 2000
        await until(lambda: len(handler.received) == 3000, "all messages")
        assert "writable" in flood.names() and flood.deepest == 1
        server.close()
        client.close()
        await until(lambda: not server.hub.wires)

    run(loop, main)


@BOTH
def test_handler_that_raises_ends_its_link_only_and_is_reported(loop: str) -> None:
    class Broken(Store):
        def on_delivery(self, *args: Any) -> None:
            raise RuntimeError("a bug")

    async def main() -> None:
        store = Broken()
        server = await start(store)
        other = await connect("127.0.0.1", server.port).open()
        async with connect("127.0.0.1", server.port) as client:
            sender = await client.sender("q")
            with pytest.raises(AmqpError, match="internal error"):
                await sender.send(b"x", timeout=DEADLINE)
            assert client.connection.state == "open"
        assert other.connection.state == "open"
        trouble = "1 internal errors have ended links or connections, the last one: RuntimeError: a bug"
        assert (server.hub.failures, server.hub.trouble) == (1, trouble)
        await other.close()
        server.close()
        await server.wait_closed()

    run(loop, main)


@BOTH
def test_close_of_the_server_tells_the_clients(loop: str) -> None:
    async def main() -> None:
        store = Store()
        server = await start(store)
        client = await connect("127.0.0.1", server.port).open()
        receiver = await client.receiver("q")
        server.close()
        with pytest.raises(AmqpError, match="shutting down"):
            await receiver.receive(timeout=DEADLINE)
        await server.wait_closed()
        assert client.connection.state == "closed"
        await client.close()

    run(loop, main)


@BOTH
def test_factory_that_raises(loop: str) -> None:
    async def main() -> None:
        def make(_: Any) -> Connection:
            raise RuntimeError("no")

        server = await serve(Hub(), "127.0.0.1", 0, make)
        with pytest.raises((AmqpError, OSError)):
            await connect("127.0.0.1", server.port).open(60)
        server.close()

    run(loop, main)


@BOTH
def test_stream_that_is_not_taken_stops_the_socket(loop: str) -> None:
    """A body of 100 MB: the producer stands still while nobody takes it, and goes on when somebody does."""

    class Lazy(Recorder):
        part: Partial | None = None
        size = 0

        def on_partial(self, link: Receiver, delivery: Partial) -> None:
            self.part = delivery

    def stream(link: Link) -> None:
        assert isinstance(link, Receiver)
        link.streaming = True
        link.accept()

    class Producer(Handler):
        written = 0
        out: Outgoing | None = None

        def on_flow(self, link: Sender) -> None:
            if self.out is None:
                self.out = link.begin("body")
            while self.written < 100_000_000 and not self.out.blocked:
                self.out.write(bytes(100_000))
                self.written += 100_000
            if self.written == 100_000_000:
                self.out.finish()

    async def main() -> None:
        lazy = Lazy(outcome=None)
        lazy.attach = stream
        limits = Limits(max_streamed=1_000_000, incoming_window=100)
        server = await serve(
            Hub(), "127.0.0.1", 0, lambda _: Connection(lazy, container_id="s", is_client=False, limits=limits)
        )
        producer = Producer()
        client = Connection(producer, container_id="c", is_client=True)
        await dial(Hub(), "127.0.0.1", server.port, client)
        await until(lambda: client.state == "open")
        client.begin().attach_sender("s", Source(), Target(address="a"))
        connection = next(iter(server.hub.wires)).connection
        await until(lambda: connection.reading_paused, "the reading to stop")
        for _ in range(50):
            await asyncio.sleep(0)
        assert producer.written < 50_000_000 and connection.held.streamed < 9_000_000
        highest = 0

        def take() -> bool:
            nonlocal highest
            assert lazy.part is not None
            highest = max(highest, connection.held.streamed)
            lazy.size += len(lazy.part.take())
            return lazy.part.done and not lazy.part.waiting

        await until(take, "the body")
        assert lazy.size == 100_000_000 and highest < 9_000_000
        client.close()
        await until(lambda: not server.hub.wires)
        server.close()

    run(loop, main)


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.writes.append(b"closed")


@pytest.mark.parametrize("per_turn", [False, True])
def test_one_read_is_one_write_per_connection(per_turn: bool) -> None:
    """The router reads A and sends on B: B is written once, at the end of A's read, before the loop turns; with
    `per_turn` once for all reads of the turn."""

    class Relay(Recorder):
        def on_delivery(self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, *_: Any) -> None:
            out = self.links["out"]
            assert isinstance(out, Sender)
            out.send(payload, delivery_id)

    async def main() -> None:
        hub = Hub()
        relay = Relay(window=1000)
        wires = [Wire(hub, Connection(relay, container_id="s", is_client=False)) for _ in range(2)]
        transports = [FakeTransport(), FakeTransport()]
        peers = [Connection(Recorder(window=1000), container_id="c", is_client=True) for _ in range(2)]
        for wire, transport, peer in zip(wires, transports, peers, strict=True):
            wire.connection_made(transport)
            peer.open()
        links: list[Link] = []
        for turn in range(6):
            for wire, transport, peer in zip(wires, transports, peers, strict=True):
                wire.data_received(peer.take_output())
                for written in transport.writes:
                    peer.receive(written)
                transport.writes.clear()
            if turn == 1:
                links.append(peers[0].begin().attach_sender("in", Source(), Target(address="a")))
                receiver = peers[1].begin().attach_receiver("out", Source(address="a"), Target())
                receiver.credit_window = 1000
        sender = links[0]
        assert isinstance(sender, Sender)
        for i in range(500):
            sender.send(b"%d" % i, i)
        hub.per_turn = per_turn
        said = peers[0].take_output()
        wires[0].data_received(said[:9999])
        assert len(transports[1].writes) == (0 if per_turn else 1)
        wires[0].data_received(said[9999:])
        await asyncio.sleep(0)
        assert len(transports[1].writes) == (1 if per_turn else 2)
        assert transports[0].writes == []  # nothing is settled yet
        peers[1].receive(b"".join(transports[1].writes))
        handler = peers[1].handler.handler
        assert isinstance(handler, Recorder) and len(handler.received) == 500
        for wire in wires:
            wire.connection_lost(None)
        assert hub.wires == set()

    asyncio.run(main())


def test_idle_connections_cost_one_timer() -> None:
    async def main() -> None:
        hub = Hub()
        wires = []
        for _ in range(500):
            wire = Wire(hub, Connection(Recorder(), container_id="s", is_client=False))
            wire.connection_made(FakeTransport())
            wires.append(wire)
            wire.data_received(AMQP + frame(0, Open(container_id="c")))
        handles = [h for h in asyncio.get_running_loop()._scheduled if not h.cancelled()]  # type: ignore[attr-defined]  # private, of asyncio's own loop
        assert len(handles) == 1
        for wire in wires:
            wire.connection_lost(None)

    asyncio.run(main())


def test_new_event_loop_is_uvloop_where_there_is_one() -> None:
    loop = new_event_loop()
    assert "uvloop" in type(loop).__module__
    loop.close()


def test_close_after_the_last_word() -> None:
    """What was written before the end still arrives: here the close that answers a broken rule."""

    async def main() -> None:
        server = await start(Store(), limits=Limits(close_timeout_ms=100))
        raw = await Raw.open(server.port)
        raw.writer.write(b"\x00\x00\x00\x02\x02\x00\x00\x00" + frame(0, Close()))
        answers = await raw.rest()
        assert condition_of(answers[-1]) == "amqp:connection:framing-error"
        server.close()

    asyncio.run(main())
