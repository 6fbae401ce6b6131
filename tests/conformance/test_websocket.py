"""MQTT over WebSocket: subprotocol, frames, and the same server behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from enmasse.testing import Suite
from tests.conformance.conftest import Server
from tests.conformance.marks import clauses
from tests.conformance.test_sessions import Name
from tests.conformance.wire import PING, connect, disconnect, publish, subscribe
from tests.kit.waiting import DEADLINE

WEBSOCKET = 8083
SECONDS = DEADLINE


def run(suite: Suite, talk: Any, **options: Any) -> None:
    async def session() -> None:
        url = f"http://127.0.0.1:{WEBSOCKET + suite.offset}/mqtt"
        asked = {"protocols": ["mqtt"], **options}
        async with aiohttp.ClientSession() as client, client.ws_connect(url, **asked) as socket:
            await asyncio.wait_for(talk(socket), SECONDS)

    asyncio.run(session())


async def packets(socket: aiohttp.ClientWebSocketResponse, count: int) -> bytes:
    """That many bytes at least, from binary frames only."""
    got = b""
    while len(got) < count:
        message = await socket.receive()
        assert message.type is aiohttp.WSMsgType.BINARY, message
        got += message.data
    return got


@clauses(v3="6.0.0-1 6.0.0-2 6.0.0-4", v5="6.0.0-1 6.0.0-2 6.0.0-4")
def test_packets_and_frames_need_not_be_aligned(running_suite: Suite, version: int, unique: Name) -> None:
    topic = unique("t")
    asked = connect(unique("c"), version) + subscribe(1, [(topic, 0)], version) + PING

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        assert socket.protocol == "mqtt"
        got = b""
        for sent, awaited in ((asked, (b"\xd0\x00", b"\x90")), (publish(topic, b"over", version), (b"over",))):
            for at in range(0, len(sent), 5):
                await socket.send_bytes(sent[at : at + 5])
            while not all(answer in got for answer in awaited):
                got += await packets(socket, 1)
        assert got[0] == 0x20
        await socket.send_bytes(disconnect(version) if version == 4 else PING + disconnect(version))
        while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
            pass
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)

    run(running_suite, talk)


@clauses(v3="6.0.0-1", v5="6.0.0-1")
def test_a_text_frame_closes(running_suite: Suite, version: int, unique: Name) -> None:
    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(connect(unique("c"), version))
        await packets(socket, 4)
        await socket.send_str("text")
        while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
            pass
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)

    run(running_suite, talk)


@clauses(v3="6.0.0-4", v5="6.0.0-4")
def test_one_of_several_subprotocols(running_suite: Suite) -> None:
    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        assert socket.protocol == "mqtt"

    run(running_suite, talk, protocols=["other", "mqtt", "mqttv3.1"])


def test_from_websocket_to_tcp_and_back(running_suite: Suite, server: Server, version: int, unique: Name) -> None:
    there, back = unique("t"), unique("t")
    raw = server.opened(version, unique("c"))
    raw.subscribe(there)

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(connect(unique("c"), version) + subscribe(1, [(back, 0)], version))
        await packets(socket, 4 + 5)
        await socket.send_bytes(publish(there, bytes(100_000), version, qos=1, pid=1))
        got = await asyncio.to_thread(raw.message)
        assert got.payload == bytes(100_000)
        raw.publish(back, b"y" * 100_000, qos=0)
        assert b"y" * 100_000 in await packets(socket, 100_000)

    run(running_suite, talk)


@pytest.mark.parametrize("path", ["/", "/other"])
def test_another_path_is_not_found(running_suite: Suite, path: str) -> None:
    async def ask() -> int:
        url = f"http://127.0.0.1:{WEBSOCKET + running_suite.offset}{path}"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            return answer.status

    assert asyncio.run(ask()) == 404
