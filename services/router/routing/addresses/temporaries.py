"""Temporary queues and topics: created at a broker for a client's dynamic terminus, and reachable by all clients while
its link lives. The router's own, for routers without brokers, are addresses that store nothing.
"""

from __future__ import annotations

from enmasse.amqp.codec.errors import RESOURCE_DELETED, AmqpError
from services.router.routing.address_text import ParsedAddress, is_foreign, not_found
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.configured_addresses import ConfiguredAddresses
from services.router.routing.addresses.destination import Destination
from services.router.routing.addresses.producer import Producer
from services.router.routing.connection import LinkRecord, RouterConnection


class Temporaries:
    """Temporary queues and topics at brokers, by the broker's name for them, and the router's own, by their link."""

    def __init__(self, configured: ConfiguredAddresses) -> None:
        self._configured = configured
        self._at: dict[str, tuple[RouterConnection, str]] = {}  # by full name: the broker, and its name for it
        self._own: dict[LinkRecord, RoutedAddress] = {}
        self._owners: dict[str, RouterConnection] = {}  # by name: clients for which they were made
        self._names: dict[LinkRecord, str] = {}

    def broker_of(self, name: str) -> RouterConnection | None:
        """Return the broker of the temporary queue or topic of this full name."""
        found = self._at.get(name)
        return None if found is None else found[0]

    def node_of(self, name: str) -> str:
        """Return the broker's name for a temporary queue or topic that is known."""
        return self._at[name][1]

    def check(self, connection: RouterConnection, text: str, parsed: ParsedAddress, prefix: str) -> None:
        """Raise AmqpError for an address of a router, or a temporary one, that is not of the address space of a client,
        which has this `prefix`."""
        if not connection.is_bound_to_space:
            return
        owner = self._owners.get(parsed.name)
        if (owner is None or owner.prefix_of_replies == prefix) and not is_foreign(text, parsed, prefix):
            return
        raise not_found(text)

    def owned_by(self, connection: RouterConnection, name: str) -> bool:
        """Return whether a temporary address was made for this connection."""
        return self._owners.get(name) is connection

    def given(self, link: LinkRecord, name: str) -> None:
        """Record one that was made for a client's link, and ends with it."""
        self._names[link] = name
        self._owners[name] = link.connection

    def made(self, name: str, broker: RouterConnection, client: RouterConnection, node: str) -> bool:
        """Record one that a broker created for a client, and calls `node`. Return False if its full name is configured,
        so that it cannot be reached."""
        if self._configured.match(name) is not None:
            return False
        self._at[name] = broker, node
        self._owners[name] = client
        return True

    def over(self, name: str) -> None:
        """Remove one whose link has ended."""
        self._at.pop(name, None)
        self._owners.pop(name, None)

    def own(self, address: RoutedAddress, link: LinkRecord) -> None:
        """Record one of the router's own, which exists until `link` ends."""
        address.temporary = True
        self._own[link] = address
        self.given(link, address.key[2:])

    def link_over(self, link: LinkRecord) -> None:
        """Remove the router's own one of an ended link, if it has one."""
        name = self._names.pop(link, None)
        if name is not None:
            self._owners.pop(name, None)
        address = self._own.pop(link, None)
        if address is not None:
            address.temporary = False
            others: list[Producer | Destination] = [*address.ins, *address.outs]
            for other in others:
                other.detach(AmqpError(RESOURCE_DELETED, "the client that made this address has gone"))
