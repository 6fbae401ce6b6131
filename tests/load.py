"""Acknowledged load with exact counts: numbered messages, sent and received by python-qpid-proton.

`Client`, `Attempt` and the numbered senders are the base of the soak's load too (tests/soak/load.py).
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import Any

from proton import Delivery, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, DurableSubscription

from enmasse.testing import wait_for
from tests.kit.waiting import DEADLINE

LIMIT = DEADLINE
"""Seconds after which anything is given up; on a slow machine it takes a tenth of that."""
WINDOW = 20
"""Messages that a producer has under way."""
RATE = 50.0
"""Messages a second of a producer that is there to be disturbed: as many as it can would cost what the test does not
ask for."""
TICK = 0.05
"""Seconds between two looks at the clock."""
CREDIT = 50
"""What a consumer asks for ahead."""
ROUTER_WINDOW = 250
"""Deliveries that a broker may have under way to a router (its link capacity): what the loss of either redelivers."""


class Durable(DurableSubscription):
    """A durable subscription, which stays when the link is detached: known by container-id and link name, if it is
    `shared` by the link name."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared

    def apply(self, receiver: Any) -> None:
        super().apply(receiver)
        receiver.source.capabilities.put_object(symbol("shared" if self.shared else "topic"))


MADE: list[Client] = []
"""Every client that a test has made: whatever happens none may outlive it."""


class Client(threading.Thread):
    """One connection with one link, made again whenever it is lost. `disturbances`: what a user would have noticed."""

    tick = TICK
    """Seconds between two looks at the clock."""

    def __init__(self, url: str, address: str, *, container_id: str = "") -> None:
        super().__init__(daemon=True)
        self.url, self.address, self.container_id = url, address, container_id
        self.disturbances: list[str] = []
        self.attached = 0
        """How often the link was attached."""
        self.closing = False
        """Whether the link is closed at the end, which ends a durable subscription."""
        self._end = threading.Event()
        self._failed: list[BaseException] = []
        MADE.append(self)

    def attempt(self) -> Attempt:
        raise NotImplementedError

    def finished(self) -> bool:
        """Nothing is left to do."""
        return False

    def ended(self) -> bool:
        """The end was asked for, or has come."""
        return self._end.is_set() or self.finished()

    def run(self) -> None:
        try:
            while not self.ended():
                container = Container(self.attempt())
                if self.container_id:
                    container.container_id = self.container_id
                container.run()
                self._end.wait(0 if self.ended() else 0.05)
        except BaseException as error:  # a test must not wait for a thread that is no more
            self._failed.append(error)

    def wait_attached(self) -> None:
        wait_for(f"a link to {self.address}", lambda: self.attached, LIMIT)

    def wait_end(self) -> None:
        """Wait until it has done all it had to do."""
        self.join(LIMIT)
        self.check()
        assert not self.is_alive(), f"{self.address}: not finished"

    def stop(self, *, detach: bool = False) -> None:
        """Close link and connection, and wait until that is done. `detach`: a durable subscription shall stay."""
        self.closing = not detach
        self._end.set()
        self.join(LIMIT)
        assert not self.is_alive(), f"{self.address}: the client does not end"
        self.check()

    def stop_trying(self) -> None:
        """No further attempt; what is under way ends as it ends."""
        self._end.set()

    def abandon(self) -> None:
        """End it, however it is doing."""
        self._end.set()
        if self.ident is not None:
            self.join(LIMIT)

    def check(self) -> None:
        """Raises what broke the client itself."""
        if self._failed:
            raise self._failed[0]

    def describe(self) -> str:
        """How it is doing, for whoever reads why a test has failed."""
        many = len(self.disturbances)
        return f"{type(self).__name__} {self.address}: attached {self.attached}, {many} times {self.disturbances[-3:]}"

    def disturbed(self, what: str) -> None:
        if not self.ended():
            self.disturbances.append(what)


