"""Reads in small pieces from sockets without TLS, until their clients have logged in."""

from __future__ import annotations

import asyncio

from enmasse.network.tls_transport import LITTLE, MUCH, read_much


class ClientSocket(asyncio.Protocol):
    """A connection of a client. `pieces`: what reads for it, None with TLS."""

    pieces: SmallReads | None = None

    def read_much_of(self, transport: asyncio.Transport | None) -> None:
        """Read in large pieces: the client has logged in."""
        if self.pieces is not None:
            self.pieces.size = MUCH
        elif transport is not None:
            read_much(transport)


class SmallReads(asyncio.BufferedProtocol):
    """Reads from a socket without TLS in small pieces, until the client has logged in; one buffer for all."""

    _shared = memoryview(bytearray(MUCH))

    def __init__(self, inner: ClientSocket) -> None:
        self._inner = inner
        self.size = LITTLE
        inner.pieces = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.BufferedProtocol."""
        self._inner.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """As asyncio.BufferedProtocol."""
        return self._shared[: self.size]

    def buffer_updated(self, nbytes: int) -> None:
        """As asyncio.BufferedProtocol."""
        self._inner.data_received(bytes(self._shared[:nbytes]))

    def eof_received(self) -> bool | None:
        """As asyncio.BufferedProtocol."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """As asyncio.BufferedProtocol."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """As asyncio.BufferedProtocol."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio.BufferedProtocol."""
        self._inner.connection_lost(exc)
