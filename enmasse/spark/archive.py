"""The archive for executors: this package and what it needs beside PySpark, which a cluster has itself.

`python -m enmasse.spark.archive FILE.tar.gz` writes it for spark-submit's `--archives FILE.tar.gz#enmasse-site`, with
`spark.executorEnv.PYTHONPATH=./enmasse-site`. Executors need the same release of Python and the same kind of machine
as the one it was made on: some of the packages have compiled parts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import enmasse
from enmasse.engines.maven import cache

OWN = ("enmasse", "spark")
"""Distribution and extra whose requirements are packed."""
LEFT_OUT = frozenset({"pyspark", "py4j"})
"""Spark's own distribution brings these."""
FOLDERS_LEFT_OUT = frozenset({"__pycache__", "tests", "include"})
"""Folders of packages with what other interpreters have compiled, tests, and headers of C."""
KEPT = 86400.0
REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)")


def packages() -> list[metadata.Distribution]:
    """Return the distributions that executors need, without enmasse and Spark, by name."""
    found: dict[str, metadata.Distribution] = {}
    wanted = list(required(metadata.distribution(OWN[0]), OWN[1]))
    while wanted:
        name = wanted.pop()
        if name in found or name in LEFT_OUT or name == OWN[0]:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # a marker leaves it out here
            continue
        wanted += required(found[name], "")
    return [found[name] for name in sorted(found)]


def required(package: metadata.Distribution, extra: str) -> Iterator[str]:
    """Yield the names that a distribution requires, those of one of its extras included."""
    for line in package.requires or ():
        of_extra = re.search(r"extra\s*==\s*[\"']([^\"']+)[\"']", line)
        if of_extra is None or of_extra[1] == extra:
            name = REQUIREMENT.match(line)
            assert name is not None
            yield re.sub(r"[-_.]+", "-", name[1]).lower()


def files() -> Iterator[tuple[Path, str]]:
    """Yield the files to pack, and the name of each in the archive."""
    root = Path(enmasse.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.is_file() and FOLDERS_LEFT_OUT.isdisjoint(path.relative_to(root).parts):
            yield path, f"enmasse/{path.relative_to(root)}"
    for package in packages():
        for file in package.files or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and FOLDERS_LEFT_OUT.isdisjoint(file.parts) and path.is_file():
                yield path, str(file)


def digest() -> str:
    """Return what identifies the content: enmasse's files, and the versions of the other distributions."""
    found = hashlib.sha256(sys.version.encode())
    for package in packages():
        found.update(f"{package.name}=={package.version}\n".encode())
    root = Path(enmasse.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def write(target: Path) -> None:
    """Write the archive. Raises OSError."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")  # several jobs may write it at a time
    with tarfile.open(temporary, "w:gz", compresslevel=1) as packed:
        for path, name in files():
            packed.add(path, name, recursive=False)
    temporary.replace(target)


def archive() -> Path:
    """Return the archive in the user's cache, made if it is not there yet.

    Those of other versions are removed when they have not been asked for in KEPT seconds: jobs may give them to
    executors meanwhile.
    """
    folder = cache()
    target = folder / f"spark-executors-{digest()}.tar.gz"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("spark-executors-*.tar.gz"):
            with contextlib.suppress(FileNotFoundError):  # another job has removed it
                if time.time() - old.stat().st_mtime > KEPT:
                    old.unlink()
        write(target)
    os.utime(target)
    return target


if __name__ == "__main__":
    shutil.copyfile(archive(), sys.argv[1])
