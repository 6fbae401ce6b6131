"""One address of the router: who sends to it, who receives from it, and which receiver is next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from services.router.routing.configuration import CLOSEST, MULTICAST
from services.router.routing.sizes import limited

if TYPE_CHECKING:
    from services.router.routing.connections import RouterConnection
    from services.router.routing.links import InLink, OutLink

UNLIMITED = 1 << 30
MANAGEMENT_ELSEWHERE = (
    "amqp:unauthorized-access",
    "this connection carries no management; use a listener for operators (`enmasse status` names its port)",
)
"""Condition and description: what is told where a listener or connector says `management: false`."""
MOST_ASKED = 10
"""Messages that brokers are asked for at least, when a consumer wants to know whether there is one."""
UNANSWERED = 5.0
"""Seconds that a broker has for the answer."""


class Address:
    """`outs` are the local consumers, `ins` the local producers, `subscriber` the router's own consumer of messages.

    `only` is the single consumer of an anycast address; with several, `choose` picks: `ring` is a round of those that
    had the least outstanding when it was made, and is made anew when it is through.
    `temporary`: the router's own, for the life of the link that made it.
    `remotes` is where the routers of a mesh will be that have consumers of this address.
    """

    __slots__ = (
        "asked",
        "at",
        "egress",
        "egress_containers",
        "feeds",
        "from_router",
        "identity",
        "ingress",
        "ingress_containers",
        "ins",
        "key",
        "next_to_hear",
        "only",
        "outs",
        "parked",
        "pins",
        "priority",
        "questions",
        "remotes",
        "ring",
        "share",
        "subscriber",
        "temporary",
        "timed",
        "to_hear",
        "to_router",
        "treatment",
    )

    def __init__(self, identity: int, key: str, treatment: str) -> None:
        self.identity = identity
        self.key = key
        self.treatment = treatment
        self.outs: list[OutLink] = []
        self.ins: dict[InLink, None] = {}
        self.feeds: dict[InLink, None] = {}  # those of them that come from brokers
        self.only: OutLink | None = None
        self.ring: Sequence[OutLink] = ()
        self.at = 0
        self.subscriber: Callable[[RouterConnection | None, Any], None] | None = None
        self.temporary = False
        self.remotes: tuple[str, ...] = ()
        self.parked: tuple[InLink, ...] = ()  # without credit until a consumer has some
        # A consumer that drains an empty queue hears so once the brokers have said it: those that were asked, the
        # consumers that wait for their answers, and those that came later, for whom they will be asked again.
        self.asked: set[InLink] = set()
        self.to_hear: list[OutLink] = []
        self.next_to_hear: list[OutLink] = []
        self.questions = 0
        self.timed = False
        self.pins = 0  # auto-links, live or not, that need this address to exist
        self.priority = -1
        self.share = UNLIMITED  # of a broker's window for one consumer: so much at most it may have outstanding
        # Deliveries of links that are gone; those of living links are counted by the links.
        self.ingress = self.egress = self.ingress_containers = self.egress_containers = 0
        self.to_router = self.from_router = 0

    @property
    def reachable(self) -> bool:
        return bool(self.outs) or self.subscriber is not None

    @property
    def known(self) -> bool:
        """It is there whatever the configuration says of its name."""
        return bool(self.pins or self.subscriber or self.temporary)

    @property
    def unused(self) -> bool:
        return not (self.outs or self.ins or self.pins or self.subscriber)

    def treat_as(self, treatment: str) -> None:
        """Another treatment, for links that are there too."""
        if treatment != self.treatment:
            self.treatment = treatment
            self._changed()
            for link in self.ins:
                self.bind(link)

    def bind(self, link: InLink) -> None:
        """What comes on this link goes where the address says."""
        if self.subscriber is not None:
            forward = link.forward_internal
        elif link.ahead is not None:
            forward = link.forward_behind
        else:
            forward = link.forward_multicast if self.treatment == MULTICAST else link.forward
        link.link.on_delivery = limited(link.link, forward)

    def add_in(self, link: InLink) -> None:
        self.ins[link] = None
        if link.auto is not None:
            self.feeds[link] = None
        self.bind(link)
        if self.reachable:
            link.open_gate()

    def remove_in(self, link: InLink) -> None:
        if link in self.ins:
            del self.ins[link]
            self.feeds.pop(link, None)
            if link.auto is not None:
                self.share = UNLIMITED  # until another broker's window is set
            self.parked = tuple(other for other in self.parked if other is not link)
            if link in self.asked:
                self.answered(link)
            if link.connection.is_container:
                self.ingress_containers += link.received
            self.ingress += link.received

    def add_out(self, link: OutLink) -> None:
        self.outs.append(link)
        self._changed()
        if len(self.outs) == 1:
            self.parked = ()
        if len(self.outs) == 1:
            for producer in self.ins:
                producer.open_gate()
        else:
            for producer in self.feeds:
                producer.resize()

    def remove_out(self, link: OutLink) -> None:
        if link not in self.outs:
            return
        self.outs.remove(link)
        if link.connection.is_container:
            self.egress_containers += link.sent
        self.egress += link.sent
        self._changed()
        if self.reachable:
            for producer in self.feeds:
                producer.resize()
        else:
            for producer in self.ins:
                producer.close_gate()

    def ask(self, out: OutLink) -> bool:
        """`out` has credit, and is to be told when there is nothing for it. False: there is no broker to be asked."""
        if not self.pins or not out.sender.granted:
            return False
        if out not in self.next_to_hear:
            self.next_to_hear.append(out)
        return bool(self.asked) or self._ask()

    def _ask(self) -> bool:
        waiting = [out for out in self.next_to_hear if out in self.outs and out.sender.drain]
        feeds = list(self.feeds) if waiting else []
        self.next_to_hear = []
        if not feeds:
            return False
        self.to_hear = waiting
        self.asked = set(feeds)
        self.questions += 1
        if not self.timed:
            self._time(feeds[0])
        wanted = min(max(out.sender.granted for out in waiting), MOST_ASKED)
        for link in feeds:
            link.ask(wanted)
        return True

    def answered(self, link: InLink) -> None:
        """A broker has given what it had, or is gone."""
        self.asked.discard(link)
        if self.asked:
            return
        heard, self.to_hear = self.to_hear, []
        for out in heard:
            out.say_empty()
        if self.next_to_hear and self._ask():
            return
        for each in self.ins:
            if self.reachable and each not in self.parked:
                each.open_gate()

    def _time(self, link: InLink) -> None:
        """A broker that does not answer must not hold up consumers for ever. One timer at a time."""
        question = self.questions
        self.timed = True

        def late() -> None:
            self.timed = False
            if self.asked and self.questions == question:
                for each in list(self.asked):
                    self.answered(each)
            elif self.asked:
                self._time(link)

        link.connection.router.clock.call_later(UNANSWERED, late)

    def park(self, link: InLink) -> None:
        """No credit for this producer until a consumer has some."""
        if link in self.ins and link not in self.parked:
            self.parked += (link,)
            link.close_gate()

    def unpark(self) -> None:
        """A consumer has credit and nothing waits for it."""
        parked, self.parked = self.parked, ()
        for link in parked:
            link.open_gate()

    def relieve_all(self) -> None:
        """Let consumers with credit take what waits for others."""
        for out in list(self.outs):
            if out.sender.credit > 0 and out.stream is None and not out.queue:
                self.relieve(out)

    def relieve(self, ready: OutLink) -> None:
        """A consumer has credit and nothing to do: it gets what waits for others that have none."""
        if self.treatment == MULTICAST:
            return
        for out in self.outs:
            if out.queue and out.sender.credit <= 0:
                ready.take_from(out)

    def _changed(self) -> None:
        self.only = self.outs[0] if len(self.outs) == 1 else None
        self.ring = ()
        self.at = 0

    def choose(self) -> OutLink | None:
        """The consumer for the next delivery, in turn; it may have run out of credit since the round was made."""
        at = self.at
        ring = self.ring
        if at < len(ring):
            self.at = at + 1
            return ring[at]
        return self.ready()

    def pick(self) -> OutLink | None:
        """The consumer for one delivery, away from the hot path: one that can take it now, if there is any."""
        out = self.only or self.choose()
        if out is None or (out.direct and out.sender.credit > 0):
            return out
        return self.ready()

    def ready(self) -> OutLink | None:
        """Make a new round; its first consumer can take a delivery now, unless none can."""
        outs = self.outs
        if len(outs) < 2:
            return outs[0] if outs else None
        # Who has a whole window outstanding, or its share of a broker's, gets nothing while another has room, however
        # much it asks for.
        share = self.share
        room = outs if self.treatment == CLOSEST else [o for o in outs if _load(o) < min(o.capacity, share)]
        room = room or outs
        ready = [out for out in room if out.sender.credit > 0 and out.stream is None and not out.queue]
        if not ready:  # nobody can take it: it will wait where the least waits
            self.ring = ()
            self.at = 0
            return min(room, key=_load)
        if self.treatment == CLOSEST:
            ring = ready
        else:
            loads = [out.sender.unsettled for out in ready]
            least = min(loads)
            # When much is under way, nearly the least counts as the least, and each gets a few in a row: a round is
            # worth its making, and outcomes come back in ranges.
            limit = least + (least >> 3)
            turns = 1 + (least >> 2) if least > 3 else 1
            ring = [
                out
                for out, load in zip(ready, loads, strict=True)
                if load <= limit
                for _ in range(max(1, min(turns, out.capacity - load, share - load)))
            ]
        self.ring = ring
        self.at = 1
        return ring[0]


def _load(out: OutLink) -> int:
    return out.sender.unsettled + len(out.queue)
