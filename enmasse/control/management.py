"""Request and reply with a management node: Dispatch's `$management` and Artemis' `activemq.management`.

Each request has a correlation-id and a timeout; at most a bounded number is outstanding, the others wait in order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

import proton
from cproton import (
    pn_message,
    pn_message_decode,
    pn_message_free,
    pn_message_get_correlation_id,
    pn_message_properties,
)

from enmasse.amqp.codec import codec
from enmasse.amqp.codec.errors import AmqpError as CodecError
from enmasse.amqp.codec.types import Described
from enmasse.control.connection import ControlConnection
from enmasse.control.errors import (
    DECODE_ERROR,
    INVALID_FIELD,
    ControlError,
    LinkClosed,
    RequestFailed,
    RequestTimeout,
)
from enmasse.control.link import ControlReceiver, ControlSender, Delivery, decode
from enmasse.logs import log
from enmasse.storage.decoding import decode_any

OUTSTANDING = 250
TIMEOUT = 10.0
REPLY_WINDOW = 500
ARTEMIS = "apache-activemq-artemis"
"""`product` that brokers with Artemis' management state, embedded ones included."""
_AMQP_VALUE = 0x77
_VALUE_SECTION = b"\x00\x53\x77"


class Reply:
    """A management node's answer: application properties, and the body, which is decoded when it is asked for."""

    __slots__ = ("_data", "properties")

    def __init__(self, properties: Mapping[str, Any], data: bytes) -> None:
        self.properties = properties
        self._data = data

    @property
    def digest(self) -> int:
        """Digest of the body's bytes: replies with the same digest have the same body (within this process)."""
        return hash(self.data)

    @property
    def data(self) -> bytes:
        """The body's bytes."""
        return self._data[max(0, self._data.find(_VALUE_SECTION)) :]

    @property
    def body(self) -> Any:
        """Return the body, decoded. Raises ControlError(amqp:decode-error)."""
        return _body(self._data)


