"""The WebSocket port: MQTT (v3.1.1 6, v5 6) and AMQP, which one is the client's choice by the subprotocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from aiohttp import WSCloseCode, web
from aiohttp.http_exceptions import HttpProcessingError

from enmasse.identity.processes.relayed_client import ConnectedClient
from enmasse.logs import log as logs
from enmasse.network.fair_turns import Tenant
from enmasse.network.peer_names import peer_name
from enmasse.network.tls import protection
from enmasse.network.web_origins import ORIGIN_REFUSED, is_allowed, may_be_any_site, why_refused
from enmasse.websocket.websocket_stream import SERVER, HttpProtocol, WebSocketStream
from services.mqtt_gateway.interfaces import NOT_ASKED
from services.mqtt_gateway.network.amqp_relay import AmqpRelay, NotRelayed
from services.mqtt_gateway.network.amqp_wire import AmqpWire
from services.mqtt_gateway.network.wire import Flusher, asked_of, certificate_of
from services.mqtt_gateway.protocol.connection import LINGER, Connection
from services.mqtt_gateway.protocol.server_state import ServerState

log = logs.get(part="mqtt")

PATH: Final = "/mqtt"
MQTT: Final = "mqtt"
AMQP: Final = ("amqp", "AMQPWSB10", "binary")
"""Subprotocols of AMQP: that of the OASIS draft "AMQP WebSocket Binding", and those of older clients."""
MESSAGE_TOO_BIG_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a WebSocket message, which may hold many packets, or parts of them."""


