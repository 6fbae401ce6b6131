"""Our images as a file that a node imports: `python -m tests.kubernetes.images` saves it from the tests' store.

That is done before the node starts: in its namespaces podman would take itself for newly booted.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.images import bases, store
from tests.images.build import TARGETS, names
from tests.kubernetes.binaries import CACHE

ALL = (bases.PYTHON, bases.REDIS, *names(*TARGETS))
FILE = CACHE / "images.tar"
"""Holds ALL, each layer once."""


def main() -> None:
    identities = store.podman("image", "inspect", "--format", "{{.Id}}", *ALL)
    saved = CACHE / f"images-{hashlib.sha256(identities.encode()).hexdigest()[:16]}.tar"
    if not saved.exists():
        for old in CACHE.glob("images-*"):
            old.unlink()
        fresh = Path(f"{saved}.new")
        store.podman("save", "--multi-image-archive", "--format", "docker-archive", "--output", str(fresh), *ALL)
        fresh.rename(saved)
    FILE.unlink(missing_ok=True)
    FILE.symlink_to(saved)


if __name__ == "__main__":
    main()
