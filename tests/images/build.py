"""Builds the images with `images/build.sh`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from enmasse.artemis import distribution
from tests.images import bases
from tests.images.store import environment

ROOT = Path(__file__).parent.parent.parent


def build(*targets: str) -> None:
    """All images, or these (that of Artemis is among all). What has not changed takes no time."""
    bases.ensure()
    # The stage that builds uses this machine's pip, compiler and certificates.
    mounted = dict.fromkeys(("/usr", sys.base_prefix, "/etc/ssl", "/etc/pip.conf"))
    flags = ["--network=host", *(f"--volume={each}:{each}:ro" for each in mounted if Path(each).exists())]
    passed = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    variables = {
        "BASE": bases.PYTHON,
        "BUILD_BASE": bases.BUILD,
        "JAVA_BASE": bases.JAVA,
        "JAVA_HOME": bases.JAVA_HOME,
        "BUILD_FLAGS": " ".join(flags),
        "PREFIX": "localhost/enmasse",
    }
    if not targets or "artemis" in targets:
        variables["ARTEMIS"] = str(distribution.home())
    subprocess.run(["images/build.sh", *targets], cwd=ROOT, env={**environment(), **variables, **passed}, check=True)
