"""Transactions of clients: each is bound to the broker of the queue or topic that it works with first.

A client's link to the coordinator ends at the router, which names the transactions. In a session with such a link,
links to queues and topics are passed on to their brokers as links, each after a link of the router to that broker's
coordinator is ready: there the router declares a transaction, by its name, in front of its first work.

A broker that names transactions itself, as Artemis, is asked for names in advance: its links are ready, and a client's
declare is answered, when it has given one for each transaction that may be bound to it. So work waits for nothing.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from enmasse.amqp.codec.errors import (
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TIMEOUT,
    TRANSACTION_UNKNOWN_ID,
    AmqpError,
)
from enmasse.amqp.codec.performatives import ACCEPTED, Coordinator, Declare, Declared, Discharge, Error, Rejected
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.messages.coordination import read_request, write_request
from enmasse.amqp.messages.transaction_limits import OPEN, SECONDS
from enmasse.amqp.termini import NAMED_TRANSACTIONS, stated
from services.router.routing.brokers.routed_transaction import RoutedTransaction, WorkLink
from services.router.routing.connection import LinkRecord, RouterConnection

CREDIT: Final = 200
CAPABILITIES: Final = (Symbol("amqp:local-transactions"), Symbol("amqp:multi-txns-per-ssn"))
_LOST = "the broker of the transaction was lost, and has rolled it back"


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

    __slots__ = ("_bound", "_brokers", "_declares", "_open")
    direction = "in"

    def __init__(self, connection: RouterConnection, link: Receiver) -> None:
        super().__init__(connection, link)
        self._open: dict[bytes, RoutedTransaction] = {}
        self._bound: dict[RoutedTransaction, BrokerCoordinator] = {}
        self._declares: deque[tuple[int, RoutedTransaction]] = deque()  # that wait for the names of brokers
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
                self._declare(request, answered)
            else:
                self._discharge(request, answered)
        except AmqpError as error:
            self.answer(answered, rejected(error))

    def answer(self, delivery_id: int, state: Any) -> None:
        """Answer a request. -1: it was settled."""
        if delivery_id >= 0 and not self.link.over:
            self.connection.relatively(self.link.session.settle)(delivery_id, state)
            self.connection.amqp.wake()

    def _declare(self, request: Declare, delivery_id: int) -> None:
        if request.global_id is not None:
            raise AmqpError(NOT_IMPLEMENTED, "transactions over several brokers are not supported")
        if len(self._open) >= OPEN:
            text = f"a coordinator's link has at most {OPEN} open transactions: discharge some"
            raise AmqpError(RESOURCE_LIMIT_EXCEEDED, text)
        work = RoutedTransaction(secrets.token_bytes(16))
        self._open[work.id] = work
        self._declares.append((delivery_id, work))
        self.answer_declares()

    @property
    def unbound(self) -> int:
        """Number of transactions that the client knows and that are bound to no broker."""
        return len(self._open) - len(self._declares) - len(self._bound)

    def answer_declares(self) -> None:
        """Answer the declares, as far as every broker has a name for each transaction that may be bound to it."""
        while self._declares and all(broker.names(self.unbound + 1) for broker in self._brokers.values()):
            delivery_id, work = self._declares.popleft()
            self.answer(delivery_id, Declared(txn_id=work.id))

    def _discharge(self, request: Discharge, delivery_id: int) -> None:
        work = self._open.get(bytes(request.txn_id))
        if work is None or work.ends:
            raise _unknown(request.txn_id)
        work.ends = True
        broker = self._bound.get(work)
        if broker is not None and broker.open:
            broker.discharge(work, bool(request.fail), delivery_id)
            return
        self.forget(work)
        error = None if request.fail else work.error
        self.answer(delivery_id, ACCEPTED if error is None else rejected(error))

    def forget(self, work: RoutedTransaction) -> None:
        """The discharge of a transaction is sent, or answered."""
        self._open.pop(work.id, None)
        broker = self._bound.pop(work, None)
        if broker is not None:
            work.over(broker.connection)

    def find(self, id: bytes) -> RoutedTransaction | None:
        """Return an open transaction."""
        return self._open.get(bytes(id))

    def proceed(self) -> None:
        """Send the discharges that waited for messages which have left by now."""
        for broker in list(self._brokers.values()):
            broker.proceed()

    def bind(self, id: bytes, container: RouterConnection, link: WorkLink | None = None) -> RoutedTransaction:
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
        broker, bound = self._brokers.get(container), self._bound.get(work)
        if bound is not None and bound is broker:
            return work
        try:
            if broker is None or not broker.open:
                raise AmqpError(TRANSACTION_ROLLBACK, _LOST)
            if bound is not None:
                raise AmqpError(
                    TRANSACTION_ROLLBACK,
                    "the transaction is rolled back: it works with addresses of two brokers. One transaction takes the "
                    "queues and topics of one broker",
                )
            broker.declare(work)
        except AmqpError as error:
            work.error = error
            raise
        self._bound[work] = broker
        return work

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
            if self.link.over:
                refuse(AmqpError(TRANSACTION_ROLLBACK, "the link to the coordinator has ended"))
                return
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
        for work, bound in self._bound.items():
            if bound is broker:
                work.over(broker.connection)
                work.error = AmqpError(TRANSACTION_ROLLBACK, _LOST)
        self.answer_declares()

    def expire(self, work: RoutedTransaction) -> None:
        """Roll back a transaction that was not discharged in time; its discharge is to learn that."""
        broker = None if work.ends else self._bound.pop(work, None)
        if broker is not None:
            work.over(broker.connection)
            work.error = AmqpError(TRANSACTION_TIMEOUT, f"the transaction was not discharged within {SECONDS} seconds")
            broker.discharge(work, True, None)

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        """End the links to brokers: they roll back."""
        self.connection.coordinators.pop(self.link.session, None)
        self.connection.link_over(self)
        self._declares.clear()
        for work in self._open.values():
            work.ends = True
        self._open = {work.id: work for work in self._bound}  # until their brokers have got the discharges
        for broker in list(self._brokers.values()):
            broker.leave([work for work, bound in self._bound.items() if bound is broker])

    def left(self, broker: BrokerCoordinator) -> None:
        """Forget a broker, all of whose transactions have ended."""
        del self._brokers[broker.connection]

    def gone(self) -> None:
        """Do nothing: `detached` has done it."""


class BrokerCoordinator(_CoordinatorLink):
    """The router's link to the coordinator of a broker, for one client. Tokens of its deliveries are the transaction
    and the delivery to be answered; None for a declare. A declare for a name, and the end of a name that no transaction
    has got, have no transaction."""

    __slots__ = (
        "_asked", "_client", "_discharges", "_leaving", "_names", "_ready", "_takes_names", "_waiting", "open"
    )  # fmt: skip
    faces_client = False
    direction = "out"

    def __init__(self, client: ClientCoordinator, connection: RouterConnection, link: Sender) -> None:
        super().__init__(connection, link)
        self._client = client
        self._waiting: list[tuple[Callable[[], None], Callable[[AmqpError], None]]] = []
        self._discharges: list[tuple[RoutedTransaction, bool, int | None]] = []
        """Behind messages that have not left whole, or that are not answered."""
        self._takes_names = False
        self._names: deque[bytes] = deque()  # made by the broker, of no transaction yet
        self._asked = 0  # names that the broker is asked for
        self._leaving = False
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
        """Note whether the broker takes the router's names of transactions."""
        answer = self.link.remote_attach
        self._takes_names = NAMED_TRANSACTIONS in ((answer and answer.offered_capabilities) or ())

    def flow(self) -> None:
        """Handle new credit or room: send discharges that waited, ask for names."""
        self.proceed()
        if self._ready:
            self._client.answer_declares()
        else:
            self._make_ready()

    def _make_ready(self) -> None:
        """Let the links that waited be attached if there is credit, and a name for each transaction."""
        link = self.link
        if self._ready or not isinstance(link, Sender) or link.credit <= 0 or not self.open or self._leaving:
            return
        if self._has_names(max(1, self._client.unbound)):
            self._ready = True
            waiting, self._waiting = self._waiting, []
            for go_on, _ in waiting:
                go_on()

    def names(self, count: int) -> bool:
        """Return whether `count` transactions can be bound to this broker at once. Before its links are attached, that
        does not matter yet."""
        return not self._ready or self._has_names(count)

    def _has_names(self, count: int) -> bool:
        """As `names`; ask the broker for names that are missing."""
        if self._takes_names:
            return True
        link = self.link
        assert isinstance(link, Sender)
        while len(self._names) + self._asked < count and link.granted > 0 and self.open:
            self._asked += 1
            self._send(Declare(), (None, None))
        return len(self._names) >= count

    def declare(self, work: RoutedTransaction) -> None:
        """Declare a transaction by its name. Its work may follow at once. Raises AmqpError if there is no credit, or no
        name."""
        if self._takes_names:
            self._send(Declare(global_id=work.id), (work, None))
            return
        if not self._names:
            raise AmqpError(TRANSACTION_ROLLBACK, "the broker has not named the transaction yet: try again")
        timer = self.connection.owner.clock.call_later(SECONDS, partial(self._client.expire, work))
        work.named(self._names.popleft(), self._client.connection.sender, timer)
        self._has_names(1)  # the next declare of the client finds it here

    def discharge(self, work: RoutedTransaction, fail: bool, delivery_id: int | None) -> None:
        """Discharge a transaction; the client's request is answered by the outcome. `delivery_id` None: no request has
        come. A discharge does not overtake messages of its transaction that wait for the broker's window or its
        reading, nor, at a broker that may take some of them later, an answer to them."""
        link = self.link
        assert isinstance(link, Sender)
        error = None if fail else work.error
        failed = fail or error is not None
        if (work.unanswered and not failed) or link.granted <= 0 or any(each.is_sending(work) for each in work.links):
            self._discharges.append((work, fail, delivery_id))
            return
        if delivery_id is not None:
            self._client.forget(work)
        for session in self.connection.amqp.sessions():
            session.flush()  # outcomes of the transaction come before its end
        self._send(Discharge(txn_id=work.name, fail=failed), (work, None if error else delivery_id))
        if error is not None and delivery_id is not None:
            self._client.answer(delivery_id, rejected(error))

    def proceed(self) -> None:
        """Send the discharges that need not wait any longer; then end the link, if the client has left."""
        waiting, self._discharges = self._discharges, []
        for each in waiting:
            self.discharge(*each)
        if self._leaving and not self._discharges and not self._asked and self.open:
            self.open = False
            self._client.left(self)
            self.connection.detach(self)

    def _send(self, request: Declare | Discharge, token: tuple[RoutedTransaction | None, int | None]) -> None:
        link = self.link
        assert isinstance(link, Sender)
        link.send(write_request(request), token)
        self.connection.amqp.wake()

    def outcomes(self, tokens: list[tuple[RoutedTransaction | None, int | None]], state: Any, settled: bool) -> None:
        """Answer the client's discharges, take names; else only a refusal matters."""
        for work, delivery_id in tokens:
            if work is None:
                self._take_name(state)
            elif delivery_id is not None:
                if work.foreign and isinstance(state, Rejected):
                    state = rejected(_refusal(state, TRANSACTION_ROLLBACK))
                self._client.answer(delivery_id, state)
            elif isinstance(state, Rejected) and work.error is None:
                work.error = _refusal(state)

    def _take_name(self, state: Any) -> None:
        """Take the broker's name of a transaction; without one there are no transactions at it."""
        self._asked -= 1
        if not isinstance(state, Declared):
            error = _refusal(state) if isinstance(state, Rejected) else AmqpError(TRANSACTION_ROLLBACK, _LOST)
            self.open = False
            self._end(error)
            self.connection.detach(self)
        elif self._leaving:
            self.discharge(RoutedTransaction(bytes(state.txn_id)), True, -1)
            self.proceed()
        else:
            self._names.append(bytes(state.txn_id))
            self._make_ready()
            self._client.answer_declares()

    def lost(self, tokens: list[tuple[RoutedTransaction | None, int | None]]) -> None:
        """End the client's link if it waits for a discharge: whether that was done is not known."""
        if any(delivery_id is not None for _, delivery_id in tokens) and not self._client.link.over:
            text = "the broker was lost during a discharge: whether the transaction was committed is not known"
            self._client.connection.detach(self._client, AmqpError("amqp:internal-error", text))

    def leave(self, works: list[RoutedTransaction]) -> None:
        """End the link: the client has ended its own. `works`: its transactions, which a broker that names them itself
        would keep, and the names of none."""
        self._leaving = True
        self._discharges = []
        if self._takes_names:
            for work in works:
                self._client.forget(work)
        else:
            for work in (*works, *map(RoutedTransaction, self._names)):
                self.discharge(work, True, -1)
        self.proceed()

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
            if delivery_id is not None:
                self._client.forget(work)
                self._client.answer(delivery_id, ACCEPTED if fail else rejected(AmqpError(TRANSACTION_ROLLBACK, _LOST)))

    def gone(self) -> None:
        """Do nothing: `detached` has done it."""


def rejected(error: AmqpError) -> Rejected:
    """Return the outcome for an error of the client."""
    return Rejected(error=Error(condition=Symbol(error.condition), description=error.description))


def _refusal(state: Rejected, condition: str = "") -> AmqpError:
    """Return the error for which a broker has refused a request. `condition`: to be stated instead of the broker's."""
    error = state.error
    if error is None:
        return AmqpError(TRANSACTION_ROLLBACK, "the broker has refused the transaction")
    return AmqpError(condition or error.condition, error.description or "the broker has refused the transaction")


def _unknown(id: bytes) -> AmqpError:
    return AmqpError(TRANSACTION_UNKNOWN_ID, f"there is no open transaction {bytes(id).hex()} on this link")
