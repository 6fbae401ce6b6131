"""All addresses of the router: found by the text of an attach or a message, created by the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from enmasse.amqp.codec.errors import NOT_FOUND, AmqpError
from enmasse.clock import Clock
from services.router.routing import termini
from services.router.routing.address_text import MOBILE, ROUTER, not_found, parse
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.configured_addresses import ConfiguredAddresses
from services.router.routing.configuration import (
    BALANCED,
    CLOSEST,
    MULTICAST,
    UNAVAILABLE,
    AddressConfig,
    AutoLinkConfig,
)
from services.router.routing.connection import RouterConnection


class Addresses:
    """`by_key`: addresses in use; `configured`: treatment of configured ones; `default`: treatment of all others.
    `generation` changes with the configuration."""

    def __init__(self, router_id: str, clock: Clock, next_identity: Callable[[], int], default: str) -> None:
        self.by_key: dict[str, RoutedAddress] = {}
        self.configured = ConfiguredAddresses()
        self.generation = 0
        self.router_id = router_id
        self._clock = clock
        self._next_identity = next_identity
        self._default = default
        self.on_over: Callable[[RoutedAddress], None] = lambda address: None
        """Called when an address is no longer in use."""
        self.on_change: Callable[[RoutedAddress], None] | None = None
        """`on_change` of all addresses."""
        self.of_router: Callable[[str], RoutedAddress | None] | None = None
        """Finds the address of a node of another router, if there are others."""

    def __len__(self) -> int:
        return len(self.by_key)

    def get(self, key: str) -> RoutedAddress | None:
        """Return the address with this key, if there is one."""
        return self.by_key.get(key)

    def new(self, key: str, treatment: str) -> RoutedAddress:
        """Create an address that is not found by its key."""
        return RoutedAddress(self._next_identity(), key, treatment, self._clock)

    def create(self, key: str, treatment: str, priority: int = -1) -> RoutedAddress:
        """Make the address with this key, and let it be found."""
        address = self.by_key[key] = self.new(key, treatment)
        address.priority = priority
        address.on_change = self.on_change
        return address

    def tidy(self, address: RoutedAddress) -> None:
        """Remove an address that is no longer used."""
        if address.unused and self.by_key.get(address.key) is address:
            del self.by_key[address.key]
            self.on_over(address)

    def subscribe(self, key: str, subscriber: Callable[[RouterConnection | None, Any], None]) -> RoutedAddress:
        """Make the router itself the consumer of an address."""
        address = self.by_key.get(key) or self.create(key, CLOSEST)
        address.subscriber = subscriber
        return address

    # Configuration

    def add_config(self, config: AddressConfig) -> list[RoutedAddress]:
        """Add a configured address. Return the addresses in use that it changes at once: those configured by their
        exact name. Addresses matched by wildcards keep their treatment while they are in use. Raises ValueError."""
        self.configured.add(config)
        self.generation += 1
        if config.pattern is None:
            return []
        following = self.of_name(config.pattern, {0, 1, config.ingress_phase, config.egress_phase})
        if config.treatment != UNAVAILABLE:
            for address in following:
                address.treat_as(config.treatment)
        return following

    def remove_config(self, config: AddressConfig) -> None:
        """Remove a configured address. Links that exist keep the treatment they have."""
        self.configured.remove(config)
        self.generation += 1

    def _treatment(self, config: AddressConfig | None) -> str:
        return self._default if config is None else config.treatment

    # Finding

    def of_name(self, name: str, phases: Iterable[int] = (0, 1)) -> list[RoutedAddress]:
        """Return the mobile addresses in use of exactly this name."""
        found = [self.by_key.get(f"M{phase}{name}") for phase in phases]
        return [address for address in found if address is not None]

    def for_link(self, text: str, *, incoming: bool, phase: int | None = None, prefix: str = "") -> RoutedAddress:
        """Return the address of a link, created if missing. `prefix`: of the client's address space. Raises AmqpError
        `amqp:not-found`."""
        parsed = parse(text, self.router_id, prefix)
        if parsed.kind == ROUTER and self.of_router is not None:
            node = self.of_router(text)
            if node is None:
                raise AmqpError(NOT_FOUND, f"too many nodes of other routers are in use: {text}")
            return node
        if parsed.kind != MOBILE:
            key = parsed.key()
            return self.by_key.get(key) or self.create(key, BALANCED)
        config = self.configured.match(parsed.name)
        if phase is None:
            phase = 0 if config is None else config.ingress_phase if incoming else config.egress_phase
        key = f"M{phase}{parsed.name}"
        address = self.by_key.get(key)
        treatment = self._treatment(config)
        if treatment == UNAVAILABLE and (address is None or not address.known):
            raise not_found(text)
        if address is None:
            address = self.create(key, treatment, -1 if config is None else config.priority)
        return address

    def for_message(self, text: str, prefix: str = "") -> RoutedAddress | None:
        """Return the address of a message with `to` = text; None if it is not in use. `prefix`: of the client's address
        space. Raises AmqpError for an unavailable address."""
        parsed = parse(text, self.router_id, prefix)
        if parsed.kind == ROUTER and self.of_router is not None:
            return self.of_router(text)
        if parsed.kind != MOBILE:
            return self.by_key.get(parsed.key())
        config = self.configured.match(parsed.name)
        phase = 0 if config is None else config.ingress_phase
        address = self.by_key.get(f"M{phase}{parsed.name}")
        if self._treatment(config) == UNAVAILABLE and (address is None or not address.known):
            raise not_found(text)
        return address

    def for_auto_link(self, auto_link: AutoLinkConfig) -> RoutedAddress:
        """Return the address of an auto-link, created if missing; an address that would be unavailable is balanced."""
        parsed = parse(auto_link.address, self.router_id)
        key = parsed.key(str(auto_link.phase))
        address = self.by_key.get(key)
        if address is None:
            config = self.configured.match(parsed.name)
            treatment = self._treatment(config)
            if treatment == UNAVAILABLE:
                treatment = BALANCED
            address = self.create(key, treatment, -1 if config is None else config.priority)
        return address

    # Kinds of addresses

    def kind_of(self, address: RoutedAddress) -> str | None:
        """Return the kind of an address for clients: anycast, multicast or queue. None for the router's own
        addresses."""
        if address.subscriber is not None or address.key[0] != MOBILE:
            return None
        config = self.configured.match(address.key[2:])
        if address.pins or (config is not None and config.waypoint):
            return termini.QUEUE
        return termini.MULTICAST if address.treatment == MULTICAST else termini.ANYCAST

    def broker_of(self, address: RoutedAddress) -> tuple[RouterConnection, str] | None:
        """Return the connection to the broker of the queue `address`, and the queue's name there. Of several brokers
        the one that also takes messages: others are draining. None if it is not connected."""
        entry = self.by_key.get("M0" + address.key[2:])
        storing = {out.connection for out in entry.stores} if entry is not None else set()
        feeds = list(address.feeds)
        feed = next((feed for feed in feeds if feed.connection in storing), feeds[0] if feeds else None)
        return None if feed is None else (feed.connection, feed.node)

    def keeps_back(self, address: RoutedAddress) -> bool:
        """Return True if delivery of messages to `address` can be delayed: only brokers of queues can, and not all."""
        opened = [out.connection.amqp.remote_open for out in address.stores]
        return self.kind_of(address) == termini.QUEUE and all(
            each is not None and termini.DELAYED_DELIVERY in (each.offered_capabilities or ()) for each in opened
        )
