"""Transactions of clients: each is bound to the broker of the queue or topic that it works with first.

A client's link to the coordinator ends at the router, which names the transactions. In a session with such a link,
links to queues and topics are passed on to their brokers as links, each after a link of the router to that broker's
coordinator is ready: there the router declares a transaction, by its name, in front of its first work.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final, Protocol

from enmasse.amqp.codec.errors import (
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN_ID,
    AmqpError,
)
from enmasse.amqp.codec.performatives import ACCEPTED, Coordinator, Declare, Declared, Discharge, Error, Rejected
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.messages.coordination import read_request, write_request
from enmasse.amqp.termini import NAMED_TRANSACTIONS, stated
from services.router.routing.connection import LinkRecord, RouterConnection

CREDIT: Final = 200
OPEN: Final = 100
"""Open transactions of a client's link."""
CAPABILITIES: Final = (Symbol("amqp:local-transactions"), Symbol("amqp:multi-txns-per-ssn"))
_LOST = "the broker of the transaction was lost, and has rolled it back"


class WorkLink(Protocol):
    """A link on which a client sends in transactions."""

    def is_sending(self, transaction: bytes) -> bool:
        """Return whether a message of a transaction has not left whole. Then `ClientCoordinator.proceed` is called when
        that may have changed."""


class _Work:
    """A transaction. `broker`: to which it is bound; `links`: on which messages of it are sent; `error`: why it can
    only be rolled back; `ends`: its discharge has come."""

    __slots__ = ("broker", "ends", "error", "id", "links")

    def __init__(self, id: bytes) -> None:
        self.id = id
        self.broker: BrokerCoordinator | None = None
        self.links: set[WorkLink] = set()
        self.error: AmqpError | None = None
        self.ends = False


class _CoordinatorLink(LinkRecord):
    """The common part of both kinds of links: a row of management."""

    __slots__ = ("connection", "identity", "link", "name")
    zero_since = None
    capacity = 0
    counted = False
    link: Sender | Receiver
    presettled = accepted = rejected = released = modified = 0

    def __init__(self, connection: RouterConnection, link: Sender | Receiver) -> None:
        self.identity = connection.owner.next_identity()
        self.connection = connection
        self.link = link
        self.name = link.name
        self.delayed1 = self.delayed10 = self.slow = self.stuck = 0
        connection.add(self)
        link.context = self


