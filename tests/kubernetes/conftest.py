"""The cluster that the tests of a process share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """For a namespace of its own, each test asks `cluster.namespace()`; nobody waits for one to be deleted."""
    folder = Path(tempfile.mkdtemp(prefix="enmasse-cluster-"))
    running = Cluster(folder)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder)
