"""The local driver between storage controller and supervisor: a folder of wishes, a file of facts
(docs/contracts.md).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enmasse.supervisor.files import read_file, write_json

KINDS = frozenset({"broker"})
"""What may be asked for: nothing else is ever started because of a file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_WISHES = 1000


@dataclass(frozen=True, slots=True)
class Wish:
    """One process that shall run. `settings`: without name, health and listen, which the supervisor adds."""

    name: str
    kind: str
    flavor: str
    settings: dict[str, Any]


Mark = tuple[tuple[str, int, int], ...]


def look(folder: Path) -> Mark:
    """Something that differs when the folder's content does (files are replaced, so inodes and times change)."""
    entries = []
    try:
        for path in folder.iterdir():
            with contextlib.suppress(OSError):  # one that goes at this moment, or a link to nowhere
                if path.suffix == ".json":
                    stat = path.stat()
                    entries.append((path.name, stat.st_ino, stat.st_mtime_ns))
    except OSError:
        return ()
    return tuple(sorted(entries))


def read_wishes(folder: Path, taken: Iterable[str]) -> tuple[dict[str, Wish], dict[str, str]]:
    """All valid wishes by name, and for each file that holds none, by the name it should have, a line that says why.

    `taken`: names that no wish may use. A file that cannot be understood is not a wish withdrawn: what runs by that
    name is to be left alone. Raises OSError where the folder cannot be read.
    """
    wishes: dict[str, Wish] = {}
    problems: dict[str, str] = {}
    reserved = frozenset(taken)
    for path in sorted(folder.iterdir()):
        if path.suffix != ".json" or path.name.startswith("."):
            continue
        try:
            wish = _read(path)
            if wish.name in reserved:
                raise ValueError(f"name {wish.name!r} belongs to another process of the suite")
            if len(wishes) >= MAX_WISHES:
                raise ValueError(f"more than {MAX_WISHES} processes")
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            problems[path.stem] = f"{path}: {error}; nothing changes for it until the file is put right"
            continue
        wishes[wish.name] = wish
    return wishes, problems


def _read(path: Path) -> Wish:
    value = json.loads(read_file(path))
    if not isinstance(value, dict) or value.get("schema") != 1:
        raise ValueError('expected an object with "schema": 1')
    name, kind, flavor, settings = (value.get(key) for key in ("name", "kind", "flavor", "settings"))
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name != path.stem:
        raise ValueError(f"name: expected {path.stem!r} as in the file's name, got {name!r}")
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {sorted(KINDS)}, got {kind!r}")
    if not isinstance(settings, dict):
        raise ValueError("settings: expected an object")
    return Wish(name, str(kind), str(flavor or ""), settings)


def write_actual(path: Path, components: list[dict[str, Any]]) -> None:
    """What runs because of the wishes: one {"name","kind","pid","ready","restarts","detail","host","port","settings"}
    each.
    """
    write_json(path, {"schema": 1, "components": components})
