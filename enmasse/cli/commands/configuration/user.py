"""`enmasse user add|list|show|remove|password|allow|deny|check`: users, groups and permissions in users.json."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn

import click

from enmasse.cli.common import FAILED, done, end, port_offset, report, say
from enmasse.cli.completion import addresses, users
from enmasse.cli.configuration.configured import ContextEntries, FileEntries, at_console, users_in
from enmasse.cli.configuration.kinds import USERS
from enmasse.cli.contexts.folders import edited_folder
from enmasse.cli.output import secret_file
from enmasse.cli.output.lists import Column, WantedRows, list_options
from enmasse.model.operations import OPERATIONS

_OTHER_PLACEHOLDER = re.compile(r"%[uc](?![A-Za-z0-9])|\$user\b")
"""Placeholder for the user's name or the client identifier at other servers, and for nothing here."""


@click.group(name="user", short_help="Add, remove and check users and their permissions.")
def command() -> None:
    """Add, list, show, remove and check users, groups and their permissions.

    Works on users.json in --config. Without it: on the users of the context in force, otherwise in the folder of the
    running suite (at --port-offset), else in this directory, else in the default folder of `enmasse up`. The file is
    made if it is missing, readable for its owner only. It holds hashes of passwords. A name that begins with @ is a
    group.
    """


