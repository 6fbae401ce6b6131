"""The asyncio skin of the engine: Hub, serve and dial. Works on uvloop and on asyncio's own loops.

A Hub belongs to one loop. It knows which connections have output, writes each once at the end of the read (or of the
turn) in which it got some, and gives all of them the time by one coarse timer.

A turn of the loop does a bounded amount of work for one connection. The rest of the bytes it sent waits for later
turns, and its socket is not read meanwhile; those that wait take turns, the others are read before them. A connection
that has not opened yet always waits, so that many that come at once share what one may take.

Connections of clients may belong to tenants (`Connection.tenant`). Those of one tenant share a bounded amount of work
too, and tenants that wait take turns: the number of connections of one does not matter to another.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import socket
import ssl as ssl_module
import weakref
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, cast

from enmasse.amqp.codec import errors
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.connection import Connection
from enmasse.logs import log as logs
from enmasse.network import fair_turns, tls_handshake
from enmasse.network.acceptor import Acceptor
from enmasse.network.cut_links import BEAT, CUT_OFF, LOOK, CutLink, link_of
from enmasse.network.fair_turns import InTurn, Tenant, Turns
from enmasse.network.peer_names import peer_name
from enmasse.network.port_sockets import listening
from enmasse.network.tls_transport import read_much

log = logs.get(part="amqp")

_FINE = 0.02  # seconds between two ticks of a hub at least
_HIGH_WATER = 512 * 1024  # bytes in the socket's write buffer at which a connection is blocked
_LOW_WATER = 64 * 1024
_LOOK_AT_UNREAD = 1.0  # seconds between two looks at what a peer leaves unread, once that is much
_SHARE = 0.005  # seconds of work for one connection, before others have a go
_TLS_HANDSHAKE = 10.0  # seconds; as `Limits.handshake_timeout_ms` for what follows it
_TLS_SHUTDOWN = 5.0  # seconds a peer has to answer a close_notify
_CLOSING = 5.0  # seconds that connections have to go
_BACKLOG = 1024
_FEW_DEADLINES = 64

TlsContext = ssl_module.SSLContext | None


class Hub:
    """Flushes connections and gives them the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self.wires: set[Wire] = set()
        self._dirty: list[Wire] = []
        self._unwritten: InTurn[Wire] = InTurn()
        """Wires with output that wait for the turn of their tenants."""
        self._reading = False
        self._scheduled = False
        self.per_turn = False
        """Write at the end of the turn, not of the read: fewer and larger writes if many peers feed each other."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadlines: list[tuple[int, int]] = []
        """Heap of deadlines, in milliseconds with the number of each."""
        self._planned: dict[int, Wire] = {}
        """Wires by the numbers of their deadlines; those of other numbers are void."""
        self._deadlines_made = 0
        self._worked: list[Wire] = []  # have had a part of their share in this turn
        self.turns = Turns(self.loop.call_soon, monotonic, begins=self._turn_begins, ends=self._turn_ends)
        self.failures = 0
        """Exceptions of handlers, each of which has ended a link, a session or a connection, since the start."""
        self._last_failure = ""

    @property
    def trouble(self) -> str:
        """A sentence for operators if handlers have raised exceptions; "" if none has."""
        if not self.failures:
            return ""
        return f"{self.failures} internal errors have ended links or connections, the last one: {self._last_failure}"

    def failed(self, peer: str, failure: Exception) -> None:
        """Log and count the exception of a handler, or of the engine itself, on a connection to `peer`."""
        self.failures += 1
        self._last_failure = f"{type(failure).__name__}: {failure}"[:200]
        log.error("amqp.handler.failed", peer=peer, exc_info=failure)

    @property
    def connections(self) -> list[Connection]:
        """Return the connections of this hub."""
        return [wire.connection for wire in self.wires]

    @property
    def deadlines(self) -> int:
        """Entries of the heap of deadlines, void ones included."""
        return len(self._deadlines)

    def flush(self) -> None:
        """Write what connections have to send. Runs by itself; call it only to write before the turn ends."""
        self._scheduled = False
        if self.turns.tenants or self._unwritten:
            self._flush_in_turn()
            return
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for wire in dirty:
                wire.write()

    def _flush_in_turn(self) -> None:
        """Write tenant by tenant, for the time of one share; the rest waits until the sockets were looked at. The time
        counts for the tenants, so that input of one that has much to write waits too."""
        unwritten, hub_turns = self._unwritten, self.turns
        begun = hub_turns.clock()
        stop = begun + fair_turns.SHARE
        while self._dirty or unwritten:
            if self._dirty:
                dirty, self._dirty = self._dirty, []
                for wire in dirty:
                    unwritten.add(wire.tenant, wire)
            wire = unwritten.take()
            wire.write()
            now = hub_turns.clock()
            if wire.tenant is not None:
                hub_turns.serve(wire.tenant, now - begun)
            begun = now
            if now >= stop:
                break
        if self._dirty or unwritten:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self.flush)

    def _mark(self, wire: Wire) -> None:
        self._dirty.append(wire)
        if self.per_turn or not self._reading:
            self._flush_soon()

    # --- whose turn it is ---------------------------------------------------------------------------------------------

    def _share(self, wire: Wire) -> None:
        """This wire's share of the turn runs from now on."""
        wire.until = self.turns.clock() + _SHARE
        self._worked.append(wire)
        self.turns.soon()

    def _turn_begins(self) -> None:
        worked, self._worked = self._worked, []
        for wire in worked:
            wire.until = 0.0

    def _turn_ends(self) -> None:
        if self._dirty and not self.per_turn:
            self.flush()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _plan(self, wire: Wire, at_ms: int) -> None:
        """Tick this wire when its deadline has come. One entry that counts per wire."""
        self._forget(wire)
        self._deadlines_made += 1
        wire.deadline = self._deadlines_made
        self._planned[wire.deadline] = wire
        heapq.heappush(self._deadlines, (at_ms, wire.deadline))
        self._arm()

    def _forget(self, wire: Wire) -> None:
        """Void the deadline of a wire, so that it no longer refers to the wire."""
        if self._planned.pop(wire.deadline, None) is None:
            return
        void = len(self._deadlines) - len(self._planned)
        if void > _FEW_DEADLINES and 2 * void > len(self._deadlines):
            self._deadlines = [each for each in self._deadlines if each[1] in self._planned]
            heapq.heapify(self._deadlines)

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
        due: list[Wire] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            wire = self._planned.pop(heapq.heappop(self._deadlines)[1], None)
            if wire is not None:
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
        self.deadline = 0  # its number
        self.tenant: Tenant | None = None
        self.until = 0.0  # when its share of this turn is used up; 0: nothing was used yet
        self.peer = ""
        self._closing: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._link: CutLink | None = None
        self._state = ""
        self._paused = False  # the socket is not read
        self._waiting = False  # in the hub's queue; the socket is not read meanwhile, but see `_wait`
        self._at_once = True  # what comes is processed in the turn in which it comes
        connection.output.on_dirty = self._on_dirty
        connection.output.on_spill = self._on_spill
        connection.held.on_paused = self._on_reading
        connection.enough = self._enough
        connection.handler.on_failure = self._on_failure
        self._receive = connection.receive

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.Protocol."""
        transport = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from it
        self.transport = transport
        transport.set_write_buffer_limits(high=_HIGH_WATER, low=_LOW_WATER)
        self.peer = self.peer or peer_name(transport)
        self.hub.wires.add(self)
        if self.connection.is_client:
            self.connection.open()
        self._plan_tick()
        if self.connection.output.dirty:
            self._on_dirty()

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        hub, tenant = self.hub, self.tenant
        if self._waiting or not self._at_once or (tenant is not None and tenant.used >= fair_turns.SHARE):
            self.connection.hold(data)
            self._wait()
            return
        begun = 0.0
        if tenant is not None:
            begun = hub.turns.clock()
            self.until = begun + fair_turns.SHARE - tenant.used
        hub._reading = True
        try:
            self._receive(data)
        except Exception as error:
            self._broken(error)
        finally:
            hub._reading = False
        if tenant is not None:
            hub.turns.serve(tenant, hub.turns.clock() - begun)
        if hub._dirty and not hub.per_turn:
            hub.flush()

    def eof_received(self) -> bool:
        """As asyncio.Protocol."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio.Protocol."""
        self.hub.wires.discard(self)
        self.hub._forget(self)
        if self.tenant is not None:
            self.hub.turns.disown(self.tenant)
            self.tenant = None
        self.transport = None
        for timer in (self._closing, self._looking):
            if timer is not None:
                timer.cancel()
        error = None
        if exc is not None:
            error = AmqpError(errors.CONNECTION_FORCED, f"the connection to {self.peer} was lost: {exc}")
        self.connection.transport_closed(error)
        self.connection.let_go()

    def pause_writing(self) -> None:
        """As asyncio.Protocol."""
        self.connection.set_blocked(True)
        self._look_at_unread()

    def resume_writing(self) -> None:
        """As asyncio.Protocol."""
        try:
            self.connection.set_blocked(False)
        except Exception as error:
            self._broken(error)

    # --- the connection's hooks ---------------------------------------------------------------------------------------

    def _on_dirty(self) -> None:
        if self.transport is not None:
            self.hub._mark(self)

    def _on_failure(self, failure: Exception) -> None:
        self.hub.failed(self.peer, failure)

    def _on_spill(self) -> None:
        """Much output in one turn: hand it to the socket now, dispositions can wait."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.write(self.connection.output.take())

    def _on_reading(self) -> None:
        transport = self.transport
        paused = self.connection.reading_paused or self._waiting
        if paused != self._paused and transport is not None and not transport.is_closing():
            self._paused = paused
            with contextlib.suppress(RuntimeError):
                if paused:
                    transport.pause_reading()
                else:
                    transport.resume_reading()

    def _enough(self) -> bool:
        """Asked between slices of what was read: has it had its share of this turn?"""
        if not self.until:
            self.hub._share(self)
            return False
        if self.hub.turns.clock() < self.until:
            return False
        self._wait()
        return True

    def _wait(self) -> None:
        if not self._waiting:
            self._waiting = True
            self.hub.turns.wait(self)
            if not self._at_once:
                return  # it mostly is its turn before the socket is looked at again
        self._on_reading()

    # --- the hub's calls ----------------------------------------------------------------------------------------------

    def proceed(self) -> None:
        """Process the rest of the input: it is this wire's turn again."""
        self._waiting = False
        if self.transport is None:
            return
        tenant = self.tenant
        begun = 0.0 if tenant is None else self.hub.turns.clock()
        self.until = 0.0 if tenant is None else begun + fair_turns.SHARE
        self.hub._reading = True
        try:
            self.connection.proceed()
        except Exception as error:
            self._broken(error)
        finally:
            self.hub._reading = False
        if tenant is not None:
            self.hub.turns.serve(tenant, self.hub.turns.clock() - begun)
        if not self._waiting:
            self._on_reading()

    def write(self) -> None:
        """Write the connection's output; close the socket if the connection has finished, or its peer leaves too much
        unread."""
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
            try:
                transport.write(data)
            except RuntimeError:  # uvloop has closed the socket without a word: the loop is about to end
                return
            self._check_unread()
        if connection.finished and self._closing is None:
            # a peer that does not read the last output must not keep the socket
            self._closing = self.hub.loop.call_later(connection.limits.close_timeout_ms / 1000, self._abort)
            transport.close()

    def _check_unread(self) -> None:
        """Drop the connection if its peer leaves too much output unread."""
        connection, transport = self.connection, self.transport
        if transport is None or not connection.blocked:
            return
        size = transport.get_write_buffer_size()
        if size > connection.limits.max_buffered:
            log.warning("amqp.peer.stalled", peer=self.peer, buffered=size)
            self._drop(AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, f"the peer leaves {size} bytes unread"))

    def _look_at_unread(self) -> None:
        """Check from time to time while output is unread: TLS has some of its own, such as answers to KeyUpdate."""
        if self._looking is not None:
            self._looking.cancel()
        self._looking = None
        self._check_unread()
        if self.transport is not None and self.connection.blocked:
            self._looking = self.hub.loop.call_later(_LOOK_AT_UNREAD, self._look_at_unread)

    def tick(self, now_ms: int) -> None:
        """Give the connection the time in milliseconds, and plan the next call."""
        link = None
        if self.connection.inner and self.transport is not None:
            link = self._link = self._link or link_of(self.transport)
        if link is not None and link.is_cut(now_ms / 1000):
            self._drop(AmqpError(errors.CONNECTION_FORCED, f"{self.peer} {CUT_OFF}"))
            return
        try:
            due = self.connection.tick(now_ms, 0 if link is None else int(1000 * BEAT))
        except Exception as error:
            self._broken(error)
            due = None
        if due is not None and link is not None:
            due = min(due, now_ms + int(1000 * LOOK))
        if due is None or self.transport is None:
            self.hub._forget(self)
        else:
            self.hub._plan(self, max(due, now_ms + 1))

    def _plan_tick(self) -> None:
        self._state = self.connection.state
        if self._state == "open" and self.tenant is None and self.connection.tenant:
            self.tenant = self.hub.turns.own(self.connection.tenant)
            self.connection.take_turns()
        self.tick(int(self.hub.loop.time() * 1000))

    def _drop(self, error: AmqpError) -> None:
        self._abort()
        self.connection.transport_closed(error)

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def release(self) -> asyncio.Transport | None:
        """Write the output, and leave the socket to another protocol, which the caller sets at once; the connection has
        ended. Return the transport; None if it has gone."""
        self.write()
        transport = self.transport
        if transport is None or transport.is_closing():
            return None
        self.connection_lost(None)
        return transport

    def _broken(self, error: Exception) -> None:
        """The engine itself has raised: the state of the connection is unknown, so it is closed."""
        try:
            self.connection.close(self.connection.handler.reason(error))
        except Exception as further:
            self.hub.failed(self.peer, further)
            self._abort()


