"""The links of an auto-link on one connection: a permanent one, and additional ones while they are needed.

States of the permanent one: attaching → active (the peer echoed the address) or failed (it detached, `error` is the
reason; tried again after 2 s, then every 5 s while the connection lives).

A link carries one delivery at a time. So a large message that is still arriving goes to a broker over a link of its
own, and while a consumer takes one from a broker slowly, the queue's other consumers are served by another link.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from enmasse.amqp.codec.errors import DETACH_FORCED, AmqpError
from enmasse.amqp.codec.performatives import Rejected, Target
from enmasse.amqp.codec.performatives import Source as Terminus
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.delivery import Outgoing
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.receiver import Partial
from enmasse.amqp.termini import CLIENT, SENDER
from enmasse.model.names import space_of, space_prefix
from services.router.routing.addresses.address import WINDOWS, RoutedAddress
from services.router.routing.addresses.deliveries import Source, Token, is_whole
from services.router.routing.addresses.destination import StreamDestination
from services.router.routing.configuration import AutoLinkConfig
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.links.annotations import LocalNames
from services.router.routing.links.in_link import InLink
from services.router.routing.links.out_link import OutLink
from services.router.routing.links.streaming import AddressStream

FIRST_RETRY = 2.0
RETRY = 5.0
"""Seconds between two attempts to attach."""
MOST_EXTRAS = 8
"""Most additional links of an auto-link."""
MOST_EXTRAS_OF_CONNECTION = 128
IDLE = 5.0
"""Seconds of idleness after which an additional link is closed."""


class BrokerFeed(InLink):
    """Receives the deliveries of a broker; a Feed of its address."""

    __slots__ = ("_maker",)
    counted = faces_client = False
    is_queue = True

    def __init__(
        self, maker: LiveAutoLink | ExtraLink, connection: RouterConnection, link: Receiver, address: RoutedAddress
    ) -> None:
        super().__init__(connection, link, address)
        self._maker = maker
        prefix = space_prefix(space_of(address.key[2:]))
        if prefix:
            self.strip = LocalNames(prefix).strip

    @property
    def node(self) -> str:
        """Address of the link at the broker."""
        return self._maker.node

    # Credit

    def open_gate(self) -> None:
        """Grant credit by the number of consumers, unless the answer to a drain is awaited."""
        if self.address is not None and self.address.is_asked(self):
            return  # the peer is returning its credit; then it gets new credit
        self.zero_since = None
        self._set_window()

    def _set_window(self) -> None:
        window = self.link.credit_window = self._window()
        if self.address is not None:
            self.address.limits.share = max(1, window // max(1, self.address.windows))

    def _window(self) -> int:
        """Return the broker's credit: the windows of each consumer, so that a consumer that never settles blocks its
        own and not the queue."""
        if self.address is None:
            return self.capacity
        outs, windows = self.address.outs, max(1, self.address.windows)
        if windows <= WINDOWS:
            return self.capacity * windows
        waiting = sum(holder.undelivered for holder in self.address.holders)
        delivered = sum(out.load for out in outs) - waiting
        return min(self.capacity * windows, max(self.capacity * WINDOWS, delivered + self.capacity))

    def resize(self) -> None:
        """Adapt the credit to the number of consumers, if the link has any."""
        if self.zero_since is None:
            self._set_window()

    def expect(self, waiting: int) -> None:
        """As for other links. Among many consumers, those that do not settle may have taken all credit."""
        super().expect(waiting)
        if self.address is not None and self.address.windows > WINDOWS:
            self.resize()

    def ask(self, wanted: int) -> None:
        """Drain the broker's link with a credit of at least `wanted`, if the window has room for it; `drained`
        follows."""
        more = min(wanted, self._window() - self.link.unsettled) - self.link.credit
        if more > 0:  # due credit is granted by the next flush
            self.link.grant(more)
        self.close_gate()

    def ask_waiting(self) -> int | None:
        """Return how many messages wait at the broker, as it stated last (None: not yet), and ask it again."""
        self.link.ask_queued()
        self.link.session.connection.wake()
        return self.link.queued

    def drained(self) -> None:
        """Report to the address that the broker has sent its messages, if a consumer asked for that."""
        if self.address is not None and self.address.is_asked(self):
            self.address.answered(self)

    # Life

    def stream_began(self, stream: AddressStream) -> None:
        """Watch this delivery: it may block other queues of the broker."""
        self.connection.streams.add(stream)  # watched, because it may block the other queues of the broker

    @property
    def echoed(self) -> bool:
        """Return True if the peer's attach has the address. A null terminus announces a detach with the reason."""
        source = self.link.remote_source
        return source is not None and bool(source.address)

    def is_needed(self, stuck: set[LinkRecord], first: BrokerLink | None) -> bool:
        """Return True if this additional link is needed: a delivery takes long on it, or on the `first` link."""
        return first in stuck or self in stuck

    def may_close(self) -> bool:
        """Return True if this additional link may close. Deliveries that arrive until the broker's answer are
        delivered."""
        if self.zero_since is None:
            self.close_gate()
        return not self.link.credit and not self.link.unsettled

    def one_less(self) -> None:
        """Redistribute the window over the other links after this additional link has closed."""
        if self.address is not None:
            for feed in self.address.feeds:
                feed.resize()

    def join_address(self) -> None:
        """Add the link to the producers of its address."""
        if self.address is not None:
            self.address.add_feed(self)

    def leave_address(self) -> None:
        """Remove the link from the producers of its address."""
        if self.address is not None:
            self.address.remove_feed(self)

    def attached(self) -> None:
        """Report the broker's answer to the auto-link."""
        self._maker.link_attached()

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        """Report the detach to the auto-link, which attaches again."""
        super().detached(error, closed, lost)
        self._maker.link_detached(error)

    def widen(self, stuck: set[LinkRecord]) -> None:
        """Add a link because a delivery takes long on this one; `stuck`: all such links."""
        self._maker.widen(stuck)

    def gone(self) -> None:
        """As for other links. Receivers that settle in a second step lose their links if they have a delivery of the
        broker, also one without an outcome: over the same link its copy would be a message of its own for them."""
        outs = [] if self.address is None else list(self.address.outs)
        super().gone()
        for out in outs:
            if isinstance(out, OutLink) and out.is_in_doubt(self):
                self._end(out)

    def _end_second(self, sender: Sender, token: Token) -> None:
        """End a receiver's link whose delivery the broker can no longer settle and may deliver again: the receiver
        learns this from the end of its link with the delivery unsettled."""
        out: LinkRecord | None = sender.context
        if out is not None:
            self._end(out)

    def _end(self, out: LinkRecord) -> None:
        what = "the broker of this address was lost before it had settled what this receiver has"
        out.connection.detach(out, AmqpError(DETACH_FORCED, what))


