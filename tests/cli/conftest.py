"""Configurations that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import enmasse


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration folder as `enmasse init` writes it."""
    folder = tmp_path / "config"
    assert enmasse("init", folder).returncode == 0
    return folder


@pytest.fixture
def empty_config(tmp_path: Path) -> Path:
    """A configuration folder without an address or a flavor."""
    folder = tmp_path / "config"
    folder.mkdir()
    for name in ("addresses.json", "flavors.json"):
        (folder / name).write_text("{}")
    return folder
