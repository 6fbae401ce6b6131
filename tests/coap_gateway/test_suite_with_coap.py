"""CoAP clients of a whole suite: aiocoap, libcoap and datagrams; rights, observers, blocks, and processes that are
killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiocoap import GET, PUT, Context, Message

from enmasse.aio.client import connect
from enmasse.testing import Suite, running
from enmasse.wire_formats.coap_messages import (
    BLOCK2,
    CON,
    CONTENT_FORMAT,
    MAX_AGE,
    OBSERVE,
    RST,
    CoapBlock,
    block,
    block_option,
    code,
    shown,
    uint,
)
from enmasse.wire_formats.coap_messages import GET as GET_CODE
from services.coap_gateway.coap_memory import EXCHANGE_LIFETIME
from tests.coap_gateway.coap_peer import CoapPeer
from tests.kit.marks import first_soon
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, wait_for
from tests.system.users import allow, entry, write_users

PASSWORD = "a password"
ADDRESSES: dict[str, Any] = {
    "jobs": {"type": "queue", "flavor": "small-persisted-queue"},
    "secret": {"type": "queue", "flavor": "small-persisted-queue"},
    "events": {"type": "topic", "flavor": "small-persisted-topic"},
    "ask": {"type": "anycast"},
    "all": {"type": "multicast"},
}
PORT = 5683


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    options = ("--without", "mqtt", "--with", "coap")
    with running(tmp_path_factory.mktemp("coap"), ADDRESSES, options=options) as found:
        allowed = allow("jobs", "events/#", "ask", "all", "nowhere", "mytopic")
        write_users(found, {"alice": entry(PASSWORD, allow("#")), "anonymous": {"permissions": [allowed]}})
        found.up()
        yield found
        assert found.down() == 0


@pytest.fixture
def peer(suite: Suite) -> Iterator[CoapPeer]:
    with CoapPeer(PORT + suite.offset) as found:
        yield found


def drained(suite: Suite, address: str) -> list[Any]:
    """Return all messages of a queue."""
    found: list[Any] = []

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
                    found.append(delivery.message)
                    await delivery.accept()

    drain()
    return found


def test_the_address_is_measured_over_coap(suite: Suite) -> None:
    at = f"alice:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{5672 + suite.offset}/jobs"
    done = suite.command("bench", "-a", at, "--seconds", "0.1", "--json", "--protocol", "coap", "--non-durable")
    found = json.loads(done.stdout or "{}")
    assert found and found["received"] == found["accepted"] == found["sent"] > 0 and found["latency_ms"], done


def test_answers(suite: Suite, peer: CoapPeer) -> None:
    assert (
        peer.code("v1/jobs?ttl=600000&property.unit=C&subject=door", b"21.5", options=((CONTENT_FORMAT, b""),))
        == "2.01"
    )
    (message,) = drained(suite, "jobs")
    assert (bytes(message.body), message.content_type, message.subject) == (
        b"21.5",
        "text/plain; charset=utf-8",
        "door",
    )
    assert (message.application_properties["unit"], message.durable) == ("C", True)
    assert 0 < message.ttl <= 600_000
    options: Any
    for path, options, expected in (
        ("v1/all", (), "2.04"),
        ("v1/secret", (), "4.03"),
        ("v1/nowhere", (), "4.04"),
        ("v1/events/%23".replace("%23", "#"), (), "4.04"),
        ("v2/jobs", (), "4.04"),
        ("v1/jobs?reply-to=secret", (), "4.03"),
        ("v1/jobs?priority=11", (), "4.00"),
        ("v1/jobs?unknown=1", (), "4.00"),
        ("v1/jobs", ((CONTENT_FORMAT, b"\xff\xff"),), "4.15"),
        ("v1/jobs", ((9, b""),), "4.02"),
        ("v1/jobs", ((35, b"coap://x"),), "5.05"),
        ("v1/jobs", ((60, uint(1 << 30)),), "4.13"),
        ("v1/jobs", ((27, b"\x07"),), "4.02"),
        ("v1/jobs", ((27, b"\x10"),), "4.08"),
        ("v1/jobs", ((11, b"\xff"),), "4.02"),
    ):
        assert peer.code(path, options=options) == expected, (path, options)
    for path, options, expected in (
        ("v1/jobs", ((OBSERVE, b""),), "4.05"),
        ("v1/secret", ((OBSERVE, b""),), "4.03"),
        ("v1/#", ((OBSERVE, b""),), "4.04"),
        ("v1/events", (), "4.05"),
        ("v1/events", ((OBSERVE, b""), (17, b"\x2a")), "4.06"),
        (".well-known/core", (), "2.05"),
    ):
        assert peer.code(path, code=GET_CODE, options=options) == expected, (path, options)
    peer.send(peer.request("v1/jobs", b"x" * 4000))
    assert peer.read().code == code("4.13")
    assert drained(suite, "jobs") == []


def test_a_key(suite: Suite, peer: CoapPeer) -> None:
    assert [peer.code("v1/jobs?key=lamp-1", b"x") for _ in range(3)] == ["2.01"] * 3
    assert peer.code("v1/jobs?key=lamp-2", b"x") == "2.01"
    assert len(drained(suite, "jobs")) == 2


def test_observers(suite: Suite, peer: CoapPeer) -> None:
    assert peer.observe("v1/events/+").option(OBSERVE) is not None
    with CoapPeer(PORT + suite.offset) as sender:
        for number in range(3):
            assert sender.code("v1/events/a?ttl=60000", b"%d" % number) == "2.01"
        found = [peer.notification() for _ in range(3)]
        assert [each.payload for each in found] == [b"0", b"1", b"2"]
        assert int.from_bytes(found[0].option(MAX_AGE) or b"", "big") in range(1, 61)
        orders = [int.from_bytes(each.option(OBSERVE) or b"", "big") for each in found]
        assert orders == sorted(set(orders))
        assert sender.code("v1/events/a", b"y" * 100) == "2.01"
        first = peer.notification(None)
        again = peer.read()
        assert again == first, "what is not acknowledged comes again"
        peer.acknowledge(again)
        assert sender.code("v1/events/a", b"z") == "2.01"
        peer.notification(RST)
        assert sender.code("v1/events/a", b"z") == "2.01"
        peer.ping()
        assert peer.observe("v1/events/b?form=json").option(OBSERVE) is not None
        assert sender.code("v1/events/b?property.n=1", b"z") == "2.01"
        found_json = json.loads(peer.notification().payload)
        assert (found_json["to"], found_json["properties"]) == ("events/b", {"n": "1"}), "the first one has ended"

        def listed() -> bool:
            done = suite.command("connection", "list", "--json", "--port-offset", str(suite.offset))
            rows = json.loads(done.stdout)["items"] if done.returncode == 0 else []
            return any((row["protocol"], row["links"]) == ("coap", 1) for row in rows)

        wait_for(listed, "the console knows the observer")


def test_notifications_in_blocks(suite: Suite, peer: CoapPeer) -> None:
    """The message is settled, and the next one comes, when the client has the last block."""
    body = bytes(range(256)) * 2
    peer.observe("v1/events/big", ((BLOCK2, block_option(CoapBlock(0, False, 4))),))
    with CoapPeer(PORT + suite.offset) as sender:
        for payload in (body, b"next"):
            assert sender.code("v1/events/big", payload) == "2.01"
    first = peer.notification()
    stated = block(first.option(BLOCK2) or b"")
    assert (stated, first.payload) == (CoapBlock(0, True, 4), body[:256])
    second = peer.ask("v1/events/big", code=GET_CODE, options=((BLOCK2, block_option(CoapBlock(1, False, 4))),))
    assert (block(second.option(BLOCK2) or b""), second.payload) == (CoapBlock(1, False, 4), body[256:])
    assert peer.notification().payload == b"next"
    late = peer.ask("v1/events/big", code=GET_CODE, options=((BLOCK2, block_option(CoapBlock(1, False, 4))),))
    assert late.code == code("4.08")


@asyncio_test
async def test_aiocoap(suite: Suite) -> None:
    context = await Context.create_client_context()
    uri = f"coap://127.0.0.1:{PORT + suite.offset}/v1/"
    observing = context.request(Message(code=GET, uri=f"{uri}events/%23", observe=0))
    assert (await observing.response).code.is_successful()
    bodies = [b"small", os.urandom(50_000), b"last"]
    for body in bodies:
        sent = await context.request(Message(code=PUT, uri=f"{uri}events/a", payload=body)).response
        assert str(sent.code) == "2.01 Created"
    found = observing.observation.__aiter__()
    assert [(await anext(found)).payload for _ in bodies] == bodies
    await context.shutdown()


def test_the_program_of_the_guide(suite: Suite, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "coap.md").read_text()
    program, output = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("python", "text"))
    file = tmp_path / "observe.py"
    file.write_text(textwrap.dedent(program).replace("127.0.0.1/", f"127.0.0.1:{PORT + suite.offset}/"))
    done = subprocess.run((sys.executable, file), capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (0, textwrap.dedent(output)), done.stderr


def test_libcoap(suite: Suite) -> None:
    client = next((each for each in map(shutil.which, ("coap-client-notls", "coap-client")) if each), None)
    assert client is not None, "coap-client is missing: install it (Debian: libcoap3-bin; .ci/run does)"
    uri = f"coap://127.0.0.1:{PORT + suite.offset}/v1"
    observing = subprocess.Popen(
        (client, "-s", "600", "-m", "get", f"{uri}/events/l"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert observing.stdout is not None

    def observed() -> bool:
        done = suite.command("connection", "list", "--json", "--port-offset", str(suite.offset))
        return any(row["protocol"] == "coap" and row["links"] for row in json.loads(done.stdout)["items"])

    wait_for(observed, "the client observes")
    for body in ("from libcoap.", "y" * 3000):
        done = subprocess.run(
            (client, "-m", "post", "-e", body, f"{uri}/events/l"), capture_output=True, timeout=DEADLINE
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    found = b""
    while found.count(b"y") < 3000:
        read = os.read(observing.stdout.fileno(), 1 << 16)
        assert read, found
        found += read
    assert b"from libcoap." in found
    observing.kill()
    observing.wait()


def send_while(suite: Suite, name: str, total: int, disturbances: Iterable[Callable[[], object]]) -> None:
    """Send while something happens, by clients that repeat datagrams, by the same id, until they have an answer: what
    has 2.01 is there, and once. A datagram that is repeated in the next slot of ids may be there twice."""
    accepted: list[bytes] = []
    begun = slot()
    stop = threading.Event()

    def send(client: int) -> None:
        with CoapPeer(PORT + suite.offset) as peer:
            for number in itertools.count():
                if stop.is_set():
                    return
                body = f"{name} {client} {number}".encode()
                if peer.answer(peer.request("v1/jobs", body)).code == code("2.01"):
                    accepted.append(body)

    with ThreadPoolExecutor(8) as threads:
        senders = [threads.submit(send, client) for client in range(8)]
        try:
            for at, disturb in zip((total // 9, total // 3, total * 2 // 3), disturbances, strict=True):
                wait_for(lambda: len(accepted) >= at, f"{at} messages", moves=lambda: len(accepted))
                disturb()
            wait_for(lambda: len(accepted) >= total, "messages after the last one", moves=lambda: len(accepted))
        finally:
            stop.set()
        for each in senders:
            each.result()
    suite.wait_ready()  # answers that were on their way may have come after the last kill
    stored = Counter(bytes(each.body) for each in drained(suite, "jobs"))
    assert set(accepted) <= stored.keys()
    assert {body: n for body, n in stored.items() if n > 1} == {} or slot() != begun


def slot() -> int:
    return int(time.time() / EXCHANGE_LIFETIME)


@pytest.mark.parametrize("total", [450, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("killed", first_soon(["coap_gateway", "router", "broker"]))
def test_killed(suite: Suite, killed: str, total: int) -> None:
    def component() -> dict[str, Any]:
        return suite.component(killed, "jobs" if killed == "broker" else "")

    def kill() -> None:
        wait_for(lambda: component()["pid"], f"{killed} runs")
        suite.kill(component())

    send_while(suite, f"{killed} {total}", total, [kill] * 3)


@pytest.mark.slow
def test_gateways_that_come_and_leave(suite: Suite) -> None:
    """Datagrams of an endpoint go to another gateway then: requests that are repeated there are stored once, and an
    observer of a gateway that leaves is told that it ends."""

    def scale(count: int) -> None:
        done = suite.command("scale", f"coap_gateway={count}", "--port-offset", str(suite.offset))
        assert done.returncode == 0, done

    with contextlib.ExitStack() as stack:
        scale(3)
        # so many that one of them is at a gateway that leaves
        observers = {
            peer.socket: peer for peer in [stack.enter_context(CoapPeer(PORT + suite.offset)) for _ in range(12)]
        }
        for peer in observers.values():
            assert peer.observe("v1/events/#").code == code("2.05")
        send_while(suite, "scaled", 1500, [partial(scale, count) for count in (1, 3, 1)])

        def told() -> bool:
            for each in select.select(list(observers), [], [], 0)[0]:
                found = observers[each].read()
                if (shown(found.code), found.type) == ("5.03", CON):
                    observers[each].acknowledge(found)
                    return True
            return False

        wait_for(told, "an observer is told")
