"""The links of an auto-link on one connection: the one it always has, and more for as long as they are needed.

Life of the one: attaching → active (the peer echoed the address) or failed (it detached, `error` is the reason; tried
again after 2 s, then every 5 s while the connection lives).

A link carries one delivery at a time. So a large message that is still on its way in goes to a broker by a link of its
own, and if one from a broker is taken slowly, the queue's other consumers are served by another link meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Protocol

from enmasse.amqp.errors import DETACH_FORCED, AmqpError
from enmasse.amqp.link import Receiver, Sender
from enmasse.amqp.performatives import Source, Target
from services.router.routing.address import WINDOWS, RoutedAddress
from services.router.routing.configuration import AutoLinkConfig
from services.router.routing.connection import LinkRecord, RouterConnection
from services.router.routing.deliveries import Token
from services.router.routing.destination import Detour
from services.router.routing.in_link import InLink
from services.router.routing.out_link import OutLink
from services.router.routing.streaming import AddressStream

FIRST_RETRY = 2.0
RETRY = 5.0
"""Seconds."""
MOST_EXTRAS = 8
"""Links beside the one that an auto-link always has."""
MOST_EXTRAS_OF_CONNECTION = 128
IDLE = 5.0
"""Seconds after which an extra link that has nothing to do is closed."""


class Maker(Protocol):
    """What has made a link to a broker."""

    @property
    def node(self) -> str: ...

    def link_attached(self) -> None: ...

    def link_detached(self, error: Any) -> None: ...

    def widen(self, stuck: set[Any]) -> None: ...

    def detour(self) -> Detour | None: ...


class BrokerFeed(InLink):
    """Deliveries of a broker come in here. A Feed of its address."""

    __slots__ = ("_maker",)
    counted = False

    def __init__(self, maker: Maker, connection: RouterConnection, link: Receiver, address: RoutedAddress) -> None:
        super().__init__(connection, link, address)
        self._maker = maker

    @property
    def node(self) -> str:
        return self._maker.node

    # Credit

    def open_gate(self) -> None:
        if self.address is not None and self.address.is_asked(self):
            return  # the peer is giving back the credit it has; then it gets new
        self.zero_since = None
        self._set_window()

    def _set_window(self) -> None:
        window = self.link.credit_window = self._window()
        if self.address is not None:
            self.address.limits.share = max(1, window // max(1, len(self.address.outs)))

    def _window(self) -> int:
        """Credit for the broker: a window for each consumer there is, so that one which takes messages and never
        settles them holds up its own window and not the queue."""
        if self.address is None:
            return self.capacity
        outs = self.address.outs
        if len(outs) <= WINDOWS:
            return self.capacity * max(1, len(outs))
        waiting = sum(holder.undelivered for holder in self.address.holders)
        delivered = sum(out.load for out in outs) - waiting
        return min(self.capacity * len(outs), max(self.capacity * WINDOWS, delivered + self.capacity))

    def resize(self) -> None:
        if self.zero_since is None:
            self._set_window()

    def ask(self, wanted: int) -> None:
        """The broker is to send what it has, as far as its credit goes, which is at least `wanted` if the window has
        room for it; `drained` follows."""
        more = min(wanted, self._window() - self.link.unsettled) - self.link.credit
        if more > 0:  # credit that is due is not given before the next flush
            self.link.grant(more)
        self.close_gate()

    def drained(self) -> None:
        if self.address is not None and self.address.is_asked(self):
            self.address.answered(self)

    # Life

    def stream_began(self, stream: AddressStream) -> None:
        self.connection.streams.add(stream)  # it is looked at whether it holds up the other queues of the broker

    @property
    def echoed(self) -> bool:
        """The peer answered with the address. A null terminus means that a detach with the reason follows."""
        source = self.link.remote_source
        return source is not None and bool(source.address)

    def is_needed(self, stuck: set[Any], first: BrokerLink | None) -> bool:
        """One of several links: a delivery takes long on this one, or on the `first`."""
        return first in stuck or self in stuck

    def may_close(self) -> bool:
        """One of several links: nothing comes any more. What comes until the broker has answered is delivered."""
        if self.zero_since is None:
            self.close_gate()
        return not self.link.credit and not self.link.unsettled

    def one_less(self) -> None:
        """One of several links, and over: the others divide up the window anew."""
        if self.address is not None:
            for feed in self.address.feeds:
                feed.resize()

    def join_address(self) -> None:
        if self.address is not None:
            self.address.add_feed(self)

    def leave_address(self) -> None:
        if self.address is not None:
            self.address.remove_feed(self)

    def attached(self) -> None:
        self._maker.link_attached()

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        super().detached(error, closed, lost)
        self._maker.link_detached(error)

    def widen(self, stuck: set[Any]) -> None:
        """A delivery takes long on this link; `stuck` are all links of which that is true."""
        self._maker.widen(stuck)

    def _end_second(self, sender: Sender, token: Token) -> None:
        """The broker will settle no more and may deliver the message again: the receiver learns it by the
        end of its link with the delivery unsettled."""
        out: LinkRecord | None = sender.context
        if out is not None:
            what = "the broker of this address went away before it had settled what this receiver accepted"
            out.connection.detach(out, AmqpError(DETACH_FORCED, what))


class BrokerOut(OutLink):
    """Deliveries to a broker go out here."""

    __slots__ = ("_maker",)
    counted = False

    def __init__(self, maker: Maker, connection: RouterConnection, sender: Sender, address: RoutedAddress) -> None:
        super().__init__(connection, sender, address)
        self._maker = maker

    def detour(self) -> Detour | None:
        return self._maker.detour()

    @property
    def echoed(self) -> bool:
        """The peer answered with the address. A null terminus means that a detach with the reason follows."""
        target = self.link.remote_target
        return target is not None and bool(target.address)

    def is_needed(self, stuck: set[Any], first: BrokerLink | None) -> bool:
        """One of several links: it has something to do."""
        return self.busy or bool(self.outstanding)

    def may_close(self) -> bool:
        return True

    def one_less(self) -> None:
        """One of several links, and over: that is nothing to the others."""

    def join_address(self) -> None:
        self.know_limit()
        self.address.add_store(self)
        self.flow()

    def attached(self) -> None:
        self._maker.link_attached()

    def detached(self, error: AmqpError | None, closed: bool, lost: bool) -> None:
        super().detached(error, closed, lost)
        self._maker.link_detached(error)


class BrokerDetour(BrokerOut):
    """One of several links of an auto-link, for a delivery that takes long, and what must not overtake it: none of the
    destinations of its address."""

    __slots__ = ()

    def detour(self) -> Detour | None:
        return None

    def hold(self) -> None:
        """What waits here goes here."""

    def serve_others(self) -> None:
        """It takes what is sent by it, and nothing else."""

    def join_address(self) -> None:
        self.know_limit()
        self.flow()

    def leave_address(self) -> None:
        self.address.egress += self.sent
        self.address.egress_containers += self.sent


BrokerLink = BrokerFeed | BrokerOut


class LiveAutoLink:
    """An auto-link on one connection. `address` finds the address, or makes it."""

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
        self._extras: list[Extra] = []
        self._single = False  # the peer refused to have more than one link
        self._ended = False

    @property
    def node(self) -> str:
        return self.config.node

    def attach(self) -> None:
        """Make the link; called at first and for every new try."""
        if self._ended or not self._connection.usable:
            return
        self.status = "attaching"
        try:
            self.record = self._make(self, self._address())
        except AmqpError as error:
            self.link_detached(error)

    def _make(self, maker: Maker, address: RoutedAddress) -> BrokerLink:
        """Attach a link. Raises AmqpError if the peer allows no more."""
        connection = self._connection
        incoming = self.config.direction == "in"
        name = "qdlink." + secrets.token_urlsafe(11)
        session = connection.session_for_links(receiving=incoming)
        record: BrokerLink
        if incoming:
            receiver = session.attach_receiver(name, Source(address=self.node), Target(), streaming=True)
            record = BrokerFeed(maker, connection, receiver, address)
        else:
            sender = session.attach_sender(name, Source(), Target(address=self.node))
            kind = BrokerOut if maker is self else BrokerDetour
            record = kind(maker, connection, sender, address)
        record.link.context = record
        connection.add(record)
        connection.amqp.wake()
        return record

    def link_attached(self) -> None:
        record = self.record
        if record is not None and record.echoed:
            record.join_address()
            self.status = "active"
            self.error = None
            self._tries = 0

    def link_detached(self, error: Any) -> None:
        """The peer took the link away."""
        self.record = None
        if self._connection.closed or self._ended:
            return
        self.status = "failed"
        self.error = "" if error is None else str(error.description or error.condition)
        delay = RETRY if self._tries else FIRST_RETRY
        self._tries += 1
        self._connection.owner.clock.call_later(delay, self.attach)

    def end(self) -> None:
        """The auto-link has been deleted."""
        self._ended = True
        for extra in list(self._extras):
            extra.close()
        if self.record is not None:
            record, self.record = self.record, None
            self._connection.detach(record)

    def connection_closed(self) -> None:
        self.record = None
        self._extras.clear()

    # More links

    def _add(self) -> Extra | None:
        """One more link; None: there are as many as there may be."""
        connection, record = self._connection, self.record
        if self._single or record is None or record.address is None or not connection.usable:
            return None
        if len(self._extras) >= MOST_EXTRAS or len(connection.extras) >= MOST_EXTRAS_OF_CONNECTION:
            return None
        extra = Extra(self)
        try:
            extra.record = self._make(extra, record.address)
        except AmqpError:
            return None
        self._extras.append(extra)
        connection.extras[extra] = None
        return extra

    def detour(self) -> Detour | None:
        """A link for a delivery that may take long; None: there is only the one."""
        outs = [extra.record for extra in self._extras if isinstance(extra.record, BrokerOut)]
        free = next((out for out in outs if not out.busy), None)
        if free is not None:
            return free
        extra = self._add()
        if extra is not None and isinstance(extra.record, BrokerOut):
            return extra.record
        return min(outs, key=lambda out: len(out.queue), default=None)

    def widen(self, stuck: set[Any]) -> None:
        """Links on which a delivery takes long are `stuck`: if all are, and a consumer is ready, there is one more."""
        record = self.record
        if record is None or record.address is None:
            return
        links = [record, *(extra.record for extra in self._extras)]
        if all(link in stuck for link in links) and any(out.ready for out in record.address.outs):
            self._add()

    def extra_gone(self, extra: Extra, refused: bool) -> bool:
        """One of the other links has ended. `refused`: it never was attached, and the peer is not asked for more links
        on this connection. False: that was known."""
        if extra not in self._extras:
            return False
        self._extras.remove(extra)
        self._connection.extras.pop(extra, None)
        self._single = self._single or refused
        return True


class Extra:
    """One more link of `live`."""

    __slots__ = ("_attached_once", "_idle_since", "_live", "record")
    record: BrokerLink

    def __init__(self, live: LiveAutoLink) -> None:
        self._live = live
        self._attached_once = False
        self._idle_since: float | None = None

    @property
    def node(self) -> str:
        return self._live.node

    def link_attached(self) -> None:
        if self.record.echoed:
            self._attached_once = True
            self.record.join_address()

    def link_detached(self, error: Any) -> None:
        if self._live.extra_gone(self, refused=not self._attached_once):
            self.record.one_less()

    def detour(self) -> Detour | None:
        return None

    def widen(self, stuck: set[Any]) -> None:
        self._live.widen(stuck)

    def look(self, now: float, stuck: set[Any]) -> None:
        """Close it when it is not needed any more. To be called once a second."""
        record = self.record
        if not self._attached_once or record.is_needed(stuck, self._live.record):
            self._idle_since = None
            return
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= IDLE and record.may_close():
            self.close()

    def close(self) -> None:
        """Nothing is on it any more, or nothing of it is wanted."""
        self.link_detached(None)
        self.record.connection.detach(self.record)
