"""Transport of an accepted socket with TLS, for any loop.

Those of asyncio and uvloop keep a buffer of 256 KiB for each connection, and OpenSSL one for as much as a read brings.
Here all connections of a loop share their buffers: bytes are read, decrypted and handed on in one call. A peer that has
not logged in is read in small pieces.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from typing import Any, Final, cast

from enmasse.network.tls_failures import NotAgreed

LITTLE, MUCH = 8 << 10, 128 << 10
"""Bytes of a read: of a peer that has not logged in, and then (`read_much`). OpenSSL keeps memory for as many."""
_RECORD = 17 << 10  # a TLS record has less, and part of one may be left of the read before
CLOSE_SECONDS = 30.0


class _Buffers(threading.local):
    """Buffers of a thread, and so of its loop: for what was read, and what was decrypted."""

    def __init__(self) -> None:
        self.read = memoryview(bytearray(MUCH))
        self.plain = memoryview(bytearray(MUCH + _RECORD))


_buffers = _Buffers()


_GONE: Final = asyncio.Protocol()
"""In place of a protocol that is not connected."""


def read_much(transport: asyncio.BaseTransport) -> None:
    """Read from the peer in large pieces from now on, if it has TLS: it has logged in."""
    if isinstance(transport, TlsTransport):
        transport.read_much()


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The transport of `protocol`, and itself the protocol of the socket's own transport. `agreed` is done once TLS is
    agreed and the protocol connected, or fails with OSError. `shutdown`: seconds that a peer has to answer a
    close_notify."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        shutdown: float | None = None,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = _GONE
        self._waiting: asyncio.BaseProtocol | None = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._raw: asyncio.Transport | None = None
        self._closing = False
        self._shutdown = CLOSE_SECONDS if shutdown is None else shutdown
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._into = _buffers.read[:LITTLE]
        self._plain = _buffers.plain
        self.agreed: asyncio.Future[None] = loop.create_future()

    def read_much(self) -> None:
        """Read in large pieces from now on: the peer has logged in."""
        self._into = _buffers.read

    # the protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.BufferedProtocol."""
        self._raw = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it

    def get_buffer(self, sizehint: int) -> memoryview:
        """As asyncio.BufferedProtocol."""
        return self._into

    def buffer_updated(self, nbytes: int) -> None:
        """As asyncio.BufferedProtocol."""
        if self._error is not None:
            return
        self._incoming.write(self._into[:nbytes])
        if self._waiting is None:
            self._decrypt()
        else:
            self._agree()

    def eof_received(self) -> bool:
        """As asyncio.BufferedProtocol."""
        if not self._closing:
            self._protocol.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio.BufferedProtocol."""
        self._raw, self._closing = None, True
        if self._timer is not None:
            self._timer.cancel()
        if not self.agreed.done():
            self.agreed.set_exception(
                NotAgreed("the client left while TLS was being agreed: it may refuse the certificate")
            )
        protocol, self._protocol, self._waiting = self._protocol, _GONE, None
        protocol.connection_lost(self._error or exc)

    def pause_writing(self) -> None:
        """As asyncio.BufferedProtocol."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """As asyncio.BufferedProtocol."""
        self._protocol.resume_writing()

    # TLS

    def _agree(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return
        except ssl.SSLError as error:
            if not self.agreed.done():
                self.agreed.set_exception(error)
            self._fail(error)
            return
        self._send()
        if self.agreed.done():  # it took too long
            return
        self._protocol, self._waiting = cast("asyncio.Protocol", self._waiting), None
        self._protocol.connection_made(self)
        self.agreed.set_result(None)
        self._decrypt()

    def _decrypt(self) -> None:
        """Hand on what is whole; a part of a record stays."""
        tls, incoming, plain, size, ended = self._tls, self._incoming, self._plain, 0, False
        error = None
        try:
            while incoming.pending:
                got: int = tls.read(_RECORD, plain[size:] if size else plain)  # type: ignore[assignment]  # as documented
                if not got:
                    ended = True
                    break
                size += got
                if self._closing:
                    size = 0
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # as an empty read, once close_notify was sent
            ended = True
        except ssl.SSLError as found:
            error = found
        if size:
            self._protocol.data_received(bytes(plain[:size]))
        self._send()  # answers of TLS itself
        if error is not None:
            self._fail(error)
        elif ended:
            if not self._closing:
                self._protocol.eof_received()
                self.close()
            if self._raw is not None:
                self._raw.close()

    def _send(self) -> None:
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    def _fail(self, error: Exception) -> None:
        """Close; the peer gets the alert, if it reads."""
        self._error = error
        self._send()
        self._end()
        if self._raw is not None:
            self._raw.close()

    def _end(self) -> None:
        self._closing = True
        if self._timer is None:
            self._timer = self._loop.call_later(self._shutdown, self.abort)

    # the transport of the protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """As asyncio.Transport."""
        raw = self._raw
        if self._closing or raw is None:
            return
        tls, outgoing = self._tls, self._outgoing
        try:
            at = tls.write(data) if data else 0
            if at < len(data):
                view = memoryview(data)
                while at < len(data):
                    at += tls.write(view[at:])
                    if outgoing.pending > MUCH:
                        raw.write(outgoing.read())
        except ssl.SSLError as error:
            self._fail(error)
            return
        if outgoing.pending:
            raw.write(outgoing.read())

    def close(self) -> None:
        """As asyncio.Transport. The peer has to answer the end of TLS."""
        if self._closing or self._raw is None:
            return
        with contextlib.suppress(ssl.SSLError):  # the peer's answer is still to come
            self._tls.unwrap()
        self._send()
        self._end()
        self._raw.resume_reading()  # what comes now is discarded

    def abort(self) -> None:
        """As asyncio.Transport."""
        self._closing = True
        if self._raw is not None:
            self._raw.abort()

    def is_closing(self) -> bool:
        """As asyncio.Transport."""
        return self._closing

    def pause_reading(self) -> None:
        """As asyncio.Transport."""
        if not self._closing and self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """As asyncio.Transport."""
        if self._raw is not None:
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        """As asyncio.Transport."""
        return self._raw is not None and self._raw.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As asyncio.Transport."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """As asyncio.Transport."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """As asyncio.Transport."""
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """As asyncio.Transport."""
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """As asyncio.Transport."""
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As asyncio.Transport."""
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        if name == "peercert":
            return self._tls.getpeercert()
        return default if self._raw is None else self._raw.get_extra_info(name, default)
