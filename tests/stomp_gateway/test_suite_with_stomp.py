"""STOMP clients of a whole suite: users, TLS, selectors, durable subscriptions, transactions, and processes that are
killed."""

from __future__ import annotations

import itertools
import json
import re
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stomp

from enmasse.aio.client import connect
from enmasse.testing import Suite, running
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, wait_for
from tests.stomp_gateway.stomp_environment import RawClient
from tests.system.users import allow, entry, write_users

PASSWORD = "a pass:word"
ADDRESSES: dict[str, Any] = {
    "jobs": {"type": "queue", "flavor": "small-persisted-queue"},
    "results": {"type": "queue", "flavor": "small-persisted-queue"},
    "events": {"type": "topic", "flavor": "small-persisted-topic"},
}
PORT, TLS = 61613, 61614


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    options = ("--without", "mqtt", "--with", "stomp", "--tls", "auto")
    with running(tmp_path_factory.mktemp("stomp"), ADDRESSES, options=options) as found:
        write_users(found, {"alice": entry(PASSWORD, allow("jobs", "results", "events/#")), "bob": entry(PASSWORD)})
        found.up()
        yield found
        assert found.down() == 0


def raw(suite: Suite, version: str = "1.2", user: str = "alice", **headers: str) -> RawClient:
    client = RawClient(PORT + suite.offset, version, login=user, passcode=PASSWORD, **headers)
    client.connect()
    return client


def drained(suite: Suite, address: str) -> list[str]:
    """Return the bodies of all messages of a queue."""
    found: list[str] = []

    @asyncio_test
    async def drain() -> None:
        port = 5672 + suite.offset
        async with connect(host="127.0.0.1", port=port, user="alice", password=PASSWORD) as client:
            receiver = await client.receiver(address, credit=0, timeout=DEADLINE)
            while True:
                receiver.grant(100)
                await receiver.drain(DEADLINE)
                if not (got := receiver.receive_all(1 << 30)):
                    return
                for delivery in got:
                    found.append(bytes(delivery.message.body).decode())
                    await delivery.accept()

    drain()
    return found


def test_the_address_is_measured_over_stomp(suite: Suite) -> None:
    at = f"amqps://alice:{PASSWORD.replace(' ', '%20')}@localhost:{5671 + suite.offset}/jobs"
    ca = str(suite.data / "tls" / "ca.crt")
    done = suite.command("bench", "-a", at, "--seconds", "0.1", "--json", "--protocol", "stomp", "--ca", ca)
    found = json.loads(done.stdout or "{}")
    assert found and found["received"] == found["accepted"] == found["sent"] > 0 and found["latency_ms"], done


def test_users_and_their_rights(suite: Suite) -> None:
    for login, message in (
        ({}, "access refused"),
        ({"login": "alice", "passcode": "wrong"}, "access refused"),
        ({"login": "nobody", "passcode": "wrong"}, "access refused"),
        ({"passcode": "eyJhbGciOiJub25lIn0.e30."}, "access refused"),
    ):
        client = RawClient(PORT + suite.offset)
        client.send("CONNECT", accept_version="1.2", host="x", **login)
        assert client.error().headers["message"] == message, login
    for command, headers in (
        ("SEND", {"destination": "myqueue"}),
        ("SEND", {"destination": "nowhere"}),
        ("SEND", {"destination": "jobs", "reply_to": "myqueue"}),
        ("SUBSCRIBE", {"destination": "mytopic", "id": "1"}),
        ("SUBSCRIBE", {"destination": "#", "id": "1"}),
    ):
        client = raw(suite)
        client.send(command, b"", receipt="r", **headers)
        assert client.error().headers["message"] == "access refused", headers
    client = raw(suite, user="bob")
    client.send("SEND", b"x", destination="jobs")
    assert client.error().headers["condition"] == "amqp:unauthorized-access"
    client = raw(suite)
    client.send("PUBLISH")
    assert client.error().headers["message"] == "unknown command"
    expected = {("send", "amqp:unauthorized-access", "bob"), ("close", "unknown command", "alice")}

    def listed() -> bool:
        done = suite.command("events", "--peer", "127.0.0.1", "--json", "--port-offset", str(suite.offset))
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(each["peer"].startswith("127.0.0.1:") for each in found)
        return expected <= {(each["more"]["what"], each["condition"], each["user"]) for each in found}

    wait_for(listed, "events by the peer")


def test_connections_are_listed(suite: Suite) -> None:
    client = raw(suite, client_id="lamp")
    client.done("SUBSCRIBE", id="a", destination="jobs")

    def listed() -> bool:
        done = suite.command("connection", "list", "--json", "--port-offset", str(suite.offset))
        rows = json.loads(done.stdout)["items"] if done.returncode == 0 else []
        return any((row["protocol"], row["container"], row["links"]) == ("stomp", "lamp", 1) for row in rows)

    wait_for(listed, "the console knows the client")
    client.close()


