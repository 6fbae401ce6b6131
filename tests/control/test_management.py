"""Management requests against a node that answers late, wrongly, in another order, or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import proton
import pytest

from enmasse.control import (
    Artemis,
    ControlConnection,
    ControlLink,
    ControlReceiver,
    ControlSender,
    Delivery,
    Dispatch,
    LinkClosed,
    Listener,
    RequestFailed,
    RequestTimeout,
    connect,
    listen,
)
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until


class Node:
    """A management node that keeps requests until it is told what to do with them."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.automatic = True
        self.replies: ControlSender | None = None
        self.most = 0
        self.connections: list[ControlConnection] = []

    def accepted(self, connection: ControlConnection) -> None:
        self.connections.append(connection)
        connection.on_attach = self._attach

    def _attach(self, link: ControlLink) -> None:
        if isinstance(link, ControlSender):
            self.replies = link
            link.proton_link.source.address = "reply-1"
            link.proton_link.open()
            link.connection.wake()
            return
        assert isinstance(link, ControlReceiver)
        link.accept()
        link.window = 1000
        link.on_message = self._take
        link.grant(1000)

    def _take(self, delivery: Delivery) -> None:
        delivery.accept()
        assert delivery.settled and delivery.message.reply_to == "reply-1"
        self.requests.append(delivery.message)
        self.most = max(self.most, len(self.requests))
        if self.automatic:
            self.answer(self.requests.pop())

    def answer(self, request: Any, status: int = 200, description: str = "OK", body: Any = None) -> None:
        assert self.replies is not None
        reply = proton.Message(
            correlation_id=request.correlation_id,
            properties={"statusCode": status, "statusDescription": description},
            body={"name": request.properties.get("name")} if body is None else body,
        )
        self.replies.send(reply, settled=True)


@asynccontextmanager
async def node() -> AsyncIterator[tuple[Node, Listener]]:
    made = Node()
    listener = await listen("127.0.0.1", 0, made.accepted, container="router")
    try:
        yield made, listener
    finally:
        await listener.close()


@asyncio_test
async def test_operations_of_a_router() -> None:
    async with node() as (router, listener):
        connection = await connect("127.0.0.1", listener.port, container="agent")
        management = await Dispatch(connection).opened()
        assert await management.read("address", "a") == {"name": "a"}
        router.automatic = False
        query = asyncio.ensure_future(management.query("address", ["name", "prefix"]))
        await until(lambda: router.requests)
        request = router.requests.pop()
        assert request.properties == {"operation": "QUERY", "entityType": "address"}
        assert request.body == {"attributeNames": ["name", "prefix"]}
        router.answer(request, body={"attributeNames": ["name", "prefix"], "results": [["a", "x"], ["b", None]]})
        assert await query == [{"name": "a", "prefix": "x"}, {"name": "b", "prefix": None}]
        delete = asyncio.ensure_future(management.delete("address", "gone"))
        await until(lambda: router.requests)
        router.answer(router.requests.pop(), 404, "No entity with name=gone")
        with pytest.raises(RequestFailed, match="No entity with name=gone") as failed:
            await delete
        assert failed.value.status == 404
        connection.close()


@asyncio_test
async def test_at_most_so_many_are_outstanding_and_all_are_answered_in_any_order() -> None:
    async with node() as (router, listener):
        router.automatic = False
        connection = await connect("127.0.0.1", listener.port, container="agent")
        management = await Dispatch(connection, outstanding=20).opened()
        reads = [asyncio.ensure_future(management.read("address", str(number))) for number in range(100)]
        answered = 0
        while answered < 100:
            await until(lambda: bool(router.requests) and management.waiting + answered == 100)
            while router.requests:  # the newest first
                router.answer(router.requests.pop())
                answered += 1
        assert [found["name"] for found in await asyncio.gather(*reads)] == [str(number) for number in range(100)]
        assert router.most <= 20
        connection.close()


@asyncio_test
async def test_a_request_without_an_answer_times_out_alone_and_a_late_answer_is_ignored() -> None:
    async with node() as (router, listener):
        router.automatic = False
        connection = await connect("127.0.0.1", listener.port, container="agent")
        management = await Dispatch(connection, outstanding=1, timeout=DEADLINE).opened()
        # This one alone has little time: a slow machine must not let the other one be late too.
        late = management.request({"operation": "READ", "type": "address", "name": "late"}, {}, timeout=0.1)
        queued = asyncio.ensure_future(management.read("address", "queued"))
        with pytest.raises(RequestTimeout):
            await late
        await until(lambda: len(router.requests) == 2)
        router.answer(router.requests[0])
        router.answer(router.requests[1])
        assert await queued == {"name": "queued"}
        assert management.waiting == 0
        connection.close()


