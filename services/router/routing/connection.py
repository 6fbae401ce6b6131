"""A connection of the router: what it is for, who is at the other end, and the links it carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from enmasse.amqp.connection import Connection
from enmasse.amqp.errors import AmqpError
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.performatives import Rejected
from enmasse.amqp.receiver import Partial
from enmasse.amqp.session import Session
from services.router.routing.clock import Clock
from services.router.routing.names import tokens
from services.router.routing.policy import Policy, Rights

NORMAL = "normal"
ROUTE_CONTAINER = "route-container"
DEFAULT_CAPACITY = 250
MANAGEMENT_ELSEWHERE = (
    "amqp:unauthorized-access",
    "this connection carries no management; use a listener for operators (`enmasse status` names its port)",
)
"""Condition and description: the answer if a listener or connector has `management: false`."""
SERVICE_NODES = "$mqtt"
"""Addresses below it are link routes by which services talk to each other."""
SUBSCRIBERS = "$sub"
"""`$sub/<broker>/<id>`: queues of subscribers. Those of AMQP clients are theirs."""
OF_SERVICES = ("mqtt", "share", "retained")
"""First token of an id that is no AMQP client's: MQTT sessions, shared subscriptions, the feed of retained messages."""
LINKS_PER_SESSION = 1000
RECEIVING_SESSIONS = 8


class LinkRecord:
    """The router's end of a link: the context of the engine's link, and a row of management.

    What concerns one kind of link only does nothing for the others.
    """

    __slots__ = ()
    identity: int
    name: str
    connection: RouterConnection
    capacity: int
    """Deliveries that may be under way on it; 0: that is not up to the router."""
    zero_since: float | None
    """Since when there is no credit; None: there is some, or none is needed."""
    counted = True
    """It is one of the senders or receivers of its connection; auto-links are not."""
    delayed1: int
    delayed10: int
    slow: int
    stuck: int

    @property
    def link(self) -> Sender | Receiver:
        raise NotImplementedError

    @property
    def direction(self) -> str:
        """`in`: deliveries come in on it; `out`: they go out."""
        raise NotImplementedError

    # What the engine reports

    def attached(self) -> None:
        """The peer has answered our attach; a null terminus means that a detach with the reason follows."""

    def flow(self) -> None:
        """Credit came, a drain, or room."""

    def drained(self) -> None:
        """The peer has used up or given back the credit of a drain."""

    def partial(self, delivery: Partial) -> None:
        """The first piece of a delivery has come, or another one as long as no stream is its context."""

    def outcomes(self, tokens: list[Any], state: Any, settled: bool) -> None:
        """The receiver has decided on these deliveries."""

    def sender_settled(self, delivery_ids: Sequence[int]) -> None:
        """The sender has settled these deliveries before us."""

    def expect(self, waiting: int) -> None:
        """So many deliveries that came in wait for long: credit is given without waiting for them."""

    def refuse_large(self, delivery_id: int, settled: bool, state: Rejected) -> None:
        """A delivery that comes in is larger than the link allows."""

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        """The peer has detached the link, or it went with its session. `lost`: that went without a word of the peer."""
        self.connection.link_over(self)

    def gone(self) -> None:
        """The link is no more: settle what it leaves behind."""

    # What management shows

    @property
    def owning(self) -> str | None:
        """The key of the address it belongs to."""
        return None

    @property
    def peer(self) -> int | None:
        """The identity of the link with which it is a pair."""
        return None

    @property
    def undelivered(self) -> int:
        return 0

    @property
    def dropped(self) -> int:
        """Presettled deliveries that nobody got."""
        return 0

    @property
    def presettled(self) -> int:
        return 0

    @property
    def accepted(self) -> int:
        return 0

    @property
    def rejected(self) -> int:
        return 0

    @property
    def released(self) -> int:
        return 0

    @property
    def modified(self) -> int:
        return 0

    def detach(self, error: AmqpError | None = None) -> None:
        """Take the link away."""
        self.connection.detach(self, error)


class Owner(Protocol):
    """What connections need of the router."""

    clock: Clock
    policy: Policy

    def next_identity(self) -> int: ...

    def link_over(self, record: LinkRecord) -> None:
        """A link of a connection is over: count it and forget what depended on it."""


class Waiting(Protocol):
    """Has deliveries that could not be sent yet."""

    def flow(self) -> None: ...

    def look(self, now: float) -> None:
        """To be called once a second (watch.py)."""


