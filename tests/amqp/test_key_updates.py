"""TLS 1.3 KeyUpdate: a server answers each one, so a peer that asks without reading makes output that no handler has
written (CVE-2026-39304)."""

from __future__ import annotations

import asyncio
import ctypes
import select
import socket
import ssl
import threading
from pathlib import Path

import pytest

from enmasse.aio import transport
from enmasse.amqp.limits import Limits
from tests.amqp.server_kit import BOTH, Store, run, start
from tests.amqp.test_turns import OPEN
from tests.certificates import Authority
from tests.kit.waiting import until

REQUESTED = 1
SSL_OF_SOCKET = 24
"""Offset of OpenSSL's SSL* in CPython's PySSLSocket."""


def flood(sock: ssl.SSLSocket, ended: threading.Event) -> None:
    """Ask for new keys until the server closes the connection, and read nothing."""
    library = ctypes.CDLL("libssl.so.3")
    library.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.SSL_do_handshake.argtypes = [ctypes.c_void_p]
    handle = ctypes.cast(id(sock._sslobj) + SSL_OF_SOCKET, ctypes.POINTER(ctypes.c_void_p))[0]  # type: ignore[attr-defined]  # not in the stubs
    while not ended.is_set():
        if library.SSL_key_update(handle, REQUESTED) != 1:
            return
        while library.SSL_do_handshake(handle) != 1:
            if ended.is_set():
                return
            select.select([], [sock], [], 0.1)


@BOTH
def test_key_updates_that_nobody_reads_the_answers_of_end_the_connection(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_HIGH_WATER", 4096)
    monkeypatch.setattr(transport, "_LOW_WATER", 1024)
    monkeypatch.setattr(transport, "_LOOK_AT_UNREAD", 0.01)
    authority = Authority(tmp_path)

    def client(port: int) -> ssl.SSLSocket:
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", port))
        sock = authority.client_context().wrap_socket(raw, server_hostname="localhost")
        assert sock.version() == "TLSv1.3"
        sock.sendall(OPEN)
        sock.setblocking(False)
        return sock

    async def main() -> None:
        store = Store()
        server = await start(store, tls=authority.server_context(), limits=Limits(max_buffered=20_000))
        sock = await asyncio.to_thread(client, server.port)
        await until(lambda: store.connections and store.connections[0].state == "open", "the open")
        (wire,) = server.hub.wires
        assert wire.transport is not None
        wire.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ended = threading.Event()
        flooding = asyncio.create_task(asyncio.to_thread(flood, sock, ended))
        await until(lambda: not server.hub.wires, "the connection to be dropped")
        ended.set()
        await flooding
        assert "leaves" in str(store.closed[0])
        sock.close()
        server.close()

    run(loop, main)
