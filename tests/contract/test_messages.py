"""Messages of queues by management, as the console looks at them and works on them: each product in its own way."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.amqp.messages.message import Message as Decoded
from enmasse.control import Artemis, ControlError, RequestFailed, connect
from enmasse.engines.messages.product import Order, Product, WaitingMessage
from enmasse.engines.messages.products import product_at
from enmasse.process.settings import host_port
from tests.broker.harness import Management, attach, bodies, flush
from tests.contract.conftest import Expected
from tests.contract.engines import Broker
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

BYTES = 1000


@dataclass
class Work:
    """Implements Progress."""

    done: int = 0
    stopped: bool = False


class Managed(NamedTuple):
    """Management of the broker by its product."""

    product: Product
    node: Artemis

    async def browse(
        self, queue: str, after: int = 0, limit: int = 50, selector: str = ""
    ) -> tuple[list[WaitingMessage], bool]:
        return await self.product.browse(self.node, queue, after, limit, BYTES, selector)

    async def bodies(self, queue: str) -> list[object]:
        rows, more = await self.browse(queue)
        assert not more
        return [body(row) for row in rows]

    async def work(self, order: Order) -> int:
        progress = Work()
        await self.product.work(self.node, order, progress)
        return progress.done


def body(row: WaitingMessage) -> object:
    assert row.payload is not None
    found = Decoded.decode(row.payload).body
    return getattr(found, "value", found)


@asynccontextmanager
async def managed(broker: Broker) -> AsyncIterator[Managed]:
    host, port = host_port(broker.url)
    connection = await connect(host, port, container="console")
    try:
        product = product_at(connection)
        assert product is not None
        yield Managed(product, await Artemis(connection).opened())
    finally:
        connection.close()
        await connection.wait_closed()


def send(c: BlockingConnection, queue: str, *bodies: object, **more: object) -> None:
    sender = c.create_sender(queue)
    for each in bodies:
        sender.send(Message(each, durable=True, **more))
    sender.close()


@asyncio_test
async def test_messages_are_shown_in_pages_with_ids_and_content(
    broker: Broker, c: BlockingConnection, q: str, expected: Expected
) -> None:
    send(c, q, "one", "two", id="m1")
    send(c, q, "urgent", priority=9)
    send(c, q, "x" * 3 * BYTES)
    async with managed(broker) as m:
        first, more = await m.browse(q, limit=3)
        assert more
        order = expected(embedded=["one", "two", "urgent"], artemis=["urgent", "one", "two"])
        assert [body(row) for row in first] == order
        assert {body(row): row.priority for row in first} == {"one": 4, "two": 4, "urgent": 9}
        assert [row.size for row in first if row.size is None] == []
        (long,), more = await m.browse(q, after=first[-1].id)
        assert not more and long.cut and long.payload is not None and BYTES < len(long.payload) < 2 * BYTES
        assert len({row.id for row in (*first, long)}) == 4
        (found,), more = await m.browse(q, selector="JMSPriority > 4")
        assert (body(found), more) == ("urgent", False)
        plain, more = await m.browse(q, limit=2, selector="JMSPriority = 4")
        assert [body(row) for row in plain] == ["one", "two"] and more


@asyncio_test
async def test_chosen_messages_are_moved_and_removed(
    broker: Broker, c: BlockingConnection, q: str, m: Management
) -> None:
    to = f"{q}-to"
    m.queue(to)
    send(c, q, "a", "b", "c", "d", "e", "f")
    send(c, q, "u", "v", priority=7)
    async with managed(broker) as managing:
        rows, _ = await managing.browse(q)
        ids = {body(row): row.id for row in rows}
        assert await managing.work(Order(q, "move", ids=[ids["b"], ids["c"]], to=to)) == 2
        assert await managing.bodies(to) == ["b", "c"]
        assert await managing.work(Order(q, "remove", ids=[ids["a"], ids["a"], 999_999_999])) == 1
        assert await managing.work(Order(q, "move", selector="JMSPriority > 4", to=to)) == 2
        assert await managing.work(Order(q, "remove", limit=1)) == 1
        assert await managing.bodies(q) == ["e", "f"]
        assert await managing.work(Order(q, "move", limit=1, to=to)) == 1
        assert await managing.work(Order(to, "remove", selector="JMSDeliveryMode = 'PERSISTENT'")) == 5
        assert await managing.work(Order(q, "remove")) == 1
        assert await managing.bodies(q) == await managing.bodies(to) == []
    m("destroyQueue", to, True, True)


@asyncio_test
async def test_dead_letters_go_back_to_the_queues_that_are_meant(
    broker: Broker, c: BlockingConnection, q: str, m: Management
) -> None:
    dead, other = f"{q}-dead", f"{q}-other"
    for name in (dead, other):
        m.queue(name)
    for name in (q, other):
        m.settings(name, deadLetterAddress=dead)
        send(c, name, f"from {name} 1", f"from {name} 2")
        receiver = c.create_receiver(name, credit=2)
        for _ in range(2):
            receiver.receive()
            receiver.reject()
        receiver.close()
    send(c, dead, "sent here")
    async with managed(broker) as managing:
        meant = Order(dead, "redrive", here=[q])
        assert await managing.work(meant._replace(limit=1)) == 1
        rows, _ = await managing.browse(dead)
        ids = {body(row): row.id for row in rows}
        chosen = [ids[f"from {q} 2"], ids[f"from {other} 1"], ids["sent here"]]
        assert await managing.work(meant._replace(ids=chosen)) == 1
        assert await managing.bodies(q) == [f"from {q} 1", f"from {q} 2"]
        assert await managing.work(Order(dead, "redrive", here=[q, other])) == 2
        assert await managing.bodies(other) == [f"from {other} 1", f"from {other} 2"]
        assert await managing.bodies(dead) == ["sent here"]
    for name in (dead, other):
        m("destroyQueue", name, True, True)


@asyncio_test
async def test_what_cannot_be_is_refused(broker: Broker, q: str) -> None:
    async with managed(broker) as managing:
        for order in (
            Order(q, "move", to=q),
            Order(q, "move", to=f"{q}-none"),
            Order(q, "remove", selector="a ="),
            Order(f"{q}-none", "remove"),
        ):
            with pytest.raises(RequestFailed):
                await managing.work(order)


@asyncio_test
async def test_a_long_queue_is_shown_as_far_as_management_lists_it(
    broker: Broker, c: BlockingConnection, q: str, expected: Expected
) -> None:
    sender = c.create_sender(q)
    for number in range(205):
        sender.link.send(Message(number))
    flush(sender)
    async with managed(broker) as managing:

        async def stored() -> bool:
            return bool(await managing.node.attribute(f"queue.{q}", "messageCount") == 205)

        await until(stored, "all messages are in the queue")
        rows, more = await managing.browse(q, limit=200)
        assert more and [body(row) for row in rows] == list(range(200))
        try:
            rest, more = await managing.browse(q, after=rows[-1].id)
        except RequestFailed as error:
            assert "first 200" in str(error)
            rest = []
        assert [body(row) for row in rest] == expected(embedded=[200, 201, 202, 203, 204], artemis=[])
        assert await managing.work(Order(q, "remove", limit=203)) == 203
        assert await managing.bodies(q) == [203, 204]


@asyncio_test
async def test_names_of_selectors_that_choose_nothing_are_refused(broker: Broker, q: str, expected: Expected) -> None:
    async with managed(broker) as managing:
        try:
            done: object = await managing.work(Order(q, "remove", selector="JMSMessageID = 'm'"))
        except RequestFailed as error:
            done = "AMQUserID" in str(error)
        assert done == expected(embedded=0, artemis=True)


@asyncio_test
@pytest.mark.slow
async def test_a_move_that_a_kill_interrupts_loses_nothing(broker: Broker, expected: Expected) -> None:
    q, count = f"q-{uuid.uuid4()}", 4000
    to = f"{q}-to"
    with broker.manage() as m, broker.connect() as c:
        for name in (q, to):
            m.queue(name)
        sender = c.create_sender(q)
        for number in range(count):
            sender.link.send(Message(number, durable=True))
        c.wait(lambda: m.count(q) == count)
    async with managed(broker) as managing:
        moving = asyncio.ensure_future(managing.work(Order(q, "move", to=to)))
        while await managing.node.attribute(f"queue.{to}", "messageCount") == 0:
            assert not moving.done()
        await asyncio.to_thread(broker.kill)
        with contextlib.suppress(ControlError):
            await moving
    broker.start()  # by the main thread: with one of a pool its child would end
    with broker.manage() as m, broker.connect() as c:
        found = [each for name in (q, to) for each in bodies(attach(c, name, 100), m.count(name))]
        assert set(found) == set(range(count))
        assert len(found) == count or expected(embedded=True, artemis=False), "some are in both queues"
        for name in (q, to):
            m("destroyQueue", name, True, True)