def test_selectors_and_durable_subscriptions(suite: Suite) -> None:
    durable = {"destination": "/topic/events/#", "durable_subscription_name": "news", "selector": "kind = 'a'"}
    client, sender = raw(suite, client_id="lamp"), raw(suite)
    client.done("SUBSCRIBE", id="d", ack="client", **durable)
    client.close()
    for number, kind in enumerate("abab"):
        sender.done("SEND", b"%d" % number, destination=f"events/room{number}", kind=kind)
    client = raw(suite, client_id="lamp")
    client.done("SUBSCRIBE", id="d", ack="client", **durable)
    first, second = client.read(), client.read()
    assert [first.body, second.body] == [b"0", b"2"]
    assert second.headers["destination"] == "/topic/events/room2"
    client.done("ACK", id=second.headers["ack"])
    client.done("UNSUBSCRIBE", id="d", durable_subscription_name="news")
    sender.done("SEND", b"4", destination="events/room0", kind="a")
    client.done("SUBSCRIBE", id="d", ack="client", **durable)
    sender.done("SEND", b"5", destination="events/room0", kind="a")
    assert client.read().body == b"5", "the subscription had ended"
    client.done("UNSUBSCRIBE", id="d", durable_subscription_name="news")
    client.close()
    sender.close()


def test_what_is_not_acknowledged_comes_again(suite: Suite) -> None:
    client = raw(suite)
    client.done("SEND", b"x", destination="jobs")
    client.done("SUBSCRIBE", id="1", destination="jobs", ack="client-individual")
    client.read()
    client.close()
    client = raw(suite)
    client.done("SUBSCRIBE", id="1", destination="jobs", ack="client-individual")
    message = client.read()
    client.send("NACK", id=message.headers["ack"])
    message = client.read()
    assert (message.headers["redelivered"], message.headers["delivery-count"]) == ("true", "1")
    client.done("ACK", id=message.headers["ack"])
    client.done("DISCONNECT")
    assert drained(suite, "jobs") == []


def test_transactions(suite: Suite) -> None:
    client, other = raw(suite), raw(suite)
    other.done("SUBSCRIBE", id="r", destination="results")
    client.done("SEND", b"1", destination="jobs")
    client.done("SUBSCRIBE", id="1", destination="jobs", ack="client-individual")
    message = client.read()
    for name in ("aborted", "done"):
        client.done("BEGIN", transaction=name)
        client.done("SEND", name.encode(), destination="results", transaction=name)
        client.done("ACK", id=message.headers["ack"], transaction=name)
        client.done("ABORT" if name == "aborted" else "COMMIT", transaction=name)
    assert other.read().body == b"done", "the aborted one has sent nothing"
    client.done("DISCONNECT")
    assert drained(suite, "jobs") == []
    client = raw(suite)
    client.done("BEGIN", transaction="t")
    client.done("SEND", b"x", destination="results", transaction="t")
    client.done("SEND", b"x", destination="events/x", transaction="t")
    client.send("COMMIT", transaction="t", receipt="c")
    error = client.error()
    assert "two brokers" in error.body.decode(), error
    other.done("DISCONNECT")
    assert drained(suite, "results") == []


