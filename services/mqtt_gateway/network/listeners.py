"""Ports for MQTT clients, by the settings; and the sweep, which checks deadlines."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from enmasse.bridge.gateway_ports import GatewayListener, GatewayPorts
from enmasse.identity.processes.refusals import note_handshake
from enmasse.logs import log as logs
from enmasse.network import tls_handshake
from enmasse.process.allocator import trim
from enmasse.process.late_imports import imported
from services.mqtt_gateway.network.amqp_relay import AmqpRelay
from services.mqtt_gateway.network.wire import Flusher, TcpWire
from services.mqtt_gateway.protocol.server_state import ServerState
from services.mqtt_gateway.protocol.timetable import STEP

if TYPE_CHECKING:
    from services.mqtt_gateway.network.websocket import WebSocketServer

log = logs.get(part="mqtt")

TLS_SHUTDOWN = 5.0  # seconds a peer has to answer a close_notify
TRIM_BYTES = 16 << 20
"""Bytes that clients have freed before memory is returned to the operating system."""
TRIM_SECONDS = 5.0
"""Seconds between two returns, because the next large messages take it from there again."""


class ListenerSettings(GatewayListener, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port: `mqtt`, `mqtts` (TLS), `ws` (WebSocket), `wss` (over TLS)."""

    kind: Literal["mqtt", "mqtts", "ws", "wss"]


class Listeners:
    """`allowed_origins`: of pages that may connect by WebSocket, beside those of the gateway's own host. `relay`:
    passes on clients of AMQP over WebSocket; None: they are refused."""

    def __init__(
        self, server_state: ServerState, allowed_origins: Collection[str] = (), relay: AmqpRelay | None = None
    ) -> None:
        self._allowed_origins = set(allowed_origins)
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self._server_state = server_state
        self._flusher = Flusher(self._loop)
        self._web: WebSocketServer | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._timer = self._loop.call_later(STEP, self._sweep)
        self._trimmed = 0.0
        self.ports = GatewayPorts(("mqtts", "wss"))

    async def open(self, listener: GatewayListener) -> None:
        """Open the sockets of a listener. Raises ListenerError."""
        await self.ports.open(listener, partial(self._take, listener.kind in ("ws", "wss"), listener.space))

    async def have(self, listeners: Collection[ListenerSettings], allowed_origins: Collection[str]) -> None:
        """Have these listeners and origins from now on. Connections that are open stay."""
        self._allowed_origins.clear()
        self._allowed_origins.update(allowed_origins)
        await self.ports.have(listeners, self.open, self.ports.shut)

    def stop_listening(self) -> None:
        """Accept no further connections but those that wait for it; those that are open stay."""
        self.ports.finish()

    async def close(self) -> None:
        """Close the listeners; connections were closed before."""
        self.ports.close()
        self._timer.cancel()
        for task in list(self._connecting):
            task.cancel()
        if self._web is not None:
            await self._web.close()

    def _take(
        self,
        web: bool,
        space: str | None,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        done: Callable[[], None],
    ) -> Callable[[], None]:
        if web:
            return self._take_web(sock, context, space, done)
        wire = TcpWire(self._server_state, self._flusher, done, space)
        task = self._start(self._connect(sock, context, wire, space, done))

        def drop() -> None:
            task.cancel()  # it may have no transport yet
            wire.abort()

        return drop

    def _take_web(
        self, sock: socket.socket, context: ssl.SSLContext | None, space: str | None, done: Callable[[], None]
    ) -> Callable[[], None]:
        dropping: list[Callable[[], None]] = []

        async def connect() -> None:
            try:
                server = await self._web_server()
            except asyncio.CancelledError:
                sock.close()
                raise
            protocol, drop = server.guest(done, space)
            dropping.append(drop)
            await self._connect(sock, context, protocol, space, done)

        task = self._start(connect())

        def drop() -> None:
            task.cancel()
            if dropping:
                dropping[0]()
            else:
                done()

        return drop

    async def _web_server(self) -> WebSocketServer:
        """aiohttp costs a fifth of a second and 12 MiB: it is imported with the first peer that needs it, and no
        other connection waits for that."""
        if self._web is None:
            module = await imported("services.mqtt_gateway.network.websocket")
            if self._web is None:  # two may have waited
                self._web = module.WebSocketServer(
                    self._server_state, self._flusher, self._allowed_origins, self._relay
                )
        return self._web

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return task

    async def _connect(
        self,
        sock: socket.socket,
        context: ssl.SSLContext | None,
        protocol: asyncio.Protocol,
        space: str | None,
        done: Callable[[], None],
    ) -> None:
        state = self._server_state
        refused, patience = partial(note_handshake, state.refusals, space), state.limits.connect_seconds
        if not await tls_handshake.accept(
            lambda: protocol, sock, context, refused, patience=patience, shutdown=TLS_SHUTDOWN
        ):
            done()

    def _sweep(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_later(STEP, self._sweep)
        try:
            self._server_state.times.sweep(now)
        except Exception as error:
            log.error("mqtt.sweep.failed", exc_info=error)
        if now >= self._trimmed + TRIM_SECONDS and self._server_state.memory.fallen(TRIM_BYTES):
            self._trimmed = now
            trim()
