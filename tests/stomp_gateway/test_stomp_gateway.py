"""STOMP clients at a router without brokers: logins, frames in their order, acknowledgements, and hostile ones."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.wire_formats.stomp_frames import EARLY, HEAD
from services.stomp_gateway.stomp_client import EARLY_BYTES, OWED
from tests.kit.waiting import wait_for
from tests.stomp_gateway.stomp_environment import RawClient, Running, running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("stomp"), max_body=1 << 20) as found:
        yield found


@pytest.mark.parametrize(("offered", "chosen"), [("", "1.0"), ("1.0,1.1", "1.1"), ("1.1,1.2,2.0", "1.2")])
def test_versions(gateway: Running, offered: str, chosen: str) -> None:
    client = RawClient(gateway.port)
    accept = f"accept-version:{offered}\n" if offered else ""
    client.write(f"STOMP\n{accept}host:x\nheart-beat:4000,500\n\n\0".encode())
    found = client.read()
    assert (found.command, found.headers["version"]) == ("CONNECTED", chosen)
    assert found.headers["heart-beat"] == "1000,4000"
    client.close()


def test_a_version_that_is_not_there(gateway: Running) -> None:
    client = RawClient(gateway.port)
    client.write(b"CONNECT\naccept-version:2.1\nhost:x\n\n\0")
    error = client.error()
    assert error.headers["version"] == "1.0,1.1,1.2"
    assert error.headers["message"] == "unsupported version"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_send_and_acknowledge(gateway: Running, version: str) -> None:
    one, other = gateway.raw(version), gateway.raw(version)
    one.done("SUBSCRIBE", id="1", destination="/queue/ask", ack="client-individual")
    text = "a\\b:c" if version != "1.0" else "a"
    other.send("SEND", b"a\0b", receipt="s", destination="ask", content_type="x/y", n=text)
    message = one.read()
    assert (message.command, message.body) == ("MESSAGE", b"a\0b")
    assert message.headers["destination"] == "/queue/ask"
    assert message.headers["subscription"] == "1"
    assert message.headers["content-type"] == "x/y"
    assert message.headers["persistent"] == "true"
    assert message.headers["n"] == text
    assert ("ack" in message.headers) is (version == "1.2")
    if version == "1.2":
        one.send("ACK", id=message.headers["ack"])
    else:
        one.send("ACK", message_id=message.headers["message-id"], subscription="1")
    receipt = other.read()
    assert (receipt.command, receipt.headers["receipt-id"]) == ("RECEIPT", "s"), "the outcome is the receiver's"
    one.done("DISCONNECT")
    other.close()


def test_cumulative_acknowledgements_and_aborted_ones(gateway: Running) -> None:
    one, other = gateway.raw(), gateway.raw()
    one.done("SUBSCRIBE", id="1", destination="ask", ack="client")
    for n in range(3):
        other.send("SEND", b"%d" % n, receipt=f"s{n}", destination="ask")
    numbers = [one.read().headers["ack"] for _ in range(3)]
    one.done("BEGIN", transaction="t")
    one.done("ACK", id=numbers[2], transaction="t")
    one.done("ABORT", transaction="t")
    one.send("ACK", id=numbers[1])
    assert {other.read().headers["receipt-id"] for _ in range(2)} == {"s0", "s1"}
    one.send("ACK", id=numbers[2])
    assert other.read().headers["receipt-id"] == "s2"
    one.close()
    other.close()


def test_what_is_refused(gateway: Running) -> None:
    for command, headers, message in (
        ("SEND", {"destination": "nowhere"}, "no such address"),
        ("SEND", {"destination": "/queue/"}, "bad destination"),
        ("SEND", {"destination": "telemetry/#"}, "bad destination"),
        ("SEND", {"destination": "ask", "priority": "high"}, "bad header"),
        ("SEND", {"destination": "ask", "transaction": "t"}, "no such transaction"),
        ("SUBSCRIBE", {"destination": "ask"}, "bad header"),
        ("SUBSCRIBE", {"destination": "nowhere", "id": "1"}, "no such address"),
        ("SUBSCRIBE", {"destination": "ask", "id": "1", "selector": "a > 1"}, "not subscribed"),
        ("SUBSCRIBE", {"destination": "ask", "id": "1", "ack": "some"}, "bad header"),
        ("SUBSCRIBE", {"destination": "jobs", "id": "1", "durable-subscription-name": "d"}, "bad header"),
        ("SUBSCRIBE", {"destination": "ask", "id": "1", "selector": "é" * 4097}, "bad header"),
        ("ACK", {"id": "7"}, "no such message"),
        ("ACK", {"id": "²"}, "bad header"),
        ("NACK", {"id": "9" * 5000}, "bad header"),
        ("COMMIT", {"transaction": "t"}, "no such transaction"),
        ("UNSUBSCRIBE", {"id": "1"}, "no such subscription"),
        ("CONNECT", {}, "unknown command"),
        ("PUBLISH", {}, "unknown command"),
    ):
        client = gateway.raw()
        client.send(command, receipt="r", **headers)
        error = client.error()
        assert (error.headers["message"], error.headers["receipt-id"]) == (message, "r"), (command, headers)
        assert len(error.body) > 10


def test_a_transaction_takes_no_address_that_stores_nothing(gateway: Running) -> None:
    client = gateway.raw()
    client.done("BEGIN", transaction="t")
    found = client.ask("SEND", b"x", destination="ask", transaction="t")
    assert found.headers["condition"] == "amqp:not-implemented"


def test_a_client_to_which_many_bytes_of_receipts_are_owed_is_not_read(gateway: Running) -> None:
    one, other, fence = gateway.raw(), gateway.raw(), gateway.raw()
    one.done("SUBSCRIBE", id="1", destination="/queue/ask", ack="client-individual")
    size, count = OWED // 8 + 1, 20
    for n in range(count):
        other.send("SEND", b"x", receipt=f"{n}".rjust(size, "r"), destination="ask")
    messages = [one.read() for _ in range(8)]
    fence.send("SEND", b"fence", destination="ask")
    messages.append(one.read())
    assert messages[-1].body == b"fence", "more was read than receipts may be owed for"
    for message in messages:
        one.send("ACK", id=message.headers["ack"])
    for _ in range(count - 8):
        one.send("ACK", id=one.read().headers["ack"])
    receipts = [other.read().headers["receipt-id"].lstrip("r") for _ in range(count)]
    assert receipts == [str(n) for n in range(count)]
    one.close()
    other.close()
    fence.close()


def test_a_message_without_a_receiver_is_released(gateway: Running) -> None:
    client = gateway.raw()
    client.send("SEND", b"x", destination="ask", receipt="r")
    error = client.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("released", "r")
    assert gateway.metric('enmasse_refusals_total{condition="amqp:released",what="message"}')
    client = gateway.raw()
    client.done("SEND", b"x", destination="news")
    client.close()


def test_requests_and_replies(gateway: Running) -> None:
    one, other = gateway.raw(), gateway.raw()
    one.done("SUBSCRIBE", id="1", destination="ask")
    other.done("SUBSCRIBE", id="r", destination="/temp-queue/answers")
    other.send("SEND", b"2 + 2", destination="ask", reply_to="/temp-queue/answers", correlation_id="7")
    question = one.read()
    one.send("SEND", b"4", destination=question.headers["reply-to"], correlation_id=question.headers["correlation-id"])
    answer = other.read()
    assert (answer.body, answer.headers["correlation-id"]) == (b"4", "7")
    assert answer.headers["destination"] == "/temp-queue/answers"
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "another protocol"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 300, "another protocol"),
        (b"GET\n\n\0", "not connected"),
        (b"\0" * 5000, "malformed frame"),
        (b"SEND\ndestination:ask\n\nx\0", "not connected"),
        (b"CONNECT\n" + b"a:b\n" * 600 + b"\n\0", "malformed frame"),
        (b"CONNECT\n" + b"a:" + b"b" * EARLY, "malformed frame"),
        (b"CONNECT\ncontent-length:999999999\n\n", "malformed frame"),
        (b"CONNECT\naccept-version:1.2\nheart-beat:x\n\n\0", "bad header"),
        (b"CONNECT\n\xff\xfe:x\n\n\0", "malformed frame"),
        (b"\n" * (EARLY_BYTES + 1), "too much before the login"),
    ],
)
def test_hostile_before_the_login(gateway: Running, data: bytes, message: str) -> None:
    client = RawClient(gateway.port)
    client.write(data)
    assert client.error().headers["message"] == message
    assert gateway.metric(f'enmasse_refusals_total{{condition="{message}",what="connect"}}')


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0" * 100_000, "NUL"),
        (b"SEND\n" + b"a:b\n" * 600 + b"\n\0", "headers at most"),
        (b"SEND\ndestination:" + b"x" * HEAD, "more than"),
        (b"SEND\ndestination:ask\n\n" + b"x" * ((1 << 20) + 1), "more than"),
        (b"SEND\ndestination:ask\ncontent-length:1048577\n\n", "more than"),
        (b"SEND\ndestination:ask\ncontent-length:-1\n\n", "whole number"),
        (b"SEND\ndestination:ask\ncontent-length:1\n\nab\0", "no NUL"),
        (b"SEND\ndestination:a\\tsk\n\n\0", "not defined"),
        (b"SEND\ndestination:ask\\\n\n\0", "backslash"),
        (b"SEND\nno colon\n\n\0", "NAME:VALUE"),
    ],
)
def test_hostile_after_the_login(gateway: Running, data: bytes, said: str) -> None:
    client = gateway.raw()
    with contextlib.suppress(ConnectionError):
        client.write(data)
    error = client.error()
    assert error.headers["message"] == "malformed frame"
    assert said in error.body.decode()
    assert gateway.metric('enmasse_refusals_total{condition="malformed frame",what="close"}')


def test_a_slow_login_ends(gateway: Running) -> None:
    """Peers that connect and say nothing, or a part of it, give way."""
    client = RawClient(gateway.port)
    client.write(b"CONN")
    assert client.error().headers["message"] == "too slow"


def test_frames_without_end_do_not_use_memory(gateway: Running) -> None:
    def size() -> int:
        text = Path(f"/proc/{gateway.pid}/statm").read_text()
        return int(text.split()[1]) * 4096

    before = size()
    for _ in range(8):  # what one round leaves behind adds up
        clients = [gateway.raw() for _ in range(50)]
        for client in clients:
            client.write(b"SEND\ndestination:ask\ncontent-length:1000000\n\n" + b"x" * 500_000)
        wait_for(lambda: gateway.metric("stomp_kept_bytes") >= 25_000_000, "the bytes have come")
        assert size() - before < 150_000_000
        for client in clients:
            client.close()
        wait_for(lambda: gateway.metric("stomp_kept_bytes") == 0, "they are gone")


def test_a_slow_reader_holds_back_nobody(gateway: Running) -> None:
    slow, fast, sender = gateway.raw(), gateway.raw(), gateway.raw()
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.done("SUBSCRIBE", id="1", destination="news")
    fast.done("SUBSCRIBE", id="1", destination="news")
    body = b"x" * 50_000
    for n in range(200):
        sender.send("SEND", body, destination="news", receipt=str(n))
    assert [fast.read().body for _ in range(200)] == [body] * 200
    assert {sender.read().headers["receipt-id"] for _ in range(200)} == {str(n) for n in range(200)}
    for client in (slow, fast, sender):
        client.close()


def test_heart_beats(gateway: Running) -> None:
    client = RawClient(gateway.port)
    client.write(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,1\n\n\0")
    assert client.read().headers["heart-beat"] == "1000,0"
    assert client.socket.recv(10) == b"\n", "the end of CONNECTED is read with it, this is a heart-beat"
    client.close()
