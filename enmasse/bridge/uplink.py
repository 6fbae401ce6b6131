"""A connection to the router that keeps itself connected. Its users attach their links when it is up, each time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from enmasse.aio.live_follower import LiveLink
from enmasse.aio.transport import Hub, dial
from enmasse.amqp.codec.errors import CONNECTION_FORCED, AmqpError, no_transactions
from enmasse.amqp.codec.performatives import TransactionalState
from enmasse.amqp.connection import Connection
from enmasse.amqp.handler import Handler
from enmasse.amqp.limits import INNER_LIMITS
from enmasse.amqp.link import Link, Receiver, Sender
from enmasse.amqp.sasl.layer import AnonymousClient, SaslClient
from enmasse.amqp.termini import SPACE
from enmasse.identity.processes.credentials import AnyCredential
from enmasse.identity.processes.scram import of_process
from enmasse.logs import log
from enmasse.network.backoff import ReconnectBackoff
from enmasse.network.reconnect import keep_connected
from enmasse.process.places import SILENCE, Address, Places
from enmasse.text import endpoint

if TYPE_CHECKING:
    from enmasse.tracing.spans import Tracing

OPENING = 10.0
FAILURES = (AmqpError, OSError, TimeoutError)
"""Errors of a connection that is tried again."""


class LinkUser:
    """Callbacks for the owner of a link (the link's `context`)."""

    def on_attached(self, link: Link) -> None:
        """Handle the peer's answer. A null terminus announces a detach with the reason."""

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """Handle the end of the link, possibly with the connection."""

    def on_flow(self, link: Sender) -> None:
        """Handle new credit."""

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        """As Handler.on_outcomes."""

    def on_transactional(
        self, link: Sender, tokens: list[Any], delivery_ids: Sequence[int], state: TransactionalState, settled: bool
    ) -> None:
        """As Handler.on_transactional."""
        raise no_transactions()

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        """As Handler.on_settled."""

    def on_drained(self, link: Receiver) -> None:
        """As Handler.on_drained."""

    def failed(self, error: Exception) -> None:
        """Handle an error that a callback has raised. If it is raised again, the engine ends the link; the owner of a
        link that serves one client ends that client's connection instead."""
        raise error


class _Handler(Handler):
    def __init__(self, uplink: Uplink) -> None:
        self._uplink = uplink

    def on_open(self, c: Connection) -> None:
        self._uplink.opened()

    def on_close(self, c: Connection, error: AmqpError | None) -> None:
        self._uplink.closed(error)

    def on_attach(self, link: Link) -> None:
        source = link.remote_source
        if isinstance(link, Sender) and self._uplink.followers is not None and source is not None:
            link.accept(source)
            link.context = _Follower(link, self._uplink.followers)
        else:
            super().on_attach(link)

    def on_attached(self, link: Link) -> None:
        user = link.context
        try:
            user.on_attached(link)
        except Exception as error:
            user.failed(error)

    def on_detach(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        user = link.context
        if user is not None:
            try:
                user.on_detach(link, error)
            except Exception as failure:
                user.failed(failure)

    def on_flow(self, link: Sender) -> None:
        if link.drain:
            link.drained()
        link.context.on_flow(link)

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        link.context.on_outcomes(link, tokens, state, settled)

    def on_transactional(
        self, link: Sender, tokens: list[Any], delivery_ids: Sequence[int], state: TransactionalState, settled: bool
    ) -> None:
        link.context.on_transactional(link, tokens, delivery_ids, state, settled)

    def on_settled(self, link: Receiver, delivery_ids: Sequence[int]) -> None:
        user = link.context
        try:
            user.on_settled(link, delivery_ids)
        except Exception as error:
            user.failed(error)

    def on_drained(self, link: Receiver) -> None:
        user = link.context
        try:
            user.on_drained(link)
        except Exception as error:
            user.failed(error)


class _Follower(LiveLink):
    """A follower of the live state, as this handler calls the users of links."""

    def on_flow(self, link: Sender) -> None:
        """Do nothing: the next look sends."""

    def on_outcomes(self, link: Sender, tokens: list[Any], state: Any, settled: bool) -> None:
        """Do nothing: messages are settled."""

    def on_detach(self, link: Link, error: AmqpError | None) -> None:
        """The link has ended."""
        self.detached(closed=True)

    def failed(self, error: Exception) -> None:
        """Do nothing: the engine has reported it."""


class Uplink:
    """The connection to one of the routers, under this container-id. `up` is called with each new one. `hub`
    counts the exceptions of its handlers, over all connections. `credential`: that of this process; None: the router
    takes anonymous peers. `followers`: those of the gateway's live state, whose links come here; None: it offers
    none. `traces`: of messages; None: they are not traced. `space`: address space that it carries messages of, by which
    both ends take turns; empty: of none, or of the default one."""

    def __init__(
        self,
        hub: Hub,
        routers: Places,
        container: str,
        up: Callable[[Connection], None],
        credential: AnyCredential | None = None,
        followers: set[LiveLink] | None = None,
        traces: Tracing | None = None,
        space: str = "",
    ) -> None:
        self.connected = False
        self._space = space
        self._hub = hub
        self._routers = routers
        self._peer = routers.first
        self._container = container
        self._up = up
        self._credential = credential
        self.followers = followers
        self._traces = traces
        self._open: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None

    async def run(self) -> NoReturn:
        """Keep the connection up until cancelled."""
        now = asyncio.get_running_loop().time
        await keep_connected(
            self._connection,
            self._session,
            self._failed,
            failures=FAILURES,
            backoff=ReconnectBackoff(now()),
            now=now,
        )

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        self._peer = self._routers.first
        connection, self._peer = await self._routers.dial(self._dialled, FAILURES)
        try:
            yield connection
        except FAILURES:
            self._routers.lost(self._peer)
            raise
        finally:
            await self._ended(connection)

    async def _dialled(self, address: Address) -> tuple[Connection, Address]:
        """Return an open connection to the router at this address. Raises one of FAILURES."""
        loop, host = asyncio.get_running_loop(), address[0]
        self._open = opened = loop.create_future()
        self._gone = gone = loop.create_future()
        own = self._credential
        connection = Connection(
            _Handler(self),
            container_id=self._container,
            is_client=True,
            hostname=host,
            sasl=SaslClient([AnonymousClient() if own is None else of_process(own)], host),
            idle_timeout_ms=int(SILENCE * 1000),
            limits=INNER_LIMITS,
            properties={SPACE: self._space} if self._space else None,
        )
        connection.inner, connection.tenant = True, self._space
        if self._traces is not None:
            connection.session_type = self._traces.session
        try:
            async with asyncio.timeout(OPENING):
                tls = None if own is None else own.tls()
                await dial(self._hub, *address, connection, tls)
                await asyncio.wait((opened, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                gone.result()
        except BaseException:
            await self._ended(connection)
            raise
        return connection, address

    async def _ended(self, connection: Connection) -> None:
        """Close a connection, and wait a moment until it is."""
        gone = self._gone
        assert gone is not None
        connection.close()
        if not gone.done():
            await asyncio.wait((gone,), timeout=1.0)
        if gone.done() and not gone.cancelled():
            gone.exception()

    async def _session(self, connection: Connection) -> None:
        assert self._gone is not None
        self.connected = True
        self._up(connection)
        await asyncio.shield(self._gone)

    async def _failed(self, error: Exception) -> None:
        logger = log.get(peer=endpoint(*self._peer))
        logger.info("gateway.router.unreachable", reason=str(error))

    # for the handler

    def opened(self) -> None:
        """Handle the router's open."""
        if self._open is not None and not self._open.done():
            self._open.set_result(None)

    def closed(self, error: AmqpError | None) -> None:
        """Handle the end of the connection, also of one that could not be opened."""
        self.connected = False
        if self._gone is not None and not self._gone.done():
            self._gone.set_exception(error or AmqpError(CONNECTION_FORCED, "the connection is closed"))