class Server:
    """A listening socket. `port` is the one that was bound. `close` ends listening, and with `connections` the
    connections that came by it, each with amqp:connection:forced."""

    def __init__(
        self,
        hub: Hub,
        factory: Callable[[Any], Connection],
        ssl: TlsContext,
        refused: Callable[[str, OSError], None],
    ) -> None:
        self.hub = hub
        self._refused = refused
        self.factory = factory
        self.port = 0
        self.wires: set[Wire] = set()
        self._ssl = ssl
        self._acceptor: Acceptor | None = None
        self._taking: set[asyncio.Task[None]] = set()

    @property
    def accepting(self) -> int:
        """Sockets that were accepted and have no connection yet: TLS is being agreed."""
        return len(self._taking)

    def listen(self, sockets: list[socket.socket]) -> None:
        """Accept connections on these sockets."""
        self.port = sockets[0].getsockname()[1]
        self._acceptor = Acceptor(self.hub.loop, sockets, self._take)

    def close(self, connections: bool = True) -> None:
        """Stop listening; with `connections` close those that are open."""
        if self._acceptor is not None:
            if connections:
                self._acceptor.close()
            else:
                self._acceptor.finish()
            self._acceptor = None
        if connections:
            for task in self._taking:
                task.cancel()
            for wire in [w for w in self.wires if w in self.hub.wires]:
                wire.connection.close(AmqpError(errors.CONNECTION_FORCED, "the server is shutting down"))
        self.wires.clear()

    async def wait_closed(self) -> None:
        """Wait until every connection of the hub has gone, at most _CLOSING seconds."""
        deadline = self.hub.loop.time() + _CLOSING
        while self.hub.wires and self.hub.loop.time() < deadline:
            await asyncio.sleep(0.01)

    def opened(self, sock: socket.socket) -> None:
        """The peer on this socket has opened, or the socket has gone."""
        if self._acceptor is not None:
            self._acceptor.done(sock)

    def _take(self, sock: socket.socket) -> Callable[[], None]:
        """A socket was accepted; what is returned drops it."""
        accepting = _Accepting(self, sock)
        task = self.hub.loop.create_task(self._connect(accepting, sock))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)
        accepting.task = task
        return accepting.drop

    async def _connect(self, accepting: _Accepting, sock: socket.socket) -> None:
        try:
            await tls_handshake.accept(
                lambda: accepting, sock, self._ssl, self._refused, patience=_TLS_HANDSHAKE, shutdown=_TLS_SHUTDOWN
            )
        finally:
            if accepting.wire is None:
                self.opened(sock)


