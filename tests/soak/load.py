"""The load of a soak: senders and receivers on python-qpid-proton that write down in the ledger what they see.

Message-ids vary on purpose: none at all, 1, 2, 3 … from several senders at once, text, UUIDs, binary. The properties
`flow` and `number` say which message it is; what its body must be follows from them.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

from proton import Delivery, Message, Terminus, symbol
from proton.reactor import ReceiverOption

from tests.soak.ledger import Flow, Ledger, Taker
from tests.system.load import MADE, Attempt, Client

WINDOW = 50
"""Messages that a sender has under way."""
CREDIT = 30
TICK = 0.05
"""Seconds between two looks at the clock."""
IDS: dict[str, Callable[[str, int], Any]] = {
    "no id": lambda flow, number: None,
    "counted": lambda flow, number: number + 1,
    "counted text": lambda flow, number: str(number + 1),
    "all the same": lambda flow, number: "id",
    "uuid": lambda flow, number: uuid.uuid5(uuid.NAMESPACE_OID, f"{flow} {number}"),
    "binary": lambda flow, number: number.to_bytes(8, "big"),
}
SMALL = (0, 1, 100, 100, 100, 1000, 1000, 5000, 20_000)
LARGE = (10_000, 50_000, 100_000, 300_000, 1 << 20)
HUGE = (1 << 20,)


def body(flow: str, number: int) -> bytes:
    """What this message carries, of a size that varies with the number."""
    sizes = {"bulk": LARGE, "deep": HUGE}.get(flow.partition("/")[0], SMALL)
    size = random.Random(f"{flow} {number}").choice(sizes)
    pattern = f"{flow} {number};".encode()
    return (pattern * (size // len(pattern) + 1))[:size]


class _Party(Attempt):
    def on_timer_task(self, event: Any) -> None:
        if self.connection is None:
            return
        if self.owner.ended():
            self.close()
        else:
            self.tick()
            event.container.schedule(TICK, self)

    def tick(self) -> None:
        """Twenty times a second, while it is connected."""


class Sender(Client):
    """Sends `rate` messages a second but while it `pauses`, until `enough()`; what is not accepted is sent again."""

    def __init__(
        self, url: str, address: str, ledger: Ledger, flow: Flow, *, ids: str, rate: float,
        pauses: Callable[[], bool],
    ) -> None:  # fmt: skip
        super().__init__(url, address)
        self.ledger, self.flow, self.rate, self.pauses = ledger, flow, rate, pauses
        self.id = IDS[ids]
        self.again: deque[int] = deque()
        self.outcomes = 0
        """How many answers have come."""
        self._tokens = 0.0
        self._then = time.monotonic()
        self._enough = False

    def describe(self) -> str:
        flow = self.flow
        return f"{super().describe()}, {flow.name}: sent {flow.sent}, accepted {flow.accepted}, again {len(self.again)}"

    def enough(self) -> None:
        """Nothing new, and to the end once everything that was sent is accepted."""
        self._enough = True

    def finished(self) -> bool:
        return self._enough and self.flow.accepted == self.flow.sent

    def next(self) -> int | None:
        now = time.monotonic()
        self._tokens = min(WINDOW, self._tokens + (now - self._then) * self.rate)
        self._then = now
        if self._tokens < 1:
            return None
        if self.again:
            number = self.again.popleft()
        elif self._enough or self.pauses():
            return None
        else:
            number = self.ledger.fresh(self.flow)
        self._tokens -= 1
        return number

    def attempt(self) -> Attempt:
        return _Sending(self)


class _Sending(_Party):
    def __init__(self, owner: Sender) -> None:
        super().__init__(owner)
        self.sender = owner
        self.under_way: set[int] = set()

    def attach(self, container: Any) -> Any:
        return container.create_sender(self.connection, self.owner.address, name=f"sender {self.sender.flow.name}")

    def tick(self) -> None:
        sender, flow = self.sender, self.sender.flow
        while self.link.credit > 0 and len(self.under_way) < WINDOW and (number := sender.next()) is not None:
            self.under_way.add(number)
            sender.ledger.sends(flow, number)
            message = Message(
                body=body(flow.name, number),
                id=sender.id(flow.name, number),
                durable=True,
                properties={"flow": flow.name, "number": number},
            )
            self.link.send(message, tag=str(number))

    def on_accepted(self, event: Any) -> None:
        self.sender.ledger.accepts(self.sender.flow, self._done(event))

    def on_rejected(self, event: Any) -> None:
        self._once_more(event, "rejected", nowhere=True)

    def on_released(self, event: Any) -> None:
        modified = event.delivery.remote_state == Delivery.MODIFIED
        self._once_more(event, "modified" if modified else "released", nowhere=not modified)

    def on_settled(self, event: Any) -> None:
        if int(event.delivery.tag) in self.under_way:
            self._once_more(event, "settled without outcome", nowhere=False)
        if self.sender.finished():
            self.close()

    def _done(self, event: Any) -> int:
        number = int(event.delivery.tag)
        self.under_way.discard(number)
        self.sender.outcomes += 1
        return number

    def _once_more(self, event: Any, outcome: str, *, nowhere: bool) -> None:
        self.sender.disturbed(outcome)
        number = self._done(event)
        self.sender.again.append(number)
        if nowhere:
            self.sender.ledger.given_back(self.sender.flow, number)

    def forget(self) -> None:
        self.sender.again.extend(sorted(self.under_way))
        self.under_way = set()


class Subscription(ReceiverOption):
    """A durable one, which stays when the link is detached."""

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared

    def apply(self, receiver: Any) -> None:
        receiver.source.durability = Terminus.DELIVERIES
        receiver.source.expiry_policy = Terminus.EXPIRE_NEVER
        receiver.source.capabilities.put_object(symbol("shared" if self.shared else "topic"))


class Receiver(Client):
    """Accepts; if it `returns`, gives some back first; if it `rejects`, sends some to the dead letter.

    `pace`: it asks for no more than so many a second; 0 for as many as there are.
    """

    def __init__(
        self, url: str, address: str, ledger: Ledger, taker: Taker, seed: int, *, container_id: str = "",
        subscription: str = "", shared: bool = False, returns: bool = False, rejects: bool = False,
        pace: float = 0,
    ) -> None:  # fmt: skip
        super().__init__(url, address, container_id=container_id)
        self.ledger, self.taker, self.subscription, self.shared = ledger, taker, subscription, shared
        self.returns, self.rejects, self.pace = returns, rejects, pace
        self.random = random.Random(seed)
        self.came = 0

    def describe(self) -> str:
        return f"{super().describe()}, came {self.came}"

    def attempt(self) -> Attempt:
        return _Receiving(self)


class _Receiving(_Party):
    def __init__(self, owner: Receiver) -> None:
        super().__init__(owner, prefetch=0, auto_accept=False)
        self.receiver = owner
        self._asked = time.monotonic()

    def on_link_opened(self, event: Any) -> None:
        super().on_link_opened(event)
        self.tick()

    def tick(self) -> None:
        more = CREDIT - self.link.credit
        if pace := self.receiver.pace:
            more = min(more, int((time.monotonic() - self._asked) * pace))
        if more > 0:
            self.link.flow(more)
            self._asked = time.monotonic()

    def attach(self, container: Any) -> Any:
        options = Subscription(shared=self.receiver.shared) if self.receiver.subscription else None
        name = self.receiver.subscription or f"receiver {id(self.receiver)}"
        return container.create_receiver(self.connection, self.owner.address, name=name, options=options)

    def on_message(self, event: Any) -> None:
        receiver, message = self.receiver, event.message
        if self.connection is None:  # we have closed it: no answer of ours would get out any more
            return
        receiver.came += 1
        choice = receiver.random.random()
        if receiver.returns and choice < 0.06:
            self.release(event.delivery, delivered=choice < 0.03)
            return
        if receiver.rejects and choice > 0.97:
            self.reject(event.delivery)
            return
        try:
            flow, number = str(message.properties["flow"]), int(message.properties["number"])
        except (TypeError, KeyError, ValueError):
            receiver.ledger.broken(f"{receiver.address}: a message that no sender made: {message}")
        else:
            if bytes(message.body) != body(flow, number):
                receiver.ledger.broken(f"{receiver.address}: the body of {flow} {number} was changed")
            receiver.ledger.received(receiver.taker, flow, number)
        self.accept(event.delivery)


class Post:
    """A place where a receiver works, and from which it may be away for a while unless it `stays`."""

    def __init__(
        self, make: Callable[[float], Receiver], address: str, taker: Taker, *, stays: bool, pace: float
    ) -> None:
        self.address, self.taker, self.stays, self.pace = address, taker, stays, pace
        self._make = make
        self.receiver: Receiver | None = None

    def go(self) -> None:
        if self.receiver is None:
            self.receiver = self._make(self.pace)
            self.receiver.start()

    def leave(self) -> None:
        """Detached: a durable subscription stays."""
        if self.receiver is not None:
            self.receiver.stop(detach=True)
            MADE.remove(self.receiver)
            self.receiver = None

    def wait_attached(self) -> None:
        if self.receiver is not None:
            self.receiver.wait_attached()
