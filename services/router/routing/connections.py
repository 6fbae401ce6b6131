"""A connection of the router: what it is for, who is at the other end, and the links it carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from enmasse.amqp.errors import AmqpError

if TYPE_CHECKING:
    from enmasse.amqp.connection import Connection
    from enmasse.amqp.receiver import Partial
    from enmasse.amqp.session import Session
    from services.router.routing.autolinks import AutoLink, LiveAutoLink
    from services.router.routing.core import Router
    from services.router.routing.extras import Extra
    from services.router.routing.linkroutes import RoutedHalf, RoutedLink
    from services.router.routing.links import InLink, OutLink
    from services.router.routing.policy import Rights
    from services.router.routing.streaming import Stream

NORMAL = "normal"
ROUTE_CONTAINER = "route-container"
DEFAULT_CAPACITY = 250
LINKS_PER_SESSION = 1000
RECEIVING_SESSIONS = 8
LEAVING_LINKS = 512
"""Links at containers that a client may have left at once. The handle of such a link is free for the next attach before
the container has answered: without a bound one client could keep a broker, and all who use it, busy with attaches."""


class Protection(NamedTuple):
    """What a TLS connection was agreed to be: version, cipher suite, strength in bits."""

    protocol: str
    cipher: str
    bits: int


class RouterConnection:
    """`name` is that of the listener or connector it came through; `dir` is `in` for those we accepted, else `out`."""

    def __init__(
        self, router: Router, *, name: str | None, role: str, direction: str, host: str, capacity: int
    ) -> None:
        self.router = router
        self.identity = router.next_identity()
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
        self.links: dict[int, InLink | OutLink | RoutedHalf] = {}
        self.waiting: set[OutLink | RoutedLink] = set()  # links with deliveries that could not be sent yet
        self.streams: set[Stream] = set()  # that came by auto-links and are under way
        self.gathering: set[Partial] = set()  # deliveries of which more is awaited before anybody gets them
        self.extras: dict[Extra, None] = {}
        self.autolinks: dict[AutoLink, LiveAutoLink] = {}
        self.routed: dict[tuple[str, str], RoutedLink] = {}  # as container, by direction and link name
        # Links at containers whose client, which is here, has left them: they are there until the container answers.
        self.leaving: set[RoutedHalf] = set()
        # The attach that waits for such a name to be free, and what makes its link then.
        self.routes_waiting: dict[tuple[str, str], tuple[RoutedLink, Callable[[], None]]] = {}
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
        return self.router.policy.config.max_message_size if self.rights is None else self.rights.max_message_size

    @property
    def may_close_connections(self) -> bool:
        """By management."""
        return self.rights is None or self.rights.close_connections

    @property
    def is_client(self) -> bool:
        """It came in through a listener for clients."""
        return self.dir == "in" and self.role == NORMAL

    @property
    def is_container(self) -> bool:
        return self.role == ROUTE_CONTAINER

    @staticmethod
    def _has_room(session: Session) -> bool:
        begin = session.remote_begin
        most = LINKS_PER_SESSION if begin is None else min(LINKS_PER_SESSION, int(begin.handle_max) + 1)
        return not session.ended and len(session.links) < most

    def session_for_links(self, *, receiving: bool) -> Session:
        """A session of ours for an auto-link or a routed link. Raises AmqpError where the peer allows no more.

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

    def routed_gone(self, half: RoutedHalf) -> None:
        """A routed link is over on this side."""
        if self.links.pop(half.identity, None) is not None:
            self.router.gone.add(half)
        pair = half.pair
        pair.client.connection.leaving.discard(half)
        if pair.container is half:
            key = (half.direction, half.name)
            if self.routed.get(key) is pair:
                del self.routed[key]
            waiting = self.routes_waiting.pop(key, None)
            if waiting is not None:
                waiting[1]()
