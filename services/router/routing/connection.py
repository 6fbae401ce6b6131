"""A connection of the router: its role, its peer, and its links."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

from enmasse.amqp.codec.errors import CONNECTION_FORCED, AmqpError, no_transactions
from enmasse.amqp.codec.performatives import Error, Rejected, TransactionalState
from enmasse.amqp.connection import Connection
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.receiver import Partial
from enmasse.amqp.session import Session
from enmasse.amqp.termini import FOR_OWNER, passed_on_name, passed_on_parts
from enmasse.amqp.termini import SPACE as SPACE_OF_LINK
from enmasse.clock import Clock
from enmasse.engines import EMBEDDED
from enmasse.identity.login import Certified, Login
from enmasse.identity.owned import owned
from enmasse.identity.principal import ANONYMOUS, Principal
from enmasse.identity.refused import MAX_TEXT, Refusals
from enmasse.model.names import DEFAULT_SPACE, HTTP_GATEWAYS, SPACE, space_error, space_prefix, states_space
from services.router.routing.address_text import strip, tokens
from services.router.routing.policy import Policy
from services.router.routing.space_connections import SpaceConnections

PRIORITY = 4
"""Priority of a message that states none."""
NORMAL = "normal"
ROUTE_CONTAINER = "route-container"
INTER_ROUTER = "inter-router"
DEFAULT_CAPACITY = 250
MANAGEMENT_ELSEWHERE = (
    "amqp:unauthorized-access",
    "this connection carries no management; use a listener for operators (`enmasse status --json` names its port)",
)
"""Condition and description: the answer if a listener or connector has `management: false`."""
SERVICE_NODES = ("$mqtt", HTTP_GATEWAYS)
"""Addresses below these names are for services among each other."""
SUBSCRIBERS = "$sub"
"""`$sub/<broker>/<id>`: queues of subscribers. AMQP clients may use their own."""
OF_SERVICES = ("mqtt", "share", "retained")
"""First token of ids that clients may not use: MQTT sessions, shared subscriptions, the feed of retained messages."""
LINKS_PER_SESSION = 1000
RECEIVING_SESSIONS = 8


class LinkRecord:
    """The router's end of a link: the context of the engine's link, and a row of management.

    Methods that concern only some kinds of links do nothing for the others.
    """

    __slots__ = ("delayed1", "delayed10", "slow", "stuck")
    identity: int
    name: str
    connection: RouterConnection
    capacity: int
    """Most deliveries under way on the link; 0 if the router does not decide that."""
    zero_since: float | None
    """Time since which there is no credit; None if there is credit, or none is needed."""
    counted = True
    """True if the link counts as a sender or receiver of its connection; auto-links do not."""
    routed = False
    """True for a link that is passed on to a container."""
    link_type = "endpoint"
    """As Dispatch calls it."""
    priority = PRIORITY
    """Priority of the messages on a link between routers; the usual one for other links."""
    faces_client = True
    """False for the router's own links to brokers and services."""
    delayed1: int
    delayed10: int
    """Deliveries settled more than 1 and 10 seconds after they arrived or, on an outgoing link, were sent."""
    slow: int
    stuck: int
    """Deliveries that have been waiting for more than 1 and 10 seconds."""

    @property
    def link(self) -> Sender | Receiver:
        """The engine's link."""
        raise NotImplementedError

    @property
    def direction(self) -> str:
        """`in` for incoming deliveries, `out` for outgoing ones."""
        raise NotImplementedError

    # Reports of the engine

    def attached(self) -> None:
        """Handle the peer's answer to our attach; a null terminus announces a detach with the reason."""

    def flow(self) -> None:
        """Handle new credit, a drain, or free room in the session window."""

    def drained(self) -> None:
        """Handle the end of a drain: the peer has used or returned the credit."""

    def partial(self, delivery: Partial) -> None:
        """Handle the first piece of a delivery, or a further one while it has no stream as its context."""

    def outcomes(self, tokens: list[Any], state: Any, settled: bool) -> None:
        """Handle the receiver's outcome of these deliveries."""

    def lost(self, tokens: list[Any]) -> None:
        """Handle deliveries, the oldest first, of which the receiver has stated nothing when its link ended."""

    def transactional(
        self, tokens: list[Any], delivery_ids: Sequence[int], state: TransactionalState, settled: bool
    ) -> None:
        """Handle outcomes that are to hold once a transaction is discharged. Raises AmqpError."""
        raise no_transactions()

    def sender_settled(self, delivery_ids: Sequence[int]) -> None:
        """Handle deliveries that the sender settled first."""

    def widen(self, stuck: set[LinkRecord]) -> None:
        """Add a link because a delivery takes long on this one; `stuck`: all such links."""

    def expect(self, waiting: int) -> None:
        """Grant credit without waiting for `waiting` incoming deliveries that take long."""

    def refuse_large(self, delivery_id: int, settled: bool, state: Rejected) -> None:
        """Refuse an incoming delivery that is larger than the link allows."""

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        """Handle a detach by the peer, or the end of the link's session. `lost`: the session ended without the
        peer's end."""
        self.connection.link_over(self)

    def gone(self) -> None:
        """Settle the deliveries that the ended link leaves."""

    # Attributes for management

    @property
    def owning(self) -> str | None:
        """Key of the link's address."""
        return None

    @property
    def peer(self) -> int | None:
        """Identity of the other link of a routed pair."""
        return None

    @property
    def undelivered(self) -> int:
        """Number of deliveries that wait in the router."""
        return 0

    @property
    def dropped(self) -> int:
        """Presettled deliveries that were dropped."""
        return 0

    @property
    def presettled(self) -> int:
        """Number of deliveries that came or were sent settled."""
        return 0

    @property
    def accepted(self) -> int:
        """Number of deliveries with the outcome accepted."""
        return 0

    @property
    def rejected(self) -> int:
        """Number of deliveries with the outcome rejected."""
        return 0

    @property
    def released(self) -> int:
        """Number of deliveries with the outcome released."""
        return 0

    @property
    def modified(self) -> int:
        """Number of deliveries with the outcome modified."""
        return 0

    def detach(self, error: AmqpError | None = None) -> None:
        """Detach the link."""
        self.connection.detach(self, error)


