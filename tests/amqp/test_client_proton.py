"""Over sockets: Proton's blocking client against our server, and our client against a server made of Proton."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Condition, Link, Message, SSLDomain, Terminus
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, AtMostOnce, Container, DurableSubscription, EventInjector, Selector
from proton.utils import BlockingConnection, LinkDetached

from enmasse.aio.client import connect
from enmasse.aio.transport import Hub, serve
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Modified
from enmasse.amqp.messages import message as ours
from enmasse.amqp.messages.source_filters import source_filters
from enmasse.amqp.sasl.layer import SaslServer, plain
from enmasse.testing import free_port
from tests.amqp.server_kit import BOTH, Store, Watched, run, start
from tests.certificates import Authority
from tests.kit.waiting import DEADLINE, until


def with_blocking(test: Callable[[BlockingConnection, Store], None], store: Store | None = None, **fields: Any) -> None:
    """Run `test` in a thread with Proton's blocking client, our server on the loop."""
    store = store or Store()

    async def main() -> None:
        server = await start(store, **fields)

        def blocking() -> None:
            connection = BlockingConnection(f"amqp://127.0.0.1:{server.port}", timeout=DEADLINE)
            try:
                test(connection, store)
            finally:
                connection.close()

        await asyncio.to_thread(blocking)
        await until(lambda: store.closed)
        server.close()
        await server.wait_closed()
        assert store.closed == [None]

    run("uvloop", main)


def test_messages() -> None:
    def test(c: BlockingConnection, store: Store) -> None:
        sender = c.create_sender("q")
        for i in range(300):
            sender.send(Message(id=i, body={"i": i}))
        sender.send(Message(body=b"x" * 5_000_000))
        receiver = c.create_receiver("q", credit=20)
        for i in range(300):
            message = receiver.receive(timeout=DEADLINE)
            assert (message.id, message.body) == (i, {"i": i})
            receiver.accept()
        assert len(receiver.receive(timeout=DEADLINE).body) == 5_000_000
        receiver.accept()
        receiver.close()

    with_blocking(test)


def test_released_and_modified() -> None:
    store = Store()

    def test(c: BlockingConnection, store: Store) -> None:
        c.create_sender("q").send(Message(body="x"))
        receiver = c.create_receiver("q", credit=1)
        receiver.receive(timeout=DEADLINE)
        receiver.release(delivered=False)
        receiver.receive(timeout=DEADLINE)
        receiver.release(delivered=True)
        receiver.receive(timeout=DEADLINE)
        receiver.reject()
        receiver.receive(timeout=DEADLINE)
        receiver.accept()

    with_blocking(test, store)
    assert store.outcomes[0] is RELEASED and store.outcomes[3] is ACCEPTED
    assert isinstance(store.outcomes[1], Modified)


def test_termini_options_and_refusal() -> None:
    def test(c: BlockingConnection, store: Store) -> None:
        relay = c.create_sender(None)
        relay.send(Message(address="by-to", body="x"))
        assert len(store.queues["by-to"]) == 1
        c.create_sender("q", options=AtMostOnce()).send(Message(body="presettled"))
        receiver = c.create_receiver("q", name="durable", options=[DurableSubscription(), Selector("a = 1")])
        assert receiver.receive(timeout=DEADLINE).body == "presettled"
        source = store.links["durable"].remote_source
        assert source.durable == 2 and [each.content for each in source_filters(source)] == ["a = 1"]
        with pytest.raises(LinkDetached, match="no such address"):
            c.create_receiver("missing")
        with pytest.raises(LinkDetached, match="no such address"):
            c.create_sender("missing")

    with_blocking(test)


def test_request_and_reply_with_a_dynamic_address() -> None:
    def test(c: BlockingConnection, store: Store) -> None:
        replies = c.create_receiver(None, dynamic=True)
        service = c.create_receiver("service")
        address = replies.link.remote_source.address
        assert address.startswith("dynamic-")
        c.create_sender("service").send(Message(body="ab", reply_to=address, correlation_id=7))
        request = service.receive(timeout=DEADLINE)
        service.accept()
        answer = Message(address=request.reply_to, correlation_id=request.correlation_id, body=request.body * 2)
        c.create_sender(None).send(answer)
        reply = replies.receive(timeout=DEADLINE)
        assert reply.body == "abab" and reply.correlation_id == 7

    with_blocking(test)


