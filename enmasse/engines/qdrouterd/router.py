"""Qpid Dispatch as the suite's router: search on PATH, start, configuration file."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from enmasse.engines.engine import EngineUnavailable, Entities, RouterEngine
from enmasse.engines.program import HealthProbe, LazyProbe, Program, Spec, foreign
from enmasse.identity.processes.roles import Listener
from enmasse.storage.files import write_changed_json

PROGRAM: Final = "qdrouterd"
MESH: Final = Listener.MESH.value
SCRAM: Final = "SCRAM-SHA-256"
OLDEST: Final = (1, 19)
_VERSION_SECONDS = 20.0
_REMEDY = f"Install Apache Qpid Dispatch Router {OLDEST[0]}.{OLDEST[1]} or newer so that `{PROGRAM}` is on PATH"
_LEVELS = {"debug": "debug+", "info": "notice+", "warning": "warning+", "error": "error+"}
"""Our levels → Dispatch's: its `info` has several lines for each connection."""


def find() -> str:
    """Return the path of qdrouterd. Raises Unavailable if it is not on PATH, or too old."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise EngineUnavailable(f"no program {PROGRAM} is on PATH. {_REMEDY}")
    try:
        shown = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineUnavailable(f"{path} --version failed: {error}. {_REMEDY}") from None
    version = re.match(r"\s*(\d+)\.(\d+)", shown.stdout)
    if shown.returncode != 0 or version is None:
        raise EngineUnavailable(f"{path} --version does not show a version. {_REMEDY}")
    if (int(version[1]), int(version[2])) < OLDEST:
        raise EngineUnavailable(f"{path} is version {shown.stdout.strip()[:40]}. {_REMEDY}")
    return path


class Qdrouterd:
    """Runs children of the engine `qdrouterd`. Their settings: `entities`, `operators` (host:port), and `run` (the
    folder with the operator's secret)."""

    def __init__(self, path: str) -> None:
        self._path = path

    def prepare(self, spec: Spec, folder: Path) -> list[str]:
        """Write the router's configuration file, and return the command that starts it. Raises OSError."""
        file = write_changed_json(folder / f"{spec.name}.json", spec.settings["entities"])
        return foreign(self._path, "--config", str(file))

    def probe(self, spec: Spec) -> HealthProbe:
        """Return the probe of the router's management."""
        settings = spec.settings
        return LazyProbe("enmasse.engines.qdrouterd.probe", "QdrouterdProbe", settings["operators"], settings["run"])


def _find(service: Program) -> Program:
    return Qdrouterd(find())


def _settings(
    name: str, entities: Entities, address: Callable[[str], str], log_level: str, secret: str
) -> dict[str, Any]:
    """Return Dispatch's configuration file for these entities of the embedded router, and its listener for
    operators."""
    made: Entities = [["log", {"module": "DEFAULT", "enable": _LEVELS[log_level], "outputFile": "stderr"}]]
    for kind, attributes in entities:
        known = {key: value for key, value in attributes.items() if key not in ("management", "access")}
        if kind == "connector":
            known |= {"saslUsername": name, "saslPassword": f"file:{secret}"}
        elif "access" in attributes:
            plugin = f"{attributes['access']}-peers"
            made.append(_asked(plugin, address(f"authserv/{attributes['access']}")))
            known["saslPlugin"] = plugin
        made.append([kind, known])
    operators = next(f"{a['host']}:{a['port']}" for _, a in entities if a.get("name") == "operators")
    return {"operators": operators, "run": str(Path(secret).parent), "entities": made}


def _asked(name: str, at: str) -> list[Any]:
    """Return the entity of a listener of the authentication service, which knows the processes and their roles."""
    host, _, port = at.rpartition(":")
    return ["authServicePlugin", {"name": name, "host": host, "port": port}]


ROUTER = RouterEngine(
    PROGRAM,
    help=f"{PROGRAM}: Apache Qpid Dispatch 1.19 from PATH",
    shares_ports=False,
    serves_http=False,
    find=_find,
    settings=_settings,
)
