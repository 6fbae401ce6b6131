"""`enmasse version`: of this command, and of the running suite."""

from __future__ import annotations

import json
import platform

import click

from enmasse.cli.common import port_offset, say


@click.command(name="version", short_help="Show the version of the command and of the running suite.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@port_offset
def command(as_json: bool, offset: int) -> None:
    """Show the version of this command, of Python, and of the running suite if there is one."""
    from enmasse import __version__
    from enmasse.cli.contexts.console import ask
    from enmasse.cli.contexts.contexts import in_force
    from enmasse.cli.contexts.http import NotRunning, suite_info

    try:
        if in_force() is not None:
            suite = str(ask(offset, "GET", "overview")["version"])
        else:
            suite = str(suite_info(offset)["version"])
    except (NotRunning, KeyError):
        suite = None
    found = {"version": __version__, "python": platform.python_version(), "suite": suite}
    if as_json:
        click.echo(json.dumps(found))
        return
    say(f"enmasse {__version__} (Python {found['python']})")
    say("no suite is running here" if suite is None else f"the running suite is {suite}")
