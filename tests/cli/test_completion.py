"""Shell completion, called as the shells call it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import ENMASSE, Up, address, enmasse, free_offset
from tests.kit.waiting import DEADLINE

FLAVORS = {
    "disk-queue": {"type": "queue", "templateName": "queue-persisted"},
    "disk-topic": {"type": "topic", "templateName": "topic-persisted"},
}


def complete(line: str, shell: str = "bash", **environment: str) -> list[str]:
    """What a shell is offered at the end of `line`, as lines of its protocol."""
    words = line.split(" ")
    current = words[-1] if shell == "fish" else str(len(words) - 1)
    variables = {"_ENMASSE_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": current}
    done = enmasse(env={**variables, **environment})
    assert done.stderr == "", done.stderr
    return [offer for offer in done.stdout.splitlines() if offer]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("completion")
    config = folder / "config"
    config.mkdir()
    (config / "addresses.json").write_text('{"in-the-file": {"type": "anycast"}}')
    (config / "flavors.json").write_text(json.dumps(FLAVORS))
    with Up(config, folder / "data", fake=True) as up:
        up.feed(address("orders"), address("orders.late"), address("news", flavor="disk-topic", type="topic"))
        up.until_ready()
        yield up


@pytest.mark.parametrize(
    "command", ["send", "receive", "publish", "subscribe", "bench", "address show", "address remove"]
)
def test_addresses_of_the_running_suite(command: str, up: Up) -> None:
    line = f"enmasse {command} --port-offset {up.offset} o"
    assert complete(line) == ["plain,orders", "plain,orders.late"]
    assert complete(f"enmasse {command} n", ENMASSE_PORT_OFFSET=str(up.offset)) == ["plain,news"]


def test_flavors_of_the_running_suite(up: Up) -> None:
    add = f"enmasse address add x --port-offset {up.offset}"
    assert complete(f"{add} --flavor ") == ["plain,disk-queue", "plain,disk-topic"]
    assert complete(f"{add} --type topic --flavor ") == ["plain,disk-topic"]


def test_users_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text('{"alice": {}, "@ops": {}}')
    assert complete(f"enmasse user show --config {tmp_path} ") == ["plain,alice", "plain,@ops"]


def test_other_shells_show_the_type_too(up: Up) -> None:
    line = f"enmasse send --port-offset {up.offset} n"
    assert complete(line, "zsh") == ["plain", "news", "topic"]
    assert complete(line, "fish") == ["plain,news\ttopic"]


def test_the_script_for_bash_works_in_bash(up: Up) -> None:
    script = (
        'eval "$(_ENMASSE_COMPLETE=bash_source enmasse)"\n'
        "COMP_WORDS=(enmasse receive ord) COMP_CWORD=2\n"
        "_enmasse_completion enmasse ord receive\n"
        'echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(ENMASSE).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "ENMASSE_PORT_OFFSET": str(up.offset)}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=DEADLINE)
    assert (done.stdout, done.stderr) == ("orders orders.late\n", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_there_is_a_script_for_other_shells(shell: str) -> None:
    done = enmasse(env={"_ENMASSE_COMPLETE": f"{shell}_source"})
    assert f"_ENMASSE_COMPLETE={shell}_complete" in done.stdout and done.stderr == ""


def test_without_a_suite_the_files_are_used(tmp_path: Path) -> None:
    assert enmasse("init", tmp_path).returncode == 0
    assert complete(f"enmasse address show --config {tmp_path} my") == ["plain,myqueue", "plain,mytopic"]
    offset = str(free_offset())
    home = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "ENMASSE_PORT_OFFSET": offset}
    assert complete("enmasse send ", **home) == []
    assert enmasse("init", tmp_path / "xdg" / f"enmasse-{offset}").returncode == 0
    assert complete("enmasse send my", **home) == ["plain,myqueue", "plain,mytopic"]
    assert "plain,vanilla-topic" in complete("enmasse address add x --flavor ", **home)
    assert complete("enmasse send -a localhost/x ", **home) == []


@pytest.mark.parametrize("content", ["[]", "{", '{"a": 1}', '{"\\ud800": {}}'])
def test_files_that_cannot_be_used_offer_nothing(content: str, tmp_path: Path) -> None:
    for name in ("addresses.json", "flavors.json"):
        (tmp_path / name).write_text(content)
    assert complete(f"enmasse address show --config {tmp_path} ") == []
    assert complete(f"enmasse address add x --config {tmp_path} --flavor ") == []


def test_what_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """Something else listens on the port and never writes."""
    offset = free_offset()
    with socket.create_server(("127.0.0.1", 8079 + offset)):
        assert complete("enmasse send ", ENMASSE_PORT_OFFSET=str(offset), XDG_CONFIG_HOME=str(tmp_path)) == []


def test_commands_options_and_levels() -> None:
    assert "plain,up" in complete("enmasse ")
    assert "plain,--port-offset" in complete("enmasse up --p")
    assert complete("enmasse up --log-level broker=d") == ["plain,broker=debug"]
    assert complete("enmasse up --log-level authserv=d") == ["plain,authserv=debug"]
    assert complete("enmasse address add x --type an") == ["plain,anycast"]
