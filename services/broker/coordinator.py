"""The coordinators of a connection's transactions (AMQP 1.0, 4.2), and the ids under which its links work."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any, Final

from enmasse.amqp.codec.errors import TRANSACTION_UNKNOWN_ID, AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Declare, Declared, Discharge, Error, Rejected
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Receiver
from enmasse.amqp.messages.coordination import read_request
from enmasse.amqp.messages.transaction_limits import OPEN
from services.broker.core.broker import Broker
from services.broker.core.errors import BrokerError
from services.broker.core.transactions import Transaction, TransactionUser

CREDIT: Final = 200
CAPABILITIES: Final = (
    Symbol("amqp:local-transactions"),
    Symbol("amqp:multi-txns-per-ssn"),
    Symbol("amqp:multi-ssns-per-txn"),
)
_ENDED = 200  # ids that are remembered, to state why they are not known


def rejected(error: BrokerError | AmqpError) -> Rejected:
    """Return the outcome for an error of the sender."""
    description = str(error) if isinstance(error, BrokerError) else error.description
    return Rejected(error=Error(condition=Symbol(error.condition), description=description))


class OwnTransactions:
    """The transactions of one connection, by id: its links work under these alone."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._open: dict[bytes, Transaction] = {}
        self._ended: dict[bytes, BrokerError] = {}

    def find(self, id: bytes) -> Transaction:
        """Return an open transaction. Raises BrokerError."""
        found = self._open.get(id)
        if found is None:
            raise self._ended.get(id) or BrokerError(
                f"there is no open transaction {id.hex()} on this connection", str(TRANSACTION_UNKNOWN_ID)
            )
        return found

    def fail(self, id: bytes, error: AmqpError) -> None:
        """Let a transaction, if it is open, end by a rollback only: a part of it was not taken."""
        if id in self._open:
            self._open[id].fail(error)

    def declare(self, id: bytes, user: TransactionUser) -> Transaction:
        """Begin a transaction. Raises BrokerError."""
        if id in self._open:
            raise BrokerError(f"transaction {id.hex()} is open already", "amqp:not-allowed")
        transaction = self.broker.transactions.declare(id, user, partial(self.ended, id))
        self._open[id] = transaction
        return transaction

    def ended(self, id: bytes, error: BrokerError | None = None) -> None:
        """Forget a transaction; `error`: what is stated to whoever uses it on."""
        self._open.pop(id, None)
        if error is not None:
            self._ended[id] = error
            if len(self._ended) > _ENDED:
                del self._ended[next(iter(self._ended))]


class Coordinator:
    """A link to the coordinator. Transactions that it has declared end with it."""

    def __init__(self, own: OwnTransactions, link: Receiver, user: TransactionUser, *, names: bool) -> None:
        """`names`: the peer is a router, which names transactions itself, by the global id of their declares."""
        self._own = own
        self._user = user
        self._names = names
        self._declared: dict[bytes, Transaction] = {}
        self.link = link

    def start(self) -> None:
        """Grant credit."""
        self.link.on_delivery = self.deliver
        self.link.credit_window = CREDIT

    def deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Serve a declare or a discharge."""
        try:
            request = read_request(payload)
            if isinstance(request, Declare):
                self._answer(delivery_id, settled, self._declare(request))
            else:
                self._discharge(request, delivery_id, settled)
        except (BrokerError, AmqpError) as error:
            self._answer(delivery_id, settled, rejected(error))

    def _answer(self, delivery_id: int, settled: bool, state: Any) -> None:
        if not settled and not self.link.over:
            self.link.session.settle(delivery_id, state)

    def _declare(self, request: Declare) -> Declared:
        if request.global_id is not None and not self._names:
            raise BrokerError("transactions over several brokers are not supported", "amqp:not-implemented")
        self._declared = {id: each for id, each in self._declared.items() if self._is_open(each)}
        if len(self._declared) >= OPEN:
            raise BrokerError(
                f"a coordinator's link has at most {OPEN} open transactions: discharge some",
                "amqp:resource-limit-exceeded",
            )
        id = bytes(request.global_id) if request.global_id else secrets.token_bytes(8)
        self._declared[id] = self._own.declare(id, self._user)
        return Declared(txn_id=id)

    def _is_open(self, transaction: Transaction) -> bool:
        try:
            return self._own.find(transaction.id) is transaction
        except BrokerError:
            return False

    def _discharge(self, request: Discharge, delivery_id: int, settled: bool) -> None:
        id = bytes(request.txn_id)
        transaction = self._own.find(id)
        if self._declared.pop(id, None) is None:
            raise BrokerError(f"transaction {id.hex()} was declared on another link", str(TRANSACTION_UNKNOWN_ID))
        self._own.ended(id)
        transactions = self._own.broker.transactions

        def done(error: BrokerError | None) -> None:
            self._answer(delivery_id, settled, ACCEPTED if error is None else rejected(error))

        if request.fail:
            transactions.roll_back(transaction)
            done(None)
        else:
            transactions.commit(transaction, done)

    def flow(self) -> None:
        """Do nothing: flows of a sending peer ask for nothing."""

    def detached(self, closed: bool) -> None:
        """Roll back what was not discharged (4.2)."""
        for id, transaction in self._declared.items():
            self._own.ended(id)
            self._own.broker.transactions.roll_back(transaction)
        self._declared.clear()