def _options(function: Any) -> Any:
    function = click.option("--config", "config", type=click.Path(path_type=Path), metavar="DIR",
                            help="Folder of users.json.")(function)  # fmt: skip
    return port_offset(function)


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
@_options
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

    `anonymous` stands for all clients without credentials.
    """
    from enmasse.model.users import ANONYMOUS, GROUP

    without = no_password or name.startswith(GROUP) or name == ANONYMOUS
    if without and (new_password_file is not None or generate or output is not None):
        what = "a group has no password" if name.startswith(GROUP) else "these clients have no password"
        raise click.UsageError(f"{name}: {what}; leave out --generate, --output and --password-file.")
    entry: dict[str, Any] = {"groups": list(groups)} if groups else {}
    shown = None
    there = _opened(config, offset)
    is_first = isinstance(there, FileEntries) and there.is_missing
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
    if is_first and name != ANONYMOUS:
        report("It is the first entry: clients without a user are refused from now on.")
        if not without:
            given = output or Path(new_password_file or "-")
            file = "FILE" if str(given) == "-" else quote(str(given))
            login = f"export ENMASSE_USER={quote(name)} ENMASSE_PASSWORD_FILE={file}"
            report(f"Your own `enmasse send` and the like are such clients. They log in after: {login}")


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
        report(f"{name} may do nothing yet: `enmasse user allow {name} send,recv ADDRESS` adds a permission.")


@command.command("password")
@click.argument("name", shell_complete=users)
@_password_options
@_options
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
    there = _opened(config, offset)
    if not there.has(name):
        USERS.unknown(there.where, name, ())
    fields, shown = _new_password(there, new_password_file, generate, output, sha1=sha1)
    where = there.change(name, lambda entry, where: {**_object(name, entry, where), **fields})
    line = f"set the password of {name} in {where}"
    _done(line, _kept(name, shown, output), "changed", name, where)


@command.command("remove")
@click.argument("name", shell_complete=users)
@_options
def remove(name: str, config: Path | None, offset: int) -> None:
    """Remove a user or group."""
    from enmasse.model.users import ANONYMOUS

    there = _opened(config, offset)
    where = there.remove(name, force=False)
    if not there.all():
        report(
            "It was the last entry: all clients are refused now, but for users of issuers. To let in clients without a "
            f"user again: `enmasse user add {ANONYMOUS}`, then `enmasse user allow {ANONYMOUS} send,recv '#'`."
        )
    done(f"removed {name} from {where}", "removed", name=name, place=where)


USERS_LISTED = (
    Column("name", "name"), Column("password", "password"), Column("groups", "groups", ", ".join),
    Column("permissions", "permissions", len),
)  # fmt: skip


@command.command("list")
@list_options(USERS_LISTED)
@_options
def list_(wanted: WantedRows, config: Path | None, offset: int) -> None:
    """List users and groups, without hashes."""
    there = _opened(config, offset)
    wanted.show("users", _rows(there, offset), USERS_LISTED, _without_users(there))


def _without_users(there: FileEntries | ContextEntries) -> str:
    """Return which clients are let in where there is no entry, and how to change that."""
    adds = "`enmasse user add NAME` adds one"
    if isinstance(there, ContextEntries):
        return f"{there.where} has no users that you may see; {adds}"
    if there.has_issuers:
        return f"{there.where} has no users: clients log in with a token of an issuer; {adds}"
    if there.is_missing:
        return f"there are no users, so clients are let in without one. {adds}; then others are refused"
    return f"{there.where} has no users, so all clients are refused; {adds}"


@command.command("show")
@click.argument("name", shell_complete=users)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@_options
def show(name: str, as_json: bool, config: Path | None, offset: int) -> None:
    """Show a user or group with its permissions, without hashes."""
    from enmasse.text import printable

    there = _opened(config, offset)
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
    for number, permission in enumerate(row["permissions"]):
        say(f"  permissions.{number}: {printable(_permission_text(permission))}")


@command.command(
    "allow",
    help=f"""Allow a user or group operations ({", ".join(OPERATIONS)}) on addresses.

    ADDRESS is a name, or a pattern that ends with the word * (one word) or # (any words): 'orders/#'. ${{user}} stands
    for the name of the user. Quote patterns.
    """,
)
@click.argument("name", shell_complete=users)
@click.argument("operations", metavar="OPERATION[,OPERATION]…")
@click.argument("patterns", metavar="ADDRESS…", nargs=-1, required=True, shell_complete=addresses)
@_options
def allow(name: str, operations: str, patterns: tuple[str, ...], config: Path | None, offset: int) -> None:
    _grant("allow", name, operations, patterns, config, offset)


@command.command("deny")
@click.argument("name", shell_complete=users)
@click.argument("operations", metavar="OPERATION[,OPERATION]…")
@click.argument("patterns", metavar="ADDRESS…", nargs=-1, required=True, shell_complete=addresses)
@_options
def deny(name: str, operations: str, patterns: tuple[str, ...], config: Path | None, offset: int) -> None:
    """Deny a user or group operations on addresses, whatever allows them. Arguments as those of `allow`."""
    _grant("deny", name, operations, patterns, config, offset)


@command.command("check")
@click.argument("name", shell_complete=users)
@click.argument("operation", type=click.Choice(OPERATIONS))
@click.argument("address", shell_complete=addresses)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@_options
def check(name: str, operation: Any, address: str, as_json: bool, config: Path | None, offset: int) -> None:
    """Show whether a user may do an operation on an address, and which rule decides.

    ADDRESS is an address, an MQTT topic, or with the words + or # a filter of a subscription. A topic that no address
    takes is one of the address with `mqttDefault`. Exit status 0: allowed. 1: not allowed.
    """
    from enmasse.cli.configuration import entries, validate
    from enmasse.identity.mqtt_permissions import decided
    from enmasse.identity.permissions import Permissions
    from enmasse.identity.principal import Principal
    from enmasse.model.jsonfile import Unparsable
    from enmasse.model.topic_map import TopicMap

    if at_console(USERS, offset) is not None:
        _check_by_console(offset, name, operation, address, as_json=as_json)
    folder = edited_folder(config, offset)
    text, present = entries.read(folder, USERS)
    if name not in present:
        USERS.unknown(str(folder / USERS.file), name, present)
    try:
        good, problems = validate.users(text)
    except Unparsable as error:
        end("configuration.file.not-json", str(error))
    wrong = [str(problem) for problem in problems if problem.entry == name]
    if name not in good:
        end("configuration.entry.invalid", "\n".join(wrong))
    granted = {name: user.granted for name, user in good.items()}
    topics = TopicMap(validate.addresses(folder))
    decision, about = decided(Permissions(granted).rights(Principal(name)), topics, operation, address)
    rule, where = decision.rule, None
    if rule is None:
        groups = "".join(f", nor of @{group}" for group in good[name].groups)
        reason = f"no permission of {name}{groups} allows it"
    else:
        of = rule.permission
        shown = {of.effect: list(of.operations), "addresses": list(of.addresses)}
        where = rule.where
        reason = f"{where}: {_permission_text(shown)}"
    _answer(name, operation, address, about, reason, where, allowed=decision.allowed, as_json=as_json)


def _answer(
    name: str,
    operation: str,
    address: str,
    about: str,
    reason: str,
    rule: str | None,
    *,
    allowed: bool,
    as_json: bool,
) -> NoReturn:
    """Print the answer of `check`, and end. `about`: the name on AMQP that it is about."""
    from enmasse.text import printable

    if as_json:
        click.echo(json.dumps({"allowed": allowed, "rule": rule, "address": about}))
        sys.exit(0 if allowed else FAILED)
    what = address if about == address else f"{address} (on AMQP {about})"
    text = printable(f"{name} {'may' if allowed else 'may not'} {operation} {what}: {reason}")
    if not allowed:
        end("user.operation.denied", text)
    say(text)
    sys.exit(0)


def _check_by_console(offset: int, name: str, operation: str, address: str, *, as_json: bool) -> NoReturn:
    from urllib.parse import urlencode

    from enmasse.cli.contexts.console import ask, path

    query = urlencode({"operation": operation, "address": address})
    decision = ask(offset, "GET", f"{path('users', name, 'may')}?{query}")
    allowed, of = decision["allowed"], decision["permission"]
    about = decision.get("address", address)  # an older console does not say it
    rule, reason = None, f"no permission of {name} allows it"
    if of is not None:
        shown = {of["effect"]: of["operations"], "addresses": of["addresses"]}
        rule = of["source"]
        reason = f"{rule}: {_permission_text(shown)}"
    _answer(name, operation, address, about, reason, rule, allowed=allowed, as_json=as_json)


def _grant(
    effect: str, name: str, operations: str, patterns: tuple[str, ...], config: Path | None, offset: int
) -> None:
    wanted = list(dict.fromkeys(operations.split(",")))
    unknown = [each for each in wanted if each not in OPERATIONS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(OPERATIONS)}.", param_hint="OPERATION")
    for pattern in patterns:
        for other in _OTHER_PLACEHOLDER.findall(pattern):
            report(
                f"warning: {pattern}: {other} stands for itself there. Only ${{user}} is replaced, by the user's name."
            )

    def granted(entry: dict[str, Any]) -> dict[str, Any]:
        """Extend the permission with the same operations, or add one."""
        permissions = entry.get("permissions", [])
        permissions = list(permissions) if isinstance(permissions, list) else []
        for number, permission in enumerate(permissions):
            if isinstance(permission, dict) and permission.get(effect) == wanted:
                known = permission.get("addresses")
                known = known if isinstance(known, list) else []
                more = [pattern for pattern in dict.fromkeys(patterns) if pattern not in known]
                permissions[number] = {**permission, "addresses": [*known, *more]}
                break
        else:
            permissions.append({effect: wanted, "addresses": list(dict.fromkeys(patterns))})
        return {**entry, "permissions": permissions}

    there = _opened(config, offset)
    denials: list[str] = []

    def changed(entry: Any, where: str) -> dict[str, Any]:
        after = granted(_object(name, entry, where))
        denials[:] = _denials(name, after["permissions"], wanted, patterns) if effect == "allow" else ()
        return after

    where = there.change(name, changed)
    _warn_of_strays(there, patterns, config, offset)
    for denial in denials:
        report(f"warning: {denial} still holds, whatever is allowed: take it out of {where} to lift it.")
    past = "allowed" if effect == "allow" else "denied"
    line = f"{past} {name} {','.join(wanted)} on {', '.join(patterns)} in {where}"
    done(line, past, name=name, place=where, operations=wanted, addresses=list(patterns))


def _denials(name: str, permissions: list[Any], operations: list[Any], patterns: tuple[str, ...]) -> list[str]:
    """Return the permissions of an entry that deny one of these operations on what one of the patterns names."""
    from enmasse.identity.permissions import Rights, Rule, expanded
    from enmasse.model.users import Permission

    denied = {}
    for number, permission in enumerate(permissions):
        if isinstance(permission, dict) and isinstance(permission.get("deny"), list):
            text = f"{name}.permissions.{number}: {_permission_text(permission)}"
            addresses = tuple(map(str, permission.get("addresses") or ()))
            known = tuple(each for each in OPERATIONS if each in permission["deny"])
            denied[text] = Permission(effect="deny", operations=known, addresses=addresses)
    rights = Rights(name, tuple(Rule(text, permission) for text, permission in denied.items()))
    decisions = [rights.decide(each, expanded(pattern, name)) for each in operations for pattern in patterns]
    return list(dict.fromkeys(decision.rule.where for decision in decisions if decision.rule is not None))


def _warn_of_strays(
    there: FileEntries | ContextEntries, patterns: tuple[str, ...], config: Path | None, offset: int
) -> None:
    """Report the patterns that match none of the addresses that there are at present."""
    from enmasse.cli.configuration import validate
    from enmasse.cli.contexts.console import items
    from enmasse.identity.permissions import without_address
    from enmasse.model.address_types import TYPES
    from enmasse.text import did_you_mean

    if isinstance(there, ContextEntries):
        known = {row["name"]: TYPES[row["type"]].levels for row in items(offset, "addresses") if row["type"] in TYPES}
    else:
        found = validate.addresses(edited_folder(config, offset))
        known = {str(name): address.traits.levels for name, address in found.items()}
    for pattern in without_address(patterns, known) if known else ():
        report(f"warning: no address is there that {pattern!r} matches.{did_you_mean(pattern, known)}")


def _opened(config: Path | None, offset: int) -> FileEntries | ContextEntries:
    """Return the users of a folder that was named, of the context in force, or of the folder on this machine."""
    if (there := at_console(USERS, offset)) is not None:  # also if a variable names a folder
        return there
    return users_in(edited_folder(config, offset), offset)


def _object(name: str, entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        end("configuration.entry.invalid", f"{where}: {name}: is not an object; correct it first")
    return entry


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
    }


def _permission_text(permission: dict[str, Any]) -> str:
    effect = "allow" if "allow" in permission else "deny"

    def joined(key: str, separator: str) -> str:
        found = permission.get(key)
        return separator.join(map(str, found)) if isinstance(found, list) else "?"

    return f"{effect} {joined(effect, ',')} on {joined('addresses', ', ')}"


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
