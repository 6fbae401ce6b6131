"""The file of a pipeline, TOML or JSON: which sections and fields there are, and what is wrong with those given."""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from enmasse.model.jsonfile import Document, Problem, Unparsable, parse
from enmasse.spark import placeholders
from enmasse.spark.errors import QueryError
from enmasse.spark.options import DEFAULT_URL, LOGIN, OptionError, address_fault, folder_fault, url_of
from enmasse.spark.server_options import ServerLogin, login_faults

Check = Callable[[Any], str]
"""A value → what is wrong with it, or an empty text."""
UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
REQUIRED = object()


class PipelineFileError(QueryError):
    """The file of a pipeline is wrong: the text has a line for each problem: file, line, section, field and reason."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


def text(value: Any) -> str:
    """Check that a value is a text that is not empty."""
    return "" if isinstance(value, str) and value else "must be a text that is not empty"


def any_text(value: Any) -> str:
    """Check that a value is a text."""
    return "" if isinstance(value, str) else "must be a text"


def address(value: Any) -> str:
    """Check that a value is the name of an address."""
    return text(value) or address_fault(value) or placeholders.fault(value, ())


def any_address(value: Any) -> str:
    """Check that a value is the name of an address, or empty."""
    return any_text(value) or (address(value) if value else "")


def device_address(value: Any) -> str:
    """Check that a value is the name of an address, for each device."""
    if wrong := text(value) or address_fault(value) or placeholders.fault(value, placeholders.IN_ADDRESS):
        return wrong
    if not str(value).startswith("{device}"):
        return ""
    return "must have a text before {device}: else a device could send to any address"


def command(value: Any) -> str:
    """Check that a value is the text of a command."""
    return text(value) or placeholders.fault(value, placeholders.IN_BODY)


def folder(value: Any) -> str:
    """Check that a value is a path on this machine."""
    if wrong := text(value):
        return wrong
    return f"{wrong}; an object store cannot be used here" if (wrong := folder_fault(value)) else ""


def number(value: Any) -> str:
    """Check that a value is a number."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "" if good else "must be a number"


def positive(value: Any) -> str:
    """Check that a value is a number above 0."""
    return number(value) or ("" if value > 0 else "must be above 0")


def whole(value: Any) -> str:
    """Check that a value is a whole number above 0."""
    good = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return "" if good else "must be a whole number above 0"


def several(value: Any) -> str:
    """Check that a value is a whole number above 1."""
    return whole(value) or ("" if value > 1 else "must be above 1")


def boolean(value: Any) -> str:
    """Check that a value is true or false."""
    return "" if isinstance(value, bool) else "must be true or false"


def texts(value: Any) -> str:
    """Check that a value is a list of different texts."""
    good = isinstance(value, list) and value and not any(map(text, value)) and len(set(value)) == len(value)
    return "" if good else 'must be a list of different texts, such as ["temperature", "humidity"]'


def one_of(*choices: str) -> Check:
    """Return the check that a value is one of these."""
    return lambda value: "" if value in choices else f"must be {' or '.join(choices)}"


def duration(value: Any) -> str:
    """Check that a value is a duration."""
    return "" if seconds(value) else 'must be a duration such as "10 minutes"; units are ' + ", ".join(UNITS)


def fractions(value: Any) -> str:
    """Check that a value is a list of numbers from 0 to 1."""
    good = isinstance(value, list) and value and all(not number(one) and 0 <= one <= 1 for one in value)
    return "" if good else "must be a list of numbers from 0 to 1, such as [0.5, 0.99]"


SECTIONS: dict[str, dict[str, tuple[Check, Any]]] = {
    "source": {
        "url": (text, DEFAULT_URL),
        "address": (address, REQUIRED),
        "subscription": (any_text, ""),
        "work": (folder, REQUIRED),
        **dict.fromkeys(LOGIN, (any_text, "")),
    },
    "readings": {
        "device": (text, "device"),
        "time": (text, "time"),
        "value": (text, "temperature"),
        "watermark": (duration, "1 hour"),
        "ahead": (duration, "1 day"),
        "deadLetterAddress": (any_address, ""),
    },
    "windows": {
        "address": (any_address, ""),
        "window": (duration, "1 day"),
        "quantiles": (fractions, None),
        "lateAddress": (any_address, ""),
    },
    "table": {"format": (one_of("parquet", "delta"), "parquet"), "path": (text, REQUIRED), "compact": (several, 24)},
    "last": {"path": (folder, REQUIRED)},
    "alerts": {
        "address": (address, REQUIRED),
        "threshold": (positive, 4.0),
        "minimum": (whole, 30),
        "idle": (duration, "1 week"),
    },
    "commands": {
        "address": (device_address, REQUIRED),
        "body": (command, REQUIRED),
        "ttl": (whole, 60_000),
        "above": (number, None),
        "below": (number, None),
    },
    "scores": {
        "model": (text, REQUIRED),
        "features": (texts, None),
        "address": (address, REQUIRED),
        "trusted": (boolean, False),
    },
}
"""Section → field → check of its value, and its default. `source` is required, `readings` always there, the others are
stages: left out if their section is."""
STAGES = ("windows", "last", "alerts", "commands", "scores")


def seconds(value: Any) -> int:
    """Return a duration in seconds; 0 if the value is not a duration."""
    found = re.fullmatch(r"([1-9]\d{0,8}) +([a-z]+?)s?", value) if isinstance(value, str) else None
    return int(found[1]) * UNITS.get(found[2], 0) if found else 0


