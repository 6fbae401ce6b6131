"""The local driver: what shall run is written into files, what runs is read from one (docs/contracts.md)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from enmasse import log

_LOG = log.get()


Mark = tuple[int, int, int]


class Wish(NamedTuple):
    """A broker that shall run."""

    flavor: str
    settings: dict[str, Any]


class Running(NamedTuple):
    """A broker process as the supervisor sees it.

    `settings`: those it was started with; None: not told. `run`: differs after each start; empty: it does not run.
    """

    host: str
    port: int
    ready: bool
    detail: str
    settings: dict[str, Any] | None = None
    run: str = ""


class LocalDriver:
    """Files shared with the supervisor of one machine. (On Kubernetes another driver makes StatefulSets.)"""

    def __init__(self, desired: str, actual: str) -> None:
        self._desired = Path(desired)
        self._actual = Path(actual)
        self._written: dict[str, Mark | None] = {}
        """Each wish's file as it was read or written."""
        self._seen: Mark | None = None
        self._complained = ""

    def wishes(self) -> tuple[dict[str, Wish], dict[str, str]]:
        """What is wished for now: a restarted controller starts from it. And why a file tells no wish, by broker.

        A file that cannot be read is not a broker that is not wanted: it may hold messages. Raises OSError.
        """
        self._desired.mkdir(parents=True, exist_ok=True)
        found, damaged = {}, {}
        for path in sorted(self._desired.iterdir()):
            if path.suffix != ".json" or path.name.startswith("."):
                continue
            try:
                found[path.stem] = self._read(path)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, RecursionError) as error:
                damaged[path.stem] = f"{path}: {error}"
        return found, damaged

    def _read(self, path: Path) -> Wish:
        mark = _mark(path)
        if mark is None and path.exists():  # to open a pipe would be to wait for whoever writes to it
            raise ValueError("is not a file")
        value = msgspec.json.decode(path.read_bytes())
        settings, flavor = (value.get("settings"), value.get("flavor")) if isinstance(value, dict) else (None, None)
        if not isinstance(settings, dict) or not isinstance(flavor, str):
            raise ValueError("expected an object with settings and flavor")
        self._written[path.stem] = mark
        return Wish(flavor, settings)

    def wish(self, name: str, wish: Wish) -> None:
        """A broker shall run with these settings. Raises OSError."""
        body = {"schema": 1, "name": name, "kind": "broker", "flavor": wish.flavor, "settings": wish.settings}
        path = self._desired / f"{name}.json"
        new = self._desired / f".{name}.json.new"
        self._desired.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(body)))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        self._written[name] = _mark(path)
        _sync(self._desired)

    def unwish(self, name: str) -> None:
        """A broker is needed no more; its messages have been consumed. Raises OSError."""
        (self._desired / f"{name}.json").unlink(missing_ok=True)
        self._written.pop(name, None)

    def altered(self) -> list[str]:
        """The wishes whose files somebody else has deleted or changed."""
        return [name for name, mark in self._written.items() if _mark(self._desired / f"{name}.json") != mark]

    def running(self) -> dict[str, Running] | None:
        """What runs, where that may have changed since the last call; else None."""
        try:
            mark = _mark(self._actual)
            if mark is None or mark == self._seen:
                return None  # where there is none, the supervisor has not started anything yet
            components = msgspec.json.decode(self._actual.read_bytes())["components"]
            found = {
                entry["name"]: Running(
                    entry.get("host") or "127.0.0.1",
                    entry.get("port") or 0,
                    bool(entry.get("ready")),
                    entry.get("detail") or "",
                    entry.get("settings"),
                    str(entry.get("pid") or ""),
                )
                for entry in components
                if entry.get("kind") == "broker"
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if str(error) != self._complained:
                self._complained = str(error)
                _LOG.warning("cannot read what runs", file=str(self._actual), reason=str(error))
            return None
        self._seen = mark
        self._complained = ""
        return found


def _mark(path: Path) -> Mark | None:
    """What differs when the file does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
