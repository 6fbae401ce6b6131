"""Transactions: what is sent and acknowledged under an id, done together or not at all (AMQP 1.0, part 4).

What is posted waits in memory, invisible. Messages whose outcome waits are out of their queue's order, counted as being
delivered. A discharge enters all of it within one group of the store, and is answered when that is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, NamedTuple, Protocol

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, TransactionalState
from enmasse.amqp.messages.transaction_limits import BYTES, BYTES_OF_SPACE, OPERATIONS, SECONDS, used
from enmasse.logs import log
from services.broker.core.errors import BrokerError, address_full
from services.broker.core.limits.broker_address import BrokerAddress
from services.broker.core.limits.space_storage import SpaceTotals
from services.broker.core.messages.stored_message import StoredMessage
from services.broker.core.persistence import Committed
from services.broker.core.publishing.admission import Admission
from services.broker.core.publishing.verdict import ACCEPT
from services.broker.core.queues.consumer import Consumer
from services.broker.core.queues.queue import Queue

LIFE: Final = SECONDS * 1000
"""Milliseconds from declare to discharge."""
OPEN_OF_SPACE: Final = 1000
"""Open transactions of one address space. A user has at most as many as are left, so half; so with the bytes."""
_RECORD = 96  # bytes of a record in the journal beside a payload, about
ROLLBACK: Final = "amqp:transaction:rollback"
TIMEOUT: Final = "amqp:transaction:timeout"
_log = log.get()
_STRICT = frozenset(("BLOCK", "FAIL"))

Done = Callable[[BrokerError | None], None]
"""Called when a discharge has ended: None, all is done and on disk; else nothing is."""


class Post(Protocol):
    """A message that a transaction sends."""

    size: int

    @property
    def owner(self) -> BrokerAddress:
        """The address that it counts to."""

    @property
    def durable(self) -> bool:
        """Whether it is to be stored."""

    def prepare(self) -> int:
        """Find its queues at this moment; return how many. Raises BrokerError, AmqpError if it cannot go to one."""

    def enter(self) -> None:
        """Put it into these queues: consumers get it with the next commit."""


class Retirement:
    """Messages whose outcome waits for the end of a transaction (4.4.2)."""

    __slots__ = ("apply", "conclude", "consumer", "kept", "messages", "queue")

    def __init__(
        self,
        queue: Queue,
        consumer: Consumer,
        messages: Sequence[StoredMessage],
        apply: Callable[[list[StoredMessage]], object],
        conclude: Callable[[], None],
        kept: Callable[[StoredMessage], bool],
    ) -> None:
        """`apply` the outcome to messages that are the consumer's; `conclude`: settle the deliveries after that;
        `kept`: whether the consumer still has a delivery, of which it may state another outcome."""
        self.queue = queue
        self.consumer = consumer
        self.apply = apply
        self.conclude = conclude
        self.kept = kept
        self.messages = [message for message in messages if consumer.unsettled.pop(message.id, None) is not None]
        queue.held.update((message.id, message) for message in self.messages)

    def give_back(self) -> None:
        """Make the messages the consumer's again, and no one else's."""
        if self.queue.deleted:
            self.messages = []  # they went with it
        for message in self.messages:
            del self.queue.held[message.id]
            self.consumer.unsettled[message.id] = message

    def undo(self) -> None:
        """Return what the consumer has settled, as failed deliveries; it keeps the rest."""
        self.give_back()
        settled = [message for message in self.messages if not self.kept(message)]
        if settled:
            self.queue.outcomes.modify(self.consumer, settled, failed=True, elsewhere=False)


class TransactionUser(NamedTuple):
    """A user of transactions. `sender`: see enmasse/identity/senders.py; empty: all unknown users together."""

    tenant: str
    sender: bytes


class Transaction:
    """One transaction, from declare to discharge."""

    __slots__ = ("deadline", "error", "expired", "id", "operations", "posted", "posts", "retirements", "taken", "user")

    def __init__(self, id: bytes, user: TransactionUser, deadline: int, expired: Callable[[BrokerError], None]) -> None:
        """`expired` is called when the broker has rolled it back."""
        self.id = id
        self.user = user
        self.deadline = deadline
        self.expired = expired
        self.posts: list[Post] = []
        self.retirements: list[Retirement] = []
        self.posted = self.operations = 0
        self.error: BrokerError | None = None  # why it can only be rolled back
        self.taken = TransactionalState(txn_id=id, outcome=ACCEPTED)
        """State of a message that is taken: one for all, so that they are answered together."""

    def fail(self, error: BrokerError | AmqpError) -> None:
        """Let it end by a rollback only, for this reason: a part of it could not be done."""
        if self.error is None:
            reason = str(error) if isinstance(error, BrokerError) else error.description
            self.error = BrokerError(f"the transaction is rolled back: {reason}", ROLLBACK)


class TransactionsHost(Protocol):
    """The part of the broker that transactions use."""

    admission: Admission

    @property
    def now(self) -> int:
        """Milliseconds."""

    def on_deadline(self, ms: int) -> None:
        """Call `tick` then."""

    def group(self, size: int) -> AbstractContextManager[None]:
        """See `Broker.group`."""

    def ask_commit(self, urgent: bool) -> None:
        """See `Broker.ask_commit`."""

    def when_stored(self, done: Committed) -> None:
        """See `Broker.when_stored`."""


class _Share:
    """Open transactions of one address space, or of one user."""

    __slots__ = ("open", "posted")

    def __init__(self) -> None:
        self.open = self.posted = 0


class Transactions:
    """The open transactions of a broker."""

    def __init__(self, broker: TransactionsHost) -> None:
        self._broker = broker
        self._open: dict[Transaction, None] = {}  # the oldest first
        self._shares: dict[str | TransactionUser, _Share] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def due(self) -> int:
        """The time at which the first one expires; 0: never."""
        for transaction in self._open:
            return transaction.deadline
        return 0

    def declare(self, id: bytes, user: TransactionUser, expired: Callable[[BrokerError], None]) -> Transaction:
        """Begin a transaction. Raises BrokerError if its user, or its space, has too many."""
        all_open, own = (share.open if (share := self._shares.get(key)) else 0 for key in (user.tenant, user))
        if own >= OPEN_OF_SPACE - all_open:
            raise BrokerError(used("open transactions", own, all_open, OPEN_OF_SPACE), "amqp:resource-limit-exceeded")
        transaction = Transaction(id, user, self._broker.now + LIFE, expired)
        for key in (user.tenant, user):
            self._shares.setdefault(key, _Share()).open += 1
        self._open[transaction] = None
        self._broker.on_deadline(transaction.deadline)
        return transaction

    # -- work ----------------------------------------------------------------------------------------------------------
    def post(self, transaction: Transaction, post: Post) -> None:
        """Add a message. Raises BrokerError, AmqpError: then the transaction can only be rolled back."""
        try:
            self._count(transaction, 1, post.size)
            post.prepare()
            refusal = self._broker.admission.refusal(post.owner, post.durable, post.size)
            if refusal is not None and refusal is not ACCEPT:
                raise self._broker.admission.full(post.owner, post.size)
        except (BrokerError, AmqpError) as error:
            transaction.fail(error)
            raise
        if refusal is None:  # else it is dropped by the policy of the full address
            transaction.posts.append(post)

    def retire(self, transaction: Transaction, retirement: Retirement) -> None:
        """Add outcomes."""
        transaction.retirements.append(retirement)
        try:
            self._count(transaction, len(retirement.messages), 0)
        except BrokerError as error:
            transaction.fail(error)

    def _count(self, transaction: Transaction, operations: int, size: int) -> None:
        space, own = (self._shares[key] for key in (transaction.user.tenant, transaction.user))
        transaction.operations += operations
        if transaction.operations > OPERATIONS:
            raise BrokerError(f"a transaction has at most {OPERATIONS} messages", "amqp:resource-limit-exceeded")
        if transaction.posted + size > BYTES:
            raise BrokerError(f"a transaction sends at most {BYTES} bytes", "amqp:resource-limit-exceeded")
        if size and own.posted + size > BYTES_OF_SPACE - space.posted - size:
            text = used("bytes in open transactions", own.posted, space.posted, BYTES_OF_SPACE)
            raise BrokerError(text, "amqp:resource-limit-exceeded")
        for each in (transaction, space, own):
            each.posted += size

    # -- the end -------------------------------------------------------------------------------------------------------
    def commit(self, transaction: Transaction, done: Done) -> None:
        """Do all of it; `done` is called when it is on disk, or with the reason if it was rolled back instead."""
        if transaction not in self._open:
            return
        try:
            if transaction.error is not None:
                raise transaction.error
            size = self._check(transaction)
            with self._broker.group(size):
                for post in transaction.posts:
                    post.enter()  # an error undoes the group
                self._close(transaction)
                for retirement in transaction.retirements:
                    _retire(retirement)
        except Exception as error:
            if isinstance(error, BrokerError | AmqpError):
                transaction.fail(error)
            elif isinstance(error, OSError):
                transaction.fail(BrokerError(f"it cannot be stored: {error}"))
            else:
                _log.exception("broker.transaction.failed", space=transaction.user.tenant)
                transaction.fail(BrokerError("an unexpected error of the broker, which is in its log"))
            self.roll_back(transaction)
            done(transaction.error)
            return
        self._broker.ask_commit(urgent=True)
        self._broker.when_stored(partial(self._stored, transaction, done))

    def _check(self, transaction: Transaction) -> int:
        """Return the bytes that the transaction takes in the journal, about. Raises BrokerError, AmqpError if a part
        of it cannot be done."""
        size = sum(_RECORD + _retired_size(each) for each in transaction.retirements)
        sizes: dict[tuple[BrokerAddress, bool], list[int]] = {}
        for post in transaction.posts:
            size += post.size + _RECORD + 8 * post.prepare()
            sizes.setdefault((post.owner, post.durable), []).append(post.size)
        spaces: dict[SpaceTotals, int] = {}
        for (owner, durable), some in sizes.items():
            if owner.space is not None:  # its storage is a limit over all its addresses
                spaces[owner.space] = total = spaces.get(owner.space, 0) + sum(some)
                if owner.space.size + total > owner.space.most:
                    self._broker.admission.refusal(owner, durable, total)
                    raise address_full(owner.name, "its address space has no storage left here; receive some")
            refusal = self._broker.admission.refusal(owner, durable, sum(some))
            beyond = owner.size + sum(some) > owner.limit or owner.count + len(some) > owner.limit_count
            if (refusal is not None and refusal is not ACCEPT) or (beyond and owner.settings.full_policy in _STRICT):
                raise self._broker.admission.full(owner, sum(some))
        return size

    def _stored(self, transaction: Transaction, done: Done, error: OSError | None) -> None:
        if error is not None:  # the store has kept the group, and writes it with the next commit
            self._broker.ask_commit(urgent=False)
            self._broker.when_stored(partial(self._stored, transaction, done))
            return
        for retirement in transaction.retirements:
            retirement.conclude()
        done(None)

    def roll_back(self, transaction: Transaction) -> None:
        """Do nothing of it."""
        if transaction in self._open:
            self._close(transaction)
            for retirement in transaction.retirements:
                retirement.undo()

    def _close(self, transaction: Transaction) -> None:
        del self._open[transaction]
        for key in (transaction.user.tenant, transaction.user):
            share = self._shares[key]
            share.open -= 1
            share.posted -= transaction.posted
            if not share.open:
                del self._shares[key]

    def expire(self, now: int) -> None:
        """Roll back the transactions that were not discharged in time."""
        for transaction in list(self._open):
            if transaction.deadline > now:
                break
            self.roll_back(transaction)
            transaction.expired(BrokerError(f"the transaction was not discharged within {SECONDS} seconds", TIMEOUT))


def _retire(retirement: Retirement) -> None:
    """Apply outcomes, of which none is refused: by now the transaction is committed. A message whose outcome fails is
    delivered again."""
    retirement.give_back()
    try:
        retirement.apply(retirement.messages)
    except Exception:
        queue = retirement.queue
        _log.exception("broker.transaction.outcome-failed", queue=queue.name, space=queue.address.tenant)
        queue.outcomes.release(retirement.consumer, retirement.messages)


def _retired_size(retirement: Retirement) -> int:
    """Return the bytes that outcomes may take: of rejected messages copies go to the dead letters."""
    return sum(_RECORD + message.size for message in retirement.messages)
