"""Copies of folders whose content can be proved later: a manifest with the SHA-256 of each file, written last."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
SCHEMA = 1
PIECE = 1 << 20


class Damaged(Exception):
    """A copy is not what its manifest says; the text names the file and the reason."""


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the paths of regular files below a folder, relative to it and in order. Links and sockets are left out."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder)


def copy_file(source: Path, target: Path) -> dict[str, Any]:
    """Copy a file durably, with its mode. Return its size, mode and SHA-256, of what was read. Raises OSError."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as reading:
        mode = os.fstat(reading.fileno()).st_mode & 0o777
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as writing:
            while piece := reading.read(PIECE):
                digest.update(piece)
                size += len(piece)
                writing.write(piece)
            writing.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
    return {"size": size, "mode": mode, "sha256": digest.hexdigest()}


def copy_folder(source: Path, target: Path, *, live: bool = False) -> None:
    """Copy all files below a folder. `live`: files in it are replaced and removed meanwhile; those that are gone are
    left out. Raises OSError."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in files_below(source):
        try:
            copy_file(source / path, target / path)
        except FileNotFoundError:
            if not live:
                raise


def facts_of(path: Path) -> dict[str, Any]:
    """Return size, mode and SHA-256 of a file. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        mode = os.fstat(stream.fileno()).st_mode & 0o777
        while piece := stream.read(PIECE):
            digest.update(piece)
            size += len(piece)
    return {"size": size, "mode": mode, "sha256": digest.hexdigest()}


def seal(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest of a finished copy, with the facts of each file and those given. Raises OSError."""
    from enmasse.storage.files import write_json

    sync_folders(folder)
    files = {path.as_posix(): facts_of(folder / path) for path in files_below(folder)}
    manifest = {"schema": SCHEMA, **facts, "files": files}
    write_json(folder / MANIFEST, manifest, durable=True)
    return manifest


def sync_folders(folder: Path) -> None:
    """Put the names of all files below a folder on disk. Raises OSError."""
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def checked(folder: Path) -> dict[str, Any]:
    """Return the manifest of a copy whose files are all as it says. Raises Damaged, OSError."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        files = manifest["files"]
        stated = [(facts["size"], facts["sha256"]) for facts in files.values()]
        if manifest["schema"] != SCHEMA or not isinstance(manifest["started"], str):
            raise ValueError
    except FileNotFoundError:
        raise Damaged(f"{folder}: has no {MANIFEST}: it is no backup, or one that was interrupted") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{folder / MANIFEST}: is damaged, or of a newer version") from None
    there = {path.as_posix() for path in files_below(folder)} - {MANIFEST}
    if missing := sorted(files.keys() - there):
        raise Damaged(f"{folder / missing[0]}: is missing")
    if more := sorted(there - files.keys()):
        raise Damaged(f"{folder / more[0]}: is not in {MANIFEST}")
    for name, facts in zip(files, stated, strict=True):
        found = facts_of(folder / name)
        if (found["size"], found["sha256"]) != facts:
            raise Damaged(f"{folder / name}: has another content than when it was made")
    return dict(manifest)