class BrokerOut(OutLink):
    """Sends deliveries to a broker, for many clients: the tags of its deliveries end with the sender, if there is
    one."""

    __slots__ = ("_maker", "_number")
    counted = faces_client = False
    names_senders = True

    def __init__(
        self, maker: LiveAutoLink | ExtraLink, connection: RouterConnection, sender: Sender, address: RoutedAddress
    ) -> None:
        super().__init__(connection, sender, address)
        self._maker = maker
        self._number = 0

    def tag(self, source: Source) -> bytes | None:
        """As for other links. In front of the sender stand five bytes: in the tags of a run there are four."""
        if not source.sender:
            return None
        self._number = (self._number + 1) & 0xFFFFFFFF
        return b"s%b%b" % (self._number.to_bytes(4), source.sender)

    def _put(self, payload: Any, token: Token | None, message_format: int) -> None:
        if token is None or not token[0].sender or not is_whole(payload) or 0 < self.limit < len(payload):
            super()._put(payload, token, message_format)
        else:
            self.sender.send(payload, token, tag=self.tag(token[0]), message_format=message_format)

    def outcomes(self, tokens: list[Token], state: Any, settled: bool) -> None:
        """As for other links. That the broker has refused messages is an event of their clients here: it does not know
        them."""
        if settled and type(state) is Rejected and state.error is not None:
            error = state.error.exception()
            for source, _ in tokens:
                source.refused(error)
        super().outcomes(tokens, state, settled)

    def begin_stream(self, token: Token | None, partial: Partial) -> Outgoing:
        """As for other links."""
        tag = None if token is None else self.tag(token[0])
        return self.sender.begin(token, settled=token is None, tag=tag, message_format=partial.message_format)

    def detour(self) -> StreamDestination | None:
        """Return another link to the same broker for a delivery that may take long; None: use this link."""
        return self._maker.detour()

    @property
    def echoed(self) -> bool:
        """Return True if the peer's attach has the address. A null terminus announces a detach with the reason."""
        target = self.link.remote_target
        return target is not None and bool(target.address)

    def is_needed(self, stuck: set[LinkRecord], first: BrokerLink | None) -> bool:
        """Return True if this additional link has deliveries."""
        return self.busy or bool(self.outstanding)

    def may_close(self) -> bool:
        """Return True: an idle additional link to a broker may close at once."""
        return True

    def one_less(self) -> None:
        """Do nothing: the credit of the other links does not depend on this one."""

    def join_address(self) -> None:
        """Add the link to the destinations of its address, as one that stores."""
        self.know_limit()
        self.address.add_store(self)
        self.flow()

    def attached(self) -> None:
        """Report the broker's answer to the auto-link."""
        self._maker.link_attached()

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        """Report the detach to the auto-link, which attaches again."""
        super().detached(error, closed, lost)
        self._maker.link_detached(error)


