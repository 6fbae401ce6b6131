"""The distribution of Apache ActiveMQ Artemis: one pinned version, from the Maven repository, in the user's cache.

Fetching needs `mvn` and the network, once. Running needs `java` only.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from enmasse.engines.artemis.class_archive import class_archive
from enmasse.engines.engine import EngineUnavailable
from enmasse.engines.maven import Distribution

VERSION = "2.56.0"
ARTEMIS = Distribution(
    title=f"Artemis {VERSION}",
    coordinate=f"org.apache.artemis:apache-artemis:{VERSION}:tar.gz:bin",
    file=f"apache-artemis-{VERSION}-bin.tar.gz",
    folder=f"apache-artemis-{VERSION}",
    sha256="df469079b6388c8c6276197388a0f5ee0d64d0ca42d7f0e2ca5e392e21b955de",
)
JAVA = 17
"""The oldest Java that this version runs on."""


class Ready(NamedTuple):
    """Files that run an Artemis: arguments of `instance.command`."""

    home: str
    java: str
    archive: str | None


def ready() -> Ready:
    """Fetches and makes what is missing, once: that takes half a minute. Raises Unavailable."""
    program, folder = check_java(), home()
    with contextlib.suppress(OSError), ARTEMIS.alone():
        return Ready(str(folder), program, class_archive(folder, program))
    return Ready(str(folder), program, None)


def home() -> Path:
    """Return the unpacked distribution, fetched on first use; several processes may ask at once. Raises Unavailable."""
    return ARTEMIS.unpacked()


def java() -> str:
    """Return the Java to run it with: that of JAVA_HOME, otherwise that on PATH. Raises Unavailable."""
    at_home = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else None
    found = str(at_home) if at_home is not None and os.access(at_home, os.X_OK) else shutil.which("java")
    if found is None:
        raise EngineUnavailable(
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
        raise EngineUnavailable(
            f"{program} does not show its version ({line}): Artemis {VERSION} needs Java {JAVA} or newer"
        )
    if int(version[1]) < JAVA:
        raise EngineUnavailable(
            f"{program} is Java {version[1]}: Artemis {VERSION} needs Java {JAVA} or newer. Install it"
            " (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
        )
    return program
