"""The local driver between storage controller and supervisor: a folder of desired processes, a file of actual ones
(docs/contracts.md).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enmasse.engines import mark
from enmasse.engines.choices import BROKERS
from enmasse.storage.decoding import decode_any
from enmasse.storage.files import read_file, read_json, write_json
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan.datadir import DataDir

ENGINES = {engine.kind: engine.name for engine in BROKERS.values()}
"""Kind of process → engine. Files of other kinds start nothing."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_DESIRED = 1000


@dataclass(frozen=True, slots=True)
class DesiredProcess:
    """One desired process. `settings`: without name, health and listen, which the supervisor adds."""

    name: str
    kind: str
    flavor: str
    settings: dict[str, Any]


Mark = tuple[tuple[str, int, int], ...]


def look(folder: Path) -> Mark:
    """Return a value that changes with the folder's content (files are replaced, so inodes and times change)."""
    entries = []
    try:
        for path in folder.iterdir():
            with contextlib.suppress(OSError):  # a file that is being deleted, or a dangling link
                if path.suffix == ".json":
                    stat = path.stat()
                    entries.append((path.name, stat.st_ino, stat.st_mtime_ns))
    except OSError:
        return ()
    return tuple(sorted(entries))


def read_desired(folder: Path, taken: Iterable[str]) -> tuple[dict[str, DesiredProcess], dict[str, str]]:
    """Return all desired processes by name, and the reason for each invalid file, by the name of its process.

    `taken`: names of other processes. An invalid file does not mean that the process is no longer desired: the process
    of that name keeps running. Raises OSError if the folder cannot be read.
    """
    found: dict[str, DesiredProcess] = {}
    problems: dict[str, str] = {}
    reserved = frozenset(taken)
    for path in sorted(folder.iterdir()):
        if path.suffix != ".json" or path.name.startswith("."):
            continue
        try:
            process = _read(path)
            if process.name in reserved:
                raise ValueError(f"name {process.name!r} belongs to another process of the suite")
            if len(found) >= MAX_DESIRED:
                raise ValueError(f"more than {MAX_DESIRED} processes")
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            problems[path.stem] = f"{path}: {error}; nothing changes for it until the file is put right"
            continue
        found[process.name] = process
    return found, problems


def _read(path: Path) -> DesiredProcess:
    value = decode_any(read_file(path))
    if not isinstance(value, dict) or value.get("schema") != 1:
        raise ValueError('expected an object with "schema": 1')
    name, kind, flavor, settings = (value.get(key) for key in ("name", "kind", "flavor", "settings"))
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name != path.stem:
        raise ValueError(f"name: expected {path.stem!r} as in the file's name, got {name!r}")
    if kind not in ENGINES:
        raise ValueError(f"kind: expected one of {sorted(ENGINES)}, got {kind!r}")
    if not isinstance(settings, dict):
        raise ValueError("settings: expected an object")
    return DesiredProcess(name, str(kind), str(flavor or ""), settings)


def write_actual(path: Path, components: list[dict[str, Any]]) -> None:
    """Write the running processes of the folder: one
    {"name","kind","pid","ready","restarts","detail","host","port","settings"} each.
    """
    write_json(path, {"schema": 1, "components": components})


def _ran(path: Path) -> frozenset[str]:
    """Return the names of the brokers that were ready when a suite wrote its last `actual` file."""
    content = read_json(path)
    rows = content.get("components") if isinstance(content, dict) else None
    return (
        frozenset(str(each.get("name")) for each in rows if isinstance(each, dict) and each.get("ready"))
        if isinstance(rows, list)
        else frozenset()
    )


def check_data(data: DataDir, engine: str) -> None:
    """Raise StartError if brokers of another engine have messages here, or if the folder of one that ran is gone. Files
    of in-memory brokers of another engine are deleted: they contain no messages, and are created again."""
    processes, _ = read_desired(data.desired, ())
    ran = _ran(data.actual)
    for process in processes.values():
        kept = process.settings.get("data_dir")
        folder = data.path / "brokers" / kept if isinstance(kept, str) else None
        if folder is not None and process.name in ran and not folder.exists():
            text = (
                f"{folder}, with the messages of a broker that ran, is gone: put it back, such as by mounting its disk."
            )
            file = data.desired / f"{process.name}.json"
            raise StartError("start.data.missing", f"{text} To start without these messages, delete {file}.")
        if ENGINES[process.kind] == engine:
            continue
        found = mark.owner(folder) if folder is not None else None
        if found is not None and found != engine:
            assert folder is not None
            raise StartError("start.data.other-engine", f"{folder} {mark.refusal(found, engine)}.")
        (data.desired / f"{process.name}.json").unlink(missing_ok=True)
