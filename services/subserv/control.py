"""`$subctrl`, where AMQP clients ask for subscriptions, and `$mqtt/control`, where operators do (docs/contracts.md)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.control import ControlConnection, ControlError, ControlLink, ControlReceiver, ControlSender, Delivery
from enmasse.control.errors import (
    INTERNAL_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LIMIT,
    UNAUTHORIZED_ACCESS,
)
from enmasse.identity.annotations import RETAINED_BY
from enmasse.identity.authors import Author, author
from enmasse.identity.link_users import of_link
from enmasse.identity.owned import owned, owner
from enmasse.identity.permissions import Rights
from enmasse.identity.principal import Principal
from enmasse.identity.processes.operator import OPERATOR
from enmasse.identity.seals import Seal
from enmasse.logs import log
from enmasse.model import sessions as wire
from enmasse.model.names import DEFAULT_SPACE, SPACE, is_temporary, space_of, states_space
from enmasse.process import runner
from enmasse.storage.decoding import decode
from enmasse.stores import StoreError
from services.subserv import records, request_bodies
from services.subserv.service import SubscriptionService
from services.subserv.sessions.clients import Refusal
from services.subserv.views import Unknown, Views

ADDRESS = "$subctrl"
WINDOW = 250
"""Requests of a link that may be on their way."""
MAX_LINKS = 20_000
"""Links of AMQP clients, at most."""
MAX_REQUEST = 2 * 1024 * 1024
"""Bytes at which a client's link is closed."""
MAX_ID = 1024
"""Characters of a subscription's id."""
CHANGES = (
    "delete", "clear_retained", "disconnect", "restore_session", "restore_subscription", "restore_retained",
)  # fmt: skip
"""Subjects of operators' requests that auditors want to see."""
RESTORE = "restore"
"""In place of the gateway of a session that is restored."""
MOST_QOS = 2
MAX_TEXT = 1000
"""Characters of a field of an audit event."""
NOT_IMPLEMENTED = "amqp:not-implemented"
_BROKERS_TEMPORARY = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Temporary queues of brokers are called so."""


class _Rejected(Exception):
    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


Operations = Mapping[str, Callable[[request_bodies.Request], Awaitable[None]]]
"""Subject → what serves such a request. Raises _Rejected, and what `_serve` knows."""


class SubscriptionControl:
    """Serves both nodes on one connection to the router after the other. Links to `$subctrl` are passed on by the
    router, with the user in their names, and counted in `links`."""

    def __init__(self, service: SubscriptionService) -> None:
        self._service = service
        views = Views(service)
        self.links = 0
        self._connection: ControlConnection
        self._replies: ControlSender
        self._in_spaces: dict[str, ControlSender] = {}
        """Address space → the sender of replies to its clients."""
        self._clients = {
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "list": self._list,
            "close": self._close,
            "list_topics": self._list_topics,
        }
        self._operators: Operations = {
            "subscriptions": partial(self._view, None, views.subscriptions),
            "subscription": partial(self._view, wire.ById, views.subscription),
            "delete": partial(self._view, wire.ById, views.delete),
            "retained": partial(self._view, wire.ByFilter, views.retained),
            "retained_message": partial(self._view, wire.ByName, views.retained_message),
            "clear_retained": partial(self._view, wire.ByFilter, views.clear_retained),
            "sessions": partial(self._view, None, views.sessions),
            "disconnect": partial(self._view, wire.ByClient, views.disconnect),
            "restore_session": partial(self._view, wire.KeptSession, self._restore_session),
            "restore_subscription": partial(self._view, wire.KeptSubscription, self._restore_subscription),
            "restore_retained": partial(self._view, wire.KeptRetained, self._restore_retained),
            "restore_will": partial(self._view, wire.KeptWill, self._sealed_will),
        }

    async def attach(self, connection: ControlConnection, closed: Callable[[], None]) -> None:
        """Serve requests on this connection. `closed` is called when that ends. Raises ControlError."""
        self._connection, self._in_spaces = connection, {}
        self._replies = connection.sender(None)
        receiver = connection.receiver(wire.CONTROL, window=WINDOW)
        receiver.counts_settled = True
        receiver.on_message = partial(self._on_message, wire.CONTROL, self._operators)
        links: list[ControlLink] = [self._replies, receiver]
        for link in links:
            await link.opened()
        for link in links:
            link.on_closed = lambda _: closed()

    def attached(self, link: ControlLink) -> None:
        """Answer a client's attach to `$subctrl`."""
        if not isinstance(link, ControlReceiver):
            link.refuse(NOT_ALLOWED, f"{ADDRESS} takes requests; receive answers from an address of your own")
            return
        if self.links >= MAX_LINKS:
            link.refuse(RESOURCE_LIMIT, f"{MAX_LINKS} links are attached to {ADDRESS}; that is the limit")
            return
        self.links += 1
        author = of_link(link.name)
        operations = {subject: partial(function, author) for subject, function in self._clients.items()}
        link.max_message_size = link.proton_link.max_message_size = MAX_REQUEST
        link.window, link.counts_settled = WINDOW, True
        link.on_message = partial(self._on_message, ADDRESS, operations)
        link.on_closed = self._closed
        link.accept()
        link.grant(WINDOW)

    def _closed(self, _: object) -> None:
        self.links -= 1

    def _on_message(self, node: str, operations: Operations, delivery: Delivery) -> None:
        runner.spawn(self._serve(node, operations, delivery), node)

    async def _serve(self, node: str, operations: Operations, delivery: Delivery) -> None:
        try:
            request = request_bodies.read(delivery.data)
            operation = operations.get(request.subject)
            if operation is None:
                known = ", ".join(operations)
                raise _Rejected(NOT_IMPLEMENTED, f"no subject {request.subject[:50]!r}; there are {known}")
            await operation(request)
        except _Rejected as rejected:
            delivery.reject(rejected.condition, rejected.description[:500])
        except AmqpError as error:
            delivery.reject(error.condition, (error.description or "")[:500])
        except Unknown as unknown:
            delivery.reject(NOT_FOUND, str(unknown)[:500])
        except StoreError as error:
            delivery.reject(INTERNAL_ERROR, str(error)[:500] if node == wire.CONTROL else request_bodies.STORE_AWAY)
        except ControlError as error:
            delivery.reject(INTERNAL_ERROR, str(error)[:500])
        except (ValueError, TypeError) as error:
            delivery.reject(INVALID_FIELD, str(error)[:500])
        except Exception:
            self._service.failures += 1
            log.get().exception("subserv.request.failed", address=node)
            delivery.reject(INTERNAL_ERROR, request_bodies.FAILED)
        else:
            delivery.accept()

    # operators

    async def _view(
        self, kind: type[Any] | None, function: Callable[..., Any], request: request_bodies.Request
    ) -> None:
        if not request.reply_to:
            raise _Rejected(INVALID_FIELD, "reply-to is missing")
        try:
            result = function(decode(request.body or b"{}", kind)) if kind is not None else function()
            if isinstance(result, Awaitable):
                result = await result
        except Exception as error:
            _audit(request, f"refused: {error}")
            raise
        _audit(request, "done")
        self._replies.send(
            request_bodies.json_answer(request.subject, result, request.correlation, request.reply_to), settled=True
        )

    async def _restore_session(self, kept: wire.KeptSession) -> wire.RestoredQueues:
        """Make a session again, of a client that is away. Raises ValueError, StoreError."""
        client, clients = kept.client, self._service.clients
        opening = wire.Open(
            client=client, gateway=RESTORE, clean=True, expiry=kept.expiry, protocol=kept.protocol, groups=kept.groups
        )
        queues: dict[str, list[str]] = {kept.queue: []}
        try:
            epoch = (await clients.open(opening)).epoch
            try:
                asking = wire.Subscribe(client=client, epoch=epoch, subscriptions=kept.subscriptions)
                reply = await clients.subscribe(asking)
            finally:
                await clients.close(wire.Close(client=client, epoch=epoch))
        except Refusal as refusal:
            raise ValueError(f"{client}: {refusal.failure.description}") from None
        refused = [each.filter for each, code in zip(kept.subscriptions, reply.codes, strict=True) if code > MOST_QOS]
        if refused:
            raise ValueError(f"{client}: {', '.join(refused)[:MAX_TEXT]}: {next(filter(None, reply.reasons), '')}")
        for source in reply.sources:
            if not wire.is_address(source.address):
                old = kept.queue if source.filter is None else kept.shares[source.filter]
                queues.setdefault(old, []).append(source.address)
        return wire.RestoredQueues(queues=queues)

    async def _restore_subscription(self, kept: wire.KeptSubscription) -> wire.RestoredQueues:
        """Make a subscription of an AMQP client again. Raises ValueError, StoreError."""
        amqp = self._service.amqp
        if amqp.of(kept.subscription) is not None:
            await amqp.close(kept.subscription)
        number = self._service.sessions.identity.next()
        refused, failed = await amqp.subscribe(kept.subscription, kept.filters, number, partly=False)
        if reasons := {**refused, **failed}:
            raise ValueError("; ".join(reasons.values()))
        return wire.RestoredQueues(queues={kept.queue: amqp.addresses(kept.subscription)})

    async def _restore_retained(self, kept: wire.KeptRetained) -> wire.Done:
        """Store a retained message of a backup; subscribers do not get it. Raises StoreError."""
        of = None if kept.user is None else author(kept.user, kept.groups)
        broker = next(iter(self._service.desired.active_of_wire(kept.name)), "")
        rest = kept.since, kept.expires, kept.qos, kept.message, of
        await self._service.retained.restore(kept.name, records.RetainedRecord(broker, 0, *rest))
        return wire.Done(count=1)

    def _sealed_will(self, kept: wire.KeptWill) -> wire.KeptWill:
        """Return a will with the user in its message, if that is to be retained, sealed by this suite. Raises
        AmqpError."""
        message = Message.decode(kept.message)
        sealed = message.annotations.pop(Symbol(RETAINED_BY), None) is not None
        if sealed and self._service.retained.key and isinstance(message.body, bytes):
            of = author(kept.user, kept.groups)
            seal = Seal(self._service.retained.key)
            message.annotations[Symbol(RETAINED_BY)] = seal.make(of, kept.to, message.body)
        return msgspec.structs.replace(kept, message=message.encode())

    # AMQP clients

    async def _subscribe(self, author: Author, request: request_bodies.Request) -> None:
        rights = self._rights(author, request)
        subscription, filters = _subscription(author, request), _filters(request.body)
        forbidden = {
            filter: f"user {author.user} may not receive from {filter[:200]}"
            for filter in filters
            if not rights.covers("recv", filter).allowed
        }
        if forbidden and (len(forbidden) == len(filters) or not request.reply_to):
            raise _Rejected(UNAUTHORIZED_ACCESS, "; ".join(forbidden.values()))
        wanted = {filter: tag for filter, tag in filters.items() if filter not in forbidden}
        service = self._service
        created = service.sessions.identity.next()
        refused, failed = await service.amqp.subscribe(subscription, wanted, created, partly=bool(request.reply_to))
        reasons = {**forbidden, **refused, **failed}
        if request.reply_to:
            answers = {filter: reasons.get(filter, True) for filter in filters}
            self._answer(request, subscription, "subscribed", answers)
        if len(reasons) == len(filters) or (reasons and not request.reply_to):
            raise _Rejected(PRECONDITION_FAILED if refused else INTERNAL_ERROR, "; ".join(reasons.values()))

    async def _unsubscribe(self, author: Author, request: request_bodies.Request) -> None:
        self._rights(author, request)
        subscription, filters = _subscription(author, request), _filters(request.body)
        reason = await self._service.amqp.unsubscribe(subscription, filters)
        if reason:
            log.get().warning("subserv.subscription.end-postponed", reason=reason, space=author.space)

    async def _list(self, author: Author, request: request_bodies.Request) -> None:
        self._rights(author, request)
        subscription = _subscription(author, request)
        if not request.reply_to:
            raise _Rejected(INVALID_FIELD, "reply-to is missing: where shall the list go?")
        found = self._service.amqp.of(subscription)
        filters = found.record.filters if found is not None else {}
        tags = {filter: True if tag is None else tag for filter, tag in filters.items()}
        self._answer(request, subscription, "subscriptions", tags)

    async def _close(self, author: Author, request: request_bodies.Request) -> None:
        self._rights(author, request)
        await self._service.amqp.close(_subscription(author, request))

    async def _list_topics(self, author: Author, request: request_bodies.Request) -> None:
        rights = self._rights(author, request)
        if not request.reply_to:
            raise _Rejected(INVALID_FIELD, "reply-to is missing: where shall the topics go?")
        names = self._service.desired.topic_names(author.space)
        shown = [name for name in names if rights.allows("recv", name) or rights.allows("view", name)]
        data = request_bodies.answer("topics", shown, request.correlation, request.reply_to)
        self._replies_in(author.space).send(data, settled=True)

    def _rights(self, author: Author, request: request_bodies.Request) -> Rights:
        """Return what the user of a request may do. Raises _Rejected if there is no such user, or if it may not send
        to where it wants the reply: the service may send everywhere."""
        permits = self._service.permits
        if not permits.known.is_set():
            raise _Rejected(INTERNAL_ERROR, "the permissions are not known yet: try again later")
        if states_space(request.reply_to or ""):
            raise _Rejected(UNAUTHORIZED_ACCESS, f"reply-to: clients state no names that begin with {SPACE}")
        rights = permits.rights(author)
        if rights is None:
            raise _Rejected(UNAUTHORIZED_ACCESS, f"there is no user {author.user} in users.json")
        to = (request.reply_to or "").removeprefix("amqp:/")
        if to and not permits.is_open(author.space) and not is_temporary(to) and not _BROKERS_TEMPORARY.fullmatch(to):
            plain = ":" not in to and to.strip("./") == to
            if not plain or not rights.allows("send", to):
                text = f"user {author.user} may not send to {to[:200]}, the reply-to"
                raise _Rejected(UNAUTHORIZED_ACCESS, text)
        return rights

    def _answer(
        self, request: request_bodies.Request, subscription: str, subject: str, body: Mapping[str, Any]
    ) -> None:
        """Send a reply, with the addresses from which to receive, divided by blanks."""
        assert request.reply_to is not None
        addresses = " ".join(self._service.amqp.addresses(subscription))
        data = request_bodies.answer(
            subject, dict(body), request.correlation, request.reply_to, {"addresses": addresses}
        )
        self._replies_in(owner(subscription).space).send(data, settled=True)

    def _replies_in(self, space: str) -> ControlSender:
        """Return the sender of replies to clients of an address space, whose reply-to is a name there."""
        if space == DEFAULT_SPACE:
            return self._replies
        found = self._in_spaces.get(space)
        if found is None or found.closed:
            found = self._in_spaces[space] = self._connection.sender(None, space=space)
        return found