@asyncio_test
async def test_a_node_that_does_not_answer_the_attach() -> None:
    attached: list[ControlLink] = []

    def accepted(connection: ControlConnection) -> None:
        connection.on_attach = attached.append

    listener = await listen("127.0.0.1", 0, accepted, container="router")
    connection = await connect("127.0.0.1", listener.port, container="agent")
    with pytest.raises(RequestTimeout, match="does not attach links"):
        await Dispatch(connection, timeout=0.1).opened()
    await until(lambda: len(attached) == 2)
    connection.close()
    await listener.close()


@asyncio_test
async def test_a_node_that_refuses_requests_keeps_no_link_for_replies() -> None:
    attached: list[ControlLink] = []

    def attach(link: ControlLink) -> None:
        attached.append(link)
        if isinstance(link, ControlReceiver):
            link.refuse("amqp:unauthorized-access", "not for you")
        else:
            link.accept()

    def accepted(connection: ControlConnection) -> None:
        connection.on_attach = attach

    listener = await listen("127.0.0.1", 0, accepted, container="router")
    connection = await connect("127.0.0.1", listener.port, container="agent")
    with pytest.raises(LinkClosed, match="not for you"):
        await Dispatch(connection).opened()
    await until(lambda: len(attached) == 2 and all(link.closed for link in attached), "both links are closed")
    connection.close()
    await listener.close()


@asyncio_test
async def test_requests_fail_with_the_connection() -> None:
    async with node() as (router, listener):
        router.automatic = False
        connection = await connect("127.0.0.1", listener.port, container="agent")
        management = await Dispatch(connection, outstanding=2).opened()
        reads = [asyncio.ensure_future(management.read("address", str(number))) for number in range(5)]
        await until(lambda: len(router.requests) == 2)
        router.connections[0].abort()
        for read in reads:
            with pytest.raises(LinkClosed):
                await read
        with pytest.raises(LinkClosed):
            await management.read("address", "later")


@asyncio_test
async def test_replies_that_make_no_sense() -> None:
    async with node() as (router, listener):
        router.automatic = False
        connection = await connect("127.0.0.1", listener.port, container="agent")
        management = await Dispatch(connection, timeout=DEADLINE).opened()
        query = asyncio.ensure_future(management.query("address"))
        await until(lambda: router.requests)
        assert router.replies is not None
        router.replies.send(b"\xff\xff\xff", settled=True)  # no message
        router.replies.send(proton.Message(correlation_id="unknown"), settled=True)
        router.answer(router.requests.pop(), body="not a map")
        with pytest.raises(Exception, match="no results"):
            await query
        read = asyncio.ensure_future(management.read("address", "a"))
        await until(lambda: router.requests)
        router.replies.send(proton.Message(correlation_id=router.requests.pop().correlation_id), settled=True)
        with pytest.raises(RequestFailed, match="no description"):
            await read
        connection.close()


@asyncio_test
async def test_a_request_that_cannot_be_encoded_fails_alone() -> None:
    async with node() as (_, listener):
        connection = await connect("127.0.0.1", listener.port, container="agent")
        management = await Dispatch(connection).opened()
        with pytest.raises(Exception, match="cannot be encoded"):
            await management.create("address", "a", {"bad": object()})
        assert await management.read("address", "b") == {"name": "b"}
        large = {"text": "x" * 100_000}
        await management.create("address", "c", large)
        connection.close()


@asyncio_test
async def test_operations_of_a_broker() -> None:
    async with node() as (broker, listener):
        broker.automatic = False
        connection = await connect("127.0.0.1", listener.port, container="controller")
        management = await Artemis(connection).opened()

        async def ask(work: Any, succeeded: bool, *body: Any) -> Any:
            task = asyncio.ensure_future(work)
            await until(lambda: broker.requests)
            request = broker.requests.pop()
            assert broker.replies is not None
            reply = proton.Message(
                correlation_id=request.correlation_id,
                properties={"_AMQ_OperationSucceeded": succeeded},
                body=json.dumps(body) if body else None,
            )
            broker.replies.send(reply, settled=True)
            return request, await task

        request, names = await ask(management.invoke("broker", "getQueueNames", "a", 1), True, ["q1", "q2"])
        assert request.properties == {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "getQueueNames"}
        assert (request.body, names) == ('["a", 1]', ["q1", "q2"])
        request, count = await ask(management.attribute("queue.q1", "messageCount"), True, 7)
        assert request.properties == {"_AMQ_ResourceName": "queue.q1", "_AMQ_Attribute": "messageCount"}
        assert count == 7
        assert (await ask(management.invoke("broker", "destroyQueue", "q1"), True))[1] is None
        with pytest.raises(RequestFailed, match="AMQ229017: Queue q1 does not exist"):
            await ask(management.invoke("broker", "destroyQueue", "q1"), False, "AMQ229017: Queue q1 does not exist")
        connection.close()
