"""The file FORMAT, which states the format of a data directory."""

from __future__ import annotations

import json
from pathlib import Path

from enmasse.storage.decoding import decode_any
from services.broker.storage.journal.file_operations import Files, write_anew

FORMAT = 2
GROUPS = 3
"""The format of a directory that has had a transaction: earlier versions do not know the records of a group."""


class StoreError(Exception):
    """Raised if the data directory cannot be used (in use, newer format, unreadable); the text states what to do."""


def write_format(directory: Path, files: Files, format: int = FORMAT) -> None:
    """Record the format of the directory. Raises OSError."""
    write_anew(files, directory / "FORMAT", json.dumps({"format": format, "of": "enmasse broker"}).encode())


def check_format(directory: Path, files: Files) -> int:
    """Return the format of the directory, if this version reads it; write the file in a new directory. Raises
    StoreError, OSError."""
    path = directory / "FORMAT"
    if path.name not in files.list(directory):
        write_format(directory, files)
        return FORMAT
    file = files.open(path)
    try:
        found = decode_any(file.read(0, 4096))["format"]
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{path} is not readable as a format file: restore it, or move the directory away") from None
    finally:
        file.close()
    if found not in (FORMAT, GROUPS):
        raise StoreError(
            f"{directory} has format {found}, this version reads {FORMAT} and {GROUPS}: "
            "run the version that wrote it, or choose another data directory"
        )
    return int(found)
