"""No connection keeps the loop for itself: slices of what was read, turns, accepting a few at a time, TLS in time."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import ssl
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from enmasse.aio import transport
from enmasse.aio.transport import Hub, serve
from enmasse.amqp.codec.performatives import Begin, Close, Detach, Disposition, End, Flow, Open, Transfer
from enmasse.amqp.limits import Limits
from enmasse.amqp.link import Link, Receiver
from enmasse.amqp.reader import SLICE_BYTES, SLICE_FRAMES
from enmasse.network import acceptor, tls_handshake, tls_transport
from enmasse.network.acceptor import Acceptor
from enmasse.network.port_sockets import listening
from tests.amqp.engine_kit import AMQP, Raw, Recorder, attach, frame, frames
from tests.amqp.server_kit import BOTH, ONE_SOON, Store, run, start
from tests.certificates import Authority
from tests.kit.waiting import DEADLINE, until

OPEN = AMQP + frame(0, Open(container_id="c", max_frame_size=65536))
BEGIN = frame(0, Begin(next_outgoing_id=0, incoming_window=100_000, outgoing_window=100_000))


def flow(**fields: Any) -> bytes:
    return frame(0, Flow(next_incoming_id=0, incoming_window=1000, next_outgoing_id=0, outgoing_window=1000, **fields))


def transfer(n: int, payload: bytes = b"\x00Sw\xa0\x01x") -> bytes:
    fields = Transfer(handle=0, delivery_id=n, delivery_tag=n.to_bytes(4, "big"), message_format=0, settled=False)
    return frame(0, fields, payload)


FLOODS = {
    "flows with echo": flow(echo=True) * 100,
    "link flows": flow(handle=1, delivery_count=0, link_credit=10) * 100,
    "drains": flow(handle=1, delivery_count=0, link_credit=10, drain=True) * 100,
    "empty frames": frame(0, None) * 100,
    "attaches": b"".join(frame(0, attach(f"l{n}", n, sending=n % 2 == 0)) for n in range(2, 102)),
    "attaches of one name": b"".join(frame(0, attach("same", n, sending=True)) for n in range(2, 102)),
    "attach and detach": b"".join(
        frame(0, attach(f"l{n}", 5, sending=True)) + frame(0, Detach(handle=5, closed=True)) for n in range(50)
    ),
    "begin and end": (frame(1, Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)) + frame(1, End())) * 50,
    "dispositions": frame(0, Disposition(role=False, first=0, last=0, settled=True)) * 100,
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_slice_is_a_few_frames_and_the_rest_waits_in_order(kind: str) -> None:
    data = FLOODS[kind]
    whole, sliced = Raw(), Raw()
    expected = whole.feed(data)
    sliced.connection.enough = lambda: True
    sliced.connection.receive(data)
    turns = 1
    while sliced.connection.backlog:
        assert turns <= 100, "it does not come to an end"
        sliced.connection.proceed()
        turns += 1
    assert turns == (100 if kind.startswith(("attach", "begin")) else -(-100 // SLICE_FRAMES))
    assert [performative for _, performative, _ in frames(sliced.connection.take_output())] == expected
    assert sliced.handler.events == whole.handler.events


def test_a_slice_of_transfers_is_bounded_in_bytes() -> None:
    raw = Raw(handler=Recorder(window=10_000))
    raw.connection.enough = lambda: True
    raw.feed(transfer(1000) + transfer(1001))  # ids that take four bytes
    while raw.connection.backlog:
        raw.connection.proceed()
    raw.handler.received.clear()
    payload = b"\x00Sw\xa0\xc8" + 200 * b"x"
    size = len(transfer(1002, payload))
    many = 4 * SLICE_BYTES // size
    raw.connection.receive(b"".join(transfer(n, payload) for n in range(1002, 1000 + many)))
    seen = [len(raw.handler.received)]
    while raw.connection.backlog:
        raw.connection.proceed()
        seen.append(len(raw.handler.received) - sum(seen))
    assert sum(seen) == many - 2
    assert max(seen) <= 1.5 * SLICE_BYTES / size
    assert len(seen) <= 5


def test_a_frame_larger_than_a_slice_is_one() -> None:
    raw = Raw(max_frame_size=200_000)
    raw.connection.enough = lambda: True
    large = transfer(0, b"\x00Sw\xb0" + (150_000).to_bytes(4, "big") + b"x" * 150_000)
    assert len(large) > 2 * SLICE_BYTES
    raw.connection.receive(large + transfer(1) + large[:100])
    while raw.connection.backlog:
        raw.connection.proceed()
    assert [len(payload) for payload in raw.handler.received] == [150_008, 6]


def test_what_comes_while_the_rest_waits_comes_behind_it() -> None:
    rng = random.Random(7)
    data = b"".join(FLOODS.values()) + b"".join(transfer(n) for n in range(5)) + flow(echo=True)
    whole, sliced = Raw(), Raw()
    expected = whole.feed(data)
    sliced.connection.enough = lambda: rng.random() < 0.5
    pos = 0
    while pos < len(data) or sliced.connection.backlog:
        if rng.random() < 0.5:
            sliced.connection.proceed()
        elif sliced.connection.backlog:
            sliced.connection.hold(data[pos : pos + 70])
            pos += 70
        else:
            sliced.connection.receive(data[pos : pos + 700])
            pos += 700
    assert [performative for _, performative, _ in frames(sliced.connection.take_output())] == expected
    assert sliced.handler.events == whole.handler.events


def test_what_waits_is_forgotten_with_the_connection() -> None:
    raw = Raw()
    raw.connection.enough = lambda: True
    raw.connection.receive(FLOODS["flows with echo"])
    raw.connection.transport_closed()
    assert not raw.connection.backlog
    raw.connection.proceed()
    assert raw.handler.names()[-1] == "close"


def whose(link: Link) -> str:
    remote = link.session.connection.remote_open
    assert remote is not None
    return remote.container_id


class Shared(Store):
    """Writes down whose flows and deliveries come, in which order; `at_first` is called at the first of a flood."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []
        self.at_first: Any = None

    def on_flow(self, link: Any) -> None:
        self.order.append(whose(link))
        if self.at_first is not None and self.order[-1] == "flood":
            at_first, self.at_first = self.at_first, None
            at_first()

    def on_delivery(self, link: Receiver, *args: Any) -> None:
        self.order.append(whose(link))
        super().on_delivery(link, *args)