class RouterCore:
    """Part of the router that its connections and links use: time, policy, identities, and the end of links."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.policy = Policy()
        self.refusals = Refusals(clock.time)
        self.changes = 0
        """Number of changes of entities, links and connections so far, and of what works and what fails."""
        self._identity = 0

    def next_identity(self) -> int:
        """Return a new identity: decimal numbers from one counter; 1 is the router itself."""
        self.changes += 1
        self._identity += 1
        return self._identity + 1

    def link_over(self, record: LinkRecord) -> None:
        """Count an ended link and remove everything that depended on it."""
        raise NotImplementedError


class Watched(Protocol):
    """Object that is checked once a second (watch.py): a receiver with waiting deliveries, a large delivery from a
    broker, an additional link of an auto-link."""

    def look(self, now: float, stuck: set[LinkRecord]) -> None:
        """Check; `now` in seconds. `stuck`: links from brokers with a delivery that takes long; large deliveries, which
        are checked first, add theirs."""


class OpenTransactions(Protocol):
    """Open transactions of a client's link to the coordinator (brokers/coordinators.py)."""

    def fail(self, id: bytes, error: AmqpError) -> None:
        """Let a transaction, if it is one of these, end by a rollback only: a part of it was refused."""


class Protection(NamedTuple):
    """Negotiated properties of a TLS connection: version, cipher suite, strength in bits."""

    protocol: str
    cipher: str
    bits: int


class Rights(Protocol):
    """Rights of a connection: those of a process (peers.py) or a user (users.py)."""

    @property
    def max_message_size(self) -> int:
        """Largest message, in bytes; 0: no limit."""

    of_process: bool
    """True for the rights of a process of the suite, or of an operator."""
    for_clients: bool
    """True for those of a process that acts for clients, whose address space it states."""
    sender: bytes
    """As which brokers know it (enmasse/identity/senders.py)."""

    def check_attach(self, links: int, *, incoming: bool, address: str | None, dynamic: bool, waypoint: bool) -> None:
        """Raise AmqpError unless a further link may be attached; `links` are those of its direction."""

    def check_message(self, address: str) -> None:
        """Raise AmqpError unless messages may be sent to `address`."""

    def check_recovered(self, address: str) -> None:
        """Raise AmqpError unless a subscription to `address`, found by its name, may be used."""

    def may_serve(self, pattern: str) -> bool:
        """Return whether links of others to addresses of a pattern may be passed on to this peer."""


