"""Handshake: TLS on an accepted socket, once the whole ClientHello of its peer is there.

OpenSSL takes 20 to 50 KiB for a peer in its handshake, and makes room for as many bytes as a ClientHello states. So
its bytes wait in the kernel; until the last of them has come, the peer costs a socket and a task.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl as ssl_module
from collections.abc import Callable

from enmasse.network.backoff import LOOK, Backoff
from enmasse.network.peer_names import peer_of_socket
from enmasse.network.tls_failures import NotAgreed
from enmasse.network.tls_transport import TlsTransport

HELLO = 8 << 10
"""Bytes of a ClientHello. Those of browsers and TLS libraries have less than 2 KiB."""
_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"  # fatal, protocol_version: what OpenSSL answers to other protocols
_RECORD, _HANDSHAKE, _CLIENT_HELLO = 5, 22, 1  # bytes of a record's head, its type, and that of the message


async def accept(
    make: Callable[[], asyncio.BaseProtocol],
    sock: socket.socket,
    context: ssl_module.SSLContext | None,
    refused: Callable[[str, OSError], None],
    *,
    patience: float,
    shutdown: float | None = None,
) -> bool:
    """Connect the accepted socket of a client, as `connect`. Return False if that fails; `refused` gets host:port of
    the client, and the error."""
    peer = peer_of_socket(sock)
    try:
        await connect(make, sock, context, patience=patience, shutdown=shutdown)
    except OSError as error:  # of TLS too
        refused(peer, error)
        return False
    return True


async def connect(
    make: Callable[[], asyncio.BaseProtocol],
    sock: socket.socket,
    context: ssl_module.SSLContext | None,
    *,
    patience: float,
    shutdown: float | None = None,
) -> None:
    """Give an accepted socket the protocol that `make` returns, with TLS if there is a context, which must be agreed in
    `patience` seconds. `shutdown`: seconds that a peer has to answer a close_notify. Raises OSError. If that fails, or
    is cancelled, the socket is closed."""
    loop = asyncio.get_running_loop()
    if context is None:
        await loop.connect_accepted_socket(make, sock)
        return
    until = loop.time() + patience
    try:
        async with asyncio.timeout_at(until):
            await _hello(loop, sock)
    except BaseException as error:
        if isinstance(error, ssl_module.SSLError):
            with contextlib.suppress(OSError):
                sock.send(_ALERT)
        with contextlib.suppress(OSError):
            sock.recv(HELLO)  # a socket with unread bytes would be reset, and the alert lost
        sock.close()
        raise
    transport = TlsTransport(loop, make(), context, shutdown)
    try:
        await loop.connect_accepted_socket(lambda: transport, sock)
        async with asyncio.timeout_at(until):
            await transport.agreed
    except TimeoutError:
        transport.abort()
        raise NotAgreed(f"TLS was not agreed within {patience:g} seconds") from None
    except asyncio.CancelledError:
        transport.abort()
        raise


async def _hello(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    """Wait until a ClientHello can be read. Raises OSError if the peer sends something else, or leaves."""
    backoff = Backoff(LOOK)
    while True:
        try:
            seen = sock.recv(HELLO, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            await _readable(loop, sock)
            continue
        if not seen:
            raise ConnectionResetError("the peer has left before it sent a ClientHello")
        if is_whole(seen):
            return
        if len(seen) >= HELLO:
            raise _refused(f"the ClientHello has more than {HELLO} bytes")
        await asyncio.sleep(backoff.wait())  # the socket stays readable: its bytes are left in it


def is_whole(seen: bytes) -> bool:
    """Return whether these first bytes are records with a whole ClientHello. Raises ssl.SSLError if they are no
    beginning of that."""
    message = b""
    while seen:
        size = int.from_bytes(seen[3:_RECORD])
        if seen[0] != _HANDSHAKE or seen[1:2] not in (b"", b"\x03") or (len(seen) >= _RECORD and not size):
            raise _refused(
                "the peer does not begin with a ClientHello: it has sent something else than TLS, such as plain text"
            )
        if len(seen) < _RECORD + size:
            return False
        message += seen[_RECORD : _RECORD + size]
        if message[0] != _CLIENT_HELLO:
            raise _refused("the peer does not begin with a ClientHello, but with another message of TLS")
        if len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4]):
            return True
        seen = seen[_RECORD + size :]
    return False


def _refused(reason: str) -> ssl_module.SSLError:
    error = ssl_module.SSLError(ssl_module.SSL_ERROR_SSL, reason)
    error.reason = reason  # as those of OpenSSL have one
    return error


async def _readable(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    arrived = loop.create_future()

    def come() -> None:
        if not arrived.done():
            arrived.set_result(None)

    loop.add_reader(sock, come)
    try:
        await arrived
    finally:
        loop.remove_reader(sock)