class Attempt(MessagingHandler):
    """One connection of a Client."""

    def __init__(self, owner: Client, **options: Any) -> None:
        super().__init__(**options)
        self.owner = owner
        self.connection: Any = None
        self.link: Any = None

    def on_start(self, event: Any) -> None:
        # A heartbeat, so that a peer that is no more is noticed even where nobody closes the socket for it: within
        # half the limit, and not because either of us has to wait for the processor.
        self.connection = event.container.connect(self.owner.url, reconnect=False, heartbeat=LIMIT / 2)
        self.link = self.attach(event.container)
        event.container.schedule(self.owner.tick, self)

    def attach(self, container: Any) -> Any:
        raise NotImplementedError

    def on_timer_task(self, event: Any) -> None:
        if self.connection is None:
            return
        if self.owner.ended():
            self.close()
        else:
            self.tick()
            event.container.schedule(self.owner.tick, self)

    def tick(self) -> None:
        """Twenty times a second, while it is connected."""

    def close(self) -> None:
        """End this attempt."""
        if self.connection is not None:
            if self.owner.closing:
                self.link.close()
            self.connection.close()
        self.gone()

    def gone(self) -> None:
        """The connection is lost, or will be in a moment. No timer keeps the container running then."""
        self.forget()
        self.connection = None

    def on_link_opened(self, event: Any) -> None:
        self.owner.attached += 1

    def on_link_error(self, event: Any) -> None:
        self.lost(f"link: {event.link.remote_condition}")

    def on_link_closed(self, event: Any) -> None:
        if not event.link.remote_condition:
            self.lost("link closed")

    def on_link_remote_detach(self, event: Any) -> None:
        self.lost(f"link detached: {event.link.remote_condition}")

    def on_connection_error(self, event: Any) -> None:
        self.lost(f"connection: {event.connection.remote_condition}")

    def on_connection_closing(self, event: Any) -> None:
        self.lost("connection closed")

    def on_transport_error(self, event: Any) -> None:
        self.owner.disturbed(f"transport: {event.transport.condition}")
        self.gone()

    def on_disconnected(self, event: Any) -> None:
        self.owner.disturbed("disconnected")
        self.gone()

    def lost(self, what: str) -> None:
        """The peer has taken the link or the connection away."""
        if self.connection is not None:
            self.owner.disturbed(what)
            self.close()

    def forget(self) -> None:
        """What was under way on the link will never be answered."""


class NumberedSender(Client):
    """Sends numbered messages until `enough()`; what is not accepted, or never answered, is sent again."""

    window = WINDOW
    """Messages under way."""

    def __init__(self, url: str, address: str, *, rate: float | None) -> None:
        """rate: messages a second; None: as many as outcomes come for."""
        super().__init__(url, address)
        self.rate = rate
        self.link_name = f"producer of {address}"
        self.again: deque[int] = deque()
        self.outcomes = 0
        """How many answers have come."""
        self._allowed = 0.0
        self._then = time.monotonic()
        self._enough = False

    def enough(self) -> None:
        """Nothing new, and to the end once everything that was sent is accepted."""
        self._enough = True

    def fresh(self) -> int | None:
        """The number of a new message; None: there is none now."""
        raise NotImplementedError

    def message(self, number: int) -> Message:
        raise NotImplementedError

    def was_accepted(self, number: int) -> None:
        """The outcome of a message."""

    def comes_again(self, number: int, *, in_doubt: bool) -> None:
        """It will be sent again; in_doubt: the copy that was sent may be somewhere."""

    def next(self) -> int | None:
        if self.rate is not None:
            now = time.monotonic()
            self._allowed = min(self.window, self._allowed + (now - self._then) * self.rate)
            self._then = now
            if self._allowed < 1:
                return None
        number = self.again.popleft() if self.again else self.fresh()
        if number is not None:
            self._allowed -= 1
        return number

    def attempt(self) -> Attempt:
        return _Sending(self)


class _Sending(Attempt):
    def __init__(self, owner: NumberedSender) -> None:
        super().__init__(owner)
        self.sender = owner
        self.under_way: set[int] = set()

    def attach(self, container: Any) -> Any:
        return container.create_sender(self.connection, self.owner.address, name=self.sender.link_name)

    def on_sendable(self, event: Any) -> None:
        self.tick()

    def tick(self) -> None:
        sender = self.sender
        while (
            self.connection is not None
            and self.link.credit > 0
            and len(self.under_way) < sender.window
            and not sender.ended()
        ):
            number = sender.next()
            if number is None:
                return
            self.under_way.add(number)
            self.link.send(sender.message(number), tag=str(number))

    def on_accepted(self, event: Any) -> None:
        self.sender.was_accepted(self._done(event))

    def on_rejected(self, event: Any) -> None:
        self._once_more(event, "rejected", in_doubt=False)

    def on_released(self, event: Any) -> None:
        modified = event.delivery.remote_state == Delivery.MODIFIED
        self._once_more(event, "modified" if modified else "released", in_doubt=modified)

    def _done(self, event: Any) -> int:
        number = int(event.delivery.tag)
        self.under_way.discard(number)
        self.sender.outcomes += 1
        return number

    def _once_more(self, event: Any, outcome: str, *, in_doubt: bool) -> None:
        self.sender.disturbed(outcome)
        number = self._done(event)
        self.sender.again.append(number)
        self.sender.comes_again(number, in_doubt=in_doubt)

    def on_settled(self, event: Any) -> None:
        if int(event.delivery.tag) in self.under_way:
            self._once_more(event, "settled without outcome", in_doubt=True)
        if self.sender.rate is None:
            self.tick()
        if self.sender.finished():
            self.close()

    def forget(self) -> None:
        for number in sorted(self.under_way):
            self.sender.again.append(number)
            self.sender.comes_again(number, in_doubt=True)
        self.under_way = set()


