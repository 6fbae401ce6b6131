"""The load of a soak: senders and receivers on python-qpid-proton that write down in the ledger what they see.

Message-ids vary on purpose: none at all, 1, 2, 3 … from several senders at once, text, UUIDs, binary. The properties
`flow` and `number` say which message it is; what its body must be follows from them.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import Any

from proton import Message

from tests.load import MADE, TICK, Attempt, Client, Durable, NumberedSender
from tests.soak.ledger import Flow, Ledger, Taker

WINDOW = 50
"""Messages that a sender has under way."""
CREDIT = 30
SELDOM = 0.3
"""Seconds between two looks at the clock of a receiver that takes what there is: thirty of them would else be busy."""
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
NAMED = (100, 100, 1000, 5000)
"""Large enough for the beginning to say which message it is: to those that see no properties."""


def body(flow: str, number: int) -> bytes:
    """What this message carries, of a size that varies with the number."""
    sizes = {"bulk": LARGE, "deep": HUGE, "turn": NAMED}.get(flow.partition("/")[0], SMALL)
    size = random.Random(f"{flow} {number}").choice(sizes)
    pattern = f"{flow} {number};".encode()
    return (pattern * (size // len(pattern) + 1))[:size]


class Sender(NumberedSender):
    """Sends `rate` messages a second but while it `pauses`."""

    window = WINDOW

    def __init__(
        self, url: str, address: str, ledger: Ledger, flow: Flow, *, ids: str, rate: float,
        pauses: Callable[[], bool],
    ) -> None:  # fmt: skip
        super().__init__(url, address, rate=rate)
        self.ledger, self.flow, self.pauses = ledger, flow, pauses
        self.link_name = f"sender {flow.name}"
        self.id = IDS[ids]

    def describe(self) -> str:
        flow = self.flow
        return f"{super().describe()}, {flow.name}: sent {flow.sent}, accepted {flow.accepted}, again {len(self.again)}"

    def finished(self) -> bool:
        return self._enough and self.flow.accepted == self.flow.sent

    def fresh(self) -> int | None:
        return None if self._enough or self.pauses() else self.ledger.fresh(self.flow)

    def message(self, number: int) -> Message:
        name = self.flow.name
        self.ledger.sends(self.flow, number)
        return Message(
            body=body(name, number), id=self.id(name, number), durable=True, properties={"flow": name, "number": number}
        )

    def was_accepted(self, number: int) -> None:
        self.ledger.accepts(self.flow, number)

    def comes_again(self, number: int, *, in_doubt: bool) -> None:
        if not in_doubt:
            self.ledger.given_back(self.flow, number)


class Receiver(Client):
    """Accepts; if it `returns`, gives some back first; if it `rejects`, sends some to the dead letter; if it takes the
    `dead`, gets what another one has rejected, and nothing else.

    `pace`: it asks for no more than so many a second; 0 for as many as there are.
    """

    def __init__(
        self, url: str, address: str, ledger: Ledger, taker: Taker, seed: int, *, container_id: str = "",
        subscription: str = "", shared: bool = False, returns: bool = False, rejects: bool = False,
        pace: float = 0, dead: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(url, address, container_id=container_id)
        self.dead = dead
        self.ledger, self.taker, self.subscription, self.shared = ledger, taker, subscription, shared
        self.returns, self.rejects, self.pace = returns, rejects, pace
        self.tick = TICK if pace else SELDOM
        self.random = random.Random(seed)
        self.came = 0

    def describe(self) -> str:
        return f"{super().describe()}, came {self.came}"

    def attempt(self) -> Attempt:
        return _Receiving(self)


class _Receiving(Attempt):
    def __init__(self, owner: Receiver) -> None:
        super().__init__(owner, prefetch=0, auto_accept=False)
        self.receiver = owner
        self._asked = time.monotonic()

    def on_link_opened(self, event: Any) -> None:
        super().on_link_opened(event)
        self.tick()

    def tick(self) -> None:
        self.ask(1)

    def ask(self, least: int) -> None:
        """Top the credit up by at least so many."""
        more = CREDIT - self.link.credit
        if pace := self.receiver.pace:
            more = min(more, int((time.monotonic() - self._asked) * pace))
        if more >= least:
            self.link.flow(more)
            self._asked = time.monotonic()

    def attach(self, container: Any) -> Any:
        options = Durable(shared=self.receiver.shared) if self.receiver.subscription else None
        name = self.receiver.subscription or f"receiver {id(self.receiver)}"
        return container.create_receiver(self.connection, self.owner.address, name=name, options=options)

    def on_message(self, event: Any) -> None:
        receiver, message = self.receiver, event.message
        if self.connection is None:  # we have closed it: no answer of ours would get out any more
            return
        receiver.came += 1
        if not receiver.pace:
            self.ask(CREDIT // 2)
        choice = receiver.random.random()
        if receiver.returns and choice < 0.06:
            self.release(event.delivery, delivered=choice < 0.03)
            return
        try:
            flow, number = named(message)
        except (TypeError, KeyError, ValueError):
            receiver.ledger.broken(f"{receiver.address}: a message that no sender made: {message}")
        else:
            if receiver.rejects and choice > 0.97:
                receiver.taker.rejected.add((flow, number))
                self.reject(event.delivery)
                return
            if receiver.dead and (flow, number) not in receiver.taker.rejected:
                receiver.ledger.broken(f"{receiver.address}: {flow} {number} is a dead letter that nobody has rejected")
            if message.properties and bytes(message.body) != body(flow, number):
                receiver.ledger.broken(f"{receiver.address}: the body of {flow} {number} was changed")
            receiver.ledger.received(receiver.taker, flow, number)
        self.accept(event.delivery)


def named(message: Message) -> tuple[str, int]:
    """Flow and number of a message; of an MQTT client's, which has no properties, its body has them. Raises TypeError,
    KeyError, ValueError."""
    if message.properties:
        return str(message.properties["flow"]), int(message.properties["number"])
    flow, _, number = bytes(message.body).decode().rpartition(" ")
    return flow, int(number)


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
