"""`enmasse user add|list|show|remove|password|limit`: users and groups in users.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from shlex import quote
from typing import Any

import click

from enmasse.cli.commands.configuration import user_permissions
from enmasse.cli.commands.configuration.user_permissions import (
    object_of,
    opened,
    options,
    permission_text,
    warn_of_no_manager,
)
from enmasse.cli.common import done, end, report, say
from enmasse.cli.completion import users
from enmasse.cli.configuration import entries
from enmasse.cli.configuration.configured import ContextEntries, FileEntries
from enmasse.cli.configuration.kinds import USERS
from enmasse.cli.output import secret_file
from enmasse.cli.output.lists import Column, WantedRows, list_options
from enmasse.cli.output.show import pairs
from enmasse.text import counted, named_as


@click.group(name="user", short_help="Add, remove and check users and their permissions.")
def command() -> None:
    """Add, list, show, remove and check users, groups and their permissions.

    Works on users.json in --config. Without it: on the users of the context in force, otherwise in the folder of the
    running suite (at --port-offset), else in this directory, else in the default folder of `enmasse up`. The file is
    made if it is missing, readable for its owner only. It holds hashes of passwords. A name that begins with @ is a
    group.
    """


user_permissions.add_to(command)


def _password_options(function: Any) -> Any:
    function = click.option("--scram-sha-1", "sha1", is_flag=True,
                            help="Store a verifier for SCRAM-SHA-1 too, for old clients.")(function)  # fmt: skip
    function = click.option("--output", "output", type=click.Path(path_type=Path), metavar="FILE",
                            help="Make a random password, written to a new FILE for you alone.")(function)  # fmt: skip
    function = click.option("--generate", is_flag=True,
                            help="Make a random password and print it, once, on stdout.")(function)  # fmt: skip
    return click.option("--password-file", "new_password_file", metavar="FILE",
                        help="Read the password from the first line of FILE; - is stdin.")(function)  # fmt: skip


@command.command("add")
@click.argument("name")
@_password_options
@click.option("--no-password", is_flag=True, help="Add a user who proves the identity by other means.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Group of the user. May be repeated.")
@options
def add(
    name: str,
    new_password_file: str | None,
    generate: bool,
    output: Path | None,
    sha1: bool,
    no_password: bool,
    groups: tuple[str, ...],
    config: Path | None,
    offset: int,
) -> None:
    """Add a user, with a password that is asked for twice, or a group (@NAME).

    `anonymous` stands for all clients without credentials. Clients of AMQP without SASL (rhea) state that user name.
    """
    from enmasse.model.users import ANONYMOUS, GROUP

    without = no_password or name.startswith(GROUP) or name == ANONYMOUS
    if without and (new_password_file is not None or generate or output is not None):
        what = "a group has no password" if name.startswith(GROUP) else "these clients have no password"
        raise click.UsageError(f"{name}: {what}; leave out --generate, --output and --password-file.")
    entry: dict[str, Any] = {"groups": list(groups)} if groups else {}
    shown = None
    there = opened(config, offset)
    is_first = isinstance(there, FileEntries) and there.is_missing
    is_gone = isinstance(there, FileEntries) and is_first and there.is_gone
    is_alone = isinstance(there, FileEntries) and is_first and not there.has_issuers
    if not is_first and there.has(name):  # before a password is asked for
        USERS.in_use(there.where, name)
    if is_alone and name.startswith(GROUP):
        text = "with a group alone no client could log in. Add a user first: `enmasse user add NAME`"
        end("user.group.alone", text)
    if not without:
        fields, shown = _new_password(there, new_password_file, generate, output, sha1=sha1)
        entry |= fields
    where = there.add(name, entry)
    _added(name, where, _kept(name, shown, output), groups)
    if is_gone:
        report("It is the only entry: the users of the file that was gone are those of the suite no longer.")
    elif is_first and name != ANONYMOUS:
        report("It is the first entry: clients without a user are refused from now on.")
        if not without:
            given = output or Path(new_password_file or "-")
            file = "FILE" if str(given) == "-" else quote(str(given))
            login = f"export ENMASSE_USER={quote(name)} ENMASSE_PASSWORD_FILE={file}"
            report(f"Your own `enmasse send` and the like are such clients. They log in after: {login}")
        if isinstance(there, FileEntries) and there.in_use:
            _report_sessions_without_user(offset)


def _report_sessions_without_user(offset: int) -> None:
    """Report the MQTT sessions of clients that had no user: no client can resume them."""
    from enmasse.cli.commands.live.subscribers import number_without_user

    if number := number_without_user(offset):
        report(
            f"{counted(number, 'MQTT session')} of clients without a user stay, and collect messages. `enmasse "
            "subscription list` shows them, with no user; `enmasse subscription remove ID --force` removes one."
        )


def _added(name: str, where: str, shown: str | None, groups: tuple[str, ...]) -> None:
    """Report a new user. `shown`: the password, if it was generated."""
    from enmasse.model.users import GROUP

    _done(f"added {name} to {where}", shown, "added", name, where)
    if "/" in name and not name.startswith(GROUP):
        report("warning: with / in its name the user cannot reach topics of ${user} over MQTT, only over AMQP.")
    if "@" in name and not name.startswith(GROUP):
        user, _, space = name.rpartition("@")
        report(f"warning: with @ in its name: clients that state it mean {user} of the space {space}, if it exists.")
    if not groups:
        report(
            f"{name} may do nothing yet: `enmasse user allow {quote(name)} send,recv ADDRESS` adds a permission; with "
            "view too the console shows the address."
        )


@command.command("password")
@click.argument("name", shell_complete=users)
@_password_options
@options
def password(
    name: str,
    new_password_file: str | None,
    generate: bool,
    output: Path | None,
    sha1: bool,
    config: Path | None,
    offset: int,
) -> None:
    """Set the password of a user, which is asked for twice. The old one is invalid at once."""
    there = opened(config, offset)
    if not there.has(name):
        USERS.unknown(there.where, name, ())
    fields, shown = _new_password(there, new_password_file, generate, output, sha1=sha1)
    where = there.change(name, lambda entry, where: {**object_of(name, entry, where), **fields})
    line = f"set the password of {name} in {where}"
    _done(line, _kept(name, shown, output), "changed", name, where)


@command.command("limit")
@click.argument("name", shell_complete=users)
@click.argument("limits", metavar="KEY=VALUE...", nargs=-1, required=True)
@options
def limit(name: str, limits: tuple[str, ...], config: Path | None, offset: int) -> None:
    """Limit the connections of a user, or of each user of a group: connections (open at once), connects_per_second.
    KEY= removes a limit.

    The limits hold for new connections, at all routers and gateways together.
    """
    from enmasse.model.users import ConnectionLimits

    known = ConnectionLimits.__struct_fields__
    named = [
        f"{named_as(key, known)}{equals}{value}" for key, equals, value in (each.partition("=") for each in limits)
    ]

    def changed(entry: Any, where: str) -> dict[str, Any]:
        found = dict(object_of(name, entry, where))
        kept = entries.with_keys(object_of(f"{name}.limits", found.pop("limits", {}), where), named)
        return {**found, **({"limits": kept} if kept else {})}

    where = opened(config, offset).change(name, changed)
    done(f"changed the limits of {name} in {where}", "changed", name=name, place=where)


@command.command("remove")
@click.argument("name", shell_complete=users)
@options
def remove(name: str, config: Path | None, offset: int) -> None:
    """Remove a user or group."""
    from enmasse.model.users import ANONYMOUS

    there = opened(config, offset)
    # Asked for first: who removes oneself in a context sees nothing after it.
    before = there.all()
    where = there.remove(name, force=False)
    after = {other: entry for other, entry in before.items() if other != name}
    if after:
        warn_of_no_manager(before, after)
    else:
        report(
            "It was the last entry: all clients are refused now, but for users of issuers. To let in clients without a "
            f"user again: `enmasse user add {ANONYMOUS}`, then `enmasse user allow {ANONYMOUS} send,recv '#'`. "
            f"AMQP clients without SASL state the user name {ANONYMOUS!r}."
        )
    done(f"removed {name} from {where}", "removed", name=name, place=where)


USERS_LISTED = (
    Column("name", "name"), Column("password", "password"), Column("groups", "groups", ", ".join),
    Column("permissions", "permissions", len),
)  # fmt: skip


@command.command("list")
@list_options(USERS_LISTED)
@options
def list_(wanted: WantedRows, config: Path | None, offset: int) -> None:
    """List users and groups, without hashes."""
    there = opened(config, offset)
    wanted.show("users", _rows(there, offset), USERS_LISTED, _without_users(there))


def _without_users(there: FileEntries | ContextEntries) -> str:
    """Return which clients are let in where there is no entry, and how to change that."""
    adds = "`enmasse user add NAME` adds one"
    if isinstance(there, ContextEntries):
        return f"{there.where} has no users that you may see; {adds}"
    if there.has_issuers:
        return f"{there.where} has no users: clients log in with a token of an issuer; {adds}"
    if there.is_missing and there.is_gone:
        return (
            "users.json is gone: the users that it had are still those of the suite, which lets in no client without a "
            f"user. Put it back from a backup, or begin a new one: {adds}"
        )
    if there.is_missing:
        return f"there are no users, so clients are let in without one. {adds}; then others are refused"
    return f"{there.where} has no users, so all clients are refused; {adds}"


@command.command("show")
@click.argument("name", shell_complete=users)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@options
def show(name: str, as_json: bool, config: Path | None, offset: int) -> None:
    """Show a user or group with its permissions, without hashes."""
    from enmasse.text import printable

    there = opened(config, offset)
    rows = _rows(there, offset)
    row = next((each for each in rows if each["name"] == name), None)
    if row is None:
        USERS.unknown(there.where, name, [each["name"] for each in rows])
    if as_json:
        click.echo(json.dumps(row))
        return
    say(printable(name))
    say(f"  password: {'yes' if row['password'] else 'no'}")
    for key in ("scram", "groups"):
        if row[key]:
            say(f"  {key}: {printable(', '.join(row[key]))}")
    if row["limits"]:
        say(f"  limits: {printable(pairs(row['limits']))}")
    for number, permission in enumerate(row["permissions"]):
        say(f"  permissions.{number}: {printable(permission_text(permission))}")


def _rows(there: FileEntries | ContextEntries, offset: int) -> list[dict[str, Any]]:
    """Return the users as `_described` gives them."""
    if isinstance(there, ContextEntries):
        from enmasse.cli.contexts.console import items

        return [
            {**_described(row["name"], row["entry"]), "password": row["password"]} for row in items(offset, "users")
        ]
    return [_described(name, entry) for name, entry in there.all().items()]


def _described(name: str, entry: Any) -> dict[str, Any]:
    """Return an entry for people: without hashes, and without what has the wrong form."""
    entry = entry if isinstance(entry, dict) else {}

    def items(key: str, kind: type) -> list[Any]:
        found = entry.get(key)
        return [item for item in found if isinstance(item, kind)] if isinstance(found, list | dict) else []

    return {
        "name": name,
        "password": "password" in entry or bool(items("scram", str)),
        "scram": items("scram", str),
        "groups": items("groups", str),
        "permissions": items("permissions", dict),
        "limits": entry["limits"] if isinstance(entry.get("limits"), dict) else {},
    }


def _new_password(
    there: FileEntries | ContextEntries, file: str | None, generate: bool, output: Path | None, *, sha1: bool
) -> tuple[dict[str, Any], str | None]:
    """Return the fields of an entry for a new password, and the password if it was generated. The console of a context
    hashes by itself."""
    by_console = isinstance(there, ContextEntries)
    if by_console and sha1:
        raise click.UsageError("--scram-sha-1: a console makes no such verifiers; run the command beside users.json.")
    generate = generate or output is not None
    text = _chosen(file, generate)
    if output is not None:
        secret_file.reserve(output)
    shown = text if generate else None
    if by_console:
        return {"password": text}, shown
    import msgspec

    from enmasse.identity.processes.scram import USER_MECHANISMS
    from enmasse.identity.proofs.passwords import Unsuitable, hashed

    try:
        hashes = hashed(text, random=generate, mechanisms=[*(["SCRAM-SHA-1"] if sha1 else []), *USER_MECHANISMS])
    except Unsuitable as error:
        end("user.password.unsuitable", f"the password cannot be used: {error}; nothing was changed.")
    return msgspec.to_builtins({"password": hashes.password, "scram": hashes.scram}), shown


def _chosen(file: str | None, generate: bool) -> str:
    from enmasse.identity.proofs.passwords import generated

    if file is not None and generate:
        raise click.UsageError("--password-file excludes --generate and --output.")
    return generated() if generate else _asked() if file is None else _first_line(file)


def _kept(name: str, password: str | None, output: Path | None) -> str | None:
    """Write a generated password to `output`; return it if it is to be printed, None otherwise."""
    if output is None or password is None:
        return password
    secret_file.write(output, password)
    report(f"the password of {name} is in {output}")
    return None


def _asked() -> str:
    if not sys.stdin.isatty():
        end("user.password.missing", "no password: give --password-file FILE (- for stdin) or --generate")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def _first_line(file: str) -> str:
    from enmasse.cli.contexts.user_password import first_line

    try:
        return first_line(file)
    except ValueError as error:
        end("user.password.not-readable", f"{error}; nothing was changed.")


def _done(line: str, generated: str | None, verb: str, name: str, where: str) -> None:
    """Report the change: with a generated password that alone goes to stdout."""
    if generated is None:
        done(line, verb, name=name, place=where)
    else:
        report(line)
        done(generated, verb, name=name, place=where, password=generated)
