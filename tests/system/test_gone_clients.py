"""Nothing is held of clients of STOMP, HTTP, CoAP and MQTT that have received, however they left, until the garbage
collector comes: it comes rarely in a gateway, and after hours to what it has met alive."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enmasse.process.runner import Stop
from enmasse.testing import free_port
from enmasse.wire_formats.coap_messages import RST
from services.coap_gateway import app as coap
from services.coap_gateway.settings import CoapGatewaySettings
from services.http_gateway import app as http
from services.http_gateway.settings import HttpGatewaySettings
from services.mqtt_gateway import app as mqtt
from services.mqtt_gateway.settings import MqttGatewaySettings
from services.stomp_gateway import app as stomp
from services.stomp_gateway.settings import StompGatewaySettings
from tests.amqp.server_kit import run
from tests.amqp.test_gone_connections import living
from tests.coap_gateway.coap_peer import CoapPeer
from tests.configserv.running import FLAVORS, Configserv
from tests.kit.waiting import until
from tests.mqtt_gateway.environment import ADDRESSES, Router
from tests.mqtt_gateway.toy_services import ToySessions, ToyWills

Talk = list[tuple[bytes, bytes]]
"""What a client says, and what is to come as an answer."""

_CONNECT = (b"CONNECT\naccept-version:1.2\nhost:x\n\n\0", b"CONNECTED")
_NEWS = (b"SUBSCRIBE\nid:1\ndestination:news\nreceipt:r\n\n\0", b"RECEIPT")
_ASK = (b"SUBSCRIBE\nid:1\ndestination:ask\nack:client\nreceipt:r\n\n\0", b"RECEIPT")
_TO_ASK = (b"SEND\ndestination:ask\n\nquestion\0", b"question")
STOMP: dict[str, Talk] = {
    "subscribed": [_CONNECT, _NEWS],
    "two subscriptions": [_CONNECT, _NEWS, (_ASK[0].replace(b"id:1", b"id:2"), b"RECEIPT")],
    "unsubscribed": [_CONNECT, _NEWS, (b"UNSUBSCRIBE\nid:1\nreceipt:u\n\n\0", b"RECEIPT")],
    "disconnected": [_CONNECT, _NEWS, (b"DISCONNECT\nreceipt:d\n\n\0", b"RECEIPT")],
    "received, acknowledged": [_CONNECT, _ASK, _TO_ASK, (b"ACK\nid:1\nreceipt:a\n\n\0", b"RECEIPT")],
    "temporary": [_CONNECT, (b"SUBSCRIBE\nid:1\ndestination:/temp-queue/a\nreceipt:r\n\n\0", b"RECEIPT")],
    "transaction": [_CONNECT, _NEWS, (b"BEGIN\ntransaction:t\nreceipt:b\n\n\0", b"RECEIPT")],
    "an error": [_CONNECT, _NEWS, (b"SEND\ndestination:nowhere\n\n\0", b"ERROR")],
}
HTTP: dict[str, Talk] = {
    "events": [(b"GET /v1/news/events HTTP/1.1\r\nHost: x\r\n\r\n", b"text/event-stream")],
    "posted": [(b"POST /v1/news/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", b"HTTP/1.1 ")],
    "nothing to receive": [(b"POST /v1/ask/messages/next?wait=0 HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 ")],
    "waits for a message": [(b"POST /v1/ask/messages/next?wait=30 HTTP/1.1\r\nHost: x\r\n\r\n", b"")],
    "no such address": [(b"GET /v1/nowhere/events HTTP/1.1\r\nHost: x\r\n\r\n", b"404")],
}
_MQTT = (b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c", b"\x20\x02\x00\x00")
_SUBSCRIBE = (b"\x82\x09\x00\x01\x00\x04news\x00", b"\x90\x03\x00\x01")
MQTT: dict[str, Talk] = {
    "subscribed": [_MQTT, _SUBSCRIBE],
    "unsubscribed": [_MQTT, _SUBSCRIBE, (b"\xa2\x08\x00\x02\x00\x04news", b"\xb0\x02\x00\x02")],
    "published": [_MQTT, _SUBSCRIBE, (b"\x30\x07\x00\x04newsx", b"newsx")],
    "disconnected": [_MQTT, _SUBSCRIBE, (b"\xe0\x00", b"")],
}


async def talk(port: int, said: Talk, abort: bool) -> None:
    """Say it, and leave."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for words, answer in said:
        writer.write(words)
        got = b""
        while answer not in got:
            more = await reader.read(1 << 16)
            assert more, (words, got)
            got += more
    writer.transport.abort() if abort else writer.close()


