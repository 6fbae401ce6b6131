"""The router's state: addresses, configured entities, connections; and how a message finds its way without a link.

Free of sockets and clocks: time and timers come from a Clock, bytes are moved by the engine's connections.
A mesh of several routers would add remote consumers to `Address.remotes`, an exchange of addresses between routers over
`inter-router` connections, and the choice between local and remote consumers in `Address.choose`.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.amqp.errors import AmqpError
from services.router.routing import termini
from services.router.routing.address import Address
from services.router.routing.autolinks import AutoLink, AutoLinks
from services.router.routing.configuration import BALANCED, MULTICAST, UNAVAILABLE, AddressConfig
from services.router.routing.configured import ConfiguredAddresses
from services.router.routing.linkroutes import LinkRoutes, RoutedHalf
from services.router.routing.links import InLink, OutLink
from services.router.routing.names import MOBILE, parse
from services.router.routing.policy import Policy
from services.router.routing.temporaries import Temporaries
from services.router.routing.watch import Watch

if TYPE_CHECKING:
    from services.router.routing.connections import RouterConnection
    from services.router.routing.links import Token

NOT_FOUND = "amqp:not-found"
RESOURCE_DELETED = "amqp:resource-deleted"
BLOCKED = 10.0
"""Seconds without credit after which a link counts as blocked."""
MAX_REPLIES = 5000
MAX_REPLY_BYTES = 32 * 1024 * 1024
"""Answers that wait for one receiver without credit; beyond it new ones are dropped."""
Record = InLink | OutLink | RoutedHalf
_ALPHABET = string.ascii_letters + string.digits


class Clock(Protocol):
    """Time in seconds (monotonic) and timers."""

    def time(self) -> float: ...

    def call_soon(self, what: Callable[[], None]) -> Any: ...

    def call_later(self, delay: float, what: Callable[[], None]) -> Any: ...


class Totals:
    """Counters over links. `stuck` is of living ones only."""

    __slots__ = (
        "accepted",
        "delayed1",
        "delayed10",
        "dropped",
        "egress",
        "egress_containers",
        "ingress",
        "ingress_containers",
        "modified",
        "presettled",
        "rejected",
        "released",
        "stuck",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    accepted: int
    delayed1: int
    delayed10: int
    dropped: int
    egress: int
    egress_containers: int
    ingress: int
    ingress_containers: int
    modified: int
    presettled: int
    rejected: int
    released: int
    stuck: int

    def add(self, record: Record) -> None:
        """Count a link: outcomes where deliveries come in, so that each delivery counts once."""
        container = record.connection.is_container
        books = record.pair if isinstance(record, RoutedHalf) else record
        count = record.link.deliveries
        if record.direction == "in":
            self.ingress += count
            if container:
                self.ingress_containers += count
            self.presettled += books.presettled
            self.accepted += books.accepted
            self.rejected += books.rejected
            self.released += books.released
            self.modified += books.modified
        else:
            self.egress += count
            if container:
                self.egress_containers += count
        if not isinstance(record, RoutedHalf):
            self.dropped += record.dropped


class Router:
    """One router. `default` is the treatment of mobile addresses without configuration."""

    def __init__(self, router_id: str, clock: Clock, *, default: str = BALANCED, mode: str = "interior") -> None:
        self.id = router_id
        self.clock = clock
        self.now = clock.time
        self.default = default
        self.mode = mode
        self.allow_resumable = True
        self.started = clock.time()
        self._identity = 0
        self.config_generation = 0  # changes with the configured addresses
        self.addresses: dict[str, Address] = {}
        self.configured = ConfiguredAddresses()
        self.connections: dict[int, RouterConnection] = {}
        self._clients: dict[str, int] = {}  # open connections of clients by container-id
        self.containers_by_id: dict[str, list[RouterConnection]] = {}
        self.containers_by_name: dict[str, list[RouterConnection]] = {}
        self.autolinks = AutoLinks(self)
        self.link_routes = LinkRoutes(self)
        self.temporaries = Temporaries(self)
        self.policy = Policy()
        self.gone = Totals()
        self.watch = Watch(self)

    def next_identity(self) -> int:
        """Identities of core entities are decimal numbers from one counter; 1 is the router itself."""
        self._identity += 1
        return self._identity + 1

    def random_name(self, prefix: str) -> str:
        return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(15))

    # Configuration

    def add_address_config(self, config: AddressConfig) -> AddressConfig:
        """Raises ValueError. Addresses matched by wildcards keep their treatment until nobody uses them; one that is
        configured by its own name follows the new configuration."""
        self.configured.add(config)
        self.config_generation += 1
        for phase in {0, 1, config.ingress_phase, config.egress_phase}:
            address = self.addresses.get(f"M{phase}{config.pattern}")
            if address is not None and config.pattern is not None:
                self._follow(address, config, phase)
        return config

    def _follow(self, address: Address, config: AddressConfig, phase: int) -> None:
        """Links of clients that are on another phase than the new configuration wants are detached: they come again."""
        if config.treatment != UNAVAILABLE:
            address.treat_as(config.treatment)
        wrong: list[InLink | OutLink] = []
        if phase != config.ingress_phase:
            wrong += [link for link in address.ins if link.auto is None]
        if phase != config.egress_phase:
            wrong += [link for link in address.outs if link.auto is None]
        for link in wrong:
            self.detach(link, AmqpError(RESOURCE_DELETED, "the address has been configured anew"))

    def remove_address_config(self, config: AddressConfig) -> None:
        self.configured.remove(config)
        self.config_generation += 1

    # Addresses

    def create_address(self, key: str, treatment: str, priority: int = -1) -> Address:
        address = Address(self.next_identity(), key, treatment)
        address.priority = priority
        self.addresses[key] = address
        return address

    def tidy(self, address: Address) -> None:
        """Forget an address that nobody uses."""
        if address.unused and self.addresses.get(address.key) is address:
            del self.addresses[address.key]

    def subscribe(self, key: str, subscriber: Callable[[RouterConnection | None, Any], None]) -> Address:
        """Make the router itself the consumer of an address."""
        address = self.addresses.get(key) or self.create_address(key, "closest")
        address.subscriber = subscriber
        return address

    def address_for_link(self, text: str, *, incoming: bool, phase: int | None = None) -> Address:
        """The address object for a link, made where it is missing. Raises AmqpError `amqp:not-found`."""
        parsed = parse(text, self.id)
        if parsed.kind != MOBILE:
            key = parsed.key()
            return self.addresses.get(key) or self.create_address(key, BALANCED)
        config = self.configured.match(parsed.name)
        if phase is None:
            phase = 0 if config is None else config.ingress_phase if incoming else config.egress_phase
        key = f"M{phase}{parsed.name}"
        address = self.addresses.get(key)
        treatment = self.default if config is None else config.treatment
        if treatment == UNAVAILABLE and (address is None or not address.known):
            raise AmqpError(NOT_FOUND, "Node not found")
        if address is None:
            address = self.create_address(key, treatment, -1 if config is None else config.priority)
        return address

    def kind_of(self, address: Address) -> str | None:
        """What clients get at an address: anycast, multicast or queue. None: it is the router's own."""
        if address.subscriber is not None or address.key[0] != MOBILE:
            return None
        config = self.configured.match(address.key[2:])
        if address.pins or (config is not None and config.waypoint):
            return termini.QUEUE
        return termini.MULTICAST if address.treatment == MULTICAST else termini.ANYCAST

    def broker_of(self, address: Address) -> tuple[RouterConnection, str] | None:
        """The connection to the broker of a queue that `address` feeds consumers from, and the queue's name there. Of
        several the one that takes messages too: others are being emptied. None: it is not connected."""
        entry = self.addresses.get("M0" + address.key[2:])
        taking = {out.connection for out in entry.outs if out.auto is not None} if entry is not None else set()
        feeds = [link.auto for link in address.feeds]
        feed = next((auto for auto in feeds if auto.connection in taking), feeds[0] if feeds else None)
        return None if feed is None else (feed.connection, feed.autolink.config.node)

    def keeps_back(self, address: Address) -> bool:
        """Can a message sent to `address` be delivered later? A queue's broker does it; not every one knows how."""
        opened = [out.connection.amqp.remote_open for out in address.outs if out.auto is not None]
        return self.kind_of(address) == termini.QUEUE and all(
            each is not None and termini.DELAYED_DELIVERY in (each.offered_capabilities or ()) for each in opened
        )

    def address_for_message(self, text: str) -> Address | None:
        """Where a message with `to` = text goes; None: nobody is there. Raises AmqpError for an unavailable address."""
        parsed = parse(text, self.id)
        if parsed.kind != MOBILE:
            return self.addresses.get(parsed.key())
        config = self.configured.match(parsed.name)
        phase = 0 if config is None else config.ingress_phase
        address = self.addresses.get(f"M{phase}{parsed.name}")
        treatment = self.default if config is None else config.treatment
        if treatment == UNAVAILABLE and (address is None or not address.known):
            raise AmqpError(NOT_FOUND, "Deliveries cannot be sent to an unavailable address")
        return address

    def address_of_autolink(self, autolink: AutoLink) -> Address:
        """Made where it is missing; what would be unavailable is balanced."""
        parsed = parse(autolink.config.address, self.id)
        key = parsed.key(str(autolink.config.phase))
        address = self.addresses.get(key)
        if address is None:
            config = self.configured.match(parsed.name)
            treatment = self.default if config is None else config.treatment
            if treatment == UNAVAILABLE:
                treatment = BALANCED
            address = self.create_address(key, treatment, -1 if config is None else config.priority)
        return address

    def deliver(self, to: str, payload: Any) -> bool:
        """A message of the router's own, settled. False when there is nobody to take it."""
        try:
            address = self.address_for_message(to)
        except AmqpError:
            return False
        out = None if address is None else address.pick()
        if out is None or address is None:
            return False
        address.from_router += 1
        waiting = len(out.queue)
        if waiting >= MAX_REPLIES or (waiting > 50 and out.waiting_bytes() > MAX_REPLY_BYTES):
            out.presettled += 1
            out.dropped += 1
            return False
        out.queue.append((payload, None, 0))
        out.flow()
        out.sender.session.connection.wake()
        return True

    # Connections and links

    def brokers(self) -> list[RouterConnection]:
        """Connections to the route containers that auto-links or link routes use."""
        found = [connection for each in self.containers_by_id.values() for connection in each]
        return [c for c in found if c.usable and (c.autolinks or self.link_routes.uses(c))]

    @property
    def has_brokers(self) -> bool:
        """Some are configured, connected or not."""
        return bool(self.autolinks.by_name or self.link_routes.by_name)

    def containers(self, container_id: str | None, name: str | None) -> Iterable[RouterConnection]:
        """Open route-container connections to this container, or through this listener or connector."""
        if container_id:
            return self.containers_by_id.get(container_id, ())
        return self.containers_by_name.get(name or "", ())

    def totals(self) -> Totals:
        """Counters over all links that are and were."""
        total = Totals()
        for name in Totals.__slots__:
            setattr(total, name, getattr(self.gone, name))
        total.delayed1, total.delayed10 = self.watch.delayed1, self.watch.delayed10
        for connection in self.connections.values():
            for record in connection.links.values():
                total.add(record)
                total.stuck += record.stuck
        return total

    def links_blocked(self) -> int:
        """Links without credit for so long that it is no passing state: for want of a destination, or of a
        receiver's."""
        since = self.now() - BLOCKED
        return sum(
            1
            for connection in self.connections.values()
            for link in connection.links.values()
            if link.zero_since is not None and link.zero_since < since
        )

    def is_known(self, container_id: str) -> bool:
        """A client with this container-id is connected."""
        return container_id in self._clients

    def add_connection(self, connection: RouterConnection) -> None:
        """The peer's open has come and is not refused."""
        self.connections[connection.identity] = connection
        if connection.is_client:
            self._clients[connection.container] = self._clients.get(connection.container, 0) + 1

    def connection_opened(self, connection: RouterConnection) -> None:
        """The peer's open is here, and ours has been sent."""
        connection.opened_at = self.now()
        if not connection.is_container:
            return
        self.containers_by_id.setdefault(connection.container, []).append(connection)
        if connection.name:
            self.containers_by_name.setdefault(connection.name, []).append(connection)
        self.link_routes.connection_opened(connection)
        self.autolinks.connection_opened(connection)

    def connection_closed(self, connection: RouterConnection) -> None:
        """The connection is over; its links have been told already."""
        connection.closed = True
        if self.connections.pop(connection.identity, None) is not None and connection.is_client:
            self._clients[connection.container] -= 1
            if not self._clients[connection.container]:
                del self._clients[connection.container]
        self.policy.connection_closed(connection.identity)
        if connection.is_container and connection.opened_at is not None:
            for index, key in (
                (self.containers_by_id, connection.container),
                (self.containers_by_name, connection.name),
            ):
                if key and connection in index.get(key, ()):
                    index[key].remove(connection)
                    if not index[key]:
                        del index[key]
            self.link_routes.connection_closed(connection)
            self.autolinks.connection_closed(connection)
        for record in list(connection.links.values()):
            if isinstance(record, InLink | OutLink):
                self.link_gone(record)
            else:
                record.pair.client.connection.leaving.discard(record)
        connection.links.clear()
        connection.waiting.clear()

    def detach(self, record: InLink | OutLink, error: AmqpError | None = None) -> None:
        """Take a link away. One that goes out gets nothing more from now on; one that comes in is settled until the
        peer has answered."""
        if isinstance(record, OutLink):
            self.link_gone(record)
        record.link.detach(error)
        record.link.session.connection.wake()

    def link_gone(self, record: InLink | OutLink, unsettled: list[Token] | None = None) -> None:
        """A link is over, for whatever reason: settle what it leaves behind and forget it."""
        connection = record.connection
        if connection.links.pop(record.identity, None) is None:
            return
        self.gone.add(record)
        self.temporaries.link_gone(record)
        address = record.address
        if isinstance(record, InLink):
            connection.senders -= record.auto is None
            record.gone()
        else:
            connection.receivers -= record.auto is None
            record.gone(unsettled or [])
        if address is not None:
            self.tidy(address)
