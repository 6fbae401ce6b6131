"""The router's end of a link with incoming deliveries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import Any

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED, Modified, Rejected, Released
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.messages.scan import PROPERTIES
from enmasse.amqp.receiver import Partial
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.choice import Choice
from services.router.routing.addresses.deliveries import NOT_A_MESSAGE, SHORTEST, DeliveryCopies, Token, settle_others
from services.router.routing.addresses.destination import Destination, StreamDestination
from services.router.routing.configuration import MULTICAST
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.links.annotations import Stripper
from services.router.routing.links.size_limit import limited
from services.router.routing.links.streaming import AddressStream, begin_or_gather

FURTHER = 3
"""Windows of small deliveries that a process of the suite may have unsettled beyond its credit, while none of them
waits in the router: it sends for many clients, whose outcomes take the way to subscribers and back."""
SMALL = 1024
"""Most bytes of these on average: the sender keeps each until it has the outcome."""
PLENTY = 4
"""Factor by which receivers must have room for more settled deliveries than a process gets credit for at once: other
processes may get as much."""
_RECEIVER = itemgetter(0)


def _gone(delivery: int | list[int], state: Any = None) -> None:
    """Settle towards a sender that no longer exists: do nothing."""


class InLink(LinkRecord):
    """Receives deliveries: the router's end of a client's sender, or of a link from a broker."""

    __slots__ = (
        "accept",
        "address",
        "ahead",
        "capacity",
        "choice",
        "connection",
        "dropped",
        "further",
        "identity",
        "link",
        "modified",
        "name",
        "presettled",
        "rejected",
        "released",
        "second",
        "sender",
        "settle",
        "strip",
        "zero_since",
    )
    direction = "in"
    is_queue = False
    link: Receiver
    presettled: int
    dropped: int
    rejected: int
    released: int
    modified: int

    def __init__(self, connection: RouterConnection, link: Receiver, address: RoutedAddress | None) -> None:
        self.identity = connection.owner.next_identity()
        self.connection = connection
        self.link = link
        self.name = link.name
        self.address = address
        self.capacity = connection.link_capacity
        self.further = FURTHER * self.capacity if connection.of_process else 0
        self.sender = connection.sender
        self.choice: Choice | None = None if address is None else address.everyone
        self.ahead: StreamDestination | None = None  # additional link with a large delivery of this link
        self.settle: Callable[..., None] = connection.relatively(link.session.settle)
        self.accept: Callable[[list[int]], None] = link.accept_all
        self.strip: Callable[[bytes], bytes] = Stripper(client=connection.is_client).strip
        self.second: dict[int, tuple[Sender, Token]] | None = None
        self.presettled = self.dropped = self.rejected = self.released = self.modified = 0
        self.delayed1 = self.delayed10 = self.slow = self.stuck = 0
        self.zero_since: float | None = connection.owner.clock.time()

    # Credit: only while a destination exists

    def open_gate(self) -> None:
        """Grant credit: a destination exists."""
        self.zero_since = None
        self.link.credit_window = self.capacity

    def close_gate(self) -> None:
        """Take back the credit: no destination exists."""
        if self.zero_since is None:
            self.zero_since = self.connection.owner.clock.time()
        self.link.drain_credit()

    def park(self) -> None:
        """Withhold credit until a destination has some, because a delivery was given back."""
        if self.address is not None:
            self.address.park(self)

    # Deliveries

    def choice_in(self, address: RoutedAddress) -> Choice:
        """Return the destinations for this link's deliveries."""
        return address.everyone

    def bind(self) -> None:
        """Choose the callback for deliveries by the address's treatment."""
        address = self.address
        assert address is not None
        self.choice = self.choice_in(address)
        if address.subscriber is not None:
            forward = self.forward_internal
        elif self.ahead is not None:
            forward = self.forward_behind
        else:
            forward = self.forward_multicast if address.treatment == MULTICAST else self.forward
        self.link.on_delivery = limited(self.link, forward)
        together = forward == self.forward and not self.link.max_message_size
        self.link.on_run = self.forward_run if together else None

    def forward_run(self, link: Receiver, first: int, payloads: list[bytes], settled: bool) -> None:
        """Anycast: forward deliveries that arrived together, at once if there is a single destination; those for each
        of several at once if they are settled, which changes no load. Hot path."""
        out = self.choice.only  # type: ignore[union-attr]  # set as long as the link forwards
        sent = 0
        sizes = list(map(len, payloads))
        size = sum(sizes)
        link.bytes += size
        if (settled if out is None else out.direct) and min(sizes) >= SHORTEST:
            strip = self.strip
            payloads = [payload if payload[2] >= PROPERTIES else strip(payload) for payload in payloads]
            sent = self._spread(payloads) if out is None else self.run_to(out, first, payloads, settled)
        for delivery_id, payload in enumerate(payloads[sent:], first + sent):
            link.on_delivery(link, delivery_id, settled, payload, b"", 0)  # another one after an event of the first
        waits = self.address.holders  # type: ignore[union-attr]  # as above
        self.grant_further(0 if waits else len(sizes), size)
        if self.further:
            self._fit_window(settled and out is None and size <= SMALL * len(sizes))

    def grant_further(self, passed_on: int, size: int) -> None:
        """Let a process have more unsettled, unless some of what came together waits in the router or is large.
        `passed_on`: deliveries of that, 0 if one waits; `size`: their bytes."""
        if self.further:
            self.link.pass_further(self.further if size <= SMALL * passed_on else 0)

    def _fit_window(self, many: bool) -> None:
        """Let a process send several windows of small settled deliveries at once to several receivers (`many`) that
        have plenty of room: what goes to a receiver together costs less, and of one window few go to each."""
        outs = self.choice.outs  # type: ignore[union-attr]  # set as long as the link forwards
        several = self.capacity + self.further
        window = several if many and sum(out.room for out in outs) >= PLENTY * several else self.capacity
        if self.link.credit_window not in (0, window):
            self.link.credit_window = window

    def run_to(self, out: Destination, first: int, payloads: list[bytes], settled: bool) -> int:
        """Give deliveries with consecutive ids to a direct destination; return how many it has taken."""
        mark = self.sender if out.names_senders else b""
        if settled:
            sent = out.send_run(payloads, None, mark)
            self.presettled += sent
            out.presettled += sent
            return sent
        return out.send_run(payloads, list(zip(repeat(self), range(first, first + len(payloads)))), mark)

    def _spread(self, payloads: list[bytes]) -> int:
        """Give settled deliveries to several destinations, each its share of consecutive ones, as far as these have
        room; return how many."""
        shares: dict[Destination, int] = {}
        room: dict[Destination, int] = {}
        for out in islice(self.choice.turns(), len(payloads)):  # type: ignore[union-attr]  # set as long as the link forwards
            share = shares.get(out, 0)
            if not share:
                room[out] = out.room
            if share >= room[out]:
                break
            shares[out] = share + 1
        at = 0
        for out, share in shares.items():
            end = at + share
            sent = self.run_to(out, 0, payloads[at:end], True)
            for payload in payloads[at + sent : end]:  # too large for a frame, or for one turn
                self.presettled += 1
                out.offer(payload, None, 0)
            at = end
        return at

    def forward(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Anycast: forward to the single destination, or the one with the least load."""
        if len(payload) < SHORTEST:
            self.refuse(delivery_id, settled, NOT_A_MESSAGE)
            return
        if payload[2] < PROPERTIES:
            payload = self.strip(payload)
        choice = self.choice
        out = choice.only or choice.choose()  # type: ignore[union-attr]  # set as long as the link forwards
        if out is None:
            self.refuse(delivery_id, settled)
        elif settled:
            self.presettled += 1
            out.offer(payload, None, message_format)
        elif (
            message_format
            or not out.direct
            or not out.pass_on(payload, (self, delivery_id), out.tag(self) if self.sender else None)
        ):
            out = choice.ready() or out  # type: ignore[union-attr]  # set as long as the link forwards
            address: RoutedAddress = self.address  # type: ignore[assignment]  # as above
            if address.holders and not out.ready and out not in address.neighbours:
                # behind those that wait, which it would overtake elsewhere: a consumer with credit takes them in order
                out = next((holder for holder in address.holders if holder in choice.outs), out)  # type: ignore[union-attr]  # as above
            out.offer(payload, (self, delivery_id), message_format)

    def forward_multicast(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Multicast: forward to every destination; the sender gets one outcome when the last one has answered."""
        if len(payload) < SHORTEST:
            self.refuse(delivery_id, settled, NOT_A_MESSAGE)
            return
        if payload[2] < PROPERTIES:
            payload = self.strip(payload)
        outs = self.choice.outs  # type: ignore[union-attr]  # set as long as the link forwards
        if not outs:
            self.refuse(delivery_id, settled)
        elif settled:
            self.presettled += 1
            for out in outs:
                out.offer(payload, None, message_format)
        else:
            token = (DeliveryCopies(self, delivery_id, len(outs)), 0)
            for out in outs:
                if message_format or not out.direct or not out.pass_on(payload, token):
                    out.offer(payload, token, message_format)

    def stream_began(self, stream: AddressStream) -> None:
        """Register a delivery in pieces that goes through the address."""

    def follow(self, out: StreamDestination) -> None:
        """Send later deliveries over the additional link of a large delivery, until it is completely sent."""
        self.ahead = out
        if self.address is not None:
            self.bind()

    def way(self, address: RoutedAddress) -> Destination | None:
        """Return the destination for the next delivery; one that must not overtake another goes to the same link."""
        ahead = self.ahead
        return ahead if ahead is not None and self.address is address and ahead.busy else self.choice_in(address).pick()

    def forward_behind(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Forward a delivery over the link that a large one before it uses, so that the order stays. Once that is sent,
        go back to the way of the address's treatment."""
        out, address = self.ahead, self.address
        assert address is not None
        if len(payload) < SHORTEST:
            self.refuse(delivery_id, settled, NOT_A_MESSAGE)
            return
        if out is not None and out.busy:
            self.presettled += settled
            out.offer(self.strip(payload), None if settled else (self, delivery_id), message_format)
            return
        self.ahead = None
        self.bind()
        link.on_delivery(link, delivery_id, settled, payload, tag, message_format)

    def forward_internal(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Deliver to the router itself: accepted once taken."""
        if settled:
            self.presettled += 1
        else:
            self.settle(delivery_id)
        self.address.subscriber(self.connection, payload)  # type: ignore[union-attr,misc]  # set as long as the link forwards

    def refuse(self, delivery_id: int, settled: bool, state: Any = RELEASED) -> None:
        """Refuse a delivery without a destination: release it (or use `state`), or drop it if it is presettled."""
        if type(state) is Rejected and state.error is not None:
            self.refused(state.error.exception())
        if settled:
            self.presettled += 1
            self.dropped += 1
        else:
            self.settle(delivery_id, state)
            self.count(state)

    @property
    def refused_at(self) -> str:
        """Return the address of refused messages, for the log."""
        return "" if self.address is None else self.address.key[2:]

    # Source

    def count(self, state: Any) -> None:
        """Count a delivery that was not accepted."""
        kind = type(state)
        if kind is Released:
            self.released += 1
        elif kind is Modified:
            self.modified += 1
        elif kind is Rejected:
            self.rejected += 1

    def pass_state(self, sender: Sender, tokens: Sequence[Token], state: Any) -> None:
        """Pass on a receiver's state; it waits for the sender's settlement. If the sender is gone, end the wait."""
        if self.settle is _gone:
            for token in tokens:
                self._end_second(sender, token)
            return
        if self.second is None:
            self.second = {}
        stated = self.link.session.update_all([delivery_id for _, delivery_id in tokens], state)
        if len(stated) < len(tokens):
            tokens = settle_others(sender, tokens, stated)
        self.second.update(zip(stated, zip(repeat(sender), tokens), strict=False))

    def sender_settled(self, delivery_ids: Sequence[int]) -> None:
        """Pass on the sender's settlement to receivers that wait for it."""
        if self.second:
            pop = self.second.pop
            waiting = [found for delivery_id in delivery_ids if (found := pop(delivery_id, None)) is not None]
            for sender, its in groupby(waiting, _RECEIVER):
                sender.settle([token for _, token in its])

    def refused(self, error: AmqpError) -> None:
        """Note that a broker has refused a message: an event of the client."""
        self.connection.refused("message", error, self.refused_at)

    def forget(self, delivery_id: int) -> None:
        """Record that the receiver has settled: it no longer waits for the sender."""
        if self.second:
            self.second.pop(delivery_id, None)

    # Life

    @property
    def received(self) -> int:
        """Number of deliveries so far."""
        return self.link.deliveries

    def gone(self) -> None:
        """Handle the end of the link: its deliveries stay in flight, their outcomes are dropped."""
        self.settle = self.accept = _gone
        second, self.second = self.second, None
        for sender, token in (second or {}).values():
            self._end_second(sender, token)
        self.leave_address()

    def leave_address(self) -> None:
        """Remove the link from the producers of its address, if it has one."""
        if self.address is not None:
            self.address.remove_in(self)

    def _end_second(self, sender: Sender, token: Token) -> None:
        """Handle a sender that can no longer settle."""
        sender.settle([token])

    def expect(self, waiting: int) -> None:
        """Grant credit without waiting for `waiting` deliveries that take long."""
        self.link.expect(waiting)

    def partial(self, delivery: Partial) -> None:
        self.link.further = 0  # a large one
        begin_or_gather(self, delivery)

    def refuse_large(self, delivery_id: int, settled: bool, state: Rejected) -> None:
        self.refuse(delivery_id, settled, state)

    # Attributes for management

    @property
    def owning(self) -> str | None:
        return None if self.address is None else self.address.key

    @property
    def accepted(self) -> int:
        """Deliveries that were settled and have no other outcome; computed, because they are not counted one by one."""
        other = self.presettled + self.rejected + self.released + self.modified
        return max(0, self.link.deliveries - self.link.unsettled - other)

    @property
    def undelivered(self) -> int:
        """Deliveries that the engine holds because an earlier one takes long."""
        return self.link.queued or 0
