"""Commands for messages and addresses against one running suite."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from enmasse.aio.client import connect
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message, Sections
from enmasse.cli.commands.examples import EXAMPLES
from enmasse.cli.registry import COMMANDS, group
from tests.amqp.codec_values import same
from tests.amqp.messages import identical, messages
from tests.cli.running import ENMASSE, Up, enmasse, on_a_terminal, wait_for
from tests.kit.running import run
from tests.kit.waiting import DEADLINE

QUEUE, TOPIC = "small-persisted-queue", "small-persisted-topic"
ADDRESSES: dict[str, Any] = {
    "one": {"type": "queue", "flavor": QUEUE, "deadletter": "dead"},
    "two": {"type": "queue", "flavor": QUEUE},
    "dead": {"type": "queue", "flavor": QUEUE},
    "news": {"type": "topic", "flavor": TOPIC},
    "direct": {"type": "anycast"},
}


@pytest.fixture(scope="module")
def up(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A suite with MQTT whose queues are empty before and after each test."""
    config = tmp_path_factory.mktemp("tools") / "config"
    config.mkdir()
    (config / "addresses.json").write_text(json.dumps(ADDRESSES, indent=2))
    (config / "flavors.json").write_text((written / "flavors.json").read_text())
    with Up(config, config.parent / "data", fake=False, options=()) as up:
        yield up.until_ready()
        assert up.end() == 0


class Tool:
    """Commands on the suite."""

    def __init__(self, up: Up) -> None:
        self.up = up
        self.here = ("--port-offset", str(up.offset))

    def __call__(self, *words: str, input: str | None = None, status: int = 0) -> str:
        """Run a command; return what it prints, and check its exit status."""
        done = enmasse(*words, *self.here, input=input)
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        self.stderr = done.stderr
        return done.stdout

    def rows(self, address: str) -> list[dict[str, Any]]:
        """Return what a queue holds, by `receive --browse`."""
        return [json.loads(line) for line in self("receive", address, "--browse", "--json").splitlines()]

    def empty(self, *addresses: str) -> None:
        for address in addresses:
            while self.rows(address):
                self("receive", address, "--timeout", "0.2")


@pytest.fixture
def tool(up: Up) -> Iterator[Tool]:
    tool = Tool(up)
    yield tool
    tool.empty("one", "two", "dead")


def exchange(up: Up, address: str, payloads: list[bytes]) -> None:
    """Send messages as they are."""

    async def main() -> None:
        async with connect("127.0.0.1", 5672 + up.offset) as client:
            sender = await client.sender(address)
            for payload in payloads:
                assert await sender.send(payload) is ACCEPTED

    run(main())


def taken(up: Up, address: str, count: int) -> list[bytes]:
    """Receive messages, and return their bytes."""
    found: list[bytes] = []

    async def main() -> None:
        async with connect("127.0.0.1", 5672 + up.offset) as client:
            receiver = await client.receiver(address, credit=count)
            while len(found) < count:
                delivery = await receiver.receive(DEADLINE)
                found.append(bytes(delivery.payload))
                await delivery.accept()

    run(main())
    return found


@settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(messages(hop=False), min_size=1, max_size=40))
def test_what_receive_prints_send_takes_and_it_is_the_same_message(up: Up, payloads: list[bytes]) -> None:
    """Beside what brokers set: the time to live that is left."""
    tool = Tool(up)
    exchange(up, "one", payloads)
    lines = tool("receive", "one", "--json", "--count", str(len(payloads)))
    sent = json.loads(tool("send", "two", "--json", input=lines))
    assert (sent["sent"], sent["accepted"]) == (len(payloads), len(payloads))
    payloads = sorted(payloads, key=lambda payload: -Message.decode(payload).priority)  # as a queue delivers them
    for before, after in zip(payloads, taken(up, "two", len(payloads)), strict=True):
        one, other = Message.decode(before), Message.decode(after)
        assert one.ttl is None or other.ttl is not None  # set by brokers where there is an absolute expiry time
        other.ttl = one.ttl
        assert identical(other, one)
        assert same(Sections(after).body()[1], Sections(before).body()[1])


