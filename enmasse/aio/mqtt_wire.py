"""An MQTT connection as a client sees it, without rules: packets and bytes out, packets in.

`Wire` is what the client (`enmasse.aio.mqtt`) stands on; `RawClient` is for tests and tools that want to say exactly
what goes out, right or wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl as ssl_module
from collections import deque
from collections.abc import Callable
from typing import TypeVar, cast

from enmasse.mqtt import encode, reasons
from enmasse.mqtt.errors import MqttError
from enmasse.mqtt.packets import V5, ConnAck, Connect, Disconnect, Packet
from enmasse.mqtt.reader import BIGGEST, Reader

P = TypeVar("P")
TlsContext = ssl_module.SSLContext | None


class Disconnected(ConnectionError):
    """There is no connection (any more). `reason` is what the server gave in CONNACK or DISCONNECT, None if it gave
    none; `packet` that packet."""

    def __init__(self, sentence: str, reason: int | None = None, packet: ConnAck | Disconnect | None = None) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.packet = packet


def words(what: str, packet: ConnAck | Disconnect, version: int) -> str:
    """What a CONNACK or DISCONNECT says, for people."""
    name = reasons.name if version == V5 else reasons.v3_name
    text = packet.properties.reason_string
    return f"{what}: {name(packet.reason)}{f' ({text})' if text else ''}"


class Wire(asyncio.Protocol):
    """Calls `on_packets` with the packets of each read and `on_lost` once. What is written in one turn of the loop
    goes out together."""

    def __init__(
        self,
        version: int,
        on_packets: Callable[[list[Packet]], None],
        on_lost: Callable[[Exception | None], None],
        max_packet: int = BIGGEST,
    ) -> None:
        self.version = version
        self.transport: asyncio.Transport | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self._reader = Reader(server=False, version=version, max_packet=max_packet)
        self._on_packets = on_packets
        self._on_lost = on_lost
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none by inheritance
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        try:
            packets = self._reader.feed(data)
        except MqttError as error:
            if error.packets:
                self._on_packets(error.packets)
            self.fail(error)
            return
        if packets:
            self._on_packets(packets)
            if self._out:
                self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.writable.set()
        self._on_lost(self._error or exc)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def write(self, data: bytes) -> None:
        """Bytes that go out at the end of this turn of the loop, or of the read that is being processed."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(data)

    def flush(self) -> None:
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            if self.transport is not None and not self.transport.is_closing():
                self.transport.write(data)

    def read(self, wanted: bool) -> None:
        """Stop or go on reading the socket."""
        if self.transport is not None and not self.transport.is_closing():
            with contextlib.suppress(RuntimeError):
                if wanted:
                    self.transport.resume_reading()
                else:
                    self.transport.pause_reading()

    def fail(self, error: Exception) -> None:
        """What the server sent cannot be taken: say so if the version can, and close."""
        self._error = error
        if isinstance(error, MqttError) and self.version == V5:
            self.write(encode.encode(Disconnect(_as_client_says(error.reason)), V5, True))
        self.close()

    def close(self) -> None:
        """Close the socket after what was written."""
        self.flush()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Drop the socket without a word, as a client does that dies."""
        self._out.clear()
        if self.transport is not None:
            self.transport.abort()


def _as_client_says(reason: int) -> int:
    return reason if reason in reasons.DISCONNECT_OF_CLIENT else reasons.UNSPECIFIED_ERROR


async def dial(host: str, port: int, wire: Callable[[], Wire], ssl: TlsContext = None, timeout: float = 10.0) -> Wire:
    """A wire that is connected. Raises OSError or TimeoutError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            _, made = await loop.create_connection(wire, host, port, ssl=ssl, server_hostname=host if ssl else None)
    except TimeoutError:
        raise TimeoutError(f"waited {timeout:g} s for {host}:{port} to take the connection") from None
    return made


class RawClient:
    """A connection on which nothing happens by itself: `send` what you like, take packets one by one.

    raw = await RawClient.open("localhost", 1883, version=V5)
    raw.send(Connect("c1"))
    answer = await raw.take(ConnAck)
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.packets: deque[Packet] = deque()
        self.lost = False
        self.error: Exception | None = None
        """Why the connection ended; None if the server closed it in order."""
        self._changed = asyncio.Event()
        self.wire = Wire(version, self._on_packets, self._on_lost)

    @classmethod
    async def open(
        cls, host: str, port: int, version: int = V5, ssl: TlsContext = None, timeout: float = 10.0
    ) -> RawClient:
        """Raises OSError or TimeoutError."""
        raw = cls(version)
        await dial(host, port, lambda: raw.wire, ssl, timeout)
        return raw

    def send(self, *packets: Packet | bytes) -> None:
        """Packets, or bytes as they are; out at the end of this turn. Raises ValueError for a packet that cannot be."""
        for packet in packets:
            self.wire.write(packet if isinstance(packet, bytes) else encode.encode(packet, self.version, True))

    async def connect(self, packet: Connect | None = None, timeout: float = 10.0) -> ConnAck:
        """Send a CONNECT (default: a clean one) and take the CONNACK."""
        self.send(packet or Connect(version=self.version))
        return await self.take(ConnAck, timeout)

    async def take(self, kind: type[P], timeout: float = 10.0) -> P:
        """The next packet, which has to be of this type: else AssertionError. Raises Disconnected if there is none any
        more, TimeoutError."""
        found = await self.next(timeout)
        if not isinstance(found, kind):
            raise AssertionError(f"{kind.__name__} expected, the server sent {found!r}")
        return found

    async def next(self, timeout: float = 10.0) -> Packet:
        """The next packet of any type. Raises Disconnected if there is none any more, TimeoutError."""
        async with asyncio.timeout(timeout):
            while not self.packets:
                if self.lost:
                    raise Disconnected(f"the connection has ended: {self.error or 'closed by the server'}")
                self._changed.clear()
                await self._changed.wait()
        return self.packets.popleft()

    async def ended(self, timeout: float = 10.0) -> list[Packet]:
        """Wait until the server has closed the connection; the packets that were not taken before."""
        async with asyncio.timeout(timeout):
            while not self.lost:
                self._changed.clear()
                await self._changed.wait()
        left = list(self.packets)
        self.packets.clear()
        return left

    def close(self) -> None:
        self.wire.close()

    def abort(self) -> None:
        self.wire.abort()

    async def __aenter__(self) -> RawClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.abort()

    def _on_packets(self, packets: list[Packet]) -> None:
        self.packets += packets
        self._changed.set()

    def _on_lost(self, error: Exception | None) -> None:
        self.lost = True
        self.error = error
        self._changed.set()


def default_port(tls: bool) -> int:
    return 8883 if tls else 1883
