"""Server-Sent Events of a running suite: browsers, curl, subscriptions that go on where a client was, slow readers."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from enmasse.testing import Suite, running
from tests.console.browser import chromium
from tests.console.client import Client, of
from tests.http_gateway.requests_to_suite import basic, request
from tests.kit.marks import first_soon
from tests.kit.waiting import DEADLINE, wait_for
from tests.system.users import allow, entry, write_users

PASSWORD = "the-right-one"
ALICE = basic("alice", PASSWORD)
TOPIC = {"type": "topic", "flavor": "small-persisted-topic"}
QUEUE = {"type": "queue", "flavor": "small-persisted-queue"}
ADDRESSES: dict[str, Any] = {"jobs": QUEUE, "events": TOPIC, "open": TOPIC, "chat": {"type": "multicast"}}
USERS = {
    "alice": entry(PASSWORD, allow("jobs", "events/#", "chat", "open")),
    "anonymous": {"permissions": [allow("open")]},
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    options = ("--without", "mqtt", "--with", "http", "--allowed-origin", "*")
    with running(tmp_path_factory.mktemp("events"), ADDRESSES, options=options) as found:
        write_users(found, USERS)
        found.up()
        yield found
        assert found.down() == 0


def post(suite: Suite, address: str, body: bytes) -> None:
    answer = request(suite, "POST", f"/v1/{address}/messages", body, ALICE)
    assert answer.status == 201, answer
    assert b"receivers" not in answer.body, answer


class Stream:
    """A stream of events; `None` is its end."""

    def __init__(self, suite: Suite, path: str, last: str = "", user: dict[str, str] | None = None) -> None:
        self._connection = HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE)
        headers = {**(ALICE if user is None else user), **({"Last-Event-ID": last} if last else {})}
        self._connection.request("GET", path, headers=headers)
        self._answer = self._connection.getresponse()
        self.status, self.last = self._answer.status, last
        self.kind = self._answer.headers["content-type"]
        if self.status == 200:
            assert self.next() == ("", None), "the first block says when to try again"

    def next(self) -> tuple[str, Any] | None:
        """Return name and data of the next event; None: the stream has ended. Comments alone are no event."""
        name, data, limit, begun = "", None, time.monotonic() + DEADLINE, False
        while line := self._answer.readline():
            assert time.monotonic() < limit, "no event has come"
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = json.loads(value)
            elif field == "id":
                self.last = value
            elif not field and begun:
                return name, data
            begun = bool(field) and not line.startswith(b":")
        return None

    def body(self) -> str:
        found = self.next()
        assert found is not None
        assert found[0] == "", found
        return str(found[1]["body"])

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


@contextlib.contextmanager
def stream(suite: Suite, path: str, last: str = "") -> Iterator[Stream]:
    found = Stream(suite, path, last)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
@pytest.mark.parametrize("address", ["events/a", "chat"])
def test_curl_gets_events(suite: Suite, version: str, address: str) -> None:
    url = f"http://127.0.0.1:{8088 + suite.offset}/v1/{address}/events"
    command = ["curl", "-sSN", version, "-u", f"alice:{PASSWORD}", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        assert peer.stdout.readline() == "retry: 1000\n", "it is subscribed"
        peer.stdout.readline()
        for n in range(3):
            post(suite, address, b"%d" % n)
        for n in range(3):
            found = json.loads(peer.stdout.readline().removeprefix("data: "))
            assert (found["body"], found["to"]) == (str(n), address)
            assert peer.stdout.readline() == "\n"
        peer.terminate()


def test_a_subscription_goes_on_behind_the_last_event_of_its_client(suite: Suite) -> None:
    """The client is lost again and again, with events on their way to it: each comes once, in order."""
    path, last, total = "/v1/events/%23/events?name=reader", "", 900
    got: list[str] = []
    with stream(suite, path):
        pass
    lines = b"\n".join(b'{"body": "%d"}' % n for n in range(total))
    assert request(suite, "POST", "/v1/events/a/messages?batch", lines, ALICE).status == 200
    for much in (1, 70, 300, total):
        with stream(suite, path, last) as found:
            got += [found.body() for _ in range(min(much, total - len(got)))]
            last = found.last
    assert got == [str(n) for n in range(total)]
    with stream(suite, path, last) as found:
        post(suite, "events/b", b"new")
        assert found.body() == "new"
    with stream(suite, path) as found:
        assert found.body() == "new", "without Last-Event-ID the newest come again"
    assert request(suite, "DELETE", path, headers=ALICE).status == 204
    with stream(suite, path, last) as found:
        post(suite, "events/b", b"other")
        assert found.body() == "other", "it has ended, with what it had"
    assert request(suite, "DELETE", path, headers=ALICE).status == 204


def test_what_a_client_has_not_read_comes_again_though_its_host_has_it(suite: Suite) -> None:
    """The client ends with all but the first event in the receive buffer of its host, which has acknowledged them."""
    path, total = "/v1/events/%23/events?name=unread", 600
    with socket.create_connection(("127.0.0.1", 8088 + suite.offset), timeout=DEADLINE) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {ALICE['Authorization']}\r\n\r\n"
        peer.sendall(head.encode())

        def there() -> bytes:
            return peer.recv(1 << 20, socket.MSG_PEEK)

        wait_for(lambda: b"retry: " in there(), "it is subscribed")
        lines = b"\n".join(b'{"body": "%d"}' % n for n in range(total))
        assert request(suite, "POST", "/v1/events/a/messages?batch", lines, ALICE).status == 200
        wait_for(lambda: b'"body":"%d"' % (total - 1) in there(), "its host has all")
        first = re.search(rb"id: (\w+)\n", there())
        assert first is not None
    with stream(suite, path, first[1].decode()) as found:
        for n in range(1, total):
            assert found.body() == str(n)
    assert request(suite, "DELETE", path, headers=ALICE).status == 204


def test_a_subscription_has_one_stream(suite: Suite) -> None:
    path = "/v1/events/events?name=one"
    with stream(suite, path) as first, stream(suite, path) as second:
        ended = first.next()
        assert ended is not None
        assert (ended[0], ended[1]["reason"]) == ("end", "taken")
        assert first.next() is None
        post(suite, "events", b"x")
        assert second.body() == "x"


def kept(suite: Suite) -> int:
    name = suite.component("http_gateway")["name"]
    health = json.loads((suite.data / "run" / f"{name}.json").read_text())["health"]
    asked = urllib.request.Request(f"http://{health}/metrics", headers=suite.operator_headers)
    # limit: it is asked once
    with urllib.request.urlopen(asked, timeout=DEADLINE) as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line.split()[-1] for line in lines if line.startswith("http_streams_kept_bytes"))))


@pytest.mark.parametrize(
    "path", first_soon(["/v1/chat/events", "/v1/events/s/events", "/v1/events/s/events?name=slow"], 2)
)
def test_a_client_that_does_not_read_holds_back_nobody_else(suite: Suite, path: str) -> None:
    """16 MiB for two streams, of which one is not read: the other one gets all, and the gateway keeps little. Then the
    slow one reads: a topic has kept all for it, a multicast address what is newest."""
    address = path.removeprefix("/v1/").partition("/events?")[0].removesuffix("/events")
    total, body = 128, b"x" * (128 << 10)
    with stream(suite, path) as slow, stream(suite, f"/v1/{address}/events") as quick:
        connection = HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE)
        for n in range(total):
            connection.request("POST", f"/v1/{address}/messages", b"%d " % n + body, ALICE)
            assert connection.getresponse().read() == b'{"outcome":"accepted"}'
            assert quick.body().startswith(f"{n} ")
        connection.close()
        assert kept(suite) < 2 << 20
        got: list[int] = []
        dropped = 0
        while not got or got[-1] != total - 1:
            found = slow.next()
            assert found is not None
            if found[0] == "dropped":
                dropped += found[1]["count"]
            else:
                got.append(int(found[1]["body"].partition(" ")[0]))
    assert got == sorted(set(got))
    assert len(got) + dropped == total
    assert bool(dropped) is (address == "chat")


def test_what_has_no_events(suite: Suite) -> None:
    for path, status in (
        ("/v1/jobs/events", 400),
        ("/v1/chat/events?name=x", 400),
        ("/v1/events/events?name=a%20b", 400),
        ("/v1/nowhere/events", 403),
        ("/v1/%23/events", 404),
    ):
        assert request(suite, "GET", path, headers=ALICE).status == status, path
    assert request(suite, "DELETE", "/v1/events/events", headers=ALICE).status == 400


def test_the_console_shows_clients_and_their_streams(suite: Suite) -> None:
    operator = suite.operator_headers
    with Client(suite, **operator) as client, stream(suite, "/v1/events/c/events") as found:

        def shown() -> list[Any]:
            rows = client.items("connections?protocol=http")
            return [row for row in rows if row["user"] == "alice" and row["totals"]["out"] == 3]

        before = client("GET", "addresses/events").body["stats"]["consumers"]
        assert before >= 1, "the stream is a receiver"
        for n in range(3):
            post(suite, "events/c", b"%d" % n)
            assert found.body() == str(n)
        wait_for(shown, "the client is shown")
        (row,) = shown()
        assert row["component"].startswith("http_gateway")
        assert (row["links"], row["mqtt"]) == (1, None)
        (link,) = client.items(f"connections/{of(row['id'])}/links")
        assert (link["name"], link["address"], link["direction"]) == ("events/c", "events", "out")
        assert link["totals"]["out"] == 3
        assert client("DELETE", f"connections/{of(row['id'])}").status == 400
    wait_for(lambda: not shown_after(suite), "it has left")


def shown_after(suite: Suite) -> list[Any]:
    with Client(suite, **suite.operator_headers) as client:
        return [row for row in client.items("connections?protocol=http") if row["totals"]["out"] == 3]


SCRIPT = """async ([url, headers]) => {
  const said = [];
  if (headers === null) {
    const source = window.source = new EventSource(url);
    source.onmessage = event => said.push(JSON.parse(event.data).body + (event.lastEventId ? " with an id" : ""));
    await new Promise((opened, failed) => { source.onopen = opened; source.onerror = failed; });
  } else {
    const answer = await fetch(url, {headers});
    if (answer.status !== 200) throw new Error(answer.status);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    (async () => { for (;;) { const {value, done} = await reader.read(); if (done) break; said.push(value); } })();
  }
  window.said = said;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text("<!doctype html><title>page</title>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.slow  # the others, whose requests are those of a page
def test_eventsource_and_fetch_in_a_page_of_another_site(suite: Suite, site: int) -> None:
    base = f"http://127.0.0.1:{8088 + suite.offset}/v1"
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"http://localhost:{site}/")
        page.evaluate(SCRIPT, [f"{base}/open/events?name=page", None])
        post(suite, "open", b"for all")
        page.wait_for_function("said.length === 1", timeout=1000 * DEADLINE)
        assert page.evaluate("said") == ["for all with an id"]
        suite.kill(suite.component("http_gateway"))  # the browser connects again by itself, with Last-Event-ID
        wait_for(lambda: posted(suite), "the gateway is there again")
        page.wait_for_function("said.at(-1) === 'after with an id'", timeout=1000 * DEADLINE)
        assert page.evaluate("said.filter(each => each === 'for all with an id').length") == 1
        page.evaluate("source.close()")
        page.evaluate(SCRIPT, [f"{base}/events/p/events", ALICE])
        post(suite, "events/p", b"for alice")
        page.wait_for_function("said.join('').includes('for alice')", timeout=1000 * DEADLINE)


def posted(suite: Suite) -> bool:
    with contextlib.suppress(OSError):
        return request(suite, "POST", "/v1/open/messages", b"after", ALICE).status == 201
    return False


def test_a_stream_ends_with_the_right_to_it(suite: Suite) -> None:
    with stream(suite, "/v1/events/r/events") as found:
        write_users(suite, USERS | {"alice": entry(PASSWORD, allow("jobs"))})
        ended = found.next()
        assert ended is not None
        assert (ended[0], ended[1]["reason"]) == ("end", "permissions")
        assert found.next() is None
    assert Stream(suite, "/v1/events/r/events").status == 403
    with stream(suite, "/v1/open/events") as found:
        assert found.status == 403
