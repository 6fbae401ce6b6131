"""The TCP or TLS socket of an MQTT connection, and the one write that it gets in a turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from enmasse.identity.login import Certified
from enmasse.identity.proofs.certificates import certified
from enmasse.logs import log as logs
from enmasse.network.fair_turns import Tenant
from enmasse.network.peer_names import peer_name
from enmasse.network.tls import server_name, shown
from enmasse.network.tls_transport import read_much
from services.mqtt_gateway.interfaces import NOT_ASKED, Asked
from services.mqtt_gateway.protocol.connection import Connection
from services.mqtt_gateway.protocol.memory import LITTLE
from services.mqtt_gateway.protocol.server_state import ServerState

log = logs.get(part="mqtt")

HIGH_WATER: Final = LITTLE
"""Bytes of unread output at which they are counted and nothing further is sent to the client."""
LOW_WATER: Final = HIGH_WATER // 4


class Writes(Protocol):
    """Wire with output to be written at the end of a turn."""

    def flush(self) -> None:
        """Hand the connection's output to the socket."""

    def failed(self, error: Exception) -> None:
        """Close: `flush` has raised. Does not raise."""


class Flusher:
    """Writes what connections have to send, once at the end of the turn in which they got it."""

    __slots__ = ("_dirty", "_scheduled", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._dirty: list[Writes] = []
        self._scheduled = False

    def mark(self, wire: Writes) -> None:
        """Flush this wire at the end of the turn."""
        self._dirty.append(wire)
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        dirty, self._dirty = self._dirty, []
        for wire in dirty:
            try:
                wire.flush()
            except Exception as error:  # of one client: the others get their output
                wire.failed(error)


LINGER: Final = 2.0
"""Seconds for a client to close its side of a connection that the gateway has ended."""


class TcpWire(asyncio.Protocol):
    """`done` is called once the client is known, or gone. `space`: of its listener."""

    __slots__ = ("_connection", "_done", "_ending", "_flusher", "_lingering", "_server_state", "_space", "_transport")

    def __init__(
        self, server_state: ServerState, flusher: Flusher, done: Callable[[], None], space: str | None = None
    ) -> None:
        self._server_state = server_state
        self._space = space
        self._flusher = flusher
        self._done: Callable[[], None] | None = done
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._ending = False
        self._lingering = False

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.Protocol."""
        transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        self._connection = Connection(
            self._server_state,
            self,
            peer_name(transport),
            certificate_of(transport),
            asked=asked_of(transport, self._space),
        )

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        connection = self._connection
        if connection is None or self._lingering:
            return
        try:
            connection.intake.data(data)
        except Exception as error:
            self.failed(error)

    def eof_received(self) -> bool:
        """As asyncio.Protocol."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio.Protocol."""
        connection, self._connection = self._connection, None
        self._transport = None
        self.recognised()
        if connection is not None:
            connection.lost()

    def pause_writing(self) -> None:
        """As asyncio.Protocol."""
        if self._connection is not None:
            self._connection.set_blocked(True)

    def resume_writing(self) -> None:
        """As asyncio.Protocol."""
        if self._connection is not None:
            try:
                self._connection.set_blocked(False)
            except Exception as error:
                self.failed(error)

    # the connection's calls

    def recognised(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()

    def opened(self) -> None:
        if self._transport is not None:
            read_much(self._transport)

    def has_output(self) -> None:
        self._flusher.mark(self)

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def call_soon(self) -> None:
        self._server_state.turns.wait(self)

    def unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def end(self, *, going_away: bool = False) -> None:
        self._ending = True
        self._flusher.mark(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # turns of the loop

    def flush(self) -> None:
        connection, transport = self._connection, self._transport
        if connection is None or transport is None:
            return
        data = connection.output.take()
        if data and not transport.is_closing():
            transport.write(data)
        if self._ending and not self._lingering:
            self._lingering = True
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        """Our side first: if bytes of the client are unread when the socket is closed, TCP resets the connection,
        and the client may never read the DISCONNECT that says why."""
        if transport.is_closing():
            return
        if not transport.can_write_eof():
            transport.close()
            return
        transport.write_eof()
        transport.resume_reading()  # what comes now is discarded
        self._flusher.loop.call_later(LINGER, transport.close)

    @property
    def tenant(self) -> Tenant | None:
        """As turns.TurnTaker."""
        return None if self._connection is None else self._connection.intake.tenant

    def proceed(self) -> None:
        """As turns.TurnTaker."""
        if self._connection is not None:
            try:
                self._connection.intake.go_on()
            except Exception as error:
                self.failed(error)

    def failed(self, error: Exception) -> None:
        """Close this connection after an unexpected error; other clients are unaffected."""
        if self._connection is not None:
            self._connection.failed(error)
        else:
            self.abort()


def certificate_of(transport: asyncio.BaseTransport) -> Certified | None:
    """Return the certificate that the client has presented and the listener has verified; None without one."""
    return certified(transport.get_extra_info("ssl_object"))


def asked_of(transport: asyncio.BaseTransport, space: str | None) -> Asked:
    """Return what a connection says about the address space that its client means. `space`: of the listener."""
    ssl_object = transport.get_extra_info("ssl_object")
    if space is None and ssl_object is None:
        return NOT_ASKED
    return Asked(space, server_name(ssl_object), shown(ssl_object))
