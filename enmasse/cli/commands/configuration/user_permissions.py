"""`enmasse user allow|deny|revoke|check`: permissions of users and groups in users.json."""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NoReturn

import click

from enmasse.cli.common import FAILED, done, end, port_offset, report, say
from enmasse.cli.completion import addresses, users
from enmasse.cli.configuration.configured import ContextEntries, FileEntries, at_console, users_in
from enmasse.cli.configuration.kinds import USERS
from enmasse.cli.contexts.folders import edited_folder
from enmasse.model.permission_words import OPERATIONS

if TYPE_CHECKING:
    from enmasse.identity.permissions import Rule
    from enmasse.model.users import Effect


def add_to(group: click.Group) -> None:
    """Add the commands to `enmasse user`."""
    for each in (allow, deny, revoke, check):
        group.add_command(each)


def options(function: Any) -> Any:
    """The options --config and --port-offset of the commands of `enmasse user`."""
    function = click.option("--config", "config", type=click.Path(path_type=Path), metavar="DIR",
                            help="Folder of users.json.")(function)  # fmt: skip
    return port_offset(function)


def opened(config: Path | None, offset: int) -> FileEntries | ContextEntries:
    """Return the users of a folder that was named, of the context in force, or of the folder on this machine."""
    if (there := at_console(USERS, offset)) is not None:  # also if a variable names a folder
        return there
    return users_in(edited_folder(config, offset), offset)


def object_of(name: str, entry: Any, where: str) -> dict[str, Any]:
    """Return an entry. Ends the command if it is no object."""
    if not isinstance(entry, dict):
        end("configuration.entry.invalid", f"{where}: {name}: is not an object; correct it first")
    return entry


