"""Health over HTTP: asked by a real HTTP client, and by peers that do not play by the rules."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from enmasse import health
from enmasse.health import Health, metric
from tests.control.aio import asyncio_test, until


def get(url: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


async def fetch(url: str) -> tuple[int, str, bytes]:
    return await asyncio.to_thread(get, url)


async def exchange(address: str, data: bytes) -> bytes:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()


@asyncio_test
async def test_healthz_tells_ready_detail_and_endpoints() -> None:
    server = Health("127.0.0.1:0")
    await server.start()
    status, kind, body = await fetch(f"http://{server.address}/healthz")
    assert (status, kind, json.loads(body)) == (
        503,
        "application/json",
        {"ready": False, "detail": "starting", "endpoints": {}},
    )
    server.set(True)
    server.endpoints = {"amqp": "127.0.0.1:5672"}
    status, _, body = await fetch(f"http://{server.address}/healthz")
    assert (status, json.loads(body)["endpoints"]) == (200, {"amqp": "127.0.0.1:5672"})
    assert (await fetch(f"http://{server.address}/other"))[0] == 404
    assert b"405" in await exchange(server.address, b"POST /healthz HTTP/1.1\r\n\r\n")
    await server.close()


@asyncio_test
async def test_metrics_come_from_the_service_or_from_the_registry() -> None:
    server = Health("127.0.0.1:0")
    await server.start()
    assert b"python_info" in (await fetch(f"http://{server.address}/metrics"))[2]
    server.metrics = lambda: metric("things", "gauge", "How\nmany", [({"kind": 'a"b'}, 2.5), ({}, 1)])
    status, kind, body = await fetch(f"http://{server.address}/metrics")
    assert status == 200 and kind.startswith("text/plain")
    assert body.decode() == '# HELP things How\\nmany\n# TYPE things gauge\nthings{kind="a\\"b"} 2.5\nthings 1\n'
    await server.close()


@asyncio_test
async def test_a_request_is_bounded_in_size() -> None:
    server = Health("127.0.0.1:0")
    await server.start()
    answer = await exchange(server.address, b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 20000)
    assert answer == b"reset" or b"431" in answer
    assert b"400" in await exchange(server.address, b"\x00\x01\x02\n\n")
    await server.close()


@asyncio_test
@pytest.mark.parametrize("half", [b"", b"GET /healthz HTTP/1.1\r\nHost: h\r\n"])
async def test_who_does_not_ask_keeps_nobody_out(half: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(health, "TIMEOUT", 3600)
    server = Health("127.0.0.1:0")
    await server.start()
    host, port = server.address.split(":")
    kept = await asyncio.open_connection(host, int(port))  # as the supervisor does it: asks from time to time
    ask = b"GET /healthz HTTP/1.1\r\nConnection: keep-alive\r\n\r\n"
    kept[1].write(ask)
    assert b"503" in await kept[0].readuntil(b"\r\n\r\n")
    await kept[0].readuntil(b"}}")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
    for _, writer in silent:
        writer.write(half)
    assert b"503" in await exchange(server.address, b"GET /healthz HTTP/1.1\r\n\r\n")
    kept[1].write(ask)
    assert b"503" in await kept[0].readuntil(b"\r\n\r\n")
    for _, writer in (kept, *silent):
        writer.close()
    await until(lambda: not server._open)
    await server.close()


@asyncio_test
async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(health, "TIMEOUT", 3600)
    server = Health("127.0.0.1:0")
    await server.start()
    host, port = server.address.split(":")
    idle = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
    for reader, writer in idle:
        writer.write(b"GET /healthz HTTP/1.1\r\nConnection: keep-alive\r\n\r\n")
        await reader.readuntil(b"}}")
    await until(lambda: len(server._open) == 2)
    assert await exchange(server.address, b"GET /healthz HTTP/1.1\r\n\r\n") in (b"", b"reset")
    for _, writer in idle:
        writer.close()
    await until(lambda: not server._open)
    assert b"503" in await exchange(server.address, b"GET /healthz HTTP/1.1\r\n\r\n")
    await server.close()


@asyncio_test
async def test_a_slow_request_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "TIMEOUT", 0.1)
    server = Health("127.0.0.1:0")
    await server.start()
    assert await exchange(server.address, b"GET /healthz HTTP/1.1\r\n") in (b"", b"reset")
    await until(lambda: not server._open)
    await server.close()


@asyncio_test
async def test_who_asks_again_without_reading_is_cut_off() -> None:
    server = Health("127.0.0.1:0", lambda: "x" * 1_000_000)
    await server.start()
    host, port = server.address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    await until(lambda: server._open)

    def ask_on() -> bool:
        writer.write(b"GET /metrics HTTP/1.1\r\nConnection: keep-alive\r\n\r\n")
        return not server._open

    await until(ask_on)
    writer.close()
    await server.close()
