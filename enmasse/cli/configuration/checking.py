"""`enmasse config check DIR` in a context: the files of DIR as changes of the suite there, which its console checks."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click

from enmasse.cli.common import FAILED, UNREACHABLE, end, end_with, say
from enmasse.cli.contexts.api_problems import problem
from enmasse.cli.contexts.console import API, console, items
from enmasse.model.configuration import ADDRESSES, BROKERS, FLAVORS, ISSUERS, USERS, Applied, apply
from enmasse.model.jsonfile import Document, Problem, Unparsable, parse
from enmasse.model.merged import Unreadable
from enmasse.text import counted

if TYPE_CHECKING:
    from enmasse.cli.contexts.contexts import Context
    from enmasse.model.merged import Content

KINDS = {ADDRESSES: "addresses", FLAVORS: "flavors", USERS: "users"}
"""File → kind of the API."""
ALONE = {BROKERS: "brokers", ISSUERS: "issuers"}
"""Files that the API has no check for."""
TOGETHER = ("addresses", "flavors")
"""Kinds whose entries name each other."""
SINGULAR = {"addresses": "address"}


def check_there(
    folder: str, contents: Mapping[str, Content], context: Context, offset: int, *, json_: bool
) -> NoReturn:
    """Print what would be wrong if each entry of these files were set in the suite of a context, and end the command
    (status 1: something is)."""
    documents, problems = _parsed(contents)
    if not problems:
        problems = _of_suite(documents, context, offset)
    problems += [
        each
        for each in apply(contents, Applied()).problems
        if each.file in ALONE or (each.file in documents and each.entry in _no_objects(documents[each.file]))
    ]
    problems = sorted(set(problems))
    invalid = Counter(file for file, _ in {(each.file, each.entry) for each in problems if each.entry is not None})
    valid = {
        kind: max(0, len(documents[file].entries) - invalid[file]) if file in documents else 0
        for file, kind in {**KINDS, **ALONE}.items()
    }
    if json_:
        errors = [{**_fields(each), "applies": each.applies} for each in problems]
        click.echo(json.dumps({"context": context.name, "valid": valid, "errors": errors}))
        sys.exit(FAILED if problems else 0)
    shown = [counted(number, SINGULAR.get(kind, kind[:-1]), kind) for kind, number in valid.items() if number]
    found = f"{', '.join(shown) or 'nothing'} valid, {counted(len(problems), 'error')}"
    alone = [file for file in ALONE if file in documents]
    without = f"; {' and '.join(alone)} without that suite" if alone else ""
    say(f"{folder}: {found}, checked against the suite of {context}{without}")
    end_with([str(each) for each in problems])


def _fields(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in ("file", "entry", "field", "line", "reason")}


def _parsed(contents: Mapping[str, Content]) -> tuple[dict[str, Document], list[Problem]]:
    """Return the documents of the files that are there, and what keeps files from being read."""
    documents: dict[str, Document] = {}
    problems: list[Problem] = []
    for file, content in contents.items():
        if isinstance(content, Unreadable):
            problems.append(Problem(file=file, reason=f"cannot be read: {content.reason}"))
        elif isinstance(content, bytes):
            try:
                documents[file] = parse(file, content)
            except Unparsable as error:
                problems.append(error.problem)
            else:
                problems += [documents[file].repeated(*path) for path in documents[file].duplicates]
    return documents, problems


def _of_suite(documents: Mapping[str, Document], context: Context, offset: int) -> list[Problem]:
    """Return what the suite finds wrong. Entries of flavors that are there already are not sent: who manages some
    addresses only may use them."""
    entries = {kind: _objects(documents[file].entries) for file, kind in KINDS.items() if file in documents}
    if entries.get("flavors"):
        there = {row["name"]: row["etag"] for row in items(offset, "flavors")}
        entries["flavors"] = _objects(_different(documents[FLAVORS], there))
    found: list[Problem] = []
    for file, kind in KINDS.items():
        if not entries.get(kind):
            continue
        change: dict[str, Any] = {"kind": kind, "set": entries[kind]}
        if kind != "users":
            change["with"] = {each: entries[each] for each in TOGETHER if each != kind and entries.get(each)}
        status, answer = console(offset).request("POST", f"{API}config", change)
        if status >= 400:
            id, detail = problem(status, answer)
            end(id, f"{context}: {file}: {detail}", UNREACHABLE if status == 503 else FAILED)
        found += [_problem(documents.get(each["file"]), each, context) for each in answer["errors"]]
    return found


def _objects(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that the API can take."""
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _no_objects(document: Document) -> set[str]:
    """Return the names of the other entries."""
    return document.entries.keys() - _objects(document.entries).keys()


def _different(document: Document, there: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of flavors that are not there in the same way. `there`: name → etag."""
    from enmasse.model.etags import etag
    from enmasse.model.flavors import parse_flavors

    parsed, _ = parse_flavors(document)
    same = {name for name, flavor in parsed.items() if there.get(name) == etag(flavor)}
    return {name: entry for name, entry in document.entries.items() if name not in same}


def _problem(document: Document | None, fault: Mapping[str, Any], context: Context) -> Problem:
    """Return a fault that the suite has found: with its line if it is in a file here, otherwise with the context."""
    entry, field, reason = fault["entry"], fault["field"], fault["reason"]
    if document is None or entry not in document.entries:
        return Problem(file=f"{context}: {fault['file']}", entry=entry, field=field, line=fault["line"], reason=reason)
    line = document.line(entry, *(field or "").split("."))
    return Problem(file=document.file, entry=entry, field=field, line=line, reason=reason)