class Producer(NumberedSender):
    """Sends 0, 1, 2 … until it is enough."""

    def __init__(self, url: str, address: str, count: int | None = None, *, rate: float | None = None) -> None:
        super().__init__(url, address, rate=rate)
        self.count = count
        self.sent = 0
        """Numbers below this one have been sent at least once."""
        self.accepted: set[int] = set()
        self.in_doubt: set[int] = set()
        """Sent again although the first copy may have arrived: never answered, or modified."""

    def describe(self) -> str:
        counts = (
            f"sent {self.sent}, accepted {len(self.accepted)}, in doubt {len(self.in_doubt)}, again {len(self.again)}"
        )
        return f"{super().describe()}, {counts}"

    def wait_accepted(self, more: int) -> None:
        """Wait until so many more are accepted than now."""
        count = len(self.accepted) + more
        wait_for(f"{count} accepted for {self.address}", lambda: len(self.accepted) >= count, LIMIT)

    def finished(self) -> bool:
        return (self._enough or self.sent == self.count) and len(self.accepted) == self.sent

    def fresh(self) -> int | None:
        if self._enough or self.sent == self.count:
            return None
        self.sent += 1
        return self.sent - 1

    def message(self, number: int) -> Message:
        return Message(body=number, id=str(number), durable=True)

    def was_accepted(self, number: int) -> None:
        self.accepted.add(number)

    def comes_again(self, number: int, *, in_doubt: bool) -> None:
        if in_doubt:
            self.in_doubt.add(number)


class Consumer(Client):
    """Receives and accepts. `subscription`: the name of a durable one (with `container_id`), which others may share."""

    def __init__(
        self, url: str, address: str, *, container_id: str = "", subscription: str = "", shared: bool = False
    ) -> None:
        super().__init__(url, address, container_id=container_id)
        self.subscription = subscription
        self.shared = shared
        self.came: list[int] = []
        self.seen: Counter[int] = Counter()

    def attempt(self) -> Attempt:
        return _Receiving(self)

    def take(self, body: Any) -> None:
        """A message has come."""
        number = int(bytes(body)) if isinstance(body, memoryview) else body  # as text, from an MQTT client
        self.came.append(number)
        self.seen[number] += 1

    def describe(self) -> str:
        return f"{super().describe()}, came {len(self.came)}, different {len(self.seen)}"

    def wait_all(self, producer: Producer) -> None:
        """Wait until everything that the producer has sent has come."""
        wait_for(f"everything from {self.address}", lambda: len(self.seen) >= producer.sent, LIMIT)

    @property
    def doubles(self) -> int:
        """How many copies came beyond the first ones."""
        return len(self.came) - len(self.seen)


class _Receiving(Attempt):
    def __init__(self, owner: Consumer) -> None:
        super().__init__(owner, prefetch=CREDIT)
        self.consumer = owner

    def attach(self, container: Any) -> Any:
        name = self.consumer.subscription
        options = Durable(shared=self.consumer.shared) if name else None
        return container.create_receiver(
            self.connection, self.owner.address, name=name or f"consumer of {self.owner.address}", options=options
        )

    def on_message(self, event: Any) -> None:
        message = event.message  # its body is of no use without it
        self.consumer.take(message.body)


def send(url: str, address: str, count: int) -> None:
    """So many messages, each accepted at once."""
    producer = Producer(url, address, count)
    producer.start()
    producer.wait_end()
    assert producer.accepted == set(range(count)) and not producer.disturbances


def receive(url: str, address: str, count: int, **options: Any) -> list[int]:
    """What comes, until so many have come."""
    consumer = Consumer(url, address, **options)
    consumer.start()
    wait_for(f"{count} messages from {address}", lambda: len(consumer.came) >= count, LIMIT)
    consumer.stop()
    return consumer.came


def subscribe(url: str, address: str, container_id: str) -> None:
    """A durable subscription, left at once; `receive` with the same container-id and subscription="durable" is back."""
    consumer = Consumer(url, address, container_id=container_id, subscription="durable")
    consumer.start()
    consumer.wait_attached()
    consumer.stop(detach=True)
