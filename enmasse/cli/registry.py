"""The subcommands, each in a module that is imported only if the command is called."""

from __future__ import annotations

import contextlib
import copy
import errno
import importlib
import os
import sys
from collections.abc import Callable

import click

from enmasse.cli.commands import examples
from enmasse.cli.common import AS_JSON, FAILED, INTERRUPTED, NOBODY_READS, OK, report, shows_colors
from enmasse.cli.contexts import contexts
from enmasse.cli.same_suite import WITH_SPACE, WITHOUT
from enmasse.errors import marked
from enmasse.text import did_you_mean

COMMANDS = {
    "init": ("suite", "Write a starting point for a configuration."),
    "up": ("suite", "Run everything in the foreground."),
    "down": ("suite", "Stop the running suite."),
    "reload": ("suite", "Have the running suite read its options file again."),
    "status": ("suite", "Show whether the running suite is ready."),
    "logs": ("suite", "Show the logs of the suite."),
    "scale": ("suite", "Set the number of processes of a service."),
    "restart": ("suite", "Restart a component of the suite."),
    "address": ("configuration", "List, show, add, change and remove addresses."),
    "flavor": ("configuration", "List, show, add, change and remove flavors."),
    "space": ("configuration", "List, show, add, change and remove address spaces."),
    "plan": ("configuration", "List and show plans of address spaces."),
    "config": ("configuration", "Check the files of a configuration."),
    "user": ("configuration", "Add, remove and check users and their permissions."),
    "token": ("configuration", "Add, list and remove API tokens of users."),
    "connection": ("live", "List, show and close connections of clients."),
    "subscription": ("live", "List, show and remove subscriptions and MQTT sessions."),
    "retained": ("live", "List and remove retained messages."),
    "mqtt": ("live", "List and disconnect MQTT clients, list wills."),
    "send": ("messaging", "Send messages to an address."),
    "receive": ("messaging", "Receive messages from an address."),
    "request": ("messaging", "Send a request to an address and print the reply."),
    "reply": ("messaging", "Answer the requests that arrive at an address."),
    "publish": ("messaging", "Publish messages to an MQTT topic."),
    "subscribe": ("messaging", "Print the messages of MQTT topics."),
    "spark": ("", "Run Spark jobs: programs, and files of pipelines."),
    "backup": ("suite", "Copy configuration and stored data, while the suite runs."),
    "restore": ("suite", "Make configuration and data folder from a backup."),
    "deploy": ("suite", "Install or upgrade EnMasse in a Kubernetes cluster."),
    "bench": ("messaging", "Measure rate and latency of an address."),
    "top": ("live", "Show rates of addresses and connections, live."),
    "events": ("live", "Show why clients were refused or closed."),
    "context": ("configuration", "Add, choose, list and remove contexts: suites elsewhere."),
    "version": ("suite", "Show the version of the command and of the running suite."),
    "help": ("", "Show options and examples of a command."),
}
"""Subcommands in the order of `enmasse --help`: the folder of enmasse/cli/commands with their module, their line
there."""

SECTIONS = {
    "suite": "The suite",
    "configuration": "Configuration",
    "messaging": "Messages",
    "live": "What happens now",
    "": "Further commands",
}
"""Folder of enmasse/cli/commands → title of its commands in `enmasse --help`."""
FORMER = {("subscription", "delete"): "remove", ("retained", "clear"): "remove", ("context", "set"): "use"}
"""Former words of subcommands, and those that people try, which work and are shown nowhere → their word."""

OF_OTHERS = {"delete": "remove", "edit": "set", "create": "add"}
"""Words of the console, of rabbitmqctl and EMQX for subcommands → theirs here. They work, and are shown nowhere."""

WITHOUT_JSON = frozenset({"up", "help", "spark run", "spark submit"})
"""Commands without --json: what they print is for people, or what follows is for a program of the user."""
JSON_HELP = 'One JSON object on stdout: {"done": VERB, ...}.'
PREFIX = "ENMASSE_"
WITHOUT_VARIABLE = frozenset({"give_back", "new_password_file", "of_address", "of_user"})
"""Options without an environment variable: user, password and address in the environment are those of the user who runs
the command, and of messages; ENMASSE_RELEASE is the name of `deploy`, not the flag of `receive`."""


