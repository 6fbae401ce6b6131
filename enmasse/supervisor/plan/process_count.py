"""The stored number of processes of a kind, as `enmasse scale` sets it."""

from __future__ import annotations

from pathlib import Path

from enmasse.storage.files import read_json


def stored(file: Path, kind: str, most: int, wanted: int | None = None) -> int:
    """Return the number of processes, from 1 to `most`: `wanted`, else the one in the file; 1 if the file does not
    exist."""
    if wanted is None:
        content = read_json(file)
        wanted = content.get(kind) if isinstance(content, dict) else None
    return min(max(wanted, 1), most) if isinstance(wanted, int) else 1
