"""A store of images of the tests' own, in the user's cache, and podman with it."""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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


@contextmanager
def alone() -> Iterator[None]:
    """No other process builds or removes images meanwhile."""
    environment()
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prune(current: Iterable[str]) -> None:
    """Removes what these images have superseded: those of the same names with other tags, and all that have no name and
    are no part of one that has."""
    tags = dict(image.rsplit(":", 1) for image in current)
    for image in podman("images", "--format", "{{.Repository}}:{{.Tag}}").split():
        name, tag = image.rsplit(":", 1)
        if tags.get(name, tag) != tag:
            podman("untag", image, image)
    podman("image", "prune", "--force", "--external")  # with what a build that was killed has left
