"""Ports of UDP for CoAP clients."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Collection
from typing import Any, Final

from enmasse.bridge.gateway_ports import GatewayListener, GatewayPorts, ListenerError
from enmasse.network.port_sockets import receiving
from enmasse.text import endpoint
from enmasse.wire_formats.coap_messages import ACK, CON, LONGEST, NON, SIZE1, code, encoded, uint
from services.coap_gateway.coap_requests import CoapRequests

TICK: Final = 0.2
"""Seconds between two looks at what is due."""
LEAVING: Final = 3.0
"""Seconds in which requests get their answers, and answers their acknowledgements, before the ports are closed."""
_TOO_LARGE: Final = code("4.13")


class _Datagrams(asyncio.DatagramProtocol):
    """`number`: of the listener; `space`: address space of its clients."""

    def __init__(self, requests: CoapRequests, number: int, space: str | None) -> None:
        self._requests = requests
        self._number = number
        self._space = space
        self._send: Callable[[bytes, Any], None]

    def connection_made(self, transport: Any) -> None:
        self._send = transport.sendto

    def datagram_received(self, data: bytes, address: Any) -> None:
        if len(data) <= LONGEST:
            self._requests.memory.take(data, address, self._number, self._send, self._space)
            return
        self._requests.memory.events["malformed"] += 1
        token = data[4 : 4 + (data[0] & 15)]
        if data[0] >> 6 == 1 and 0 < data[1] < 32 and len(token) <= 8:
            kind = ACK if data[0] >> 4 & 3 == CON else NON
            options = ((SIZE1, uint(LONGEST)),)
            self._send(encoded(kind, _TOO_LARGE, data[2] << 8 | data[3], token, options), address)

    def error_received(self, error: Exception) -> None:
        """Do nothing: what the network says of an address proves nothing."""


class CoapDoor:
    """`ports`: of the sockets that are open."""

    def __init__(self, requests: CoapRequests) -> None:
        self.requests = requests
        self.ports = GatewayPorts(())
        self._loop = asyncio.get_running_loop()
        self._transports: dict[GatewayListener, list[asyncio.DatagramTransport]] = {}
        self._number = 0
        self._ticks: asyncio.Task[None] | None = None

    async def have(self, listeners: Collection[GatewayListener]) -> None:
        """Have these listeners from now on. What clients wait for at one that goes ends."""
        await self.ports.have(listeners, self.open, self._shut)

    def _shut(self, listener: GatewayListener) -> None:
        for transport in self._transports.pop(listener):
            transport.close()

    async def open(self, listener: GatewayListener) -> None:
        """Open the sockets of a listener. Raises ListenerError."""
        where = f"{listener.host}:{listener.port}"
        try:
            sockets = await receiving(self._loop, listener.host, listener.port, shared=listener.shared)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ListenerError(
                f"cannot listen on {where} ({listener.kind}): {reason}; choose another port in the setting 'listeners'"
            ) from None
        port = sockets[0].getsockname()[1]
        self._transports[listener] = [await self._serve(sock, listener) for sock in sockets]
        self.ports.show(listener, endpoint(listener.host, port))

    async def _serve(self, sock: socket.socket, listener: GatewayListener) -> asyncio.DatagramTransport:
        self._number += 1
        made = _Datagrams(self.requests, self._number, listener.space)
        transport, _ = await self._loop.create_datagram_endpoint(lambda: made, sock=sock)
        return transport

    async def run(self) -> None:
        """Look at what is due, until cancelled."""
        while True:
            await asyncio.sleep(TICK)
            self.requests.tick()

    async def close(self) -> None:
        """Serve no new request; wait for the answers of the others, then close."""
        self.requests.stopping = True
        self.requests.observations.close()
        memory, until = self.requests.memory, self._loop.time() + LEAVING
        while (memory.pending or memory.unconfirmed) and self._loop.time() < until:
            await asyncio.sleep(0.02)
        for transport in itertools.chain(*self._transports.values()):
            transport.close()
