"""A client of AMQP over WebSocket, whose bytes go to the router."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import WSCloseCode, web

from enmasse.websocket.websocket_stream import HttpProtocol, WebSocketStream
from services.mqtt_gateway.network.wire import LINGER

_HEADER: Final = b"AMQP"
_AMQP_FRAME: Final = 0


class AmqpWire(WebSocketStream, asyncio.Protocol):
    """A client of AMQP, and the protocol of its connection to the router."""

    text_refused = b"AMQP is in binary frames"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: web.WebSocketResponse,
        protocol: HttpProtocol,
        done: Callable[[], None],
        router: asyncio.Transport,
    ) -> None:
        super().__init__(loop, socket, protocol, done)
        self._router = router
        self._seen: bytes | None = b""  # of the router's output, until its Open
        router.set_protocol(self)

    def take(self, data: bytes) -> None:
        self._router.write(data)

    def set_blocked(self, blocked: bool) -> None:
        if not self._router.is_closing():
            if blocked:
                self._router.pause_reading()
            else:
                self._router.resume_reading()

    def lost(self) -> None:
        super().lost()
        self._router.close()

    def go_away(self) -> None:
        """As amqp_relay.GoesAway."""
        self.code = WSCloseCode.GOING_AWAY
        self._router.close()

    # the connection to the router

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        if self._seen is not None:
            self._look_for_open(self._seen + data)
        self.put(data)

    def eof_received(self) -> bool:
        """As asyncio.Protocol."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio.Protocol."""
        self._readable.set()
        self.put(b"", last=True)
        if not self._lost:  # a client that does not read would keep its socket
            self._loop.call_later(LINGER, self.abort)

    def pause_writing(self) -> None:
        """As asyncio.Protocol."""
        self.pause()

    def resume_writing(self) -> None:
        """As asyncio.Protocol."""
        self.resume()

    def _look_for_open(self, seen: bytes) -> None:
        """The client is known once the router has sent a frame that is not of SASL: it has accepted the login."""
        while len(seen) >= 8:
            if seen[:4] == _HEADER:
                seen = seen[8:]
            elif seen[5] == _AMQP_FRAME:
                self._seen = None
                self.opened()
                self.recognised()
                return
            else:
                size = int.from_bytes(seen[:4])
                if len(seen) < size:
                    break
                seen = seen[size:]
        self._seen = seen
