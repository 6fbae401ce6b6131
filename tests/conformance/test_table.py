"""Every clause that binds the gateway has a test, and the page that says which is not stale."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conformance.table import ROOT, problems


@pytest.mark.slow  # collects all tests in a process of its own
def test_the_table_of_clauses() -> None:
    """In a process of its own: pytest collects the tests of all areas there."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.table", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_the_table_finds() -> None:
    found = list(problems({("v5", "MQTT-9.9.9-9"): {"a test": None}, ("v5", "3.1.2.11.3"): {"a test": None}}))
    assert [problem for problem in found if "a test" in problem] == [
        "v5 MQTT-9.9.9-9: there is no such statement (a test)"
    ]
    assert "v3.1.1 MQTT-3.12.4-1: no test" in found
