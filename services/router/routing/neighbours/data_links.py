"""Links on which messages go to a neighbouring router, and come from there.

A connection has a link each way for each priority. All addresses share them, so their credit is no limit for one
address: that is the credit which clients have, and what their receivers leave unsettled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Final, Protocol

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import RELEASED
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Receiver
from enmasse.amqp.messages.scan import find_to
from enmasse.amqp.receiver import Partial
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.choice import Choice
from services.router.routing.addresses.deliveries import FAILED, NOT_A_MESSAGE, SHORTEST, DeliveryCopies, Token
from services.router.routing.addresses.destination import Destination
from services.router.routing.configuration import MULTICAST
from services.router.routing.connection import RouterConnection
from services.router.routing.links.annotations import complete
from services.router.routing.links.in_link import InLink
from services.router.routing.links.out_link import OutLink
from services.router.routing.links.streaming import MAX_HEAD, TOO_MANY, Head, begin_or_gather, discard, start
from services.router.routing.neighbours.hop_annotations import StatedWay, StatedWays

DATA: Final = Symbol("qd.router-data")
"""Capability of both termini of such a link. The order in which they are attached is their priority."""
PRIORITIES: Final = 10
CREDIT: Final = 1_000_000
"""Deliveries of all addresses that may be unsettled on a link."""


class Ways(Protocol):
    """Finds where messages of other routers go (Network)."""

    def find(self, arrival: StatedWay) -> RoutedAddress | None:
        """Return the address of a message; None if it is unknown, or if the message has been here before."""

    def onward(self, address: RoutedAddress, arrival: StatedWay) -> list[OnwardHop]:
        """Return the neighbours that are the next on the way to receivers of the address."""

    def is_double(self, connection: RouterConnection, arrival: StatedWay) -> bool:
        """Return True for a copy of a multicast message that comes by another way than it should."""


class OnwardHop(Destination, Protocol):
    """A neighbour as the destination of an address."""

    def pass_along(self, payload: bytes, token: Token | None, message_format: int, arrival: StatedWay) -> None:
        """Take a delivery that has come from another router."""

    def pass_run_along(self, payloads: Sequence[bytes], tokens: Sequence[Token] | None, arrival: StatedWay) -> int:
        """Take anycast deliveries that have come together, up to the first that has to wait; return how many."""


class DataOut(OutLink):
    """Sends deliveries to a neighbour. Tokens are those of a Hop, one address's view of this link. Its own address is
    private."""

    __slots__ = ("ended", "priority")
    counted = faces_client = False
    link_type = "inter-router"
    ended: Callable[[], None]
    """Called when the link has ended, which the connection does not survive."""

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        super().detached(error, closed, lost)
        self.ended()

    def attached(self) -> None:
        """Send what waits."""
        self.know_limit()
        self.flow()

    def serve_others(self) -> None:
        """Do nothing: no other link has deliveries for this one."""

    def lost(self, tokens: list[Any]) -> None:
        """Give back what the neighbour may have passed on: as failed, or to a queue as released."""
        for source, delivery_id in tokens:
            source.settle(delivery_id, RELEASED if source.is_from_queue(delivery_id) else FAILED)


class DataIn(InLink):
    """Receives deliveries from a neighbour. Each goes to the address that routers have stated in its annotations."""

    __slots__ = ("_arrivals", "_stream", "_ways", "priority")
    counted = faces_client = False
    link_type = "inter-router"

    def __init__(self, connection: RouterConnection, link: Receiver, ways: Ways) -> None:
        super().__init__(connection, link, None)
        self._ways = ways
        self._arrivals = StatedWays()
        self._stream: StatedWay | None = None
        link.streaming = True
        link.on_delivery = self.forward
        link.on_run = self.forward_run

    def begin(self) -> None:
        """Grant credit."""
        self.zero_since = None
        self.link.credit_window = CREDIT

    def forward_run(self, link: Receiver, first: int, payloads: list[bytes], settled: bool) -> None:
        """Pass on deliveries that have come together, those that begin alike at once: they have come the same way, and
        go to the same address. Hot path."""
        link.bytes += sum(map(len, payloads))
        if len(payloads) == 1:
            self.forward(link, first, settled, payloads[0], b"", 0)
            return
        at = 0
        while at < len(payloads):
            try:
                arrival, alike = self._arrivals.read_run(payloads, at)
            except AmqpError:
                self.refuse(first + at, settled, NOT_A_MESSAGE)
                at += 1
                continue
            sent = self._forward_alike(first + at, alike, settled, arrival) if len(alike) > 1 else 0
            for delivery_id, payload in enumerate(alike[sent:], first + at + sent):
                self._forward(delivery_id, settled, payload, 0, arrival)
            at += len(alike)

    def _forward_alike(self, first: int, payloads: list[bytes], settled: bool, arrival: StatedWay) -> int:
        """Give deliveries of one address to its only destination; return how many it has taken."""
        address = self._ways.find(arrival)
        if address is None or address.subscriber is not None or address.treatment == MULTICAST:
            return 0
        onward = self._ways.onward(address, arrival)
        out = _among(address, onward).only
        if out is None or not out.direct or min(map(len, payloads)) < SHORTEST:
            return 0
        if not onward:
            return self.run_to(out, first, payloads, settled)
        tokens = None if settled else list(zip(repeat(self), range(first, first + len(payloads))))
        sent = onward[0].pass_run_along(payloads, tokens, arrival)
        if settled:
            self.presettled += sent
            out.presettled += sent
        return sent

    def forward(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        """Pass on a delivery to receivers here, and to neighbours for which this router is on the way."""
        try:
            arrival, payload = self._arrivals.read(payload)
        except AmqpError:
            self.refuse(delivery_id, settled, NOT_A_MESSAGE)
            return
        self._forward(delivery_id, settled, payload, message_format, arrival)

    def _forward(
        self, delivery_id: int, settled: bool, payload: bytes, message_format: int, arrival: StatedWay
    ) -> None:
        address = self._ways.find(arrival)
        if address is None or len(payload) < SHORTEST:
            self.refuse(delivery_id, settled, NOT_A_MESSAGE if address is not None else RELEASED)
        elif address.subscriber is not None:
            if settled:
                self.presettled += 1
            else:
                self.settle(delivery_id)
            address.subscriber(self.connection, payload)
        elif address.treatment == MULTICAST:
            onward = self._ways.onward(address, arrival)
            outs = [*address.local.outs, *onward]
            if not outs or self._ways.is_double(self.connection, arrival):
                self.refuse(delivery_id, settled)
                return
            self.presettled += settled
            token = None if settled else (DeliveryCopies(self, delivery_id, len(outs)), 0)
            for out in address.local.outs:
                out.offer(payload, token, message_format)
            for hop in onward:
                hop.pass_along(payload, token, message_format, arrival)
        else:
            self._forward_to_one(address, delivery_id, settled, payload, message_format, arrival)

    def _forward_to_one(
        self,
        address: RoutedAddress,
        delivery_id: int,
        settled: bool,
        payload: bytes,
        message_format: int,
        arrival: StatedWay,
    ) -> None:
        onward = self._ways.onward(address, arrival)
        choice = _among(address, onward)
        out = choice.only or choice.choose()
        token = None if settled else (self, delivery_id)
        if (
            out is not None and token is not None and out.direct and not message_format
            and out.pass_on(payload, token, out.tag(self) if self.sender else None)
        ):  # fmt: skip
            return
        out = choice.pick()
        if out is None:
            self.refuse(delivery_id, settled)
            return
        self.presettled += settled
        for hop in onward:
            if hop is out:
                hop.pass_along(payload, token, message_format, arrival)
                return
        out.offer(payload, token, message_format)

    # Deliveries in pieces

    @property
    def stream(self) -> StatedWay | None:
        """Return how the delivery in pieces has come that begins now."""
        return self._stream

    def choice_in(self, address: RoutedAddress) -> Choice:
        """Return the destinations of the delivery in pieces that begins now."""
        onward = [] if self._stream is None else self._ways.onward(address, self._stream)
        return _among(address, onward)

    def partial(self, delivery: Partial) -> None:
        begin_or_gather(self, delivery, _begin)

    def begin_stream_of(self, partial: Partial, head: bytes) -> None:
        """Begin a delivery in pieces, of which these are the first bytes. Raises AmqpError if they are no message."""
        arrival, head = self._arrivals.read(head)
        address = self._ways.find(arrival)
        if address is None or (address.treatment == MULTICAST and self._ways.is_double(self.connection, arrival)):
            self.refuse(partial.delivery_id, partial.settled)
            discard(partial)
            return
        self._stream = arrival
        start(self, address, partial, head)
        self._stream = None

    def leave_address(self) -> None:
        """Do nothing: the link has no address."""


def _among(address: RoutedAddress, onward: list[OnwardHop]) -> Choice:
    """Return the choice among the receivers here and neighbours."""
    local = address.local
    if not onward:
        return local
    choice = Choice(address.limits, [*local.outs, *onward])
    choice.nearer = local.outs
    return choice


def _begin(source: DataIn, partial: Partial) -> None:
    head = partial.context
    if head is None:
        head = partial.context = Head()
    head.data += partial.take()
    if not partial.done and not _is_enough(head.data):
        if len(head.data) < MAX_HEAD:
            return
        source.refuse(partial.delivery_id, partial.settled, TOO_MANY)
        discard(partial)
        return
    try:
        source.begin_stream_of(partial, head.data)
    except AmqpError:
        source.refuse(partial.delivery_id, partial.settled, NOT_A_MESSAGE)
        discard(partial)


def _is_enough(data: bytes) -> bool:
    """Return True if the bytes have the annotations, and the message's `to`, if that is needed."""
    if b"x-opt-qd.to" in data[:MAX_HEAD]:
        return complete(data)
    try:
        return find_to(data) is not None
    except AmqpError:
        return False