def test_drain() -> None:
    def test(c: BlockingConnection, store: Store) -> None:
        receiver = c.create_receiver("q", credit=10)
        receiver.link.drain(0)
        c.wait(lambda: receiver.link.credit == 0, timeout=DEADLINE, msg="the credit to be given back")

    with_blocking(test)


def test_small_frames_and_heartbeats() -> None:
    def test(c: BlockingConnection, store: Store) -> None:
        sender = c.create_sender("q")
        sender.send(Message(body=b"y" * 100_000))
        receiver = c.create_receiver("q")
        assert receiver.receive(timeout=DEADLINE).body == b"y" * 100_000
        receiver.accept()
        connection = store.connections[0]
        beats = 0

        def count(data: bytes) -> None:
            nonlocal beats
            beats += data == b"\x00\x00\x00\x08\x02\x00\x00\x00"

        for wire in wires[0]:
            Watched(wire.transport, count)
        c.wait(lambda: beats >= 3, timeout=DEADLINE, msg="heartbeats")
        assert connection.state == "open"

    wires: list[Any] = []

    class Watching(Store):
        def on_open(self, c: Any) -> None:
            wires.append(list(c.output.on_dirty.__self__.hub.wires))

    with_blocking(test, Watching(), max_frame_size=512, idle_timeout_ms=4000)