def warn_of_no_manager(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Warn if a change of users, by name, leaves none who manages them."""
    from enmasse.cli.configuration import validate
    from enmasse.identity.permissions import NO_MANAGER, Permissions, has_manager

    def managed(users: dict[str, Any]) -> bool:
        good = validate.users(json.dumps(users))[0]
        return has_manager(Permissions({name: user.granted for name, user in good.items()}), good)

    if managed(before) and not managed(after):
        report(f"warning: {NO_MANAGER}")


def permission_text(permission: dict[str, Any]) -> str:
    """Return a permission as users.json has it in words: `allow send,recv on orders/#`."""
    effect = "allow" if "allow" in permission else "deny"

    def joined(key: str, separator: str) -> str:
        found = permission.get(key)
        return separator.join(map(str, found)) if isinstance(found, list) else "?"

    return f"{effect} {joined(effect, ',')} on {joined('addresses', ', ')}"


def _arguments(function: Any) -> Any:
    for argument in (
        click.argument("patterns", metavar="ADDRESS…", nargs=-1, required=True, shell_complete=addresses),
        click.argument("operations", metavar="OPERATION[,OPERATION]…", callback=_operations),
        click.argument("name", shell_complete=users),
    ):
        function = argument(function)
    return options(function)


def _operations(_: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    wanted = list(dict.fromkeys(value.split(",")))
    unknown = [each for each in wanted if each not in OPERATIONS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(OPERATIONS)}.", param_hint="OPERATION")
    return wanted


@click.command(
    "allow",
    help=f"""Allow a user or group operations ({", ".join(OPERATIONS)}) on addresses.

    ADDRESS is a name, or a pattern that ends with the word * (one word) or # (any words): 'orders/#'. ${{user}} stands
    for the name of the user. Quote patterns. `revoke` takes it back.
    """,
)
@_arguments
def allow(name: str, operations: list[str], patterns: tuple[str, ...], config: Path | None, offset: int) -> None:
    _grant("allow", name, operations, patterns, config, offset)


@click.command("deny")
@_arguments
def deny(name: str, operations: list[str], patterns: tuple[str, ...], config: Path | None, offset: int) -> None:
    """Deny a user or group operations on addresses, whatever allows them. Arguments as those of `allow`."""
    _grant("deny", name, operations, patterns, config, offset)


@click.command("revoke")
@_arguments
@click.option("--denial", is_flag=True, help="Take back what `deny` has denied, instead of what `allow` has allowed.")
def revoke(
    name: str, operations: list[str], patterns: tuple[str, ...], denial: bool, config: Path | None, offset: int
) -> None:
    """Take back what `allow` has allowed a user or group. Arguments as those of `allow`.

    ADDRESS is written as in the permission, which `user show` has: to except a part of 'orders/#', deny that part. If
    an ADDRESS is in no permission with one of the operations, nothing is changed.
    """
    effect: Effect = "deny" if denial else "allow"
    permissions: list[Any] = []

    def changed(entry: Any, where: str) -> dict[str, Any]:
        permissions[:], found = _without(_permissions(object_of(name, entry, where)), effect, operations, patterns)
        if missing := [pattern for pattern in patterns if pattern not in found]:
            text = f"{where}: {name} has no permission `{effect} {','.join(operations)} on {missing[0]}`"
            remedy = f"nothing was changed. `enmasse user show {quote(name)}` shows those that there are."
            end("user.permission.unknown", f"{text}; {remedy}")
        return {**entry, "permissions": list(permissions)}

    there = opened(config, offset)
    before = there.all()
    where = there.change(name, changed)
    warn_of_no_manager(before, {**before, name: {**before[name], "permissions": permissions}})
    for rule in _deciding(name, permissions, effect, operations, patterns):
        report(f"warning: {rule} still {'denies' if denial else 'allows'} it.")
    line = f"revoked {effect} {','.join(operations)} on {', '.join(patterns)} of {name} in {where}"
    done(line, "revoked", name=name, place=where, operations=operations, addresses=list(patterns))


def _permissions(entry: dict[str, Any]) -> list[Any]:
    found = entry.get("permissions")
    return list(found) if isinstance(found, list) else []


def _listed(permission: Any, key: str) -> list[Any]:
    """Return a list of a permission; an empty one if it has the wrong form."""
    found = permission.get(key) if isinstance(permission, dict) else None
    return found if isinstance(found, list) else []


def _without(
    permissions: list[Any], effect: str, operations: list[str], patterns: tuple[str, ...]
) -> tuple[list[Any], set[str]]:
    """Return permissions without these operations on these patterns, and the patterns of which one had some."""
    left: list[Any] = []
    found: set[str] = set()
    for permission in permissions:
        given, on = _listed(permission, effect), _listed(permission, "addresses")
        of = [pattern for pattern in on if pattern in patterns]
        if not of or not any(each in operations for each in given):
            left.append(permission)
            continue
        found.update(of)
        if others := [pattern for pattern in on if pattern not in patterns]:
            left.append({**permission, "addresses": others})
        if kept := [each for each in given if each not in operations]:
            left.append({**permission, effect: kept, "addresses": of})
    return left, found


def _grant(
    effect: Effect, name: str, operations: list[str], patterns: tuple[str, ...], config: Path | None, offset: int
) -> None:
    """Extend the permission with the same operations, or add one."""
    from enmasse.identity.permissions import denial_warning, pattern_warnings

    permissions: list[Any] = []

    def changed(entry: Any, where: str) -> dict[str, Any]:
        permissions[:] = _permissions(object_of(name, entry, where))
        for number, permission in enumerate(permissions):
            if _listed(permission, effect) == operations:
                known = _listed(permission, "addresses")
                more = [pattern for pattern in dict.fromkeys(patterns) if pattern not in known]
                permissions[number] = {**permission, "addresses": [*known, *more]}
                break
        else:
            permissions.append({effect: operations, "addresses": list(dict.fromkeys(patterns))})
        return {**entry, "permissions": list(permissions)}

    there = opened(config, offset)
    # Asked for first: who denies oneself something in a context may see nothing after it.
    levels = _levels(there, config, offset)
    before = there.all()
    where = there.change(name, changed)
    warn_of_no_manager(before, {**before, name: {**before[name], "permissions": permissions}})
    for text in pattern_warnings(patterns, levels):
        report(f"warning: {text}")
    for rule in _deciding(name, permissions, "deny", operations, patterns) if effect == "allow" else ():
        report(f"warning: {denial_warning(name, rule)}")
    past = "allowed" if effect == "allow" else "denied"
    line = f"{past} {name} {','.join(operations)} on {', '.join(patterns)} in {where}"
    done(line, past, name=name, place=where, operations=operations, addresses=list(patterns))


def _deciding(
    name: str, permissions: list[Any], effect: Effect, operations: list[Any], patterns: tuple[str, ...]
) -> list[Rule]:
    """Return the permissions of an entry that have this effect on one of the operations on one of the patterns."""
    from enmasse.identity.permissions import deciding
    from enmasse.model.users import Permission

    known = [
        Permission(
            effect=effect,
            operations=tuple(each for each in OPERATIONS if each in _listed(permission, effect)),
            addresses=tuple(map(str, _listed(permission, "addresses"))),
        )
        for permission in permissions
    ]
    return deciding(name, known, effect, product(operations, patterns))


def _levels(there: FileEntries | ContextEntries, config: Path | None, offset: int) -> dict[str, bool]:
    """Return the addresses that there are at present → whether it is a topic."""
    from enmasse.cli.configuration import validate
    from enmasse.cli.contexts.console import items
    from enmasse.model.address_types import TYPES

    if isinstance(there, ContextEntries):
        return {row["name"]: TYPES[row["type"]].levels for row in items(offset, "addresses") if row["type"] in TYPES}
    found = validate.addresses(edited_folder(config, offset))
    return {str(name): address.traits.levels for name, address in found.items()}


@click.command("check")
@click.argument("name", shell_complete=users)
@click.argument("operation", type=click.Choice(OPERATIONS))
@click.argument("address", shell_complete=addresses)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@options
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
    of = "".join((name, *(f", nor of @{group}" for group in good[name].groups)))
    _answer(name, operation, address, about, decision.rule, of, allowed=decision.allowed, as_json=as_json)


def _answer(
    name: str,
    operation: str,
    address: str,
    about: str,
    rule: Rule | None,
    of: str,
    *,
    allowed: bool,
    as_json: bool,
) -> NoReturn:
    """Print the answer of `check`, and end. `about`: the name on AMQP that it is about; `rule`: the one that decides;
    `of`: the user, and groups, whose permissions were looked at."""
    from enmasse.text import printable

    if as_json:
        where = None if rule is None else rule.where
        click.echo(json.dumps({"allowed": allowed, "rule": where, "address": about}))
        sys.exit(0 if allowed else FAILED)
    what = address if about == address else f"{address} (on AMQP {about})"
    reason = f"no permission of {of} allows it" if rule is None else str(rule)
    text = printable(f"{name} {'may' if allowed else 'may not'} {operation} {what}: {reason}")
    if not allowed:
        end("user.operation.denied", text)
    say(text)
    sys.exit(0)


def _check_by_console(offset: int, name: str, operation: str, address: str, *, as_json: bool) -> NoReturn:
    from urllib.parse import urlencode

    from enmasse.cli.contexts.console import ask, path
    from enmasse.identity.permissions import Rule
    from enmasse.model.users import Permission

    query = urlencode({"operation": operation, "address": address})
    decision = ask(offset, "GET", f"{path('users', name, 'may')}?{query}")
    allowed, of = decision["allowed"], decision["permission"]
    about = decision.get("address", address)  # an older console does not say it
    rule = None
    if of is not None:
        permission = Permission(
            effect=of["effect"], operations=tuple(of["operations"]), addresses=tuple(of["addresses"])
        )
        rule = Rule(of["source"], permission)
    _answer(name, operation, address, about, rule, name, allowed=allowed, as_json=as_json)