class BrokerDetour(BrokerOut):
    """Additional link of an auto-link, for a delivery that takes long and for later ones, which must not overtake it.
    The address does not choose it as a destination."""

    __slots__ = ()

    def detour(self) -> StreamDestination | None:
        """Return None: this link is the detour."""
        return None

    def hold(self) -> None:
        """Do nothing: deliveries that wait here go only to this broker."""

    def serve_others(self) -> None:
        """Do nothing: only this link's own deliveries are sent on it."""

    def join_address(self) -> None:
        """Send what waits; the address does not choose this link."""
        self.know_limit()
        self.flow()

    def leave_address(self) -> None:
        """Add the deliveries of the ended link to the counters of the address."""
        self.address.egress += self.sent
        self.address.egress_containers += self.sent


BrokerLink = BrokerFeed | BrokerOut


class LiveAutoLink:
    """An auto-link on one connection. `address` finds or creates the address."""

    __slots__ = (
        "_address",
        "_connection",
        "_ended",
        "_extras",
        "_single",
        "_tries",
        "config",
        "error",
        "record",
        "status",
    )

    def __init__(
        self, config: AutoLinkConfig, connection: RouterConnection, address: Callable[[], RoutedAddress]
    ) -> None:
        self.config = config
        self.record: BrokerLink | None = None
        self.status = "attaching"
        self.error: str | None = None
        self._connection = connection
        self._address = address
        self._tries = 0
        self._extras: list[ExtraLink] = []
        self._single = False  # the peer refused an additional link
        self._ended = False

    @property
    def node(self) -> str:
        """Address of the links at the broker."""
        return self.config.node

    def attach(self) -> None:
        """Open the permanent link; called first and for every new attempt."""
        if self._ended or not self._connection.usable:
            return
        self.status = "attaching"
        try:
            self.record = self._make(self, self._address())
        except AmqpError as error:
            self.link_detached(error)

    def _make(self, maker: LiveAutoLink | ExtraLink, address: RoutedAddress) -> BrokerLink:
        """Attach a link. Raises AmqpError if the peer allows no further one."""
        connection = self._connection
        incoming = self.config.direction == "in"
        name = "qdlink." + secrets.token_urlsafe(11)
        session = connection.session_for_links(receiving=incoming)
        record: BrokerLink
        if incoming:
            receiver = session.attach_receiver(name, Terminus(address=self.node), Target(), streaming=True)
            record = BrokerFeed(maker, connection, receiver, address)
        else:
            states = {Symbol(SENDER): True, Symbol(CLIENT): []}
            sender = session.attach_sender(name, Terminus(), Target(address=self.node), properties=states)
            kind = BrokerOut if maker is self else BrokerDetour
            record = kind(maker, connection, sender, address)
        record.link.context = record
        connection.add(record)
        connection.amqp.wake()
        return record

    def link_attached(self) -> None:
        """Handle the answer to the attach: active, unless its null terminus announces a detach."""
        record = self.record
        if record is not None and record.echoed:
            record.join_address()
            self.status = "active"
            self.error = None
            self._tries = 0

    def link_detached(self, error: Any) -> None:
        """Handle a detach by the peer."""
        self.record = None
        if self._connection.closed or self._ended:
            return
        self.status = "failed"
        self.error = "" if error is None else str(error.description or error.condition)
        delay = RETRY if self._tries else FIRST_RETRY
        self._tries += 1
        self._connection.owner.clock.call_later(delay, self.attach)

    def end(self) -> None:
        """End the links, because the auto-link was deleted."""
        self._ended = True
        for extra in list(self._extras):
            extra.close()
        if self.record is not None:
            record, self.record = self.record, None
            self._connection.detach(record)

    def connection_closed(self) -> None:
        """Forget all links of the connection, which has closed."""
        self.record = None
        self._extras.clear()

    # Additional links

    def _add(self) -> ExtraLink | None:
        """Open an additional link; None if the maximum is reached."""
        connection, record = self._connection, self.record
        if self._single or record is None or record.address is None or not connection.usable:
            return None
        if len(self._extras) >= MOST_EXTRAS or len(connection.extras) >= MOST_EXTRAS_OF_CONNECTION:
            return None
        extra = ExtraLink(self)
        try:
            extra.record = self._make(extra, record.address)
        except AmqpError:
            return None
        self._extras.append(extra)
        connection.extras[extra] = None
        return extra

    def detour(self) -> StreamDestination | None:
        """Return a link for a delivery that may take long; None if there is only the permanent one."""
        outs = [extra.record for extra in self._extras if isinstance(extra.record, BrokerOut)]
        free = next((out for out in outs if not out.busy), None)
        if free is not None:
            return free
        extra = self._add()
        if extra is not None and isinstance(extra.record, BrokerOut):
            return extra.record
        return min(outs, key=lambda out: len(out.queue), default=None)

    def widen(self, stuck: set[LinkRecord]) -> None:
        """Open an additional link if all links are `stuck` (a delivery takes long on them) and a consumer is ready."""
        record = self.record
        if record is None or record.address is None:
            return
        links = [record, *(extra.record for extra in self._extras)]
        if all(link in stuck for link in links) and any(out.ready for out in record.address.outs):
            self._add()

    def extra_gone(self, extra: ExtraLink, refused: bool) -> bool:
        """Record the end of an additional link. `refused`: the peer refused it, so no further ones are opened on this
        connection. Return False if the end was known."""
        if extra not in self._extras:
            return False
        self._extras.remove(extra)
        self._connection.extras.pop(extra, None)
        self._single = self._single or refused
        return True


