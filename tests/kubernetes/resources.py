"""Definitions of the custom resources in a cluster."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.kubernetes.cluster import Cluster

CRDS = Path(__file__).parents[2] / "charts" / "enmasse" / "files" / "crds"


def define(cluster: Cluster) -> None:
    """Let the API server know the custom resources; return once it serves them."""
    files = sorted(CRDS.glob("*.yaml"))
    cluster.kubectl("apply", "--server-side", *(f"--filename={file}" for file in files))
    names = [f"crd/{yaml.safe_load(file.read_text())['metadata']['name']}" for file in files]
    cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
