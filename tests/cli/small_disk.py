"""A disk of a few MiB, which a test can fill to the last byte."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


class Disk:
    """`path`: where this process reaches it; `mounted`: where it is mounted for who is started with `inside`."""

    def __init__(self, holder: int, mounted: Path) -> None:
        self.path = Path(f"/proc/{holder}/root{mounted}")
        self.mounted = mounted
        self.inside = ["nsenter", f"--target={holder}", *(["--user"] if os.geteuid() else []), "--mount"]

    @property
    def filler(self) -> Path:
        return self.path / "filler"

    def fill(self) -> None:
        """Leaves no byte free."""
        with self.filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        """Gives back what was filled."""
        self.filler.unlink()


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Disk]:
    """A disk of that size, in a name space of mounts that ends with this process, however that ends. Others reach it
    through the process that holds it.
    """
    folder.mkdir()
    held = ["sh", "-c", '"$@" && echo && exec cat', "sh"]
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    alone = ["unshare", *(["--user", "--map-root-user"] if os.geteuid() else []), "--mount"]
    with subprocess.Popen([*alone, *held, *mount], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n", "a disk cannot be mounted here in a name space of its own"
        try:
            yield Disk(holder.pid, folder)
        finally:
            holder.terminate()
