"""Links of a control-plane connection: ControlSender, ControlReceiver and what they carry.

Configuration of links goes through proton's classes; deliveries use the engine's functions directly, because proton's
Python wrappers cost several times the engine's own work for each delivery.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import proton
from cproton import (
    addressof,
    pn_delivery,
    pn_delivery_aborted,
    pn_delivery_partial,
    pn_delivery_pending,
    pn_delivery_remote_state,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_delivery_tag,
    pn_delivery_update,
    pn_link_advance,
    pn_link_credit,
    pn_link_current,
    pn_link_drained,
    pn_link_flow,
    pn_link_get_drain,
    pn_link_queued,
    pn_link_recv,
    pn_link_send,
)

from enmasse.control.errors import DECODE_ERROR, MESSAGE_SIZE, ControlError, LinkClosed

if TYPE_CHECKING:
    from enmasse.control.connection import ControlConnection

ACCEPTED = int(proton.Delivery.ACCEPTED)
REJECTED = int(proton.Delivery.REJECTED)
RELEASED = int(proton.Delivery.RELEASED)
MODIFIED = int(proton.Delivery.MODIFIED)
_TERMINAL = (ACCEPTED, REJECTED, RELEASED, MODIFIED)
_NULL_TERMINUS = proton.Terminus.UNSPECIFIED


class Outcome:
    """Outcome of a message that was sent. `state` is one of ACCEPTED … MODIFIED, or 0 for none."""

    __slots__ = ("condition", "description", "state")

    def __init__(self, state: int, condition: str = "", description: str = "") -> None:
        self.state = state
        self.condition = condition
        self.description = description

    @property
    def accepted(self) -> bool:
        """Return True if the message was accepted."""
        return self.state == ACCEPTED

    def __repr__(self) -> str:
        name = {ACCEPTED: "accepted", REJECTED: "rejected", RELEASED: "released", MODIFIED: "modified"}.get(
            self.state, "none"
        )
        return f"Outcome({name}{f', {self.condition}: {self.description}' if self.condition else ''})"


_OUTCOME_ACCEPTED = Outcome(ACCEPTED)
OnOutcome = Callable[[Outcome], None]


class ControlLink:
    """One end of a link. `on_closed(error)` is called once, when the link is refused, detached or lost."""

    is_sender: bool

    def __init__(self, connection: ControlConnection, proton_link: Any) -> None:
        self.connection = connection
        self.name: str = proton_link.name
        self.closed = False
        self.error: LinkClosed | None = None
        """Why it is closed."""
        self.on_closed: Callable[[LinkClosed], None] | None = None
        self._link = proton_link
        self._impl = proton_link._impl
        self.key: int = addressof(self._impl)
        """By which the engine's events name it."""
        self._attached: asyncio.Future[None] = connection.loop.create_future()
        self._answered = False

    @property
    def remote_source(self) -> str | None:
        """Return the address of the peer's source."""
        address: str | None = self._link.remote_source.address
        return address

    @property
    def remote_target(self) -> str | None:
        """Return the address of the peer's target."""
        address: str | None = self._link.remote_target.address
        return address

    @property
    def remote_properties(self) -> dict[str, Any]:
        """Return what the peer's attach states as properties."""
        found = self._link.remote_properties
        return {} if found is None else {str(key): value for key, value in found.items()}

    @property
    def proton_link(self) -> Any:
        """Proton's object, for what is rare (filters, properties, capabilities)."""
        return self._link

    async def opened(self) -> None:
        """Wait until the peer has attached its end. Raises LinkClosed when it refuses."""
        await asyncio.shield(self._attached)

    def accept(self) -> None:
        """Answer the attach of a peer with the termini it asked for."""
        self._answered = True
        self._link.source.copy(self._link.remote_source)
        self._link.target.copy(self._link.remote_target)
        self._link.snd_settle_mode = self._link.remote_snd_settle_mode
        self._link.rcv_settle_mode = self._link.remote_rcv_settle_mode
        self._link.open()
        if not self._attached.done():
            self._attached.set_result(None)
        self.connection.wake()

    def refuse(self, condition: str, description: str) -> None:
        """Answer the attach of a peer with a null terminus and a detach that gives the reason (part 2.6.3)."""
        self._answered = True
        if self.is_sender:
            self._link.source.type = _NULL_TERMINUS
            self._link.target.copy(self._link.remote_target)
        else:
            self._link.target.type = _NULL_TERMINUS
            self._link.source.copy(self._link.remote_source)
        self._link.open()
        self.close(condition, description)

    def close(self, condition: str = "", description: str = "") -> None:
        """Detach the link for good, with an error if a condition is given."""
        if self.closed:
            return
        if condition:
            self._link.condition = proton.Condition(condition, description)
        self._link.close()
        self.lost(LinkClosed(condition or "closed here", description))
        self.connection.wake()

    # called by the connection

    def remote_opened(self) -> None:
        """The peer's attach arrived. A null terminus announces a refusal: the detach follows."""
        terminus = self._link.remote_source if not self.is_sender else self._link.remote_target
        if terminus.type != _NULL_TERMINUS and not self._attached.done():
            self._attached.set_result(None)

    def lost(self, error: LinkClosed) -> None:
        """Note that the link has ended, and fail the callers that wait for it."""
        if self.closed:
            return
        self.closed = True
        self.error = error
        self.connection.forget(self)
        if not self._attached.done():
            self._attached.set_exception(error)
            self._attached.exception()  # marked as retrieved: awaiting it is optional
        if self.on_closed is not None:
            self.on_closed(error)


