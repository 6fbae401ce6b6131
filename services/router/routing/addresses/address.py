"""One address of the router: its producers, its destinations, and the choice of the next destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enmasse.clock import Clock
from enmasse.model.names import MANAGEMENT
from services.router.routing.address_text import ROUTER
from services.router.routing.addresses.choice import UNLIMITED, Choice, ChoiceLimits
from services.router.routing.addresses.destination import Consumer, Destination, Holder
from services.router.routing.addresses.producer import Feed, Producer
from services.router.routing.configuration import MULTICAST
from services.router.routing.connection import RouterConnection

WINDOWS = 16
"""Most windows of credit that a broker gets for one queue, for any number of consumers, in addition to their unsettled
deliveries: this bounds the messages that wait in the router's memory."""
MOST_ASKED = 10
"""Least number of messages that are requested from brokers when a consumer drains."""
UNANSWERED = 5.0
"""Seconds within which a broker must answer."""


class EmptyChecks:
    """Answers consumers that drain a queue when its brokers have sent their messages.

    `asked`: links of brokers whose answers are awaited for the consumers in `waiting`. Consumers that start to drain
    meanwhile are in `next`: the brokers are asked again for them.
    """

    __slots__ = ("_address", "_clock", "_next", "_rounds", "_timed", "_waiting", "asked")

    def __init__(self, address: RoutedAddress, clock: Clock) -> None:
        self.asked: set[Feed] = set()
        self._address = address
        self._clock = clock
        self._waiting: list[Consumer] = []
        self._next: list[Consumer] = []
        self._rounds = 0
        self._timed = False

    def add(self, out: Consumer) -> bool:
        """Add a draining consumer. Return False if the queue has no broker to ask."""
        if out not in self._next:
            self._next.append(out)
        return bool(self.asked) or self._ask()

    def _ask(self) -> bool:
        address = self._address
        waiting = [out for out in self._next if out in address.outs and out.draining]
        feeds = list(address.feeds) if waiting else []
        self._next = []
        if not feeds:
            return False
        self._waiting = waiting
        self.asked = set(feeds)
        self._rounds += 1
        if not self._timed:
            self._time()
        wanted = min(max(out.wanted for out in waiting), MOST_ASKED)
        for feed in feeds:
            feed.ask(wanted)
        return True

    def answered(self, feed: Feed) -> None:
        """Record that a broker has sent its messages, or was lost."""
        self.asked.discard(feed)
        if self.asked:
            return
        waiting, self._waiting = self._waiting, []
        for out in waiting:
            out.answer_drain()
        if self._next and self._ask():
            return
        self._address.open_gates()

    def _time(self) -> None:
        """Start the timer that stops waiting for silent brokers. One timer at a time."""
        this_round = self._rounds
        self._timed = True

        def late() -> None:
            self._timed = False
            if self.asked and self._rounds == this_round:
                for each in list(self.asked):
                    self.answered(each)
            elif self.asked:
                self._time()

        self._clock.call_later(UNANSWERED, late)


