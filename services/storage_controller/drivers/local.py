"""The local driver: writes desired brokers into files and reads running ones from a file (docs/contracts.md)."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from enmasse.engines import EMBEDDED, choices
from enmasse.logs import log
from enmasse.storage.decoding import decode_any
from enmasse.storage.durable import replace_file
from services.storage_controller.drivers.driver import DesiredBroker, DriverError, Manifest, RunningBroker

_LOG = log.get()

FileMark = tuple[int, int, int]


class LocalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="local"):
    """The local driver's settings: the folder `desired` and the file `actual`, shared with the supervisor."""

    desired: str
    actual: str
    engine: str = EMBEDDED

    def __post_init__(self) -> None:
        choices.broker(self.engine)


class LocalDriver:
    """Brokers as processes of one machine's supervisor (a BrokerDriver)."""

    def __init__(self, settings: LocalSettings) -> None:
        self.engine = choices.broker(settings.engine)
        self._desired = Path(settings.desired)
        self._actual = Path(settings.actual)
        self._applied: dict[str, dict[str, Any]] = {}
        """Broker → settings in its file."""
        self._written: dict[str, FileMark | None] = {}
        """Broker → mark of its file when last read or written."""
        self._seen: FileMark | None = None
        self._components: list[dict[str, Any]] = []
        self._complained = ""

    def manifest(self, broker: DesiredBroker) -> Manifest:
        """Return the settings of a broker by the names of services/broker; those of other products are made from them.
        Paths are relative to the brokers' data folder."""
        settings = {
            "data_dir": broker.name if broker.persisted else None,
            "global_max_size": broker.memory,
            "page_dir": f"{broker.name}-pages",
            **broker.limits_and_defaults(),
        }
        return _manifest(broker.flavor, settings)

    async def applied(self) -> tuple[dict[str, Manifest], dict[str, str]]:
        found: dict[str, Manifest] = {}
        damaged: dict[str, str] = {}
        try:
            self._desired.mkdir(parents=True, exist_ok=True)
            paths = sorted(self._desired.iterdir())
        except OSError as error:
            raise DriverError(str(error)) from None
        for path in paths:
            if path.suffix != ".json" or path.name.startswith("."):
                continue
            try:
                found[path.stem] = self._read(path)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                damaged[path.stem] = f"{path}: {error}"
        return found, damaged

    def _read(self, path: Path) -> Manifest:
        mark = _mark(path)
        if mark is None and path.exists():  # opening a pipe would block until a writer opens it
            raise ValueError("is not a file")
        value = decode_any(path.read_bytes())
        settings, flavor = (value.get("settings"), value.get("flavor")) if isinstance(value, dict) else (None, None)
        if not isinstance(settings, dict) or not isinstance(flavor, str):
            raise ValueError("expected an object with settings and flavor")
        if value.get("kind") != self.engine.kind:
            raise ValueError(
                f"kind: expected {self.engine.kind}, because this suite's brokers are of engine {self.engine.name}"
            )
        self._written[path.stem], self._applied[path.stem] = mark, settings
        return _manifest(flavor, settings)

    async def apply(self, name: str, manifest: Manifest) -> None:
        body = {
            "schema": 1,
            "name": name,
            "kind": self.engine.kind,
            "flavor": manifest.flavor,
            "settings": manifest.content,
        }
        path = self._desired / f"{name}.json"
        try:
            self._desired.mkdir(parents=True, exist_ok=True)
            replace_file(path, msgspec.json.format(msgspec.json.encode(body)))
            self._written[name], self._applied[name] = _mark(path), manifest.content
        except OSError as error:
            raise DriverError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None

    async def delete(self, name: str) -> None:
        try:
            (self._desired / f"{name}.json").unlink(missing_ok=True)
        except OSError as error:
            raise DriverError(str(error)) from None
        self._written.pop(name, None)
        self._applied.pop(name, None)

    async def altered(self) -> list[str]:
        return [name for name, mark in self._written.items() if _mark(self._desired / f"{name}.json") != mark]

    async def running(self) -> Mapping[str, RunningBroker]:
        try:
            mark = _mark(self._actual)
            if mark is not None and mark != self._seen:  # no file: the supervisor has not started a broker yet
                components = decode_any(self._actual.read_bytes())["components"]
                self._components = [dict(entry) for entry in components if entry.get("kind") == "broker"]
                self._seen, self._complained = mark, ""
            return {entry["name"]: self._running(entry) for entry in self._components}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if str(error) != self._complained:
                self._complained = str(error)
                _LOG.warning("controller.processes.unreadable", file=str(self._actual), reason=str(error))
            return {}

    def still_needed(self, name: str) -> None:
        """Do nothing: the status of the broker's addresses shows that already."""

    def _running(self, entry: dict[str, Any]) -> RunningBroker:
        settings, applied = entry.get("settings"), self._applied.get(entry["name"])
        return RunningBroker(
            entry.get("host") or "127.0.0.1",
            entry.get("port") or 0,
            bool(entry.get("ready")),
            entry.get("detail") or "",
            str(entry.get("pid") or ""),
            settings is None or applied is None or settings == applied,
        )


def _manifest(flavor: str, settings: dict[str, Any]) -> Manifest:
    storage = settings.get("data_dir")
    return Manifest(flavor, storage if isinstance(storage, str) else None, settings)


def _mark(path: Path) -> FileMark | None:
    """Return a value that changes with the file; None if the file does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None
