"""Transactions of clients (BEGIN, COMMIT, ABORT) over those of the queue's broker (AMQP 1.0, part 4).

What a client sends and acknowledges in a transaction waits here, within bounds, until COMMIT: then it is done under one
id, declared for it, at the one broker that the addresses have. So nothing is half done when a client, this gateway, the
router or the broker ends before the discharge; and a transaction takes the time of its COMMIT at the broker, not that
of the client. All clients of an address space share one session with a coordinator.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import (
    ACCEPTED,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.connection import Connection
from enmasse.amqp.link import Link, Sender
from enmasse.amqp.messages.coordination import write_request
from enmasse.amqp.messages.transaction_limits import BYTES, OPERATIONS
from enmasse.amqp.session import Session
from enmasse.bridge.lanes import Counters
from enmasse.bridge.space_lanes import SpaceLanes
from enmasse.bridge.uplink import LinkUser
from enmasse.identity.principal import Principal
from services.stomp_gateway.stomp_errors import StompError
from services.stomp_gateway.stomp_subscriptions import StompDelivery

OPEN: Final = 10
"""Transactions of a client that are open. The bounds of each are those of a broker."""
ADDRESSES: Final = 64
"""Addresses that a transaction sends to."""
AT_ONCE: Final = 50
"""Commits of an address space that are under way; the others wait."""
SPARE: Final = 16
"""Ids of transactions that are asked for in advance, at most, if as many commits are under way."""
LINKS: Final = 256
"""Links to addresses, of which those give way that no commit uses."""
PATIENCE: Final = 20.0
"""Seconds of a commit."""
ALL_BYTES: Final = 128 << 20
"""Bytes of the messages in all transactions of the gateway. An address space has at most half of what the others leave,
and a user at most as many as are left of that, so 64 and 32 MiB: as at a broker."""
LIFE: Final = 300.0
"""Seconds from BEGIN to COMMIT, as in Artemis."""


class TransactionBytes:
    """Bytes of the messages in transactions, of all clients of the gateway."""

    def __init__(self) -> None:
        self.total = 0
        self._shares: Counter[tuple[str, ...]] = Counter()

    def take(self, user: Principal, size: int) -> None:
        """Count a message. Raises StompError if the user, or its address space, has too many."""
        own = self._shares[user.space, user.name]
        left = (ALL_BYTES - self.total - self._shares[user.space,]) // 2
        if own + size > left - size:
            text = (
                f"the user has {own} bytes in transactions, and a user gets at most as many as are left: commit some, "
                "or wait"
            )
            raise StompError("try again later", text, condition="amqp:resource-limit-exceeded")
        self._count(user, size)

    def give(self, user: Principal, size: int) -> None:
        """Count messages no longer."""
        self._count(user, -size)

    def _count(self, user: Principal, size: int) -> None:
        self.total += size
        for key in ((user.space,), (user.space, user.name)):
            self._shares[key] += size
            if not self._shares[key]:
                del self._shares[key]


class Open:
    """A transaction of a client. `late`: called once it has lasted too long."""

    def __init__(self, shares: TransactionBytes, user: Principal, late: Callable[[Open], None]) -> None:
        self.posts: list[tuple[str, bytes]] = []
        """Address on AMQP, and message."""
        self.names: set[str] = set()
        """Names that messages are sent to, as clients know them."""
        self.outcomes: list[tuple[StompDelivery, Any]] = []
        self.expired = False
        self._addresses: set[str] = set()
        self._bytes = 0
        self._shares = shares
        self._user = user
        self._timer = asyncio.get_running_loop().call_later(LIFE, late, self)

    @property
    def operations(self) -> int:
        """Return the number of messages and acknowledgements."""
        return len(self.posts) + len(self.outcomes)

    def post(self, address: str, payload: bytes, name: str) -> None:
        """Add a message to a name at an address. Raises StompError."""
        size = len(payload) + (0 if name in self.names else len(name))
        self._check(1, size)
        if address not in self._addresses and len(self._addresses) >= ADDRESSES:
            raise StompError("transaction too large", f"a transaction sends to at most {ADDRESSES} addresses")
        self._shares.take(self._user, size)
        self._bytes += size
        self._addresses.add(address)
        self.names.add(name)
        self.posts.append((address, payload))

    def acknowledge(self, deliveries: Sequence[StompDelivery], state: Any) -> None:
        """Add outcomes. Raises StompError."""
        self._check(len(deliveries), 0)
        self.outcomes += [(each, state) for each in deliveries]

    def _check(self, operations: int, size: int) -> None:
        if self.operations + operations > OPERATIONS or self._bytes + size > BYTES:
            text = f"a transaction has at most {OPERATIONS} messages and acknowledgements, and {BYTES} bytes"
            raise StompError("transaction too large", text, condition="amqp:resource-limit-exceeded")

    def close(self) -> None:
        """Let it last as long as it takes: it is being committed, or rolled back."""
        self._timer.cancel()

    def end(self) -> None:
        """Forget it, with what it holds."""
        self._timer.cancel()
        self._shares.give(self._user, self._bytes)
        self._bytes = 0
        self.posts.clear()
        self.names.clear()
        self.outcomes.clear()


class _RouterLink(LinkUser):
    """A link to the router; `changed` is called when it is attached, has credit or has ended."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.link: Sender | None = None
        self.error: AmqpError | None = None
        self._changed = changed

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        self._changed()

    def on_flow(self, link: Sender) -> None:
        """As LinkUser."""
        self._changed()

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser."""
        self.link = None
        self.error = error or AmqpError("amqp:connection:forced", "the router is not reached")
        self._changed()


class _Coordination(_RouterLink):
    """The link to the coordinator."""

    def on_outcomes(self, link: Sender, tokens: list[asyncio.Future[Any]], state: Any, settled: bool) -> None:
        """As LinkUser."""
        for each in tokens:
            if not each.done():
                each.set_result(state)
        if not settled:
            link.settle(tokens)


class _Posts(_RouterLink):
    """A link to an address, for what transactions send. Tokens are lists to which the outcomes are added."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self.users = 0

    def ready(self) -> bool:
        """Return whether a message can be sent, or never will be."""
        return self.error is not None or _has_credit(self.link)

    def has_sent(self, transaction: bytes) -> bool:
        """Return whether the messages of a transaction have left whole, or never will."""
        return self.error is not None or self.link is None or not self.link.is_sending(transaction)

    def on_outcomes(self, link: Sender, tokens: list[list[Any]], state: Any, settled: bool) -> None:
        """As LinkUser. Outside of a transaction there is no good outcome."""
        for each in tokens:
            each.append(state)
        self._changed()
        if not settled:
            link.settle(tokens)

    def on_transactional(
        self,
        link: Sender,
        tokens: list[list[Any]],
        delivery_ids: Sequence[int],
        state: TransactionalState,
        settled: bool,
    ) -> None:
        """As LinkUser."""
        for each in tokens:
            each.append(state.outcome)
        self._changed()
        if not settled:
            link.settle_ids(delivery_ids)


