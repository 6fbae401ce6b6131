"""Make the archive of this version: `python -m tests.upgrade.archive`, once for each release (docs/releasing.md)."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from enmasse import __version__
from enmasse.engines import maven
from enmasse.testing import Suite, running
from tests.upgrade import content

FOLDER = Path(__file__).parent
DERIVED = ("logs", "run", "lock")
"""Parts of the data folder that every start writes."""


def make(target: Path) -> None:
    """Write the configuration, the data folder and a spool of a suite of this version into a compressed archive."""
    with tempfile.TemporaryDirectory() as folder:
        with running(Path(folder), content.ADDRESSES, options=()) as suite:
            suite.up()
            content.write(suite, Path(folder) / "spool")
        with tarfile.open(target, "w:xz") as archive:
            for name in ("config", "data", "spool"):
                archive.add(Path(folder) / name, name, filter=kept)


def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if entry.name in {f"data/{name}" for name in DERIVED} or not (entry.isreg() or entry.isdir()) else entry


def unpack(archive: Path, folder: Path) -> Suite:
    """Return a suite on the content of an archive, not started yet."""
    maven.unpack(archive, folder)
    return Suite(folder, options=())


if __name__ == "__main__":
    target = FOLDER / f"{__version__}.tar.xz"
    make(target)
    print(f"{target}: {target.stat().st_size:,} bytes")
