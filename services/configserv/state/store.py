"""State that survives configserv: the last good configuration and the forced addresses."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from enmasse.logs import log
from enmasse.model.configuration import SCHEMA, AppliedState
from enmasse.model.jsonfile import Problem
from enmasse.model.names import AddressName
from enmasse.process.runner import Fatal, spawn
from enmasse.storage.decoding import decode
from enmasse.storage.disk_errors import disk_error
from enmasse.storage.durable import replace_file

_CONFIGURATION, _FORCED = "configuration.json", "forced.json"
_LOST = {
    _CONFIGURATION: "an entry that is invalid in the files now has lost its last valid version",
    _FORCED: "repeat orders to discard addresses by force",
}
_DAMAGED = ".damaged"
MAX_BYTES = 512 * 1024 * 1024
"""Bytes of either file at most: more than the canonical form of the largest configuration files."""


class _Version(msgspec.Struct):
    schema: int


class ForcedNames(msgspec.Struct):
    """Stored form of the forced addresses."""

    schema: int = SCHEMA
    addresses: list[AddressName] = []
    orders: dict[str, str] = {}
    """ConfigMap → id of its last order that was carried out (enmasse/kubernetes/forced.py)."""


T = TypeVar("T")


class Store(Protocol):
    """State that survives the process, on disk or in a ConfigMap."""

    def configuration(self) -> AppliedState:
        """Return the last good configuration; an empty one at a first start."""

    def forced(self) -> list[AddressName]:
        """Return the forced addresses as saved."""

    async def save(self, state: AppliedState) -> None:
        """Save the configuration, without blocking the event loop. Raises OSError."""

    def save_forced(self, names: list[AddressName], done: Callable[[], None]) -> None:
        """Save the forced addresses, without blocking the event loop; call `done` once they are saved, or cannot be,
        which is logged or one of the problems."""

    @property
    def has_configuration(self) -> bool:
        """Whether the last good configuration is still stored."""

    def problems(self) -> list[Problem]:
        """Return the problems of the stored state."""


def decoded(data: bytes, kind: type[T], where: str) -> T:
    """Decode saved state. Raises ValueError if it is damaged, Fatal if a newer version wrote it."""
    version = decode(data, _Version).schema
    if version > SCHEMA:
        raise Fatal(
            "configserv.data.newer-format",
            f"{where}: written by a newer version (schema {version}, this one reads {SCHEMA}); upgrade",
        )
    return decode(data, kind)


def has_its_flavors(state: AppliedState) -> bool:
    """Return whether all flavors that addresses name are there; if not, a part of the state was lost."""
    return {address.flavor for address in state.addresses.values()} - {None} <= state.flavors.keys()


class ConfigStore:
    """Two files in `directory`, written by atomic rename and synced. Raises process.Fatal if it cannot be used.

    A damaged file is set aside and counts as missing: its content is lost.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._forced: list[AddressName] = []
        """Forced addresses that are saved, or being saved."""
        self._saving: list[Callable[[], None]] = []
        """Called after the next write of the forced addresses."""
        self._writing: asyncio.Task[None] | None = None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Fatal(
                "configserv.data.not-writable",
                f"{directory}: {disk_error(error)}, or give another directory in 'data_dir'",
            ) from None

    def configuration(self) -> AppliedState:
        """Return the last good configuration; an empty one at a first start."""
        state = self._load(_CONFIGURATION, AppliedState) or AppliedState()
        if not has_its_flavors(state):
            self._set_aside(_CONFIGURATION, "it has addresses of flavors that it does not have")
            return AppliedState()
        return state

    def forced(self) -> list[AddressName]:
        """Return the forced addresses as saved; none if their file is damaged, which is set aside."""
        found = self._load(_FORCED, ForcedNames)
        return found.addresses if found is not None else []

    async def save(self, state: AppliedState) -> None:
        """Save the configuration in a thread. Raises OSError."""
        await asyncio.to_thread(self._save_configuration, state)

    def _save_configuration(self, state: AppliedState) -> None:
        self._save(_CONFIGURATION, msgspec.json.encode(state))

    def save_forced(self, names: list[AddressName], done: Callable[[], None]) -> None:
        """Save the forced addresses in a thread, then call `done`. A failure is logged."""
        self._forced = names
        self._saving.append(done)
        if self._writing is None:
            self._writing = spawn(self._write_forced(), "save forced addresses")

    async def _write_forced(self) -> None:
        """Write the newest list until none is left to be written."""
        try:
            while self._saving:
                saved, self._saving = self._saving, []
                data = msgspec.json.encode(ForcedNames(addresses=self._forced))
                try:
                    await asyncio.to_thread(self._save, _FORCED, data)
                except OSError as error:
                    log.get().error("configserv.force.not-saved", reason=disk_error(error))
                for done in saved:
                    done()
        finally:
            self._writing = None

    @property
    def has_configuration(self) -> bool:
        """Whether the file of the last good configuration still exists."""
        return os.path.exists(self._directory / _CONFIGURATION)  # Path.exists() raises where a folder is forbidden

    def problems(self) -> list[Problem]:
        """Return a problem for each damaged file that was set aside and still exists."""
        try:
            names = sorted(name for name in os.listdir(self._directory) if _DAMAGED in name)
        except OSError:
            return []
        found = []
        for name in names:
            file = name.partition(_DAMAGED)[0]
            if file in _LOST:
                path = self._directory / name
                reason = f"was damaged and is kept as {path}; {_LOST[file]}. Remove that file when you have seen it"
                found.append(Problem(file=file, reason=reason))
        return found

    def _load(self, name: str, kind: type[T]) -> T | None:
        path = self._directory / name
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):  # opening a pipe would block until a writer opens it
                raise ValueError("it is not a file")
            if found.st_size > MAX_BYTES:
                raise ValueError(f"it is larger than {MAX_BYTES} bytes")
            return decoded(path.read_bytes(), kind, str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._set_aside(name, f"it cannot be read: {disk_error(error)}")
            return None
        except ValueError as error:
            self._set_aside(name, str(error))
            return None

    def _set_aside(self, name: str, reason: str) -> None:
        """Rename a damaged file, without overwriting an earlier one, for repair by hand. Raises Fatal."""
        path = self._directory / name
        number, kept = 1, path.with_name(name + _DAMAGED)
        while os.path.lexists(kept):
            number += 1
            kept = path.with_name(f"{name}{_DAMAGED}-{number}")
        try:
            path.rename(kept)
        except OSError as error:
            raise Fatal(
                "configserv.data.damaged",
                f"{path}: is damaged ({reason}) and cannot be set aside: {error.strerror}; move it away",
            ) from None
        log.get().error("configserv.data.set-aside", file=str(path), reason=reason, kept=str(kept), lost=_LOST[name])

    def _save(self, name: str, data: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        replace_file(self._directory / name, data)
