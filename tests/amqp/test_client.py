"""The client against a server on our own engine."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

from enmasse.aio.client import Client, ClientReceiver, connect
from enmasse.aio.transport import Server
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Modified, Rejected
from enmasse.amqp.link import FIRST, SECOND, Receiver
from enmasse.amqp.messages.message import Message
from enmasse.amqp.sasl.layer import SaslServer, plain
from enmasse.testing import free_port
from tests.amqp.server_kit import Store, run, start
from tests.kit.waiting import DEADLINE, until


def with_client(test: Any, store: Store | None = None, **fields: Any) -> None:
    """Run `test(client, store)` against a fresh server."""

    async def main() -> None:
        nonlocal store
        store = store or Store()
        server = await start(store, **fields)
        async with connect("127.0.0.1", server.port) as client:
            await test(client, store)
        await until(lambda: store.closed)
        server.close()
        await server.wait_closed()

    run("uvloop", main)


def test_send_and_receive() -> None:
    async def test(client: Client, store: Store) -> None:
        sender = await client.sender("q")
        message = Message({"a": [1, 2.5, None]}, subject="s", message_id="m", application_properties={"k": True})
        assert await sender.send(message, timeout=DEADLINE) is ACCEPTED
        receiver = await client.receiver("q")
        delivery = await receiver.receive(timeout=DEADLINE)
        assert delivery.message.body == {"a": [1, 2.5, None]} and delivery.message.subject == "s"
        assert delivery.message.application_properties == {"k": True} and delivery.message.message_id == "m"
        await delivery.accept()
        await delivery.release()  # too late: nothing
        await until(lambda: store.outcomes == [ACCEPTED])
        assert receiver.receive_nowait() is None

    with_client(test)


def test_outcomes_of_a_receiver() -> None:
    async def test(client: Client, store: Store) -> None:
        sender = await client.sender("q")
        await sender.send(Message("x"), timeout=DEADLINE)
        receiver = await client.receiver("q", credit=1)
        await (await receiver.receive(timeout=DEADLINE)).release()
        await (await receiver.receive(timeout=DEADLINE)).modify(undeliverable_here=True, annotations={"x-opt-a": 1})
        await (await receiver.receive(timeout=DEADLINE)).reject("amqp:decode-error", "bad")
        await (await receiver.receive(timeout=DEADLINE)).accept()
        await until(lambda: len(store.outcomes) == 4)
        released, modified, rejected, accepted = store.outcomes
        assert released is RELEASED and accepted is ACCEPTED
        assert isinstance(modified, Modified) and modified.delivery_failed and modified.undeliverable_here
        assert modified.message_annotations == {"x-opt-a": 1}
        assert isinstance(rejected, Rejected) and rejected.error is not None
        assert (rejected.error.condition, rejected.error.description) == ("amqp:decode-error", "bad")

    with_client(test)


def test_outcomes_of_a_sender() -> None:
    async def test(client: Client, store: Store) -> None:
        sender = await client.sender("full")
        outcome = await sender.send(Message("x"), timeout=DEADLINE)
        assert isinstance(outcome, Rejected) and outcome.error is not None
        assert outcome.error.description == "full"
        silent = await client.sender("silent")
        with pytest.raises(TimeoutError, match=r"waited 0\.05 s for the outcome of a message to silent"):
            await silent.send(Message("x"), timeout=0.05)
        waiting = asyncio.ensure_future(silent.send(Message("y")))
        await until(lambda: silent.link.unsettled == 2)
        await silent.close()
        with pytest.raises(AmqpError, match="detached"):
            await waiting
        with pytest.raises(AmqpError):
            await silent.send(Message("z"))
        presettled = await client.sender("q", settled=True)
        assert await presettled.send(Message("gone"), timeout=DEADLINE) is None
        assert await sender.send(Message("also"), settled=True, timeout=DEADLINE) is None

    with_client(test)


def test_a_run_is_sent_as_far_as_there_is_credit_and_has_an_outcome_for_each() -> None:
    async def test(client: Client, store: Store) -> None:
        sender, full = await client.sender("q"), await client.sender("full")
        payloads = [Message(n).encode() for n in range(150)]
        await until(lambda: sender.credit == full.credit == 100)
        run = sender.send_run(payloads)
        assert run.count == 100
        with pytest.raises(AmqpError, match="no credit"):
            sender.send_run(payloads[100:])
        await run.done
        assert not run.others and list(store.queues["q"]) == payloads[:100]
        alone = asyncio.ensure_future(full.send(Message("one by one")))
        await asyncio.sleep(0)
        refused = full.send_run(payloads[:3])
        await refused.done
        assert list(refused.others) == [0, 1, 2]
        assert all(isinstance(state, Rejected) for state in [*refused.others.values(), await alone])
        large = sender.send_run([Message("x" * 300_000).encode(), b"never"])
        await large.done
        assert large.count == 1 and not large.others
        with pytest.raises(AmqpError, match="settled messages only"):
            (await client.sender("q", settled=True)).send_run(payloads)

    with_client(test)


def test_a_run_on_a_link_that_is_lost_raises() -> None:
    async def test(client: Client, store: Store) -> None:
        silent = await client.sender("silent")
        await silent.wait_credit(timeout=DEADLINE)
        run = silent.send_run([b"x"] * 3)
        await until(lambda: silent.link.unsettled == 3)
        await silent.close()
        with pytest.raises(AmqpError, match="detached"):
            await run.done
        with pytest.raises(AmqpError, match="detached"):
            silent.send_run([b"x"])

    with_client(test)


@pytest.mark.parametrize("mode", [FIRST, SECOND])
def test_a_receiver_takes_runs_and_accepts_them_together(mode: int) -> None:
    async def test(client: Client, store: Store) -> None:
        sender = await client.sender("q")
        payloads = [Message(n).encode() for n in range(50)]
        await sender.wait_credit(timeout=DEADLINE)
        await sender.send_run(payloads).done
        receiver = await client.receiver("q", credit=0, rcv_settle_mode=mode)
        receiver.take_runs()
        receiver.grant(50)
        await until(lambda: receiver.fetched == 50)
        first = receiver.receive_all(1)
        rest = receiver.receive_all(1 << 20)
        assert [one.payload for one in first + rest] == payloads and len(first) == 1
        assert receiver.link.bytes == sum(map(len, payloads)) and receiver.receive_all(1) == []
        await first[0].release()
        receiver.accept_all(first + rest)
        receiver.accept_all(rest)  # too late: nothing
        await until(lambda: len(store.outcomes) == 50)
        assert store.outcomes.count(ACCEPTED) == 49 and store.outcomes.count(RELEASED) == 1

    with_client(test)


def test_refused_links() -> None:
    async def test(client: Client, store: Store) -> None:
        for attach in (client.sender, client.receiver):
            with pytest.raises(AmqpError, match="amqp:not-found: no such address"):
                await attach("missing")

    with_client(test)


def test_attach_that_is_never_answered() -> None:
    class Mute(Store):
        def on_attach(self, link: Any) -> None:
            pass

    async def test(client: Client, store: Store) -> None:
        with pytest.raises(TimeoutError, match=r"the attach of a sender to q to be answered"):
            await client.sender("q", timeout=0.05)
        with pytest.raises(TimeoutError, match=r"receiver from a dynamic address"):
            await client.receiver(None, dynamic=True, timeout=0.05)

    with_client(test, Mute())


def test_many_wait_for_credit() -> None:
    async def test(client: Client, store: Store) -> None:
        store.window = 0
        sender = await client.sender("q")
        assert sender.credit == 0
        with pytest.raises(TimeoutError, match="credit to send to q"):
            await sender.send(Message("x"), timeout=0.05)
        with pytest.raises(AmqpError, match="no credit"):
            sender.send_nowait(Message("x"))
        tasks = [asyncio.ensure_future(sender.send(Message(i), settled=i % 2 == 0)) for i in range(20)]
        await until(lambda: sender.waiting == 20)
        tasks.pop(3).cancel()
        link = store.links[sender.link.name]
        assert isinstance(link, Receiver)
        for _ in range(19):
            link.grant(1)
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*tasks), DEADLINE)
        assert len(store.queues["q"]) == 19

    with_client(test)


def test_async_for_ends_when_closed_and_raises_when_lost() -> None:
    async def test(client: Client, store: Store) -> None:
        sender = await client.sender("q")
        for i in range(30):
            await sender.send(Message(i), timeout=DEADLINE)
        receiver = await client.receiver("q", credit=7)
        bodies = []
        async for delivery in receiver:
            bodies.append(delivery.message.body)
            await delivery.accept()
            if len(bodies) == 20:
                await receiver.close()
        assert bodies == list(range(20))
        await until(lambda: len(store.queues["q"]) == 10, "what was fetched and not seen to be given back")
        other = await client.receiver("nothing here")
        waiting = asyncio.ensure_future(anext(other))
        await until(lambda: other.waiting == 1)
        store.links[other.link.name].detach(AmqpError("amqp:resource-deleted", "the queue is gone"))
        with pytest.raises(AmqpError, match="the queue is gone"):
            await waiting

    with_client(test)


def test_cancelled_receive_loses_nothing() -> None:
    async def test(client: Client, store: Store) -> None:
        receiver = await client.receiver("q")
        with pytest.raises(TimeoutError, match=r"waited 0\.02 s for a message from q"):
            await receiver.receive(timeout=0.02)
        first, second = (asyncio.ensure_future(receiver.receive()) for _ in range(2))
        await until(lambda: receiver.waiting == 2)
        sender = await client.sender("q")
        await sender.send(Message("x"), timeout=DEADLINE)
        first.cancel()
        delivery = await asyncio.wait_for(second, DEADLINE) if not first.done() or first.cancelled() else first.result()
        assert delivery.message.body == "x"
        second.cancel()

    with_client(test)


def test_drain() -> None:
    async def test(client: Client, store: Store) -> None:
        sender = await client.sender("q")
        for i in range(5):
            await sender.send(Message(i), timeout=DEADLINE)
        receiver = await client.receiver("q", credit=0)
        receiver.grant(20)
        await receiver.drain()
        assert receiver.link.credit == 0
        assert receiver.fetched == 5
        await receiver.drain()

    with_client(test)


def test_large_messages_stay_with_the_peer_while_much_waits_whatever_the_credit() -> None:
    sizes = [1 << 20, 10, 0, 3 << 20, 100_000, 50] * 7  # of one frame and of several
    bodies = [bytes([n]) * size for n, size in enumerate(sizes)]
    most = 2 << 20

    async def test(client: Client, store: Store) -> None:
        queue = store.queues["q"] = deque(Message(body).encode() for body in bodies)

        async def crowded() -> ClientReceiver:
            receiver = await client.receiver("q", credit=1000, most_waiting=most)
            await until(lambda: client.session.incoming.crowded, "pieces to be left with the peer")
            assert receiver.link.credit > 900
            return receiver

        await (await crowded()).close()
        await until(lambda: len(queue) == len(bodies), "all to be given back")
        assert not client.connection.reading_paused
        queue.clear()
        queue.extend(Message(body).encode() for body in bodies)
        receiver = await crowded()
        taken = 0
        for body in bodies:
            # what waits, a message that was begun then, pieces that were not taken, and what was read with them
            most_here = most + max(sizes) + client.connection.limits.max_streamed + (1 << 20)
            assert receiver.link.bytes - taken < most_here
            delivery = await receiver.receive(timeout=DEADLINE)
            taken += len(delivery.payload)
            assert delivery.message.body == body
            await delivery.accept()
        await until(lambda: store.outcomes.count(ACCEPTED) == len(bodies))
        assert not receiver.fetched and not client.connection.reading_paused

    with_client(test)


def test_a_message_that_is_larger_than_allowed_ends_the_link() -> None:
    async def test(client: Client, store: Store) -> None:
        receiver = await client.receiver("q", credit=10, most_waiting=1000, max_message_size=200_000)
        store.queues["q"].extend(Message(bytes(size)).encode() for size in (150_000, 250_000))
        store.dispatch("q")
        assert (await receiver.receive(timeout=DEADLINE)).message.body == bytes(150_000)
        with pytest.raises(AmqpError, match="more than 200000 bytes"):
            await receiver.receive(timeout=DEADLINE)

    with_client(test)


def test_durable_dynamic_and_other_options() -> None:
    async def test(client: Client, store: Store) -> None:
        durable = await client.receiver("t", durable_name="sub-1", selector="x > 1", capabilities=("topic",))
        source = store.links["sub-1"].remote_source
        assert (source.durable, source.expiry_policy) == (2, "never")
        assert source.capabilities == ("topic",) and len(source.filter) == 1
        await durable.detach()
        assert store.detached[-1] == ("sub-1", None, False)
        again = await client.receiver("t", durable_name="sub-1")
        await again.close()
        assert store.detached[-1] == ("sub-1", None, True)
        await again.close()
        dynamic = await client.receiver(None, dynamic=True)
        assert dynamic.address is not None and dynamic.address.startswith("dynamic-")
        browser = await client.receiver("q", browse=True)
        assert store.links[browser.link.name].remote_source.distribution_mode == "copy"
        relay = await client.sender(None)
        assert await relay.send(Message("x", to="by-to"), timeout=DEADLINE) is ACCEPTED
        assert len(store.queues["by-to"]) == 1

    with_client(test)


def test_request_and_reply() -> None:
    async def test(client: Client, store: Store) -> None:
        requests = await client.receiver("service")

        async def serve() -> None:
            async for delivery in requests:
                request = delivery.message
                await delivery.accept()
                relay = await client.sender(request.reply_to)
                reply = Message(request.body * 2, correlation_id=request.correlation_id)
                await relay.send(reply, timeout=DEADLINE)

        serving = asyncio.ensure_future(serve())
        replies = await asyncio.gather(*[client.request(Message(i), "service") for i in range(20)])
        assert [reply.body for reply in replies] == [2 * i for i in range(20)]
        serving.cancel()
        with pytest.raises(TimeoutError, match="a reply from nobody"):
            await client.request(Message(1), "nobody", timeout=0.5)
        with pytest.raises(AmqpError, match="not accepted"):
            await client.request(Message(1), "full")

    with_client(test)


def test_plain_by_url() -> None:
    async def main() -> None:
        store = Store()
        server: Server = await start(store, sasl=None)
        server.close()

        def make(peer: Any) -> Any:
            return store.make(peer, sasl=SaslServer({"PLAIN": plain({"us er": "p@ss/word"})}))

        from enmasse.aio.transport import Hub, serve

        server = await serve(Hub(), "127.0.0.1", 0, make)
        async with connect(f"amqp://us%20er:p%40ss%2Fword@127.0.0.1:{server.port}"):
            assert store.connections[-1].user == "us er"
        with pytest.raises(AmqpError, match=rf"127\.0\.0\.1:{server.port}: authentication by PLAIN failed: wrong"):
            await connect("127.0.0.1", server.port, user="us er", password="wrong").open()
        with pytest.raises(AmqpError, match="offers PLAIN, the client has ANONYMOUS"):
            await connect("127.0.0.1", server.port).open()
        server.close()
        await server.wait_closed()

    run("asyncio", main)


def test_peers_that_are_none() -> None:
    async def main() -> None:
        held: list[Any] = []
        silent = await asyncio.start_server(lambda r, w: held.append((r, w)), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        with pytest.raises(TimeoutError, match=rf"waited 0\.1 s for 127\.0\.0\.1:{port} to open"):
            await connect("127.0.0.1", port, timeout=0.1).__aenter__()

        async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(8)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        web = await asyncio.start_server(http, "127.0.0.1", 0)
        port = web.sockets[0].getsockname()[1]
        with pytest.raises(AmqpError, match="another protocol"):
            await connect("127.0.0.1", port).open()
        silent.close()
        web.close()
        port = free_port()
        with pytest.raises(OSError):
            await connect("127.0.0.1", port).open()

    run("asyncio", main)


def test_connection_lost() -> None:
    async def main() -> None:
        store = Store()
        server = await start(store)
        client = await connect("127.0.0.1", server.port).open()
        sender = await client.sender("silent")
        receiver = await client.receiver("q")
        sending = asyncio.ensure_future(sender.send(Message("x")))
        replying = asyncio.ensure_future(client.request(Message("x"), "silent"))
        await until(lambda: store.connections[0].sessions()[0].unsettled_in()[1])
        for wire in list(server.hub.wires):
            assert wire.transport is not None
            wire.transport.abort()
        for waiting in (sending, replying, receiver.receive(timeout=DEADLINE)):
            with pytest.raises(AmqpError):
                await waiting
        with pytest.raises(AmqpError):
            await client.sender("q")
        assert client.error is not None
        await client.close()
        server.close()

    run("uvloop", main)


@pytest.mark.parametrize("url", ["http://localhost", "amqp://", "tcp://localhost:5672"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="not an AMQP URL"):
        connect(url)


def test_url_defaults() -> None:
    assert (connect().host, connect().port) == ("localhost", 5672)
    assert connect("amqps://example").port == 5671
    assert connect("example:1234").port == 1234
    assert connect("example").host == "example"