async def serve(
    hub: Hub,
    host: str,
    port: int,
    factory: Callable[[Any], Connection],
    ssl: TlsContext = None,
    *,
    refused: Callable[[str, OSError], None] | None = None,
    shared: bool = False,
) -> Server:
    """Listen on host and port (0: any free one). `factory(peer)` makes the Connection of each client; `peer` has
    `.address` ("host:port"), `.certificate` (the verified one of a client, as from `getpeercert`, or None), `.tls`
    and `.ssl` (the TLS connection). `refused(address, error)`: a peer did not get through
    TLS. `shared`: other processes may listen there too. Raises OSError if the port is in use."""
    server = Server(hub, factory, ssl, refused or (lambda peer, error: None))
    server.listen(await listening(hub.loop, host, port, _BACKLOG, shared=shared))
    return server


class Peer:
    """Peer of an accepted socket: its address, and its TLS connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.address = peer_name(transport)
        self.ssl: ssl_module.SSLObject | None = transport.get_extra_info("ssl_object")
        self.tls = self.ssl is not None
        self.certificate: Mapping[str, Any] | None = transport.get_extra_info("peercert")
        self.wire: weakref.ref[_ServedWire] | None = None  # the connection may have the peer

    def hand_over(self, make: Callable[[], Connection]) -> None:
        """Replace the connection of this socket, after what the present one has to send. The peer must not have sent
        anything further."""
        wire = None if self.wire is None else self.wire()
        self.wire = None
        transport = None if wire is None else wire.release()
        if wire is None or transport is None:
            return
        try:
            connection = make()
        except Exception as error:
            log.error("amqp.connection.creation-failed", exc_info=error)
            transport.abort()
        else:
            wire.go_on_as(connection, transport)


class _Accepting(asyncio.Protocol):
    """Protocol of a socket until its peer is known, and the factory can be asked for a connection."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self._server = server
        self._socket = sock
        self.task: asyncio.Task[None] | None = None
        self.wire: _ServedWire | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        try:
            peer = Peer(transport)
            connection = self._server.factory(peer)
        except Exception as error:
            log.error("amqp.connection.creation-failed", exc_info=error)
            transport.abort()
            return
        self.wire = wire = _ServedWire(self._server, connection, self._socket)
        wire.peer = peer.address
        peer.wire = weakref.ref(wire)
        transport.set_protocol(wire)
        wire.connection_made(transport)

    def drop(self) -> None:
        if self.wire is not None:
            self.wire.drop()
        elif self.task is not None:
            self.task.cancel()