class ControlSender(ControlLink):
    """Sends messages. `on_credit()` is called when credit arrives or grows."""

    is_sender = True

    def __init__(self, connection: ControlConnection, proton_link: Any) -> None:
        super().__init__(connection, proton_link)
        self.on_credit: Callable[[], None] | None = None
        self._tag = 0
        self._waiting: dict[int, OnOutcome | None] = {}
        self._credit_waiters: deque[asyncio.Future[None]] = deque()

    @property
    def credit(self) -> int:
        """Messages the peer would take now."""
        return 0 if self.closed else int(pn_link_credit(self._impl))

    @property
    def unsettled(self) -> int:
        """Messages whose outcome is not known yet."""
        return len(self._waiting)

    @property
    def queued(self) -> int:
        """Return the number of messages handed over that have not left completely."""
        return 0 if self.closed else int(pn_link_queued(self._impl))

    @property
    def presettled(self) -> bool:
        """The peer asked for settled messages only: no outcomes will come."""
        return bool(self._link.remote_snd_settle_mode == proton.Link.SND_SETTLED)

    def send(
        self,
        message: proton.Message | bytes,
        on_outcome: OnOutcome | None = None,
        *,
        settled: bool = False,
        tag: bytes | None = None,
    ) -> None:
        """Send now, credit or not (proton keeps what has none). `on_outcome` is called once, also on loss. `tag`: one
        that no other unsettled delivery of the link has.

        Raises LinkClosed.
        """
        if self.closed:
            raise LinkClosed("closed", f"the link {self.name} is closed")
        data = message if isinstance(message, bytes) else bytes(message.encode())
        self._tag += 1
        delivery = pn_delivery(self._impl, tag or self._tag.to_bytes(8, "big"))
        pn_link_send(self._impl, data)
        pn_link_advance(self._impl)
        if settled:
            pn_delivery_settle(delivery)
        else:
            self._waiting[addressof(delivery)] = on_outcome
        self.connection.wake()

    async def deliver(self, message: proton.Message | bytes) -> Outcome:
        """Wait for credit, send, and wait for the outcome. Raises LinkClosed."""
        while self.credit <= 0:
            await self.has_credit()
        done: asyncio.Future[Outcome] = self.connection.loop.create_future()

        def settled(outcome: Outcome) -> None:
            if not done.done():
                done.set_result(outcome)

        self.send(message, settled)
        outcome = await done
        if self.error is not None and outcome.state == 0:
            raise self.error
        return outcome

    async def has_credit(self) -> None:
        """Wait until the peer has granted credit. Raises LinkClosed."""
        if self.closed:
            raise LinkClosed("closed", f"the link {self.name} is closed")
        if self.credit > 0:
            return
        waiter: asyncio.Future[None] = self.connection.loop.create_future()
        self._credit_waiters.append(waiter)
        await waiter

    # called by the connection

    def flow(self) -> None:
        """Wake callers that wait for credit, and answer a drain."""
        if pn_link_credit(self._impl) > 0:
            waiters, self._credit_waiters = self._credit_waiters, deque()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            if self.on_credit is not None:
                self.on_credit()
        if not self.closed and pn_link_get_drain(self._impl):
            pn_link_drained(self._impl)
            self.connection.wake()

    def delivery_event(self, delivery: Any) -> None:
        """Give the outcome of a delivery to its callback, once the peer has settled it or stated a final one."""
        state = int(pn_delivery_remote_state(delivery))
        settled = pn_delivery_settled(delivery)
        if not settled and state not in _TERMINAL:
            return
        key = addressof(delivery)
        if key not in self._waiting:
            return
        on_outcome = self._waiting.pop(key)
        if on_outcome is None:
            pn_delivery_settle(delivery)
        elif state == ACCEPTED:
            pn_delivery_settle(delivery)
            on_outcome(_OUTCOME_ACCEPTED)
        else:
            condition = proton.Delivery.wrap(delivery).remote.condition if state == REJECTED else None
            pn_delivery_settle(delivery)
            on_outcome(Outcome(state, condition.name, condition.description or "") if condition else Outcome(state))
        self.connection.wake()

    def lost(self, error: LinkClosed) -> None:
        """Note that the link has ended; messages without an outcome get an outcome without a state."""
        if self.closed:
            return
        super().lost(error)
        waiting, self._waiting = self._waiting, {}
        for on_outcome in waiting.values():
            if on_outcome is not None:
                on_outcome(Outcome(0, error.condition, error.description))
        for waiter in self._credit_waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._credit_waiters.clear()