class ClientCoordinator(_CoordinatorLink):
    """A client's link to the coordinator. Its transactions are rolled back when it ends (4.2)."""

    __slots__ = ("_brokers", "_open")
    direction = "in"

    def __init__(self, connection: RouterConnection, link: Receiver) -> None:
        super().__init__(connection, link)
        self._open: dict[bytes, _Work] = {}
        self._brokers: dict[RouterConnection, BrokerCoordinator] = {}

    def start(self) -> None:
        """Answer the attach, and grant credit."""
        link = self.link
        assert isinstance(link, Receiver)
        self.connection.coordinators[link.session] = self
        link.on_delivery = self.deliver
        link.accept(link.remote_source, Coordinator(capabilities=CAPABILITIES))
        link.credit_window = CREDIT

    def deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Serve a declare or a discharge."""
        answered = -1 if settled else delivery_id
        try:
            request = read_request(payload)
            if isinstance(request, Declare):
                self.answer(answered, self._declare(request))
            else:
                self._discharge(request, answered)
        except AmqpError as error:
            self.answer(answered, rejected(error))

    def answer(self, delivery_id: int, state: Any) -> None:
        """Answer a request. -1: it was settled."""
        if delivery_id >= 0 and not self.link.over:
            self.connection.relatively(self.link.session.settle)(delivery_id, state)
            self.connection.amqp.wake()

    def _declare(self, request: Declare) -> Declared:
        if request.global_id is not None:
            raise AmqpError(NOT_IMPLEMENTED, "transactions over several brokers are not supported")
        if len(self._open) >= OPEN:
            text = f"a coordinator's link has at most {OPEN} open transactions: discharge some"
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, text)
        id = secrets.token_bytes(16)
        self._open[id] = _Work(id)
        return Declared(txn_id=id)

    def _discharge(self, request: Discharge, delivery_id: int) -> None:
        work = self._open.get(bytes(request.txn_id))
        if work is None or work.ends:
            raise _unknown(request.txn_id)
        work.ends = True
        if work.broker is not None and work.broker.open:
            work.broker.discharge(work, bool(request.fail), delivery_id)
            return
        self.forget(work)
        error = None if request.fail else work.error
        self.answer(delivery_id, ACCEPTED if error is None else rejected(error))

    def forget(self, work: _Work) -> None:
        """The discharge of a transaction is sent, or answered."""
        self._open.pop(work.id, None)

    def proceed(self) -> None:
        """Send the discharges that waited for messages which have left by now."""
        for broker in list(self._brokers.values()):
            broker.proceed()

    def bind(self, id: bytes, container: RouterConnection, link: WorkLink | None = None) -> None:
        """Bind a transaction to the broker that gets work of it. `link`: on which a message of it comes. Raises
        AmqpError if this client has no such one, or if it is bound to another broker: then it can only be rolled
        back."""
        work = self._open.get(bytes(id))
        if work is None or work.ends:
            raise _unknown(id)
        if link is not None:
            work.links.add(link)
        if work.error is not None:
            raise work.error
        broker = self._brokers.get(container)
        if work.broker is not None and work.broker is broker:
            return
        try:
            if broker is None or not broker.open:
                raise AmqpError(TRANSACTION_ROLLBACK, _LOST)
            if work.broker is not None:
                raise AmqpError(
                    TRANSACTION_ROLLBACK,
                    "the transaction is rolled back: it works with addresses of two brokers. One transaction takes the "
                    "queues and topics of one broker",
                )
            broker.declare(work)
        except AmqpError as error:
            work.error = error
            raise
        work.broker = broker

    def fail(self, id: bytes, error: AmqpError) -> None:
        """Let a transaction, if it is one of this link, end by a rollback only: a part of it was refused."""
        work = self._open.get(id)
        if work is not None and work.error is None:
            text = f"the transaction is rolled back: {error.description}"
            work.error = AmqpError(TRANSACTION_ROLLBACK, text)

    def prepare(
        self, container: RouterConnection, go_on: Callable[[], None], refuse: Callable[[AmqpError], None]
    ) -> None:
        """Call `go_on` when a broker's coordinator is ready for this client, or `refuse` if it has no coordinator."""
        broker = self._brokers.get(container)
        if broker is None or not broker.open:
            try:
                broker = self._brokers[container] = BrokerCoordinator.attach(self, container)
            except AmqpError as error:
                refuse(error)
                return
        broker.when_ready(go_on, refuse)

    def broker_lost(self, broker: BrokerCoordinator) -> None:
        """Let the transactions that are bound to this broker end by a rollback only."""
        if self._brokers.get(broker.connection) is broker:
            del self._brokers[broker.connection]
        for work in self._open.values():
            if work.broker is broker:
                work.error = AmqpError(TRANSACTION_ROLLBACK, _LOST)

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        """End the links to brokers: they roll back."""
        self.connection.coordinators.pop(self.link.session, None)
        self.connection.link_over(self)
        for broker in list(self._brokers.values()):
            broker.leave()
        self._brokers.clear()
        self._open.clear()

    def gone(self) -> None:
        """Do nothing: `detached` has done it."""


