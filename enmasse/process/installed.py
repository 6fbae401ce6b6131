"""The packages beside `enmasse`: in a wheel inside it, in a checkout and in the images on the import path
(docs/decisions/0030-what-the-wheel-installs.md)."""

from __future__ import annotations

import os
from pathlib import Path

INSTALLED = Path(__file__).parents[1] / "_installed"
"""Folder of the packages `services`, `spark` and `charts` in an installed wheel."""


def import_path() -> dict[str, str]:
    """Return the variables of the environment with which a Python process finds these packages."""
    if not INSTALLED.is_dir():
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(INSTALLED), os.environ.get("PYTHONPATH"))))}
