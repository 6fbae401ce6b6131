"""--json of all commands: each has it, and what does something prints one object that says what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from enmasse.cli.registry import COMMANDS, FORMER, WITHOUT_JSON, group
from tests.cli.running import enmasse

FLAVOR = "small-persisted-queue"
DONE: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("init", "{new}"), {"done": "written", "files": ["addresses.json", "flavors.json", "README.md"]}),
    (("address", "add", "a", "--type", "queue", "--flavor", FLAVOR, "{config}"), {"done": "added", "name": "a"}),
    (("address", "set", "a", "maxSize=1Mi", "{config}"), {"done": "changed", "name": "a"}),
    (("address", "remove", "a", "{config}"), {"done": "removed", "name": "a", "forced": False}),
    (("flavor", "add", "f", "--template", "queue-persisted", "{config}"), {"done": "added", "name": "f"}),
    (("flavor", "set", "f", "BROKERS=2", "{config}"), {"done": "changed", "name": "f"}),
    (("flavor", "remove", "f", "{config}"), {"done": "removed", "name": "f"}),
    (("user", "add", "u", "--generate", "{config}"), {"done": "added", "name": "u"}),
    (("user", "allow", "u", "send", "a/#", "{config}"),
     {"done": "allowed", "name": "u", "operations": ["send"], "addresses": ["a/#"]}),
    (("user", "deny", "u", "send", "a/b", "{config}"), {"done": "denied", "name": "u"}),
    (("user", "revoke", "u", "send", "a/b", "--denial", "{config}"), {"done": "revoked", "name": "u"}),
    (("user", "password", "u", "--generate", "{config}"), {"done": "changed", "name": "u"}),
    (("user", "remove", "u", "{config}"), {"done": "removed", "name": "u"}),
    (("context", "add", "c", "https://messaging.example"), {"done": "added", "name": "c"}),
    (("context", "use", "c"), {"done": "chosen", "name": "c"}),
    (("context", "remove", "c"), {"done": "removed", "name": "c"}),
)  # fmt: skip
"""Commands that need no suite, in turn, and what their objects have."""


def leaves(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command that is no group, with its words."""
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            yield from leaves(subcommand, (*words, name))
    else:
        yield words, command


def test_each_command_has_it() -> None:
    context = click.Context(group)
    found = set()
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        found |= {
            " ".join(words)
            for words, each in leaves(command, (name,))
            if not any("--json" in option.opts for option in each.params) and words not in FORMER
        }
    assert found == WITHOUT_JSON


def test_what_does_something_prints_one_object(tmp_path: Path) -> None:
    places = {"{new}": (str(tmp_path / "new"),), "{config}": ("--config", str(tmp_path / "new"))}
    env = {"XDG_CONFIG_HOME": str(tmp_path / "home"), "ENMASSE_PORT_OFFSET": ""}
    for words, expected in DONE:
        given = [word for each in words for word in places.get(each, (each,))]
        answer = enmasse(*given, "--json", env=env)
        assert answer.returncode == 0, (words, answer.stderr)
        found = json.loads(answer.stdout)
        assert found.items() >= expected.items(), words
        assert ("password" in found) == ("--generate" in words), words