class BrokerCoordinator(_CoordinatorLink):
    """The router's link to the coordinator of a broker, for one client. Tokens of its deliveries are the transaction
    and the delivery to be answered; None for a declare."""

    __slots__ = ("_client", "_discharges", "_ready", "_waiting", "open")
    faces_client = False
    direction = "out"

    def __init__(self, client: ClientCoordinator, connection: RouterConnection, link: Sender) -> None:
        super().__init__(connection, link)
        self._client = client
        self._waiting: list[tuple[Callable[[], None], Callable[[AmqpError], None]]] = []
        self._discharges: list[tuple[_Work, bool, int]] = []  # behind messages that have not left whole
        self._ready = False
        self.open = True

    @classmethod
    def attach(cls, client: ClientCoordinator, container: RouterConnection) -> BrokerCoordinator:
        """Attach the link. Raises AmqpError."""
        session = container.session_for_links(receiving=False)
        made = session.attach_sender(
            f"coordinator.{secrets.token_hex(8)}",
            None,
            Coordinator(capabilities=CAPABILITIES),
            desired_capabilities=(Symbol(NAMED_TRANSACTIONS),),
            properties=stated(
                {}, client.connection.sender, client.connection.space, client.connection.shown_to_brokers
            ),
        )
        container.amqp.wake()
        return cls(client, container, made)

    def when_ready(self, go_on: Callable[[], None], refuse: Callable[[AmqpError], None]) -> None:
        """See `ClientCoordinator.prepare`."""
        if self._ready:
            go_on()
        else:
            self._waiting.append((go_on, refuse))

    def attached(self) -> None:
        """Refuse a broker at which transactions cannot be named, as Artemis."""
        answer = self.link.remote_attach
        offered = (answer.offered_capabilities if answer is not None else None) or ()
        if self.link.remote_target is not None and NAMED_TRANSACTIONS not in offered:
            self._end(AmqpError(NOT_IMPLEMENTED, "the address's broker has no transactions behind a router"))
            self.leave()

    def flow(self) -> None:
        """Let the links that waited be attached: there is credit."""
        link = self.link
        if not self._ready and isinstance(link, Sender) and link.credit > 0 and self.open:
            self._ready = True
            waiting, self._waiting = self._waiting, []
            for go_on, _ in waiting:
                go_on()

    def declare(self, work: _Work) -> None:
        """Declare a transaction by its name. Its work may follow at once. Raises AmqpError if there is no credit."""
        self._send(Declare(global_id=work.id), (work, None))

    def discharge(self, work: _Work, fail: bool, delivery_id: int) -> None:
        """Discharge a transaction; the client's request is answered by the outcome. A discharge does not overtake
        messages of its transaction that wait for the broker's window or its reading."""
        if any(link.is_sending(work.id) for link in work.links):
            self._discharges.append((work, fail, delivery_id))
            return
        self._client.forget(work)
        error = None if fail else work.error
        for session in self.connection.amqp.sessions():
            session.flush()  # outcomes of the transaction come before its end
        try:
            self._send(
                Discharge(txn_id=work.id, fail=fail or error is not None), (work, None if error else delivery_id)
            )
        except AmqpError as failure:
            self._client.link.detach(failure)
            return
        if error is not None:
            self._client.answer(delivery_id, rejected(error))

    def proceed(self) -> None:
        """Send the discharges that need not wait any longer."""
        waiting, self._discharges = self._discharges, []
        for each in waiting:
            self.discharge(*each)

    def _send(self, request: Declare | Discharge, token: tuple[_Work, int | None]) -> None:
        link = self.link
        assert isinstance(link, Sender)
        link.send(write_request(request), token)
        self.connection.amqp.wake()

    def outcomes(self, tokens: list[tuple[_Work, int | None]], state: Any, settled: bool) -> None:
        """Answer the client's discharges. Of a declare only a refusal matters."""
        for work, delivery_id in tokens:
            if delivery_id is not None:
                self._client.answer(delivery_id, state)
            elif isinstance(state, Rejected) and work.error is None:
                error = state.error
                work.error = AmqpError(
                    error.condition if error is not None else TRANSACTION_ROLLBACK,
                    (error.description if error is not None else None) or "the broker has refused the transaction",
                )

    def lost(self, tokens: list[tuple[_Work, int | None]]) -> None:
        """End the client's link if it waits for a discharge: whether that was done is not known."""
        if any(delivery_id is not None for _, delivery_id in tokens) and not self._client.link.over:
            text = "the broker was lost during a discharge: whether the transaction was committed is not known"
            self._client.connection.detach(self._client, AmqpError("amqp:internal-error", text))

    def leave(self) -> None:
        """End the link: the client has ended its own."""
        if self.open:
            self.open = False
            self.connection.detach(self)

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        """The broker has ended the link, or was lost."""
        self.open = False
        self.connection.link_over(self)
        self._end(error or AmqpError(TRANSACTION_ROLLBACK, _LOST))

    def _end(self, error: AmqpError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, refuse in waiting:
            refuse(error)
        self._client.broker_lost(self)
        discharges, self._discharges = self._discharges, []
        for work, fail, delivery_id in discharges:
            self._client.forget(work)
            self._client.answer(delivery_id, ACCEPTED if fail else rejected(AmqpError(TRANSACTION_ROLLBACK, _LOST)))

    def gone(self) -> None:
        """Do nothing: `detached` has done it."""


def rejected(error: AmqpError) -> Rejected:
    """Return the outcome for an error of the client."""
    return Rejected(error=Error(condition=Symbol(error.condition), description=error.description))


def _unknown(id: bytes) -> AmqpError:
    return AmqpError(TRANSACTION_UNKNOWN_ID, f"there is no open transaction {bytes(id).hex()} on this link")
