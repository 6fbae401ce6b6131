"""The asyncio skin of the engine: Hub, serve and dial. Works on uvloop and on asyncio's own loops.

A Hub belongs to one loop. It knows which connections have output, writes each once at the end of the read (or of the
turn) in which it got some, and gives all of them the time by one coarse timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import socket
import ssl as ssl_module
from collections.abc import Callable
from typing import Any, cast

from enmasse import log as logs
from enmasse.amqp import errors
from enmasse.amqp.connection import Connection
from enmasse.amqp.errors import AmqpError

log = logs.get(part="amqp")

_FINE = 0.02  # seconds between two ticks of a hub at least
_HIGH_WATER = 512 * 1024  # bytes in the socket's write buffer at which a connection is blocked
_LOW_WATER = 64 * 1024

TlsContext = ssl_module.SSLContext | None


class Hub:
    """Flushes connections and gives them the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.wires: set[Wire] = set()
        self._dirty: list[Wire] = []
        self._reading = False
        self._scheduled = False
        self.per_turn = False
        """Write at the end of the turn, not of the read: fewer and larger writes where many peers feed each other."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadlines: list[tuple[int, int, Wire]] = []
        self._deadlines_made = 0

    @property
    def connections(self) -> list[Connection]:
        return [wire.connection for wire in self.wires]

    def flush(self) -> None:
        """Write what connections have to say. Runs by itself; call it only to write before the turn ends."""
        self._scheduled = False
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for wire in dirty:
                wire.write()

    def _mark(self, wire: Wire) -> None:
        self._dirty.append(wire)
        if not self._scheduled and (self.per_turn or not self._reading):
            self._scheduled = True
            self.loop.call_soon(self.flush)

    def _plan(self, wire: Wire) -> None:
        """Tick this wire when its deadline has come. One entry per deadline; stale ones are dropped when due."""
        self._deadlines_made += 1
        heapq.heappush(self._deadlines, (wire.deadline_ms, self._deadlines_made, wire))
        self._arm()

    def _arm(self) -> None:
        if not self._deadlines:
            return
        at = max(self._deadlines[0][0] / 1000, self.loop.time() + _FINE)
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = int(self.loop.time() * 1000)
        deadlines = self._deadlines
        due: list[Wire] = []
        while deadlines and deadlines[0][0] <= now_ms:
            deadline, _, wire = heapq.heappop(deadlines)
            if wire.deadline_ms == deadline and wire in self.wires:
                due.append(wire)
        for wire in due:
            wire.tick(now_ms)
        self._arm()


class Wire(asyncio.Protocol):
    """One socket and its connection."""

    def __init__(self, hub: Hub, connection: Connection) -> None:
        self.hub = hub
        self.connection = connection
        self.transport: asyncio.Transport | None = None
        self.deadline_ms = 0
        self.peer = ""
        self._closing = False
        self._state = ""
        connection.on_dirty = self._on_dirty
        connection.on_spill = self._on_spill
        connection.on_reading = self._on_reading
        self._receive = connection.receive

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's are none by inheritance
        self.transport = transport
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=_HIGH_WATER, low=_LOW_WATER)
        self.peer = _peer_name(transport)
        self.hub.wires.add(self)
        if self.connection.is_client:
            self.connection.open()
        self._plan_tick()
        if self.connection._dirty:
            self._on_dirty(self.connection)

    def data_received(self, data: bytes) -> None:
        hub = self.hub
        hub._reading = True
        try:
            self._receive(data)
        except Exception as error:
            self._broken(error)
        finally:
            hub._reading = False
        if hub._dirty and not hub.per_turn:
            hub.flush()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.hub.wires.discard(self)
        self.transport = None
        error = None
        if exc is not None:
            error = AmqpError(errors.CONNECTION_FORCED, f"the connection to {self.peer} was lost: {exc}")
        try:
            self.connection.transport_closed(error)
        except Exception as failure:
            log.error("amqp.handler-failed", peer=self.peer, exc_info=failure)
        self.connection.let_go()

    def pause_writing(self) -> None:
        self.connection.set_blocked(True)

    def resume_writing(self) -> None:
        try:
            self.connection.set_blocked(False)
        except Exception as error:
            self._broken(error)

    # --- the connection's hooks ---------------------------------------------------------------------------------------

    def _on_dirty(self, _: Connection) -> None:
        if self.transport is not None:
            self.hub._mark(self)

    def _on_spill(self, connection: Connection) -> None:
        """Much output in one turn: hand it to the socket now, dispositions can wait."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            out = connection.out
            data = b"".join(out)
            out.clear()
            transport.write(data)

    def _on_reading(self, connection: Connection) -> None:
        transport = self.transport
        if transport is not None and not transport.is_closing():
            with contextlib.suppress(RuntimeError):
                if connection.reading_paused:
                    transport.pause_reading()
                else:
                    transport.resume_reading()

    # --- the hub's calls ----------------------------------------------------------------------------------------------

    def write(self) -> None:
        connection = self.connection
        transport = self.transport
        if transport is None:
            return
        try:
            data = connection.take_output()
        except Exception as error:
            self._broken(error)
            data = connection.take_output()
        if connection.state != self._state:
            self._plan_tick()  # other deadlines hold from now on
        if data and not transport.is_closing():
            transport.write(data)
            if connection.blocked and transport.get_write_buffer_size() > connection.limits.max_buffered:
                size = transport.get_write_buffer_size()
                log.warning("amqp.peer-does-not-read", peer=self.peer, buffered=size)
                self._drop(AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, f"the peer leaves {size} bytes unread"))
        if connection.finished and not self._closing:
            self._closing = True
            transport.close()
            # a peer that does not read what is left must not keep the socket
            self.hub.loop.call_later(connection.limits.close_timeout_ms / 1000, self._abort)

    def tick(self, now_ms: int) -> None:
        try:
            due = self.connection.tick(now_ms)
        except Exception as error:
            self._broken(error)
            due = None
        self.deadline_ms = now_ms + 3_600_000 if due is None else max(due, now_ms + 1)
        self.hub._plan(self)

    def _plan_tick(self) -> None:
        self._state = self.connection.state
        self.tick(int(self.hub.loop.time() * 1000))

    def _drop(self, error: AmqpError) -> None:
        self._abort()
        self.connection.transport_closed(error)

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _broken(self, error: Exception) -> None:
        """A handler raised: the connection cannot be trusted any more."""
        if isinstance(error, AmqpError):
            told = error
        else:
            log.error("amqp.handler-failed", peer=self.peer, exc_info=error)
            told = AmqpError(errors.INTERNAL_ERROR, "this connection met an internal error")
        try:
            self.connection.close(told)
        except Exception as failure:
            log.error("amqp.handler-failed", peer=self.peer, exc_info=failure)
            self._abort()


