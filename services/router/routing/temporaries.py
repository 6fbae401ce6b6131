"""Temporary queues and topics: made at a broker for a client's dynamic terminus, and reached by everybody while its
link lives. The router's own, for routers without brokers, are addresses that store nothing.
"""

from __future__ import annotations

from enmasse.amqp.errors import RESOURCE_DELETED, AmqpError
from services.router.routing.address import RoutedAddress
from services.router.routing.configured import ConfiguredAddresses
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.destination import Destination
from services.router.routing.producer import Producer


class Temporaries:
    """Those at brokers, by the name the broker gave; and the router's own, by the link that made them."""

    def __init__(self, configured: ConfiguredAddresses) -> None:
        self._configured = configured
        self._at: dict[str, RouterConnection] = {}
        self._own: dict[LinkRecord, RoutedAddress] = {}

    def broker_of(self, name: str) -> RouterConnection | None:
        """Where the temporary queue or topic of this name lies."""
        return self._at.get(name)

    def made(self, name: str, broker: RouterConnection) -> bool:
        """A broker has made one. False: its name is one of the configuration's, and cannot be reached."""
        if self._configured.match(name) is not None:
            return False
        self._at[name] = broker
        return True

    def over(self, name: str) -> None:
        """The link that made it has ended."""
        self._at.pop(name, None)

    def own(self, address: RoutedAddress, link: LinkRecord) -> None:
        """The router's own one is there for everybody until `link` ends."""
        address.temporary = True
        self._own[link] = address

    def link_over(self, link: LinkRecord) -> None:
        """Any link of the router has ended."""
        address = self._own.pop(link, None)
        if address is not None:
            address.temporary = False
            others: list[Producer | Destination] = [*address.ins, *address.outs]
            for other in others:
                other.detach(AmqpError(RESOURCE_DELETED, "whoever made this address has gone"))
