"""Names, topics and bodies of hostile clients do not control the terminal of who runs a command."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import paho.mqtt.client as mqtt
import pytest
from proton import Message
from proton.reactor import Container
from proton.utils import BlockingConnection

import enmasse.cli
from enmasse.cli.common import put
from enmasse.testing import Suite
from tests.cli.running import on_a_terminal
from tests.kit.kept import kept
from tests.kit.waiting import DEADLINE, wait_for

HOSTILE: Final = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\rhidden\x7f"
"""A window's title, an erased screen, a colour by C1, a reversed name, an overwritten line."""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TOPIC: Final = "news/\x85level"
"""A control character that a topic may have: it has two bytes in UTF-8."""


@pytest.fixture(scope="module")
def suite(suite_with_mqtt: Suite) -> Suite:
    return suite_with_mqtt


@contextmanager
def amqp(suite: Suite) -> Iterator[None]:
    container = Container()
    container.container_id = HOSTILE
    connection = BlockingConnection(suite.url, timeout=DEADLINE, container=container)
    connection.create_receiver("orders", name=HOSTILE)
    sender = connection.create_sender("orders/late", name=HOSTILE)
    for _ in range(2):
        sender.send(Message(HOSTILE, subject=HOSTILE, properties={HOSTILE: HOSTILE}))
    with kept(connection):
        yield
    connection.close()


@contextmanager
def device(suite: Suite) -> Iterator[None]:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "c" + HOSTILE, protocol=mqtt.MQTTv5)
    granted: list[object] = []
    client.on_subscribe = lambda *_: granted.append(0)
    client.connect("127.0.0.1", suite.mqtt_port, keepalive=0)
    client.loop_start()
    try:
        client.subscribe(TOPIC, 1)
        wait_for(lambda: granted)
        client.publish(TOPIC, HOSTILE, 1, retain=True).wait_for_publish(DEADLINE)
        yield
        client.publish(TOPIC, b"", 1, retain=True).wait_for_publish(DEADLINE)
    finally:
        client.disconnect()
        client.loop_stop()


def shown(suite: Suite, *words: str) -> str:
    """What a command shows on a terminal, which is checked."""
    text = on_a_terminal(*words, "--port-offset", suite.offset, env={}, columns=400)
    found = CONTROLS.search(COLOUR.sub("", text))
    assert found is None, (words, found, text)
    return text


def test_no_command_passes_on_what_controls_a_terminal(suite: Suite) -> None:
    with amqp(suite), device(suite):
        wait_for(lambda: r"\x1b]0;title" in shown(suite, "connection", "list"))

        def ids(what: str, name: str, whose: str) -> list[str]:
            items = json.loads(suite.command(what, "list", "--json", "--port-offset", str(suite.offset)).stdout)
            rows = items.get("items") or items["subscriptions"]
            return [each["id"] for each in rows if each[name] == whose]

        (connection,) = wait_for(lambda: ids("connection", "container", HOSTILE))  # listed is the device, too
        assert r"\x1b]0;title" in shown(suite, "connection", "show", connection)
        (subscription,) = wait_for(lambda: ids("subscription", "client", "c" + HOSTILE))
        assert r"\x85level" in shown(suite, "subscription", "list")
        assert r"client: c\x1b]0;title" in shown(suite, "subscription", "show", subscription)
        assert r"\x85level" in shown(suite, "retained", "list")
        assert r"\x1b]0;title" in shown(suite, "top", "--once")
        assert r"\u001b]0;title" in shown(suite, "subscribe", TOPIC, "-v", "-m", "1")
        assert r"\u001b]0;title" in shown(suite, "subscribe", TOPIC, "-m", "1", "--json")
        for form in [], ["--json"]:
            assert r"\u001b]0;title" in shown(suite, "receive", "orders/late", "-m", "1", *form)
        shown(suite, "events")
        shown(suite, "logs")
        shown(suite, "status")


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_files_and_programs_get_bodies_unchanged(form: list[str], suite: Suite) -> None:
    with amqp(suite):
        for _ in range(2):
            done = suite.command("receive", "orders/late", "-m", "1", *form, "--port-offset", str(suite.offset))
            if form:
                assert json.loads(done.stdout)["body"] == HOSTILE
            else:  # `command` reads text, in which a carriage return ends a line
                assert done.stdout == HOSTILE.replace("\r", "\n") + "\n"


def test_a_terminal_gets_ends_of_lines_and_tabs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    put("a\tb\r\nc\rd é \u2028")
    put(json.dumps({"\x9b": "\x85"}, ensure_ascii=False))
    first, second = capsys.readouterr().out.removesuffix("\n").rsplit("\n", 1)
    assert first == "a\tb\r\nc\\u000dd é \u2028"
    assert json.loads(second) == {"\x9b": "\x85"}


def test_commands_write_texts_by_functions_that_tame_them() -> None:
    """`click.echo` is for constants and for JSON; and where tables and the screen are drawn."""
    folder = Path(enmasse.cli.__path__[0])
    drawing = {"common.py", "output/tables.py", "commands/live/top.py", "commands/help.py"}
    found = []
    for path in folder.rglob("*.py"):
        if path.relative_to(folder).as_posix() in drawing:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "print", "click.secho"):
                if all(
                    isinstance(each, ast.Constant) or ast.unparse(each).startswith("json.dumps(") for each in node.args
                ):
                    continue
                found.append(f"{path}:{node.lineno}")
    assert not found
