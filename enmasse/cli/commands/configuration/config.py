"""`enmasse config check [DIR]`: the files of a configuration, without applying them."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from enmasse.cli.common import FAILED, end_with, port_offset, say
from enmasse.cli.configuration.configfile import check_is_folder
from enmasse.cli.contexts.contexts import in_force
from enmasse.cli.contexts.folders import edited_folder

if TYPE_CHECKING:
    from enmasse.model.merged import Content


@click.group(name="config", short_help="Check the files of a configuration.")
def command() -> None:
    """Check the files of a configuration."""


@command.command("check")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@port_offset
def check(folder: Path | None, as_json: bool, offset: int) -> None:
    """Check all files in DIR as the suite reads them, without applying them. Without DIR: those that `enmasse address`
    works on.

    In a context: whether each entry in DIR could be set in its suite, which then has the others, too. Without DIR: what
    that suite has found wrong in its own files, which needs `view` on everything.

    Exit status 0: all entries would apply. 1: errors, each on a line of stderr with file, line, entry and field.
    """
    context = in_force()
    if folder is None and context is not None:
        _check_there(str(context), offset, as_json=as_json)
    import msgspec

    from enmasse.cli.configuration.space_folders import of_spaces, strange_in_spaces
    from enmasse.model.configuration import Applied, apply
    from enmasse.text import counted

    folder = edited_folder(folder, offset)
    check_is_folder(folder)
    if context is not None:
        from enmasse.cli.configuration.checking import check_there

        check_there(str(folder), _contents(folder), context, offset, json_=as_json)
    applied = apply(_contents(folder) | of_spaces(folder), Applied())
    problems = sorted({*applied.problems, *strange_in_spaces(folder)})
    state = applied.state
    found = {
        "addresses": len(state.addresses), "flavors": len(state.flavors), "brokers": len(state.brokers or ()),
        "users": len(state.users or ()), "issuers": len(state.issuers or ()),
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps({"valid": found, "errors": [msgspec.to_builtins(problem) for problem in problems]}))
    else:
        names = {"addresses": "address"}
        shown = [counted(number, names.get(key, key[:-1]), key) for key, number in found.items() if number]
        say(f"{folder}: {', '.join(shown) or 'nothing'} valid, {counted(len(problems), 'error')}")
        if problems:
            say("A suite that runs with these files keeps what applied before; of one that starts, the lines tell.")
        end_with([str(problem) for problem in problems])
    sys.exit(FAILED if problems else 0)


def _check_there(where: str, offset: int, *, as_json: bool) -> NoReturn:
    """Show what the suite of a context has found wrong in its files."""
    from enmasse.cli.contexts.console import ask
    from enmasse.model.jsonfile import Problem
    from enmasse.text import counted

    found = ask(offset, "GET", "config")
    errors = found["errors"]
    if as_json:
        click.echo(json.dumps(found))
        sys.exit(FAILED if errors else 0)
    files = ", ".join(sorted(found["files"])) or "no file yet"
    say(f"{where}: {files} in force, {counted(len(errors), 'error')}")
    end_with(
        [
            str(Problem(file=it["file"], entry=it["entry"], field=it["field"], line=it["line"], reason=it["reason"]))
            for it in errors
        ]
    )


def _contents(folder: Path) -> dict[str, Content]:
    from enmasse.model.configuration import FILES
    from enmasse.model.merged import content_by
    from enmasse.storage.files import read_file

    return {name: content_by(partial(read_file, folder / name)) for name in FILES}
