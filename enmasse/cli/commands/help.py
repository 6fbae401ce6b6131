"""`enmasse help COMMAND`: its options and examples."""

from __future__ import annotations

import click

from enmasse.cli.commands.examples import EXAMPLES
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
    click.echo(found.get_help(shown))
    examples = _examples(words)
    if examples:
        width = min(60, max(len(line) for line, _ in examples))
        click.echo("\nExamples:")
        for line, remark in examples:
            click.echo(f"  {line:{width}}  # {remark}" if remark else f"  {line}")


def _examples(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the examples of a command; of one without its own, those of its group that use it."""
    of_group = EXAMPLES.get(words[0], []) if words else EXAMPLES[""]
    begin = " ".join(["enmasse", *words])
    return [each for each in of_group if not words or f"{each[0]} ".find(f"{begin} ") >= 0]