class RoutedAddress:
    """`outs` are the destinations, `stores` those of them that are brokers, `holders` those for which deliveries wait;
    `ins` are the producers, `feeds` those of them that come from brokers; `subscriber` is the router's own consumer of
    messages.

    A producer sends to those in a `Choice`: `everyone`, or `local`, which leaves out the `neighbours` (links to other
    routers). As long as there are no neighbours, both are one.
    `temporary`: the router's own, for the life of the link that made it.
    """

    __slots__ = (
        "_clock",
        "_empty_checks",
        "egress",
        "egress_containers",
        "everyone",
        "feeds",
        "from_router",
        "holders",
        "identity",
        "ingress",
        "ingress_containers",
        "ins",
        "key",
        "limits",
        "local",
        "neighbours",
        "on_change",
        "outs",
        "parked",
        "pins",
        "priority",
        "relayed",
        "stores",
        "subscriber",
        "temporary",
        "transit",
    )

    def __init__(self, identity: int, key: str, treatment: str, clock: Clock) -> None:
        self.identity = identity
        self.key = key
        self.limits = ChoiceLimits(treatment)
        self.everyone = self.local = Choice(self.limits)
        self.outs = self.everyone.outs
        self.neighbours: dict[Destination, None] = {}
        self.on_change: Callable[[RoutedAddress], None] | None = None  # of destinations here, and links to brokers
        self.stores: dict[Destination, None] = {}
        self.holders: dict[Holder, None] = {}
        self.ins: dict[Producer, None] = {}
        self.feeds: dict[Feed, None] = {}
        self.subscriber: Callable[[RouterConnection | None, Any], None] | None = None
        self.temporary = False
        self.parked: tuple[Producer, ...] = ()  # producers without credit until a destination has some
        self.pins = 0  # number of auto-links, live or not, that need this address
        self.priority = -1
        # Deliveries of closed links; live links count their own.
        self.ingress = self.egress = self.transit = self.ingress_containers = self.egress_containers = 0
        self.from_router = 0
        self.relayed = 0  # of anonymous senders, live or closed
        self._clock = clock
        self._empty_checks: EmptyChecks | None = None

    @property
    def treatment(self) -> str:
        """Distribution of deliveries over the destinations."""
        return self.limits.treatment

    @property
    def reachable(self) -> bool:
        """True if messages can be delivered: there is a destination, or the router itself consumes them."""
        return bool(self.outs) or self.subscriber is not None

    @property
    def windows(self) -> int:
        """Windows of credit that the destinations have together."""
        return sum(out.windows for out in self.outs)

    @property
    def known(self) -> bool:
        """True if the address exists independently of the configuration."""
        return bool(self.pins or self.subscriber or self.temporary)

    @property
    def is_management(self) -> bool:
        """True for the router's own node, and the management of another router."""
        return self.subscriber is not None or (self.key[0] == ROUTER and self.key.endswith(f"/{MANAGEMENT}"))

    @property
    def unused(self) -> bool:
        """True if no link, auto-link or consumer of the router itself needs the address; it may be removed."""
        return not (self.outs or self.ins or self.pins or self.subscriber)

    def treat_as(self, treatment: str) -> None:
        """Change the treatment, also for existing links."""
        if treatment != self.treatment:
            self.limits.treatment = treatment
            for choice in self._choices():
                choice.changed()
            for producer in self.ins:
                producer.bind()
            self._note_change()

    def _note_change(self) -> None:
        if self.on_change is not None:
            self.on_change(self)

    # Producers

    def add_in(self, producer: Producer) -> None:
        """Add a producer; it gets credit if the address has a destination for it."""
        self.ins[producer] = None
        producer.bind()
        if self._reaches(producer):
            producer.open_gate()

    def add_feed(self, feed: Feed) -> None:
        """Add a link from a broker as a producer."""
        self.feeds[feed] = None
        self.add_in(feed)
        self._note_change()

    def remove_in(self, producer: Producer) -> None:
        """Remove a producer, if present, and keep the count of its deliveries."""
        if producer in self.ins:
            del self.ins[producer]
            self.parked = tuple(other for other in self.parked if other is not producer)
            if producer.connection.is_container:
                self.ingress_containers += producer.received
            self.ingress += producer.received

    def remove_feed(self, feed: Feed) -> None:
        """Remove a link from a broker, if present; its answer to a drain is no longer awaited."""
        if feed in self.feeds:
            del self.feeds[feed]
            self.limits.share = UNLIMITED  # until the window of another broker is set
            self.remove_in(feed)
            if self.is_asked(feed):
                self.answered(feed)
            self._note_change()

    def open_gates(self) -> None:
        """Grant producers credit if there is a destination."""
        for producer in self.ins:
            if producer not in self.parked and self._reaches(producer):
                producer.open_gate()

    def _reaches(self, producer: Producer) -> bool:
        return self.subscriber is not None or (producer.choice is not None and bool(producer.choice.outs))

    # Destinations

    def add_out(self, out: Destination) -> None:
        """Add a destination; with the first one, producers get credit."""
        self._add(out, self._choices())
        self._note_change()

    def add_neighbour(self, out: Destination) -> None:
        """Add a link to another router that has receivers; messages from other routers are not sent there."""
        if self.local is self.everyone:
            self.local = Choice(self.limits, self.outs)
            self.everyone.nearer = self.local.outs
            for producer in self.ins:
                producer.bind()
        self.neighbours[out] = None
        self._add(out, [self.everyone])

    def _choices(self) -> list[Choice]:
        return [self.everyone] if self.local is self.everyone else [self.everyone, self.local]

    def _add(self, out: Destination, choices: list[Choice]) -> None:
        for choice in choices:
            choice.add(out)
        if len(self.outs) == 1:
            self.parked = ()
        else:
            for feed in self.feeds:
                feed.resize()
        for choice in choices:
            if len(choice.outs) == 1:
                for producer in self.ins:
                    if producer.choice is choice:
                        producer.open_gate()

    def add_store(self, out: Destination) -> None:
        """Add a destination that stores messages: a broker."""
        self.stores[out] = None
        self.add_out(out)

    def remove_out(self, out: Destination) -> None:
        """Remove a destination, if present. Producers without another one lose their credit."""
        if out not in self.outs:
            return
        choices = self._choices()
        local = out not in self.neighbours
        if not local:
            del self.neighbours[out]
            choices = [self.everyone]
        for choice in choices:
            choice.remove(out)
        self.stores.pop(out, None)
        if out.connection.is_container:
            self.egress_containers += out.sent
        if local:
            self.egress += out.sent
        else:
            self.transit += out.sent
        if self.reachable:
            for feed in self.feeds:
                feed.resize()
        for choice in choices:
            if not choice.outs and self.subscriber is None:
                for producer in self.ins:
                    if producer.choice is choice:
                        producer.close_gate()
        if local:
            self._note_change()

    def waiting(self) -> int | None:
        """Return how many messages wait for credit at the brokers, as they stated last, and here; None if a broker has
        not stated it, or no broker is connected. Brokers are asked again, so a consumer that asks again learns it."""
        known = {(feed.connection.identity, feed.node): feed.ask_waiting() for feed in self.feeds}  # of each queue once
        numbers = [number for number in known.values() if number is not None]
        if not known or len(numbers) < len(known):
            return None
        return sum(numbers) + sum(holder.undelivered for holder in self.holders)

    # Drains

    def ask(self, out: Consumer) -> bool:
        """Handle a drain of `out`, which has credit. Return False if there is no broker to ask."""
        if not self.pins or not out.wanted:
            return False
        if self._empty_checks is None:
            self._empty_checks = EmptyChecks(self, self._clock)
        return self._empty_checks.add(out)

    def is_asked(self, feed: Feed) -> bool:
        """Return True if a broker's answer on this link is awaited."""
        return self._empty_checks is not None and feed in self._empty_checks.asked

    def answered(self, feed: Feed) -> None:
        """Record that the broker has sent its messages."""
        if self._empty_checks is not None:
            self._empty_checks.answered(feed)

    def park(self, producer: Producer) -> None:
        """Withhold credit from this producer until a consumer has some."""
        if producer in self.ins and producer not in self.parked:
            self.parked += (producer,)
            producer.close_gate()

    def unpark(self) -> None:
        """Give parked producers credit, because a consumer has credit and no waiting messages."""
        parked, self.parked = self.parked, ()
        for producer in parked:
            if self._reaches(producer):
                producer.open_gate()

    def relieve_all(self) -> None:
        """Let destinations with credit take deliveries that wait for others."""
        for out in list(self.outs):
            if out.ready:
                self.relieve(out)

    def relieve(self, ready: Destination) -> None:
        """Give an idle destination with credit the deliveries that wait for destinations without credit. Not for a
        neighbour, from which the deliveries may have come."""
        if self.treatment == MULTICAST or ready in self.neighbours:
            return
        for holder in list(self.holders):
            holder.hand_over(ready)
