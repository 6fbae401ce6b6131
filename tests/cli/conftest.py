"""Configurations that the tests of this folder share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.running import configured, enmasse


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `enmasse init` has written, once for all."""
    folder = tmp_path_factory.mktemp("init") / "config"
    assert enmasse("init", folder).returncode == 0
    return folder


@pytest.fixture
def config(written: Path, tmp_path: Path) -> Path:
    """A configuration folder as `enmasse init` writes it."""
    return shutil.copytree(written, tmp_path / "config")


@pytest.fixture
def empty_config(tmp_path: Path) -> Path:
    """A configuration folder without an address or a flavor."""
    return configured(tmp_path)