class Server:
    """A listening socket. `port` is the one that was bound. `close` ends listening, and with `connections` the
    connections that came by it, each with amqp:connection:forced."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.port = 0
        self.wires: set[Wire] = set()
        self._server: asyncio.Server | None = None

    def close(self, connections: bool = True) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if connections:
            for wire in [w for w in self.wires if w in self.hub.wires]:
                wire.connection.close(AmqpError(errors.CONNECTION_FORCED, "the server is shutting down"))
        self.wires.clear()

    async def wait_closed(self, timeout: float = 5.0) -> None:
        """Wait until every connection of the hub has gone, at most `timeout` seconds."""
        deadline = self.hub.loop.time() + timeout
        while self.hub.wires and self.hub.loop.time() < deadline:
            await asyncio.sleep(0.01)


async def serve(
    hub: Hub,
    host: str,
    port: int,
    factory: Callable[[Any], Connection],
    ssl: TlsContext = None,
    *,
    backlog: int = 1024,
) -> Server:
    """Listen on host and port (0: any free one). `factory(peer)` makes the Connection of each client; `peer` has
    `.address` ("host:port"), `.certificate` (subject's common name of a verified client certificate, or None), `.tls`
    and `.ssl` (the TLS connection, for more of the certificate). Raises OSError where the port is in use."""
    server = Server(hub)

    def protocol() -> asyncio.Protocol:
        return _Accepting(hub, server, factory)

    server._server = await hub.loop.create_server(protocol, host, port, ssl=ssl, backlog=backlog)
    server.port = server._server.sockets[0].getsockname()[1]
    return server


class Peer:
    """Who has connected, as far as the socket knows."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.address = _peer_name(transport)
        self.ssl: ssl_module.SSLObject | None = transport.get_extra_info("ssl_object")
        self.tls = self.ssl is not None
        self.certificate: str | None = None
        certificate = transport.get_extra_info("peercert")
        if certificate:
            for part in certificate.get("subject", ()):
                for name, value in part:
                    if name == "commonName":
                        self.certificate = value


class _Accepting(asyncio.Protocol):
    """Until the factory can be asked: it wants to know the peer, who is known once the socket is there."""

    def __init__(self, hub: Hub, server: Server, factory: Callable[[Any], Connection]) -> None:
        self._hub = hub
        self._server = server
        self._factory = factory

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        try:
            connection = self._factory(Peer(transport))
        except Exception as error:
            log.error("amqp.accept-failed", exc_info=error)
            transport.abort()
            return
        wire = _ServedWire(self._hub, connection, self._server)
        transport.set_protocol(wire)
        wire.connection_made(transport)


class _ServedWire(Wire):
    def __init__(self, hub: Hub, connection: Connection, server: Server) -> None:
        super().__init__(hub, connection)
        self._server = server
        server.wires.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.wires.discard(self)
        super().connection_lost(exc)


async def dial(
    hub: Hub,
    host: str,
    port: int,
    connection: Connection,
    ssl: TlsContext = None,
    *,
    timeout: float | None = 10.0,
    server_hostname: str | None = None,
) -> Wire:
    """Connect a client connection; returns when the socket (and TLS) is up, `on_open` tells when AMQP is. Raises
    OSError or TimeoutError. Reconnecting is the caller's business, with a new Connection."""
    if not connection.is_client:
        raise ValueError("dial needs a Connection with is_client=True")
    name = (server_hostname or host) if ssl is not None else None
    async with asyncio.timeout(timeout):
        _, wire = await hub.loop.create_connection(
            lambda: Wire(hub, connection), host, port, ssl=ssl, server_hostname=name
        )
    return wire


def _peer_name(transport: asyncio.BaseTransport) -> str:
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else str(name or "?")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop where there is one, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
