"""Routed links: two engine links, one towards the client, one towards the container, and the router between them keeps
nothing but their pairing: termini, credit, drain, deliveries with their tags, outcomes, detaches pass from end to end.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from enmasse.amqp.codec.errors import (
    NOT_FOUND,
    NOT_IMPLEMENTED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN_ID,
    AmqpError,
)
from enmasse.amqp.codec.performatives import ACCEPTED, Accepted, Error, Modified, Rejected, TransactionalState
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.delivery import Outgoing
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.messages.section_checks import check_leading_sections
from enmasse.amqp.receiver import Partial
from services.router.routing.address_text import strip
from services.router.routing.addresses.deliveries import FAILED, Token, count_outcomes, is_whole, settle_others
from services.router.routing.addresses.temporaries import Temporaries
from services.router.routing.brokers.coordinators import ClientCoordinator
from services.router.routing.brokers.routed_transaction import RoutedTransaction
from services.router.routing.connection import LinkRecord, RouterConnection, stated_address
from services.router.routing.links.annotations import LocalNames, Stripper, complete
from services.router.routing.links.size_limit import limited, refuse_size
from services.router.routing.links.streaming import MAX_HEAD, TOO_MANY, Head, Stream, discard

Kept = tuple[Any, int, bool, bytes, int, TransactionalState | None]
"""A delivery to be passed on: payload, delivery-id, whether it came settled, tag, message format, transaction."""

_ENDED = "a link of its work has ended before that was done"
_NOT_TAKEN = "a message of it was refused"
ROUTED_LINK_LOST = "qd:routed-link-lost"


class RoutedHalf(LinkRecord):
    """One of the two links of a routed link; what the engine reports of it is passed to the pair."""

    __slots__ = ("connection", "identity", "link", "name", "open", "pair")
    link: Sender | Receiver
    zero_since = None  # the router gives no credit of its own here
    capacity = 0
    counted = False
    routed = True

    def __init__(self, connection: RouterConnection, link: Sender | Receiver, pair: RoutedLink) -> None:
        self.identity = connection.owner.next_identity()
        self.connection = connection
        self.link = link
        self.name = link.name
        self.pair = pair
        self.open = True
        self.delayed1 = self.delayed10 = self.slow = self.stuck = 0
        connection.add(self)
        link.context = self

    @property
    def direction(self) -> str:
        return "in" if isinstance(self.link, Receiver) else "out"

    # What the engine reports

    def attached(self) -> None:
        self.pair.attached()

    def flow(self) -> None:
        if self.pair.container is not None:
            self.pair.flow()

    def drained(self) -> None:
        self.pair.drained()

    def partial(self, delivery: Partial) -> None:
        self.pair.partial(delivery)

    def outcomes(self, tokens: list[Any], state: Any, settled: bool) -> None:
        self.pair.outcomes(tokens, state, settled)

    def transactional(
        self, tokens: list[Any], delivery_ids: Sequence[int], state: TransactionalState, settled: bool
    ) -> None:
        if self.faces_client:
            self.pair.retire(tokens, state, settled)
        else:
            self.pair.posted(tokens, state, settled)

    def lost(self, tokens: list[Any]) -> None:
        if not self.faces_client:
            self.pair.outcomes(tokens, FAILED, True)

    def sender_settled(self, delivery_ids: Sequence[int]) -> None:
        self.pair.sender_settled(delivery_ids)

    def refuse_large(self, delivery_id: int, settled: bool, state: Rejected) -> None:
        if not settled:
            self.pair.settle(delivery_id, state)
            self.pair.count(state)

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        pair = self.pair
        pair.detached(self, error, closed, lost)
        pair.let_go()

    def gone(self) -> None:
        """Do nothing: `detached` has notified the pair."""

    # What management shows

    @property
    def faces_client(self) -> bool:  # type: ignore[override]  # of other links it is known by their class
        """True for the client's half."""
        return self.pair.client is self

    @property
    def owning(self) -> str | None:
        return self.pair.owning

    @property
    def peer(self) -> int | None:
        other = self.pair.container if self.pair.client is self else self.pair.client
        return None if other is None else other.identity

    @property
    def undelivered(self) -> int:
        """Number of deliveries that wait for credit of the receiving end."""
        return len(self.pair.queue)

    @property
    def presettled(self) -> int:
        """Number of deliveries of the pair that came settled."""
        return self.pair.presettled

    @property
    def accepted(self) -> int:
        """Number of deliveries of the pair with the outcome accepted."""
        return self.pair.accepted

    @property
    def rejected(self) -> int:
        """Number of deliveries of the pair with the outcome rejected."""
        return self.pair.rejected

    @property
    def released(self) -> int:
        """Number of deliveries of the pair with the outcome released."""
        return self.pair.released

    @property
    def modified(self) -> int:
        """Number of deliveries of the pair with the outcome modified."""
        return self.pair.modified