class _ServedWire(Wire):
    def __init__(self, server: Server, connection: Connection, sock: socket.socket) -> None:
        super().__init__(server.hub, connection)
        self._server = server
        self._socket = sock
        self._at_once = False
        server.wires.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.opened(self._socket)
        self._server.wires.discard(self)
        super().connection_lost(exc)

    def go_on_as(self, connection: Connection, transport: asyncio.Transport) -> None:
        """Have another connection on the socket that this wire has released."""
        wire = _ServedWire(self._server, connection, self._socket)
        transport.set_protocol(wire)
        wire.connection_made(transport)

    def drop(self) -> None:
        """Drop the connection: it takes too long to open, and others wait."""
        self._drop(AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, "too many connections that have not opened yet"))

    def _plan_tick(self) -> None:
        super()._plan_tick()
        if not self._at_once and self._state != "start":
            self._at_once = True
            self._server.opened(self._socket)
            if self._state == "open" and self.transport is not None:
                read_much(self.transport)


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
    """Connect a client connection; returns when the socket (and TLS) is up, `on_open` is called when AMQP is. Raises
    OSError or TimeoutError. Reconnecting is the caller's business, with a new Connection."""
    if not connection.is_client:
        raise ValueError("dial needs a Connection with is_client=True")
    tls, wire = ssl is not None, Wire(hub, connection)
    try:
        async with asyncio.timeout(timeout):
            await hub.loop.create_connection(
                lambda: wire,
                host,
                port,
                ssl=ssl,
                server_hostname=(server_hostname or host) if tls else None,
                ssl_handshake_timeout=_TLS_HANDSHAKE if tls else None,
                ssl_shutdown_timeout=_TLS_SHUTDOWN if tls else None,
            )
    except BaseException:
        if wire.transport is None:
            connection.let_go()
        else:  # cancelled in the turn in which it was connected: uvloop does not call connection_lost
            wire.transport.abort()
            wire.connection_lost(None)
        raise
    return wire


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop if there is one, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
