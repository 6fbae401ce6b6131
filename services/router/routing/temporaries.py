"""Temporary queues and topics: made at a broker for a client's dynamic terminus, and reached by everybody while its
link lives. The router's own, where there is no broker at all, are addresses that store nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from enmasse.amqp.errors import RESOURCE_DELETED, AmqpError
from services.router.routing.address import Address
from services.router.routing.links import InLink, OutLink

if TYPE_CHECKING:
    from services.router.routing.connections import RouterConnection
    from services.router.routing.core import Router


class Temporaries:
    """Those at brokers, by the name the broker gave; and the router's own, by the link that made them."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._at: dict[str, RouterConnection] = {}
        self._own: dict[InLink | OutLink, Address] = {}
        self._turn = 0

    def maker(self, brokers: Iterable[RouterConnection], kind: str) -> RouterConnection | None:
        """The broker that is to make one; None: no broker is configured. Raises AmqpError if none is connected."""
        connected = [broker for broker in brokers if broker.usable]
        if connected:
            self._turn += 1
            return connected[self._turn % len(connected)]
        if not self._router.has_brokers:
            return None
        raise AmqpError(
            "qd:no-route-to-dest",
            f"a temporary {kind} lies at a broker, and none is connected at the moment: try again",
        )

    def broker_of(self, name: str) -> RouterConnection | None:
        """Where the temporary queue or topic of this name lies."""
        return self._at.get(name)

    def made(self, name: str, broker: RouterConnection) -> bool:
        """A broker has made one. False: its name is one of the configuration's, and cannot be reached."""
        if self._router.configured.match(name) is not None:
            return False
        self._at[name] = broker
        return True

    def over(self, name: str) -> None:
        """The link that made it has ended."""
        self._at.pop(name, None)

    def own(self, address: Address, link: InLink | OutLink) -> None:
        """The router's own one is there for everybody until `link` ends."""
        address.temporary = True
        self._own[link] = address

    def link_gone(self, link: InLink | OutLink) -> None:
        """Any link of the router has ended."""
        address = self._own.pop(link, None)
        if address is not None:
            address.temporary = False
            others: list[InLink | OutLink] = [*address.ins, *address.outs]
            for other in others:
                self._router.detach(other, AmqpError(RESOURCE_DELETED, "whoever made this address has gone"))
