"""`enmasse token add|list|remove`: API tokens of users, by the API of the console."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from enmasse.cli.common import done, end, port_offset, report
from enmasse.cli.completion import users
from enmasse.cli.output.lists import Column, WantedRows, list_options, since


@click.group(name="token", short_help="Add, list and remove API tokens of users.")
def command() -> None:
    """Add, list and remove API tokens: long-lived secrets by which programs use the REST API as a user.

    A suite must be running, with this user in users.json. A request states the token as `Authorization: Bearer TOKEN`;
    a context has it in its --password-file.

    Exit status 0: done. 1: refused, with the reason on stderr. 4: no suite is running, or its console does not answer.
    """


def _of_user(function: Any) -> Any:
    return click.option("--user", "of_user", metavar="USER", shell_complete=users,
                        help="The user; without it that of the context.")(function)  # fmt: skip


@command.command("add")
@click.argument("name")
@_of_user
@click.option("--days", type=click.IntRange(1, 3650), metavar="N", help="Let it expire after N days; without it never.")
@click.option("--read-only", is_flag=True, help="Refuse requests with it that change anything.")
@click.option("--output", "output", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the token to a new FILE for you alone, instead of stdout.")  # fmt: skip
@port_offset
def add(name: str, of_user: str | None, days: int | None, read_only: bool, output: Path | None, offset: int) -> None:
    """Make a token, and print it: this once.

    It may do what its user may, over REST alone: not over AMQP, MQTT, HTTP of messages or STOMP.
    """
    from enmasse.cli.contexts.console import ask
    from enmasse.cli.output import secret_file

    body = {"name": name, "user": _named(of_user), "days": days, "readOnly": read_only}
    if output is not None:
        secret_file.reserve(output)
    found = ask(offset, "POST", "tokens", {key: value for key, value in body.items() if value is not None})
    until = "until it is removed" if found["expires"] is None else f"until {found['expires']}"
    report(f"added token {name} of {found['user']}, which counts {until}")
    if output is None:
        done(found["secret"], "added", **found)
    else:
        secret_file.write(output, found["secret"])
        facts = {key: value for key, value in found.items() if key != "secret"}
        done("", "added", output=str(output), **facts)
        report(f"it is in {output}")


TOKENS = (
    Column("user", "user", matched=True), Column("token", "name", matched=True), Column("age", "created", since),
    Column("used", "used", lambda used: "" if used is None else f"{since(used)} ago"), Column("expires", "expires"),
    Column("read-only", "readOnly", lambda read_only: "yes" if read_only else ""),
)  # fmt: skip


@command.command("list")
@_of_user
@list_options(TOKENS)
@port_offset
def list_(of_user: str | None, wanted: WantedRows, offset: int) -> None:
    """List tokens: your own, or those of all users if you may view everything."""
    from urllib.parse import quote

    from enmasse.cli.contexts.console import items

    found = items(offset, "tokens" if of_user is None else f"tokens?user={quote(of_user, safe='')}")
    wanted.show("items", found, TOKENS, "there are no tokens")


@command.command("remove")
@click.argument("name")
@_of_user
@port_offset
def remove(name: str, of_user: str | None, offset: int) -> None:
    """Remove a token: it is refused from now on."""
    from enmasse.cli.contexts.console import ask, path

    user = _named(of_user) or str(ask(offset, "GET", "me")["user"])
    ask(offset, "DELETE", path("tokens", f"{user}/{name}"))
    done(f"removed token {name} of {user}", "removed", name=name, user=user)


def _named(user: str | None) -> str | None:
    """Return the user that the option names; None: that of the context. Ends the command on a suite's own machine
    without one: the operator is no user."""
    from enmasse.cli.contexts.contexts import in_force

    if user is None and in_force() is None:
        end("user.name.missing", "name the user: --user USER. On this machine commands run as the operator.")
    return user
