"""Changes of single entries of configuration files: checked against the model before they are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from enmasse.cli.common import end, report
from enmasse.cli.configuration import configfile
from enmasse.cli.configuration.kinds import USERS, Kind

EMPTY = "{}\n"
"""Content of a file of users before the first of them."""
REMOVED = object()
"""In place of a value: the key goes."""


def with_keys(entry: dict[str, Any], texts: Iterable[str], *, new: bool = False) -> dict[str, Any]:
    """Return an entry with KEY=VALUE …: KEY may be a path, messageTtl.maximum; VALUE is JSON or a string; without VALUE
    the key is removed, of a `new` entry that is wrong. Ends the command (wrong usage) for other texts."""
    changed = dict(entry)
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"expected KEY=VALUE, got {text!r}", param_hint="KEY=VALUE")
        if not value and new:
            raise click.BadParameter(f"{text!r} has no value: add one, or leave the key out", param_hint="KEY=VALUE")
        try:
            changed = _with(changed, key, json.loads(value) if value else REMOVED)
        except ValueError:
            changed = _with(changed, key, value)
    return changed


def _with(entry: Any, path: str, value: Any) -> dict[str, Any]:
    """Return an entry with the value at a path; REMOVED takes it away, and what is empty then."""
    changed = dict(entry) if isinstance(entry, dict) else {}
    key, _, below = path.partition(".")
    if below:
        value = _with(changed.get(key), below, value) or REMOVED
    if value is REMOVED:
        changed.pop(key, None)
    else:
        changed[key] = value
    return changed


def read(folder: Path, kind: Kind) -> tuple[str, dict[str, Any]]:
    """Return the text and the entries of a file. No file of users means no users; a missing file of another kind
    ends the command."""
    path = folder / kind.file
    text = configfile.read(path, EMPTY if kind is USERS else None)
    return text, configfile.entries(path, text)


def change(
    folder: Path,
    kind: Kind,
    edit: Callable[[str, dict[str, Any]], str],
    *,
    warn: bool = False,
) -> None:
    """Replace a file by what `edit` makes of its text and its entries.

    Ends the command, and changes nothing, if that has problems which the file does not have yet. With `warn`, and of
    users whose entries apply in part, they are reported only.
    """
    from enmasse.cli.configuration.validate import new_problems
    from enmasse.model.jsonfile import Unparsable

    path = folder / kind.file
    with configfile.locked(folder):
        text, present = read(folder, kind)
        changed = edit(text, present)
        refused: list[str] = []
        warnings: list[str] = []
        try:
            for problem in new_problems(folder, kind.file, text, changed):
                applies = warn or (kind is USERS and problem.applies)
                (warnings if applies else refused).append(str(problem))
        except Unparsable as error:
            if not warn:
                end("configuration.file.not-json", f"{error}. Correct it first; nothing was changed.")
            warnings = [str(error)]
        except OSError as error:
            if not warn:
                end("configuration.file.not-readable", f"{error.filename}: cannot be read: {error.strerror}.")
            warnings = [str(error)]
        if refused:
            end("configuration.entry.invalid", "\n".join([*refused, "nothing was changed."]))
        for line in warnings:
            report(f"warning: {line}")
        if changed != text:
            configfile.write(path, text, changed, private=kind is USERS)
