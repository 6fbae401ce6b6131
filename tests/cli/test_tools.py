"""Commands for messages and addresses against one running suite."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from enmasse.aio.client import connect
from enmasse.amqp.message import Message, Sections
from enmasse.amqp.performatives import ACCEPTED
from tests.amqp.codec_values import same
from tests.amqp.messages import identical, messages
from tests.cli.running import Up, enmasse
from tests.kit.running import run

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
                delivery = await receiver.receive(60)
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


def test_a_delayed_message_comes_later(tool: Tool) -> None:
    tool("send", "one", "late", "--delay", "2")
    tool("send", "one", "now")
    assert tool("receive", "one", "--count", "2", "--timeout", "60") == "now\nlate\n"


def test_browsing_leaves_the_queue_as_it_is_and_ends(tool: Tool) -> None:
    assert tool("receive", "one", "--browse") == ""
    tool("send", "one", "--count", "250")
    assert [row["body"]["sequence"] for row in tool.rows("one")] == list(range(1, 251))
    assert len(tool("receive", "one", "--browse", "--count", "3").splitlines()) == 3
    tool("receive", "one", "--browse", "--count", "251", status=3)
    assert "250 of 251 messages there" in tool.stderr
    assert len(tool("receive", "one", "--count", "250").splitlines()) == 250


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
    tool("receive", *durable, "--unsubscribe", "--count", "1", status=1)
    assert "[subscription.name.unknown]" in tool.stderr