def module_of(command: str) -> str:
    """Return the name of the module of a subcommand."""
    folder, _ = COMMANDS[command]
    return ".".join(("enmasse.cli.commands", *((folder,) if folder else ()), command))


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(module_of(cmd_name)).command
        assert isinstance(command, click.Command)
        if cmd_name not in WITHOUT:
            _take_option(command, context_option)
        _take_option(command, space_option if cmd_name in WITH_SPACE else no_space_option)
        _take_json(command, cmd_name)
        _show_examples(command, (cmd_name,))
        if isinstance(command, click.Group):
            _keep_former(command, cmd_name)
        if cmd_name != "context":  # what it writes is chosen each time
            _name_variables(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        room = max(map(len, COMMANDS))
        for folder, title in SECTIONS.items():
            with formatter.section(title):  # without importing them all
                found = [(name.ljust(room), line) for name, (of, line) in COMMANDS.items() if of == folder]
                formatter.write_dl(found)


def _show_examples(command: click.Command, words: tuple[str, ...]) -> None:
    """Let the help of a command, and of those in its group, end with examples."""
    if lines := examples.shown(examples.examples_of(words)[: examples.IN_HELP]):
        command.epilog = f"\b\n{lines}"
    for name, subcommand in getattr(command, "commands", {}).items():
        _show_examples(subcommand, (*words, name))


def _keep_former(group: click.Group, name: str) -> None:
    """Let the former words of a group's subcommands work, hidden."""
    words = OF_OTHERS | {former: now for (of, former), now in FORMER.items() if of == name}
    for former, now in words.items():
        if former not in group.commands and now in group.commands:
            hidden = copy.copy(group.commands[now])
            hidden.hidden = True
            group.add_command(hidden, former)


def _dashed(word: str) -> str:
    """Return an option or command with - for _, which are the same there."""
    return word.replace("_", "-")


def _take_option(command: click.Command, make: Callable[[], click.Option]) -> None:
    """Give each subcommand an option that many have."""
    option = make()
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _take_option(subcommand, make)
    elif all(not set(each.opts) & set(option.opts) for each in command.params):
        command.params.append(option)


def _take_json(command: click.Command, words: str) -> None:
    """Give each subcommand that does something the option --json; what prints something has one of its own."""
    for name, subcommand in getattr(command, "commands", {}).items():
        _take_json(subcommand, f"{words} {name}")
    if not isinstance(command, click.Group) and words not in WITHOUT_JSON:
        _take_option(command, json_option)


def space_option() -> click.Option:
    """Return the option --space."""
    text = "Work on this address space of the running suite, by the names there."
    return click.Option(["--space"], metavar="NAME", expose_value=False, callback=contexts.space_it, help=text)


def no_space_option() -> click.Option:
    """Return an option --space that says why the command takes none."""
    return click.Option(["--space"], metavar="NAME", expose_value=False, callback=contexts.no_space, hidden=True)


def json_option() -> click.Option:
    """Return the option --json of commands that do something and print what they have done."""
    return click.Option(["--json"], is_flag=True, expose_value=False, callback=_want_json, help=JSON_HELP)


def _want_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.find_root().meta[AS_JSON] = value


def context_option() -> click.Option:
    """Return the option --context."""
    text = "Work on the suite of this context (`enmasse context list`), instead of the current one."
    return click.Option(["--context"], metavar="NAME", expose_value=False, callback=contexts.name_it, help=text)


def _name_variables(command: click.Command) -> None:
    """Give each option the environment variable ENMASSE_ and its (first long) name, the same one in all commands."""
    for option in command.params:
        if isinstance(option, click.Option) and option.name not in WITHOUT_VARIABLE:
            option.envvar = PREFIX + next(o for o in option.opts if o.startswith("--"))[2:].upper().replace("-", "_")
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _name_variables(subcommand)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _dashed})
@click.version_option(package_name="enmasse")
@click.pass_context
def group(context: click.Context) -> None:
    """Messaging as a service: configure which addresses there are, and exchange messages over them.

    Every option has an environment variable: ENMASSE_PORT_OFFSET for --port-offset, and so on.
    """
    if not shows_colors():
        context.color = False


group.params.append(context_option())
_show_examples(group, ())


def run() -> int:
    """Run the command of this process's arguments; its exit status."""
    if "_ENMASSE_COMPLETE" in os.environ:  # a shell asks for completions
        group.main()
    try:
        return _run()
    except OSError as error:
        if not _is_of_output(error):
            raise
        if error.errno == errno.EPIPE:
            return NOBODY_READS
        report(marked("command.output.failed", f"cannot write to standard output: {error.strerror}"))
        return FAILED
    finally:
        _drop_unwritten()


def _run() -> int:
    try:
        _refuse_not_utf8()
        with group.make_context("enmasse", sys.argv[1:]) as context:
            group.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else OK if end.code is None else FAILED
    except click.ClickException as error:
        _name_source(error)
        with contextlib.suppress(OSError):
            error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return OK


def _refuse_not_utf8() -> None:
    """Raise UsageError if an argument, or a variable for an option, is not UTF-8. Its value may be a password, and is
    not repeated."""
    texts = {f"argument {number}": text for number, text in enumerate(sys.argv[1:], 1)}
    texts |= {name: text for name, text in os.environ.items() if name.startswith(PREFIX)}
    for name, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError:  # a byte that is not UTF-8 is a surrogate
            remedy = "use --file or stdin for what is no text" if _takes_file() else "write it in UTF-8"
            raise click.UsageError(f"{name} is not UTF-8; {remedy}.") from None


def _takes_file() -> bool:
    """Return whether the command that is called has the option --file."""
    name = next((word for word in sys.argv[1:] if word in COMMANDS), "")
    command = group.get_command(click.Context(group), name)
    return command is not None and any("--file" in option.opts for option in command.params)


def _name_source(error: click.ClickException) -> None:
    """Let the message name the environment variable that a wrong value came from."""
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Option) and error.ctx is not None:
        from_environment = click.core.ParameterSource.ENVIRONMENT
        error.param.show_envvar = error.ctx.get_parameter_source(error.param.name or "") is from_environment


def _is_of_output(error: OSError) -> bool:
    """Return whether writing to standard output raised it; writing to stderr does not raise (`common.report`)."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_code is click.echo.__code__


def _drop_unwritten() -> None:
    """Drop output that could not be written: otherwise the interpreter tries again at exit and its failure becomes the
    exit status."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except (OSError, ValueError):
                with contextlib.suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_RDWR), stream.fileno())