def by_talks(talks: dict[str, Talk]) -> Callable[[int], Awaitable[None]]:
    async def visit(port: int) -> None:
        for said in talks.values():
            for abort in (False, True):
                await talk(port, said, abort)

    return visit


async def observers(port: int) -> None:
    """Observe an address, and refuse a notification."""

    def visit() -> None:
        with CoapPeer(port) as peer, CoapPeer(port) as other:
            assert peer.observe("/v1/news").options
            other.ask("/v1/news", b"x")
            peer.notification(RST)
            peer.ping()

    await asyncio.to_thread(visit)


GATEWAYS: dict[str, tuple[Any, Any, str, Callable[[int], Awaitable[None]]]] = {
    "stomp": (stomp.serve, StompGatewaySettings, "stomp", by_talks(STOMP)),
    "http": (http.serve, HttpGatewaySettings, "http", by_talks(HTTP)),
    "mqtt": (mqtt.serve, MqttGatewaySettings, "mqtt", by_talks(MQTT)),
    "coap": (coap.serve, CoapGatewaySettings, "coap", observers),
}


REMEMBERED = {
    *(f"services.coap_gateway.coap_memory.{name}" for name in ("CoapExchange", "CoapEndpoint")),
    "enmasse.identity.refused.Refusal",
}
"""What is kept for a time: to recognise datagrams that are repeated (`max_remembered`), and to count equal refusals
(`MAX_KEYS`)."""
LETTING_GO = 30.0
"""Seconds in which a gateway lets go of clients, while its garbage collector rests."""


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A router and a configuration service; settings by which a gateway finds them."""
    folder: Path = tmp_path_factory.mktemp("around")
    configserv = Configserv(folder)
    configserv.write("flavors.json", FLAVORS)
    configserv.write("addresses.json", ADDRESSES)
    configserv.start()
    router = Router(folder)
    router.start()
    try:
        yield {"router": f"127.0.0.1:{router.services}", "configserv": str(configserv.settings["listen"])}
    finally:
        router.kill()
        configserv.stop()


@asynccontextmanager
async def gateway(serve: Any, kind: Any, listener: str, around: dict[str, str]) -> AsyncIterator[int]:
    """A gateway in this process."""
    port, health = free_port(), free_port()
    listeners = [{"kind": listener, "host": "127.0.0.1", "port": port}]
    own = {"name": "g1", "health": f"127.0.0.1:{health}", "listeners": listeners}
    stop, thresholds = Stop(), gc.get_threshold()
    running = asyncio.create_task(serve(msgspec.convert({**around, **own}, kind), stop))
    shown: dict[str, Any] = {}

    async def ready() -> bool:
        assert not running.done(), running.exception()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", health)
        except OSError:
            return False
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        shown.update(json.loads(answer.partition(b"\r\n\r\n")[2]))
        return bool(shown["ready"])

    try:
        try:
            await until(ready)
        except AssertionError:
            pytest.fail(f"the gateway is not ready: {shown}")
        yield port
    finally:
        stop.hurry.set()
        stop.set()
        await running
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@pytest.mark.parametrize("protocol", GATEWAYS)
def test_nothing_is_held_of_a_client_that_has_left(protocol: str, around: dict[str, str]) -> None:
    serve, kind, listener, visit = GATEWAYS[protocol]

    async def main() -> None:
        toys = ToySessions(), ToyWills()
        for toy in toys if protocol == "mqtt" else ():
            await toy.connect(int(around["router"].rpartition(":")[2]))
        async with gateway(serve, kind, listener, around) as port:
            for _ in range(3):  # what is made once is there now
                await visit(port)
            await asyncio.sleep(0)
            gc.collect()
            before = living()
            gc.disable()
            try:
                for _ in range(8):
                    await visit(port)
                held = Counter[str]()

                def gone() -> bool:
                    held.clear()
                    held.update({name: n for name, n in (living() - before).items() if name not in REMEMBERED})
                    return not held

                try:
                    await until(gone, seconds=LETTING_GO)
                except AssertionError:
                    pytest.fail(f"held of clients that have left: {held}")
            finally:
                gc.enable()

    run("uvloop", main)
