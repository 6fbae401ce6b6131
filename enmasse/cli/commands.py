"""The subcommands, each in a module of its own that is imported when it is called."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "init": "Write a starting point for a configuration.",
    "up": "Run everything in the foreground.",
    "status": "Show whether the running suite is ready.",
    "scale": "Say how many processes a service shall have.",
    "address": "List, show, add and remove addresses.",
    "send": "Send messages to an address.",
    "receive": "Receive messages from an address.",
    "bench": "Measure rate and latency of an address.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"enmasse.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):  # without importing them all
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="enmasse")
def group() -> None:
    """Messaging as a service: say which addresses you want, and exchange messages over them."""