def opened(name: str) -> bytes:
    return AMQP + frame(0, Open(container_id=name, max_frame_size=65536)) + BEGIN


@BOTH
@pytest.mark.parametrize("floods", [1, 3])
def test_others_are_heard_between_slices_of_a_flood(loop: str, floods: int) -> None:
    async def main() -> None:
        store = Shared()
        server = await start(store)
        server.hub.turns.clock = count(1.0).__next__  # a second later each time, so every share is used up
        quiet_reader, quiet = await asyncio.open_connection("127.0.0.1", server.port)
        quiet.write(opened("quiet") + frame(0, attach("s", 0, sending=True)))
        await until(lambda: "s" in store.links, "the quiet one to be attached")
        many = 3000
        writers = []
        for n in range(floods):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writers.append(writer)
            writer.write(opened("flood") + frame(0, attach(f"r{n}", 0, sending=False)))
        await until(lambda: len(store.links) == 1 + floods, "the floods to be attached")
        store.order.clear()
        store.at_first = lambda: quiet.write(transfer(0))  # to the socket, at once
        for writer in writers:
            writer.write(flow(handle=0, delivery_count=0, link_credit=1) * many)
        await until(lambda: store.order.count("flood") == many * floods, "the floods to be over")
        await until(lambda: "quiet" in store.order, "the quiet one to be heard")
        waited = store.order.index("quiet")
        assert waited <= 10 * floods * SLICE_FRAMES, f"{waited} frames of the flood went before it"
        for writer in [*writers, quiet]:
            writer.close()
        await until(lambda: not server.hub.wires, "the connections to go")
        server.close()
        assert quiet_reader

    run(loop, main)


@ONE_SOON
def test_one_that_waits_is_not_read(loop: str) -> None:
    """What a flood may make us hold is what was read at once, not what it has sent meanwhile."""

    async def main() -> None:
        store = Shared()
        server = await start(store)
        server.hub.turns.clock = count(1.0).__next__
        most = 0
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(opened("flood") + frame(0, attach("r", 0, sending=False)))
        await until(lambda: "r" in store.links, "the attach")
        one = flow(handle=0, delivery_count=0, link_credit=1)
        many = 1_500_000 // len(one)
        writer.write(one * many)
        while store.order.count("flood") < many:
            await asyncio.sleep(0)
            most = max(most, store.connections[0].unprocessed)
        assert most <= 300_000
        writer.close()
        await until(lambda: not server.hub.wires, "the connection to go")
        server.close()

    run(loop, main)


