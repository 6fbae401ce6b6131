"""Debian packages unpacked into the user's cache, not installed: containerd must not become a service here."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import tempfile
from pathlib import Path

from tests.kubernetes.binaries import CACHE, Broken

NODE = ("containerd", "runc", "containernetworking-plugins")


def unpacked() -> Path:
    """A folder with the files of the packages NODE; they are fetched once."""
    key = hashlib.sha256("\0".join(NODE).encode() + Path("/etc/os-release").read_bytes()).hexdigest()[:16]
    done = CACHE / f"debian-{key}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{done.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            _fetch(done)
    return done


def _fetch(done: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="debian-") as scratch:
        fetched = subprocess.run(["apt-get", "download", "-qq", *NODE], cwd=scratch, capture_output=True, text=True)
        if fetched.returncode != 0:
            raise Broken(f"apt-get download: {fetched.stderr}\nIf it knows no package, run apt-get update first")
        fresh = Path(scratch) / "root"
        for package in sorted(Path(scratch).glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(fresh)], check=True)
        fresh.rename(done)


def main() -> None:
    print(f"containerd and what it needs: {unpacked()}")


if __name__ == "__main__":
    main()