class RouterConnection:
    """`name`: its listener or connector; `dir`: `in` for accepted connections, `out` for others."""

    def __init__(
        self, owner: RouterCore, *, name: str | None, role: str, direction: str, host: str, capacity: int
    ) -> None:
        self.owner = owner
        self.identity = owner.next_identity()
        self.name = name
        self.role = role
        self.dir = direction
        self.host = host
        self.link_capacity = capacity
        self.cost = 1  # of a connection to another router
        self.container = ""
        self.properties: dict[str, Any] = {}
        self.opened_at: float | None = None
        self.closed = False
        self.close_error: AmqpError | None = None  # stated by the peer
        self.tls: Protection | None = None
        self.authenticated = False
        self.mechanism: str | None = None  # SASL mechanism
        self.principal = Principal(ANONYMOUS)
        self.prefix = ""  # of the full names in the client's address space; processes state full names
        self.prefix_of_replies = ""  # of the address space whose clients may reply to its temporary addresses
        self.login: Login | None = None
        """Login of a user that has opened the connection."""
        self.admit: Callable[[str], Rights | None] | None = (
            None  # of a listener for peers or users: rights of an authenticated one
        )
        self.by_gateway = False  # its client is connected to a gateway, which passes its bytes on
        self.relay: Callable[[], None] | None = None  # takes the client that its Open states
        self.rights: Rights | None = None  # None: no restrictions
        self.amqp: Connection
        self.spaces: SpaceConnections | None = None
        """The connections to this broker by address space, if the router dials it; `carried`: which of them it is."""
        self.carried = DEFAULT_SPACE
        self.abort: Callable[[], None] | None = None  # closes the socket
        self.on_opened: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.last_delivery: float | None = None  # set by watch.py
        self.management = True  # True if `$management` may be used
        self.denied = False  # refused because of too many connections
        self.told = False  # its refusal was noted
        self.stated = ""  # the user that a login by SASL names
        self.certificate: Certified | None = None  # of a client
        self.login_problem = ""  # why its certificate is refused, which SASL has no field for
        self.links: dict[int, LinkRecord] = {}
        self.coordinators: dict[Any, OpenTransactions] = {}  # of the client's transactions, by session
        self.transacted: dict[bytes, int] = {}  # bytes that users have in transactions, at a broker without limits
        self.waiting: set[Watched] = set()
        self.streams: set[Watched] = set()
        self.gathering: set[Partial] = set()  # deliveries that are collected before they are forwarded
        self.extras: dict[Watched, None] = {}
        self.senders = 0
        self.receivers = 0
        self.ended_in = self.ended_out = 0  # deliveries of links that have ended
        self._sending: list[Session] = []
        self._receiving: list[Session] = []
        self._turn = 0

    def refused(self, what: str, error: AmqpError, address: str = "") -> None:
        """Note that the client was refused something. Processes of the suite, which retry, log that themselves."""
        if self.of_process:
            return
        facts: dict[str, Any] = {
            "condition": str(error.condition),
            "peer": self.host,
            "client": self.container,
            "address": address,
            "names": [self.prefix + "/".join(tokens(strip(address).partition("::")[0]))] if address else (),
            "space": (self.principal if self.login is None else self.login.principal).space,
        }
        refusals, user = self.owner.refusals, self.amqp.user
        if user is not None:
            refusals.note(what, reason=error.description, user=user, **facts)
        elif self.stated:
            reason = f"{error.description}, or the user has to wait after failed logins"
            refusals.note_failed(what, self.stated, reason=reason, **facts)
        else:
            reason = self.login_problem or error.description
            refusals.note_failed(what, "", certificate=self.certificate, reason=reason, **facts)

    def fail_transaction(self, id: bytes, error: AmqpError) -> None:
        """Let an open transaction of the client, whichever session it was declared in, end by a rollback only."""
        for each in self.coordinators.values():
            each.fail(id, error)

    def enter(self, principal: Principal) -> None:
        """Take the user of the connection, when it opens: its names are those of the user's address space."""
        self.principal = principal
        self.prefix = self.prefix_of_replies = space_prefix(principal.space)
        if self.prefix:
            self.management = False
            opening = self.amqp.open_fields
            opening.properties = {**(opening.properties or {}), SPACE_OF_LINK: principal.space}  # what it has chosen

    def local(self, name: str) -> str:
        """Return a name as the client knows it."""
        return name.removeprefix(self.prefix)

    def relatively(self, settle: Callable[..., None]) -> Callable[..., None]:
        """Return a function that settles deliveries of the client as `settle` does, with names in the reasons of
        rejections as the client knows them."""
        if not self.prefix:
            return settle

        def relative(deliveries: int | list[int], *state: Any) -> None:
            if state and type(state[0]) is Rejected and state[0].error is not None:
                state = (Rejected(error=Error.of(self.relative(state[0].error.exception()))), *state[1:])
            settle(deliveries, *state)

        return relative

    def relative(self, error: AmqpError) -> AmqpError:
        """Return an error of a broker or service with names as the client knows them."""
        if not self.prefix or self.prefix not in error.description:
            return error
        return AmqpError(error.condition, error.description.replace(self.prefix, ""), error.info)

    @property
    def of_process(self) -> bool:
        """True if the peer is authenticated as a process of the suite."""
        return self.rights is not None and self.rights.of_process

    @property
    def shown_to_brokers(self) -> list[str]:
        """Return who the client is, for brokers (`termini.CLIENT`)."""
        if self.of_process:
            return []
        return [text[:MAX_TEXT] for text in (self.amqp.user or "", self.container, self.host)]

    @property
    def known_as(self) -> str:
        """The name under which brokers and services know what this client owns: its user and container-id."""
        return owned(self.principal, self.container)

    def name_for_broker(self, link: Link) -> str:
        """Return the name under which a broker knows a link of this peer. A process that acts for clients may say whose
        it is: a subscription has one owner, through whichever gateway it is used."""
        asked = link.remote_attach
        acts = self.rights is None or self.rights.for_clients
        stated = asked.properties if acts and asked is not None else None
        if stated and stated.get(FOR_OWNER) is True and passed_on_parts(link.name):
            return link.name
        return passed_on_name(link.name, self.known_as)

    @property
    def space(self) -> str:
        """Return the client's address space as links to brokers state it; empty: the default one."""
        return self.principal.space if self.prefix else ""

    def space_of(self, link: Receiver) -> str:
        """Return the address space of what messages of an anonymous sender state as `to`; empty: the default one. A
        process that acts for clients states theirs."""
        asked = link.remote_attach
        stated = asked.properties.get(SPACE_OF_LINK) if asked is not None and asked.properties else None
        acts = self.rights is not None and self.rights.for_clients
        return str(stated) if acts and isinstance(stated, str) and space_error(stated) is None else self.space

    def take_turns(self) -> None:
        """Share the turns of an address space, if the peer is a process that acts for the clients of one. They may
        reply to its temporary addresses."""
        stated = self.properties.get(SPACE_OF_LINK)
        if self.rights is not None and self.rights.for_clients and isinstance(stated, str):
            self.amqp.tenant = stated if space_error(stated) is None else ""
            self.prefix_of_replies = space_prefix(self.amqp.tenant) if self.amqp.tenant else ""

    @property
    def is_bound_to_space(self) -> bool:
        """Return whether the peer reaches what is of one address space only: a client, or a process that acts for
        clients."""
        return self.is_client and (not self.of_process or (self.rights is not None and self.rights.for_clients))

    @property
    def sender(self) -> bytes:
        """Return the sender of the messages of this connection, for brokers (enmasse/identity/senders.py)."""
        return b"" if self.rights is None else self.rights.sender

    @property
    def usable(self) -> bool:
        """True if links can be opened on the connection."""
        return not self.closed and self.amqp.state == "open"

    @property
    def max_message_size(self) -> int:
        """Largest message from a client, in bytes; 0: no limit."""
        if self.dir == "out" or self.is_neighbour:
            return 0
        return self.owner.policy.config.max_message_size if self.rights is None else self.rights.max_message_size

    @property
    def is_client(self) -> bool:
        """True if the connection came through a listener for clients."""
        return self.dir == "in" and self.role == NORMAL

    def check_name(self, name: str) -> None:
        """Raise AmqpError for a node of services, or a name in an address space, if this is a client on a listener with
        `management: false`."""
        if ("$" not in name and SPACE not in name) or not self.is_client or self.management:
            return
        name = self.local(name)
        if states_space(name):
            raise AmqpError("amqp:unauthorized-access", f"{name}: clients state no names that begin with {SPACE}")
        parts = tokens(name)
        if parts[0] in SERVICE_NODES:
            raise AmqpError("amqp:unauthorized-access", f"{name}: services of EnMasse talk to each other there")
        if parts[0] == SUBSCRIBERS and len(parts) > 2 and parts[2] in OF_SERVICES:
            raise AmqpError("amqp:unauthorized-access", f"{name}: MQTT clients receive from it through a gateway")

    @property
    def offered(self) -> Collection[str]:
        """Return the capabilities that the peer offers."""
        opened = self.amqp.remote_open
        return (opened.offered_capabilities or ()) if opened is not None else ()

    def carries(self, space: str) -> bool:
        """Return whether links to addresses of a space use this one of the connections to the broker."""
        return self.spaces is None or self.spaces.of(space) == self.carried

    def may_serve(self, pattern: str) -> bool:
        """Return True if links of others, to addresses that match, may be passed on to this container."""
        return self.rights is None or self.rights.may_serve(pattern)

    @property
    def is_container(self) -> bool:
        """True if the peer is a route container: a broker or a service."""
        return self.role == ROUTE_CONTAINER

    @property
    def is_neighbour(self) -> bool:
        """True if the peer is another router of the mesh: by the role of the listener or connector alone."""
        return self.role == INTER_ROUTER

    @property
    def reads_otherwise(self) -> bool:
        """True for a container that is neither our broker nor a process that acts for clients, which read as the router
        does: it may find other sections in a message. A container that states to be ours weakens what is checked of its
        own messages alone."""
        if self.rights is not None and self.rights.for_clients:
            return False
        opened = self.amqp.remote_open
        properties = (opened.properties if opened is not None else None) or {}
        return self.is_container and properties.get("engine") != EMBEDDED

    @property
    def is_broker(self) -> bool:
        """True if the router has dialled a container: none of its links is a client's."""
        return self.is_container and self.dir == "out"

    @staticmethod
    def _has_room(session: Session) -> bool:
        begin = session.remote_begin
        most = LINKS_PER_SESSION if begin is None else min(LINKS_PER_SESSION, int(begin.handle_max) + 1)
        return not session.ended and session.link_count < most

    def session_for_links(self, *, receiving: bool) -> Session:
        """Return one of our sessions for an auto-link or a routed link. Raises AmqpError if the peer refuses.

        Receiving links are spread over several sessions: a stream without a taker closes only its session's window.
        """
        pool = self._receiving if receiving else self._sending
        self._turn += 1
        at = self._turn % (RECEIVING_SESSIONS if receiving else 1)
        if at < len(pool) and self._has_room(pool[at]):
            return pool[at]
        try:
            session = self.amqp.begin()
        except AmqpError:
            old = next((session for session in pool if self._has_room(session)), None)
            if old is None:
                raise
            return old
        pool[at : at + 1] = [session]
        return session

    def closed_by(self, by: str) -> None:
        """Close the connection for an operator, and note that."""
        if not self.of_process:
            user = "" if self.amqp.user is None else self.amqp.user
            space = (self.principal if self.login is None else self.login.principal).space
            self.owner.refusals.closed(by, peer=self.host, user=user, client=self.container, space=space)
        self.told = True
        self.drop("closed by an administrator")

    def drop(self, reason: str) -> None:
        """Close the connection: the close states why, and the answer is not waited for."""
        self.amqp.close(AmqpError(CONNECTION_FORCED, reason))
        if self.abort is not None:
            self.owner.clock.call_soon(self.abort)  # behind the flush

    def add(self, record: LinkRecord) -> None:
        """Add a link by its identity."""
        self.links[record.identity] = record

    def detach(self, record: LinkRecord, error: AmqpError | None = None) -> None:
        """Detach a link of this connection. An outgoing link gets no further deliveries; those of an incoming one are
        settled until the peer has answered."""
        if record.direction == "out":
            self.link_over(record)
        record.link.detach(error)
        self.amqp.wake()

    def link_over(self, record: LinkRecord) -> None:
        """Settle the deliveries of an ended link and remove it."""
        if self.links.pop(record.identity, None) is not None:
            self.owner.link_over(record)


def stated_address(link: Link) -> str:
    """Return the address that the peer has stated in its attach."""
    terminus = link.remote_source if link.is_sender else link.remote_target
    return str(getattr(terminus, "address", None) or "")
