"""The examples of property tests in CI follow from the tests alone, not from what their process has imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import importlib, sys
from hypothesis import given, strategies
import tests.conftest
for module in sys.argv[1:]:
    importlib.import_module(module)

@given(strategies.text(), strategies.integers(), strategies.binary())
def show(one, two, three):
    print(ascii((one, two, three)))

show()
"""


def examples(hash_seed: str, *modules: str) -> list[str]:
    """Return the examples of a property test in a process of its own, which has imported `modules`."""
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "repeating", "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM, *modules]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def test_what_else_is_imported_changes_no_example() -> None:
    alone = examples("1")
    assert len(set(alone)) > 50
    assert examples("2", "enmasse.logs.events", "enmasse.name_tries", "services.broker.selector") == alone
