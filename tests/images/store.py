"""A store of images of the tests' own, in the user's cache, and podman with it."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "enmasse" / "images"

# Containers may not have higher limits than this process, which has no CAP_SYS_RESOURCE where tests run in a container
# themselves; there, no systemd and no journal are running either.
_CONTAINERS = """[containers]
default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
log_driver = "k8s-file"
[network]
network_backend = "netavark"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@functools.cache
def environment() -> dict[str, str]:
    """The variables with which podman and buildah use the store."""
    CACHE.mkdir(parents=True, exist_ok=True)
    containers, storage = CACHE / "containers.conf", CACHE / "storage.conf"
    containers.write_text(_CONTAINERS)
    storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{CACHE}/store"\nrunroot = "{CACHE}/run"\n')
    return {
        **os.environ,
        "CONTAINERS_CONF": str(containers),
        "CONTAINERS_STORAGE_CONF": str(storage),
        "DISABLE_HC_SYSTEMD": "true",
    }


def podman(*arguments: str, check: bool = True, stdin: bytes | None = None) -> str:
    """Standard output of `podman ARGUMENTS`. Raises CalledProcessError, with its standard error, if it fails."""
    done = subprocess.run(["podman", *arguments], env=environment(), input=stdin, capture_output=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"podman {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


def has(image: str) -> bool:
    """Whether the store has an image of this name."""
    done = subprocess.run(["podman", "image", "exists", image], env=environment(), check=False)
    return done.returncode == 0


def export(image: str) -> Path:
    """The image as a docker archive, for containerd. Made once for each content."""
    digest = podman("image", "inspect", "--format", "{{.Id}}", image).strip()
    archive = CACHE / "archives" / f"{image.replace('/', '_').replace(':', '_')}-{digest[:16]}.tar"
    if not archive.exists():
        archive.parent.mkdir(exist_ok=True)
        for old in archive.parent.glob(f"{image.replace('/', '_').replace(':', '_')}-*.tar"):
            old.unlink()
        podman("save", "--format", "docker-archive", "--output", f"{archive}.new", image)
        Path(f"{archive}.new").rename(archive)
    return archive
