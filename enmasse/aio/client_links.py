"""ClientSender and ClientReceiver, by which an application uses a link, and the Delivery that it has received."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, RELEASED, Accepted, Error, Modified, Rejected
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.messages.message import Message
from enmasse.amqp.receiver import Partial


async def within(what: Any, timeout: float | None, words: str) -> Any:
    """Await with a timeout whose error names what did not come. Raises TimeoutError."""
    if timeout is None:
        return await what
    try:
        async with asyncio.timeout(timeout):
            return await what
    except TimeoutError:
        raise TimeoutError(f"waited {timeout:g} s for {words}") from None


class Delivery:
    """One received message. Settle it once, by accept, release, reject or modify."""

    __slots__ = ("_message", "id", "message_format", "payload", "receiver", "settled", "tag")

    def __init__(self, receiver: ClientReceiver, id: int, settled: bool, payload: bytes, tag: bytes, fmt: int) -> None:
        self.receiver = receiver
        self.id = id
        self.settled = settled
        self.payload = payload
        self.tag = tag
        self.message_format = fmt
        self._message: Message | None = None

    @property
    def message(self) -> Message:
        """The message, decoded at first use. Raises AmqpError if it is malformed."""
        if self._message is None:
            self._message = Message.decode(self.payload)
        return self._message

    async def accept(self) -> None:
        """Settle the message as accepted."""
        self.settle(ACCEPTED)

    async def release(self) -> None:
        """Settle the message as released: it may be delivered again."""
        self.settle(RELEASED)

    async def reject(self, condition: str | None = None, description: str = "") -> None:
        """Settle the message as rejected, with an error condition if one is given."""
        error = None if condition is None else Error(condition=Symbol(condition), description=description or None)
        self.settle(Rejected(error=error))

    async def modify(
        self, *, failed: bool = True, undeliverable_here: bool = False, annotations: Mapping[str, Any] | None = None
    ) -> None:
        """Settle the message as modified (AMQP 1.0, 3.4.5)."""
        self.settle(
            Modified(
                delivery_failed=failed,
                undeliverable_here=undeliverable_here,
                message_annotations={Symbol(k): v for k, v in (annotations or {}).items()},
            )
        )

    def settle(self, state: Any) -> None:
        """Any outcome, from code that is not async."""
        if not self.settled:
            self.settled = True
            self.receiver.link.session.settle(self.id, state)


class ClientLink:
    """Base of sender and receiver: attaching and leaving."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str | None, link: Link) -> None:
        self._loop = loop
        self.address = address
        self.link: Any = link
        self.error: AmqpError | None = None
        self.closed = False
        self._attached: asyncio.Future[None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        link.context = self

    async def wait_attached(self, timeout: float) -> None:
        """Return when the peer has attached the link.

        Raises TimeoutError after `timeout` seconds; AmqpError if the peer refuses it.
        """
        what = f"{'sender to' if self.link.is_sender else 'receiver from'} {self.address or 'a dynamic address'}"
        try:
            await within(asyncio.shield(self._attached), timeout, f"the attach of a {what} to be answered")
        except TimeoutError:
            self.link.detach()
            raise
        if self.closed:  # attached and detached in one read
            raise self.error or AmqpError(errors.DETACH_FORCED, "detached at once")

    def on_attached(self) -> None:
        """The peer has answered the attach. (The client calls this, and what follows.)"""
        terminus = self.link.remote_target if self.link.is_sender else self.link.remote_source
        if terminus is not None and not self._attached.done():
            self.address = getattr(terminus, "address", None) or self.address
            self._attached.set_result(None)

    def on_detach(self, error: AmqpError | None) -> None:
        """Note that the link has ended, with this error, and wake the callers that wait for it."""
        self.error = (
            error or self.error or AmqpError(errors.DETACH_FORCED, f"link {self.link.name!r} has been detached")
        )
        self.closed = True
        if not self._attached.done():
            self._attached.set_exception(self.error)
            self._attached.exception()  # marks it as retrieved: asyncio would log it otherwise
        if not self._gone.done():
            self._gone.set_result(None)
        self.wake()

    def wake(self) -> None:
        """Something has changed for those who wait for room or for a message."""
        raise NotImplementedError

    async def close(self, timeout: float = 10.0) -> None:
        """Detach for good: a durable subscription is deleted by it."""
        await self._leave(True, timeout)

    async def detach(self, timeout: float = 10.0) -> None:
        """Detach and keep what is durable: attach again by the same name to go on."""
        await self._leave(False, timeout)

    async def _leave(self, closed: bool, timeout: float) -> None:
        if not self.closed:
            self.link.detach(closed=closed)
            await within(asyncio.shield(self._gone), timeout, f"the detach of {self.link.name!r} to be answered")


class SentRun:
    """Messages that were sent together: `count` of them. `done` is there when all outcomes are; `others` has those that
    are not accepted, by place from 0 on."""

    __slots__ = ("_left", "count", "done", "others")

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done
        self.others: dict[int, Any] = {}
        self.count = self._left = 0

    def sent(self, count: int) -> None:
        """Note how many were sent."""
        self.count = self._left = count

    def outcome(self, place: int, state: Any) -> None:
        """Note the outcome of one."""
        if state is not ACCEPTED and not isinstance(state, Accepted):
            self.others[place] = state
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)


