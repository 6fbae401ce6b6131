"""Which clauses a test is for; `table.py` joins these marks with the list of clauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., Any])


def marks(v3: str = "", v5: str = "") -> list[pytest.MarkDecorator]:
    """`v3`, `v5`: numbers as `3.1.2-3`, separated by blanks."""
    pairs = [("v3.1.1", number) for number in v3.split()] + [("v5", number) for number in v5.split()]
    return [pytest.mark.clause(version, f"MQTT-{number}") for version, number in pairs]


def clauses(v3: str = "", v5: str = "") -> Callable[[Test], Test]:
    def marked(test: Test) -> Test:
        for mark in marks(v3, v5):
            test = mark(test)
        return test

    return marked
