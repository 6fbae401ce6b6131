"""Links for an anonymous sender's messages to brokers: one for each client link and broker, also anonymous.

So each keeps its client's name (for subscribers with `no-local`), and a broker that takes nothing blocks no other
client.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from enmasse.amqp.codec.performatives import Source, Target
from enmasse.amqp.link import Sender
from enmasse.amqp.termini import passed_on_name, stated
from enmasse.identity.login import SPACES
from services.router.routing.addresses.address import RoutedAddress
from services.router.routing.addresses.addresses import Addresses
from services.router.routing.addresses.deliveries import Token
from services.router.routing.configuration import BALANCED
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.links.out_link import OutLink

CAPABILITY = "ANONYMOUS-RELAY"


MAX_LINKS = 256
"""Links of one sender to single addresses; one that is idle gives way."""


def relays(broker: RouterConnection) -> bool:
    """Return True if the broker takes messages for all its addresses on one link."""
    return CAPABILITY in broker.offered


def _ignore() -> None: ...


class RelayOut(OutLink):
    """The link to the broker. Its address is private: no other link sends to it or finds it.

    Presettled deliveries do not use up the credit of their sender. So if too many wait here, the sender gets no further
    credit until the broker has taken some. If the broker takes none between two looks, the oldest are dropped, as for
    every receiver, so that it blocks no other client.
    """

    __slots__ = ("_ended", "_relays", "_seen", "_stalled")
    faces_client = False

    @property
    def idle(self) -> bool:
        """True if nothing waits, and nothing that was sent has no outcome."""
        return not self.queue and self.stream is None and not self.sender.unsettled

    def __init__(self, relays: Relays, broker: RouterConnection, sender: Sender, address: RoutedAddress) -> None:
        super().__init__(broker, sender, address)
        self._relays = relays
        self._seen = -1  # deliveries sent at the last look
        self._stalled = False
        self._ended = False

    @property
    def usable(self) -> bool:
        """True while the link and its connection exist and no detach has begun."""
        return not self.sender.detached and self.connection.usable and self.identity in self.connection.links

    def offer(self, payload: Any, token: Token | None, message_format: int) -> None:
        """Send or keep a delivery. When many presettled ones wait, the client's credit is taken back until the broker
        has taken some."""
        if token is None and not self._stalled and len(self.queue) >= self.capacity:
            self._relays.hold_for(self)
            if len(self.queue) < 2 * self.capacity:  # credit that was granted before
                self._keep((payload, token, message_format))
                return
        super().offer(payload, token, message_format)

    def look(self, now: float, stuck: set[LinkRecord]) -> None:
        """Note whether the broker has taken any delivery since the last look; if not, the client gets credit again."""
        super().look(now, stuck)
        self._stalled = self._seen == self.sender.deliveries
        self._seen = self.sender.deliveries
        if self._stalled:
            self._relays.proceed(self)

    def gone(self) -> None:
        """Also give the client credit again: this link no longer holds it back."""
        super().gone()
        self._relays.proceed(self)

    def _nothing_waits(self) -> None:
        super()._nothing_waits()
        self._relays.proceed(self)

    def end(self) -> None:
        """End this link once it has sent its deliveries, because the client's link has ended."""
        self._ended = True
        self.flow()

    def flow(self) -> None:
        """Also give the client credit when half of the room is free, and end the link once it is to end and empty."""
        super().flow()
        if self.sender.deliveries != self._seen:
            self._stalled = False
        if len(self.queue) <= self.capacity // 2:
            self._relays.proceed(self)
        if self._ended and not self.queue and self.stream is None and self.sender.attached:
            self.connection.detach(self)


class Relays:
    """The links of one anonymous sender to the brokers it sends to.

    `withhold` and `grant` stop and restart its credit. It has no credit while too many messages wait for a link
    (`_held`). `space`: of its messages, empty: the default one. At a broker that knows no spaces, and would look for
    `to` in the default one, each address has a link of its own.
    """

    __slots__ = ("_addresses", "_client", "_grant", "_held", "_outs", "_space", "_withhold")

    def __init__(
        self,
        client: RouterConnection,
        addresses: Addresses,
        withhold: Callable[[], None],
        grant: Callable[[], None],
        space: str,
    ) -> None:
        self._client = client
        self._space = space
        self._addresses = addresses
        self._withhold = withhold
        self._grant = grant
        self._held: set[RelayOut] = set()
        self._outs: dict[tuple[RouterConnection, str | None], RelayOut] = {}

    def to(self, broker: RouterConnection, name: str) -> RelayOut:
        """Return the link to this broker for messages to the address that it calls `name`. Raises AmqpError if it
        cannot be opened."""
        alone = broker.is_neighbour or (self._space and SPACES not in broker.offered)
        target = name if alone else None  # a router passes on links to addresses
        out = self._outs.get((broker, target))
        if out is None or not out.usable:
            if len(self._outs) >= MAX_LINKS:
                self._make_room()
            out = self._outs[broker, target] = self._attach(broker, target)
        return out

    def _make_room(self) -> None:
        self._outs = {key: out for key, out in self._outs.items() if out.usable}
        spare = next((key for key, out in self._outs.items() if out.idle), None)
        if spare is not None and len(self._outs) >= MAX_LINKS:
            self._outs.pop(spare).end()

    def _attach(self, broker: RouterConnection, target: str | None) -> RelayOut:
        session = broker.session_for_links(receiving=False)
        name = passed_on_name(f"relay.{secrets.token_urlsafe(11)}", self._client.known_as)
        client = self._client
        states = stated({}, client.sender, self._space if target is None else "", client.shown_to_brokers)
        sender: Any = session.attach_sender(name, Source(), Target(address=target), properties=states)
        address = self._addresses.new("R" + name, BALANCED)
        out = sender.context = RelayOut(self, broker, sender, address)
        broker.add(out)
        broker.receivers += 1
        address.add_store(out)
        session.connection.wake()
        return out

    def hold_for(self, out: RelayOut) -> None:
        """Withhold credit because of this link to a broker."""
        if not self._held:
            self._withhold()
        self._held.add(out)

    def proceed(self, out: RelayOut) -> None:
        """Stop withholding credit because of this link."""
        if out in self._held:
            self._held.discard(out)
            if not self._held:
                self._grant()

    def end(self) -> None:
        """End the links, because the client's link has ended; its hooks are released, which refer to it."""
        self._held.clear()
        self._withhold = self._grant = _ignore
        outs, self._outs = self._outs, {}
        for out in outs.values():
            out.end()
