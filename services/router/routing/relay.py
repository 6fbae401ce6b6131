"""The links on which an anonymous sender's messages go to brokers: one for each client link and broker, anonymous too.

So each keeps its client's name (a subscriber that wants nothing of its own connection is not served by it), and what a
broker does not take holds up nobody else.
"""

from __future__ import annotations

import secrets
from typing import Any

from enmasse.amqp.link import Sender
from enmasse.amqp.performatives import Source, Target
from services.router.routing.address import RoutedAddress
from services.router.routing.addresses import Addresses
from services.router.routing.configuration import BALANCED
from services.router.routing.connection import RouterConnection
from services.router.routing.out_link import OutLink

CAPABILITY = "ANONYMOUS-RELAY"


def relays(broker: RouterConnection) -> bool:
    """Does it take messages for any of its addresses on one link?"""
    opened = broker.amqp.remote_open
    return opened is not None and CAPABILITY in (opened.offered_capabilities or ())


class RelayOut(OutLink):
    """The link to the broker. Its address is its own: nobody else sends to it or finds it."""

    __slots__ = ("_ended",)

    def __init__(self, broker: RouterConnection, sender: Sender, address: RoutedAddress) -> None:
        super().__init__(broker, sender, address)
        self._ended = False

    def end(self) -> None:
        """The client's link is over: this one ends when it has sent what it has."""
        self._ended = True
        self.flow()

    def flow(self) -> None:
        super().flow()
        if self._ended and not self.queue and self.stream is None and self.sender.attached:
            self.connection.detach(self)


class Relays:
    """The links of one anonymous sender to the brokers it sends to."""

    __slots__ = ("_addresses", "_client", "_outs")

    def __init__(self, client: RouterConnection, addresses: Addresses) -> None:
        self._client = client
        self._addresses = addresses
        self._outs: dict[RouterConnection, RelayOut] = {}

    def to(self, broker: RouterConnection) -> RoutedAddress:
        """The address whose messages go to this broker. Raises AmqpError if no link to it can be made."""
        out = self._outs.get(broker)
        if out is None or out.sender.detached or out.identity not in broker.links:
            out = self._outs[broker] = self._attach(broker)
        return out.address

    def _attach(self, broker: RouterConnection) -> RelayOut:
        session = broker.session_for_links(receiving=False)
        name = f"relay.{secrets.token_urlsafe(11)}@{self._client.container}"
        sender: Any = session.attach_sender(name, Source(), Target())
        address = self._addresses.new("R" + name, BALANCED)
        out = sender.context = RelayOut(broker, sender, address)
        broker.add(out)
        broker.receivers += 1
        address.add_store(out)
        session.connection.wake()
        return out

    def end(self) -> None:
        """The client's link is over."""
        outs, self._outs = self._outs, {}
        for out in outs.values():
            out.end()
