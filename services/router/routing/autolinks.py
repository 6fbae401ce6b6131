"""Auto-links: links the router makes itself to a route container, so that a broker's queue takes part in an address.

Life of one on one connection: attaching → active (the peer echoed the address) or failed (it detached, `last_error`
tells why; tried again after 2 s, then every 5 s while the connection lives). Without a connection it is inactive.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from enmasse.amqp.errors import AmqpError
from enmasse.amqp.performatives import Source, Target
from services.router.routing import extras
from services.router.routing.configuration import AutoLinkConfig
from services.router.routing.extras import Extra
from services.router.routing.links import InLink, OutLink

if TYPE_CHECKING:
    from services.router.routing.address import Address
    from services.router.routing.connections import RouterConnection
    from services.router.routing.core import Router

FIRST_RETRY = 2.0
RETRY = 5.0


class AutoLink:
    """A configured auto-link and its links, one for each matching connection."""

    __slots__ = ("config", "deleted", "links")

    def __init__(self, config: AutoLinkConfig) -> None:
        self.config = config
        self.links: tuple[LiveAutoLink, ...] = ()
        self.deleted = False

    @property
    def status(self) -> str:
        if self.deleted:
            return "quiescing"
        states = [link.status for link in self.links]
        return next((s for s in ("active", "attaching", "failed") if s in states), "inactive")

    @property
    def last_error(self) -> str | None:
        return next((link.error for link in self.links if link.error is not None), None)

    @property
    def link_ref(self) -> str | None:
        return next((str(link.record.identity) for link in self.links if link.record is not None), None)


class LiveAutoLink:
    """An auto-link on one connection."""

    __slots__ = ("autolink", "connection", "error", "extras", "record", "single", "status", "tries")

    def __init__(self, autolink: AutoLink, connection: RouterConnection) -> None:
        self.autolink = autolink
        self.connection = connection
        self.record: InLink | OutLink | None = None
        self.status = "attaching"
        self.error: str | None = None
        self.tries = 0
        self.extras: list[Extra] = []
        self.single = False  # the peer refused to have more than one link

    def attach(self) -> None:
        """Make the link; called at first and for every new try."""
        autolink = self.autolink
        connection = self.connection
        if autolink.deleted or not connection.usable:
            return
        router = connection.router
        self.status = "attaching"
        try:
            self.record = self._make(router.address_of_autolink(autolink))
        except AmqpError as error:
            self.detached(error)
            return
        self.record.auto = self

    def _make(self, address: Address) -> InLink | OutLink:
        """Attach a link. Raises AmqpError where the peer allows no more."""
        autolink, connection = self.autolink, self.connection
        router = connection.router
        incoming = autolink.config.direction == "in"
        name = "qdlink." + secrets.token_urlsafe(11)
        peer_address = autolink.config.node
        session = connection.session_for_links(receiving=incoming)
        record: InLink | OutLink
        if incoming:
            receiver = session.attach_receiver(name, Source(address=peer_address), Target(), streaming=True)
            record = InLink(router.next_identity(), connection, receiver, address)
        else:
            sender = session.attach_sender(name, Source(), Target(address=peer_address))
            record = OutLink(router.next_identity(), connection, sender, address)
        record.link.context = record
        connection.links[record.identity] = record
        session.connection.wake()
        return record

    # More links (extras.py)

    def _add(self) -> Extra | None:
        """One more link; None: there are as many as there may be."""
        connection, record = self.connection, self.record
        if self.single or record is None or record.address is None or not connection.usable:
            return None
        if len(self.extras) >= extras.MOST or len(connection.extras) >= extras.MOST_OF_CONNECTION:
            return None
        try:
            return Extra(self, self._make(record.address))
        except AmqpError:
            return None

    def detour(self) -> OutLink | None:
        """A link for a delivery that may take long; None: there is only the one."""
        outs = [extra.record for extra in self.extras if isinstance(extra.record, OutLink)]
        free = next((out for out in outs if not out.busy), None)
        if free is not None:
            return free
        extra = self._add()
        if extra is not None and isinstance(extra.record, OutLink):
            return extra.record
        return min(outs, key=lambda out: len(out.queue), default=None)

    def widen(self, stuck: set[Any]) -> None:
        """Links on which a delivery takes long are `stuck`: if all are, and a consumer is ready, there is one more."""
        record = self.record
        if record is None or record.address is None:
            return
        links = [record, *(extra.record for extra in self.extras)]
        if all(link in stuck for link in links) and any(out.ready for out in record.address.outs):
            self._add()

    def attached(self) -> None:
        """The peer answered; a null terminus means that a detach with the reason follows."""
        record = self.record
        if record is None:
            return
        if isinstance(record, InLink):
            source = record.link.remote_source
            if source is None or not source.address:
                return
            record.address.add_in(record)  # type: ignore[union-attr]
        else:
            target = record.link.remote_target
            if target is None or not target.address:
                return
            record.know_limit()
            record.address.add_out(record)
            record.flow()
        self.status = "active"
        self.error = None
        self.tries = 0

    def detached(self, error: Any) -> None:
        """The peer took the link away."""
        self.record = None
        if self.connection.closed or self.autolink.deleted:
            return
        self.status = "failed"
        self.error = "" if error is None else str(error.description or error.condition)
        delay = RETRY if self.tries else FIRST_RETRY
        self.tries += 1
        self.connection.router.clock.call_later(delay, self.attach)


class AutoLinks:
    """All configured auto-links, found by name, by identity and by the connection they want."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.by_name: dict[str, AutoLink] = {}
        self.by_identity: dict[int, AutoLink] = {}
        self._by_container: dict[str, dict[AutoLink, None]] = {}
        self._by_connection: dict[str, dict[AutoLink, None]] = {}

    def _bucket(self, config: AutoLinkConfig) -> tuple[dict[str, dict[AutoLink, None]], str] | None:
        if config.container_id:
            return self._by_container, config.container_id
        if config.connection:
            return self._by_connection, config.connection
        return None

    def add(self, config: AutoLinkConfig) -> AutoLink:
        """Raises ValueError if the name is taken."""
        if config.name in self.by_name:
            raise ValueError("Name conflicts with an existing entity")
        autolink = AutoLink(config)
        self.by_name[config.name] = autolink
        self.by_identity[config.identity] = autolink
        self.router.address_of_autolink(autolink).pins += 1
        where = self._bucket(config)
        if where is not None:
            where[0].setdefault(where[1], {})[autolink] = None
            for connection in self.router.containers(config.container_id, config.connection):
                self._activate(autolink, connection)
        return autolink

    def remove(self, autolink: AutoLink) -> None:
        del self.by_name[autolink.config.name]
        del self.by_identity[autolink.config.identity]
        autolink.deleted = True
        where = self._bucket(autolink.config)
        if where is not None:
            bucket = where[0][where[1]]
            del bucket[autolink]
            if not bucket:
                del where[0][where[1]]
        for live in autolink.links:
            live.connection.autolinks.pop(autolink, None)
            for extra in list(live.extras):
                extra.close()
            if live.record is not None:
                record, live.record = live.record, None
                self.router.detach(record)
        autolink.links = ()
        address = self.router.address_of_autolink(autolink)
        address.pins -= 1
        self.router.tidy(address)

    def connection_opened(self, connection: RouterConnection) -> None:
        """A route container is there: make the links it is wanted for."""
        wanted = list(self._by_container.get(connection.container, ()))
        if connection.name:
            wanted += self._by_connection.get(connection.name, ())
        for autolink in wanted:
            self._activate(autolink, connection)

    def connection_closed(self, connection: RouterConnection) -> None:
        for autolink, live in connection.autolinks.items():
            live.record = None
            live.extras.clear()
            autolink.links = tuple(other for other in autolink.links if other is not live)
        connection.autolinks.clear()
        connection.extras.clear()

    def _activate(self, autolink: AutoLink, connection: RouterConnection) -> None:
        live = LiveAutoLink(autolink, connection)
        autolink.links += (live,)
        connection.autolinks[autolink] = live
        live.attach()