class RoutedLink:
    """The pair. Deliveries come in at `ingress`, go out at `egress`: one is the client's link, one the container's."""

    __slots__ = (
        "accept",
        "accepted",
        "answered",
        "begun",
        "client",
        "container",
        "coordinator",
        "egress",
        "elsewhere",
        "exact",
        "half_over",
        "ingress",
        "modified",
        "name",
        "owning",
        "posts",
        "presettled",
        "queue",
        "rejected",
        "released",
        "rewritten",
        "second",
        "sender",
        "settle",
        "siblings",
        "stream",
        "stripper",
        "survives",
        "temporaries",
        "temporary",
        "two_phase",
        "update_all",
    )

    def __init__(
        self,
        name: str,
        owning: str,
        survives: bool,
        temporaries: Temporaries,
        half_over: Callable[[RoutedHalf], None],
        answered: Callable[[RoutedHalf], None],
    ) -> None:
        self.temporaries = temporaries
        self.half_over = half_over
        self.answered = answered
        self.name = name
        self.sender = b""  # a link to the broker is one client's: its attach names the sender
        self.owning = owning
        self.survives = survives
        self.client: RoutedHalf
        self.container: RoutedHalf | None = None  # not made yet: it waits for its name
        self.ingress: Receiver
        self.egress: Sender
        self.settle: Any = None
        self.accept: Any = None
        self.update_all: Any = None
        self.queue: deque[Kept] = deque()
        self.coordinator: ClientCoordinator | None = None  # of the transactions that the client may use here
        self.posts: dict[int, RoutedTransaction] = {}  # unanswered deliveries to a broker that names transactions
        self.begun: Partial | None = None  # of a transaction, the last one that was sent in pieces
        self.second: dict[int, Token] | None = None
        self.stream: Stream | None = None
        self.rewritten: tuple[str, str] | None = None  # the address as the client and as the container knows it
        self.temporary: str | None = None  # the temporary queue or topic at the container that lives as long as this
        self.elsewhere: Callable[[], bool] | None = None  # asks another container, if one does not know it
        self.stripper: Stripper | None = None  # of a client that sends, or of one in a space
        self.siblings: set[RoutedLink] | None = None  # of the link route by which it was routed, this one included
        self.two_phase = False
        self.exact = False  # the container may find other sections in a message than the router does
        self.accepted = self.rejected = self.released = self.modified = self.presettled = 0

    def join(self, client: RoutedHalf, container: RoutedHalf) -> None:
        """Connect the two links: from now on deliveries, credit and outcomes pass."""
        self.client = client
        self.container = container
        first, second = client.link, container.link
        if isinstance(first, Sender):
            first, second = second, first
        assert isinstance(first, Receiver) and isinstance(second, Sender)
        self.ingress, self.egress = first, second
        self.ingress.credit_window = 0
        self.egress.available = self._waiting
        if first is client.link and client.connection.is_client:
            self.stripper = Stripper(client=True)
        elif second is client.link and client.connection.prefix:
            self.stripper = LocalNames(client.connection.prefix)
        self.exact = second is container.link and container.connection.reads_otherwise
        self.ingress.on_delivery = limited(self.ingress, self.deliver_exact if self.exact else self.deliver)
        self.settle = self.ingress.session.settle
        if self.coordinator is not None:
            self.egress.transactional = True
            if first is client.link:
                self.ingress.on_transactional = self.post
        if first is client.link:
            self.settle = client.connection.relatively(self.settle)
        self.accept = self.ingress.accept_all
        self.update_all = self.ingress.session.update_all

    # Deliveries

    def deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Pass a delivery on, with its tag, or keep it until the receiving end has credit. Hot path."""
        stripper = self.stripper
        if stripper is not None and not payload.startswith(stripper.clean):
            payload = stripper.strip(payload)
        at_once = not (self.queue or settled or message_format or self.stream is not None)
        if not (at_once and self.egress.pass_on(payload, (self, delivery_id), tag)):
            self._put_or_keep(payload, delivery_id, settled, tag, message_format, None)

    def deliver_exact(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Pass a delivery on in which the container finds the sections that the router finds; reject others."""
        try:
            check_leading_sections(payload)
        except AmqpError as error:
            self._reject(delivery_id, settled, Rejected(error=Error.of(error)))
            return
        self.deliver(link, delivery_id, settled, payload, tag, message_format)

    def reject(self, token: Token | None, state: Rejected) -> None:
        """Reject a delivery in pieces; drop it if it came settled."""
        if self.begun is not None:
            self._fail(self.begun.transaction, AmqpError(TRANSACTION_ROLLBACK, _NOT_TAKEN))
        if token is not None:
            self.forget(token[1])
        self._reject(0 if token is None else token[1], token is None, state)

    def _reject(self, delivery_id: int, settled: bool, state: Rejected | TransactionalState) -> None:
        if settled:
            self.presettled += 1
        else:
            self.settle(delivery_id, state)
            self.count(state)

    def post(
        self,
        link: Receiver,
        delivery_id: int,
        settled: bool,
        payload: bytes,
        tag: bytes,
        message_format: int,
        state: TransactionalState,
    ) -> None:
        """Pass a delivery of a transaction on."""
        if link.max_message_size and len(payload) > link.max_message_size:
            refuse_size(link, delivery_id, settled, state)
        elif self._bound(delivery_id, settled, state, payload):
            if self.stripper is not None:
                payload = self.stripper.strip(payload)
            self._put_or_keep(payload, delivery_id, settled, tag, message_format, state)

    def _bound(self, delivery_id: int, settled: bool, state: TransactionalState, payload: bytes | None = None) -> bool:
        """Bind the transaction of a delivery to the broker, or reject the delivery. `payload`: if it is here, whole."""
        assert self.coordinator is not None and self.container is not None
        try:
            if self.exact and payload is not None:
                check_leading_sections(payload)
            work = self.coordinator.bind(state.txn_id, self.container.connection, self)
            if work.foreign:
                work.count(self.container.connection, 1, len(payload or b""))
        except AmqpError as error:
            self._fail(state, error)
            refusal = Rejected(error=Error.of(error))
            self._reject(delivery_id, settled, TransactionalState(txn_id=state.txn_id, outcome=refusal))
            return False
        return True

    def is_sending(self, work: RoutedTransaction) -> bool:
        """As routed_transaction.WorkLink."""
        return any(_transaction(each) == work.id for each in self.queue) or self.egress.is_sending(work.name)

    def _at_broker(self, delivery_id: int, settled: bool, state: TransactionalState) -> TransactionalState:
        """Return the state of a delivery that is sent now, with the broker's id of its transaction."""
        work = None if self.coordinator is None else self.coordinator.find(state.txn_id)
        if work is None or not work.foreign:
            return state
        if not settled:
            self.posts[delivery_id] = work
            work.unanswered += 1
        return work.state

    def _answered(self, delivery_ids: Sequence[int], outcome: Any) -> None:
        """Note that a broker has answered deliveries of transactions, or will not: what it has not accepted lets its
        transaction end by a rollback only."""
        for delivery_id in delivery_ids:
            work = self.posts.pop(delivery_id, None)
            if work is not None:
                work.unanswered -= 1
                if type(outcome) is not Accepted:
                    error = outcome.error if isinstance(outcome, Rejected) else None
                    text = (error and error.description) or _NOT_TAKEN
                    self.client.connection.fail_transaction(work.id, AmqpError(TRANSACTION_ROLLBACK, text))
        if self.coordinator is not None:
            self.coordinator.proceed()

    def _fail(self, state: TransactionalState | None, error: AmqpError) -> None:
        """Let the transaction of refused work, if it is one, end by a rollback only."""
        if state is not None:
            self.client.connection.fail_transaction(bytes(state.txn_id), error)

    def posted(self, tokens: list[Token], state: TransactionalState, settled: bool) -> None:
        """Pass on what the broker answers to deliveries of a transaction, with names as the client knows them."""
        outcome = state.outcome
        work = self.posts.get(tokens[0][1]) if tokens else None
        if work is not None:
            state = TransactionalState(txn_id=work.id, outcome=outcome)
            self._answered([delivery_id for _, delivery_id in tokens], outcome)
        if isinstance(outcome, Rejected) and outcome.error is not None:
            outcome = Rejected(error=Error.of(self.client.connection.relative(outcome.error.exception())))
            state = TransactionalState(txn_id=state.txn_id, outcome=outcome)
        self.outcomes(tokens, state, settled)

    def retire(self, tokens: list[Token], state: TransactionalState, settled: bool) -> None:
        """Pass on the client's outcome, which holds with a transaction; without that a settled delivery is as after a
        rollback. Raises AmqpError if the transaction is not known."""
        assert self.coordinator is not None and self.container is not None
        try:
            work = self.coordinator.bind(state.txn_id, self.container.connection)
            if not self.container.open:
                raise AmqpError(TRANSACTION_ROLLBACK, _ENDED)
            if work.foreign:
                work.count(self.container.connection, len(tokens))
                if type(state.outcome) is not Accepted:
                    text = "the address's broker takes no outcome but accepted in transactions"
                    raise AmqpError(NOT_IMPLEMENTED, text)
                state = TransactionalState(txn_id=work.name, outcome=ACCEPTED)
        except AmqpError as error:
            self._fail(state, error)
            if settled:
                self.outcomes(tokens, Modified(delivery_failed=True), True)
            if error.condition == TRANSACTION_UNKNOWN_ID:
                raise
            return
        self.outcomes(tokens, state, settled)

    def _put_or_keep(self, *delivery: *Kept) -> None:
        if not self.queue and self.stream is None and self.egress.credit > 0:
            self._put(*delivery)
            return
        self.queue.append(delivery)
        self.peer_of(self.ingress).connection.waiting.add(self)

    def _put(self, *delivery: *Kept) -> None:
        payload, delivery_id, settled, tag, message_format, state = delivery
        if state is not None:
            state = self._at_broker(delivery_id, settled, state)
        if not is_whole(payload):
            payload.start(self, None if settled else (self, delivery_id))
        elif settled:
            self.presettled += 1
            self.egress.send(payload, None, settled=True, tag=tag, message_format=message_format, state=state)
        else:
            self.egress.send(payload, (self, delivery_id), tag=tag, message_format=message_format, state=state)

    def partial(self, partial: Partial) -> None:
        """Pass on a delivery that arrives in pieces."""
        head = b""
        state = partial.transaction
        if (
            state is not None
            and partial.context is None
            and not self._bound(partial.delivery_id, partial.settled, state)
        ):
            discard(partial)
            self.flow()
            return
        if self.stripper is not None:
            found = self._head(partial, self.stripper)
            if found is None:
                return
            head = found
        payload = partial.context = Stream(partial)
        if head:
            payload.log.append(head)
            payload.held = len(head)
        payload.add(self, None)
        self._put_or_keep(payload, partial.delivery_id, partial.settled, partial.tag, partial.message_format, None)

    def _head(self, partial: Partial, stripper: Stripper) -> bytes | None:
        """Return the beginning of a client's delivery, without what a client may not state. None: more is needed, or
        the delivery was aborted or refused."""
        head = partial.context
        if head is None:
            head = partial.context = Head()
        if not partial.aborted:
            head.data += partial.take()
            if partial.done or complete(head.data):
                return stripper.strip(head.data)
            if len(head.data) < MAX_HEAD:
                return None
            self._fail(partial.transaction, AmqpError(TRANSACTION_ROLLBACK, "a message of it was refused"))
            self.client.refuse_large(partial.delivery_id, partial.settled, TOO_MANY)
            discard(partial)
        self.flow()
        return None

    def begin_stream(self, token: Token | None, partial: Partial) -> Outgoing:
        """Begin a delivery in pieces at the receiving end. `token` None: presettled."""
        state, self.begun = partial.transaction, None
        if state is not None:
            self.begun = partial
            state = self._at_broker(partial.delivery_id, token is None, state)
        return self.egress.begin(
            token, settled=token is None, tag=partial.tag, message_format=partial.message_format, state=state
        )

    @property
    def stream_limit(self) -> int:
        """Return 0: the router sets no limit, because the peers know each other's."""
        return 0

    def look(self, now: float, stuck: set[LinkRecord]) -> None:
        """Do nothing: the sender of a routed link waits for its one receiver only."""

    def stream_sent(self, token: Token | None) -> None:
        """Count a delivery in pieces that is completely sent."""
        self.presettled += token is None
        partial, self.begun = self.begun, None
        work = None
        if partial is not None and self.coordinator is not None and partial.transaction is not None:
            work = self.coordinator.find(partial.transaction.txn_id)
        if work is not None and work.foreign and partial is not None and self.container is not None:
            try:
                work.count(self.container.connection, 0, partial.size)
            except AmqpError as error:
                self._fail(partial.transaction, error)

    def flow(self) -> None:
        """Pass on credit and drain of the receiving end to the sending end."""
        egress, ingress, queue = self.egress, self.ingress, self.queue
        if self.stream is not None:
            self.stream.resume(self)
        while queue and self.stream is None and egress.credit > 0:
            self._put(*queue.popleft())
        if not queue:
            self.peer_of(ingress).connection.waiting.discard(self)
        if self.coordinator is not None:
            self.coordinator.proceed()
        more = egress.granted - ingress.credit - len(queue) - (self.stream is not None)
        if more > 0:
            ingress.grant(more)
        if egress.drain:
            if ingress.credit > 0:
                ingress.drain_credit()
                egress.answer_drain(nothing_waits=False)
            else:
                self._answer_drain()
        ingress.session.connection.wake()

    def _waiting(self) -> int | None:
        """Return how many messages wait, as the sending end stated last, and ask it again."""
        self.ingress.ask_queued()
        self.ingress.session.connection.wake()
        return None if self.ingress.queued is None else self.ingress.queued + len(self.queue)

    def drained(self) -> None:
        """Answer the receiving end: the sending end has used or returned its credit."""
        self._answer_drain()
        self.egress.session.connection.wake()

    def _answer_drain(self) -> None:
        """Answer the drain of the receiving end, because the sending end has no credit."""
        self.egress.answer_drain(not self.queue and self.stream is None)

    def outcomes(self, tokens: list[Token], state: Any, settled: bool) -> None:
        """Pass the receiver's state to the sender. Without settlement, the sender's one will be passed back."""
        if self.posts:
            self._answered([delivery_id for _, delivery_id in tokens], state)
        if not settled:
            self.two_phase = True
            self.pass_state(self.egress, tokens, state)
            return
        if state is ACCEPTED:
            self.accepted += len(tokens)
            self.accept([delivery_id for _, delivery_id in tokens])
        else:
            count_outcomes(self, state, len(tokens))
            for _, delivery_id in tokens:
                self.settle(delivery_id, state)
        if self.second:
            for _, delivery_id in tokens:
                self.second.pop(delivery_id, None)

    def sender_settled(self, delivery_ids: Sequence[int]) -> None:
        """Settle towards the receiving end what the sending end has settled."""
        if self.second:
            tokens = [self.second.pop(d) for d in delivery_ids if d in self.second]
            if tokens:
                self.egress.settle(tokens)
                self.egress.session.connection.wake()

    # Life

    def give_up(self, error: AmqpError) -> None:
        """Refuse the client's attach, because no link to the container is made."""
        client = self.client
        if client.open:
            client.open = False
            client.connection.refused("send" if client.direction == "in" else "receive", error, self.owning[2:])
            client.link.refuse(error)
            client.link.session.connection.wake()
            self.half_over(client)

    def peer_of(self, link: Any) -> RoutedHalf:
        """Return the half on the other side of `link`."""
        if self.client.link is not link:
            return self.client
        assert self.container is not None
        return self.container

    def attached(self) -> None:
        """Answer the client with the termini of the container's answer. Null termini mean a refusal, whose detach
        follows."""
        assert self.container is not None
        self.answered(self.container)
        link = self.container.link
        refused = link.remote_target is None if isinstance(link, Sender) else link.remote_source is None
        if refused:
            return
        source, target = link.remote_source, link.remote_target
        made = target if self.client.direction == "in" else source
        if self.rewritten is not None:
            source, target = self._as_asked(source), self._as_asked(target)
        if self.client.connection.prefix:
            source, target = self._relative(source), self._relative(target)
        if isinstance(link, Receiver) and survives(source):  # it was there: the client's attach does not name it
            self.survives = True
        if self.elsewhere is not None and not self._may_recover(source):
            return
        self._remember(self.container.connection, made)
        try:
            self.client.link.accept(
                source,
                target,
                snd_settle_mode=link.snd_settle_mode,
                rcv_settle_mode=link.rcv_settle_mode,
                offered_capabilities=self._offered(self.container),
            )
        except AmqpError as error:  # the client's frames are too small for it: no fault of the container's connection
            self.client.link.refuse(error)
            self.client.link.session.connection.wake()
            return
        self.client.link.session.connection.wake()
        self.flow()

    def _may_recover(self, source: Any) -> bool:
        """Return whether the client may have the subscription that was found by its name; otherwise refuse it."""
        rights = self.client.connection.rights
        if rights is None or source is None or self.container is None:
            return True
        try:
            rights.check_recovered(source.address or "")
        except AmqpError as error:
            self.container.open = False
            self.container.link.detach(None, closed=not self.survives)
            self.container.connection.amqp.wake()
            self.give_up(error)
            return False
        return True

    def _remember(self, container: RouterConnection, terminus: Any) -> None:
        """Make a temporary queue or topic, if this is one, reachable for all clients."""
        if terminus is not None and terminus.dynamic and terminus.address:
            node, prefix = strip(terminus.address), self.client.connection.prefix
            name = prefix + node.removeprefix(prefix)
            if self.temporaries.made(name, container, self.client.connection, node):
                self.temporary = name

    def _offered(self, container: RoutedHalf) -> tuple[Symbol, ...] | None:
        """Return the capabilities of the link: those that the container offers on it, and requested ones that all
        links of the container have."""
        opened, answer = container.connection.amqp.remote_open, container.link.remote_attach
        asked = self.client.link.remote_attach
        everywhere = (opened.offered_capabilities if opened is not None else None) or ()
        offered = list((answer.offered_capabilities if answer is not None else None) or ())
        offered += [c for c in ((asked and asked.desired_capabilities) or ()) if c in everywhere and c not in offered]
        return tuple(offered) or None

    def _as_asked(self, terminus: Any) -> Any:
        """Return the container's terminus with the address by which the client knows it."""
        assert self.rewritten is not None
        asked, external = self.rewritten
        if terminus is None or getattr(terminus, "address", None) != external:
            return terminus
        terminus = copy.copy(terminus)
        terminus.address = asked
        return terminus

    def _relative(self, terminus: Any) -> Any:
        """Return a terminus of the container with its address as the client's address space has it."""
        address, connection = getattr(terminus, "address", None), self.client.connection
        if not address or connection.local(address) == address:
            return terminus
        terminus = copy.copy(terminus)
        terminus.address = connection.local(address)
        return terminus

    def detached(self, half: RoutedHalf, error: Any, closed: bool, lost: bool) -> None:
        """End the other half, with the error of the one that has ended. `lost`: that one ended with its session or
        connection, so a durable terminus is kept. A container learns from an error that the client was lost. A receiver
        that has left in order is not; services treat senders that close their connection as lost."""
        half.open = False
        self._drop_waiting()
        other = self.client if half is self.container else self.container
        self.half_over(half)
        if other is None:
            return
        other.connection.waiting.discard(self)
        if error is not None:
            error = other.connection.relative(error)
        if self.temporary is not None:
            self.temporaries.over(self.temporary)
            self.temporary = None
        if not other.open:
            return
        if self.elsewhere is not None and other is self.client and not other.link.attached:
            unknown = error is not None and error.condition == NOT_FOUND
            if unknown and self.elsewhere():
                return
        other.open = False
        if lost:
            closed = not self.survives
            in_order = half is self.client and self.egress is half.link and not half.link.broken
            if not in_order:
                error = AmqpError(ROUTED_LINK_LOST, "Connectivity to the peer container was lost")
        link = other.link
        if other is self.client and not link.attached:
            link.refuse(error or _ended_without_error(stated_address(link)))
        else:
            link.detach(error, closed=closed)
        link.session.connection.wake()

    def let_go(self) -> None:
        """Once both links have ended, release what refers to the pair, to which it refers: only the garbage collector
        would free them, with their connections."""
        halves = [self.client] if self.container is None else [self.client, self.container]
        if all(half.link.over for half in halves):
            for half in halves:
                half.pair = _OVER
            self.elsewhere = None
            if self.container is not None:
                self.egress.available = None

    def _drop_waiting(self) -> None:
        """Drop the deliveries that wait for the receiving end, and the rest of the one that it has begun to receive.

        What they occupy of the sending connection's memory and windows is released: otherwise that connection would no
        longer be read, and with it the answer to the detach.
        """
        waiting, self.queue = self.queue, deque()
        for *_, state in waiting:
            self._fail(state, AmqpError(TRANSACTION_ROLLBACK, _ENDED))
        streams = [payload for payload, *_ in waiting if not is_whole(payload)]
        if self.stream is not None:
            streams.insert(0, self.stream)
            self.stream = None
        for stream in streams:
            self._fail(stream.partial.transaction, AmqpError(TRANSACTION_ROLLBACK, _ENDED))
            stream.lost(self)
        if self.coordinator is not None:
            self.coordinator.proceed()

    # Source (for streams)

    def count(self, state: Any) -> None:
        """Count a delivery with this outcome."""
        count_outcomes(self, state, 1)

    def pass_state(self, sender: Sender, tokens: Sequence[Token], state: Any) -> None:
        """Pass on the receiver's state; it waits for the sender's settlement."""
        if self.second is None:
            self.second = {}
        stated = self.update_all([delivery_id for _, delivery_id in tokens], state)
        if len(stated) < len(tokens):
            if self.ingress.over:  # that settles nothing: the receiver's link ends too
                return
            tokens = settle_others(self.egress, tokens, stated)
        self.second.update(zip(stated, tokens, strict=True))

    def forget(self, delivery_id: int) -> None:
        """Record that the receiver has settled, or that the sender has taken the delivery back."""
        if self.posts:
            self._answered((delivery_id,), None)
        if self.second:
            self.second.pop(delivery_id, None)

    def refused(self, error: AmqpError) -> None:
        """Do nothing: the broker knows the client of such a link."""


def _ignore(half: RoutedHalf) -> None:
    pass


_NONE: Any = None
_OVER: Final = RoutedLink("", "", False, _NONE, _ignore, _ignore)
"""The pair of links that have ended."""
_OVER.client = _NONE


def _transaction(kept: Kept) -> bytes | None:
    """Return the transaction of a delivery that is to be passed on."""
    payload, *_, state = kept
    if not is_whole(payload):
        state = payload.partial.transaction
    return None if state is None else bytes(state.txn_id)


def _ended_without_error(address: str) -> AmqpError:
    """Return the error for a client whose link the container has refused without a reason."""
    return AmqpError(NOT_FOUND, f"Node not found: the broker has ended the link to {address[:100]!r} without an error")


def survives(terminus: Any) -> bool:
    """Return whether this terminus (a durable subscription) outlives its link when the connection is lost."""
    if terminus is None:
        return False
    return terminus.expiry_policy == "never" or bool(getattr(terminus, "timeout", 0)) or bool(terminus.durable)
