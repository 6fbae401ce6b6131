"""The real suite, end to end: `enmasse up` on `enmasse init`'s configuration, used through the command line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from enmasse.testing import free_port
from tests.certificates import Authority
from tests.cli.running import ENMASSE, Up, alive, enmasse, replace, wait_for
from tests.kit.processes import start_service
from tests.kit.waiting import DEADLINE

FIXED = ["configserv", "ragent", "storage_controller", "console", "router-0"]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One suite for all tests of this module; each leaves it ready."""
    folder = tmp_path_factory.mktemp("suite")
    assert enmasse("init", folder / "config").returncode == 0
    with Up(folder / "config", folder / "data", fake=False) as up:
        yield up.until_ready()
        pids = up.pids()
        assert up.end() == 0
        assert not [name for name, pid in pids.items() if alive(pid)]
        assert up.lines.count("EnMasse is ready") == 1


def cli(up: Up, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """One command. Where a test is not about its time limit, `send` has one that a slow machine does not meet."""
    if arguments[0] == "send" and "--timeout" not in arguments:
        arguments += ("--timeout", "60")
    return enmasse(*arguments, "--port-offset", up.offset, input=input)


def ready(up: Up, seconds: float = DEADLINE) -> dict[str, Any]:
    """Waits for the files as they are now, and all ready."""
    done = cli(up, "status", "--json", "--wait", str(seconds))
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ready"] is True
    return found


def background(up: Up, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [ENMASSE, *arguments, "--port-offset", str(up.offset)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def consumers(up: Up, name: str) -> int:
    return next(a["consumers"] or 0 for a in up.status()["addresses"] if a["name"] == name)


@pytest.mark.parametrize(
    ("policy", "said", "status"),
    [("FAIL", "further messages are rejected", 1), ("DROP", "further messages are discarded", 0),
     ("BLOCK", "senders wait for credit", None)],
)  # fmt: skip
def test_an_address_that_is_full_says_so(policy: str, said: str, status: int | None, suite: Up) -> None:
    limits = ("--set", "maxSize=1000", "--set", f"fullPolicy={policy}")
    added = ("address", "add", "small", "--type", "queue", "--flavor", "small-persisted-queue", *limits)
    assert cli(suite, *added).returncode == 0
    ready(suite)

    def entry() -> Any:
        return next(a for a in suite.status()["addresses"] if a["name"] == "small")

    assert entry()["message"] == ""
    assert cli(suite, "send", "small", "x" * 600, "--count", "2").returncode == 0
    wait_for(lambda: "full" in entry()["message"], what="that it is full")
    assert (entry()["phase"], entry()["message"]) == ("Active", f"full: {said}; receive some, or raise its maxSize")
    if status is not None:
        assert cli(suite, "send", "small", "y").returncode == status
    assert cli(suite, "receive", "small", "--count", "2", "--timeout", "60").returncode == 0
    wait_for(lambda: entry()["message"] == "", what="that there is room again")
    assert cli(suite, "send", "small", "z").returncode == 0
    assert cli(suite, "address", "remove", "small", "--force").returncode == 0
    wait_for(lambda: "small" not in [a["name"] for a in suite.status()["addresses"]])


def test_why_there_is_no_credit_is_told_by_the_suite(suite: Up) -> None:
    added = ("--type", "queue", "--flavor", "small-persisted-queue")
    assert cli(suite, "address", "add", "leaving", *added).returncode == 0
    ready(suite)
    assert cli(suite, "send", "leaving", "x", "--count", "2").returncode == 0
    removed = cli(suite, "address", "remove", "leaving")
    assert removed.returncode == 0 and "leaving holds 2 messages: it stays (Terminating)" in removed.stderr
    assert f"`enmasse address remove leaving --force --port-offset {suite.offset}` deletes them" in removed.stderr
    wait_for(lambda: [a for a in suite.status()["addresses"] if a["name"] == "leaving" and a["phase"] == "Terminating"])
    left = cli(suite, "send", "leaving", "too late", "--timeout", "1")
    assert left.returncode == 3 and "The address is Terminating: was removed: still holds 2 messages" in left.stderr
    assert f"`enmasse address remove leaving --force --port-offset {suite.offset}`" in left.stderr
    assert cli(suite, "address", "remove", "leaving", "--force").returncode == 0
    wait_for(lambda: "leaving" not in [a["name"] for a in suite.status()["addresses"]])


def messages(up: Up, name: str) -> int:
    return next((a["messages"] or 0 for a in up.status()["addresses"] if a["name"] == name), -1)


def test_status_of_the_ready_suite(suite: Up) -> None:
    status = ready(suite)
    kinds = {c["name"]: c["kind"] for c in status["components"]}
    assert list(kinds)[:5] == FIXED
    assert sorted(kinds.values()) == [
        "broker",
        "broker",
        "configserv",
        "console",
        "ragent",
        "router",
        "storage_controller",
    ]
    assert {a["name"]: (a["type"], a["phase"]) for a in status["addresses"]} == {
        "myqueue": ("queue", "Active"),
        "mytopic": ("topic", "Active"),
        "mqtt": ("topic", "Active"),
        "anycast": ("anycast", "Active"),
        "broadcast": ("multicast", "Active"),
    }
    assert set(status["config"]) == {"addresses.json", "flavors.json"}
    router = next(c for c in status["components"] if c["kind"] == "router")
    assert router["endpoints"]["amqp"] == f"127.0.0.1:{5672 + suite.offset}"
    assert status["errors"] == []
    table = cli(suite, "status")
    assert table.returncode == 0 and table.stdout.rstrip().endswith("\nready")


def test_queue_stores(suite: Up) -> None:
    assert cli(suite, "send", "myqueue", "one", "--property", "n=1", "--subject", "greeting").returncode == 0
    assert cli(suite, "send", "myqueue", input="two\nthree\n\N{GREEK SMALL LETTER ALPHA}").returncode == 0
    wait_for(lambda: messages(suite, "myqueue") == 4, what="4 messages in the status")
    done = cli(suite, "receive", "myqueue", "--count", "1", "--json", "--timeout", "60")
    assert done.returncode == 0
    first = json.loads(done.stdout)
    assert first["body"] == "one" and first["durable"] is True
    assert first["properties"] == {"n": 1} and first["subject"] == "greeting"
    done = cli(suite, "receive", "myqueue", "--count", "3", "--timeout", "60")
    assert (done.returncode, done.stdout) == (0, "two\nthree\n\N{GREEK SMALL LETTER ALPHA}\n")
    done = cli(suite, "receive", "myqueue", "--count", "1", "--timeout", "0.5")
    assert done.returncode == 3 and "0 of 1 messages within 0.5 s" in done.stderr
    assert cli(suite, "receive", "myqueue", "--timeout", "0.5").returncode == 0


def test_nobody_else_may_read_what_the_suite_writes(suite: Up) -> None:
    """Run after messages were stored. A file may go while it is looked at."""
    found = {}
    for path in (suite.data, *suite.data.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            found[str(path.relative_to(suite.data))] = path.lstat().st_mode & 0o777
    assert {"brokers", "configserv/configuration.json", "desired", "logs/router-0.log", "lock"} <= found.keys()
    assert any(name.endswith(".journal") for name in found)
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}


def test_anycast_waits_for_a_consumer(suite: Up) -> None:
    done = cli(suite, "send", "anycast", "x", "--timeout", "0.5", "--json")
    assert done.returncode == 3
    assert "no credit within 0.5 s" in done.stderr and "no consumer is attached" in done.stderr
    told = json.loads(done.stdout)
    assert (told["sent"], told["accepted"]) == (0, 0) and "no credit" in told["error"]
    sender = background(suite, "send", "anycast", "--count", "3", "--timeout", "60", "--json")
    done = cli(suite, "receive", "anycast", "-m", "3", "--json")
    assert [json.loads(line)["body"] for line in done.stdout.splitlines()] == [{"sequence": n} for n in (1, 2, 3)]
    out, _ = sender.communicate(timeout=DEADLINE)
    assert sender.returncode == 0
    assert json.loads(out) == {
        "address": "anycast", "sent": 3, "accepted": 3, "rejected": 0, "released": 0, "modified": 0, "unknown": 0,
        "error": None,
    }  # fmt: skip


@pytest.mark.slow  # test_roundtrip.py of the system
def test_multicast_and_topic_reach_everybody(suite: Up) -> None:
    for address in ("broadcast", "mytopic"):
        receivers = [background(suite, "receive", address, "--count", "2", "--timeout", "60") for _ in range(2)]
        wait_for(lambda: consumers(suite, address) == 2, what=f"2 consumers of {address}")
        assert cli(suite, "send", address, "both", "--count", "2", "--timeout", "60").returncode == 0
        for receiver in receivers:
            assert receiver.communicate(timeout=DEADLINE)[0] == "both\nboth\n"
            assert receiver.returncode == 0


def test_durable_subscription(suite: Up) -> None:
    subscribe = ("receive", "mytopic", "--durable", "sub", "--container", "me")
    nothing = ("--timeout", "0.5")
    assert cli(suite, *subscribe, *nothing).returncode == 0
    assert cli(suite, "send", "mytopic", "while away").returncode == 0
    assert cli(suite, *subscribe, "--count", "1", "--timeout", "60").stdout == "while away\n"
    assert cli(suite, "send", "mytopic", "last").returncode == 0
    assert cli(suite, *subscribe, "--timeout", "2", "--unsubscribe").stdout == "last\n"
    assert cli(suite, "send", "mytopic", "to nobody").returncode == 0
    done = cli(suite, *subscribe, *nothing, "--unsubscribe")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no durable subscription 'sub' of container 'me'; nothing was deleted" in done.stderr


@pytest.mark.parametrize("name", ["myqueue", "anycast", "broadcast"])
def test_only_topics_have_durable_subscriptions(name: str, suite: Up) -> None:
    done = cli(suite, "receive", name, "--durable", "sub", "--timeout", "1")
    assert done.returncode == 4 and "durable subscriptions" in done.stderr


def test_url_form_and_refusals(suite: Up) -> None:
    at = f"localhost:{5672 + suite.offset}"
    assert enmasse("send", "-a", f"{at}/myqueue", "-m", "2").returncode == 0
    done = enmasse("receive", "-a", f"amqp://{at}/myqueue", "-m", "2", "--json")
    assert [json.loads(line)["body"] for line in done.stdout.splitlines()] == [{"sequence": 1}, {"sequence": 2}]
    done = cli(suite, "send", "nothing.here", "x")
    assert done.returncode == 4 and "amqp:not-found" in done.stderr and "enmasse address list" in done.stderr
    done = cli(suite, "bench", "nothing.here")
    assert done.returncode == 4 and "amqp:not-found" in done.stderr and "enmasse address list" in done.stderr
    done = cli(suite, "receive", "nothing.here", "--count", "1")
    assert done.returncode == 4 and "amqp:not-found" in done.stderr
    done = enmasse("send", "-a", "localhost:1/x", "body")
    assert done.returncode == 4 and "cannot connect to localhost:1" in done.stderr


def test_ttl(suite: Up) -> None:
    assert cli(suite, "send", "myqueue", "short", "--ttl", "0.001").returncode == 0
    assert cli(suite, "send", "myqueue", "long", "--ttl", "600").returncode == 0
    done = cli(suite, "receive", "myqueue", "--count", "1", "--json", "--timeout", "60")
    assert json.loads(done.stdout)["body"] == "long"


def test_bench(suite: Up) -> None:
    done = cli(suite, "bench", "myqueue", "--seconds", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["sent"] == result["accepted"] == result["received"] > 0
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["p99"] <= result["latency_ms"]["max"]
    assert cli(suite, "send", "myqueue", "not yours").returncode == 0
    done = cli(suite, "bench", "myqueue", "--seconds", "0.5")
    assert done.returncode == 1 and "holds other messages" in done.stderr
    kept: list[str] = []

    def took_all() -> bool:
        kept.extend(cli(suite, "receive", "myqueue", "--timeout", "1").stdout.splitlines())
        return "not yours" in kept and messages(suite, "myqueue") == 0

    wait_for(took_all, what="all that is in myqueue, with what was there before the measurement")


def test_addresses_while_it_runs(suite: Up) -> None:
    flavor = ("--flavor", "small-persisted-queue")
    added = cli(suite, "address", "add", "extra", "--type", "queue", *flavor)  # finds the files through the suite
    assert added.returncode == 0, added.stderr
    assert "extra" in [a["name"] for a in ready(suite)["addresses"]]
    assert cli(suite, "send", "extra", "kept").returncode == 0
    assert cli(suite, "address", "remove", "extra").returncode == 0
    wait_for(lambda: ("extra", "Terminating") in [(a["name"], a["phase"]) for a in suite.status()["addresses"]])
    listed = json.loads(cli(suite, "address", "list", "--json").stdout)["addresses"]
    assert "extra" in [a["name"] for a in listed]
    done = cli(suite, "status", "--wait", "0.3")
    assert done.returncode == 0 and done.stdout.startswith("ready, but 1 address Terminating:"), done.stdout
    assert cli(suite, "receive", "extra", "--count", "1", "--timeout", "60").stdout == "kept\n"
    wait_for(lambda: "extra" not in [a["name"] for a in suite.status()["addresses"]])
    ready(suite)


def test_force_throws_messages_away(suite: Up) -> None:
    flavor = ("--flavor", "small-persisted-queue")
    assert cli(suite, "address", "add", "doomed", "--type", "queue", *flavor).returncode == 0
    ready(suite)
    assert cli(suite, "send", "doomed", "x", "--count", "5").returncode == 0
    assert cli(suite, "address", "remove", "doomed", "--force").returncode == 0
    wait_for(lambda: "doomed" not in [a["name"] for a in suite.status()["addresses"]])
    ready(suite)


def test_bad_edits_change_nothing_that_runs(suite: Up) -> None:
    path = suite.config / "addresses.json"
    good = path.read_text()
    config = suite.status()["config"]
    try:
        replace(path, good.rstrip().removesuffix("}"))  # half of it
        error = wait_for(lambda: suite.status()["errors"])[0]
        assert error["file"] == "addresses.json" and error["line"] and error["reason"] and error["since"]
        wait_for(lambda: suite.status()["ready"], what="ready: errors do not change it")
        assert suite.status()["config"] == config
        assert cli(suite, "send", "myqueue", "still here").returncode == 0
        assert cli(suite, "receive", "myqueue", "--count", "1", "--timeout", "60").returncode == 0
        suite.reports("addresses.json:")
        late = cli(suite, "status", "--wait", "0.3")
        assert late.returncode == 1 and "not applied yet: addresses.json" in late.stderr

        entries = json.loads(good)
        entries["myqueue"]["flavor"] = "unknown"
        entries["new"] = {"type": "topic", "flavor": "small-persisted-topic"}
        replace(path, json.dumps(entries, indent=1))
        wait_for(lambda: "new" in [a["name"] for a in suite.status()["addresses"] if a["ready"]])
        status = ready(suite)  # myqueue keeps its last good version
        assert [(e["entry"], e["field"]) for e in status["errors"]] == [("myqueue", "flavor")]
    finally:
        replace(path, good)
    status = ready(suite)
    wait_for(lambda: "new" not in [a["name"] for a in suite.status()["addresses"]])
    assert suite.status()["errors"] == []


@pytest.mark.parametrize("kind", ["configserv", "ragent", "storage_controller", "console", "router", "broker"])
def test_killed_processes_come_back(kind: str, suite: Up) -> None:
    before = ready(suite)
    assert cli(suite, "send", "myqueue", "stored").returncode == 0
    victim = next(c for c in before["components"] if c["kind"] == kind)
    os.kill(victim["pid"], signal.SIGKILL)
    wait_for(lambda: not alive(victim["pid"]))
    assert suite.status()["settled"] is False or suite.component(victim["name"])["pid"] != victim["pid"]
    after = next(c for c in ready(suite)["components"] if c["name"] == victim["name"])
    assert after["pid"] != victim["pid"] and after["restarts"] == victim["restarts"] + 1
    done = cli(suite, "receive", "myqueue", "--count", "1", "--timeout", "60")
    assert done.stdout == "stored\n", done.stderr


def test_everything_killed_at_once(suite: Up) -> None:
    ready(suite)
    assert cli(suite, "send", "myqueue", "stored").returncode == 0
    pids = suite.pids()
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in pids.values()))
    ready(suite)
    assert cli(suite, "receive", "myqueue", "--count", "1", "--timeout", "60").stdout == "stored\n"


@pytest.mark.slow  # test_two_suites_side_by_side, and test_restart.py of the system
def test_restart_and_two_suites(tmp_path: Path) -> None:
    assert enmasse("init", tmp_path / "config").returncode == 0
    with Up(tmp_path / "config", tmp_path / "one", fake=False) as one:
        with Up(tmp_path / "config", tmp_path / "two", fake=False) as two:
            one.until_ready()
            two.until_ready()
            assert cli(one, "send", "myqueue", "in one").returncode == 0
            assert cli(two, "receive", "myqueue", "--timeout", "0.5").stdout == ""
            assert two.end() == 0
        pids = one.pids()
        one.process.kill()
        one.process.wait(DEADLINE)
        wait_for(lambda: not any(alive(pid) for pid in pids.values()))
    (tmp_path / "config" / "addresses.json").write_text("{ broken")  # the last good configuration serves
    with Up(tmp_path / "config", tmp_path / "one", fake=False, offset=one.offset) as again:
        again.until_ready()
        again.reports("addresses.json:1")
        assert cli(again, "receive", "myqueue", "--count", "1", "--timeout", "60").stdout == "in one\n"
        assert again.end() == 0


def test_brokers_made_by_hand(tmp_path: Path) -> None:
    """Without a storage controller, what is missing on the broker is not ready, and says what to make."""
    assert enmasse("init", tmp_path / "config").returncode == 0
    port, health = free_port(), free_port()
    own = {
        "autoCreateQueues": True,
        "autoCreateAddresses": True,
        "autoDeleteQueues": False,
        "autoDeleteAddresses": False,
        "defaultAddressRoutingType": "ANYCAST",
    }
    settings = {"name": "hand", "health": f"127.0.0.1:{health}", "listen": f"127.0.0.1:{port}", "settings": own}
    (tmp_path / "broker.json").write_text(json.dumps(settings))
    flavors = ["small-persisted-queue", "small-persisted-topic"]
    brokers = {"hand": {"host": "127.0.0.1", "port": port, "flavors": flavors}}
    (tmp_path / "config" / "brokers.json").write_text(json.dumps(brokers))
    broker = start_service("broker", tmp_path / "broker.json")
    try:
        at = f"127.0.0.1:{port}/myqueue"
        wait_for(lambda: enmasse("send", "-a", at, "made by hand").returncode == 0)
        with Up(tmp_path / "config", tmp_path / "data", fake=False) as up:
            what = "broker hand has no topic 'mytopic': make an address of this name with MULTICAST there"
            wait_for(lambda: address_of(up, "mytopic") == (False, "Configuring", what))
            make_topic(port, "mytopic")
            make_topic(port, "mqtt")
            up.until_ready()
            assert [c["name"] for c in ready(up)["components"]] == ["configserv", "ragent", "console", "router-0"]
            assert cli(up, "receive", "myqueue", "--count", "1", "--timeout", "60").stdout == "made by hand\n"
            assert up.end() == 0
        assert broker.poll() is None
    finally:
        broker.terminate()
        assert broker.wait(DEADLINE) == 0


def address_of(up: Up, name: str) -> tuple[bool, str, str] | None:
    """Whether an address is ready, its phase and its message; None before HTTP answers or it is known."""
    status = up.try_status()
    found = [a for a in status["addresses"] if a["name"] == name] if isinstance(status, dict) else []
    return (found[0]["ready"], found[0]["phase"], found[0]["message"]) if found else None


def make_topic(port: int, name: str) -> None:
    """As an administrator does it by the broker's management."""
    node = "activemq.management"
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE)
    replies = connection.create_receiver(None, dynamic=True)
    properties = {"_AMQ_ResourceName": "broker", "_AMQ_OperationName": "createAddress"}
    body = json.dumps([name, "MULTICAST"])
    message = Message(address=node, reply_to=replies.link.remote_source.address, properties=properties, body=body)
    connection.create_sender(node).send(message)
    assert replies.receive(timeout=DEADLINE).properties["_AMQ_OperationSucceeded"] is True
    connection.close()


def test_amqps(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    assert enmasse("init", tmp_path / "config").returncode == 0
    with Up(tmp_path / "config", tmp_path / "data", fake=False, tls=(cert, key)) as up:
        up.until_ready()
        router = up.component("router-0")
        assert router["endpoints"]["amqps"] == f"127.0.0.1:{5671 + up.offset}"
        url = f"amqps://localhost:{5671 + up.offset}/myqueue"
        done = enmasse("send", "-a", url, "x")
        assert done.returncode == 4 and "certificate" in done.stderr.lower()
        done = enmasse("send", "-a", url, "over TLS", "--ca", authority.file)
        assert done.returncode == 0, done.stderr
        assert cli(up, "receive", "myqueue", "--count", "1", "--timeout", "60").stdout == "over TLS\n"