class ClientSender(ClientLink):
    """Sends to one address, or with address None to each message's `to`."""

    link: Sender

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str | None, link: Sender) -> None:
        super().__init__(loop, address, link)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._lost: list[asyncio.Future[Any]] = []

    @property
    def credit(self) -> int:
        """Messages that can be sent without waiting."""
        return self.link.credit

    @property
    def waiting(self) -> int:
        """Calls that wait for credit."""
        return len(self._waiters)

    async def wait_credit(self, timeout: float | None = None) -> None:
        """Wait until a message can be sent. Raises AmqpError if the link is lost, TimeoutError."""
        if not self.link.credit and not self.closed:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await within(waiter, timeout, f"credit to send to {self.address}")
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        if self.closed:
            raise self.error or AmqpError(errors.DETACH_FORCED, "the sender is closed")

    async def send(
        self, message: Message | bytes, *, settled: bool = False, timeout: float | None = None, tag: bytes | None = None
    ) -> Any:
        """Send and wait for the outcome: ACCEPTED, RELEASED, a Rejected or a Modified (None if it goes settled, or
        if the peer settles without an outcome). Waits for credit first. Raises AmqpError if the link is lost before
        the outcome is known, TimeoutError if credit or outcome do not come within `timeout` seconds."""
        loop = self._loop
        deadline = None if timeout is None else loop.time() + timeout
        while not self.link.credit or self.closed:
            await self.wait_credit(None if deadline is None else max(0.0, deadline - loop.time()))
        outcome = self.send_nowait(message, settled=settled, tag=tag)
        if outcome is None:
            return None
        try:
            async with asyncio.timeout_at(deadline):
                return await outcome
        except TimeoutError:
            raise TimeoutError(f"waited {timeout:g} s for the outcome of a message to {self.address}") from None

    def send_nowait(
        self, message: Message | bytes, *, settled: bool = False, tag: bytes | None = None
    ) -> asyncio.Future[Any] | None:
        """Send without waiting; the future will hold the outcome (None: goes settled). Raises AmqpError if there is
        no credit: see `wait_credit`."""
        if self.closed:
            raise self.error or AmqpError(errors.DETACH_FORCED, "the sender is closed")
        payload = message.encode() if isinstance(message, Message) else message
        if settled or self.link.presettled:
            self.link.send(payload, settled=True, tag=tag)
            return None
        outcome: asyncio.Future[Any] = self._loop.create_future()
        self.link.send(payload, outcome, tag=tag)
        return outcome

    def send_run(self, payloads: Sequence[bytes]) -> SentRun:
        """Send encoded messages without waiting: the first one, and those behind it for which there is room. Raises
        AmqpError if there is no credit (see `wait_credit`), or if no outcomes will come."""
        if self.closed:
            raise self.error or AmqpError(errors.DETACH_FORCED, "the sender is closed")
        if self.link.presettled:
            raise AmqpError(errors.NOT_ALLOWED, f"{self.address} takes settled messages only, which have no outcome")
        run = SentRun(self._loop.create_future())
        count = self.link.send_run(payloads, [(run, place) for place in range(len(payloads))])
        if not count:
            self.link.send(payloads[0], (run, 0))
        run.sent(count or 1)
        return run

    def wake(self) -> None:
        """Wake callers that wait for credit: as many as there is credit for, all of them once the link has ended."""
        if self.closed:
            lost, self._lost = self._lost, []
            for outcome in lost:
                if not outcome.done():
                    outcome.set_exception(self.error or AmqpError(errors.DETACH_FORCED))
                    outcome.exception()  # marks it as retrieved: asyncio would log it otherwise
        room = len(self._waiters) if self.closed else self.link.credit
        while self._waiters and room > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= 1

    def on_outcomes(self, tokens: list[Any], state: Any) -> None:
        """Give outcomes to the callers that wait for them. Tokens: a future, None, or a run and a place in it."""
        lost = state is None and self.link.detached
        for token in tokens:
            if type(token) is tuple:
                run, place = token
                if lost:
                    self._lost.append(run.done)  # on_detach brings the reason
                else:
                    run.outcome(place, state)
            elif token is not None and not token.done():
                if lost:
                    self._lost.append(token)
                else:
                    token.set_result(state)
        if self._waiters:
            self.wake()


