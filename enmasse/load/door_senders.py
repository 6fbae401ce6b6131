"""Senders of `enmasse bench` over the protocols of gateways: plain clients, with many messages under way at a time.

A body is that of `enmasse.load.amqp`, so that its receiving end counts and times these messages too.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from msgspec import Struct

from enmasse.load.amqp import STAMP_SIZE, Work
from enmasse.wire_formats import coap_messages as coap
from enmasse.wire_formats.stomp_frames import BadFrame, StompFrame, StompParser, encoded

if TYPE_CHECKING:
    import aiohttp

WINDOW: Final = 256
"""Messages under way on a connection of MQTT or STOMP."""
CONNECTIONS: Final = 32
"""Connections of HTTP, each with one request under way."""
DATAGRAMS: Final = 16
"""Requests of CoAP under way."""
REPEAT_SECONDS: Final = 2.0
"""Seconds after which a datagram without an answer is sent again."""
REPEATS: Final = 5
ANSWER: Final = 64 << 10


class DoorPlace(Struct, frozen=True, kw_only=True):
    """Listener of a gateway, the address, and the user that sends. `space`: the host that STOMP states."""

    host: str
    port: int
    address: str
    space: str
    user: str | None = None
    password: str | None = None
    context: ssl.SSLContext | None = None


class DoorSender(Protocol):
    """A client that sends. `most`: messages under way at a time."""

    most: int

    async def open(self) -> None:
        """Connect. Raises OSError."""

    async def send(self, body: bytes) -> str:
        """Send a message; return why it was not accepted, empty if it was. Raises OSError."""

    async def close(self) -> None:
        """End the connection."""


async def run(sender: DoorSender, work: Work, seconds: float) -> dict[str, Any]:
    """Send with an open sender for `seconds`, and wait for the outcomes. Return counts, or only `error` if no message
    was accepted. Raises OSError."""
    mark, filling = work.mark, bytes(work.size - len(work.mark) - STAMP_SIZE)
    interval = 1e9 / work.rate if work.rate else 0.0
    start = time.monotonic_ns()
    stop = start + int(seconds * 1e9)
    sent = accepted = 0
    reason = ""

    async def one_after_the_other() -> None:
        nonlocal sent, accepted, reason
        while (now := time.monotonic_ns()) < stop:
            due = start + int(interval * sent) if interval else now
            if due >= stop:
                return
            sent += 1
            if due > now:
                await asyncio.sleep((due - now) / 1e9)
            why = await sender.send(mark + due.to_bytes(STAMP_SIZE, "big") + filling)
            accepted += not why
            reason = why or reason

    tasks = [asyncio.ensure_future(one_after_the_other()) for _ in range(sender.most)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return {"error": reason} if reason and not accepted else {"sent": sent, "accepted": accepted}


class MqttSender:
    """MQTT 5, QoS 1."""

    def __init__(self, place: DoorPlace, *, durable: bool) -> None:
        from enmasse.aio.mqtt import connect

        self.most = WINDOW
        self._topic = place.address
        self._client = connect(
            place.host, place.port, user=place.user, password=place.password, ssl=place.context, timeout=60.0
        )

    async def open(self) -> None:
        """As DoorSender."""
        await self._client.open()

    async def send(self, body: bytes) -> str:
        """As DoorSender."""
        from enmasse.aio.mqtt import Refused

        try:
            await self._client.publish(self._topic, body, 1)
        except Refused as error:
            return str(error)
        return ""

    async def close(self) -> None:
        """As DoorSender."""
        await self._client.close()


class HttpSender:
    """HTTP/1.1: a request for each message."""

    def __init__(self, place: DoorPlace, *, durable: bool) -> None:
        self.most = CONNECTIONS
        self._place = place
        scheme = "http" if place.context is None else "https"
        host = f"[{place.host}]" if ":" in place.host else place.host
        self._url = f"{scheme}://{host}:{place.port}/v1/{quote(place.address, safe='/')}/messages"
        self._headers = {"Content-Type": "application/octet-stream"} | ({} if durable else {"Enmasse-Durable": "false"})
        self._session: aiohttp.ClientSession

    async def open(self) -> None:
        """As DoorSender."""
        import aiohttp

        place = self._place
        _, writer = await asyncio.open_connection(place.host, place.port, ssl=place.context)  # errors as of the others
        writer.close()
        login = None if place.user is None else aiohttp.BasicAuth(place.user, place.password or "", "utf-8")
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=place.context or True)
        self._session = aiohttp.ClientSession(connector=connector, auth=login)

    async def send(self, body: bytes) -> str:
        """As DoorSender."""
        import aiohttp

        try:
            async with self._session.post(self._url, data=body, headers=self._headers) as answer:
                text = await answer.text()
                return "" if answer.status == 201 else f"{answer.status} {text[:200]}"
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error)) from None

    async def close(self) -> None:
        """As DoorSender."""
        await self._session.close()


class StompSender:
    """STOMP 1.2: a receipt for each message."""

    def __init__(self, place: DoorPlace, *, durable: bool) -> None:
        self.most = WINDOW
        self._place = place
        self._headers = [("destination", place.address)] + ([] if durable else [("persistent", "false")])
        self._parser = StompParser(ANSWER)
        self._receipts: dict[str, asyncio.Future[None]] = {}
        self._numbers = itertools.count(1)
        self._reading: asyncio.Task[None]

    async def open(self) -> None:
        """As DoorSender."""
        place = self._place
        self._reader, self._writer = await asyncio.open_connection(place.host, place.port, ssl=place.context)
        login = [] if place.user is None else [("login", place.user), ("passcode", place.password or "")]
        self._writer.write(encoded("CONNECT", [("accept-version", "1.2"), ("host", place.space), *login]))
        if (answer := await self._next()).command != "CONNECTED":
            raise ConnectionError(_said(answer))
        self._parser.version = "1.2"
        self._reading = asyncio.ensure_future(self._read())

    async def send(self, body: bytes) -> str:
        """As DoorSender."""
        if self._reading.done():
            self._reading.result()
        receipt = str(next(self._numbers))
        future = self._receipts[receipt] = asyncio.get_running_loop().create_future()
        self._writer.write(encoded("SEND", [*self._headers, ("receipt", receipt)], body))
        await self._writer.drain()
        await future
        return ""

    async def close(self) -> None:
        """As DoorSender."""
        self._reading.cancel()
        self._writer.close()

    async def _read(self) -> None:
        try:
            while (found := await self._next()).command == "RECEIPT":
                future = self._receipts.pop(found.headers.get("receipt-id", ""), None)
                if future is not None and not future.done():
                    future.set_result(None)
            raise ConnectionError(_said(found))
        except (OSError, BadFrame) as error:
            for future in self._receipts.values():
                if not future.done():
                    future.set_exception(ConnectionError(str(error)))
            raise ConnectionError(str(error)) from None

    async def _next(self) -> StompFrame:
        while (found := self._parser.next()) is None:
            if not (data := await self._reader.read(ANSWER)):
                raise ConnectionError("the server closed the connection")
            self._parser.feed(data)
        return found


def _said(frame: StompFrame) -> str:
    return frame.headers.get("message", frame.command) + (f": {frame.body.decode()[:200]}" if frame.body else "")


class CoapSender(asyncio.DatagramProtocol):
    """CoAP: a confirmable request for each message, sent again as the protocol says."""

    def __init__(self, place: DoorPlace, *, durable: bool) -> None:
        self.most = DATAGRAMS
        self._place = place
        levels = ("v1", *(quote(level, safe="") for level in place.address.split("/")))
        self._options = [(coap.URI_PATH, level.encode()) for level in levels]
        if not durable:
            self._options.append((coap.URI_QUERY, b"durable=false"))
        self._answers: dict[bytes, asyncio.Future[coap.CoapMessage]] = {}
        self._numbers = itertools.count(1)
        self._transport: asyncio.DatagramTransport

    async def open(self) -> None:
        """As DoorSender."""
        loop = asyncio.get_running_loop()
        where = self._place.host, self._place.port
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, remote_addr=where)

    async def send(self, body: bytes) -> str:
        """As DoorSender."""
        id = next(self._numbers) & 0xFFFF
        token = id.to_bytes(2, "big")
        data = coap.encoded(coap.CON, coap.POST, id, token, self._options, body)
        future = self._answers[token] = asyncio.get_running_loop().create_future()
        try:
            for _ in range(REPEATS):
                self._transport.sendto(data)
                done, _ = await asyncio.wait([future], timeout=REPEAT_SECONDS)
                if done:
                    answer = future.result()
                    text = answer.payload.decode("utf-8", "replace")[:200]
                    return "" if answer.code >> 5 == 2 else f"{coap.shown(answer.code)} {text}"
            raise TimeoutError(f"no answer within {REPEATS * REPEAT_SECONDS:g} s")
        finally:
            del self._answers[token]

    async def close(self) -> None:
        """As DoorSender."""
        self._transport.close()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """As asyncio.DatagramProtocol."""
        try:
            message = coap.decoded(data)
        except coap.BadDatagram:
            return
        if message.type == coap.CON:
            self._transport.sendto(coap.encoded(coap.ACK, coap.EMPTY, message.id))
        future = self._answers.get(message.token)
        if message.code and future is not None and not future.done():
            future.set_result(message)

    def error_received(self, exc: Exception) -> None:
        """As asyncio.DatagramProtocol."""
        for future in self._answers.values():
            if not future.done():
                future.set_exception(exc)


SENDERS: Final[dict[str, Callable[..., DoorSender]]] = {
    "mqtt": MqttSender,
    "http": HttpSender,
    "stomp": StompSender,
    "coap": CoapSender,
}