def _is_own(record: logging.LogRecord) -> bool:
    """Drop aiohttp's tracebacks for malformed HTTP requests."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_HTTP_LOG: Final = logging.getLogger(__name__)
_HTTP_LOG.addFilter(_is_own)


class _Guest:
    """A peer that speaks HTTP until it asks for a WebSocket, which it has to do in time."""

    __slots__ = ("_server_state", "done", "due", "protocol", "space")

    def __init__(
        self, server_state: ServerState, protocol: asyncio.Protocol, done: Callable[[], None], space: str | None
    ) -> None:
        self._server_state = server_state
        self.space = space
        self.protocol = protocol
        self.done = done
        self.due = 0
        server_state.times.plan(self, server_state.times.now + server_state.limits.connect_seconds)

    def look(self, now: float) -> None:
        self.drop()

    def failed(self, error: Exception) -> None:
        log.error("mqtt.sweep.failed", exc_info=error)

    def drop(self) -> None:
        self._server_state.times.forget(self)
        self.done()
        transport = getattr(self.protocol, "transport", None)
        if transport is not None:
            transport.abort()


class WebSocketServer:
    """Makes the protocol of an accepted socket (`guest`). `allowed_origins`: see `is_allowed`. `relay`: passes on
    clients of AMQP; None: they are refused."""

    def __init__(
        self,
        server_state: ServerState,
        flusher: Flusher,
        allowed_origins: Collection[str],
        relay: AmqpRelay | None = None,
    ) -> None:
        self._server_state = server_state
        self._relay = relay
        self._flusher = flusher
        self._allowed_origins = allowed_origins
        self._server = web.Server(self._handle)
        self._guests: dict[object, _Guest] = {}

    def guest(self, done: Callable[[], None], space: str | None = None) -> tuple[asyncio.Protocol, Callable[[], None]]:
        """Return the protocol for a socket, and what drops it. `done` is called once the client is known, or gone.
        `space`: of the listener."""
        protocol = HttpProtocol(
            self._server,
            loop=self._flusher.loop,
            access_log=None,  # type: ignore[arg-type]  # None: aiohttp writes no access log
            logger=_HTTP_LOG,
            max_line_size=4096,
            max_field_size=4096,
            max_headers=64,
        )
        guest = _Guest(self._server_state, protocol, lambda: self._known(protocol, done), space)
        self._guests[protocol] = guest
        return protocol, guest.drop

    def _known(self, protocol: object, done: Callable[[], None]) -> None:
        if self._guests.pop(protocol, None) is not None:
            done()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        chosen = next((each for each in offered if each == MQTT or (each in AMQP and self._relay is not None)), None)
        if request.path != PATH and chosen not in AMQP:
            return self._refusal(404, self._offer())
        origin = request.headers.get("Origin")  # programs that are no browsers send none
        if origin is not None and not self._is_allowed(origin, request):
            peer = "" if request.transport is None else peer_name(request.transport)
            reason = why_refused(origin, request.host)
            self._server_state.refusals.note("connect", condition="origin refused", reason=reason, peer=peer)
            return self._refusal(403, ORIGIN_REFUSED)
        if chosen is None:  # v3.1.1 MQTT-6.0.0-3, v5 MQTT-6.0.0-3
            return self._refusal(400, self._offer())
        any_site = (
            origin is not None and not request.secure and may_be_any_site(origin, request.host, self._allowed_origins)
        )
        if chosen in AMQP:
            return await self._amqp(request, chosen, any_site=any_site)
        guest = self._guests.get(request.protocol)
        done = guest.done if guest is not None else _nothing
        socket = await self._accepted(request, MQTT)
        if guest is not None:
            self._server_state.times.forget(guest)
        space = guest.space if guest is not None else None
        protocol = _own(request)
        wire = MqttWire(self._server_state, self._flusher, socket, protocol, done, any_site=any_site, space=space)
        await self._served(wire)
        return socket

    async def _amqp(self, request: web.BaseRequest, subprotocol: str, *, any_site: bool) -> web.StreamResponse:
        """Pass a client of AMQP on to the router. It is a guest until the router has opened its connection."""
        guest, transport = self._guests.get(request.protocol), request.transport
        if guest is None or transport is None:  # it has gone
            return self._refusal(400, "")
        relay = self._relay
        assert relay is not None
        if relay.clients >= self._server_state.limits.connections:
            return self._refusal(503, f"{relay.clients} clients of AMQP are connected here, which is the limit\n")
        ssl_object = transport.get_extra_info("ssl_object")
        asked = asked_of(transport, guest.space)
        client = ConnectedClient(
            peer_name(transport), protection(ssl_object), asked.host, certificate_of(transport), guest.space, any_site
        )
        relay.clients += 1
        try:
            try:
                router = await relay.dial(client)
            except NotRelayed as error:
                log.info("mqtt.relay.failed", peer=client.address, reason=str(error))
                return self._refusal(503, f"{error}\n")
            try:
                socket = await self._accepted(request, subprotocol)
            except BaseException:
                router.abort()
                raise

            def known() -> None:
                self._server_state.times.forget(guest)
                guest.done()

            wire = AmqpWire(self._flusher.loop, socket, _own(request), known, router)
            relay.wires.add(wire)
            try:
                await self._served(wire)
            finally:
                relay.wires.discard(wire)
        finally:
            relay.clients -= 1
        return socket

    async def _accepted(self, request: web.BaseRequest, subprotocol: str) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(
            protocols=(subprotocol,), compress=False, timeout=LINGER, max_msg_size=MESSAGE_TOO_BIG_BYTES
        )
        socket.headers["Server"] = SERVER
        await socket.prepare(request)
        return socket

    def _offer(self) -> str:
        """Return what a client may ask for."""
        mqtt = f"MQTT over WebSocket is at {PATH} with the subprotocol {MQTT}"
        amqp = f", AMQP over WebSocket at any path with the subprotocol {', '.join(AMQP[:-1])} or {AMQP[-1]}"
        return f"{mqtt}{'' if self._relay is None else amqp}\n"

    async def _served(self, wire: WebSocketStream) -> None:
        try:
            await wire.read()
        finally:
            wire.lost()

    def _is_allowed(self, origin: str, request: web.BaseRequest) -> bool:
        transport = request.transport
        if transport is None:  # the client has gone
            return False
        return is_allowed(origin, request.host, self._allowed_origins, transport.get_extra_info("sockname")[0])

    def _refusal(self, status: int, text: str) -> web.Response:
        response = web.Response(status=status, text=text, headers={"Server": SERVER})
        response.force_close()
        return response

    async def close(self) -> None:
        """Close the WebSockets, waiting at most LINGER seconds for the clients."""
        await self._server.shutdown(LINGER)


def _nothing() -> None:
    pass


def _own(request: web.BaseRequest) -> HttpProtocol:
    assert isinstance(request.protocol, HttpProtocol)
    return request.protocol


class MqttWire(WebSocketStream):
    """A client of MQTT."""

    text_refused = b"MQTT packets are in binary frames"  # v3.1.1 MQTT-6.0.0-1, v5 MQTT-6.0.0-1

    def __init__(
        self,
        server_state: ServerState,
        flusher: Flusher,
        socket: web.WebSocketResponse,
        protocol: HttpProtocol,
        done: Callable[[], None],
        *,
        any_site: bool,
        space: str | None,
    ) -> None:
        super().__init__(flusher.loop, socket, protocol, done)
        self._flusher = flusher
        self._turns = server_state.turns
        transport = protocol.transport
        peer, certificate = ("?", None) if transport is None else (peer_name(transport), certificate_of(transport))
        asked = NOT_ASKED if transport is None else asked_of(transport, space)
        self._connection = Connection(server_state, self, peer, certificate, any_site=any_site, asked=asked)

    def take(self, data: bytes) -> None:
        self._connection.intake.data(data)

    def set_blocked(self, blocked: bool) -> None:
        self._connection.set_blocked(blocked)

    def lost(self) -> None:
        super().lost()
        self._connection.lost()

    # the connection's calls, beside those of a stream

    def has_output(self) -> None:
        self._flusher.mark(self)

    def call_soon(self) -> None:
        self._turns.wait(self)

    def end(self, *, going_away: bool = False) -> None:
        if going_away:
            self.code = WSCloseCode.GOING_AWAY
        self._ending = True
        self._readable.set()
        self._flusher.mark(self)

    def failed(self, error: Exception) -> None:
        self._connection.failed(error)

    @property
    def tenant(self) -> Tenant | None:
        """As turns.TurnTaker."""
        return self._connection.intake.tenant

    def proceed(self) -> None:
        """As turns.TurnTaker."""
        try:
            self._connection.intake.go_on()
        except Exception as error:
            self.failed(error)

    def flush(self) -> None:
        if not self._lost:
            self.put(self._connection.output.take())
