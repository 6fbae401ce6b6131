"""STOMP over WebSocket, for web pages: the subprotocols v10.stomp, v11.stomp and v12.stomp at one path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from enmasse.identity.proofs.certificates import certified
from enmasse.network.peer_names import peer_name
from enmasse.network.tls import server_name, shown
from enmasse.network.web_origins import ORIGIN_REFUSED, is_allowed, may_be_any_site, why_refused
from enmasse.websocket.websocket_stream import HttpProtocol, WebSocketStream
from services.stomp_gateway.stomp_clients import LOGIN_SECONDS, StompClients
from services.stomp_gateway.stomp_peers import STUCK, StompPeer

PATH: Final = "/stomp"
PROTOCOLS: Final = ("v12.stomp", "v11.stomp", "v10.stomp")
LINGER: Final = 2.0
LONGEST: Final = 4 << 20
"""Bytes of a WebSocket message, which may hold many frames, or parts of them."""


def _is_own(record: logging.LogRecord) -> bool:
    """Drop aiohttp's tracebacks for malformed HTTP requests."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_HTTP_LOG: Final = logging.getLogger(__name__)
_HTTP_LOG.addFilter(_is_own)


class StompWebPeer:
    """A connection that speaks HTTP until it asks for a WebSocket, which it has to do in time."""

    def __init__(
        self, number: int, space: str | None, ended: Callable[[StompWebPeer], None], known: Callable[[], None]
    ):
        self.number = number
        self.space = space
        self.protocol: HttpProtocol
        self.stream: StompStream | None = None
        self._ended = ended
        self._known: Callable[[], None] | None = known
        self.timer = asyncio.get_running_loop().call_later(LOGIN_SECONDS, self.abort)

    @property
    def host(self) -> str:
        """As acceptor.OfHost."""
        transport = self.protocol.transport
        return "" if transport is None else str((transport.get_extra_info("peername") or ("",))[0])

    def known(self) -> None:
        """The client has logged in, or is gone."""
        self.timer.cancel()
        known, self._known = self._known, None
        if known is not None:
            known()

    def gone(self) -> None:
        """The connection has ended."""
        self.known()
        self._ended(self)

    @property
    def quiet(self) -> bool:
        """As client_door.DoorConnection."""
        return self.stream is None or self.stream.client.quiet

    def leave(self) -> None:
        """End in order."""
        if self.stream is not None:
            self.stream.client.leave()
        else:
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        self.gone()
        if self.stream is not None:
            self.stream.abort()
        elif self.protocol.transport is not None:
            self.protocol.transport.abort()


