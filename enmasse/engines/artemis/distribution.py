"""The distribution of Apache ActiveMQ Artemis: one pinned version, from the Maven repository, in the user's cache.

Fetching needs `mvn` and the network, once. Running needs `java` only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from enmasse.engines.artemis.archive import class_archive
from enmasse.engines.engine import Unavailable

VERSION = "2.56.0"
COORDINATE = f"org.apache.artemis:apache-artemis:{VERSION}:tar.gz:bin"
SHA256 = "df469079b6388c8c6276197388a0f5ee0d64d0ca42d7f0e2ca5e392e21b955de"
JAVA = 17
"""The oldest Java that this version runs on."""
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_FETCH_WITHIN = 600.0


class Ready(NamedTuple):
    """Files that run an Artemis: arguments of `instance.command`."""

    home: str
    java: str
    archive: str | None


def ready() -> Ready:
    """Fetches and makes what is missing, once: that takes half a minute. Raises Unavailable."""
    program, folder = check_java(), home()
    with contextlib.suppress(OSError), _alone(folder.parent):
        return Ready(str(folder), program, class_archive(folder, program))
    return Ready(str(folder), program, None)


def home() -> Path:
    """Return the unpacked distribution, fetched on first use; several processes may ask at once. Raises Unavailable."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "enmasse"
    folder = cache / f"apache-artemis-{VERSION}"
    if (folder / "lib").is_dir():
        return folder
    try:
        with _alone(cache):
            if not (folder / "lib").is_dir():
                _fetch(cache, folder)
    except OSError as error:
        raise Unavailable(f"Artemis cannot be kept in {error.filename or cache}: {error.strerror or error}") from None
    return folder


def java() -> str:
    """Return the Java to run it with: that of JAVA_HOME, otherwise that on PATH. Raises Unavailable."""
    at_home = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else None
    found = str(at_home) if at_home is not None and os.access(at_home, os.X_OK) else shutil.which("java")
    if found is None:
        raise Unavailable(
            f"java is not on PATH: Artemis {VERSION} runs on Java {JAVA} or newer. Install it"
            " (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
        )
    return found


def check_java() -> str:
    """Return the path of `java` if its version is new enough.

    It is asked for its version, which takes a tenth of a second. Raises Unavailable.
    """
    program = java()
    try:
        asked = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
        told = asked.stdout + asked.stderr
    except (OSError, subprocess.SubprocessError) as error:
        told = str(error)
    # `openjdk version "17.0.15" 2025-04-15`; Java 8 calls itself "1.8.0_452".
    version = re.search(r'version "(?:1\.)?([0-9]+)', told)
    if version is None:
        line = told.strip().splitlines()[0] if told.strip() else "no answer"
        raise Unavailable(f"{program} does not show its version ({line}): Artemis {VERSION} needs Java {JAVA} or newer")
    if int(version[1]) < JAVA:
        raise Unavailable(
            f"{program} is Java {version[1]}: Artemis {VERSION} needs Java {JAVA} or newer. Install it"
            " (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
        )
    return program


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """One process at a time fetches into the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".artemis.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(cache: Path, folder: Path) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise Unavailable(
            f"mvn is not on PATH: it fetches Artemis {VERSION} from the Maven repository, once. Install it"
            f" (Debian: apt-get install maven), or unpack apache-artemis-{VERSION}-bin.tar.gz as {folder}."
        )
    with tempfile.TemporaryDirectory(dir=cache, prefix=".artemis-") as name:
        scratch = Path(name)
        # A repository of its own: nothing half-fetched stays in that of the user, and the archive is not kept.
        repository = f"-Dmaven.repo.local={scratch / 'maven'}"
        _maven(
            [mvn, "-B", "-q", "-ntp", repository, f"{_PLUGIN}:get", f"-Dartifact={COORDINATE}", "-Dtransitive=false"]
        )
        archives = list((scratch / "maven").rglob(f"apache-artemis-{VERSION}-bin.tar.gz"))
        if not archives:
            raise Unavailable(f"mvn did not fetch {COORDINATE}: the Maven repository that it is set up for has it not")
        verify(archives[0])
        shutil.unpack_archive(archives[0], scratch, filter="data")
        (scratch / f"apache-artemis-{VERSION}").rename(folder)


def _maven(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_WITHIN, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"mvn did not fetch {COORDINATE} within {_FETCH_WITHIN:.0f} s: is the Maven repository reached?"
        ) from None
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        shown = next((line for line in lines if "ERROR" in line), lines[0] if lines else f"status {done.returncode}")
        raise Unavailable(
            f"mvn cannot fetch {COORDINATE}: {shown[:300].rstrip('.')}. Look at the network, or at ~/.m2/settings.xml"
        )


def verify(archive: Path) -> None:
    """Check that the archive is the one that is pinned. Raises Unavailable if it is another."""
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise Unavailable(
            f"{archive.name} has SHA-256 {found}, expected {SHA256}: it is damaged, or not what was published;"
            " nothing was unpacked"
        )
