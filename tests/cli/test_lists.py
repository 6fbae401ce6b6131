"""Lists of commands: patterns, order, limit, and the envelope of JSON."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from enmasse.cli.commands.configuration.address_messages import LOOKED_AT, MESSAGES
from enmasse.cli.commands.examples import EXAMPLES
from enmasse.cli.output.lists import Column, WantedRows, list_options
from enmasse.cli.registry import COMMANDS, FORMER, group
from tests.cli.test_json import leaves

COLUMNS = (Column("thing", "name"), Column("in/s", "rates.in"), Column("parts", "parts", len))
ROWS = [
    {"name": "b", "rates": {"in": 2}, "parts": [1]},
    {"name": "a", "rates": {"in": None}, "parts": []},
    {"name": "c", "rates": {"in": 10}, "parts": [1, 2]},
    {"name": "B", "rates": {"in": 0.5}, "parts": [1, 2, 3]},
]


@click.command()
@list_options(COLUMNS, former={"size": "-parts"})
def things(wanted: WantedRows) -> None:
    wanted.show("items", ROWS, COLUMNS, "there are none")


def run(*words: str) -> Result:
    return CliRunner().invoke(things, words)


@pytest.mark.parametrize(
    ("words", "names", "total"),
    [
        ((), "bacB", 4),
        (("--sort", "name"), "Babc", 4),
        (("--sort", "rates.in"), "Bbca", 4),
        (("--sort", "-in/s"), "cbBa", 4),  # the title; without a value: last in both directions
        (("--sort", "size"), "Bcba", 4),
        (("--match", "[ab]"), "", 0),  # * and ? only
        (("--match", "c", "--match", "B*", "--sort", "name"), "Bc", 2),
        (("--sort", "-rates.in", "--limit", "2"), "cb", 4),
        (("--match", "x"), "", 0),
    ],
)
def test_rows_are_chosen_and_counted(words: tuple[str, ...], names: str, total: int) -> None:
    done = run("--json", *words)
    found = json.loads(done.stdout)
    assert ("".join(row["name"] for row in found["items"]), found["total"]) == (names, total)


def test_what_is_left_off_is_said() -> None:
    done = run("--limit", "3")
    assert (done.stdout.count("\n"), done.stderr) == (4, "… and 1 more; --limit shows more of them\n")
    assert run("--limit", "4").stderr == ""
    assert run("--match", "x").stderr == "nothing matches\n"


def test_an_unknown_field_names_the_fields() -> None:
    done = run("--sort", "-nmae")
    assert done.exit_code == 2 and "unknown field '-nmae'; the fields are name, rates.in, parts." in done.stderr


def test_messages_that_were_not_looked_at_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"id": number, "messageId": None, "body": "x", "deaths": []} for number in range(LOOKED_AT)
    ]
    WantedRows(("y*",), as_json=True).show("items", rows, MESSAGES, unseen=None)
    told = capsys.readouterr()
    assert json.loads(told.out) == {"items": [], "total": None}
    assert told.err == f"only the first {LOOKED_AT} of more were looked at\n"


def test_each_list_can_be_chosen_from_ordered_and_limited_and_each_command_has_an_example() -> None:
    context = click.Context(group)
    known = {name: group.get_command(context, name) for name in COMMANDS}
    found = [each for name, command in known.items() if command is not None for each in leaves(command, (name,))]
    assert len(found) > len(COMMANDS)
    for words, each in found:
        options = {name for option in each.params for name in option.opts}
        assert words[-1] != "list" or {"--match", "--sort", "--limit"} <= options, words
        assert words in FORMER or " ".join(words) in EXAMPLES or words[0] in EXAMPLES, words