class Owned(Shared):
    """Connections belong to the tenant that their container-id begins with."""

    def on_open(self, c: Any) -> None:
        assert c.remote_open is not None
        c.tenant = c.remote_open.container_id.partition("-")[0]
        super().on_open(c)


@ONE_SOON
def test_connections_of_a_tenant_count_as_one_for_another_tenant(loop: str) -> None:
    """A hundred of one have sent before one of another: what they have sent waits, and each gets its turn."""

    async def main() -> None:
        store = Owned()
        server = await start(store)
        hub = server.hub
        names = [*(f"many-{n}" for n in range(100)), "few-0"]
        ends = [await asyncio.open_connection("127.0.0.1", server.port) for _ in names]
        for name, (_, writer) in zip(names, ends, strict=True):
            writer.write(opened(name) + frame(0, attach(name, 0, sending=True)))
        await until(lambda: len(store.links) == len(names), "all to be attached")
        assert {len(hub.turns.tenants), *(each.connections for each in hub.turns.tenants.values())} == {1, 2, 100}
        store.order.clear()
        hub.turns.clock = count(1.0).__next__  # so each piece of work uses up a share
        for _, writer in ends:
            writer.write(transfer(0) + transfer(1))  # to the socket, at once
        await until(lambda: len(store.order) == 2 * len(names), "all to be served")
        assert Counter(store.order) == dict.fromkeys(names, 2)
        assert store.order.index("few-0") <= 10
        for _, writer in ends:
            writer.close()
        await until(lambda: not hub.wires, "the connections to go")
        assert not hub.turns.tenants
        server.close()

    run(loop, main)


