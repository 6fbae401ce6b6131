"""Users and issuers in mounted Secrets, which this service may not read by the API: looked at again and again.

The keys `users.json` and `issuers.json` are those of the default address space, `SPACE.users.json` and
`SPACE.issuers.json` those of another one. A Secret holds 1 MiB, so there may be several.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from enmasse.model.configuration import ISSUERS, USERS
from enmasse.model.merged import Content, FilePart, Unreadable
from enmasse.model.names import DEFAULT_SPACE
from enmasse.model.tenants.spaces import space_file, split_file
from services.configserv.drivers.directory import Signature, content, signature

PREFIX = "secret/"
_NONE = b"{}"
_GONE = Unreadable("the Secret with the key users.json is gone: make it again (docs/kubernetes.md, Users)")


class MountedUsers:
    """Reader of the folders of Secrets: the first is that of the default address space, with `users.json`."""

    def __init__(self, users: Path, more: Sequence[Path], *, had_users: bool) -> None:
        """`had_users`: there has been a users.json, so that a missing one is an error; before, it means no users."""
        self._file = users
        self._folders = (users.parent, *more)
        self._had_users = had_users
        self._seen: list[tuple[str, Signature]] | None = None

    def has_changed(self) -> bool:
        """Return whether a file differs from what it was at the call before."""
        now = [(str(path), signature(path)) for path in self._paths()]
        before, self._seen = self._seen, now
        return now != before

    def contents(self) -> dict[str, Content]:
        """Return the contents of users.json and issuers.json, and of those of address spaces."""
        found: dict[str, Content] = {USERS: self._own(), ISSUERS: content(self._file.with_name(ISSUERS))}
        parts: dict[str, list[FilePart]] = {}
        for path in self._paths():
            file = _file_of(path.name)
            if path not in (self._file, self._file.with_name(ISSUERS)):
                parts.setdefault(file, []).append(_part(path, content(path)))
        for file, more in parts.items():
            own = found.get(file)
            first = (FilePart(file, own),) if isinstance(own, bytes) and own != _NONE else ()
            if isinstance(own, Unreadable):
                first = (FilePart(file, b"", own.reason),)
            found[file] = (*first, *more)
        return found

    def _own(self) -> Content:
        found = content(self._file)
        self._had_users = self._had_users or found is not None
        if found is None:
            return _GONE if self._had_users else _NONE
        return found

    def _paths(self) -> list[Path]:
        """Return the files of users and issuers, in the order of the folders and names."""
        found = [self._file, self._file.with_name(ISSUERS)]
        for folder in self._folders:
            try:
                names = sorted(name for name in os.listdir(folder) if _file_of(name))
            except OSError:  # a Secret that is not there has no folder, or an empty one
                continue
            found += [path for name in names if (path := folder / name) not in found]
        return found


def space_of_source(source: str) -> str:
    """Return the address space of a source of a file, or of the file itself."""
    prefix, _, key = source.rpartition("/")
    return split_file(_file_of(key) if prefix.startswith(PREFIX) else source).space


def _file_of(key: str) -> str:
    """Return the file of which a key of a Secret is a part; empty: of none."""
    for file in (USERS, ISSUERS):
        if key == file:
            return file
        if key.endswith(f".{file}") and (space := key.removesuffix(f".{file}")) and "." not in space:
            return space_file(space, file) if space != DEFAULT_SPACE else file
    return ""


def _part(path: Path, found: Content) -> FilePart:
    name = f"{PREFIX}{path.parent.name}/{path.name}"
    return FilePart(name, found) if isinstance(found, bytes) else FilePart(name, b"", "cannot be read")
