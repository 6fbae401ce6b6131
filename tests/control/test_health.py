"""Health over HTTP: asked by a real HTTP client, and by peers that do not play by the rules."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from enmasse.http.health import Health
from enmasse.http.webserver import Bounds, Request, Response, WebServer, plain
from enmasse.metrics import counter, gauge, single
from enmasse.network.acceptor import oldest_of_most
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.kit.waiting import wait_for as wait_until

ASK = b"GET /healthz HTTP/1.1\r\n\r\n"
ASK_ON = b"GET /healthz HTTP/1.1\r\nConnection: keep-alive\r\n\r\n"
PATIENT = 3600.0


def get(url: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
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


@asynccontextmanager
async def serving(metrics: Callable[[], Iterable[Any]] = tuple, **options: Any) -> AsyncIterator[Health]:
    server = Health("127.0.0.1:0", metrics, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (None, 503), ("localhost", 503), ("127.0.0.1:80", 503), ("[::1]:80", 503), ("10.0.0.7", 503),
        ("evil.example", 403), ("127.0.0.1.evil.example:80", 403), ("localhost.evil.example", 403), ("", 403),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/metrics"])
@asyncio_test
async def test_pages_of_other_sites_are_not_answered_on_loopback(path: str, host: str | None, status: int) -> None:
    """Their name may have been made to resolve to this machine (DNS rebinding)."""
    header = "" if host is None else f"Host: {host}\r\n"
    async with serving() as server:
        answer = await exchange(server.address, f"GET {path} HTTP/1.1\r\n{header}\r\n".encode())
    wanted = 200 if status == 503 and path in ("/livez", "/metrics") else status
    assert answer.split()[1] == str(wanted).encode()


@asyncio_test
async def test_healthz_states_ready_detail_and_endpoints() -> None:
    async with serving() as server:
        status, kind, body = await fetch(f"http://{server.address}/healthz")
        assert (status, kind, json.loads(body)) == (
            503,
            "application/json",
            {"ready": False, "detail": "starting", "endpoints": {}},
        )
        assert (await fetch(f"http://{server.address}/readyz"))[0] == 503
        server.set(True)
        server.endpoints = lambda: {"amqp": "127.0.0.1:5672"}
        status, _, body = await fetch(f"http://{server.address}/healthz")
        assert (status, json.loads(body)["endpoints"]) == (200, {"amqp": "127.0.0.1:5672"})
        assert (await fetch(f"http://{server.address}/readyz"))[0] == 200
        server.counts = lambda: {"clients": 3}
        assert json.loads((await fetch(f"http://{server.address}/healthz"))[2])["counts"] == {"clients": 3}
        assert (await fetch(f"http://{server.address}/other"))[0] == 404
        assert b"405" in await exchange(server.address, b"POST /healthz HTTP/1.1\r\n\r\n")
        head = await exchange(server.address, b"HEAD /healthz HTTP/1.1\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ") and head.endswith(b"\r\n\r\n")


@asyncio_test
async def test_a_check_is_asked_each_time() -> None:
    answers = [(False, "second"), (True, "first")]
    async with serving(check=lambda: answers.pop()) as server:
        assert (await fetch(f"http://{server.address}/readyz"))[0] == 200
        status, _, body = await fetch(f"http://{server.address}/readyz")
        assert (status, json.loads(body)["detail"]) == (503, "second")


@asyncio_test
async def test_a_blocked_event_loop_is_not_live() -> None:
    release = threading.Event()
    loop = asyncio.get_running_loop()
    async with serving(blocked_seconds=1.5) as server:
        server.set(True)
        url = f"http://{server.address}"
        assert await fetch(f"{url}/livez") == (200, "text/plain; charset=utf-8", b"live\n")

        def look() -> tuple[int, bytes]:
            loop.call_soon_threadsafe(release.wait)
            try:
                wait_until(lambda: get(f"{url}/livez")[0] == 503, "it is not live")
                status, _, body = get(f"{url}/readyz")
                return status, body
            finally:
                release.set()

        status, body = await asyncio.to_thread(look)
        assert (status, json.loads(body)["ready"]) == (503, False)

        async def live() -> bool:
            return (await fetch(f"{url}/livez"))[0] == 200

        await until(live)
        assert (await fetch(f"{url}/readyz"))[0] == 200


@asyncio_test
async def test_metrics_are_collected_when_they_are_scraped() -> None:
    made = []

    def families() -> Iterable[Any]:
        yield gauge("things", "How\nmany", [({"kind": 'a"b'}, 2.5), ({}, 1)])
        yield counter("events_total", "Seen.", single(3))
        made.append(True)
        yield gauge("more", "Others.", [])

    async with serving(families) as server:
        status, kind, body = await fetch(f"http://{server.address}/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        own, _, common = body.decode().partition("# HELP enmasse_build_info")
        assert "enmasse_loop_lag_seconds_bucket" in common
        assert own == (
            '# HELP things How\\nmany\n# TYPE things gauge\nthings{kind="a\\"b"} 2.5\nthings 1.0\n'
            "# HELP events_total Seen.\n# TYPE events_total counter\nevents_total 3.0\n"
            "# HELP more Others.\n# TYPE more gauge\n"
        )
        one = (await fetch(f"http://{server.address}/metrics?name[]=things"))[2]
        assert b"things 1.0" in one and b"events" not in one and made == [True]  # what comes later was not made


def test_a_counter_is_named_as_one() -> None:
    with pytest.raises(ValueError, match="things_total"):
        counter("things", "Seen.", [])


@asyncio_test
async def test_a_request_is_bounded_in_size() -> None:
    async with serving() as server:
        answer = await exchange(server.address, b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 20000)
        assert answer == b"reset" or b" 431 " in answer
        assert b" 400 " in await exchange(server.address, b"\x00\x01\x02\n\n")
        assert b" 413 " in await exchange(server.address, b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")


@asyncio_test
@pytest.mark.parametrize("half", [b"", b"GET /healthz HTTP/1.1\r\nHost: h\r\n"])
async def test_who_does_not_ask_keeps_nobody_out(half: bytes) -> None:
    async with serving(bounds=Bounds(connections=3, request_seconds=PATIENT)) as server:
        host, port = server.address.split(":")
        kept = await asyncio.open_connection(host, int(port))  # as the supervisor does it: asks from time to time
        kept[1].write(ASK_ON)
        assert b"503" in await kept[0].readuntil(b"\r\n\r\n")
        await kept[0].readuntil(b"}}")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
        for _, writer in silent:
            writer.write(half)
        assert b"503" in await exchange(server.address, ASK)
        kept[1].write(ASK_ON)
        assert b"503" in await kept[0].readuntil(b"\r\n\r\n")
        for _, writer in (kept, *silent):
            writer.close()
        await until(lambda: server.connections == 0)


@asyncio_test
async def test_connections_are_bounded() -> None:
    async with serving(bounds=Bounds(connections=2, request_seconds=PATIENT)) as server:
        host, port = server.address.split(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        for reader, writer in idle:
            writer.write(ASK_ON)
            await reader.readuntil(b"}}")
        assert server.connections == 2
        assert await exchange(server.address, ASK) in (b"", b"reset")
        for _, writer in idle:
            writer.close()
        await until(lambda: server.connections == 0)
        assert b"503" in await exchange(server.address, ASK)


@asyncio_test
@pytest.mark.parametrize("part", [b"", b"GET /healthz HTTP/1.1\r\n", ASK_ON, ASK_ON + b"GET"])
async def test_a_slow_request_is_ended(part: bytes) -> None:
    async with serving(bounds=Bounds(request_seconds=0.1)) as server:
        assert (await exchange(server.address, part)).count(b"HTTP/1.1") == part.count(b"\r\n\r\n")
        await until(lambda: server.connections == 0)


@asyncio_test
async def test_who_asks_again_without_reading_is_cut_off() -> None:
    large = gauge("large", "x" * 1_000_000, [])
    async with serving(lambda: [large], bounds=Bounds(answer_seconds=0.1)) as server:
        host, port = server.address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        await until(lambda: server.connections)

        def ask_on() -> bool:
            writer.write(ASK_ON.replace(b"healthz", b"metrics"))
            return server.connections == 0

        await until(ask_on)
        writer.close()


@asyncio_test
async def test_metrics_that_fail_are_an_error_with_a_reason_in_the_log() -> None:
    def fails() -> Iterable[Any]:
        raise ValueError("no such metric")

    async with serving(fails) as server:
        status, _, body = await fetch(f"http://{server.address}/metrics")
        assert (status, body) == (500, b"the request failed; the log has the reason\n")
        assert (await fetch(f"http://{server.address}/livez"))[0] == 200


@asyncio_test
@pytest.mark.parametrize("size", [1, 99], ids=["most of it is missing", "its end is missing"])
async def test_a_body_that_is_cut_off_reaches_no_handler(size: int) -> None:
    """Neither if the peer leaves, nor if it only ends its side of the connection."""
    seen: list[bytes] = []

    def answer(request: Request) -> Response:
        seen.append(request.body)
        return plain(200, "done")

    listening = socket.create_server(("127.0.0.1", 0))
    server = WebServer(listening, answer, Bounds(body_bytes=1000))
    server.start()
    try:
        for half in (False, True):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n" + b"x" * size)
            if half:
                writer.write_eof()
                assert await reader.read() == b""
            writer.close()
        await until(lambda: not server.connections)
        assert not seen
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody")
        assert b" 200 " in await reader.read()
        writer.close()
        assert seen == [b"body"]
    finally:
        server.close()


def test_one_host_makes_room_for_others() -> None:
    class One(NamedTuple):
        host: str
        number: int

    open_now = [One("b", 0), One("a", 1), One("b", 2), One("a", 3), One("a", 4)]
    assert oldest_of_most(open_now) == One("a", 1)
    assert oldest_of_most([]) is None
    subnet = [One("2001:db8::1", 0), One("a", 1), One("2001:db8::2:1", 2), One("a", 3), One("2001:db8::3", 4)]
    assert oldest_of_most(subnet) == subnet[0]  # who has one address of a /64 has them all
