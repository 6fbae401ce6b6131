"""HTTP clients of a whole suite: users, TLS, spaces of rights, duplicates, and processes that are killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any

import pytest

from enmasse.aio.client import connect
from enmasse.testing import Suite, running
from tests.http_gateway.requests_to_suite import Answer, basic
from tests.http_gateway.requests_to_suite import request as asked
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, wait_for
from tests.system.users import allow, deny, entry, write_users

PASSWORD = "a pass:word"
ADDRESSES: dict[str, Any] = {
    "jobs": {"type": "queue", "flavor": "small-persisted-queue"},
    "events": {"type": "topic", "flavor": "small-persisted-topic"},
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    options = ("--without", "mqtt", "--with", "http", "--tls", "auto")
    with running(tmp_path_factory.mktemp("http"), ADDRESSES, options=options) as found:
        write_users(found, {"alice": entry(PASSWORD, allow("jobs", "events/#"), deny("events/secret/#"))})
        found.up()
        yield found
        assert found.down() == 0


ALICE = basic("alice", PASSWORD)


def request(suite: Suite, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
    return asked(suite, method, path, body, ALICE if headers is None else headers)


def ask(suite: Suite, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    answer = asked(suite, "POST", path, body, headers)
    return answer.status, json.loads(answer.body)


async def drained(suite: Suite, address: str) -> list[str]:
    """Return the bodies of all messages of a queue."""
    found: list[str] = []
    port = 5672 + suite.offset
    async with connect(host="127.0.0.1", port=port, user="alice", password=PASSWORD) as client:
        receiver = await client.receiver(address, credit=0, timeout=DEADLINE)
        while True:
            receiver.grant(100)
            await receiver.drain(DEADLINE)
            if not (got := receiver.receive_all(1 << 30)):
                return found
            for delivery in got:
                found.append(bytes(delivery.message.body).decode())
                await delivery.accept()


def test_users_and_their_rights(suite: Suite) -> None:
    path = "/v1/jobs/messages"
    assert ask(suite, path, b"x", {})[0] == 401
    assert ask(suite, path, b"x", basic("alice", "wrong"))[0] == 401
    assert ask(suite, path, b"x", basic("nobody", "wrong"))[0] == 401
    assert ask(suite, path, b"x", {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."})[0] == 401
    assert ask(suite, path, b"x", {"Authorization": "Digest x"})[0] == 401
    assert ask(suite, path, b"x", ALICE) == (201, {"outcome": "accepted"})
    assert ask(suite, "/v1/myqueue/messages", b"x", ALICE)[0] == 403
    assert ask(suite, "/v1/nowhere/messages", b"x", ALICE)[0] == 403, "what is not allowed may not be there"
    assert ask(suite, "/v1/events/a/messages", b"x", ALICE)[0] == 201
    assert ask(suite, path, b"x", {**ALICE, "Enmasse-Reply-To": "myqueue"})[0] == 403
    for encoded in ("events/secret/a", "events/%73ecret/a", "%65vents/secret/a", "events%2Fsecret/a"):
        assert ask(suite, path, b"x", {**ALICE, "Enmasse-Reply-To": encoded})[0] == 403, encoded

    @asyncio_test
    async def test() -> None:
        assert await drained(suite, "jobs") == ["x"]

    test()


def test_the_address_is_measured_over_http(suite: Suite) -> None:
    ca = ("--ca", str(suite.data / "tls" / "ca.crt"))
    without, tls = f"amqp://127.0.0.1:{5672 + suite.offset}", f"amqps://localhost:{5671 + suite.offset}"
    for url, files in ((without, ()), (tls, ca)):
        at = url.replace("://", f"://alice:{PASSWORD.replace(' ', '%20')}@") + "/jobs"
        done = suite.command("bench", "-a", at, "--seconds", "0.1", "--json", "--protocol", "http", *files)
        found = json.loads(done.stdout or "{}")
        assert found and found["received"] == found["accepted"] == found["sent"] > 0 and found["latency_ms"], done
    done = suite.command("bench", "-a", at, "--seconds", "0.1", "--protocol", "mqtt", *ca)
    assert done.returncode == 4 and f"cannot connect to localhost:{8883 + suite.offset}" in done.stderr, done


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_curl_over_tls(suite: Suite, version: str) -> None:
    url = f"https://localhost:{8448 + suite.offset}/v1/events/a/messages"
    ca = suite.data / "tls" / "ca.crt"
    command = [
        "curl",
        "-sS",
        version,
        "--cacert",
        str(ca),
        "-u",
        f"alice:{PASSWORD}",
        "-d",
        "x",
        "-w",
        "%{http_version}",
    ]
    done = subprocess.run([*command, url], capture_output=True, text=True)
    assert done.stdout == '{"outcome":"accepted"}' + version.removeprefix("--http"), done.stderr


def test_the_list_of_connections_shows_tls(suite: Suite) -> None:
    context = ssl.create_default_context(cafile=suite.data / "tls" / "ca.crt")
    kinds = {
        None: HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE),
        "TLSv1.3": HTTPSConnection("localhost", 8448 + suite.offset, timeout=DEADLINE, context=context),
    }
    for connection in kinds.values():
        connection.request("POST", "/v1/events/a/messages", b"x", ALICE)
        assert connection.getresponse().read()
    ports = {connection.sock.getsockname()[1]: [kind] if kind else [] for kind, connection in kinds.items()}

    def shown() -> bool:
        done = suite.command("connection", "list", "--json", "--port-offset", str(suite.offset))
        rows = json.loads(done.stdout or "{}").get("items", [])
        tls = {int(each["peer"].rpartition(":")[2]): each["tls"] for each in rows if each["protocol"] == "http"}
        return {port: (tls[port] or "").split()[:1] for port in ports.keys() & tls.keys()} == ports

    wait_for(shown, "both are shown, one with TLS")
    for connection in kinds.values():
        connection.close()


def test_a_key_is_stored_once_for_its_user(suite: Suite) -> None:
    for n in range(3):
        assert ask(suite, "/v1/jobs/messages", b"%d" % n, {**ALICE, "Idempotency-Key": "k"})[0] == 201
    lines = b"\n".join(b'{"body": {"base64": "eA=="}, "idempotency_key": "l"}' for _ in range(3))
    status, _ = ask(suite, "/v1/jobs/messages", b"y", {**ALICE, "Idempotency-Key": "k2"})
    assert status == 201
    connection = HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE)
    connection.request("POST", "/v1/jobs/messages?batch", lines, ALICE)
    answers = [json.loads(line)["status"] for line in connection.getresponse().read().splitlines()]
    connection.close()
    assert answers == [201, 201, 201]

    @asyncio_test
    async def test() -> None:
        assert sorted(await drained(suite, "jobs")) == ["0", "x", "y"]

    test()


NEXT = "/v1/jobs/messages/next"


def test_a_message_is_locked_until_it_has_an_outcome(suite: Suite) -> None:
    headers = {**ALICE, "Content-Type": "text/x", "Enmasse-Subject": "s", "Idempotency-Key": "locked"}
    assert ask(suite, "/v1/jobs/messages", b"one", headers)[0] == 201
    first = request(suite, "POST", NEXT)
    assert (first.status, first.body) == (200, b"one")
    assert (first.headers["content-type"], first.headers["enmasse-subject"]) == ("text/x", "s")
    assert "locked" not in str(first.headers)
    assert request(suite, "POST", NEXT).status == 204, "it is locked"
    place = first.headers["location"]
    assert request(suite, "PUT", place).status == 204
    assert request(suite, "POST", place, b'{"outcome": "eaten"}').status == 400
    assert request(suite, "POST", place, b'{"outcome": "modified"}').status == 204
    assert request(suite, "DELETE", place).status == 410
    again = request(suite, "POST", NEXT + "?wait=60&count=5")
    assert again.status == 200, again
    (line,) = map(json.loads, again.body.splitlines())
    assert (line["body"], line["delivery_count"], line["properties"]) == ("one", 1, {})
    assert request(suite, "DELETE", line["location"]).status == 204
    assert request(suite, "POST", NEXT).status == 204
    assert request(suite, "DELETE", line["location"]).status == 410


def test_a_lock_that_is_not_renewed_is_lost(suite: Suite) -> None:
    assert ask(suite, "/v1/jobs/messages", b"one", ALICE)[0] == 201
    place = request(suite, "POST", NEXT + "?lock=1").headers["location"]
    again = request(suite, "POST", NEXT + "?wait=60")
    assert (again.body, again.headers["enmasse-delivery-count"]) == (b"one", "1")
    assert request(suite, "DELETE", place).status == 410
    assert request(suite, "DELETE", again.headers["location"].replace("jobs", "events")).status == 410
    cut = request(suite, "DELETE", "/v1/jobs/deliveries/http_gateway-9.x")
    assert cut.status == 400 and b"is not the token of a delivery: use the whole `location`" in cut.body
    assert request(suite, "DELETE", again.headers["location"]).status == 204


def test_requests_for_messages_that_are_not_possible(suite: Suite) -> None:
    assert request(suite, "POST", "/v1/myqueue/messages/next").status == 403
    log = suite.data / "logs" / "http_gateway-0.log"
    wait_for(lambda: '"what": "receive"' in log.read_text(), "its event")
    assert request(suite, "POST", "/v1/events/messages/next").status == 400
    assert request(suite, "POST", NEXT + "?wait=x").status == 400
    assert request(suite, "POST", NEXT + "?count=0").status == 400
    assert request(suite, "POST", NEXT, headers={}).status == 401


def test_a_message_whose_reader_has_left_goes_to_the_next(suite: Suite) -> None:
    """The reader leaves while it waits: the message that comes then is not lost in a lock."""
    connection = HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE)
    connection.request("POST", NEXT + "?wait=60&lock=3600", headers=ALICE)
    waiting = request(suite, "POST", NEXT)
    assert waiting.status == 204
    connection.close()
    assert ask(suite, "/v1/jobs/messages", b"left", ALICE)[0] == 201
    again = request(suite, "POST", NEXT + "?wait=60")
    assert again.body == b"left"
    assert request(suite, "DELETE", again.headers["location"]).status == 204


def test_requests_that_wait_count_as_locks(suite: Suite) -> None:
    """1,000 locks a user: what its requests may still get is reserved."""
    waiting = []
    for _ in range(10):
        connection = HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE)
        connection.request("POST", NEXT + "?wait=300&count=100", headers=ALICE)
        waiting.append(connection)
    wait_for(lambda: request(suite, "POST", NEXT).status == 429, "all of them wait")
    for connection in waiting:
        connection.close()
    wait_for(lambda: request(suite, "POST", NEXT).status == 204, "their room is given back")


def test_a_user_that_may_no_longer_receive_settles_nothing(suite: Suite) -> None:
    for body in (b"one", b"two"):
        assert ask(suite, "/v1/jobs/messages", body, ALICE)[0] == 201
    place, renewed = (request(suite, "POST", NEXT + "?wait=60&lock=3600").headers["location"] for _ in range(2))
    connection = HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE)
    connection.request("POST", NEXT + "?wait=300", headers=ALICE)
    write_users(suite, {"alice": entry(PASSWORD, allow("jobs", operations=("send",)))})
    assert connection.getresponse().status == 403, "one that waits"
    connection.close()
    assert request(suite, "DELETE", place).status == 403
    assert request(suite, "PUT", renewed).status == 403
    write_users(suite, {"alice": entry(PASSWORD, allow("jobs", "events/#"))})
    bodies = set()

    def taken() -> bool:
        got = request(suite, "POST", NEXT + "?count=100")
        for line in map(json.loads, got.body.splitlines() if got.status == 200 else ()):
            assert request(suite, "DELETE", line["location"]).status == 204
            bodies.add(line["body"])
        return bodies == {"one", "two"}

    wait_for(taken, "both go to a receiver again")
    assert request(suite, "DELETE", place).status == 410


MESSAGES, POSTERS = 10_000, 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["http_gateway", "router", "broker"])
def test_nothing_acknowledged_is_lost_when_a_process_is_killed(suite: Suite, kind: str) -> None:
    """Clients repeat what has no answer, or an answer that allows it, with its key. Every message is there once."""
    numbers = itertools.count()
    lock, counts, repeats = threading.Lock(), Counter[int](), Counter[str]()

    def post() -> None:
        connection: HTTPConnection | None = None
        while True:
            with lock:
                number = next(numbers)
            if number >= MESSAGES:
                return
            headers = {**ALICE, "Idempotency-Key": f"{kind}-{number}"}
            while True:
                try:
                    if connection is None:
                        connection = HTTPConnection("127.0.0.1", 8088 + suite.offset, timeout=DEADLINE)
                    connection.request("POST", "/v1/jobs/messages", f"{kind}-{number}".encode(), headers)
                    answer = connection.getresponse()
                    answer.read()
                    if answer.status == 201:
                        break
                    assert answer.status in (503, 504), answer.status
                    repeats[str(answer.status)] += 1
                except (OSError, HTTPException):
                    connection = None
                    repeats["lost"] += 1
            counts[number] += 1

    posters = [threading.Thread(target=post) for _ in range(POSTERS)]
    for poster in posters:
        poster.start()
    for killed_at in (1000, 3000, 5000, 7000):
        wait_for(lambda: len(counts) >= killed_at, f"{killed_at} messages", moves=lambda: len(counts))
        holding = "jobs" if kind == "broker" else ""
        suite.kill(suite.component(kind, holding))
    for poster in posters:
        poster.join()
    assert len(counts) == MESSAGES
    # What is on its way when a router or broker dies is sent again by the gateway itself.
    assert repeats or kind != "http_gateway", "the gateway was killed while clients waited for answers"

    @asyncio_test
    async def test() -> None:
        await asyncio.to_thread(suite.wait_ready)
        found = Counter(await drained(suite, "jobs"))
        assert len(found) == MESSAGES
        assert {number: n for number, n in found.items() if n > 1} == {}

    test()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["http_gateway", "router", "broker"])
def test_a_message_that_was_accepted_does_not_come_again_when_a_process_is_killed(suite: Suite, kind: str) -> None:
    """Readers delete what they have. 204 is final; any other answer may mean either."""
    total = 10_000
    settled, unsure = Counter[str](), Counter[str]()
    for begin in range(0, total, 500):
        batch = b"\n".join(b'{"body": "%d"}' % n for n in range(begin, begin + 500))
        assert request(suite, "POST", "/v1/jobs/messages?batch", batch).status == 200

    def read() -> None:
        while len(settled) + len(unsure.keys() - settled.keys()) < total:
            try:
                got = request(suite, "POST", NEXT + "?wait=1&count=20")
            except (OSError, HTTPException):
                continue
            for line in map(json.loads, got.body.splitlines() if got.status == 200 else ()):
                try:
                    done = request(suite, "DELETE", line["location"]).status == 204
                except (OSError, HTTPException):
                    done = False
                (settled if done else unsure)[line["body"]] += 1

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for killed_at in (1000, 4000, 7000):
        wait_for(lambda: len(settled) >= killed_at, "messages", moves=lambda: len(settled))
        suite.kill(suite.component(kind, "jobs" if kind == "broker" else ""))
    for reader in readers:
        reader.join(DEADLINE)
    suite.wait_ready()
    while (got := request(suite, "POST", NEXT + "?wait=2&count=100")).status == 200:
        for line in map(json.loads, got.body.splitlines()):
            assert request(suite, "DELETE", line["location"]).status == 204
            settled[line["body"]] += 1
    assert max(settled.values()) == 1, "accepted once, by one reader"
    assert {str(n) for n in range(total)} == settled.keys() | unsure.keys()