class Management:
    """A requester on one connection. Dead with the connection: make a new one with the next.

    `node` is the target of the requests. Replies come to an address the peer makes for us (dynamic source).
    """

    def __init__(
        self, connection: ControlConnection, node: str, *, outstanding: int = OUTSTANDING, timeout: float = TIMEOUT
    ) -> None:
        self.connection = connection
        self.node = node
        self.outstanding = outstanding
        self.timeout = timeout
        self._loop = connection.loop
        self._numbers = itertools.count(1)
        self._queue: deque[tuple[asyncio.Future[Reply], Mapping[str, Any], Any, float]] = deque()
        self._sent: dict[str, tuple[asyncio.Future[Reply], float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._reply_to: str | None = None
        self._reply = pn_message()
        self._receiver: ControlReceiver = connection.receiver(None, dynamic=True, window=REPLY_WINDOW)
        self._receiver.on_message = self._on_reply
        self._receiver.on_closed = self._on_closed
        self._sender: ControlSender = connection.sender(node)
        self._sender.on_credit = self._send_queued
        self._sender.on_closed = self._on_closed
        self._error: ControlError | None = None

    def __del__(self) -> None:
        if hasattr(self, "_reply"):
            pn_message_free(self._reply)

    async def opened(self) -> Self:
        """Wait until both links are attached. Raises LinkClosed, RequestTimeout; then both are closed."""
        try:
            async with asyncio.timeout(self.timeout):
                await self._receiver.opened()
                await self._sender.opened()
            address = self._receiver.remote_source
            if not address:
                raise LinkClosed("amqp:not-implemented", "the peer gave no address for replies")
        except BaseException as error:  # also if the caller no longer waits
            self.close()
            if isinstance(error, TimeoutError):
                text = f"{self.connection.peer} does not attach links to {self.node}"
                raise RequestTimeout("timeout", text) from None
            raise
        self._reply_to = address
        self._send_queued()
        return self

    def request(self, properties: Mapping[str, Any], body: Any, timeout: float | None = None) -> asyncio.Future[Reply]:
        """Queue a request, to be sent when fewer than `outstanding` are unanswered; the future has the reply.

        Raises (in the future) RequestTimeout, LinkClosed or ConnectionLost: what the request did is then unknown.
        """
        future: asyncio.Future[Reply] = self._loop.create_future()
        if self._error is not None:
            future.set_exception(self._error)
            return future
        self._queue.append((future, properties, body, timeout or self.timeout))
        self._send_queued()
        return future

    @property
    def waiting(self) -> int:
        """Number of requests without an answer yet, sent or queued."""
        return len(self._queue) + len(self._sent)

    def close(self) -> None:
        """Close the links of the requests."""
        self._sender.close()
        self._receiver.close()

    def _send_queued(self) -> None:
        sender, reply_to = self._sender, self._reply_to
        if reply_to is None:
            return
        credit = min(sender.credit, self.outstanding - len(self._sent))
        while credit > 0 and self._queue:
            future, properties, body, timeout = self._queue.popleft()
            if future.done():
                continue  # cancelled while it waited
            number = str(next(self._numbers))
            try:
                data = _encode([None, None, self.node, None, reply_to, number], properties, body)
            except (ValueError, TypeError, LookupError) as error:
                future.set_exception(ControlError(INVALID_FIELD, f"cannot be encoded: {error}"))
                continue
            deadline = self._loop.time() + timeout
            self._sent[number] = (future, deadline)
            sender.send(data, settled=True)
            credit -= 1
            if self._timer is None or deadline < self._timer.when():
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_at(deadline, self._watch)

    def _on_reply(self, delivery: Delivery) -> None:
        delivery.accept()
        # Most replies only confirm: their bodies are left undecoded.
        message = self._reply
        if pn_message_decode(message, delivery.data) < 0:
            log.get(peer=self.connection.peer).warning("control.reply.unreadable")
            return
        found = self._sent.pop(str(pn_message_get_correlation_id(message)), None)
        if found is None:
            return  # it arrived after its request had timed out
        properties = proton.Data(pn_message_properties(message))
        try:
            values = properties.get_object() if properties.next() else {}
        except (proton.ProtonException, ValueError, RecursionError) as error:
            if not found[0].done():
                found[0].set_exception(ControlError(DECODE_ERROR, f"the reply cannot be decoded: {error}"[:200]))
            return
        if not found[0].done():
            found[0].set_result(Reply(values, delivery.data))
        if self._queue:
            self._send_queued()

    def _watch(self) -> None:
        """Time requests out: their outcome is unknown."""
        now = self._loop.time()
        late = [number for number, (_, deadline) in self._sent.items() if deadline <= now]
        for number in late:
            future, _ = self._sent.pop(number)
            if not future.done():
                future.set_exception(RequestTimeout("timeout", f"no reply from {self.node} of {self.connection.peer}"))
        self._timer = None
        if self._sent:
            soonest = min(deadline for _, deadline in self._sent.values())
            self._timer = self._loop.call_at(soonest, self._watch)
        if late:
            self._send_queued()

    def _on_closed(self, error: LinkClosed) -> None:
        if self._error is not None:
            return
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
        sent, self._sent = self._sent, {}
        queued, self._queue = self._queue, deque()
        for future in [entry[0] for entry in sent.values()] + [entry[0] for entry in queued]:
            if not future.done():
                future.set_exception(error)
                future.exception()


class Dispatch(Management):
    """Management of a router (AMQP management as Qpid Dispatch does it). Entities are dicts of attributes."""

    def __init__(self, connection: ControlConnection, node: str = "$management", **options: Any) -> None:
        super().__init__(connection, node, **options)

    async def query(
        self, kind: str, attributes: Sequence[str] = (), *, count: int | None = None, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Return all entities of a type, with the attributes named (without names: all). `count`: at most as many,
        from `offset` on; Dispatch heeds them for types of its router core only. Raises ControlError."""
        asked: dict[str, Any] = {"operation": "QUERY", "entityType": kind}
        if count is not None:
            asked |= {"count": count, "offset": offset}
        reply = await self.operation(asked, {"attributeNames": list(attributes)})
        body = reply.body
        if not isinstance(body, dict) or "results" not in body:
            raise ControlError(DECODE_ERROR, f"QUERY of {kind}: the reply has no results")
        names = body.get("attributeNames") or []
        return [dict(zip(names, row, strict=False)) for row in body["results"]]

    async def create(self, kind: str, name: str, attributes: Mapping[str, Any]) -> None:
        """Create an entity. Raises RequestFailed."""
        await self._entity("CREATE", kind, name, attributes)

    async def read(self, kind: str, name: str) -> dict[str, Any]:
        """Return the entity's attributes. Raises RequestFailed, with status 404 if the entity does not exist."""
        body = (await self._entity("READ", kind, name, {})).body
        return dict(body) if isinstance(body, dict) else {}

    async def update(self, kind: str, name: str, attributes: Mapping[str, Any]) -> None:
        """Change attributes of an entity. Raises RequestFailed."""
        await self._entity("UPDATE", kind, name, attributes)

    async def delete(self, kind: str, name: str) -> None:
        """Delete the entity. Raises RequestFailed, with status 404 if the entity does not exist."""
        await self._entity("DELETE", kind, name, {})

    async def _entity(self, operation: str, kind: str, name: str, attributes: Mapping[str, Any]) -> Reply:
        return await self.operation({"operation": operation, "type": kind, "name": name}, attributes)

    async def operation(self, properties: Mapping[str, Any], body: Any) -> Reply:
        """Any operation. Raises RequestFailed unless the status is 2xx."""
        reply = await self.request(properties, body)
        status = reply.properties.get("statusCode")
        if not isinstance(status, int) or not 200 <= status < 300:
            description = str(reply.properties.get("statusDescription") or "no description")
            raise RequestFailed(status if isinstance(status, int) else 500, description)
        return reply


class Artemis(Management):
    """Management of a broker (as Apache ActiveMQ Artemis does it over AMQP)."""

    def __init__(self, connection: ControlConnection, node: str = "activemq.management", **options: Any) -> None:
        super().__init__(connection, node, **options)

    @staticmethod
    def is_at(connection: ControlConnection) -> bool:
        """Return whether the peer says that it is such a broker. Others are not asked: some make an address of what
        they are asked for."""
        return connection.remote_properties.get("product") == ARTEMIS

    async def invoke(self, resource: str, operation: str, *arguments: Any, timeout: float | None = None) -> Any:
        """Call an operation (`invoke("broker", "getQueueNames")`) and return its result. Raises RequestFailed."""
        return self.result(await self.ask(resource, operation, *arguments, timeout=timeout))

    def ask(
        self, resource: str, operation: str, *arguments: Any, timeout: float | None = None
    ) -> asyncio.Future[Reply]:
        """Call an operation; `result` takes the reply apart."""
        properties = {"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation}
        return self.request(properties, json.dumps(arguments), timeout)

    async def attribute(self, resource: str, name: str) -> Any:
        """Return an attribute's value (`attribute("queue.q", "messageCount")`). Raises RequestFailed."""
        return self.result(await self.request({"_AMQ_ResourceName": resource, "_AMQ_Attribute": name}, "[]"))

    def digest(self, reply: Reply) -> int:
        """Return the digest of a listing without the row of our reply queue, whose counters grow with each reply."""
        data, own = reply.data, (self._reply_to or "").encode()
        at = data.find(own) if own else -1
        start, stop = data.rfind(b"{", 0, max(0, at)), data.find(b"}", at)
        return hash(data[:start] + data[stop:]) if 0 <= start < at < stop else reply.digest

    @staticmethod
    def result(reply: Reply) -> Any:
        """Return the result of an operation. Raises RequestFailed if it failed."""
        text = reply.body
        try:
            found = decode_any(text) if text else []
        except (ValueError, TypeError):
            found = [text]
        result = found[0] if isinstance(found, list) and found else None
        if reply.properties.get("_AMQ_OperationSucceeded") is not True:
            raise RequestFailed(0, str(result))
        return result


def _encode(properties: list[str | None], application_properties: Mapping[str, Any], body: Any) -> bytes:
    """Return a request (part 3.2), encoded by our codec: Proton's Python takes four times as long, and there are
    thousands."""
    content = dict(body) if isinstance(body, Mapping) else body
    encode = codec.encode
    sections = (b"\x00\x53\x73", encode(properties), b"\x00\x53\x74", encode(dict(application_properties)))
    return b"".join((*sections, b"\x00\x53\x77", encode(content)))


def _body(data: bytes) -> Any:
    """Return the body of a reply. Raises ControlError(amqp:decode-error)."""
    position = 0
    try:
        while position < len(data):
            section, position = codec.decode(data, position)
            if isinstance(section, Described) and section.descriptor == _AMQP_VALUE:
                return section.value
    except CodecError as error:
        raise ControlError(DECODE_ERROR, f"not an AMQP message: {error}"[:200]) from None
    body = decode(data).body
    return bytes(body) if isinstance(body, memoryview) else body
