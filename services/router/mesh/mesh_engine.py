"""One router's part in the mesh: control messages and times come in, actions go out.

    engine.link_opened(link, cost, now), engine.link_closed(link, now)      connections with an open control link
    engine.received(link, payload, now)                                     bytes of a control message
    engine.arrived(link, now)                                               other bytes
    engine.add_address(key, treatment), engine.remove_address(key)          addresses with receivers here
    engine.tick(now)                                                        several times a second

`now` is in seconds, by any clock that never goes back. Calls return the actions that they cause, in order. `link` is a
number that the caller gives each connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from services.router.mesh.announcements import AddressChange, Addresses, OwnAddresses
from services.router.mesh.control_messages import (
    EVERY_ROUTER,
    MAX_ROUTERS,
    NEIGHBOUR,
    AddressRequest,
    AddressUpdate,
    Advertisement,
    ControlMessage,
    Envelope,
    Hello,
    InvalidControl,
    LinkStateRequest,
    LinkStateUpdate,
    NewerVersion,
    Treatment,
    decode,
)
from services.router.mesh.known_routers import KnownRouter, KnownRouters, News
from services.router.mesh.neighbours import HELLO_SECONDS, DuplicateRouter, NeighbourRefused, Neighbours
from services.router.mesh.topology import Topology

ADVERTISE_SECONDS: Final = 30.0
FLUX_ADVERTISE_SECONDS: Final = 4.0
"""Intervals of advertisements, usually and after a change of the topology."""
FLUX_SECONDS: Final = 8.0
LONGEST_TICK: Final = 0.5
"""Most seconds between two ticks that count as silence of neighbours. If more pass, this router was stopped or busy,
and what neighbours have sent meanwhile is not read yet."""
PASS_ON_SECONDS: Final = 0.5
"""Time within which an advertisement that arrives again, by another way, or an older one is not passed on."""
NOTED_ROUTERS: Final = MAX_ROUTERS
"""Most routers of which a newer version, or a duplicate, is noted."""


class MeshEvent(Enum):
    """Conditions to report to operators."""

    NEIGHBOUR_FOUND = "neighbour-found"
    NEIGHBOUR_LOST = "neighbour-lost"
    NEIGHBOUR_LEFT = "neighbour-left"
    ROUTER_RESTARTED = "router-restarted"
    DUPLICATE_ID = "duplicate-id"
    NEIGHBOUR_REFUSED = "neighbour-refused"
    MALFORMED = "malformed"
    NEWER_VERSION = "newer-version"
    TOO_MANY = "too-many"


@dataclass(frozen=True, slots=True)
class SendControl:
    """Send a control message on a link."""

    link: int
    message: Envelope


@dataclass(frozen=True, slots=True)
class RefuseLink:
    """Close a connection: the router at its other end cannot be a neighbour."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class DropLink:
    """Close a connection at once, as a broken one: the router at its other end is silent."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class AddressGained:
    """A reachable router has receivers of an address, or treats it otherwise than before."""

    key: str
    router: str
    treatment: Treatment | None


@dataclass(frozen=True, slots=True)
class AddressLost:
    """A router has no receivers of an address any longer, or is not reachable."""

    key: str
    router: str


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """`MeshEngine.topology` is a new one."""


@dataclass(frozen=True, slots=True)
class MeshNotice:
    """Something to log. `text`: what happened, for people."""

    event: MeshEvent
    router: str
    text: str


Action = SendControl | RefuseLink | DropLink | AddressGained | AddressLost | RoutesChanged | MeshNotice


class MeshEngine:
    """The router `own` in the mesh. `instance` is the time of its start in whole seconds. `first`: where its numbers
    begin; a random one tells starts within the same second apart."""

    def __init__(self, own: str, instance: int, now: float, first: int = 0) -> None:
        self.own = own
        self.instance = instance
        self.neighbours = Neighbours(own, instance)
        self.routers = KnownRouters(own)
        self.addresses = OwnAddresses(first)
        self.topology = Topology(own, {})
        self.ls_seq = first
        self._peers: dict[str, int] = {}
        self._in_order = False
        self._shown: dict[str, Addresses] = {}
        self._actions: list[Action] = []
        self._recompute = False
        self._advertise = False
        self._changed = float("-inf")
        self._hello_sent = float("-inf")
        self._ticked = now
        self._listened = 0.0
        self._advertised = now
        self._noted: set[tuple[MeshEvent, str]] = set()
        self._noted_links: set[int] = set()

    # Inputs

    def link_opened(self, link: int, cost: int, now: float) -> list[Action]:
        """Add a connection whose control links are open."""
        self.neighbours.add(link, cost)
        self._send_hello(link, now)
        return self._taken()

    def link_closed(self, link: int, now: float, *, in_order: bool = False) -> list[Action]:
        """Remove a connection: a neighbour is lost with it at once. `in_order`: one of both sides has ended it as
        planned."""
        self.neighbours.remove(link)
        self._noted_links.discard(link)
        self._in_order = in_order
        found = self.tick(now)
        self._in_order = False
        return found

    def add_address(self, key: str, treatment: Treatment) -> None:
        """Announce an address that has a receiver here, with the next tick."""
        self.addresses.add(key, treatment)

    def remove_address(self, key: str) -> None:
        """Withdraw an address whose last receiver here is gone, with the next tick."""
        self.addresses.remove(key)

    def received(self, link: int, payload: bytes, now: float) -> list[Action]:
        """Handle a control message. One that is malformed has no effect, and is noted once for each connection."""
        try:
            message = decode(payload)
        except NewerVersion as error:
            self._note(MeshEvent.NEWER_VERSION, error.router, str(error))
        except InvalidControl as error:
            self._note_malformed(link, str(error))
        else:
            return self.take(link, message, now)
        return self._taken()

    def take(self, link: int, envelope: Envelope, now: float) -> list[Action]:
        """Handle a decoded control message."""
        message = envelope.message
        neighbour = self.neighbours.router_of(link)
        if isinstance(message, Hello):
            if len(envelope.trace) == 1:
                self._hello(link, message, now)
        elif self.own in envelope.trace:
            self._own_message(message)
        elif neighbour and envelope.trace[-1] != neighbour:
            self._note_malformed(link, f"{message.opcode} from {neighbour} has passed {envelope.trace[-1]} last")
        elif envelope.to == self.own:
            self._handle(link, message, now)
        elif envelope.to == EVERY_ROUTER:
            self._spread(link, envelope, now)
            self._handle(link, message, now)
        else:
            self._pass_on(envelope)
        return self._taken()

    def arrived(self, link: int, now: float) -> None:
        """Note that something has arrived on a connection since the last tick."""
        self.neighbours.arrived(link, self._listened_until(now))

    def tick(self, now: float) -> list[Action]:
        """Do what is due: expiry, the topology, requests, announcements."""
        self._listened, self._ticked = self._listened_until(now), now
        for link, router in self.neighbours.expire(self._listened):
            self._actions.append(DropLink(link, f"router {router} is silent: its connection is closed"))
        for known in self.routers.expire(self._peers, now):
            self._withdraw(known.id)
            self._recompute = True
        if self._check_peers():
            self._flood(Envelope(EVERY_ROUTER, self._link_state(), (self.own,)))
        if self._recompute:
            self._compute(now)
        for known in self.routers.lacking():
            self._request(known, now)
        update = self.addresses.changes(self.own)
        if update is not None:  # before the advertisement of its number, or each router would ask for all addresses
            self._multicast(Envelope(EVERY_ROUTER, update, (self.own,)))
            self._advertise = True
        interval = FLUX_ADVERTISE_SECONDS if now - self._changed <= FLUX_SECONDS else ADVERTISE_SECONDS
        if self._advertise or now - self._advertised >= interval:
            self._send_advertisement(now)
        if now - self._hello_sent >= HELLO_SECONDS:
            self._hello_sent = now
            for link in self.neighbours.links():
                self._send_hello(link, now)
        return self._taken()

    # Results

    def next_link(self, router: str) -> int | None:
        """Return the connection by which a router is reached; None if it is not reachable."""
        hop = self.topology.next_hops.get(router, router)
        return self.neighbours.link_of(hop)

    def addresses_of(self, router: str) -> Addresses:
        """Return the addresses with receivers at a reachable router."""
        return self._shown.get(router, {})

    # Neighbours and paths

    def _listened_until(self, now: float) -> float:
        """Return the seconds for which this router has read its connections."""
        return self._listened + min(now - self._ticked, LONGEST_TICK)

    def _hello(self, link: int, message: Hello, now: float) -> None:
        try:
            found = self.neighbours.hello(link, message, self._listened_until(now))
        except NeighbourRefused as error:
            duplicate = isinstance(error, DuplicateRouter)
            event = MeshEvent.DUPLICATE_ID if duplicate else MeshEvent.NEIGHBOUR_REFUSED
            self._actions += (MeshNotice(event, message.router, str(error)), RefuseLink(link, str(error)))
            return
        if not found:
            return
        known = self._learn(message.router, now)
        if known is None:
            self._actions.append(RefuseLink(link, _too_many(message.router)))
        elif known.started(message.instance, now):
            self._restarted(known)

    def _check_peers(self) -> bool:
        """Bring the own link state up to date. Return True if it has changed."""
        costs = self.neighbours.costs()
        if costs == self._peers:
            return False
        gone = MeshEvent.NEIGHBOUR_LEFT if self._in_order else MeshEvent.NEIGHBOUR_LOST
        for router in self._peers.keys() - costs.keys():
            self._actions.append(MeshNotice(gone, router, f"router {router} is no neighbour now"))
        for router in costs.keys() - self._peers.keys():
            text = f"router {router} is a neighbour, cost {costs[router]}"
            self._actions.append(MeshNotice(MeshEvent.NEIGHBOUR_FOUND, router, text))
            self._introduce(router)
        self._peers = costs
        self.ls_seq += 1
        self._advertise = self._recompute = True
        return True

    def _introduce(self, neighbour: str) -> None:
        """Send a new neighbour the link states of the other routers, so that it need not ask each of them."""
        for known in self.routers:
            if known.has_links and known.id != neighbour:
                state = LinkStateUpdate(known.id, known.instance, known.ls_seq, known.peers)
                self._copy([neighbour], Envelope(EVERY_ROUTER, state, (known.id, self.own)))

    def _link_state(self) -> LinkStateUpdate:
        return LinkStateUpdate(self.own, self.instance, self.ls_seq, self._peers)

    def _compute(self, now: float) -> None:
        self._recompute = False
        self._changed = now
        links = {known.id: known.peers for known in self.routers}
        links[self.own] = self._peers
        self.topology = Topology(self.own, links)
        self._actions.append(RoutesChanged())
        reachable = self.topology.next_hops
        for router in [each for each in self._shown if each not in reachable]:
            self._withdraw(router)
        for known in self.routers:
            if known.id in reachable and known.id not in self._shown:
                self._shown[known.id] = known.addresses.addresses
                for key, treatment in known.addresses.addresses.items():
                    self._actions.append(AddressGained(key, known.id, treatment))

    def _withdraw(self, router: str) -> None:
        self._actions += [AddressLost(key, router) for key in self._shown.pop(router, ())]

    # Messages of other routers

    def _handle(self, link: int, message: ControlMessage, now: float) -> None:
        known = self._learn(message.router, now)
        if known is None:
            return
        if isinstance(message, Advertisement):
            if self.routers.advertised(known, message, now) is News.RESTARTED:
                self._restarted(known)
            self._request(known, now)
        elif isinstance(message, LinkStateUpdate):
            news = self.routers.link_state(known, message, now)
            self._recompute |= news is not None
            if news is News.RESTARTED:
                self._restarted(known)
            self._request(known, now)
        elif isinstance(message, LinkStateRequest):
            self._send(known, self._link_state(), link)
        elif isinstance(message, AddressRequest):
            if message.have_seq < self.addresses.seq:
                self._send(known, self.addresses.everything(self.own), link)
        elif isinstance(message, AddressUpdate):
            self._update(known, message)
            self._request(known, now)

    def _update(self, known: KnownRouter, message: AddressUpdate) -> None:
        change = known.addresses.apply(message)
        if change is None:
            known.advertised_mobile = max(known.advertised_mobile, message.mobile_seq)
            return
        known.requests_mobile.answered()
        if known.id in self._shown:
            self._shown[known.id] = known.addresses.addresses
            self._show(known.id, change)

    def _show(self, router: str, change: AddressChange) -> None:
        self._actions += [AddressLost(key, router) for key in change.removed]
        self._actions += [AddressGained(key, router, treatment) for key, treatment in change.added]

    def _restarted(self, known: KnownRouter) -> None:
        self._withdraw(known.id)
        self._recompute = True
        self._actions.append(MeshNotice(MeshEvent.ROUTER_RESTARTED, known.id, f"router {known.id} has restarted"))

    def _own_message(self, message: ControlMessage) -> None:
        """Handle a message with the own id: of this process, of an earlier one, or of another router with its id."""
        if isinstance(message, Advertisement) and message.router == self.own and message.instance > self.instance:
            text = f"there is another router with the id {self.own}: give each router an id of its own"
            self._note(MeshEvent.DUPLICATE_ID, self.own, text)

    def _learn(self, router: str, now: float) -> KnownRouter | None:
        known = self.routers.learn(router, now)
        if known is None and router != self.own:
            self._note(MeshEvent.TOO_MANY, router, _too_many(router))
        return known

    # Sending

    def _request(self, known: KnownRouter, now: float) -> None:
        """Ask a router for what it has advertised, or for its link state if that is unknown."""
        if known.ls_seq < known.advertised_ls:  # so too as long as the link state is unknown
            if known.requests_ls.due(now):
                self._send(known, LinkStateRequest(self.own))
        # A router answers those that it knows: it has answered the request for its links before.
        elif known.addresses.seq < known.advertised_mobile and known.requests_mobile.due(now):
            self._send(known, AddressRequest(self.own, known.addresses.seq))

    def _send(self, known: KnownRouter, message: ControlMessage, otherwise: int | None = None) -> None:
        """Send to one router. `otherwise`: a connection to use as long as no path to it is known."""
        link = self._way_to(known)
        if link is None:
            link = otherwise
        if link is not None:
            self._actions.append(SendControl(link, Envelope(known.id, message, (self.own,))))

    def _way_to(self, known: KnownRouter) -> int | None:
        """Return the connection for a control message to a router: by the path to it, or where its advertisements
        come from. So the link states of a new network arrive at once, instead of hop by hop."""
        link = self.next_link(known.id)
        if link is None and known.toward is not None and self.neighbours.router_of(known.toward):
            return known.toward
        return link

    def _send_hello(self, link: int, now: float) -> None:
        hello = Hello(self.own, self.instance, self.neighbours.seen(link, self._listened_until(now)))
        self._actions.append(SendControl(link, Envelope(NEIGHBOUR, hello, (self.own,))))

    def _send_advertisement(self, now: float) -> None:
        self._advertise = False
        self._advertised = now
        message = Advertisement(self.own, self.instance, self.ls_seq, self.addresses.seq)
        self._flood(Envelope(EVERY_ROUTER, message, (self.own,)))

    def _spread(self, link: int, envelope: Envelope, now: float) -> None:
        """Pass on a message to all routers: what corrects their topology by all ways, once; addresses along the
        sender's tree, because Dispatch must not get them twice."""
        message = envelope.message
        known = self._learn(message.router, now)
        if known is None:
            return
        if isinstance(message, AddressUpdate):
            self._multicast(envelope.passed(self.own))
        elif isinstance(message, LinkStateUpdate):
            if (message.instance, message.ls_seq) > (known.instance, known.ls_seq):
                self._flood(envelope.passed(self.own))
        elif isinstance(message, Advertisement):
            numbers = (message.instance, message.ls_seq, message.mobile_seq)
            if numbers > known.passed_on or now - known.passed_on_at >= PASS_ON_SECONDS:
                known.passed_on, known.passed_on_at = numbers, now
                known.toward = link
                self._flood(envelope.passed(self.own))

    def _flood(self, envelope: Envelope) -> None:
        self._copy(self.neighbours.routers(), envelope)

    def _multicast(self, envelope: Envelope) -> None:
        self._copy(sorted(self.topology.onward(envelope.message.router)), envelope)

    def _copy(self, routers: list[str], envelope: Envelope) -> None:
        for router in routers:
            link = self.neighbours.link_of(router)
            if link is not None and router not in envelope.trace:
                self._actions.append(SendControl(link, envelope))

    def _pass_on(self, envelope: Envelope) -> None:
        """Pass on a message to one other router; one that comes from there, or goes round, ends here."""
        known = self.routers.get(envelope.to)
        link = None if known is None else self._way_to(known)
        if link is not None and self.neighbours.router_of(link) not in envelope.trace:
            self._actions.append(SendControl(link, envelope.passed(self.own)))

    # Notices

    def _note(self, event: MeshEvent, router: str, text: str) -> None:
        """Note a condition once for each router."""
        if (event, router) not in self._noted and len(self._noted) < NOTED_ROUTERS:
            self._noted.add((event, router))
            self._actions.append(MeshNotice(event, router, text))

    def _note_malformed(self, link: int, text: str) -> None:
        if link not in self._noted_links:
            self._noted_links.add(link)
            self._actions.append(MeshNotice(MeshEvent.MALFORMED, self.neighbours.router_of(link), text))

    def _taken(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions


def _too_many(router: str) -> str:
    return f"router {router} is ignored: a mesh has at most {MAX_ROUTERS} routers"