def _audit(request: request_bodies.Request, outcome: str) -> None:
    if request.subject in CHANGES:
        body = request.body or ""
        text = body if isinstance(body, str) else bytes(body).decode("utf-8", "replace")
        what = f"{request.subject} {text}"[:MAX_TEXT]
        log.audit(
            "audit.session.ordered",
            who=OPERATOR, role=OPERATOR, from_=None, what=what, outcome=outcome[:MAX_TEXT], space=_space(text),
        )  # fmt: skip


def _space(body: str) -> str:
    """Return the address space of the client, topic or queue that an order of an operator names."""
    try:
        values = decode(body.encode(), dict[str, Any]).values()
    except ValueError:
        return DEFAULT_SPACE
    names = [each for each in values if isinstance(each, str)]
    found = {space_of(each) if each.startswith(SPACE) else owner(each).space for each in names}
    return found.pop() if len(found) == 1 else DEFAULT_SPACE


def _subscription(author: Author, request: request_bodies.Request) -> str:
    """Return the id by which the user's subscription is kept: no user reaches another's."""
    found = request.correlation
    text = "" if found is None else str(found)
    if not text:
        raise _Rejected(INVALID_FIELD, "correlation-id is missing: it is the subscription's id")
    if len(text) > MAX_ID or any("\ud800" <= character <= "\udfff" for character in text):
        raise _Rejected(INVALID_FIELD, f"a subscription's id is text of {MAX_ID} characters at most")
    return owned(Principal(author.user, space=author.space), text)


def _filters(body: Any) -> dict[str, str | None]:
    """Filter → tag, of a string, a list or a map."""
    found: dict[str, str | None]
    if isinstance(body, str):
        found = {str(body): None}
    elif isinstance(body, list):
        found = {str(name) if isinstance(name, str) else name: None for name in body}
    elif isinstance(body, dict):
        found = {
            str(key) if isinstance(key, str) else key: None if tag is None or tag is True else str(tag)
            for key, tag in body.items()
        }
    else:
        raise _Rejected(INVALID_FIELD, "the body must be a topic, a list of topics, or a map topic: tag")
    if not found or not all(isinstance(filter, str) and filter for filter in found):
        raise _Rejected(INVALID_FIELD, "the body names no topic")
    return found
