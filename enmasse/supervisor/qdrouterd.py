"""Qpid Dispatch as the suite's router: search on PATH, start, and health probe."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from enmasse.supervisor.child import HealthProbe, foreign, written
from enmasse.supervisor.errors import StartError
from enmasse.supervisor.plan import EMBEDDED, Spec
from enmasse.supervisor.probe import LazyProbe

PROGRAM: Final = "qdrouterd"
OLDEST: Final = (1, 19)
_VERSION_SECONDS = 20.0
_REMEDY = (
    f"Install Apache Qpid Dispatch Router {OLDEST[0]}.{OLDEST[1]} or newer so that `{PROGRAM}` is on PATH, "
    f"or start with --router {EMBEDDED}."
)


def find() -> str:
    """Return the path of qdrouterd. Raises StartError if it is not on PATH, or too old."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise StartError(f"--router {PROGRAM}: no program {PROGRAM} is on PATH. {_REMEDY}")
    try:
        shown = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise StartError(f"--router {PROGRAM}: {path} --version failed: {error}. {_REMEDY}") from None
    version = re.match(r"\s*(\d+)\.(\d+)", shown.stdout)
    if shown.returncode != 0 or version is None:
        raise StartError(f"--router {PROGRAM}: {path} --version does not show a version. {_REMEDY}")
    if (int(version[1]), int(version[2])) < OLDEST:
        raise StartError(f"--router {PROGRAM}: {path} is version {shown.stdout.strip()[:40]}. {_REMEDY}")
    return path


class Qdrouterd:
    """Runs children of the engine `qdrouterd`. Their settings: `entities`, and `operators` (host:port)."""

    def __init__(self, path: str) -> None:
        self._path = path

    def prepare(self, spec: Spec, folder: Path) -> list[str]:
        """Write the router's configuration file, and return the command that starts it. Raises OSError."""
        file = written(folder / f"{spec.name}.json", spec.settings["entities"])
        return foreign(self._path, "--config", str(file))

    def probe(self, spec: Spec) -> HealthProbe:
        """Return the probe of the router's management."""
        return LazyProbe("enmasse.supervisor.qdrouterd_probe", "QdrouterdProbe", spec.settings["operators"])
