"""The local driver: what shall run is written into files, what runs is read from one (docs/contracts.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from enmasse import log

_LOG = log.get()


class Wish(NamedTuple):
    """A broker that shall run."""

    flavor: str
    settings: dict[str, Any]


class Running(NamedTuple):
    """A broker process as the supervisor sees it."""

    host: str
    port: int
    ready: bool
    detail: str


class LocalDriver:
    """Files shared with the supervisor of one machine. (On Kubernetes another driver makes StatefulSets.)"""

    def __init__(self, desired: str, actual: str) -> None:
        self._desired = Path(desired)
        self._actual = Path(actual)
        self._seen: tuple[int, int] | None = None
        self._complained = ""

    def wishes(self) -> dict[str, Wish]:
        """What is wished for now: a restarted controller starts from it. Raises OSError, ValueError.

        A file that cannot be read is an error, not a broker that is not wanted: it may hold messages.
        """
        self._desired.mkdir(parents=True, exist_ok=True)
        found = {}
        for path in sorted(self._desired.iterdir()):
            if path.suffix != ".json" or path.name.startswith("."):
                continue
            value = msgspec.json.decode(path.read_bytes())
            settings, flavor = (value.get("settings"), value.get("flavor")) if isinstance(value, dict) else (None, None)
            if not isinstance(settings, dict) or not isinstance(flavor, str):
                raise ValueError(f"{path}: expected an object with settings and flavor")
            found[path.stem] = Wish(flavor, settings)
        return found

    def wish(self, name: str, wish: Wish) -> None:
        """A broker shall run with these settings. Raises OSError."""
        body = {"schema": 1, "name": name, "kind": "broker", "flavor": wish.flavor, "settings": wish.settings}
        path = self._desired / f"{name}.json"
        new = self._desired / f".{name}.json.new"
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(body)))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        _sync(self._desired)

    def unwish(self, name: str) -> None:
        """A broker is needed no more; its messages have been consumed. Raises OSError."""
        (self._desired / f"{name}.json").unlink(missing_ok=True)

    def running(self) -> dict[str, Running] | None:
        """What runs, where that may have changed since the last call; else None."""
        try:
            stat = self._actual.stat()
            mark = (stat.st_ino, stat.st_mtime_ns)
            if mark == self._seen:
                return None
            components = msgspec.json.decode(self._actual.read_bytes())["components"]
            found = {
                entry["name"]: Running(
                    entry.get("host") or "127.0.0.1",
                    entry.get("port") or 0,
                    bool(entry.get("ready")),
                    entry.get("detail") or "",
                )
                for entry in components
                if entry.get("kind") == "broker"
            }
        except FileNotFoundError:
            return None  # the supervisor has not started anything yet
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if str(error) != self._complained:
                self._complained = str(error)
                _LOG.warning("cannot read what runs", file=str(self._actual), reason=str(error))
            return None
        self._seen = mark
        self._complained = ""
        return found


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