def load(file: Path, source: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the sections of a pipeline's file, with defaults. Raises PipelineFileError.

    source: fields of the section `source` where the file has none of them.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise PipelineFileError([Problem(file=str(file), reason=f"cannot be read ({error.strerror})")]) from None
    document = _document(str(file), data)
    problems = [document.repeated(*path) for path in document.duplicates]
    sections: dict[str, dict[str, Any]] = {}
    written = _meant(document, "section", SECTIONS, document.entries, problems)
    for name, (key, given) in written.items():
        if isinstance(given, dict):
            more = source or {} if name == "source" else {}
            sections[name] = _fields(document, name, {**more, **given}, problems, key)
        else:
            problems.append(document.problem("must be a section with fields", key))
    if "source" not in written:
        problems.append(document.problem('the section "source" is missing: it needs address and work'))
    if "source" in sections:
        problems += _server(document, sections["source"])
    if not any(stage in written for stage in STAGES):
        problems.append(document.problem(f"there is no stage: write a section {', '.join(STAGES)}"))
    problems += _together(document, sections)
    if problems:
        raise PipelineFileError(sorted(problems, key=lambda each: each.line or sys.maxsize))
    return {"readings": _fields(document, "readings", {}, []), **sections}


def _document(file: str, data: bytes) -> Document:
    if file.endswith(".json"):
        try:
            return parse(file, data)
        except Unparsable as error:
            raise PipelineFileError([error.problem]) from None
    try:
        text = data.decode()
        return Document(file, text, tomllib.loads(text), [], find=toml_lines)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineFileError([Problem(file=file, reason=f"is not TOML: {error}")]) from None


def toml_lines(text: str) -> dict[tuple[str, ...], list[int]]:
    """Return the lines of the sections and fields of a TOML file, by their path, in the usual notation."""
    found: dict[tuple[str, ...], list[int]] = {}
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\s*([\w-]+)\s*\]", line):
            section = (head[1],)
            found.setdefault(section, []).append(number)
        elif field := re.match(r"\s*([\w-]+)\s*=", line):
            found.setdefault((*section, field[1]), []).append(number)
    return found


def _meant(
    document: Document, kind: str, known: Mapping[str, Any], given: Mapping[str, Any], problems: list[Problem], *at: str
) -> dict[str, tuple[str, Any]]:
    """Return name → name as written, and value, of what there is in `given`. An unknown name is a problem; its value is
    checked as that of the name that was probably meant."""
    found = {name: (name, value) for name, value in given.items() if name in known}
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            problems.append(document.problem(f"there is no such {kind}; {hint}", *at, name))
            found = dict.fromkeys(near, (name, value)) | found
    return found


def _fields(
    document: Document, section: str, given: Mapping[str, Any], problems: list[Problem], key: str = ""
) -> dict[str, Any]:
    """Return the values of a section, defaults included; `key`: its name as written."""
    known, key = SECTIONS[section], key or section
    written = _meant(document, "field", known, given, problems, key)
    for name, (field, value) in written.items():
        if reason := known[name][0](value):
            problems.append(document.problem(reason, key, field))
    for name, (_, default) in known.items():
        if default is REQUIRED and name not in written:
            problems.append(document.problem("is missing", key, name))
    return {name: written[name][1] if name in written else default for name, (_, default) in known.items()}


def _server(document: Document, source: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the server, the user and the files of a login: Spark would find it at its start."""
    given = {name: source[name] if isinstance(source[name], str) else "" for name in LOGIN}
    faults: list[str] = []
    url = DEFAULT_URL
    try:
        if not text(source["url"]):  # else its own check has reported it
            url = url_of(source, "source")
            faults += login_faults(url, given)
    except OptionError as error:
        faults.append(str(error).removeprefix("amqp source: "))
    faults += ServerLogin.of("source", url, given).file_faults()
    return [_fault(document, fault) for fault in faults]


def _fault(document: Document, fault: str) -> Problem:
    """Return the problem of a sentence about an option of the source, at the field of that name."""
    option = re.match(r'(?:the )?option "(\w+)"(?:: )?', fault)
    if option is None:
        return document.problem(fault, "source")
    return document.problem(fault[option.end() :].strip(), "source", option[1])


def _together(document: Document, sections: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    problems = []
    commands = sections.get("commands")
    if commands and commands["above"] is None and commands["below"] is None:
        problems.append(document.problem("needs above or below: when a command is sent", "commands"))
    dead = {
        "commands": "commands for devices that have no address go there",
        "scores": "readings without a prediction go there",
    }
    for name, why in dead.items():
        if name in sections and not sections.get("readings", {}).get("deadLetterAddress"):
            problems.append(document.problem(f"needs readings.deadLetterAddress: {why}", name))
    windows = sections.get("windows")
    if windows and not windows["address"] and "table" not in sections:
        problems.append(document.problem("needs address, or the section table: where results go", "windows"))
    table = sections.get("table")
    path = table["path"] if table else None
    if table and table["format"] != "delta" and isinstance(path, str) and path and (wrong := folder(path)):
        problems.append(document.problem(wrong, "table", "path"))
    if table and not windows:
        problems.append(document.problem("needs the section windows, whose results it holds", "table"))
    return problems


def main() -> None:
    """Check the file that is the last argument, given the defaults of a suite; what is wrong goes to standard error."""
    try:
        load(Path(sys.argv[-1]), {"work": "."})
    except PipelineFileError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
