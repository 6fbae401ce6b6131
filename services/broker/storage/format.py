"""The file that says which format a data directory has."""

from __future__ import annotations

import json
from pathlib import Path

from services.broker.storage.files import Files

FORMAT = 1


class StoreError(Exception):
    """The data directory cannot be used (in use, of a newer version, unreadable): says which, and what to do."""


def check_format(directory: Path, files: Files) -> None:
    """Writes the file in a new directory. Raises StoreError, OSError."""
    path = directory / "FORMAT"
    if path.name not in files.list(directory):
        new = directory / "FORMAT.new"
        if new.name in files.list(directory):
            files.unlink(new)
        file = files.open(new, create=True)
        try:
            file.write(0, json.dumps({"format": FORMAT, "of": "enmasse broker"}).encode())
            file.sync()
        finally:
            file.close()
        files.rename(new, path)
        files.sync_dir(directory)
        return
    file = files.open(path)
    try:
        found = json.loads(file.read(0, 4096))["format"]
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{path} is not readable as a format file: restore it, or move the directory away") from None
    finally:
        file.close()
    if found != FORMAT:
        raise StoreError(
            f"{directory} has format {found}, this version reads {FORMAT}: "
            "run the version that wrote it, or choose another data directory"
        )
