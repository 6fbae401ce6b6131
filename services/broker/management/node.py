"""The management node: a request message in, a reply message out, to each client in the order of its requests. What a
request has changed is on disk before its reply leaves."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator
from functools import partial
from typing import Any

import msgspec

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.messages.message import AmqpValue, Message
from enmasse.identity.owned import space_of_queue
from enmasse.identity.processes.roles import Role
from enmasse.logs import log
from enmasse.storage.decoding import decode_any
from services.broker.core.broker import Broker
from services.broker.core.connections import ConnectionInfo, Connections
from services.broker.core.errors import BrokerError
from services.broker.core.legal_names import SUBSCRIPTIONS
from services.broker.management import addresses, connections, diverts, queue_control, queues, settings, spaces
from services.broker.management.calls import CallContext, Operations
from services.broker.selector import SelectorError

_log = log.get()
_PREFIXES = ("queue://", "topic://", "temp-queue://", "temp-topic://")
_BROKER = Operations.joined(
    queues.broker, addresses.broker, diverts.broker, settings.broker, connections.broker, spaces.broker
)
_QUEUE = Operations.joined(queues.one, queue_control.one)
_ADDRESS = addresses.one
_DIVERT = diverts.one
MAX_TEXT = 1000  # characters of a field of an audit event
DESTRUCTIVE = frozenset(
    {
        "closeConnectionWithID", "deleteAddress", "destroyQueue", "expireMessage", "expireMessages",
        "moveMessages", "purge", "removeAllMessages", "removeMessage", "removeMessages", "workOnMessages",
    }
)  # fmt: skip
"""Operations that auditors want to see. Those of subserv are not: queues of sessions end with the sessions."""
MAX_HELD = 1000  # requests behind work for their clients
MAX_REPLIES = 100_000  # waiting in one reply queue: a client that asks and never reads is not served without end


class _Request:
    """Request of a client, then its reply. `ready`: the reply may leave after those before it."""

    __slots__ = ("body", "client", "correlation", "properties", "ready", "reply_to", "succeeded", "text")

    def __init__(self, request: Message, client: ConnectionInfo) -> None:
        self.properties = request.application_properties or {}
        self.body = request.body
        self.client = client
        self.correlation = request.correlation_id if request.correlation_id is not None else request.message_id
        reply_to = request.reply_to or self.properties.get("JMSReplyTo")
        self.reply_to = reply_to if isinstance(reply_to, str) else ""
        for prefix in _PREFIXES:
            self.reply_to = self.reply_to.removeprefix(prefix)
        self.succeeded = False
        self.text: str | None = None
        self.ready = False

    def answer(self, result: Any) -> None:
        self.succeeded = True
        self.text = None if result is None else msgspec.json.encode([result]).decode()  # lists have megabytes

    def fail(self, reason: str) -> None:
        self.succeeded = False
        self.text = json.dumps([reason])

    def encoded(self) -> bytes:
        return Message(
            to=self.reply_to,
            correlation_id=self.correlation,
            application_properties={"_AMQ_OperationSucceeded": self.succeeded},
            body=AmqpValue(self.text),
        ).encode()


class ManagementNode:
    """Serves requests. One that becomes work over many messages (`Work`) holds up the later ones of its client, which
    is known by the address for replies; others are served meanwhile."""

    def __init__(self, broker: Broker, clients: Connections) -> None:
        self.broker = broker
        self._behind: dict[str, deque[_Request]] = {}  # by address for replies, while work for that is under way
        self._held = 0  # requests in there
        self._waiting: deque[_Request] = deque()  # for the disk, or behind one that does
        self.context = CallContext(broker, clients)

    def handle(self, payload: bytes, client: ConnectionInfo) -> None:
        """Answer one request to its reply-to, if it has one. Raises AmqpError if the payload is no message."""
        request = _Request(Message.decode(payload), client)
        behind = self._behind.get(request.reply_to)
        if behind is None:
            self._serve(request)
        elif self._held < MAX_HELD:
            self._held += 1
            behind.append(request)
        else:
            request.fail(f"AMQ229000: {MAX_HELD} requests wait for others to be answered: wait for the answers")
            self._reply(request)

    def _serve(self, request: _Request) -> None:
        self.context.user = request.client.user
        try:
            result = self._call(request.properties, request.body)
        except Exception as error:
            self._failed(request, error)
        else:
            if isinstance(result, Generator):
                if request.reply_to:
                    self._behind[request.reply_to] = deque()
                client = request.client
                self.broker.jobs.ask(result, partial(self._worked, request), client.user or client.container)
                return
            request.answer(result)
        self._reply(request)

    def _worked(self, request: _Request, result: Any, error: Exception | None) -> None:
        """The work that a request asked for has ended."""
        if error is not None:
            self._failed(request, error)
        else:
            request.answer(result)
        self._reply(request)
        behind = self._behind.pop(request.reply_to, None)
        while behind:
            self._held -= 1
            self._serve(behind.popleft())
            if request.reply_to in self._behind:
                self._behind[request.reply_to] = behind
                break

    def _failed(self, request: _Request, error: Exception) -> None:
        if isinstance(error, (BrokerError, SelectorError)):
            request.fail(str(error))
        elif isinstance(error, (AmqpError, ValueError, OverflowError, RecursionError)):
            request.fail(f"AMQ229000: {error}")
        else:  # of the request; the connection it came by may be a router's, with all its clients
            _log.error("broker.management.failed", broker=self.broker.name, exc_info=error)
            request.fail(f"AMQ229000: {type(error).__name__}: {error}")

    def _reply(self, request: _Request) -> None:
        _audit(request)
        if not request.reply_to:
            return
        if self.broker.commits_at_once:
            self._waiting.append(request)
            self.broker.when_stored(partial(self._stored, request))
        elif self._waiting:
            request.ready = True
            self._waiting.append(request)
        else:
            self._send(request)

    def _stored(self, request: _Request, error: OSError | None) -> None:
        if error is not None and request.succeeded:
            request.fail(f"AMQ229000: it was done, but could not be stored: {error}")
        request.ready = True
        while self._waiting and self._waiting[0].ready:
            self._send(self._waiting.popleft())

    def _send(self, request: _Request) -> None:
        route = self.broker.catalogue.route(request.reply_to, None)
        if route is None or any(queue.count >= MAX_REPLIES for queue in route.targets):
            _log.info("broker.reply.dropped", broker=self.broker.name, address=request.reply_to)
            return
        self.broker.put(request.reply_to, request.encoded(), durable=False)

    def _call(self, properties: dict[Any, Any], body: Any) -> Any:
        resource = properties.get("_AMQ_ResourceName")
        if not isinstance(resource, str):
            raise BrokerError("AMQ229067: Cannot find resource with name " + str(resource))
        operations, target = self._resource(resource)
        attribute = properties.get("_AMQ_Attribute")
        operation = properties.get("_AMQ_OperationName")
        arguments = [] if target is None else [target]
        if isinstance(operation, str):
            parameters = _parameters(body)
            return operations.find(operation, parameters)(self.context, *arguments, *parameters)
        if isinstance(attribute, str):
            return operations.getter(attribute)(self.context, *arguments)
        raise BrokerError("AMQ229069: no operation: neither _AMQ_OperationName nor _AMQ_Attribute is given")

    def _resource(self, resource: str) -> tuple[Operations, Any]:
        if resource == "broker":
            return _BROKER, None
        kind, _, name = resource.partition(".")
        if kind == "queue" and name in self.broker.catalogue.queues:
            return _QUEUE, self.broker.catalogue.queues[name]
        if kind == "address" and name in self.broker.catalogue.addresses:
            return _ADDRESS, self.broker.catalogue.addresses[name]
        if kind == "divert" and name in self.broker.catalogue.diverts.by_name:
            return _DIVERT, self.broker.catalogue.diverts.by_name[name]
        raise BrokerError(f"AMQ229067: Cannot find resource with name {resource}")


def _audit(request: _Request) -> None:
    operation, resource = (request.properties.get(key) for key in ("_AMQ_OperationName", "_AMQ_ResourceName"))
    if operation not in DESTRUCTIVE or request.client.role == Role.SUBSERV:
        return
    client, what = request.client, str(resource)
    if resource == "broker":
        try:
            what = " ".join(str(each) for each in _parameters(request.body)[:1])
        except (BrokerError, ValueError):
            what = "?"
    if not client.role and what.startswith(SUBSCRIPTIONS):  # without `peers` it is mostly subserv
        return
    result = json.loads(request.text) if request.text else [None]
    log.audit(
        "audit.broker.ordered",
        who=client.user or client.container, role=client.role or None, from_=client.remote,
        what=f"{operation} {what}"[:MAX_TEXT], outcome="done" if request.succeeded else str(result[0])[:MAX_TEXT],
        result=result[0] if request.succeeded else None, space=space_of_queue(what.partition(".")[2] or what),
    )  # fmt: skip


def _parameters(body: Any) -> list[Any]:
    value = body.value if isinstance(body, AmqpValue) else body
    if value is None or value == "" or value == b"":
        return []
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise BrokerError("the parameters are to be a string with a JSON array")
    parameters = decode_any(value)
    if not isinstance(parameters, list):
        raise BrokerError("the parameters are not a JSON array")
    return parameters
