"""Builds the images with `images/build.sh`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from enmasse import __version__
from enmasse.engines.artemis import distribution
from enmasse.process.service_table import SERVICES
from tests.images import bases
from tests.images.store import alone, environment, prune

ROOT = Path(__file__).parent.parent.parent
PREFIX = "localhost/enmasse"
TARGETS = (*(name.replace("_", "-") for name in SERVICES), "suite", "artemis", "spark-pipeline")
STAGES = {"configserv": "build-kubernetes", "storage-controller": "build-kubernetes", "spark-pipeline": "build-spark"}
"""By target, what takes long to build and is no part of an image."""


def names(*targets: str) -> list[str]:
    """What the images are called."""
    return [f"{PREFIX}/{target}:{__version__}" for target in targets]


def build(*targets: str) -> None:
    """All images, or these. What has not changed takes no time; what they supersede is removed. The stages that are no
    part of them get names too, so that they are kept."""
    chosen = targets or TARGETS
    stages = sorted({"build", "code", *(STAGES[target] for target in chosen if target in STAGES)})
    with alone():
        bases.ensure()
        _build(*chosen, *stages)
        prune((*bases.ALL, *names(*chosen, *stages)))


def _build(*targets: str) -> None:
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
        "PREFIX": PREFIX,
    }
    if "artemis" in targets:
        variables["ARTEMIS"] = str(distribution.home())
    subprocess.run(["images/build.sh", *targets], cwd=ROOT, env={**environment(), **variables, **passed}, check=True)
