"""The management node: a request message in, a reply message out, in the order of the requests. What a request has
changed is on disk before its reply leaves."""

from __future__ import annotations

import json
from collections import deque
from functools import partial
from typing import Any

import msgspec

from enmasse import log
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.message import AmqpValue, Message
from services.broker.core.broker import Broker
from services.broker.core.connections import Connections
from services.broker.core.errors import BrokerError
from services.broker.management import addresses, connections, diverts, messages, queues, settings
from services.broker.management.calls import Context, Operations
from services.broker.selector import SelectorError

_log = log.get()
_PREFIXES = ("queue://", "topic://", "temp-queue://", "temp-topic://")
_BROKER = Operations.joined(queues.broker, addresses.broker, diverts.broker, settings.broker, connections.broker)
_QUEUE = Operations.joined(queues.one, messages.one)
_ADDRESS = addresses.one
_DIVERT = diverts.one
MAX_REPLIES = 100_000  # waiting in one reply queue: a client that asks and never reads is not served without end


class _Reply:
    """`ready`: it may leave as soon as it is its turn."""

    __slots__ = ("correlation", "ready", "reply_to", "succeeded", "text")

    def __init__(self, reply_to: str, correlation: Any, succeeded: bool, text: str | None) -> None:
        self.reply_to = reply_to
        self.correlation = correlation
        self.succeeded = succeeded
        self.text = text
        self.ready = False

    def encoded(self) -> bytes:
        return Message(
            to=self.reply_to,
            correlation_id=self.correlation,
            application_properties={"_AMQ_OperationSucceeded": self.succeeded},
            body=AmqpValue(self.text),
        ).encode()


class ManagementNode:
    def __init__(self, broker: Broker, clients: Connections) -> None:
        self.broker = broker
        self._waiting: deque[_Reply] = deque()  # for the disk, or behind one that does
        self.context = Context(broker, clients)

    def handle(self, payload: bytes, user: str) -> None:
        """Answers one request to its reply-to, if it has one. Raises AmqpError if the payload is no message."""
        request = Message.decode(payload)
        properties = request.application_properties or {}
        reply_to = request.reply_to or properties.get("JMSReplyTo")
        self.context.user = user
        succeeded = True
        try:
            result = self._call(properties, request.body)
            text = None if result is None else msgspec.json.encode([result]).decode()  # lists have megabytes
        except (BrokerError, SelectorError) as error:
            succeeded, text = False, json.dumps([str(error)])
        except (AmqpError, ValueError, OverflowError, RecursionError) as error:
            succeeded, text = False, json.dumps([f"AMQ229000: {error}"])
        except Exception as error:  # of the request; the connection it came by may be a router's, with all its clients
            _log.exception("management.failed", broker=self.broker.name)
            succeeded, text = False, json.dumps([f"AMQ229000: {type(error).__name__}: {error}"])
        if not isinstance(reply_to, str) or not reply_to:
            return
        for prefix in _PREFIXES:
            reply_to = reply_to.removeprefix(prefix)
        correlation = request.correlation_id if request.correlation_id is not None else request.message_id
        reply = _Reply(reply_to, correlation, succeeded, text)
        if self.broker.commits_at_once:
            self._waiting.append(reply)
            self.broker.when_stored(partial(self._stored, reply))
        elif self._waiting:
            reply.ready = True
            self._waiting.append(reply)
        else:
            self._send(reply_to, reply.encoded())

    def _stored(self, reply: _Reply, error: OSError | None) -> None:
        if error is not None and reply.succeeded:
            reply.succeeded = False
            reply.text = json.dumps([f"AMQ229000: it was done, but could not be stored: {error}"])
        reply.ready = True
        while self._waiting and self._waiting[0].ready:
            first = self._waiting.popleft()
            self._send(first.reply_to, first.encoded())

    def _send(self, reply_to: str, payload: bytes) -> None:
        route = self.broker.catalogue.route(reply_to, None)
        if route is None or any(queue.count >= MAX_REPLIES for queue in route.targets):
            _log.info("management.reply-dropped", broker=self.broker.name, address=reply_to)
            return
        self.broker.put(reply_to, payload, durable=False)

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


def _parameters(body: Any) -> list[Any]:
    value = body.value if isinstance(body, AmqpValue) else body
    if value is None or value == "" or value == b"":
        return []
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise BrokerError("the parameters are to be a string with a JSON array")
    parameters = json.loads(value)
    if not isinstance(parameters, list):
        raise BrokerError("the parameters are not a JSON array")
    return parameters
