"""Connecting, staying connected, and listening."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from enmasse.control.connection import HANDSHAKE, MAX_FRAME, ControlConnection
from enmasse.control.errors import UNAUTHORIZED_ACCESS, ConnectionLost, ControlError
from enmasse.control.sasl_layer import SaslLayer
from enmasse.identity.processes import roles
from enmasse.identity.processes.credentials import AnyCredential, AnyPeers, Peers
from enmasse.identity.processes.peer_check import PeerCheck
from enmasse.identity.processes.process_certificates import CertifiedPeers
from enmasse.identity.processes.refusals import log_handshake
from enmasse.logs import log
from enmasse.network import reconnect, tls_handshake
from enmasse.network.acceptor import Acceptor
from enmasse.network.backoff import CONTROL, ReconnectBackoff
from enmasse.network.port_sockets import listening
from enmasse.process import runner
from enmasse.process.places import Address, Places
from enmasse.text import endpoint

MAX_CONNECTIONS = 1024
BACKLOG = 256


async def connect(
    host: str,
    port: int,
    *,
    container: str,
    prepare: Callable[[ControlConnection], None] | None = None,
    credential: AnyCredential | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float = 5.0,
    **options: Any,
) -> ControlConnection:
    """Return an open connection. `prepare` sets its callbacks first. `options` are those of ControlConnection.

    `credential`: that of this process, by which both sides prove themselves: SCRAM-SHA-256, or TLS and EXTERNAL, and
    nothing else.

    Raises ConnectionLost if no peer listens, the peer refuses, or it takes longer than `timeout` seconds.
    """
    loop = asyncio.get_running_loop()
    connection: ControlConnection | None = None

    def make() -> ControlConnection:
        nonlocal connection
        login = None if credential is None else lambda *_: SaslLayer(credential)
        connection = ControlConnection(container=container, server=False, hostname=host, login=login, **options)
        if prepare is not None:
            prepare(connection)
        return connection

    try:
        async with asyncio.timeout(timeout):
            own = None if credential is None else credential.tls()
            await loop.create_connection(make, host, port, ssl=own or tls)
            assert connection is not None
            await connection.opened()
    except TimeoutError:
        if connection is not None:
            connection.abort()
        raise ConnectionLost("timeout", f"{host}:{port} did not answer within {timeout} seconds") from None
    except ssl.SSLError as error:
        raise ConnectionLost(UNAUTHORIZED_ACCESS, f"{host}:{port}: TLS: {error}") from None
    except OSError as error:
        raise ConnectionLost("connection refused", f"{host}:{port}: {error}") from None
    except asyncio.CancelledError:
        if connection is not None:
            connection.abort()
        raise
    return connection


async def keep_connected(
    host: str,
    port: int,
    session: Callable[[ControlConnection], Awaitable[None]],
    *,
    container: str,
    prepare: Callable[[ControlConnection], None] | None = None,
    **options: Any,
) -> None:
    """Connect, run `session(connection)` while the connection lives, and reconnect, with a back-off up to two seconds.

    `session` is cancelled when the connection is lost; when it returns, the connection is closed and a new one opened.
    Runs until cancelled.
    """
    await keep_connected_to(Places((host, port)), session, container=container, prepare=prepare, **options)


async def keep_connected_to(
    places: Places,
    session: Callable[[ControlConnection], Awaitable[None]],
    *,
    container: str,
    prepare: Callable[[ControlConnection], None] | None = None,
    **options: Any,
) -> None:
    """As `keep_connected`, to one of these places."""
    logger = log.get(peer=endpoint(*places.first))
    told = False

    async def dialled(address: Address) -> tuple[ControlConnection, Address]:
        return await connect(*address, container=container, prepare=prepare, **options), address

    @contextlib.asynccontextmanager
    async def connected() -> AsyncIterator[ControlConnection]:
        nonlocal told, logger
        logger = log.get(peer=endpoint(*places.first))
        connection, address = await places.dial(dialled, (ConnectionLost,))
        logger = log.get(peer=endpoint(*address))
        told = False
        try:
            yield connection
        finally:
            if connection.is_gone:
                places.lost(address)
            connection.close()

    async def failed(error: Exception) -> None:
        nonlocal told
        if isinstance(error, ConnectionLost) and error.condition == UNAUTHORIZED_ACCESS and not told:
            told = True
            logger.warning("control.connection.refused", reason=error.description)
        else:
            logger.debug("control.connection.failed", reason=str(error))

    await reconnect.keep_connected(
        connected,
        lambda connection: _run_session(connection, session, logger),
        failed,
        failures=(ConnectionLost,),
        backoff=ReconnectBackoff(time.monotonic(), CONTROL),
        now=time.monotonic,
    )


async def _run_session(
    connection: ControlConnection, session: Callable[[ControlConnection], Awaitable[None]], logger: log.Log
) -> None:
    work = asyncio.ensure_future(session(connection))
    gone = asyncio.ensure_future(connection.wait_closed())
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            logger.info("control.connection.lost", reason=str(connection.error))
            work.cancel()
        await runner.join(work)
    except ControlError as error:
        logger.info("control.conversation.ended", reason=str(error))
    except Exception as error:
        rest = error.split(ControlError)[1] if isinstance(error, ExceptionGroup) else error
        if rest is None:  # of tasks of the session
            logger.info("control.conversation.ended", reason=str(_first(error)))
        else:
            logger.error("control.conversation.failed", exc_info=rest)
    finally:
        work.cancel()
        gone.cancel()


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class Listener:
    """Listening sockets and the connections that they have accepted. `make` gives the protocol of a new connection."""

    def __init__(
        self,
        sockets: list[socket.socket],
        connections: set[ControlConnection],
        make: Callable[[], ControlConnection],
        tls: ssl.SSLContext | None,
        most: int,
        following: asyncio.Task[Any] | None,
    ) -> None:
        """`most`: connections; half as many may not have opened yet. `following`: reads the file of peers."""
        self._following = following
        self.connections = connections
        self.host, self.port = sockets[0].getsockname()[:2]
        self._loop = asyncio.get_running_loop()
        self._make = make
        self._tls = tls
        self._most = most
        self._handshakes: set[asyncio.Task[None]] = set()
        self._acceptor = Acceptor(self._loop, sockets, self._take, handshakes=-(-most // 2))

    async def close(self) -> None:
        """Stop listening, and close every connection with a close that states the reason."""
        if self._following is not None:
            self._following.cancel()
        self._acceptor.close()
        for task in self._handshakes:
            task.cancel()
        waiting = [connection.wait_closed() for connection in self.connections]
        for connection in list(self.connections):
            connection.close("amqp:connection:forced", "shutting down")
        if waiting:
            await asyncio.gather(*waiting)

    def _take(self, sock: socket.socket) -> Callable[[], None]:
        if len(self.connections) >= self._most:
            sock.close()
            self._loop.call_soon(self._acceptor.done, sock)
            return lambda: None
        connection = self._make()
        task = runner.spawn(self._connect(sock, connection), "handshake")
        self._handshakes.add(task)

        def ended(_: object) -> None:
            self._handshakes.discard(task)
            if connection.is_open or connection.is_gone:
                return
            if connection.peer:
                connection.abort()
            else:
                connection.connection_lost(None)

        task.add_done_callback(ended)

        def drop() -> None:
            task.cancel()

        return drop

    async def _connect(self, sock: socket.socket, connection: ControlConnection) -> None:
        def refused(address: str, error: OSError) -> None:
            log_handshake(address, error)
            connection.connection_lost(error)

        try:
            if await tls_handshake.accept(
                lambda: connection, sock, self._tls, refused, patience=HANDSHAKE, shutdown=HANDSHAKE
            ):
                with contextlib.suppress(ConnectionLost):
                    await connection.opened()
        finally:
            self._acceptor.done(sock)


async def listen(
    host: str,
    port: int,
    accepted: Callable[[ControlConnection], None],
    *,
    container: str,
    peers: tuple[roles.Listener, AnyPeers] | None = None,
    tls: ssl.SSLContext | None = None,
    setting: str = "listen",
    max_connections: int = MAX_CONNECTIONS,
    **options: Any,
) -> Listener:
    """Listens; `accepted(connection)` sets the callbacks of each new connection. Further options are Connection's.

    `peers`: the listener in the table of roles, and the processes that may connect. Each has to prove itself before its
    open, by SCRAM-SHA-256 or by its certificate, and is then the connection's `identity`. None: any peer may connect,
    and none has an identity.

    Raises process.Fatal when the port cannot be had (`setting`: where it is configured).
    """
    connections: set[ControlConnection] = set()
    login: Callable[[str, Any], SaslLayer] | None = None
    secrets: Peers | None = None
    if peers is not None:
        place, known = peers
        secrets = known if isinstance(known, Peers) else None
        tls = known.tls if isinstance(known, CertifiedPeers) else tls

        def login(address: str, certificate: Any) -> SaslLayer:
            return SaslLayer(PeerCheck(place, secrets, address, certificate))

    def make() -> ControlConnection:
        connection = ControlConnection(container=container, server=True, login=login, **options)
        connections.add(connection)
        accepted(connection)
        then = connection.on_closed

        def closed(error: ConnectionLost) -> None:
            connections.discard(connection)
            if then is not None:
                then(error)

        connection.on_closed = closed
        return connection

    try:
        sockets = await listening(asyncio.get_running_loop(), host, port, BACKLOG)
    except OSError as error:
        raise runner.cannot_listen(f"{host}:{port}", error, setting) from None
    following = None if secrets is None else runner.spawn(secrets.follow(), "file of peers")
    return Listener(sockets, connections, make, tls, max_connections, following)


__all__ = ["MAX_FRAME", "Listener", "connect", "keep_connected", "listen"]
