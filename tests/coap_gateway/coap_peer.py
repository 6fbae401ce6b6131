"""A client of CoAP that sends datagrams one by one."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Iterable

from enmasse.wire_formats.coap_messages import (
    ACK,
    CON,
    EMPTY,
    GET,
    OBSERVE,
    POST,
    RST,
    URI_PATH,
    URI_QUERY,
    CoapMessage,
    decoded,
    encoded,
    shown,
    uint,
)
from tests.kit.waiting import DEADLINE

Options = Iterable[tuple[int, bytes]]


class CoapPeer:
    """`socket`: of UDP, connected to the gateway."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket(type=socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", port))
        self.socket.settimeout(DEADLINE)
        self.numbers = itertools.count(1)

    def __enter__(self) -> CoapPeer:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def request(
        self, path: str, payload: bytes = b"", *, code: int = POST, options: Options = (), kind: int = CON
    ) -> bytes:
        """Return the datagram of a new request. Its token is its id."""
        path, _, query = path.partition("?")
        made = [(URI_PATH, level.encode()) for level in path.strip("/").split("/")]
        made += [(URI_QUERY, each.encode()) for each in query.split("&") if each]
        id = next(self.numbers) & 0xFFFF
        return encoded(kind, code, id, id.to_bytes(2, "big"), (*made, *options), payload)

    def send(self, data: bytes) -> None:
        self.socket.send(data)

    def read(self) -> CoapMessage:
        """Return the next datagram."""
        return decoded(self.socket.recv(1 << 16))

    def acknowledge(self, message: CoapMessage, kind: int = ACK) -> None:
        self.send(encoded(kind, EMPTY, message.id))

    def ask(self, path: str, payload: bytes = b"", *, code: int = POST, options: Options = ()) -> CoapMessage:
        """Send a request, repeat it as the protocol says, and return its answer."""
        data = self.request(path, payload, code=code, options=options)
        return self.answer(data)

    def answer(self, data: bytes) -> CoapMessage:
        """Send a datagram until it has an answer, and return that."""
        token, until = decoded(data).token, time.monotonic() + DEADLINE
        self.socket.settimeout(2)  # limit: it is sent again
        try:
            while time.monotonic() < until:
                with contextlib.suppress(OSError):  # nobody was there
                    self.send(data)
                while (found := self._next()) is not None:
                    if found.token == token and found.code:
                        return found
            raise TimeoutError
        finally:
            self.socket.settimeout(DEADLINE)

    def _next(self) -> CoapMessage | None:
        """Return the next datagram, acknowledged; None: none comes."""
        while True:
            try:
                found = self.read()
                if found.type == CON:
                    self.acknowledge(found)
                return found
            except ConnectionRefusedError:  # of a datagram that was sent before
                continue
            except TimeoutError:
                return None

    def code(self, path: str, payload: bytes = b"", *, code: int = POST, options: Options = ()) -> str:
        """Send a request, and return the code of its answer."""
        return shown(self.ask(path, payload, code=code, options=options).code)

    def observe(self, path: str, options: Options = ()) -> CoapMessage:
        """Observe an address; return the answer."""
        return self.ask(path, code=GET, options=((OBSERVE, uint(0)), *options))

    def notification(self, kind: int | None = ACK) -> CoapMessage:
        """Return the next notification, and acknowledge it, or refuse it; `kind` None: neither."""
        found = self.read()
        assert (found.type, shown(found.code)) == (CON, "2.05"), found
        if kind is not None:
            self.acknowledge(found, kind)
        return found

    def ping(self) -> None:
        """Return when the gateway has taken all that was sent before."""
        self.send(encoded(CON, EMPTY, 0))
        while self.read().type != RST:
            pass
