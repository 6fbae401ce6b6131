"""The options file of `enmasse up`: a JSON object of the options, by the names that they have on the command line."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from enmasse.model.jsonfile import Problem, Unparsable, parse
from enmasse.model.values import Wrong
from enmasse.storage.files import read_file
from enmasse.text import did_you_mean

OPTIONS_FILE = "up.json"
"""The file in the configuration folder that is read unless another one is named."""


class OptionsFault(Exception):
    """Faults of an options file. `lines`: one for each fault, with file, entry and remedy."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def options_in(file: Path, context: click.Context, without: Collection[str]) -> dict[str, Any]:
    """Return the values of the options in a file, by the names of the command's parameters. `without`: options that it
    may not have. Raises OptionsFault."""
    try:
        file = file.absolute()
        document = parse(str(file), read_file(file))
    except Unparsable as error:
        raise OptionsFault([str(error)]) from None
    except OSError as error:
        raise OptionsFault([f"{file}: {error.strerror}; make it readable, or name another file"]) from None
    known = {option_name(each): each for each in context.command.params if isinstance(each, click.Option)}
    faults: list[Problem] = [document.repeated(*path) for path in document.duplicates]
    found: dict[str, Any] = {}
    for entry, value in document.entries.items():
        name = entry.replace("_", "-")
        option = known.get(name)
        if name in without:
            faults.append(document.problem("stands on the command line, or in the environment; remove it", entry))
        elif option is None or option.name is None or option.hidden:
            text = f"is no option of `enmasse up`.{did_you_mean(name, known)} Remove it, or correct the name"
            faults.append(document.problem(text, entry))
        else:
            try:
                found[option.name] = _value(option, value, file.parent, context)
            except (Wrong, click.BadParameter) as error:
                faults.append(document.problem(_reason(error), entry))
    if faults:
        raise OptionsFault([str(fault) for fault in faults])
    return found


def option_name(option: click.Option) -> str:
    return next((name for name in option.opts if name.startswith("--")), "--")[2:]


def _reason(error: Exception) -> str:
    text = error.message if isinstance(error, click.BadParameter) else str(error)
    return text.rstrip(".")


def _value(option: click.Option, value: Any, folder: Path, context: click.Context) -> Any:
    """Return the value of an option as the command line would give it. Raises Wrong, click.BadParameter."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise Wrong("is a flag: write true or false")
        return value
    if not option.multiple:
        return _one(option, value, folder, context)
    if not isinstance(value, list):
        raise Wrong('may be repeated: write a list of texts, such as ["…"]')
    return tuple(_one(option, each, folder, context) for each in value)


def _one(option: click.Option, value: Any, folder: Path, context: click.Context) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Wrong("must be a text as on the command line, or a whole number")
    text = str(value)
    if isinstance(option.type, click.Path):  # below the file, whatever the current folder is
        text = str(folder / text)
    found = option.type.convert(text, option, context)
    below = getattr(option.type, "below", None)
    return found if below is None else below(found, folder)
