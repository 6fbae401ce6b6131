"""Connection of an MQTT client on asyncio, without the rules of the protocol: packets and bytes out, packets in."""

from __future__ import annotations

import asyncio
import contextlib
import ssl as ssl_module
from collections.abc import Callable
from typing import cast

from enmasse.mqtt import encode, reasons
from enmasse.mqtt.errors import MqttError
from enmasse.mqtt.packets import V5, ConnAck, Disconnect, Packet
from enmasse.mqtt.reader import BIGGEST, Reader

TlsContext = ssl_module.SSLContext | None


class Disconnected(ConnectionError):
    """Raised if there is no connection. `packet`: the CONNACK or DISCONNECT that ended it; `reason`: its code."""

    def __init__(self, sentence: str, reason: int | None = None, packet: ConnAck | Disconnect | None = None) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.packet = packet


def words(what: str, packet: ConnAck | Disconnect, version: int) -> str:
    """Return the text of a CONNACK or DISCONNECT for people."""
    name = reasons.name if version == V5 else reasons.v3_name
    text = packet.properties.reason_string
    return f"{what}: {name(packet.reason)}{f' ({text})' if text else ''}"


class Wire(asyncio.Protocol):
    """Protocol that calls `on_packets` with the packets of each read, and `on_lost` once. Bytes that are written in one
    turn of the loop are sent together."""

    def __init__(
        self,
        version: int,
        on_packets: Callable[[list[Packet]], None],
        on_lost: Callable[[Exception | None], None],
    ) -> None:
        self.version = version
        self.transport: asyncio.Transport | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self.moves = False
        """Set once something comes, or the server has taken what waited to be written."""
        self._reader = Reader(server=False, version=version, max_packet=BIGGEST)
        self._on_packets = on_packets
        self._on_lost = on_lost
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio.Protocol."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it

    def data_received(self, data: bytes) -> None:
        """As asyncio.Protocol."""
        self.moves = True
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
        """As asyncio.Protocol."""
        self.transport = None
        self.writable.set()
        self._on_lost(self._error or exc)

    def pause_writing(self) -> None:
        """As asyncio.Protocol."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """As asyncio.Protocol."""
        self.moves = True
        self.writable.set()

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the loop, or of the read that is being processed."""
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(data)

    def flush(self) -> None:
        """Write the bytes that have gathered."""
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            if self.transport is not None and not self.transport.is_closing():
                self.transport.write(data)

    def read(self, wanted: bool) -> None:
        """Pause or resume reading the socket."""
        if self.transport is not None and not self.transport.is_closing():
            with contextlib.suppress(RuntimeError):
                if wanted:
                    self.transport.resume_reading()
                else:
                    self.transport.pause_reading()

    def fail(self, error: Exception) -> None:
        """Close because of a malformed packet of the server, after a DISCONNECT with the reason (MQTT 5)."""
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
        """Drop the connection without a DISCONNECT."""
        self._out.clear()
        if self.transport is not None:
            self.transport.abort()


def _as_client_says(reason: int) -> int:
    return reason if reason in reasons.DISCONNECT_OF_CLIENT else reasons.UNSPECIFIED_ERROR


async def dial(host: str, port: int, wire: Callable[[], Wire], ssl: TlsContext = None, timeout: float = 10.0) -> Wire:
    """Return a connected wire. Raises OSError or TimeoutError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            _, made = await loop.create_connection(wire, host, port, ssl=ssl, server_hostname=host if ssl else None)
    except TimeoutError:
        raise TimeoutError(f"waited {timeout:g} s for {host}:{port} to take the connection") from None
    return made
