"""Tests in forked processes (`tests/kit/forks.py`): pytest is run for files of a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kit.processes import ROOT

CRASHES = """
import os, warnings, pytest

@pytest.fixture(scope="module", autouse=True)
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    yield folder
    print(f"left {folder.parent.parent.name}")

def test_before(shared):
    warnings.warn("look here")

def test_ends_the_process():
    os._exit(3)

def test_wrong():
    print("it said")
    assert {"a": 1} == {"a": 2}
"""
WHERE = """
import os, pathlib, pytest

@pytest.mark.parametrize("n", range(3))
def test_where(n):
    assert os.getpid() != PARENT
    pathlib.Path(FOLDER, f"{os.getpid()}-{pathlib.Path(__file__).stem}-{n}").touch()
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), "-p", "no:xdist",
               "-p", "tests.kit.forks", "-p", "no:cacheprovider", *options, str(folder)]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_process_that_ends_fails_the_test_that_it_ran_and_another_one_runs_the_rest(tmp_path: Path) -> None:
    (tmp_path / "test_crashes.py").write_text(CRASHES)
    found = run(tmp_path, "-n", "2")
    assert found.returncode == 1
    assert "2 failed, 1 passed" in found.stdout and "look here" in found.stdout
    assert "the process that ran this test ended: status 3" in found.stdout
    assert "assert {'a': 1} == {'a': 2}" in found.stdout and "it said" in found.stdout
    assert "left pytest-" in found.stdout, "what the test shares is taken down"


def test_a_file_is_run_by_one_process_in_its_order(tmp_path: Path) -> None:
    for name in "abcd":
        text = WHERE.replace("FOLDER", repr(str(tmp_path))).replace("PARENT", "0")
        (tmp_path / f"test_{name}.py").write_text(text)
    found = run(tmp_path, "-n", "2")
    assert found.returncode == 0 and "12 passed" in found.stdout
    ran = [each.name.split("-") for each in tmp_path.iterdir() if each.name[0].isdigit()]
    assert len(ran) == 12 and len({pid for pid, _, _ in ran}) <= 2
    assert len({(pid, file) for pid, file, _ in ran}) == 4


def test_after_a_failure_only_the_file_that_was_taken_already_is_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_wrong():\n    assert 0\n")
    for name in "bcd":
        (tmp_path / f"test_{name}.py").write_text("def test_right():\n    pass\n")
    found = run(tmp_path, "-n", "1", "-x")
    assert found.returncode == 1
    assert "1 failed, 1 passed" in found.stdout


def test_what_cannot_be_collected_is_reported(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import nothing_of_this_name\n")
    found = run(tmp_path, "-n", "2")
    assert found.returncode == 2 and "nothing_of_this_name" in found.stdout
