"""A disk of a few MiB, which a test can fill to the last byte."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path


class Disk:
    """`path`: where it is mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path

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
    """A disk of that size: mounted on `folder` by root, by others in a name space of their own."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode == 0:
        try:
            yield Disk(folder)
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", '"$@" && echo && exec cat', "sh", *mount]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n", "neither root nor a name space of one's own may mount a disk here"
        try:
            yield Disk(Path(f"/proc/{holder.pid}/root{folder}"))
        finally:
            holder.terminate()
