"""The stored number of processes of a kind, as `enmasse scale` sets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enmasse.process.process_bounds import ProcessBounds
from enmasse.storage.files import read_json


def stored(file: Path, kind: str, most: int, wanted: int | None = None) -> int:
    """Return the number of processes, from 1 to `most`: `wanted`, else the one in the file; 1 if the file does not
    exist."""
    if wanted is None:
        wanted = _content(file).get(kind)
    return min(max(wanted, 1), most) if isinstance(wanted, int) else 1


def stored_bounds(file: Path, kind: str, most: int) -> ProcessBounds:
    """Return the bounds of the number, from 1 to `most`; the number itself, if its load decides nothing."""
    content = _content(file)
    count = stored(file, kind, most)
    found = [content.get(name, count) for name in ("least", "most")]
    if not all(isinstance(each, int) and 1 <= each <= most for each in found) or found[0] > found[1]:
        return ProcessBounds(count, count)
    return ProcessBounds(*found)


def content(kind: str, count: int, bounds: ProcessBounds) -> dict[str, Any]:
    """Return the content of the file."""
    return {"schema": 1, kind: count, **({} if bounds.fixed else bounds._asdict())}


def _content(file: Path) -> dict[str, Any]:
    found = read_json(file)
    return found if isinstance(found, dict) else {}