class Delivery:
    """A message that arrived. Settle it with accept, reject or release; that also makes room for the next."""

    __slots__ = ("_impl", "_message", "_wants_outcome", "data", "link", "settled")

    def __init__(self, link: ControlReceiver, impl: Any, data: bytes, settled: bool) -> None:
        self.link = link
        self.data = data
        self.settled = settled and not link.counts_settled
        """Settled by the sender already (it wants no outcome), or by us."""
        self._wants_outcome = not settled
        self._impl = impl
        self._message: proton.Message | None = None

    @property
    def tag(self) -> bytes:
        """The delivery-tag, before the delivery is settled."""
        tag: bytes | str = pn_delivery_tag(self._impl)
        return tag if isinstance(tag, bytes) else tag.encode()

    @property
    def message(self) -> Any:
        """The decoded proton.Message. Raises ControlError(amqp:decode-error)."""
        if self._message is None:
            self._message = decode(self.data)
        return self._message

    def accept(self) -> None:
        """Settle the message as accepted."""
        self._settle(ACCEPTED)

    def release(self) -> None:
        """Settle the message as released: it may be delivered again."""
        self._settle(RELEASED)

    def reject(self, condition: str, description: str) -> None:
        """Settle the message as rejected, with an error condition."""
        if self.settled or self.link.closed:
            return
        if self._wants_outcome:
            delivery = proton.Delivery.wrap(self._impl)
            delivery.local.condition = proton.Condition(condition, description)
            delivery.update(proton.Delivery.REJECTED)
        self._settle(None)

    def _settle(self, state: int | None) -> None:
        if self.settled or self.link.closed:
            return
        self.settled = True
        if self._wants_outcome:
            if state is not None:
                pn_delivery_update(self._impl, state)
            pn_delivery_settle(self._impl)
        self.link.replenish()
        self.link.connection.wake()


class ControlReceiver(ControlLink):
    """Receives messages: set `on_message`, or iterate (`async for delivery in receiver`).

    `window` deliveries may be unsettled (or, when the sender settles first, not yet iterated over) at any time; credit
    is topped up by itself. A window of 0 leaves credit to `grant`.
    """

    is_sender = False

    def __init__(self, connection: ControlConnection, proton_link: Any) -> None:
        super().__init__(connection, proton_link)
        self.on_message: Callable[[Delivery], None] | None = None
        self.window = 0
        self.max_message_size = connection.max_message_size
        self.counts_settled = False
        """Whether deliveries that the sender has settled count in the window until accept, reject or release, too:
        for an `on_message` that begins work that continues after it has returned."""
        self._owed = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._queue: deque[Delivery] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def grant(self, credit: int) -> None:
        """Grant the sender more credit."""
        if not self.closed and credit > 0:
            pn_link_flow(self._impl, credit)
            self.connection.wake()

    def replenish(self) -> None:
        """One delivery of the window is done with."""
        if self.window:
            self._owed += 1
            if self._owed * 2 >= self.window:
                self.grant(self._owed)
                self._owed = 0

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        """Return the next delivery. Raises LinkClosed when the link ends; what arrived before is given first."""
        while not self._queue:
            if self.closed:
                raise self.error or LinkClosed("closed")
            self._waiter = self.connection.loop.create_future()
            await self._waiter
        delivery = self._queue.popleft()
        if delivery.settled:
            self.replenish()
        return delivery

    # called by the connection

    def delivery_event(self, delivery: Any) -> None:
        """Read a message that has arrived."""
        if addressof(pn_link_current(self._impl)) != addressof(delivery):
            return  # read already: this is the sender's settlement
        pending = pn_delivery_pending(delivery)
        if pn_delivery_aborted(delivery):
            self._parts, self._size = [], 0
            pn_link_advance(self._impl)
            pn_delivery_settle(delivery)
            self.replenish()
            return
        if pending > 0:
            self._size += pending
            if self._size > self.max_message_size:
                self.close(MESSAGE_SIZE, f"at most {self.max_message_size} bytes a message")
                return
            count, part = pn_link_recv(self._impl, pending)
            if count > 0:
                self._parts.append(bytes(part))
            self.connection.wake()
        if pn_delivery_partial(delivery):
            return
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        pn_link_advance(self._impl)
        settled = bool(pn_delivery_settled(delivery))
        arrived = Delivery(self, delivery, data, settled)
        if settled:
            pn_delivery_settle(delivery)
        if self.on_message is None:
            self._queue.append(arrived)
            self._notify()
            return
        self.on_message(arrived)
        if settled and not self.counts_settled:
            self.replenish()

    def lost(self, error: LinkClosed) -> None:
        """Note that the link has ended, and wake the caller that waits for a message."""
        if self.closed:
            return
        self._parts = []
        super().lost(error)
        self._notify()

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def decode(data: bytes) -> Any:
    """Return a proton.Message from its bytes. Raises ControlError(amqp:decode-error), whatever the bytes are."""
    message = proton.Message()
    try:
        message.decode(data)
    except (proton.ProtonException, ValueError, TypeError, RecursionError, KeyError) as error:
        raise ControlError(DECODE_ERROR, f"not an AMQP message: {error}"[:200]) from None
    return message
