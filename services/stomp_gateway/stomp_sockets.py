"""The socket of a client: what is written in a turn of the loop goes at once; what waits for the client is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from enmasse.identity.proofs.certificates import certified
from enmasse.network.peer_names import peer_name
from enmasse.network.small_reads import ClientSocket
from enmasse.network.tls import server_name, shown
from services.stomp_gateway.stomp_client import StompClient
from services.stomp_gateway.stomp_clients import StompClients
from services.stomp_gateway.stomp_peers import STUCK, StompPeer

HIGH: Final = 64 << 10
LOW: Final = 16 << 10
"""Bytes of unread output at which messages wait, and at which they are sent again."""
LINGER: Final = 2.0
"""Seconds for a client to read the last frame, and close its side."""


class StompSocket(ClientSocket):
    """As StompWire. `ended` is called with the connection when it has ended, `known` once its client has logged in, or
    is gone. `space`: of its listener."""

    def __init__(
        self,
        clients: StompClients,
        ended: Callable[[StompSocket], None],
        known: Callable[[], None],
        number: int,
        space: str | None,
    ) -> None:
        self.number = number
        self._clients = clients
        self._ended = ended
        self._known: Callable[[], None] | None = known
        self._space = space
        self._transport: asyncio.Transport | None = None
        self._blocked = False
        self._closing = False
        self._unwritten: list[bytes] = []
        self._stuck: asyncio.TimerHandle | None = None
        self.peer = StompPeer(name="?", number=number, space=space)
        self.client: StompClient | None = None

    @property
    def host(self) -> str:
        """As acceptor.OfHost."""
        return self.peer.name.rpartition(":")[0]

    @property
    def quiet(self) -> bool:
        """As client_door.DoorConnection."""
        return self.client is None or self.client.quiet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.Protocol."""
        self._transport = found = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it
        found.set_write_buffer_limits(high=HIGH, low=LOW)
        ssl = found.get_extra_info("ssl_object")
        self.peer = StompPeer(
            name=peer_name(found),
            number=self.number,
            host=server_name(ssl),
            tls=shown(ssl),
            space=self._space,
            certificate=certified(ssl),
        )
        self.client = self._clients.connected(self, self.peer)

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        if not self._closing and self.client is not None:
            self.client.take(data)

    def eof_received(self) -> bool:
        """As asyncio.Protocol."""
        return False

    def pause_writing(self) -> None:
        """As asyncio.Protocol."""
        self._blocked = True
        if self.client is not None:
            self.client.set_blocked(True)

    def resume_writing(self) -> None:
        """As asyncio.Protocol."""
        self._blocked = False
        if self.client is not None:
            self.client.set_blocked(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio.Protocol."""
        self._transport, self._closing = None, True
        self._unwritten.clear()
        if self._stuck is not None:
            self._stuck.cancel()
        self.pieces = None
        client, self.client = self.client, None  # each refers to the other, and the garbage collector runs rarely
        if client is not None:
            client.lost()
        self._ended(self)

    # StompWire

    @property
    def blocked(self) -> bool:
        """As StompWire."""
        return self._blocked

    @property
    def unsent(self) -> int:
        """As StompWire."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """As StompWire."""
        if not self._unwritten:
            self._clients.loop.call_soon(self._flush)
        self._unwritten.append(data)

    def _flush(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        if self._transport is not None and not self._transport.is_closing() and unwritten:
            self._transport.write(unwritten[0] if len(unwritten) == 1 else b"".join(unwritten))

    def reading(self, wanted: bool) -> None:
        """As StompWire."""
        if self._transport is None or self._closing:
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def trust(self) -> None:
        """As StompWire."""
        self.read_much_of(self._transport)

    def recognised(self) -> None:
        """As StompWire."""
        known, self._known = self._known, None
        if known is not None:
            known()

    def close(self) -> None:
        """As StompWire. Our side first: if bytes of the client are unread when the socket is closed, TCP resets the
        connection, and the client may never read the ERROR that says why."""
        transport = self._transport
        if transport is None or self._closing:
            return
        self._flush()
        self._closing = True
        loop = self._clients.loop
        if transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()  # what comes now is discarded
            loop.call_later(LINGER, transport.close)
        else:
            transport.close()
        self._stuck = loop.call_later(STUCK, self.abort)

    def leave(self) -> None:
        """End in order."""
        if self.client is not None:
            self.client.leave()

    def abort(self) -> None:
        """As StompWire."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
