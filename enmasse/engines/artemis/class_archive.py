"""An archive of the classes that Artemis loads, shared by its processes: nearly half of the work of a start is saved.

Made once by a start that is thrown away, for one distribution and one Java; kept in the user's cache beside the
distribution. It is an optimisation: without it, or with one that Java rejects, a broker starts more slowly.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

from enmasse.engines.artemis import instance
from enmasse.engines.artemis.instance import MIB, Instance

_ACTIVE = b"AMQ221007"
"""Id of the log line of an Artemis that has started."""
_END_WITHIN = 120.0


def class_archive(home: Path, java: str) -> str | None:
    """Return the path of the archive, which is created if it is missing; None if it cannot be created."""
    try:
        program = os.path.realpath(java)
        key = hashlib.sha256(f"{program}:{os.stat(program).st_mtime_ns}".encode()).hexdigest()[:12]
        path = home.with_name(f"{home.name}-{key}.jsa")
        if not path.exists():
            _make(home, java, path)
        return str(path) if path.exists() else None
    except (OSError, subprocess.SubprocessError):
        return None


def _make(home: Path, java: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".artemis-") as name:
        scratch = Path(name)
        tmp, made = scratch / "tmp", scratch / path.name
        tmp.mkdir()
        one = Instance("archive", "127.0.0.1", 0, name, str(scratch / "data"), str(tmp), 64 * MIB, log_level="info")
        for file, text in instance.files(one).items():
            (scratch / file).write_text(text)
        program, *options = instance.command(one, str(home), java)
        command = [program, f"-XX:ArchiveClassesAtExit={made}", *options]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
        ) as process:
            assert process.stdout is not None
            too_late = threading.Timer(_END_WITHIN, process.kill)
            too_late.start()
            try:
                for line in process.stdout:
                    if _ACTIVE in line:
                        process.send_signal(signal.SIGTERM)
                process.wait()
            finally:
                too_late.cancel()
                process.kill()
        if made.exists():
            made.replace(path)