class StreamUnderWay(Protocol):
    """A large delivery that came from a broker; see streaming.py."""

    @property
    def source(self) -> Any: ...

    seen: bool

    def look(self, now: float) -> None:
        """To be called once a second (watch.py)."""


class ExtraLink(Protocol):
    """One of several links that serve an auto-link."""

    def look(self, now: float, stuck: set[Any]) -> None:
        """To be called once a second (watch.py); on the links `stuck` a delivery takes long."""


class Protection(NamedTuple):
    """What a TLS connection was agreed to be: version, cipher suite, strength in bits."""

    protocol: str
    cipher: str
    bits: int


class RouterConnection:
    """`name` is that of the listener or connector it came through; `dir` is `in` for those we accepted, else `out`."""

    def __init__(self, owner: Owner, *, name: str | None, role: str, direction: str, host: str, capacity: int) -> None:
        self.owner = owner
        self.identity = owner.next_identity()
        self.name = name
        self.role = role
        self.dir = direction
        self.host = host
        self.link_capacity = capacity
        self.container = ""
        self.properties: dict[str, Any] = {}
        self.opened_at: float | None = None
        self.closed = False
        self.tls: Protection | None = None
        self.authenticated = False
        self.mechanism: str | None = None  # of SASL
        self.policy_vhost: str | None = None
        self.rights: Rights | None = None  # None: everything is allowed
        self.amqp: Connection
        self.abort: Callable[[], None] | None = None  # drops the socket
        self.on_opened: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.last_delivery: float | None = None  # as seen by watch.py
        self.management = True  # `$management` may be used on it
        self.denied = False  # there were too many connections when it came
        self.links: dict[int, LinkRecord] = {}
        self.waiting: set[Waiting] = set()
        self.streams: set[StreamUnderWay] = set()
        self.gathering: set[Partial] = set()  # deliveries of which more is awaited before anybody gets them
        self.extras: dict[ExtraLink, None] = {}
        self.senders = 0
        self.receivers = 0
        self._sending: list[Session] = []
        self._receiving: list[Session] = []
        self._turn = 0

    @property
    def usable(self) -> bool:
        """Links can be made on it."""
        return not self.closed and self.amqp.state == "open"

    @property
    def max_message_size(self) -> int:
        """Bytes of a message that may come in from a client; 0: no limit."""
        if self.dir == "out":
            return 0
        return self.owner.policy.config.max_message_size if self.rights is None else self.rights.max_message_size

    @property
    def may_close_connections(self) -> bool:
        """By management."""
        return self.rights is None or self.rights.close_connections

    @property
    def is_client(self) -> bool:
        """It came in through a listener for clients."""
        return self.dir == "in" and self.role == NORMAL

    def check_service_node(self, name: str) -> None:
        """Raises AmqpError for a node of services, if this is a client on a listener with `management: false`."""
        if "$" not in name or not self.is_client or self.management:
            return
        parts = tokens(name)
        if parts[0] == SERVICE_NODES:
            raise AmqpError("amqp:unauthorized-access", f"{name}: services of EnMasse talk to each other there")
        if parts[0] == SUBSCRIBERS and len(parts) > 2 and parts[2] in OF_SERVICES:
            raise AmqpError("amqp:unauthorized-access", f"{name}: MQTT clients receive from it through a gateway")

    @property
    def is_container(self) -> bool:
        return self.role == ROUTE_CONTAINER

    @staticmethod
    def _has_room(session: Session) -> bool:
        begin = session.remote_begin
        most = LINKS_PER_SESSION if begin is None else min(LINKS_PER_SESSION, int(begin.handle_max) + 1)
        return not session.ended and len(session.links) < most

    def session_for_links(self, *, receiving: bool) -> Session:
        """A session of ours for an auto-link or a routed link. Raises AmqpError if the peer allows no more.

        Links that receive are spread over several: a stream that nobody takes closes the window of its session only.
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

    def drop(self) -> None:
        """End it as a broken wire would, without a close of AMQP (adminStatus deleted)."""
        if self.abort is not None:
            self.abort()

    def add(self, record: LinkRecord) -> None:
        self.links[record.identity] = record

    def detach(self, record: LinkRecord, error: AmqpError | None = None) -> None:
        """Take a link of this connection away. One that goes out gets nothing more from now on; one that comes in is
        settled until the peer has answered."""
        if record.direction == "out":
            self.link_over(record)
        record.link.detach(error)
        self.amqp.wake()

    def link_over(self, record: LinkRecord) -> None:
        """A link is over, for whatever reason: settle what it leaves behind and forget it."""
        if self.links.pop(record.identity, None) is not None:
            self.owner.link_over(record)
