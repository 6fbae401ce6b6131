"""The router's end of a link with outgoing deliveries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from enmasse.amqp.codec.errors import MESSAGE_SIZE_EXCEEDED, AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Error, Modified, Rejected
from enmasse.amqp.delivery import Outgoing
from enmasse.amqp.link import SECOND, Sender
from enmasse.amqp.messages.section_checks import check_leading_sections
from enmasse.amqp.receiver import Partial
from enmasse.amqp.termini import CONSUMER
from services.router.routing.addresses.address import WINDOWS, RoutedAddress
from services.router.routing.addresses.deliveries import (
    FAILED,
    Held,
    Source,
    Token,
    count_outcomes,
    for_another,
    is_whole,
)
from services.router.routing.addresses.destination import Destination, StreamDestination
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.links.streaming import AddressStream

MAX_REPLIES = 5000
MAX_REPLY_BYTES = 32 * 1024 * 1024
"""Bytes of the router's answers that wait for one receiver without credit; further ones are dropped."""
MOST_WINDOWS = 4
"""Most windows of a receiver that settles in a second step (AMQP 1.0, 2.8.3)."""
_SOURCE = itemgetter(0)
_NONE: deque[Held] = deque()
"""`queue` of the links at which nothing has ever waited, of which there are thousands: it stays empty."""