class ExtraLink:
    """An additional link of `live`."""

    __slots__ = ("_attached_once", "_idle_since", "_live", "record")
    record: BrokerLink

    def __init__(self, live: LiveAutoLink) -> None:
        self._live = live
        self._attached_once = False
        self._idle_since: float | None = None

    @property
    def node(self) -> str:
        """Address of the link at the broker."""
        return self._live.node

    def link_attached(self) -> None:
        """Handle the answer to the attach: join the address, unless a null terminus announces a detach."""
        if self.record.echoed:
            self._attached_once = True
            self.record.join_address()

    def link_detached(self, error: Any) -> None:
        """Handle a detach by the peer. If it came before the link was usable, no further ones are opened."""
        if self._live.extra_gone(self, refused=not self._attached_once):
            self.record.one_less()

    def detour(self) -> StreamDestination | None:
        """Return None: this link is the detour."""
        return None

    def widen(self, stuck: set[LinkRecord]) -> None:
        """Open another additional link if all are `stuck` (a delivery takes long on them)."""
        self._live.widen(stuck)

    def look(self, now: float, stuck: set[LinkRecord]) -> None:
        """Close the link if it is no longer needed. Called once a second."""
        record = self.record
        if not self._attached_once or record.is_needed(stuck, self._live.record):
            self._idle_since = None
            return
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= IDLE and record.may_close():
            self.close()

    def close(self) -> None:
        """Close the link, which is idle or whose deliveries are no longer needed."""
        self.link_detached(None)
        self.record.connection.detach(self.record)
