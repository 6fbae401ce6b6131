"""The client of HTTP, blocking and on an event loop, at servers that do what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enmasse.http.async_client import AsyncClient
from enmasse.http.client import Client, lines
from enmasse.http.http11 import Answer, AnswerError
from tests.certificates import Authority
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

MOST = 1000
OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"Content-Length: 0\r\n\r\n"
ELSEWHERE = "127.0.0.2"
"""The certificate is not of this host."""
Ask = Callable[[int, str], Answer]


@contextmanager
def server(*answers: bytes, keeps: bool = False) -> Iterator[tuple[int, list[bytes]]]:
    """Answers each request with the next of the answers, each on a connection of its own unless it `keeps` the first.
    Yields the port, and the requests that came."""
    asked: list[bytes] = []

    def serve() -> None:
        waiting = list(answers)
        while waiting:
            accepted, _ = listening.accept()
            with accepted:
                while waiting and (request := accepted.recv(65536)):
                    while (end := request.find(b"\r\n\r\n")) < 0:
                        request += accepted.recv(65536)
                    asked.append(request[:end])
                    accepted.sendall(waiting.pop(0))
                    if not keeps:
                        break

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], asked
        thread.join()


def blocking(port: int, method: str = "GET") -> Answer:
    client = Client("127.0.0.1", port)
    try:
        return client.request(method, "/a?b=c", {"X-Token": "ü"}, most=MOST)
    finally:
        client.close()


def looping(port: int, method: str = "GET") -> Answer:
    async def ask() -> Answer:
        client = AsyncClient("127.0.0.1", port)
        try:
            return await client.request(method, "/a?b=c", {"X-Token": "ü"}, most=MOST)
        finally:
            client.close()

    return asyncio.run(ask())


BOTH = pytest.mark.parametrize("ask", [blocking, looping])


@BOTH
@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\nX: 1\r\nx: 2\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\nX: 1\r\n\r\n2\r\nhe\r\n3;more=x\r\nllo\r\n0\r\nTrailer: t\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nX: 1\r\n\r\nhello",
        b"HTTP/1.1 103 Early Hints\r\nX: 0\r\n\r\n" + OK + b"X: 1\r\n\r\nhello",
    ],
)
def test_answers(ask: Ask, answer: bytes) -> None:
    with server(answer) as (port, asked):
        found = ask(port, "GET")
    assert (found.status, found.headers["x"], found.body) == (200, "1", b"hello")
    assert asked[0].split(b"\r\n") == [
        b"GET /a?b=c HTTP/1.1", b"Host: 127.0.0.1:%d" % port, b"X-Token: \xc3\xbc"
    ]  # fmt: skip


@BOTH
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"220 mail ESMTP\r\n\r\n", "not HTTP"),
        (OK + b"X: " + b"x" * (64 << 10), "not HTTP"),
        (OK + b"Content-Length: 5\r\n\r\nhell", "not HTTP"),
        (OK + b"Content-Length: x\r\n\r\nhello", "not HTTP"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "not HTTP"),
        (OK + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001, "too long"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1001 + b"0\r\n\r\n", "too long"),
    ],
)
def test_what_is_no_answer(ask: Ask, answer: bytes, reason: str) -> None:
    with server(answer) as (port, _), pytest.raises(AnswerError, match=reason):
        ask(port, "GET")


@BOTH
def test_a_server_that_says_nothing(ask: Ask) -> None:
    with server(b"") as (port, _), pytest.raises(ConnectionResetError, match="without an answer"):
        ask(port, "GET")


@pytest.mark.parametrize(("method", "again"), [("GET", True), ("HEAD", True), ("POST", False), ("DELETE", False)])
def test_a_kept_connection_that_the_server_has_closed_meanwhile(method: str, again: bool) -> None:
    """What changes nothing is asked once more; what may have been done is not done twice."""
    with server(EMPTY, EMPTY) as (port, asked):
        client = Client("127.0.0.1", port)
        client.request("GET", "/", most=MOST)
        if not again:
            with pytest.raises(ConnectionError):
                client.request(method, "/", most=MOST)
            method = "GET"
        client.request(method, "/", most=MOST)
        client.close()
    assert [line.split(b" ")[0] for line in asked] == [b"GET", method.encode()]


def test_connections_are_kept_if_the_server_keeps_them() -> None:
    with server(EMPTY, EMPTY, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", keeps=True) as (port, asked):
        client = Client("127.0.0.1", port)
        for _ in range(3):
            client.request("GET", "/", most=MOST)
            kept = client._open is not None
        client.close()
    assert len(asked) == 3 and not kept


@asyncio_test
async def test_requests_side_by_side_have_connections_of_their_own_and_end_with_the_client() -> None:
    accepted: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        while (request := await reader.readline()) and await reader.readuntil(b"\r\n\r\n"):
            if b"/never" not in request:
                writer.write(EMPTY)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        client = AsyncClient("127.0.0.1", listening.sockets[0].getsockname()[1])
        await asyncio.gather(*(client.request("GET", "/", most=MOST) for _ in range(3)))
        for _ in range(5):
            await client.request("POST", "/", body=b"", most=MOST)
        assert len(accepted) == 3
        waiting = [asyncio.ensure_future(client.request("GET", "/never", most=MOST)) for _ in range(4)]
        await until(lambda: len(accepted) == 4)
        client.close()
        assert all(isinstance(each, AnswerError) for each in await asyncio.gather(*waiting, return_exceptions=True))
        slow = AsyncClient("127.0.0.1", listening.sockets[0].getsockname()[1], timeout=0.1)
        with pytest.raises(TimeoutError):
            await slow.request("GET", "/never", most=MOST)


def test_a_certificate_must_be_of_the_host_that_is_asked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    serving = authority.server_context()
    trust = authority.client_context()
    with socket.create_server((ELSEWHERE, 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                with contextlib.suppress(OSError), listening.accept()[0] as accepted:
                    serving.wrap_socket(accepted, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        with pytest.raises(ssl.SSLCertVerificationError):
            Client(ELSEWHERE, port, trust).request("GET", "/", most=MOST)
        with pytest.raises(ssl.SSLCertVerificationError):
            asyncio.run(AsyncClient(ELSEWHERE, port, trust).request("GET", "/", most=MOST))
        thread.join()


def test_a_stream_is_read_line_by_line_as_it_comes() -> None:
    with server(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n2\r\nc\n\r\n1\r\nd\r\n") as (port, _):
        answer, parts = Client("127.0.0.1", port).stream("/")
        found = lines(parts)
        assert (answer.status, next(found), next(found)) == (200, b"a", b"bc")
        with pytest.raises(AnswerError):  # it breaks off
            next(found)


@pytest.mark.parametrize(("target", "headers"), [("/a b", {}), ("/", {"X": "a\r\nY: b"})])
def test_a_request_that_http_does_not_have_is_not_sent(target: str, headers: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = Client("127.0.0.1", listening.getsockname()[1])
        with pytest.raises(AnswerError, match="cannot be asked"):
            client.request("GET", target, headers, most=MOST)
