"""`enmasse help COMMAND`: its options and examples."""

from __future__ import annotations

import click

from enmasse.cli.commands import examples
from enmasse.text import did_you_mean


@click.command(name="help", short_help="Show options and examples of a command.")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show options and examples of a COMMAND such as `send`, or `address add`."""
    root = context.find_root()
    found, shown = root.command, root
    for word in words:
        known = found.list_commands(shown) if isinstance(found, click.Group) else []
        below = found.get_command(shown, word) if isinstance(found, click.Group) else None
        if below is None:
            path = " ".join([root.command_path, *words])
            raise click.UsageError(f"there is no command `{path}`.{did_you_mean(word, known)}")
        shown = click.Context(below, parent=shown, info_name=word)
        found = below
    found.epilog = None  # all examples instead
    click.echo(found.get_help(shown))
    if lines := examples.shown(examples.examples_of(words)):
        click.echo(f"\n{lines}")
