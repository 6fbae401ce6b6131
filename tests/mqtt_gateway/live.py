"""A gateway's MQTT half on real sockets, in a thread of the test's process, before a backend in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt import encode
from enmasse.mqtt.packets import V5, ConnAck, Connect, Packet
from enmasse.mqtt.reader import Reader
from services.mqtt_gateway.gateway import Gateway
from services.mqtt_gateway.network.listeners import ListenerSettings
from tests.kit.loop_thread import LoopThread
from tests.kit.waiting import DEADLINE
from tests.mqtt_gateway.toy import ToyBackend

T = TypeVar("T")
P = TypeVar("P")


class Live:
    """`ports`: by kind of listener."""

    def __init__(
        self,
        limits: Limits,
        cert: str | None,
        key: str | None,
        allowed_origins: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        self.backend = ToyBackend()
        self.ports: dict[str, int] = {}
        self.gateway: Gateway
        self._limits = limits
        self._tls = (cert, key)
        self._allowed_origins = allowed_origins
        self._host = host
        self._loop = LoopThread(uvloop.new_event_loop())
        self._loop.call(self._open())

    async def _open(self) -> None:
        self.gateway = Gateway(self._limits, self.backend, self._allowed_origins)
        cert, key = self._tls
        kinds = ("mqtt", "ws") if cert is None else ("mqtt", "ws", "mqtts", "wss")
        await self.gateway.listen(
            ListenerSettings(kind=kind, host=self._host, port=0, cert=cert, key=key)  # type: ignore[arg-type]  # one of the kinds, by the caller
            for kind in kinds
        )
        for kind, endpoint in self.gateway.listeners.ports.endpoints.items():
            self.ports[kind] = int(endpoint.rpartition(":")[2])

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs it in the gateway's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop.loop)

    def inside(self, what: Callable[[], T]) -> T:
        """Calls it in the gateway's loop."""

        async def call() -> T:
            return what()

        return self._loop.call(call())

    @property
    def clients(self) -> int:
        return self.inside(lambda: len(self.gateway.server_state.clients))

    def end(self) -> None:
        """As at SIGTERM."""
        self._loop.call(self.gateway.close())

    def stop(self) -> None:
        if self._loop.runs:
            with contextlib.suppress(Exception):
                self.end()
            self._loop.stop()


@contextlib.contextmanager
def live(
    limits: Limits | None = None,
    cert: str | None = None,
    key: str | None = None,
    allowed_origins: Sequence[str] = (),
    host: str = "127.0.0.1",
) -> Iterator[Live]:
    found = Live(limits or Limits(), cert, key, allowed_origins, host)
    try:
        yield found
    finally:
        found.stop()


class Raw:
    """A client that does what a test wants."""

    def __init__(self, port: int, version: int = V5, buffer: int = 0) -> None:
        self.version = version
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(("127.0.0.1", port))
        self._reader = Reader(server=False, version=version)
        self._packets: list[Packet] = []

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def connect(self, client_id: str, **more: object) -> Raw:
        self.send(Connect(client_id, version=self.version, **more))  # type: ignore[arg-type]  # keyword arguments of several types
        answer = self.next(ConnAck)
        assert answer.reason == 0, answer
        return self

    def send(self, *packets: Packet) -> None:
        self.socket.sendall(b"".join(encode.encode(each, self.version, of_client=True) for each in packets))

    def next(self, kind: type[P]) -> P:
        """The next packet; it has to be of this kind."""
        while not self._packets:
            data = self.socket.recv(65536)
            assert data, "the gateway has closed the connection"
            self._packets = self._reader.feed(data)
        packet = self._packets.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    def until_closed(self) -> list[Packet]:
        """All packets until the gateway closes the connection."""
        packets, self._packets = self._packets, []
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return packets
            if not data:
                return packets
            packets += self._reader.feed(data)
