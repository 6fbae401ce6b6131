"""Distributions of other products from the Maven repository: one pinned version each, unpacked into the user's cache.

Fetching needs `mvn` and the network, once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from enmasse.engines.engine import EngineUnavailable

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_FETCH_WITHIN = 600.0


class Distribution(NamedTuple):
    """An archive. `title`: product and version; `file`: its name; `folder`: the one folder in it; `sha256`: in hex."""

    title: str
    coordinate: str
    file: str
    folder: str
    sha256: str

    @property
    def home(self) -> Path:
        """The folder into which it is unpacked."""
        return cache() / self.folder

    def unpacked(self) -> Path:
        """Return `home`, fetched on first use; several processes may ask at once. Raises Unavailable."""
        home = self.home
        if home.is_dir():
            return home
        try:
            with self.alone():
                if not home.is_dir():
                    self._fetch()
        except OSError as error:
            raise EngineUnavailable(
                f"{self.title} cannot be kept in {error.filename or cache()}: {error.strerror or error}"
            ) from None
        return home

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Enter a section in which only one process at a time works on the files in the cache. Raises OSError."""
        cache().mkdir(parents=True, exist_ok=True)
        with (cache() / f".{self.folder}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def verify(self, archive: Path) -> None:
        """Check that the archive is the one that is pinned. Raises Unavailable if it is another."""
        with archive.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.sha256:
            raise EngineUnavailable(
                f"{archive.name} has SHA-256 {found}, expected {self.sha256}: it is damaged, or not what was published;"
                " nothing was unpacked"
            )

    def _fetch(self) -> None:
        mvn = shutil.which("mvn")
        if mvn is None:
            raise EngineUnavailable(
                f"mvn is not on PATH: it fetches {self.title} from the Maven repository, once. Install it"
                f" (Debian: apt-get install maven), or unpack {self.file} as {self.home}."
            )
        with tempfile.TemporaryDirectory(dir=cache(), prefix=f".{self.folder}-") as name:
            scratch = Path(name)
            # A repository of its own: nothing half-fetched stays in that of the user, and the archive is not kept.
            repository = f"-Dmaven.repo.local={scratch / 'maven'}"
            artifact = f"-Dartifact={self.coordinate}"
            self._run([mvn, "-B", "-q", "-ntp", repository, f"{_PLUGIN}:get", artifact, "-Dtransitive=false"])
            archives = list((scratch / "maven").rglob(self.file))
            if not archives:
                raise EngineUnavailable(
                    f"mvn did not fetch {self.coordinate}: the Maven repository that it is set up for has it not"
                )
            self.verify(archives[0])
            unpack(archives[0], scratch)
            (scratch / self.folder).rename(self.home)

    def _run(self, command: list[str]) -> None:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_WITHIN, check=False
            )
        except subprocess.TimeoutExpired:
            raise EngineUnavailable(
                f"mvn did not fetch {self.coordinate} within {_FETCH_WITHIN:.0f} s: is the Maven repository reached?"
            ) from None
        if done.returncode:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            shown = next(
                (line for line in lines if "ERROR" in line), lines[0] if lines else f"status {done.returncode}"
            )
            raise EngineUnavailable(
                f"mvn cannot fetch {self.coordinate}: {shown[:300].rstrip('.')}."
                " Look at the network, or at ~/.m2/settings.xml"
            )


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive that is known to be harmless; its files belong to this user. Python has filters for that
    since 3.11.4, and Debian 12 has 3.11.2."""
    with tarfile.open(archive) as packed:
        entries = packed.getmembers()
        for entry in entries:
            entry.uid, entry.gid, entry.uname, entry.gname = os.geteuid(), os.getegid(), "", ""
        packed.extractall(folder, entries)  # noqa: S202  see above


def cache() -> Path:
    """Return the folder of the user's cache for EnMasse."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "enmasse"
