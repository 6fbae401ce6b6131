"""Changes of single entries of addresses.json and flavors.json: checked against the model before they are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from enmasse.cli.common import end, report
from enmasse.cli.configuration import configfile


def with_keys(entry: dict[str, Any], texts: Iterable[str]) -> dict[str, Any]:
    """Return an entry with KEY=VALUE …: VALUE is JSON or a string; without VALUE the key is removed. Ends the command
    (wrong usage) for other texts."""
    changed = dict(entry)
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"expected KEY=VALUE, got {text!r}", param_hint="KEY=VALUE")
        if not value:
            changed.pop(key, None)
            continue
        try:
            changed[key] = json.loads(value)
        except ValueError:
            changed[key] = value
    return changed


def change(folder: Path, file: str, edit: Callable[[str, dict[str, Any]], str], *, warn: bool = False) -> None:
    """Replace a file by what `edit` makes of its text and its entries.

    Ends the command, and changes nothing, if that has problems which the file does not have yet; with `warn` they are
    reported only.
    """
    from enmasse.cli.configuration.validate import new_problems
    from enmasse.model.jsonfile import Unparsable

    path = folder / file
    with configfile.locked(folder):
        text = configfile.read(path)
        changed = edit(text, configfile.entries(path, text))
        try:
            problems = new_problems(folder, file, text, changed)
        except Unparsable as error:
            if not warn:
                end("configuration.file.not-json", f"{error}. Correct it first; nothing was changed.")
            problems = [str(error)]
        except OSError as error:
            if not warn:
                end("configuration.file.not-readable", f"{error.filename}: cannot be read: {error.strerror}.")
            problems = [str(error)]
        if problems and not warn:
            end("configuration.entry.invalid", "\n".join([*problems, "nothing was changed."]))
        for problem in problems:
            report(f"warning: {problem}")
        if changed != text:
            configfile.write(path, text, changed)