class StompWebServer:
    """Makes the protocol of an accepted socket. `allowed_origins`: see `is_allowed`."""

    def __init__(self, clients: StompClients, allowed_origins: Collection[str]) -> None:
        self._clients = clients
        self._allowed_origins = allowed_origins
        self._server = web.Server(self._handle)
        self._peers: dict[object, StompWebPeer] = {}

    def accept(self, peer: StompWebPeer) -> asyncio.Protocol:
        """Return the protocol for the socket of a new connection."""
        peer.protocol = HttpProtocol(
            self._server,
            loop=self._clients.loop,
            access_log=None,  # type: ignore[arg-type]  # None: aiohttp writes no access log
            logger=_HTTP_LOG,
            max_line_size=4096,
            max_field_size=4096,
            max_headers=64,
        )
        self._peers[peer.protocol] = peer
        return peer.protocol

    def forget(self, peer: StompWebPeer) -> None:
        """Forget a connection that has ended."""
        self._peers.pop(peer.protocol, None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        peer, transport = self._peers.get(request.protocol), request.transport
        if peer is None or transport is None:  # it has gone
            return _refusal(400, "")
        try:
            return await self._serve(request, peer, transport)
        finally:
            peer.gone()

    async def _serve(
        self, request: web.BaseRequest, peer: StompWebPeer, transport: asyncio.Transport
    ) -> web.StreamResponse:
        if request.path != PATH:
            return _refusal(404, f"STOMP over WebSocket is at {PATH}\n")
        origin = request.headers.get("Origin")  # programs that are no browsers send none
        local = transport.get_extra_info("sockname")[0]
        name, ssl = peer_name(transport), transport.get_extra_info("ssl_object")
        if origin is not None and not is_allowed(origin, request.host, self._allowed_origins, local):
            reason = why_refused(origin, request.host)
            self._clients.bridge.refusals.note("connect", condition="origin refused", reason=reason, peer=name)
            return _refusal(403, ORIGIN_REFUSED)
        offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        chosen = next((each for each in PROTOCOLS if each in offered), None)
        if chosen is None:
            return _refusal(400, f"the WebSocket subprotocol must be {' or '.join(PROTOCOLS)}\n")
        socket = web.WebSocketResponse(protocols=(chosen,), compress=False, timeout=LINGER, max_msg_size=LONGEST)
        await socket.prepare(request)
        any_site = (
            origin is not None and not request.secure and may_be_any_site(origin, request.host, self._allowed_origins)
        )
        facts = StompPeer(
            name=name,
            number=peer.number,
            host=server_name(ssl),
            tls=shown(ssl),
            space=peer.space,
            certificate=certified(ssl),
            any_site=any_site,
            web=True,
        )
        peer.timer.cancel()
        stream = peer.stream = StompStream(self._clients, facts, socket, peer)
        try:
            await stream.read()
        finally:
            stream.lost()
        return socket

    async def close(self) -> None:
        """Close the WebSockets."""
        await self._server.shutdown(LINGER)


def _refusal(status: int, text: str) -> web.Response:
    response = web.Response(status=status, text=text)
    response.force_close()
    return response


class StompStream(WebSocketStream):
    """A client of STOMP over WebSocket; frames of text are as those of bytes."""

    takes_text = True

    def __init__(
        self, clients: StompClients, facts: StompPeer, socket: web.WebSocketResponse, peer: StompWebPeer
    ) -> None:
        super().__init__(clients.loop, socket, peer.protocol, peer.known)
        self._stuck: asyncio.TimerHandle | None = None
        self.client = clients.connected(StompWebWire(self), facts)

    def take(self, data: bytes) -> None:
        """As WebSocketStream."""
        self.client.take(data)

    def set_blocked(self, blocked: bool) -> None:
        """As WebSocketStream."""
        self.client.set_blocked(blocked)

    @property
    def is_blocked(self) -> bool:
        """Return whether the client leaves much unread."""
        return self._blocked

    def lost(self) -> None:
        """As WebSocketStream."""
        super().lost()
        if self._stuck is not None:
            self._stuck.cancel()
        self.client.lost()

    def close(self) -> None:
        """Close; what was written is sent, if the client reads it in time."""
        self.put(b"", last=True)
        self.resume()
        if not self._lost and self._stuck is None:
            self._stuck = self._loop.call_later(STUCK, self.abort)


class StompWebWire:
    """As StompWire."""

    def __init__(self, stream: StompStream) -> None:
        self._stream = stream

    @property
    def blocked(self) -> bool:
        """As StompWire."""
        return self._stream.is_blocked

    @property
    def unsent(self) -> int:
        """As StompWire."""
        return self._stream.unsent()

    def write(self, data: bytes) -> None:
        """As StompWire."""
        self._stream.put(data)

    def reading(self, wanted: bool) -> None:
        """As StompWire."""
        if wanted:
            self._stream.resume()
        else:
            self._stream.pause()

    def trust(self) -> None:
        """As StompWire."""
        self._stream.opened()

    def recognised(self) -> None:
        """As StompWire."""
        self._stream.recognised()

    def close(self) -> None:
        """As StompWire."""
        self._stream.close()

    def abort(self) -> None:
        """As StompWire."""
        self._stream.abort()
