"""A subscription: the link from which a client receives, and the messages that it has and has not acknowledged.

Credit is bounded: a client that does not read, or does not acknowledge, holds back its own messages. Those of a
multicast address, which are for all its receivers at once, are dropped for a client that leaves much unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Error, Modified, Rejected, Source, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import SECOND, Link, Receiver
from enmasse.amqp.messages.source_filters import SELECTOR
from enmasse.amqp.session import Session
from enmasse.amqp.termini import FOR_OWNER, passed_on_name
from enmasse.bridge.uplink import LinkUser
from enmasse.model.address_types import Traits
from enmasse.network.backoff import SOON_AGAIN, Backoff
from services.stomp_gateway.stomp_errors import StompError

AUTO, CLIENT_ACK, INDIVIDUAL = "auto", "client", "client-individual"
MODES: Final = (AUTO, CLIENT_ACK, INDIVIDUAL)
PREFETCH: Final = 100
MOST: Final = 1000
"""Messages that a subscription has unacknowledged, unless the client asks for others, and at most."""
BYTES: Final = 1 << 20
"""Bytes of them, as far as messages are of the same size."""
FIRST_WINDOW: Final = 16
"""Messages after which their size is looked at."""
PATIENCE: Final = 30.0
"""Seconds in which the link has to be attached for the first time."""
EVERYTHING: Final = "1 = 1"
"""A selector: with one, the link goes to the broker of the queue, which settles outcomes."""
_NOT_YET: Final = frozenset(("qd:no-route-to-dest", "qd:routed-link-lost", "amqp:connection:forced"))


class StompDelivery:
    """A message that the client has. `settled`: called with True once its outcome is final, with False if the link was
    lost before."""

    __slots__ = ("delivery_id", "link", "number", "settled", "subscription")

    def __init__(self, subscription: StompSubscription, link: Receiver, delivery_id: int, number: str) -> None:
        self.subscription = subscription
        self.link = link
        self.delivery_id = delivery_id
        self.number = number
        self.settled: Callable[[bool], None] | None = None


class StompReader(Protocol):
    """The client of a subscription."""

    @property
    def blocked(self) -> bool:
        """The client leaves much unread."""

    @property
    def flooded(self) -> bool:
        """The client leaves more unread than FLOODED bytes."""

    def message(self, subscription: StompSubscription, payload: bytes, number: str) -> None:
        """Send a message. Raises AmqpError for other bytes."""

    def subscribed(self, subscription: StompSubscription) -> None:
        """The subscription is attached for the first time."""

    def next_number(self) -> str:
        """Return a new name of a message, different from all others of the connection."""

    def fail(self, error: StompError) -> None:
        """End the connection."""

    def crash(self, error: Exception) -> None:
        """End the connection after an unexpected error; does not raise."""


class StompSubscription(LinkUser):
    """`id`: of the client; `stated`: its destination; `prefix`: what its messages' destinations begin with. `address`:
    on AMQP, None: one that the router makes. `session` returns where the link is attached, None: there is no connection
    now. `durable`: name of the link, and of the client that owns it; None: it ends with the connection."""

    def __init__(
        self,
        client: StompReader,
        id: str,
        stated: str,
        prefix: str,
        *,
        mode: str,
        traits: Traits,
        address: str | None,
        local: str,
        selector: str | None,
        prefetch: int,
        durable: tuple[str, str] | None,
        session: Callable[[], Session | None],
        plain_session: Callable[[], Session | None],
        receipt: str,
    ) -> None:
        self.id = id
        self.stated = stated
        self.prefix = prefix
        self.mode = mode
        self.traits = traits
        self.local = local
        """The address as clients know it."""
        self.made_address: str | None = None
        """The address that the router has made."""
        self.receipt = receipt
        self.durable = durable
        self.link: Receiver | None = None
        self.transacted = mode != AUTO and traits.stored
        """Whether acknowledgements may be parts of transactions."""
        self.unacknowledged: dict[str, StompDelivery] = {}
        self.messages = self.bytes = self.dropped = 0
        self.ready = False
        self.closed = False
        self._client = client
        self._address = address
        self._selector = selector
        self._prefetch = prefetch
        self._sessions = session, plain_session
        self._backoff = Backoff(SOON_AGAIN)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = self._loop.call_later(PATIENCE, self._late)
        self._last: AmqpError | None = None
        self._deciding: dict[int, StompDelivery] = {}
        """Deliveries with an outcome that the broker has not settled."""
        self._unread: list[int] = []
        """Deliveries of mode auto that the client has not read, perhaps."""
        self._ended: Callable[[], None] | None = None
        self._ending: tuple[bool, Callable[[], None]] | None = None

    # the link

    def attach(self) -> None:
        """Attach the link, if there is a connection."""
        self._timer = None
        if self.closed or self.link is not None:
            return
        session = self._sessions[0 if self.transacted else 1]()
        if session is None or session.ended:
            self._attach_later()
            return
        source = Source(address=self._address, dynamic=self._address is None)
        fields: dict[str, Any] = {}
        name = None
        if self.durable is not None:
            name = passed_on_name(*self.durable)
            source.durable, source.expiry_policy = 2, Symbol("never")
            fields["properties"] = {Symbol(FOR_OWNER): True}
        second = self.mode != AUTO and self.traits.stored
        if second:
            fields["rcv_settle_mode"] = SECOND
        if self._selector is not None or (second and not self.traits.fan_out):
            source.filter = SELECTOR.entry(EVERYTHING if self._selector is None else self._selector)
        try:
            link = session.attach_receiver(name, source, Target(), **fields)
        except AmqpError as error:
            self._last = error
            self._attach_later()
            return
        link.context = self
        link.on_delivery = self._deliver
        self.link = link
        link.credit_window = min(FIRST_WINDOW, self._prefetch)

    def _attach_later(self) -> None:
        if not self.closed and self._timer is None:
            self._timer = self._loop.call_later(self._backoff.wait(), self.attach)

    def _late(self) -> None:
        reason = "the router is not reached" if self._last is None else self._last.description
        self._client.fail(StompError("not subscribed", f"{self.stated}: {reason}: try again", receipt=self.receipt))

    def on_attached(self, link: Link) -> None:
        """As LinkUser."""
        source = link.remote_source
        if link is not self.link or source is None:
            return
        self._backoff.reset()
        if self._address is None:
            self.made_address = source.address
        if not self.ready:
            self.ready = True
            self._deadline.cancel()
            self._client.subscribed(self)

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """As LinkUser. The link is attached again, unless it was refused or the subscription is closed."""
        if link is not self.link:
            if self.closed and self._ended is not None:
                ended, self._ended = self._ended, None
                ended()
            return
        self.link = None
        self._lost()
        if self._ending is not None:
            self._end_now()
        if self.closed:
            return
        self._last = error
        condition = "" if error is None else error.condition
        if error is None or condition in _NOT_YET or (self.ready and condition == "amqp:not-found"):
            self._attach_later()
        else:
            message = "subscription ended" if self.ready else "not subscribed"
            receipt = "" if self.ready else self.receipt
            text = f"{self.stated}: {error.description or condition}"
            self._client.fail(StompError(message, text, condition=condition, receipt=receipt))

    def _lost(self) -> None:
        """Forget the deliveries of the link: their messages are redelivered."""
        self.unacknowledged.clear()
        self._unread.clear()
        deciding, self._deciding = self._deciding, {}
        for each in deciding.values():
            if each.settled is not None:
                each.settled(False)

    def failed(self, error: Exception) -> None:
        """As LinkUser: the connection of the client ends."""
        self._client.crash(error)

    def end(self, forget: bool, ended: Callable[[], None]) -> None:
        """Close it once the broker has the outcomes that were stated. `forget`, `ended`: as of `close`."""
        self._ending = forget, ended
        if self.link is not None:
            self.link.on_delivery = _refuse
        if not self._deciding:
            self._end_now()

    def _end_now(self) -> None:
        assert self._ending is not None
        (forget, ended), self._ending = self._ending, None
        self.close(forget=forget, ended=ended)

    def close(self, *, forget: bool = False, ended: Callable[[], None] | None = None) -> None:
        """Detach; what is not acknowledged goes back. `forget`: a durable subscription ends. `ended`: called when the
        other side knows."""
        if self.closed:
            return
        self.closed = True
        self._deadline.cancel()
        if self._timer is not None:
            self._timer.cancel()
        link, self.link = self.link, None
        if link is not None and not link.detached:
            link.on_delivery = _refuse
            for each in self.unacknowledged.values():
                link.session.settle(each.delivery_id, RELEASED)
            self._settle_read(link)
            self._ended = ended
            link.detach(closed=self.durable is None or forget)
        elif ended is not None:
            ended()
        self._lost()

    # messages

    def _deliver(
        self, link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int
    ) -> None:
        try:
            client = self._client
            self.messages += 1
            self.bytes += len(payload)
            if self.messages == FIRST_WINDOW or not self.messages % 256:
                self._fit_window(link)
            if self.traits.broadcast:  # the sender and all other receivers wait for it
                if not settled:
                    link.session.settle(delivery_id)
                settled = True
                if client.flooded:
                    self.dropped += 1
                    return
            number = client.next_number()
            acknowledged = self.mode != AUTO and not settled
            if acknowledged:
                self.unacknowledged[number] = StompDelivery(self, link, delivery_id, number)
            try:
                if message_format:
                    raise AmqpError("amqp:not-implemented", f"message-format {message_format} is not known")
                client.message(self, payload, number)
            except AmqpError as error:
                self.unacknowledged.pop(number, None)
                if not settled:
                    state = Rejected(error=Error(condition=Symbol(error.condition), description=error.description))
                    link.session.settle(delivery_id, state)
                return
            if acknowledged or settled:
                return
            if client.blocked:
                self._unread.append(delivery_id)
            else:
                link.session.settle(delivery_id)
        except Exception as error:  # of one client: the connection is for all
            self._client.crash(error)

    def _fit_window(self, link: Receiver) -> None:
        """Let as many messages be under way as the client asks for, as far as their bytes are bounded."""
        size = max(self.bytes // self.messages, 1)
        window = max(1, min(self._prefetch, BYTES // size))
        if link.credit_window and link.credit_window != window:
            link.credit_window = window

    def unblocked(self) -> None:
        """The client has read what it left unread."""
        if self.link is not None:
            self._settle_read(self.link)

    def _settle_read(self, link: Receiver) -> None:
        unread, self._unread = self._unread, []
        for delivery_id in unread:
            link.session.settle(delivery_id)

    # outcomes

    def take(self, number: str) -> list[StompDelivery]:
        """Return the deliveries that an acknowledgement of this one covers; they are the client's no longer."""
        if self.mode != CLIENT_ACK:
            return [self.unacknowledged.pop(number)]
        found = []
        for each in list(self.unacknowledged):
            found.append(self.unacknowledged.pop(each))
            if each == number:
                break
        return found

    def put_back(self, deliveries: Sequence[StompDelivery]) -> None:
        """Undo `take`: a transaction was aborted."""
        back = {each.number: each for each in deliveries if each.link is self.link}
        self.unacknowledged = back | self.unacknowledged

    def settle(self, delivery: StompDelivery, state: Any, settled: Callable[[bool], None] | None) -> None:
        """State an outcome. `settled` is called once it is final, or was lost with the link."""
        link = delivery.link
        if link is not self.link:
            if settled is not None:
                settled(False)
            return
        if link.second:
            delivery.settled = settled
            self._deciding[delivery.delivery_id] = delivery
            link.session.settle(delivery.delivery_id, state)
            return
        link.session.settle(delivery.delivery_id, state)
        if settled is not None:
            settled(True)

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """As LinkUser."""
        for delivery_id in delivery_ids:
            found = self._deciding.pop(delivery_id, None)
            if found is not None and found.settled is not None:
                found.settled(True)
        if self._ending is not None and not self._deciding:
            self._end_now()


def outcome_of(command: str, requeue: str | None) -> Any:
    """Return the outcome of an ACK or NACK."""
    if command == "ACK":
        return ACCEPTED
    if requeue == "false":
        return Rejected(error=Error(condition=Symbol("amqp:internal-error"), description="NACK with requeue:false"))
    return Modified(delivery_failed=True)


def _refuse(link: Receiver, delivery_id: int, settled: bool, payload: bytes, tag: bytes, message_format: int) -> None:
    """Return a message of a subscription that has ended."""
    if not settled:
        link.session.settle(delivery_id, RELEASED)