class Got(stomp.ConnectionListener):
    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.receipts: list[str] = []
        self.errors: list[Any] = []

    def on_message(self, frame: Any) -> None:
        self.frames.append(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.append(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame)


@pytest.mark.parametrize("kind", [stomp.Connection10, stomp.Connection11, stomp.Connection12])
def test_stomp_py(suite: Suite, kind: Any) -> None:
    """With TLS, heart-beats where there are some, a transaction and what acknowledgements are called in its version."""
    hosts = [("127.0.0.1", TLS + suite.offset)]
    beats = {} if kind is stomp.Connection10 else {"heartbeats": (2000, 2000)}
    connection = kind(hosts, **beats)
    ca = str(suite.data / "tls" / "ca.crt")
    connection.set_ssl(hosts, ca_certs=ca, ssl_version=ssl.PROTOCOL_TLS_CLIENT)
    got = Got()
    connection.set_listener("", got)
    connection.connect("alice", PASSWORD, wait=True)
    connection.subscribe("/queue/jobs", id="1", ack="client-individual" if beats else "client")
    name = connection.begin()
    for n in range(10):
        connection.send("/queue/jobs", f"grüße {n}", transaction=name, headers={"n": n, "persistent": "true"})
    connection.commit(name)
    wait_for(lambda: len(got.frames) == 10, "all messages")
    assert sorted(frame.body for frame in got.frames) == [f"grüße {n}" for n in range(10)]
    assert sorted(frame.headers["n"] for frame in got.frames) == [str(n) for n in range(10)]
    for frame in got.frames:
        if kind is stomp.Connection12:
            connection.ack(frame.headers["ack"])
        elif kind is stomp.Connection11:
            connection.ack(frame.headers["message-id"], "1")
        else:
            connection.ack(frame.headers["message-id"])
    connection.disconnect("bye")
    wait_for(lambda: "bye" in got.receipts, "the receipt")
    assert got.errors == []
    assert drained(suite, "jobs") == []


def test_the_program_of_the_guide(suite: Suite) -> None:
    page = (Path(__file__).parents[2] / "docs/guides/from-stomp.md").read_text()
    (program,) = re.findall("```python\n(.*?)```", page, re.DOTALL)
    for old, new in (("61613", str(PORT + suite.offset)), ("secret", PASSWORD), ("/myqueue", "/jobs")):
        assert old in program
        program = program.replace(old, new)
    exec(program)
    assert drained(suite, "jobs") == ["hello"]


MESSAGES, SENDERS, TRANSACTION = 10_000, 8, 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stomp_gateway", "router", "broker"])
@pytest.mark.parametrize("transacted", [False, True], ids=["receipts", "transactions"])
def test_nothing_acknowledged_is_lost_when_a_process_is_killed(suite: Suite, kind: str, transacted: bool) -> None:
    """Clients repeat what has no receipt, with its duplicate id. Every message is there once; of a transaction all are
    there, or none."""
    numbers = itertools.count(0, TRANSACTION)
    lock, done, repeats = threading.Lock(), Counter[int](), Counter[str]()

    def send(client: RawClient, first: int, attempt: int) -> None:
        if transacted:
            client.send("BEGIN", transaction=f"{first}")
        for n in range(first, first + TRANSACTION):
            headers = {"transaction": f"{first}"} if transacted else {"receipt": str(n)}
            name = f"{kind}-{n}" if not transacted else f"{kind}-{n}.{attempt}"
            client.send("SEND", name.encode(), destination="jobs", _AMQ_DUPL_ID=f"{transacted}-{name}", **headers)
        if transacted:
            client.send("COMMIT", transaction=f"{first}", receipt=str(first))
        for _ in range(1 if transacted else TRANSACTION):
            found = client.read()
            if found.command != "RECEIPT":
                raise EOFError(found.headers["message"])

    def work() -> None:
        client: RawClient | None = None
        while True:
            with lock:
                first = next(numbers)
            if first >= MESSAGES:
                return
            for attempt in itertools.count():
                try:
                    if client is None:
                        client = raw(suite)
                    send(client, first, attempt)
                    break
                except (OSError, EOFError, AssertionError) as error:
                    repeats[type(error).__name__] += 1
                    if client is not None:
                        client.close()
                    client = None
            done[first] = attempt

    senders = [threading.Thread(target=work) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    for killed_at in (200, 800, 1400):
        wait_for(lambda: len(done) >= killed_at, f"{killed_at}", moves=lambda: len(done))
        suite.kill(suite.component(kind, "jobs" if kind == "broker" else ""))
    for sender in senders:
        sender.join()
    suite.wait_ready()
    found = Counter(drained(suite, "jobs"))
    assert {name: n for name, n in found.items() if n > 1} == {}
    if not transacted:
        assert found.keys() == {f"{kind}-{n}" for n in range(MESSAGES)}
        return
    whole = Counter[tuple[int, str]]()
    for name in found:
        number, _, attempt = name.removeprefix(f"{kind}-").partition(".")
        whole[int(number) // TRANSACTION * TRANSACTION, attempt] += 1
    assert set(whole.values()) == {TRANSACTION}, "no transaction is half done"
    missing = {first for first, attempt in done.items() if (first, str(attempt)) not in whole}
    assert missing == set(), "what has a receipt is there"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stomp_gateway", "router", "broker"])
def test_an_acknowledgement_with_a_receipt_is_final_when_a_process_is_killed(suite: Suite, kind: str) -> None:
    total = 10_000
    sender = raw(suite)
    for begin in range(0, total, 1000):
        for n in range(begin, begin + 1000):
            sender.send("SEND", b"%d" % n, destination="jobs", receipt=str(n))
        assert {sender.read().command for _ in range(1000)} == {"RECEIPT"}
    sender.close()
    final, unsure = Counter[str](), Counter[str]()
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            client: RawClient | None = None
            try:
                client = raw(suite)
                client.socket.settimeout(10)  # limit: it looks whether all has come, and connects again
                client.send("SUBSCRIBE", id="1", destination="jobs", ack="client-individual")
                sent: dict[str, str] = {}
                while not ended.is_set():
                    found = client.read()
                    if found.command == "MESSAGE":
                        body = found.body.decode()
                        sent[found.headers["ack"]] = body
                        unsure[body] += 1
                        client.send("ACK", id=found.headers["ack"], receipt=found.headers["ack"])
                    elif found.command == "RECEIPT":
                        final[sent.pop(found.headers["receipt-id"])] += 1
                    else:
                        break
            except (OSError, EOFError, AssertionError):
                pass
            finally:
                if client is not None:
                    client.close()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for killed_at in (1000, 4000, 7000):
        wait_for(lambda: len(final) >= killed_at, "messages", moves=lambda: len(final))
        suite.kill(suite.component(kind, "jobs" if kind == "broker" else ""))
    wait_for(lambda: len(unsure) == total, "all messages were read", moves=lambda: len(unsure))
    ended.set()
    for reader in readers:
        reader.join()
    suite.wait_ready()
    left = drained(suite, "jobs")
    assert max(final.values()) == 1, "one receipt for each message"
    assert not final.keys() & set(left), "what has a receipt does not come again"
    assert final.keys() | unsure.keys() | set(left) == {str(n) for n in range(total)}
