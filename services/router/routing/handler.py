"""Passes reports of the engine to the records of connections and links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from enmasse.amqp.codec.errors import RESOURCE_LIMIT_EXCEEDED, AmqpError, LoginError
from enmasse.amqp.codec.performatives import TransactionalState
from enmasse.amqp.connection import Connection
from enmasse.amqp.endpoint import LinkSession
from enmasse.amqp.handler import Handler
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.receiver import Partial
from enmasse.amqp.sasl.layer import SaslServer
from enmasse.amqp.session import Session
from enmasse.amqp.sole_connection import refuse_second, wants_sole
from enmasse.identity.processes.relayed_client import asks_to_relay
from services.router.routing.attaches import Attaches
from services.router.routing.connection import LinkRecord, RouterConnection, stated_address
from services.router.routing.links.size_limit import refuse_size
from services.router.routing.links.streaming import Stream
from services.router.routing.router import Router


class RouterHandler(Handler):
    """One for all connections; a connection's context is its RouterConnection, a link's its LinkRecord."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self._attaches = Attaches(router)

    # Connections

    def on_open(self, c: Connection) -> None:
        connection: RouterConnection = c.context
        remote = c.remote_open
        assert remote is not None
        connection.container = remote.container_id
        connection.properties = dict(remote.properties or {})
        if c.sasl is not None:
            connection.mechanism = c.sasl.mechanism
            connection.authenticated = c.sasl.done
        if connection.dir == "in":
            try:
                if connection.denied:
                    raise AmqpError(RESOURCE_LIMIT_EXCEEDED, "connection disallowed by local policy")
                if connection.admit is not None:
                    connection.rights = connection.admit(c.user or "")
                    connection.take_turns()
                relay, connection.relay = connection.relay, None
                if relay is not None and asks_to_relay(remote):
                    relay()
                    return
                if wants_sole(remote) and self.router.is_known(connection.known_as):
                    raise refuse_second(c, remote)
            except AmqpError as error:
                connection.refused("connect", error)
                connection.told = True
                c.close(error)
                return
        self.router.add_connection(connection)
        # Links of ours must not overtake our own open.
        self.router.clock.call_soon(lambda: self._opened(connection))

    def _opened(self, connection: RouterConnection) -> None:
        if not connection.closed:
            if connection.on_opened is not None:
                connection.on_opened()
            self.router.connection_opened(connection)

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        connection: RouterConnection = c.context
        own = c.own_error
        connection.close_error = error
        if own is None and isinstance(c.sasl, SaslServer) and c.sasl.unchosen:
            offered = ", ".join(c.sasl.unchosen)
            own = LoginError(f"the client left when it was offered {offered}: it has no user and password for them")
        if connection.dir == "in" and own is not None and not connection.told:
            connection.refused("close" if connection.opened_at is not None else "connect", own)
        if not connection.closed:
            self.router.connection_closed(connection)
            if connection.dir == "in" and not connection.denied:
                self.router.policy.socket_closed()
            if connection.on_closed is not None:
                connection.on_closed()
        c.context = None  # they refer to each other

    def on_end(self, s: Session, error: AmqpError | None) -> None:
        """Do nothing: the links of the session were reported before."""

    # Links

    def on_attach(self, link: Link) -> None:
        try:
            self._attaches.attach(link)
        except AmqpError as error:
            _note_refused(link, error)
            link.refuse(error)

    def on_attached(self, link: Link) -> None:
        self.router.changes += 1
        record: LinkRecord | None = link.context
        if record is not None:
            record.attached()

    def on_flow(self, link: Sender) -> None:
        record: LinkRecord | None = link.context
        if record is not None:
            record.flow()

    def on_drained(self, link: Receiver) -> None:
        record: LinkRecord | None = link.context
        if record is not None:
            record.drained()

    def on_partial(self, link: Receiver, delivery: Partial) -> None:
        record: LinkRecord = link.context
        limit = link.max_message_size
        if limit and delivery.size > limit and not delivery.aborted:
            refuse_size(link, delivery.delivery_id, delivery.settled, delivery.transaction)
        elif isinstance(delivery.context, Stream):
            delivery.context.pump()
        else:
            record.partial(delivery)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        record: LinkRecord | None = link.context
        if record is None:
            return
        if state is None and settled:
            record.lost(tokens)
        else:
            record.outcomes(tokens, state, settled)

    def on_transactional(
        self, link: Sender, tokens: list[Any], delivery_ids: Sequence[int], state: TransactionalState, settled: bool
    ) -> None:
        record: LinkRecord | None = link.context
        if record is not None:
            record.transactional(tokens, delivery_ids, state, settled)

    def on_work_refused(self, session: LinkSession, txn_id: bytes, error: AmqpError) -> None:
        connection: RouterConnection | None = session.connection.context
        if connection is not None:
            connection.fail_transaction(txn_id, error)

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        record: LinkRecord | None = link.context
        if record is not None:
            record.sender_settled(delivery_ids)

    def on_failed(self, link: Link, error: AmqpError) -> None:
        record: LinkRecord | None = link.context
        connection: RouterConnection | None = link.session.connection.context
        if connection is not None:
            connection.refused("close", error, stated_address(link))
        if record is not None and record.link is link and link.attached:
            record.detach(error)
        else:
            link.detach(error)

    def on_fault(self, s: LinkSession, link: Link | None, error: AmqpError) -> None:
        connection: RouterConnection | None = s.connection.context
        if connection is not None and connection.dir == "in":
            connection.refused("close", error, "" if link is None else stated_address(link))

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        self.router.changes += 1
        record: LinkRecord | None = link.context
        link.context = None
        if record is not None:
            lost = link.session.ended or link.session.connection.state == "closed"
            record.detached(error, closed, lost)


def _note_refused(link: Link, error: AmqpError) -> None:
    connection: RouterConnection = link.session.connection.context
    connection.refused("receive" if link.is_sender else "send", error, stated_address(link))