class StompSpace(SpaceLanes):
    """State of an address space, with the session for transactions."""

    def __init__(self, space: str, counters: Counters) -> None:
        super().__init__(space, counters)
        self.transacting: Session | None = None
        """On which links for transactions are attached; None: there is no connection."""
        self.committed = self.rolled_back = 0
        self._connection: Connection | None = None
        self._coordination = _Coordination(self._notify)
        self._posts: dict[str, _Posts] = {}
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._under_way = 0
        self._declared: deque[asyncio.Future[Any]] = deque()  # answers to declares, for commits to come

    def up(self, connection: Connection) -> None:
        """As GatewaySpace."""
        self._connection = connection
        self._begin()
        super().up(connection)

    def _begin(self) -> None:
        """Begin a session with a coordinator. A session whose coordinator was lost has links that no transaction can
        use, and which stay."""
        assert self._connection is not None
        self.transacting = session = self._connection.begin()
        self._posts = {}
        self._declared = deque()
        self._coordination = found = _Coordination(self._notify)
        target = Coordinator(capabilities=(Symbol("amqp:local-transactions"),))
        found.link = session.attach_sender(None, Source(), target)
        found.link.context = found

    def session(self) -> Session | None:
        """Return where links of which transactions make use are attached."""
        return self.transacting

    def plain_session(self) -> Session | None:
        """Return where other links to clients are attached."""
        return self.receiving

    def _notify(self) -> None:
        self._changed.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def commit(self, work: Open) -> None:
        """Do what a transaction holds, all of it or nothing. Raises StompError: nothing was done, or that is not
        known."""
        if not work.operations:
            return
        async with self._slots:
            discharging: list[bool] = []
            self._under_way += 1
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._commit(work, discharging)
            except TimeoutError:
                if discharging:
                    raise _unknown("no answer in time") from None
                raise StompError("transaction aborted", "the broker did not take it in time: try again") from None
            except AmqpError as error:
                self.rolled_back += 1
                raise StompError("transaction aborted", error.description, condition=error.condition) from None
            finally:
                self._under_way -= 1
        self.committed += 1

    async def _commit(self, work: Open, discharging: list[bool]) -> None:
        coordination = await self._coordinator()
        id = await self._declare(coordination)
        links: list[_Posts] = []
        outcomes: list[list[Any]] = []
        try:
            await self._work(work, id, links, outcomes)
            discharging.append(True)
            state = await self._ask(coordination, Discharge(txn_id=id, fail=False))
            if state is None:
                raise _unknown("the broker or the router was lost")
            if state is not ACCEPTED:
                raise await self._refusal(state, links, outcomes)
        finally:
            for each in links:
                each.users -= 1
            if not discharging:
                self._roll_back(coordination, id)

    async def _declare(self, coordination: _Coordination) -> bytes:
        """Return the id of a new transaction, and ask for others in advance: as many as there are commits. Raises
        AmqpError."""
        known = self._declared
        answer = known.popleft() if known else await self._request(coordination, Declare())
        while len(known) < min(self._under_way, SPARE) and _has_credit(coordination.link):
            known.append(await self._request(coordination, Declare()))
        try:
            await asyncio.wait((answer,))
        except asyncio.CancelledError:
            known.appendleft(answer)  # it took too long: for the next one
            raise
        state = answer.result()
        if not isinstance(state, Declared):
            raise _error(state, "no transaction was declared")
        return bytes(state.txn_id)

    async def _refusal(self, state: Any, links: list[_Posts], outcomes: list[list[Any]]) -> AmqpError:
        """Return why a transaction was rolled back: because of a part of it, if there is such a one."""
        await self._until(lambda: all(outcomes) or any(each.error is not None for each in links))
        for each in links:
            if each.error is not None:
                return each.error
        for outcome in outcomes:
            if outcome[0] is not ACCEPTED:
                return _error(outcome[0], "a message was not taken")
        return _error(state, "the broker has rolled it back")

    async def _work(self, work: Open, id: bytes, links: list[_Posts], outcomes: list[list[Any]]) -> None:
        """State all of it under the id, without waiting for outcomes: what is refused is known from the discharge.
        Raises AmqpError if a part of it cannot be sent."""
        session = self.transacting
        for delivery, _ in work.outcomes:
            if delivery.link is not delivery.subscription.link:
                raise AmqpError("amqp:transaction:rollback", "a message was lost with its link, and is delivered again")
            if delivery.link.session is not session:
                text = f"{delivery.subscription.stated}: the coordinator was lost since its SUBSCRIBE: subscribe again"
                raise AmqpError("amqp:transaction:rollback", text)
        state = TransactionalState(txn_id=id)
        found: dict[str, _Posts] = {}
        for address, payload in work.posts:
            posts = found.get(address)
            if posts is None:
                posts = found[address] = self._link_to(address)
                posts.users += 1
                links.append(posts)
            await self._until(posts.ready)
            if posts.error is not None or posts.link is None:
                raise posts.error or AmqpError("amqp:connection:forced", "the router is not reached")
            outcome: list[Any] = []
            outcomes.append(outcome)
            posts.link.send(payload, outcome, state=state)
        for delivery, outcome_of in work.outcomes:
            own = TransactionalState(txn_id=id, outcome=outcome_of)
            delivery.subscription.settle(delivery, own, None)
        if session is not None and not session.ended:
            session.flush()
        for each in links:  # the discharge does not overtake a message that waits for room
            await self._until(partial(each.has_sent, id))
            if each.error is not None:
                raise each.error

    async def _coordinator(self) -> _Coordination:
        """Return the link to the coordinator, attached and with credit. Raises AmqpError."""
        if self._connection is None or self.transacting is None:
            raise AmqpError("amqp:connection:forced", "the router is not reached")
        if self._coordination.error is not None and not self.transacting.ended:
            self._begin()
        found = self._coordination
        await self._until(lambda: found.error is not None or _has_credit(found.link))
        if found.error is not None:
            raise found.error
        return found

    async def _ask(self, coordination: _Coordination, request: Declare | Discharge) -> Any:
        """Return the outcome of a request; None: it was lost."""
        return await (await self._request(coordination, request))

    async def _request(self, coordination: _Coordination, request: Declare | Discharge) -> asyncio.Future[Any]:
        """Ask the coordinator; the result is the outcome. Raises AmqpError if it cannot be asked."""
        await self._until(lambda: coordination.error is not None or _has_credit(coordination.link))
        if coordination.link is None:
            raise coordination.error or AmqpError("amqp:connection:forced", "the router is not reached")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        coordination.link.send(write_request(request), answer)
        return answer

    def _roll_back(self, coordination: _Coordination, id: bytes) -> None:
        link = coordination.link
        if link is not None and link.credit > 0:
            link.session.flush()  # outcomes of the transaction come before its end
            nobody: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            link.send(write_request(Discharge(txn_id=id, fail=True)), nobody)

    def _link_to(self, address: str) -> _Posts:
        """Return the link to an address. Raises AmqpError."""
        session = self.transacting
        if session is None or session.ended:
            raise AmqpError("amqp:connection:forced", "the router is not reached")
        found = self._posts.pop(address, None)
        if found is None or found.error is not None:
            unused = [name for name, each in self._posts.items() if not each.users]
            for name in unused[: max(len(self._posts) + 1 - LINKS, 0)]:
                spare = self._posts.pop(name)
                if spare.link is not None:
                    spare.link.detach()
            found = _Posts(self._notify)
            found.link = session.attach_sender(None, Source(), Target(address=address))
            found.link.transactional = True
            found.link.context = found
        self._posts[address] = found
        return found


def _has_credit(link: Sender | None) -> bool:
    return link is not None and link.attached and link.credit > 0


def _error(state: Any, what: str) -> AmqpError:
    error = state.error if isinstance(state, Rejected) else None
    if error is None:
        return AmqpError("amqp:transaction:rollback", f"{what}: try again")
    return AmqpError(str(error.condition), error.description or what)


def _unknown(why: str) -> StompError:
    return StompError(
        "outcome unknown",
        f"{why} while the transaction was committed: whether it was is not known. Repeat it with _AMQ_DUPL_ID in its "
        "messages: brokers recognise copies",
    )
