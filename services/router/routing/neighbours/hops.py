"""A neighbour as the destination of one address: the deliveries of that address on the data links, and their outcomes.

A delivery that the neighbour releases is offered to another destination of the address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Final

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Accepted, Modified, Rejected, Released
from enmasse.amqp.link import Sender
from enmasse.amqp.messages.scan import HEADER, end_of_alike
from enmasse.amqp.messages.sections import Sections
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.choice import UNLIMITED
from services.router.routing.addresses.deliveries import NOT_A_MESSAGE, Source, Token, is_whole
from services.router.routing.addresses.destination import Destination
from services.router.routing.configuration import MULTICAST
from services.router.routing.connection import PRIORITY, RouterConnection
from services.router.routing.links.in_link import InLink
from services.router.routing.links.streaming import TOO_MANY, Stream
from services.router.routing.neighbours.data_links import DataIn, DataOut
from services.router.routing.neighbours.hop_annotations import (
    StatedWay,
    annotate,
    annotated_front,
    stated,
)

MOST_TRIES: Final = 3
"""Most destinations to which a delivery is offered after a neighbour has released it."""
_OUTCOMES: Final = (Accepted, Rejected, Released, Modified)
_SOURCE: Final = itemgetter(0)


Relayed = tuple[Token, bytes | None, int, tuple[Destination, ...]]
"""A delivery that the neighbour has: token, payload (None: it cannot be offered again), message format, and the
destinations that have released it."""


class Hop:
    """`to`, `phase`: the address as routers write it. `cost`: of the shortest path to a receiver. `outs`: the data
    links, by priority. `own`: the id of this router."""

    capacity = UNLIMITED
    windows = 1
    direct = True
    names_senders = False
    is_queue = False
    sender = b""

    def __init__(
        self,
        connection: RouterConnection,
        address: RoutedAddress,
        outs: Sequence[DataOut],
        own: str,
        to: str,
        phase: int,
        cost: int,
    ) -> None:
        self.connection = connection
        self.cost = cost
        self.presettled = 0
        self.sent = 0
        self._address = address
        self._outs = outs
        self._own = own
        self._to = to
        self._phase = phase
        self._of_own = stated(to, phase, own, (own,))
        self._in_flight: dict[int, Relayed] = {}
        self._number = 0

    # Destination

    def detach(self, error: AmqpError | None = None) -> None:
        """Do nothing: the network says when there are no receivers."""

    def tag(self, source: Source) -> bytes | None:
        """Return None: any tag will do."""
        return None

    def pass_on(self, payload: bytes, token: Token, tag: bytes | None = None) -> bool:
        """Send a delivery of this router's own producers, if it has not to wait."""
        if not self._usual.ready:
            return False
        self._send(payload, token, 0, self._of_own, ())
        return True

    def send_run(self, payloads: Sequence[bytes], tokens: Sequence[Token] | None, mark: bytes = b"") -> int:
        """Send such deliveries, up to the first that has to wait; return how many. One alone is for `pass_on`, which
        costs less."""
        return self._send_run(payloads, tokens, self._of_own) if len(payloads) > 1 else 0

    @property
    def ready(self) -> bool:
        """True if a delivery can be sent now."""
        return self.connection.usable and self._usual.ready

    @property
    def room(self) -> int:
        """Number of deliveries that can be sent now."""
        return self._usual.room if self.connection.usable else 0

    @property
    def load(self) -> int:
        """Number of deliveries of the address that the neighbour has, and the cost of the path."""
        return len(self._in_flight) + self.cost

    def offer(self, payload: Any, token: Token | None, message_format: int) -> None:
        """Send a delivery of this router's own producers, or one in pieces."""
        if not is_whole(payload):
            self._stream(payload, token)
        else:
            self._send(bytes(payload), token, message_format, self._entries(None), ())

    def pass_along(self, payload: bytes, token: Token | None, message_format: int, arrival: StatedWay) -> None:
        """Take a delivery that has come from another router."""
        self._send(payload, token, message_format, self._entries(arrival), ())

    def pass_run_along(self, payloads: Sequence[bytes], tokens: Sequence[Token] | None, arrival: StatedWay) -> int:
        """Take deliveries that have come together from another router, up to the first that has to wait; return how
        many."""
        return self._send_run(payloads, tokens, self._entries(arrival))

    def reply(self, payload: bytes) -> bool:
        """Take one of the router's own messages, settled."""
        self.offer(payload, None, 0)
        self.connection.amqp.wake()
        return True

    def _entries(self, arrival: StatedWay | None) -> tuple[bytes, int]:
        if arrival is None:
            return self._of_own
        return stated(self._to, self._phase, arrival.ingress, (*arrival.trace, self._own))

    @property
    def _usual(self) -> DataOut:
        return self._outs[min(PRIORITY, len(self._outs) - 1)]

    def _link(self, payload: bytes) -> DataOut:
        """Return the link for the priority of the address, or of the message."""
        priority = self._address.priority
        if priority < 0:
            priority = _priority(payload)
        return self._outs[min(priority, len(self._outs) - 1)]

    def _send_run(self, payloads: Sequence[bytes], tokens: Sequence[Token] | None, entries: tuple[bytes, int]) -> int:
        """Send anycast deliveries: those that begin alike get the same annotations, on the same link. Hot path."""
        sent = 0
        while sent < len(payloads):
            payload = payloads[sent]
            out = self._link(payload)
            if not out.direct:
                break
            try:
                front, size = annotated_front(payload, entries)
            except AmqpError:
                break
            usual = payload[size : size + 2] == b"\x00\x53"  # then the code of the next section follows
            end = end_of_alike(payloads, sent, payload[: size + 3]) if usual else sent + 1
            alike = payloads[sent:end]
            annotated = [front + payload[size:] for payload in alike]
            if tokens is None:
                taken = out.send_run(annotated, None, b"")
                out.presettled += taken
            else:
                numbers = range(self._number + 1, self._number + 1 + len(alike))
                taken = out.send_run(annotated, list(zip(repeat(self), numbers)), b"")
                self._in_flight.update(
                    zip(numbers[:taken], zip(tokens[sent:end], alike, repeat(0), repeat(())), strict=False)
                )
                self._number += taken
            sent += taken
            if sent < end:
                break
        self.sent += sent
        return sent

    def _send(
        self,
        payload: bytes,
        token: Token | None,
        message_format: int,
        entries: tuple[bytes, int],
        tried: tuple[Destination, ...],
    ) -> None:
        try:
            annotated = annotate(payload, entries)
        except AmqpError:
            self._usual.reject(token, NOT_A_MESSAGE)
            return
        self.sent += 1
        out = self._link(payload)
        if token is None:
            self.presettled += 1
            out.offer(annotated, None, message_format)
            return
        again = self._address.treatment != MULTICAST
        own = self._note((token, payload if again else None, message_format, tried))
        if not out.direct or message_format or not out.pass_on(annotated, own):
            out.offer(annotated, own, message_format)

    def _note(self, delivery: Relayed) -> Token:
        self._number += 1
        self._in_flight[self._number] = delivery
        return self, self._number

    def _stream(self, stream: Stream, token: Token | None) -> None:
        source = getattr(stream, "source", None)
        head = stream.log[0] if stream.log else b""
        out = self._link(head)
        self.sent += 1
        own = None if token is None else self._note((token, None, 0, ()))
        try:
            front = annotate(head, self._entries(source.stream if isinstance(source, DataIn) else None))
        except AmqpError:
            front = None
        stream.redirect(self, out, own, front)
        if front is None:
            out.reject(own, TOO_MANY)
            stream.lost(out)
        else:
            out.offer(stream, own, stream.partial.message_format)

    # Source of what the data links send

    def is_from_queue(self, number: int) -> bool:
        """Return True if a delivery is a broker's, which redelivers it."""
        delivery = self._in_flight.get(number)
        return delivery is not None and delivery[0][0].is_queue

    @property
    def accept(self) -> Callable[[list[int]], None]:
        """Settle deliveries as accepted, towards their senders."""
        return self._accept

    def _accept(self, numbers: list[int]) -> None:
        pop = self._in_flight.pop
        tokens = [found[0] for number in numbers if (found := pop(number, None)) is not None]
        for source, its in groupby(tokens, _SOURCE):
            source.accept([delivery_id for _, delivery_id in its])

    def settle(self, number: int, state: Any = ACCEPTED) -> None:
        """Settle a delivery towards its sender, with the outcome of its receiver; offer a released one again."""
        delivery = self._in_flight.pop(number, None)
        if delivery is None or (type(state) is Released and self._offer_again(delivery)):
            return
        source, delivery_id = delivery[0]
        source.settle(delivery_id, state)
        if state is not ACCEPTED:
            source.count(state)

    def _offer_again(self, delivery: Relayed) -> bool:
        """Offer a released delivery to a destination that has not released it. Return False without one."""
        token, payload, message_format, tried = delivery
        source, tried = token[0], (*tried, self)
        if payload is None or len(tried) > MOST_TRIES or not isinstance(source, InLink):
            return False
        # Of what another router has sent, that one decides where it goes.
        outs = self._address.local.outs if isinstance(source, DataIn) else self._address.everyone.outs
        others = [out for out in outs if out not in tried and out.connection.usable]
        if not others:
            return False
        out = min(others, key=lambda each: (not each.ready, each.load))
        if isinstance(out, Hop):
            out._send(payload, token, message_format, out._entries(None), tried)
        else:
            out.offer(payload, token, message_format)
        out.connection.amqp.wake()
        return True

    def count(self, state: Any) -> None:
        """Do nothing: `settle` counts."""

    def pass_state(self, sender: Sender, tokens: Sequence[Token], state: Any) -> None:
        """Settle towards the neighbour at once, and towards the sender with this outcome."""
        if type(state) in _OUTCOMES:
            sender.settle(tokens)
            for _, number in tokens:
                self.settle(number, state)

    def refused(self, error: AmqpError) -> None:
        """Do nothing: what comes here goes to another router, not to a broker."""

    def forget(self, number: int) -> None:
        """Forget a delivery that its sender has taken back."""
        self._in_flight.pop(number, None)


def _priority(payload: bytes) -> int:
    if payload[2:3] != bytes((HEADER,)) or payload[3:4] == b"\x45":
        return PRIORITY
    try:
        return Sections(payload).header.priority
    except AmqpError:
        return PRIORITY