class OutLink(LinkRecord):
    """Sends deliveries: the router's end of a client's receiver, or of a link to a broker. A StreamDestination, a
    Holder while deliveries wait, a Consumer when it drains.

    Deliveries without credit wait in `queue`, which is bounded by the credit that the router granted to the senders.
    `direct`: no delivery waits or is partially sent, and the receiver settles: a delivery may be written at once.
    """

    __slots__ = (
        "accepted",
        "address",
        "capacity",
        "connection",
        "direct",
        "dropped",
        "exact",
        "identity",
        "limit",
        "modified",
        "name",
        "pass_on",
        "plain",
        "presettle",
        "presettled",
        "queue",
        "rejected",
        "released",
        "send_run",
        "sender",
        "stream",
        "two_phase",
        "windows",
        "zero_since",
    )
    direction = "out"
    names_senders = False
    """Whether the delivery-tags name the senders."""
    presettled: int
    dropped: int
    accepted: int
    rejected: int
    released: int
    modified: int

    def __init__(self, connection: RouterConnection, sender: Sender, address: RoutedAddress) -> None:
        self.identity = connection.owner.next_identity()
        self.connection = connection
        self.sender = sender
        self.pass_on: Callable[..., bool] = sender.pass_on
        self.send_run: Callable[[Sequence[bytes], Sequence[Token] | None, bytes], int] = sender.send_run
        self.name = sender.name
        self.address = address
        sender.available = address.waiting
        self.capacity = connection.link_capacity
        self.windows = 1
        self.presettle = False  # the receiver wants everything settled (snd-settle-mode settled)
        self.limit = 0  # largest message for the receiver, in bytes; 0: no limit
        self.plain = True  # no checks are needed before a delivery is sent
        self.exact = connection.reads_otherwise
        if self.exact:
            self.pass_on, self.send_run = self._pass_on_exact, self._send_run_exact
        self.direct = True
        self.queue = _NONE
        self.stream: AddressStream | None = None
        self.two_phase = False  # this receiver sends states before it settles
        self.accepted = self.rejected = self.released = self.modified = self.presettled = self.dropped = 0
        self.delayed1 = self.delayed10 = self.slow = self.stuck = 0
        self.zero_since: float | None = None  # time since which deliveries wait for credit (set by watch.py)

    @property
    def link(self) -> Sender:
        """The engine's link."""
        return self.sender

    def know_limit(self) -> None:
        """Set the limits once both sides have attached."""
        attach = self.sender.remote_attach
        self.limit = 0 if attach is None else int(attach.max_message_size or 0)
        frame = self.sender.session.connection.remote_max_frame
        self.plain = not self.presettle and not 0 < self.limit < frame
        self.direct = self.plain

    @property
    def busy(self) -> bool:
        """True if a delivery waits or is partially sent."""
        return bool(self.stream is not None or self.queue or self.sender.sending) and not self.sender.detached

    @property
    def ready(self) -> bool:
        """True if the link can take a delivery now."""
        return self.sender.credit > 0 and self.stream is None and not self.queue

    @property
    def room(self) -> int:
        """Number of deliveries that the link can take now by `send_run`."""
        return self.sender.credit if self.direct else 0

    @property
    def load(self) -> int:
        """Number of unsettled and waiting deliveries."""
        return self.sender.unsettled + len(self.queue)

    @property
    def outstanding(self) -> int:
        """Number of deliveries that were sent and are not settled."""
        return self.sender.unsettled

    @property
    def wanted(self) -> int:
        """Credit that the receiver has granted and that is not used."""
        return self.sender.granted

    @property
    def draining(self) -> bool:
        """True while the receiver drains (AMQP 2.6.7)."""
        return self.sender.drain

    @property
    def stream_limit(self) -> int:
        """Largest message in bytes; 0: no limit."""
        return self.limit

    def detour(self) -> StreamDestination | None:
        """Return None: there is no other link to a client's receiver."""
        return None

    def tag(self, source: Source) -> bytes | None:
        """Return the tag of a delivery from `source`; None: any will do."""
        return None

    def offer(self, payload: Any, token: Token | None, message_format: int) -> None:
        """Send now or keep until there is credit. `token` None: presettled, and dropped if too many wait."""
        if self.exact and is_whole(payload) and not self._is_exact(payload, token):
            return
        at_once = token is None and self.direct and not message_format and type(payload) is bytes
        if at_once and self.pass_on(payload, None, None, True):
            self.presettled += 1
            return
        if self.stream is None and not self.queue and self.sender.credit > 0:
            self._put(payload, token, message_format)
            return
        if token is None and len(self.queue) >= self.capacity:
            self._drop_settled()
        self._keep((payload, token, message_format))
        self.direct = False
        self.connection.waiting.add(self)
        self.hold()

    def _is_exact(self, payload: bytes, token: Token | None) -> bool:
        """Return True if the peer finds the sections that the router finds; reject the delivery otherwise."""
        try:
            check_leading_sections(payload)
        except AmqpError as error:
            self.reject(token, Rejected(error=Error.of(error)))
            return False
        return True

    def _pass_on_exact(self, payload: bytes, token: Token | None, *more: Any) -> bool:
        return not self._is_exact(payload, token) or self.sender.pass_on(payload, token, *more)

    def _send_run_exact(self, payloads: Sequence[bytes], tokens: Sequence[Token] | None, mark: bytes) -> int:
        """Send the deliveries of a run up to the first that `pass_on` will reject."""
        for n, payload in enumerate(payloads):
            try:
                check_leading_sections(payload)
            except AmqpError:
                return self.sender.send_run(payloads[:n], tokens and tokens[:n], mark)
        return self.sender.send_run(payloads, tokens, mark)

    def _keep(self, held: Held) -> None:
        """Have a delivery wait for credit."""
        if self.queue is _NONE:
            self.queue = deque()
        self.queue.append(held)

    def hold(self) -> None:
        """Offer waiting deliveries to other destinations of the address."""
        self.address.holders[self] = None

    def _put(self, payload: Any, token: Token | None, message_format: int) -> None:
        if not is_whole(payload):
            payload.start(self, token)
        elif 0 < self.limit < len(payload):
            self.reject_large(token)
        elif token is None:
            self.presettled += 1
            self.sender.send(payload, None, settled=True, message_format=message_format)
        elif self.presettle:
            self.presettled += 1
            self.sender.send(payload, None, settled=True, message_format=message_format)
            token[0].settle(token[1])
        else:
            self.sender.send(payload, token, message_format=message_format)

    def reject_large(self, token: Token | None) -> None:
        """Reject a delivery that is larger than the receiver's limit."""
        error = AmqpError(MESSAGE_SIZE_EXCEEDED, f"a message of more than {self.limit} bytes")
        self.reject(token, Rejected(error=Error.of(error)))

    def reject(self, token: Token | None, state: Rejected) -> None:
        """Reject a delivery without sending it; drop it if it is presettled."""
        if token is None:
            self.presettled += 1
            self.dropped += 1
            return
        token[0].settle(token[1], state)
        token[0].count(state)

    def begin_stream(self, token: Token | None, partial: Partial) -> Outgoing:
        """Start a delivery that goes out in pieces."""
        settled = token is None or self.presettle
        return self.sender.begin(None if settled else token, settled=settled, message_format=partial.message_format)

    def stream_sent(self, token: Token | None) -> None:
        """Handle a streamed delivery that is completely sent."""
        if token is None:
            self.presettled += 1
        elif self.presettle:
            self.presettled += 1
            token[0].settle(token[1])

    def _drop_settled(self) -> None:
        """Drop the oldest presettled delivery in favour of a newer one (credit does not limit these)."""
        for i, (payload, token, _) in enumerate(self.queue):
            if token is None:
                del self.queue[i]
                self.presettled += 1
                self.dropped += 1
                if not is_whole(payload):
                    payload.lost(self)
                return

    def leave(self, stream: Any) -> None:
        """Remove a waiting stream that was given back."""
        self.queue = deque(held for held in self.queue if held[0] is not stream)
        if not self.queue:
            self._nothing_waits()

    def reply(self, payload: bytes) -> bool:
        """Send or keep one of the router's own messages, settled. Returns False if it is dropped: too many wait, by
        number or, beyond 50, by bytes."""
        waiting = len(self.queue)
        if waiting >= MAX_REPLIES or (waiting > 50 and self._waiting_bytes() > MAX_REPLY_BYTES):
            self.presettled += 1
            self.dropped += 1
            return False
        self._keep((payload, None, 0))
        self.hold()
        self.flow()
        self.connection.amqp.wake()
        return True

    def _waiting_bytes(self) -> int:
        return sum(len(payload) for payload, _, _ in self.queue if isinstance(payload, bytes))

    def flow(self) -> None:
        """Send waiting deliveries after new credit or the end of a stream; answer a drain when the credit is used up,
        or no message is left for the rest of it."""
        sender = self.sender
        self.zero_since = None
        if sender.rcv_settle_mode == SECOND:
            self._ask_more()
        if self.stream is not None:
            self.stream.resume(self)
        queue = self.queue
        while queue and self.stream is None and sender.credit > 0:
            payload, token, message_format = queue.popleft()
            self._put(payload, token, message_format)
        if not queue:
            self._nothing_waits()
            if sender.credit > 0 and self.stream is None:
                self.serve_others()
        if sender.drain:
            sender.answer_drain(self._empty and not self.address.ask(self))

    def _ask_more(self) -> None:
        """Have brokers send as much as the receiver asks for: a delivery stays unsettled until the broker has stored
        its outcome, so that with one window receiver, router and broker would wait for each other."""
        if self.windows == MOST_WINDOWS:
            return
        asked = self.sender.granted + self.sender.unsettled
        free = self.windows + WINDOWS - self.address.windows
        windows = min(MOST_WINDOWS, free, -(-asked // self.capacity))
        if windows > self.windows:
            self.windows = windows
            for feed in self.address.feeds:
                feed.resize()

    @property
    def _empty(self) -> bool:
        """Return True if no delivery waits or is partially sent."""
        return self.stream is None and not self.queue

    def _nothing_waits(self) -> None:
        self.connection.waiting.discard(self)
        self.address.holders.pop(self, None)
        self.direct = self.stream is None and self.plain

    def serve_others(self) -> None:
        """With unused credit, take deliveries that wait for other destinations, and let producers send."""
        address = self.address
        if len(address.outs) > 1:
            address.relieve(self)
        if address.parked:
            address.unpark()
        if not self.sender.unsettled and address.windows > WINDOWS:
            for feed in address.feeds:
                feed.resize()

    def answer_drain(self) -> None:
        """Answer the receiver's drain after the brokers have sent their messages."""
        # Brokers may have sent more than the receiver had credit for: then the credit is used up and messages wait.
        self.sender.answer_drain(self._empty)
        self.connection.amqp.wake()

    def hand_over(self, other: Destination) -> None:
        """Without credit, give waiting deliveries to another destination, oldest first, while it is ready."""
        queue = self.queue
        if self.sender.credit > 0:
            return
        while queue and other.ready:
            payload, token, message_format = queue.popleft()
            if not is_whole(payload):
                payload.move(self, other)
            other.offer(payload, token, message_format)
        if not queue:
            self._nothing_waits()

    def look(self, now: float, stuck: set[LinkRecord]) -> None:
        """Called once a second while deliveries wait."""
        if self.zero_since is None and not self.sender.granted:
            self.zero_since = now
        if self.stream is not None and self.stream.stalled(now):
            self.stream.break_off()

    def outcomes(self, tokens: list[Token], state: Any, settled: bool) -> None:
        """Pass the receiver's `state` of these deliveries to their senders."""
        if settled:
            if state is ACCEPTED and not self.two_phase:
                self.accepted += len(tokens)
                for source, its in groupby(tokens, _SOURCE):
                    source.accept([delivery_id for _, delivery_id in its])
                return
            count_outcomes(self, state, len(tokens))
            state = self._passed_on(state)
            for source, delivery_id in tokens:
                source.settle(delivery_id, state)
                source.count(state)
                if self.two_phase:
                    source.forget(delivery_id)
        else:
            self.two_phase = True
            state = self._passed_on(state)
            for source, its in groupby(tokens, _SOURCE):
                source.pass_state(self.sender, list(its), state)

    def lost(self, tokens: list[Any]) -> None:
        """Release messages of a queue. If the receiver was lost, its oldest one may be the reason and counts as a
        failed delivery. Other senders learn that the receiver may have seen them."""
        queued = [token for token in tokens if token[0].is_queue]
        failed = [token for token in tokens if not token[0].is_queue]
        if queued and self.sender.blames:
            failed.append(queued.pop(0))
        if queued:
            self.outcomes(queued, RELEASED, True)
        if failed:
            self.outcomes(failed, FAILED, True)

    def _passed_on(self, state: Any) -> Any:
        """Return the state for the sender: a message undeliverable here may go to another consumer of a broker's
        queue. A broker gets the name of the consumer that has rejected one."""
        if type(state) is Rejected and state.error is not None and self.address.feeds:
            error = state.error  # for the dead letter
            info = {**(error.info or {}), CONSUMER: self.connection.known_as}
            return Rejected(error=Error(condition=error.condition, description=error.description, info=info))
        others = len(self.address.outs) > 1 and self.address.feeds
        return for_another(state) if others and type(state) is Modified and state.undeliverable_here else state

    def is_in_doubt(self, source: Source) -> bool:
        """Return True if the receiver settles in a second step and a delivery of this source waits for it, or was sent
        and is not settled."""
        sender = self.sender
        if sender.rcv_settle_mode != SECOND or sender.detached:
            return False
        _, unsettled = sender.session.unsettled_out()
        tokens = [token for one, token in unsettled.values() if one is sender]
        tokens += [token for _, token, _ in self.queue]
        return any(token is not None and token[0] is source for token in tokens)

    @property
    def sent(self) -> int:
        """Number of deliveries so far."""
        return self.sender.deliveries

    def gone(self) -> None:
        """Release waiting deliveries of an ended receiver. The engine reports those that were sent."""
        self.leave_address()
        self.connection.waiting.discard(self)
        self.direct = False
        if self.stream is not None:
            self.stream.lost(self)
            self.stream = None
        waiting = self.queue
        self.queue = _NONE
        for payload, held, _ in waiting:
            if held is None:
                self.presettled += 1
                self.dropped += 1
            else:
                held[0].settle(held[1], RELEASED)
                held[0].count(RELEASED)
            if not is_whole(payload):
                payload.lost(self)

    def leave_address(self) -> None:
        """Remove the link from the destinations of its address."""
        self.address.holders.pop(self, None)
        self.address.remove_out(self)

    # Attributes for management

    @property
    def owning(self) -> str | None:
        return self.address.key

    @property
    def undelivered(self) -> int:
        """Number of deliveries that wait for credit."""
        return len(self.queue)