def test_options_of_send_are_fields_of_the_message(tool: Tool) -> None:
    tool("send", "one", "{}", "--id", "i", "--reply-to", "two", "--correlation-id", "c", "--content-type",
         "application/json", "--priority", "7", "--to", "elsewhere", "--subject", "s", "--ttl", "3600")  # fmt: skip
    [row] = tool.rows("one")
    assert 0 < row.pop("ttl") <= 3_600_000
    assert row == {
        "body": "{}", "durable": True, "id": "i", "to": "elsewhere", "subject": "s", "reply_to": "two",
        "correlation_id": "c", "content_type": "application/json", "priority": 7, "properties": {},
    }  # fmt: skip


def test_a_file_is_sent_as_it_is_and_options_replace_fields_of_lines(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\n")
    tool("send", "one", "--file", str(tmp_path / "x"))
    line = tool("receive", "one", "--json", "--count", "1")
    assert json.loads(line)["body"] == {"base64": "/wo="}
    tool("send", "one", "--json", "--subject", "new", "--property", "a=1", input=line + "\n" + line)
    assert [(row["body"], row["subject"], row["properties"]) for row in tool.rows("one")] == [
        ({"base64": "/wo="}, "new", {"a": 1})
    ] * 2
    assert tool("send", "one", "--file", "-", input="whole\ninput\n")
    assert tool.rows("one")[-1]["body"] == "whole\ninput\n"
    tool("send", "one", "BODY", "--file", str(tmp_path / "x"), status=2)


def test_a_line_that_is_no_message_ends_the_command_and_names_the_line(tool: Tool) -> None:
    found = tool("send", "one", "--json", input='{"body": 1}\n\n{"boddy": 2}\n{"body": 3}\n', status=1)
    assert (json.loads(found)["accepted"], "line 3" in tool.stderr, "boddy" in tool.stderr) == (1, True, True)
    assert "[messages.input.invalid]" in tool.stderr
    assert [row["body"] for row in tool.rows("one")] == [1]
    tool("send", "one", "--json", input="not json", status=1)


def test_a_delayed_message_comes_not_before_its_time(tool: Tool) -> None:
    began = time.time()
    tool("send", "one", "late", "--delay", "2")
    assert tool("receive", "one", "--count", "1", "--timeout", "60") == "late\n"
    assert time.time() >= began + 2


def test_browsing_leaves_the_queue_as_it_is_and_ends(tool: Tool) -> None:
    assert tool("receive", "one", "--browse") == ""
    assert "/one holds no messages\n" in tool.stderr
    tool("send", "one", "--count", "250")
    assert [row["body"]["sequence"] for row in tool.rows("one")] == list(range(1, 251))
    assert len(tool("receive", "one", "--browse", "--count", "3").splitlines()) == 3
    tool("receive", "one", "--browse", "--count", "251", status=3)
    assert "250 of 251 messages there" in tool.stderr
    assert len(tool("receive", "one", "--count", "250").splitlines()) == 250


def test_a_topic_cannot_be_browsed(tool: Tool) -> None:
    tool("receive", "news", "--browse", status=4)
    assert "only a queue holds messages to browse" in tool.stderr and "[address.request.refused]" in tool.stderr


def test_a_file_that_was_sent_is_received_as_it_was(tool: Tool, tmp_path: Path) -> None:
    picture = b"\x89PNG\r\n\x1a\n\xff\0"
    (tmp_path / "sent.png").write_bytes(picture)
    tool("send", "one", "--file", str(tmp_path / "sent.png"))
    with (tmp_path / "received.png").open("wb") as file:
        subprocess.run([ENMASSE, "receive", "one", "--count", "1", "--raw", *tool.here], stdout=file, check=True)
    assert (tmp_path / "received.png").read_bytes() == picture


def test_a_rejected_message_goes_to_the_dead_letter_queue(tool: Tool) -> None:
    tool("send", "one", "bad")
    assert tool("receive", "one", "--reject", "--count", "1") == "bad\n"
    assert tool("receive", "dead", "--count", "1", "--timeout", "60") == "bad\n"


def test_released_messages_are_printed_once_and_go_back(tool: Tool) -> None:
    tool("send", "one", "--count", "3")
    assert len(tool("receive", "one", "--release", "--timeout", "0.5").splitlines()) == 3
    rows = tool.rows("one")
    assert [row["body"]["sequence"] for row in rows] == [1, 2, 3]
    assert not any(row.get("delivery_count") for row in rows)


def test_outcomes_exclude_each_other(tool: Tool) -> None:
    for words in (("--browse", "--reject"), ("--reject", "--release"), ("--browse", "--durable", "d")):
        tool("receive", "one", *words, status=2)


def test_unsubscribe_prints_all_that_an_mqtt_session_holds_before_it_deletes_it(tool: Tool) -> None:
    me = ("news/#", "-i", "reader")
    tool("subscribe", *me, "--session-expiry", "600", "--timeout", "0.1")
    for text in ("a", "b", "c"):
        tool("publish", "news/x", text)
    tool("subscribe", *me, "--unsubscribe", "--count", "1", status=1)
    assert "[subscription.messages.kept]" in tool.stderr
    assert tool("subscribe", *me, "--unsubscribe") == "b\nc\n"
    assert "mqtt.reader" not in tool("subscription", "list")


@pytest.mark.parametrize("expiry", [(), ("--session-expiry", "0")])
def test_a_stored_session_with_messages_survives_a_subscriber_that_prints_one(tool: Tool, expiry: Any) -> None:
    me = ("news/#", "-i", "keeper")
    tool("subscribe", *me, "--session-expiry", "600", "--timeout", "0.1")
    for text in ("a", "b"):
        tool("publish", "news/x", text)
    assert tool("subscribe", *me, *expiry, "--count", "1") == "a\n"
    assert tool("subscribe", *me, *expiry, "--count", "1") == "b\n"
    tool("subscribe", *me, "--clean", "--timeout", "0.1")
    assert "mqtt.keeper" not in tool("subscription", "list")


def test_unsubscribe_prints_all_that_a_durable_subscription_holds(tool: Tool) -> None:
    durable = ("news", "--durable", "d")
    tool("receive", *durable, "--timeout", "0.1")
    for text in ("a", "b"):
        tool("send", "news", text)
    tool("receive", *durable, "--unsubscribe", "--count", "1", status=1)
    assert "[subscription.messages.kept]" in tool.stderr
    assert tool("receive", *durable, "--unsubscribe", "--count", "1") == "b\n"
    tool("receive", *durable, "--timeout", "0.1")
    for text in ("c", "d"):
        tool("send", "news", text)
    assert tool("receive", *durable, "--unsubscribe") == "c\nd\n", "it ends by itself"
    tool("receive", *durable, "--unsubscribe", status=1)
    assert "[subscription.name.unknown]" in tool.stderr


def test_a_request_gets_the_reply_of_a_program_that_answers(tool: Tool) -> None:
    with ThreadPoolExecutor() as pool:
        answering = pool.submit(Tool(tool.up), "reply", "direct", "--count", "2", "--subject", "re", "--timeout", "60")
        assert tool("request", "direct", "what?", "--timeout", "60") == "what?\n"
        found = json.loads(tool("request", "direct", "--json", "--file", "-", "--correlation-id", "7", input="x"))
        assert (found["body"], found["subject"], found["correlation_id"]) == ("x", "re", "7")
        assert answering.result() == "what?\nx\n"
    tool("request", "two", "x", "--timeout", "0.5", status=3)
    assert "was accepted, and nothing answered [messages.reply.missing]" in tool.stderr
    tool("request", "direct", "x", "--timeout", "0.5", status=3)
    assert "nothing has taken the request. The address is of type anycast: no consumer" in tool.stderr
    assert tool("reply", "two", "late", "--count", "1") == "x\n"  # the queue kept it; the client is gone
    assert "was not accepted" in tool.stderr
    tool("send", "two", "no address for replies")
    tool("reply", "two", "--timeout", "0.5")
    assert "without reply-to was rejected" in tool.stderr
    tool("request", "two", "x", "--reply-to", "one", status=2)


def test_addresses_are_listed_by_pattern_state_and_depth(tool: Tool) -> None:
    tool("send", "two", "--count", "3")
    tool("send", "one", "x")

    def names(*words: str) -> list[str]:
        return [row["name"] for row in json.loads(tool("address", "list", "--json", *words))["addresses"]]

    wait_for(lambda: names("--sort", "-messages")[:2] == ["two", "one"], what="the depths")
    assert names("--sort", "depth")[:2] == ["two", "one"]  # the former word
    assert names("--sort", "messages", "--match", "one", "--match", "two") == ["one", "two"]
    assert names("t*", "d?ad") == ["two", "dead"]
    assert names("--sort", "name") == sorted(ADDRESSES)
    tool("address", "list", "--limit", "1")
    assert f"… and {len(ADDRESSES) - 1} more" in tool.stderr
    assert names("--not-ready") == names("x*") == []


def test_a_changed_address_applies_and_wrong_keys_change_nothing(tool: Tool) -> None:
    file = tool.up.config / "addresses.json"
    before = file.read_text()
    assert tool("address", "set", "two", "maxSize=1Mi", 'messageTtl={"maximum": 60000}') == f"changed two in {file}\n"
    tool("status", "--wait", "60")
    assert json.loads(file.read_text())["two"] == ADDRESSES["two"] | {
        "maxSize": "1Mi", "messageTtl": {"maximum": 60000}
    }  # fmt: skip
    tool("address", "set", "two", "maxSise=1", status=1)
    assert "did you mean 'maxSize'?" in tool.stderr
    tool("address", "set", "tow", "maxSize=1", status=1)
    assert "Did you mean 'two'?" in tool.stderr
    tool("address", "set", "two", "maxSize", status=2)
    tool("address", "set", "two", "messageTtl.minimum=5", "messageTtl.maximum=", "messageRedelivery.redeliveryDelay=7")
    changed = json.loads(file.read_text())["two"]
    assert (changed["messageTtl"], changed["messageRedelivery"]) == ({"minimum": 5}, {"redeliveryDelay": 7})
    tool("address", "set", "two", "maxSize=", "messageTtl=", "messageRedelivery.redeliveryDelay=")
    assert json.loads(file.read_text()) == json.loads(before)
    tool("status", "--wait", "60")


def test_an_address_that_is_not_there_names_the_one_that_may_be_meant(tool: Tool) -> None:
    for words in (("send", "onne", "x"), ("receive", "onne"), ("request", "onne")):
        tool(*words, status=4)
        assert "Did you mean 'one'?" in tool.stderr
    tool("address", "show", "onne", status=1)
    assert "Did you mean 'one'?" in tool.stderr


def test_a_measurement_by_gateways_that_do_not_run_says_which_option_starts_them(tool: Tool) -> None:
    tool("bench", "one", "--protocol", "http", status=4)
    assert "the suite runs without gateways of http: `enmasse up --with http` starts them" in tool.stderr


def test_flavors_of_the_running_suite(tool: Tool) -> None:
    tool("flavor", "add", "more", "--template", "queue-inmemory", "MEMORY=64Mi")
    tool("flavor", "set", "more", "MEMORY=128Mi", "BROKERS=2")
    assert json.loads(tool("flavor", "show", "more", "--json")) == {
        "name": "more", "type": "queue", "templateName": "queue-inmemory",
        "templateParameters": {"MEMORY": "128Mi", "BROKERS": 2}, "addresses": [],
    }  # fmt: skip
    tool("flavor", "set", "more", "MEMROY=1", status=1)
    tool("flavor", "set", "mroe", "MEMORY=1Mi", status=1)
    assert "Did you mean 'more'?" in tool.stderr
    tool("flavor", "add", "more", "--template", "queue-inmemory", status=1)
    tool("flavor", "remove", QUEUE, status=1)
    assert "3 addresses use" in tool.stderr
    assert QUEUE in tool("flavor", "list")
    tool("flavor", "set", "more", "MEMORY=", "BROKERS=")
    assert "templateParameters" not in json.loads((tool.up.config / "flavors.json").read_text())["more"]
    tool("flavor", "remove", "more")
    tool("status", "--wait", "60")


def test_the_configuration_of_the_running_suite_is_checked(tool: Tool, tmp_path: Path) -> None:
    assert json.loads(tool("config", "check", "--json")) == {
        "valid": {"addresses": 5, "flavors": 6, "brokers": 0, "users": 0, "issuers": 0}, "errors": [],
    }  # fmt: skip
    for name in ("addresses.json", "flavors.json"):
        (tmp_path / name).write_text((tool.up.config / name).read_text())
    (tmp_path / "addresses.json").write_text('{"a": {"type": "queue", "flavour": "x"}, "b": {"type": "anycast"}}')
    tool("config", "check", str(tmp_path), status=1)
    assert "addresses.json:1: a.flavour: unknown key" in tool.stderr
    (tmp_path / "flavors.json").write_text("{")
    tool("config", "check", str(tmp_path), status=1)
    tool("config", "check", str(tmp_path / "none"), status=1)


def test_logs_of_components_in_the_order_of_time(tool: Tool) -> None:
    shown = tool("logs", "--lines", "1000").splitlines()
    assert len({line.split()[1] for line in shown} & {"enmasse", "configserv", "storage_controller", "subserv"}) > 1
    assert [line[:12] for line in shown] == sorted(line[:12] for line in shown)
    assert all(" configserv " in line for line in tool("logs", "configserv").splitlines())
    assert len(tool("logs", "enmasse", "--lines", "2", "--json").splitlines()) == 2
    assert all(json.loads(line)["event"] for line in tool("logs", "--data", str(tool.up.data), "--json").splitlines())
    tool("logs", "rooter", status=1)
    assert "Did you mean 'router-0'?" in tool.stderr


def test_logs_follow(tool: Tool) -> None:
    command = [ENMASSE, "logs", "-f", "audit", "--lines", "0", *tool.here]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines: list[str] = []
        assert process.stdout is not None
        reader = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")))  # type: ignore[union-attr]  # a pipe
        reader.start()

        def told() -> bool:
            tool.up.http("/api/force", {"addresses": ["scratch"]})
            return bool(lines)

        wait_for(told, "a line of the audit log")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 130
        reader.join(DEADLINE)


def test_status_begins_with_a_sum_and_fits_the_terminal(tool: Tool) -> None:
    lines = on_a_terminal("status", *tool.here, env={"NO_COLOR": "1"}, columns=60).splitlines()
    assert re.match(r"ready: (\d+) of \1 components, 5 of 5 addresses, ", lines[0])
    assert max(map(len, lines)) <= 60
    assert "small-persisted-queue" in tool("status")  # whole to a program


def test_status_is_shown_again_when_it_changes(tool: Tool) -> None:
    with subprocess.Popen([ENMASSE, "status", "--watch", "--json", *tool.here], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        tool("send", "two", "x")
        while json.loads(process.stdout.readline()) == first:
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 130
    tool("status", "--watch", "--wait", "1", status=2)


def test_a_terminal_gets_a_hint_before_input_is_read(tool: Tool) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([ENMASSE, "send", "one", *tool.here], stdin=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        assert process.stderr is not None
        assert b"Type a message a line. Ctrl-D" in process.stderr.readline()
        os.write(ours, b"typed\n\x04")
        assert process.wait(DEADLINE) == 0
    os.close(ours)
    assert [row["body"] for row in tool.rows("one")] == ["typed"]


def test_versions(tool: Tool) -> None:
    found = json.loads(tool("version", "--json"))
    assert found["version"] == found["suite"]
    assert f"the running suite is {found['suite']}" in tool("version")


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_valid_and_shown(name: str) -> None:
    shown = enmasse("help", name).stdout
    assert "Examples:" in shown and "Usage: enmasse" in shown
    for line, _ in EXAMPLES[name]:
        for part in line.split(" | "):
            words = shlex.split(part)
            if words[0] != "enmasse":
                continue
            assert part in shown.replace("\n", "")
            found: Any = group
            context = click.Context(group, info_name="enmasse")
            rest = words[1:]
            while isinstance(found, click.Group):
                _, found, rest = found.resolve_command(context, rest)
            found.make_parser(context).parse_args(rest)


def test_examples_of_a_command_of_a_group() -> None:
    assert "address add orders" in enmasse("help", "address", "add").stdout
    assert "Did you mean 'address'?" in enmasse("help", "adres").stderr
    assert "Did you mean 'send'?" in enmasse("sned").stderr


def test_down_ends_the_suite_and_says_when_there_is_none(empty_config: Path, tmp_path: Path) -> None:
    with Up(empty_config, tmp_path / "data", fake=True) as up:
        up.feed()
        up.until_ready()
        here = ("--port-offset", str(up.offset))
        assert enmasse("down", *here).stdout == "stopped\n"
        assert up.process.wait(DEADLINE) == 0
        again = enmasse("down", *here)
        assert again.returncode == 4 and "[suite.http.unreachable]" in again.stderr