class ClientReceiver(ClientLink):
    """Receives from one address. `async for` ends when the receiver is closed by us, raises when it is lost.

    `on_settled`, if set, is called with the ids of deliveries that the sender has settled after our outcome: only on a
    link with rcv-settle-mode second (2.8.3).

    With `most_waiting`, messages of several frames stay with the peer, whatever the credit, while fetched ones have as
    many bytes: the session window closes, then the socket is not read (2.5.6).
    """

    link: Receiver

    def __init__(
        self, loop: asyncio.AbstractEventLoop, address: str | None, link: Receiver, credit: int, most_waiting: int = 0
    ) -> None:
        super().__init__(loop, address, link)
        self.credit = credit
        self.most_waiting = most_waiting
        self._queue: deque[Delivery] = deque()
        self._waiting_bytes = 0
        self._behind: deque[Partial | Delivery] = deque()  # a message that is not complete here, and those after it
        self._pieces: list[bytes] = []  # of the first one
        self._taken = 0  # since credit was granted last
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._drained: asyncio.Future[None] | None = None
        self._leaving = False
        self.on_settled: Callable[[Sequence[int]], None] | None = None
        link.on_delivery = self._on_delivery

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        try:
            return await self.receive()
        except AmqpError:
            if self._leaving:
                raise StopAsyncIteration from None
            raise

    @property
    def waiting(self) -> int:
        """Calls that wait for a message."""
        return len(self._waiters)

    @property
    def fetched(self) -> int:
        """Messages that are here, at least in part, and were not taken."""
        return len(self._queue) + len(self._behind)

    async def receive(self, timeout: float | None = None) -> Delivery:
        """Return the next message. Raises TimeoutError, or AmqpError if the link is lost and nothing is left."""
        queue = self._queue
        while not queue:
            if self.closed or self._leaving:
                raise self.error or AmqpError(errors.DETACH_FORCED, "the receiver is closed")
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await within(waiter, timeout, f"a message from {self.address}")
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                elif queue and not waiter.cancelled():
                    self.wake()  # cancelled after it was woken: another call may take the message
        return self._take()

    def receive_nowait(self) -> Delivery | None:
        """A message that is here already, or None."""
        return self._take() if self._queue else None

    def receive_all(self, most: int) -> list[Delivery]:
        """Return the messages that are here already, up to the one with which they have `most` bytes."""
        found: list[Delivery] = []
        while most > 0 and self._queue:
            delivery = self._take()
            most -= len(delivery.payload)
            found.append(delivery)
        return found

    def accept_all(self, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries of this receiver as accepted."""
        ids = [delivery.id for delivery in deliveries if not delivery.settled]
        for delivery in deliveries:
            delivery.settled = True
        self.link.accept_all(ids)

    def take_runs(self) -> None:
        """Take messages that come together at once, which is faster. Their delivery-tags are left out."""
        self.link.on_run = self._on_run

    def _take(self) -> Delivery:
        delivery = self._queue.popleft()
        self._waiting_bytes -= len(delivery.payload)
        if self._behind:
            self._assemble()
        self._taken += 1
        if self.credit and self._taken >= (self.credit + 1) // 2:
            self.link.grant(self._taken)
            self._taken = 0
        return delivery

    def grant(self, n: int) -> None:
        """Ask for n messages more, if the receiver was made with credit=0."""
        self.link.grant(n)

    async def drain(self, timeout: float | None = 10.0) -> None:
        """Receive the messages that wait now and give the rest of the credit back.

        Afterwards credit is granted by hand. Raises TimeoutError; AmqpError if the link is lost."""
        self.credit = 0
        self._drained = self._loop.create_future()
        self.link.drain_credit()
        await within(self._drained, timeout, f"{self.address} to be drained")

    async def _leave(self, closed: bool, timeout: float) -> None:
        self.give_back()
        await super()._leave(closed, timeout)

    def give_back(self) -> None:
        """Release what was fetched and not taken, and what still comes: others may have it."""
        self._leaving = True
        self.link.credit_window = 0
        for each in [*self._queue, *self._behind]:
            if isinstance(each, Partial):
                self._release(each)
            else:
                each.settle(RELEASED)
        self._queue.clear()
        self._behind.clear()
        self.wake()

    def _release(self, partial: Partial) -> None:
        partial.take()  # else the socket might not be read
        if partial.done and not partial.aborted:
            _delivery_of(self, partial, b"").settle(RELEASED)

    def _on_delivery(self, link: Receiver, id: int, settled: bool, payload: bytes, tag: bytes, fmt: int) -> None:
        delivery = Delivery(self, id, settled, payload, tag, fmt)
        if self._leaving:
            delivery.settle(RELEASED)
        elif self._behind:
            self._behind.append(delivery)
        else:
            self._fetched(delivery)

    def _on_run(self, link: Receiver, first: int, payloads: list[bytes], settled: bool) -> None:
        size = sum(map(len, payloads))
        link.bytes += size
        if self._leaving or self._behind:
            for delivery_id, payload in enumerate(payloads, first):
                self._on_delivery(link, delivery_id, settled, payload, b"", 0)
            return
        self._queue.extend([Delivery(self, n, settled, payload, b"", 0) for n, payload in enumerate(payloads, first)])
        self._waiting_bytes += size
        if self._waiters:
            self.wake()

    def _fetched(self, delivery: Delivery) -> None:
        self._queue.append(delivery)
        self._waiting_bytes += len(delivery.payload)
        if self._waiters:
            self.wake()

    def on_partial(self, partial: Partial) -> None:
        """Note that a piece of a message has come, or that no further one will. Too large a one ends the link."""
        if self._leaving:
            self._release(partial)
            return
        if not self._behind or self._behind[-1] is not partial:
            self._behind.append(partial)
        self._assemble()

    def _assemble(self) -> None:
        """Take pieces, as long as few bytes wait, and fetch the messages that are complete."""
        behind = self._behind
        while behind:
            first = behind[0]
            if isinstance(first, Partial):
                if first.aborted:
                    behind.popleft()
                    self._pieces.clear()
                    continue
                if 0 < self.link.max_message_size < first.size:
                    what = f"a message of more than {self.link.max_message_size} bytes"
                    self.error = AmqpError(errors.MESSAGE_SIZE_EXCEEDED, what)
                    self.link.detach(self.error)
                    return
                if self._waiting_bytes >= self.most_waiting:
                    return
                if first.waiting:
                    self._pieces.append(first.take())
                if not first.done:
                    return
                payload = b"".join(self._pieces)
                self._pieces.clear()
                first = _delivery_of(self, first, payload)
            behind.popleft()
            self._fetched(first)

    def on_drained(self) -> None:
        """Note that the peer has used or returned all credit."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def wake(self) -> None:
        """Wake callers that wait for messages: as many as there are messages, all of them once the link has ended."""
        if self._drained is not None and self.closed and not self._drained.done():
            self._drained.set_exception(self.error or AmqpError(errors.DETACH_FORCED))
        waiters = self._waiters
        ready = len(waiters) if self.closed or self._leaving else len(self._queue)
        while waiters and ready > 0:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                ready -= 1


def _delivery_of(receiver: ClientReceiver, partial: Partial, payload: bytes) -> Delivery:
    return Delivery(receiver, partial.delivery_id, partial.settled, payload, partial.tag, partial.message_format)