def test_tls_and_plain(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    store = Store()

    async def main() -> None:
        server = await serve(
            Hub(),
            "127.0.0.1",
            0,
            lambda peer: store.make(peer, sasl=SaslServer({"PLAIN": plain({"guest": "secret"})})),
            ssl=authority.server_context(),
        )

        def blocking() -> None:
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(str(authority.file))
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
            c = BlockingConnection(
                f"amqps://localhost:{server.port}", timeout=DEADLINE, ssl_domain=domain, user="guest", password="secret"
            )
            c.create_sender("q").send(Message(body="x"))
            c.close()

        await asyncio.to_thread(blocking)
        assert store.connections[0].user == "guest" and len(store.queues["q"]) == 1
        server.close()
        await server.wait_closed()

    run("asyncio", main)


# --- a server made of Proton ------------------------------------------------------------------------------------------


class ProtonServer(MessagingHandler):
    """Queues in memory, as Store, on Proton's container in a thread."""

    def __init__(self) -> None:
        super().__init__(auto_accept=True)
        self.port = 0
        self.ready = threading.Event()
        self.queues: dict[str, deque[Any]] = {}
        self.senders: dict[str, list[Any]] = {}
        self.seen: list[str] = []
        self.container = Container(self)
        self.injector = EventInjector()
        self.container.selectable(self.injector)
        self.thread = threading.Thread(target=self.container.run, daemon=True)

    def __enter__(self) -> ProtonServer:
        self.thread.start()
        assert self.ready.wait(DEADLINE)
        return self

    def __exit__(self, *_: object) -> None:
        self.injector.trigger(ApplicationEvent("quit"))
        self.thread.join(DEADLINE)

    def on_quit(self, event: Any) -> None:
        self.container.stop()

    def on_start(self, event: Any) -> None:
        self.port = free_port()
        event.container.listen(f"127.0.0.1:{self.port}")
        self.ready.set()

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            if link.remote_source.dynamic:
                link.source.address = f"dynamic-{len(self.queues)}"
                link.source.dynamic = True
            else:
                link.source.copy(link.remote_source)
            self.queues.setdefault(link.source.address, deque())
            self.senders.setdefault(link.source.address, []).append(link)
        else:
            link.target.copy(link.remote_target)
            link.source.copy(link.remote_source)
        self.seen.append(link.name)

    def on_link_remote_detach(self, event: Any) -> None:
        event.link.detach()

    def on_message(self, event: Any) -> None:
        address = event.link.target.address or event.message.address
        self.queues.setdefault(address, deque()).append(event.message)
        self.dispatch(address)

    def on_sendable(self, event: Any) -> None:
        self.dispatch(event.link.source.address)

    def on_link_flow(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            self.dispatch(link.source.address)
            if link.drain_mode:
                link.drained()

    def dispatch(self, address: str) -> None:
        queue = self.queues.get(address)
        for link in self.senders.get(address, []):
            while queue and link.state & Link.LOCAL_ACTIVE and link.credit:
                link.send(queue.popleft())

    def on_released(self, event: Any) -> None:
        self.seen.append("released")

    def on_accepted(self, event: Any) -> None:
        self.seen.append("accepted")

    def on_rejected(self, event: Any) -> None:
        self.seen.append("rejected")


@pytest.fixture
def proton_server() -> Iterator[ProtonServer]:
    with ProtonServer() as server:
        yield server


@BOTH
def test_our_client_and_a_server_of_proton(loop: str, proton_server: ProtonServer) -> None:
    async def main() -> None:
        async with connect("127.0.0.1", proton_server.port, idle_timeout=60) as client:
            sender = await client.sender("q")
            for i in range(200):
                assert await sender.send(ours.Message(i, message_id=i), timeout=DEADLINE) is ACCEPTED
            await sender.send(ours.Message(b"z" * 5_000_000), timeout=DEADLINE)
            receiver = await client.receiver("q", credit=30)
            for i in range(200):
                delivery = await receiver.receive(timeout=DEADLINE)
                assert delivery.message.body == i
                await delivery.accept()
            delivery = await receiver.receive(timeout=DEADLINE)
            assert len(delivery.message.body) == 5_000_000
            await delivery.release()
            await until(lambda: proton_server.seen.count("accepted") == 200 and "released" in proton_server.seen)
            await receiver.drain()
            assert receiver.link.credit == 0
            relay = await client.sender(None)
            await relay.send(ours.Message("x", to="by-to"), timeout=DEADLINE)
            presettled = await client.sender("q2", settled=True)
            await presettled.send(ours.Message("y"), timeout=DEADLINE)
            durable = await client.receiver("t", durable_name="sub", selector="a > 1")
            await durable.detach()
            await sender.close()
            await until(lambda: len(proton_server.queues.get("by-to", ())) == 1 == len(proton_server.queues["q2"]))
        assert "sub" in proton_server.seen

    run(loop, main)


def test_our_request_to_a_service_of_proton(proton_server: ProtonServer) -> None:
    class Service(MessagingHandler):
        def on_start(self, event: Any) -> None:
            self.connection = event.container.connect(f"127.0.0.1:{proton_server.port}", reconnect=False)
            event.container.create_receiver(self.connection, "service")
            self.sender = event.container.create_sender(self.connection, None)

        def on_message(self, event: Any) -> None:
            request = event.message
            self.sender.send(
                Message(address=request.reply_to, correlation_id=request.correlation_id, body=request.body.upper())
            )
            self.connection.close()

    async def main() -> None:
        async with connect("127.0.0.1", proton_server.port) as client:
            service = threading.Thread(target=Container(Service()).run, daemon=True)
            service.start()
            reply = await client.request(ours.Message("hello"), "service", timeout=DEADLINE)
            assert reply.body == "HELLO"
            await asyncio.to_thread(service.join, 60)

    run("uvloop", main)


def test_refusal_by_proton() -> None:
    class Refusing(ProtonServer):
        def on_link_opening(self, event: Any) -> None:
            event.link.target.type = Terminus.UNSPECIFIED

        def on_link_local_open(self, event: Any) -> None:
            event.link.condition = Condition("amqp:not-found", "not here")
            event.link.close()

    async def main() -> None:
        with Refusing() as server:
            async with connect("127.0.0.1", server.port) as client:
                with pytest.raises(AmqpError, match="not here"):
                    await client.sender("q")

    run("asyncio", main)


def test_a_reconnecting_handler_connects_again_once_its_stream_ends_without_a_close() -> None:
    """After a close it reads no longer, and without heartbeats it would never notice the end of the socket."""

    class Reconnects(MessagingHandler):
        def __init__(self, url: str) -> None:
            super().__init__()
            self._url = url

        def on_start(self, event: Any) -> None:
            event.container.create_receiver(event.container.connect(self._url), "q")

        def on_leaves(self, event: Any) -> None:
            container.stop()

    store = Store()
    container: Container

    async def main() -> None:
        nonlocal container
        server = await start(store, idle_timeout_ms=0)
        container, commands = Container(Reconnects(f"amqp://127.0.0.1:{server.port}")), EventInjector()
        container.selectable(commands)
        thread = threading.Thread(target=container.run, daemon=True)
        thread.start()
        await until(lambda: "q" in store.queues)
        store.connections[0].hand_on(AmqpError("amqp:connection:forced", "connect again"), 0)
        await until(lambda: len(store.connections) == 2 and store.consumers["q"])
        commands.trigger(ApplicationEvent("leaves"))
        await asyncio.to_thread(thread.join, DEADLINE)
        server.close()
        await server.wait_closed()

    run("uvloop", main)
