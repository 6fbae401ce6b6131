"""The node that the tests of a process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes import images
from tests.kubernetes.node import Node


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """Its folder, mounts and cgroups end with the namespaces of this process (tests/kubernetes/isolated.py)."""
    running = Node()
    try:
        running.start()
        running.load(images.FILE)
        yield running
    finally:
        running.stop()
