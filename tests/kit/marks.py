"""Parameters of tests that `make test` has, and those that it leaves to `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first_soon(values: Iterable[Any], soon: int = 1) -> list[Any]:
    """Return parameters of which `make test` has the first ones. `soon`: how many."""
    return [value if n < soon else pytest.param(value, marks=pytest.mark.slow) for n, value in enumerate(values)]
