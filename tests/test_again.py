"""`python -m tests.again`: what failed once runs again, alone, and what passes then is flaky."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.again import MOST

ROOT = Path(__file__).parents[1]
HEAD = """
import os
from pathlib import Path

def beside_others() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ
"""
SCHEDULER = "from tests.by_file import ByFile\npytest_xdist_make_scheduler = ByFile\n"
PASSES = "def test_passes():\n    pass\n"
FLAKY = "def test_flaky():\n    assert not beside_others()\n"
FAILS = "def test_fails():\n    assert False\n"
SKIPPED = "def test_skipped():\n    import pytest\n    assert not beside_others()\n    pytest.skip('no longer')\n"
IN_A_FIXTURE = (
    "import pytest\n"
    "@pytest.fixture\n"
    "def suite():\n"
    "    assert not beside_others()\n"
    "def test_flaky_in_its_fixture(suite):\n    pass\n"
)
DIES = "def test_dies():\n    beside_others() and os._exit(3)\n"
HANGS = "def test_hangs():\n    import time\n    while beside_others(): time.sleep(1)\n"
HANGS_ALONE = "def test_hangs_alone():\n    import time\n    assert not beside_others()\n    time.sleep(600)\n"


class Toy:
    """A folder of tests, and what became of them."""

    def __init__(self, folder: Path, *tests: str, options: Sequence[str] = ("--numprocesses", "1")) -> None:
        (folder / "conftest.py").write_text(SCHEDULER)
        (folder / "pytest.ini").write_text(
            "[pytest]\ntimeout = 5\ntimeout_method = thread\naddopts = -p no:schemathesis -p no:hypothesispytest\n"
        )
        (folder / "test_toy.py").write_text(HEAD + "".join(tests))
        (folder / "test_other.py").write_text(PASSES)
        self._listed = folder / "flaky"
        environment = {**os.environ, "FLAKY": str(self._listed), "PYTHONPATH": str(ROOT)}
        for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
            environment.pop(name, None)
        pytest_ = str(Path(sys.executable).with_name("pytest"))
        done = subprocess.run(
            [sys.executable, "-m", "tests.again", pytest_, "-q", *options],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=500,  # limit: below the test's own
        )  # fmt: skip
        self.status, self.said = done.returncode, done.stdout + done.stderr

    @property
    def flaky(self) -> list[str]:
        return self._listed.read_text().splitlines() if self._listed.exists() else []

    @property
    def again(self) -> bool:
        return "Once more" in self.said


@pytest.mark.slow
def test_nothing_runs_again_if_all_pass(tmp_path: Path) -> None:
    toy = Toy(tmp_path, PASSES)
    assert (toy.status, toy.again, toy.flaky) == (0, False, []), toy.said


def test_what_passes_alone_is_listed_and_the_run_is_green(tmp_path: Path) -> None:
    toy = Toy(tmp_path, FLAKY, DIES, PASSES, IN_A_FIXTURE, HANGS, options=("--numprocesses", "2"))
    names = [f"test_toy.py::{name}" for name in ("test_dies", "test_flaky", "test_flaky_in_its_fixture", "test_hangs")]
    assert (toy.status, sorted(toy.flaky)) == (0, names), toy.said
    assert all(f"failed, then passed alone: {name}" in toy.said for name in names)
    assert "3 failed, 2 passed, 1 error in" in toy.said and "4 passed in" in toy.said, toy.said


@pytest.mark.slow
def test_what_does_not_pass_alone_fails(tmp_path: Path) -> None:
    toy = Toy(tmp_path, FLAKY, FAILS, SKIPPED, HANGS_ALONE)
    assert toy.status == 1 and toy.again, toy.said
    for name in ("test_fails", "test_skipped", "test_hangs_alone"):
        assert f"failed, then did not pass alone: test_toy.py::{name}" in toy.said
        assert f"test_toy.py::{name}" not in toy.flaky


@pytest.mark.slow
def test_a_file_that_cannot_be_collected_fails_at_once(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    toy = Toy(tmp_path, FLAKY)
    assert toy.status == 1 and not toy.again, toy.said


@pytest.mark.slow
def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    many = f"import pytest\n@pytest.mark.parametrize('number', range({MOST + 1}))\n"
    toy = Toy(tmp_path, many + "def test_many(number):\n    assert not beside_others()\n")
    assert toy.status == 1 and not toy.again and f"only up to {MOST}" in toy.said, toy.said


def test_a_run_that_was_broken_off_is_not_green(tmp_path: Path) -> None:
    """A worker dies and there is no other: some tests have no result."""
    toy = Toy(tmp_path, DIES, PASSES, options=("--max-worker-restart", "0", "--numprocesses", "1"))
    assert toy.status == 1 and not toy.again, toy.said