@BOTH
def test_what_a_tenant_is_sent_waits_for_its_turn(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred connections of one have output before one of another."""
    order: list[str] = []
    write = transport.Wire.write

    def noted(wire: transport.Wire) -> None:
        order.append(wire.tenant.name if wire.tenant is not None else "")
        write(wire)

    async def main() -> None:
        store = Owned()
        server = await start(store)
        hub = server.hub
        hub.per_turn = True
        names = [*(f"many-{n}" for n in range(100)), "few-0"]
        ends = [await asyncio.open_connection("127.0.0.1", server.port) for _ in names]
        for name, (_, writer) in zip(names, ends, strict=True):
            writer.write(opened(name))
        await until(lambda: sum(each.connections for each in hub.turns.tenants.values()) == len(names), "all are open")
        await asyncio.sleep(0)
        monkeypatch.setattr(transport.Wire, "write", noted)
        hub.turns.clock = count(1.0).__next__  # so each write uses up a share
        for connection in sorted(hub.connections, key=lambda each: each.tenant != "many"):
            connection.close()
        await until(lambda: not hub.wires, "all to be written, and closed")
        assert order.index("few") <= 2 and Counter(order)["many"] >= 100
        for reader, writer in ends:
            assert (await reader.read()).endswith(frame(0, Close()))
            writer.close()
        server.close()

    run(loop, main)


# --- accepting ---


@BOTH
def test_a_turn_accepts_a_few(loop: str) -> None:
    async def main() -> None:
        store = Store()
        turn = 0
        made: list[int] = []

        def make(peer: Any) -> Any:
            made.append(turn)
            return store.make(peer)

        server = await serve(Hub(), "127.0.0.1", 0, make)
        clients = [socket.socket() for _ in range(200)]
        for client in clients:  # they wait in the kernel's queue: the loop does not run meanwhile
            client.connect(("127.0.0.1", server.port))
        while len(made) < len(clients):
            await asyncio.sleep(0)
            turn += 1
            assert turn < 100_000
        assert max(Counter(made).values()) <= 2 * acceptor.A_TURN  # a look at our counter may come between two turns
        for client in clients:
            client.close()
        await until(lambda: not server.hub.wires, "the connections to go")
        server.close()

    run(loop, main)


@BOTH
def test_handshakes_under_way_are_bounded(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKES", 4)
    monkeypatch.setattr(acceptor, "PATIENCE", 1000.0)

    async def main() -> None:
        store = Store()
        server = await start(store)
        clients = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(6)]
        await until(lambda: len(store.connections) == 4, "four to be accepted")
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(store.connections) == 4
        clients[0][1].write(OPEN)  # has opened
        await until(lambda: len(store.connections) == 5, "the fifth to be accepted")
        clients[1][1].close()  # has gone
        await until(lambda: len(store.connections) == 6, "the sixth to be accepted")
        assert (await clients[0][0].read(8)) == AMQP
        for _, writer in clients:
            writer.close()
        await until(lambda: not server.hub.wires, "the connections to go")
        server.close()

    run(loop, main)


@BOTH
@pytest.mark.parametrize("tls", [False, True])
def test_those_who_never_open_give_way(loop: str, tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKES", 4)
    monkeypatch.setattr(acceptor, "PATIENCE", 0.05)
    authority = Authority(tmp_path)

    async def main() -> None:
        store = Store()
        server = await start(store, tls=authority.server_context() if tls else None)
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(9)]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=authority.client_context() if tls else None
        )
        writer.write(OPEN)
        assert await reader.readexactly(8) == AMQP
        for early, _ in silent[:5]:
            assert await early.read() == b""  # closed
        for _, each in [*silent, (reader, writer)]:
            each.close()
        await until(lambda: not server.hub.wires and not server.accepting, "the connections to go")
        server.close()

    run(loop, main)


@BOTH
def test_a_machine_without_descriptors_is_asked_again_and_not_all_the_time(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    class Scarce(socket.socket):
        def accept(self) -> Any:
            nonlocal tries
            tries += 1
            if tries <= 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    async def main() -> None:
        running = asyncio.get_running_loop()
        (plain,) = await listening(running, "127.0.0.1", 0, 10)
        scarce = Scarce(fileno=plain.detach())
        taken: list[socket.socket] = []

        def take(sock: socket.socket) -> Any:
            taken.append(sock)
            return sock.close

        accepting = Acceptor(running, [scarce], take)
        client = socket.create_connection(scarce.getsockname())
        await until(lambda: taken, "it to be accepted in the end")
        assert tries <= 6  # the last of them found nobody
        client.close()
        accepting.close()
        taken[0].close()

    run(loop, main)


def test_an_error_of_a_peer_that_waits_to_be_accepted_is_not_one_of_the_listener() -> None:
    """accept(2) returns errors of the network that are pending on the new socket."""
    errors = [errno.EPROTO, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ECONNABORTED, errno.EPERM]

    class Failing(socket.socket):
        def accept(self) -> Any:
            if errors:
                raise OSError(errors.pop(), "of a peer")
            return super().accept()

    async def main() -> None:
        running = asyncio.get_running_loop()
        unhandled: list[object] = []
        running.set_exception_handler(lambda loop, context: unhandled.append(context))
        (plain,) = await listening(running, "127.0.0.1", 0, 10)
        failing = Failing(fileno=plain.detach())
        taken: list[socket.socket] = []

        def take(sock: socket.socket) -> Any:
            taken.append(sock)
            return sock.close

        accepting = Acceptor(running, [failing], take)
        client = socket.create_connection(failing.getsockname())
        await until(lambda: taken, "it to be accepted")
        assert not errors and not unhandled
        client.close()
        accepting.close()
        taken[0].close()

    run("asyncio", main)


def test_the_host_with_most_silent_peers_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "PATIENCE", 0.05)

    async def main() -> None:
        running = asyncio.get_running_loop()
        sockets = await listening(running, "127.0.0.1", 0, 10)
        taken: list[str] = []
        dropped: list[str] = []

        def take(sock: socket.socket) -> Any:
            host = sock.getpeername()[0]
            taken.append(host)
            return lambda: dropped.append(host)

        accepting = Acceptor(running, sockets, take, handshakes=4)
        clients = []
        for host in ("127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.3", "127.0.0.4", "127.0.0.5"):
            client = socket.socket()
            client.bind((host, 0))
            client.connect(sockets[0].getsockname())
            clients.append(client)
        await until(lambda: len(taken) == 6, "all to be accepted")
        assert dropped == ["127.0.0.3", "127.0.0.3"]
        for client in clients:
            client.close()
        accepting.close()

    run("asyncio", main)


# --- TLS ---


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_a_client_hello_is_whole_with_its_last_byte() -> None:
    hello = client_hello()
    body = hello[5:]
    cut = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in (body[:3], body[3:90], body[90:]))
    for each in (hello, cut):
        assert tls_handshake.is_whole(each)
        assert not any(tls_handshake.is_whole(each[:size]) for size in range(len(each)))


@pytest.mark.parametrize(
    "said", [OPEN, b"\x80", b"\x15\x03\x01\0\2\1\0", b"\x16\x02", b"\x16\x03\x01\0\1\2", b"\x16\x03\x01\0\0"]
)
def test_what_is_no_client_hello_is_refused_with_its_first_bytes(said: bytes) -> None:
    with pytest.raises(ssl.SSLError, match="does not begin with a ClientHello"):
        tls_handshake.is_whole(said)


@BOTH
def test_tls_does_not_begin_before_the_whole_client_hello(loop: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context, chosen = authority.server_context(), []
    context.sni_callback = lambda *_: chosen.append(1)
    hello = client_hello()

    async def main() -> None:
        server = await start(Store(), tls=context)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for at in range(0, len(hello), 100):
            assert not chosen
            writer.write(hello[at : at + 100])
            await asyncio.sleep(0)
        assert (await reader.readexactly(1)) == b"\x16"
        assert chosen
        writer.close()
        await until(lambda: not server.accepting, "the handshake to be over")
        server.close()

    run(loop, main)


@BOTH
def test_with_tls_a_peer_is_read_in_small_pieces_until_it_has_opened(loop: str, tmp_path: Path) -> None:
    """The kernel's buffer is the usual one: if it were small at first, a client that sends many records at once would
    lose some, and its window stay small."""
    authority = Authority(tmp_path)

    async def main() -> None:
        server = await start(Store(), tls=authority.server_context())

        def transports() -> list[tls_transport.TlsTransport]:
            found = [wire.transport for wire in server.wires]
            return [each for each in found if isinstance(each, tls_transport.TlsTransport)]

        def pieces() -> list[int]:
            return [len(each.get_buffer(-1)) for each in transports()]

        def client(said: bytes) -> ssl.SSLSocket:
            raw = socket.create_connection(("127.0.0.1", server.port))
            sock = authority.client_context().wrap_socket(raw, server_hostname="localhost")
            sock.sendall(said)
            return sock  # and does not answer the end of TLS

        refused = await asyncio.to_thread(client, AMQP + b"\0\0\0\x08\x01\0\0\0")  # a frame that is none
        await until(lambda: any(wire.connection.state == "closed" for wire in server.wires), "it to be refused")
        assert pieces() == [tls_transport.LITTLE]
        refused.close()
        await until(lambda: not server.wires, "it to have gone")
        opened = await asyncio.to_thread(client, OPEN)
        await until(lambda: pieces() == [tls_transport.MUCH], "it to be read in large pieces")
        usual = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        of_kernel = [each.get_extra_info("socket") for each in transports()]
        assert all(each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= usual for each in of_kernel)
        opened.close()
        server.close()

    run(loop, main)


def test_a_tls_handshake_has_the_time_of_any_other() -> None:
    assert Limits().handshake_timeout_ms >= 1000 * transport._TLS_HANDSHAKE


@BOTH
@pytest.mark.parametrize("said", ["nothing", "half a ClientHello", "a ClientHello and no more", "no TLS"])
def test_a_tls_handshake_that_does_not_go_on_is_given_up(
    loop: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_TLS_HANDSHAKE", 0.2)
    authority = Authority(tmp_path)
    hello = client_hello()
    data = {
        "nothing": b"",
        "half a ClientHello": hello[: len(hello) // 2],
        "a ClientHello and no more": hello,
        "no TLS": OPEN,
    }[said]

    async def main() -> None:
        store = Store()
        server = await start(store, tls=authority.server_context())
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        await asyncio.wait_for(reader.read(), DEADLINE)  # until the server closes
        assert not store.connections
        await until(lambda: not server.accepting, "the handshake to be over")
        server.close()
        writer.close()

    run(loop, main)


@BOTH
def test_a_tls_peer_that_does_not_answer_the_end_is_dropped(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_TLS_SHUTDOWN", 0.2)
    authority = Authority(tmp_path)

    def client(port: int) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", port))
        sock = authority.client_context().wrap_socket(raw, server_hostname="localhost")
        sock.sendall(OPEN + frame(0, Close()))
        return sock  # and not a word more, neither close_notify nor FIN

    async def main() -> None:
        store = Store()
        server = await start(store, tls=authority.server_context(), limits=Limits(close_timeout_ms=100_000))
        sock = await asyncio.to_thread(client, server.port)
        await until(lambda: store.closed == [None], "the close")
        await until(lambda: not server.hub.wires, "the socket to be dropped")
        sock.close()
        server.close()

    run(loop, main)
