"""What must survive configserv: the last good configuration, and which addresses are forced."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TypeVar

import msgspec

from enmasse.model.configuration import SCHEMA, State
from enmasse.process import Fatal

_CONFIGURATION, _FORCED = "configuration.json", "forced.json"


class _Version(msgspec.Struct):
    schema: int


class _Forced(msgspec.Struct):
    schema: int = SCHEMA
    addresses: list[str] = []


T = TypeVar("T")


class Store:
    """Two files in `directory`, written by atomic rename and synced. Raises process.Fatal where it cannot be used."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Fatal(f"{directory}: {error.strerror}; give a directory that can be written in 'data_dir'") from None

    def configuration(self) -> State:
        """The last good configuration; an empty one at a first start."""
        return self._load(_CONFIGURATION, State) or State()

    def forced(self) -> list[str]:
        found = self._load(_FORCED, _Forced)
        return found.addresses if found is not None else []

    def save_configuration(self, state: State) -> None:
        """Raises OSError."""
        self._save(_CONFIGURATION, msgspec.json.encode(state))

    def save_forced(self, names: list[str]) -> None:
        """Raises OSError."""
        self._save(_FORCED, msgspec.json.encode(_Forced(addresses=names)))

    def _load(self, name: str, kind: type[T]) -> T | None:
        path = self._directory / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Fatal(f"{path}: {error.strerror}; make it readable") from None
        try:
            version = msgspec.json.decode(data, type=_Version).schema
            if version > SCHEMA:
                raise Fatal(f"{path}: written by a newer version (schema {version}, this one reads {SCHEMA}); upgrade")
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise Fatal(f"{path}: is damaged ({error}); remove it: the configuration is then read anew") from None

    def _save(self, name: str, data: bytes) -> None:
        path = self._directory / name
        temporary = path.with_suffix(".new")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
