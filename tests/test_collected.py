"""Processes of pytest are forked from one that has imported the tests; where that has ended they are executed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.by_file import UNITS
from tests.kit.collected import FORKED_WORKER, Collected
from tests.kit.waiting import DEADLINE

FORKS = """
from tests.kit import processes
done = processes.run(processes.COMMAND, "version", "--help")
print(done.returncode, [hasattr(server, "_process") for server in processes._servers.values()])
"""
SHOWN = "import sys; print('tests.test_words' in sys.modules, sys.argv)"


def process(python: str, given: str) -> str:
    """Run the interpreter of this command as execnet does it, and return what it prints."""
    line = "import sys;exec(eval(sys.stdin.readline()))"
    command = [*python.split(), "-u", "-c", line]
    return subprocess.run(
        command, input=f"{given!r}\n", capture_output=True, text=True, timeout=DEADLINE, check=True
    ).stdout


def test_a_process_has_the_tests_imported() -> None:
    server = Collected(["tests/test_words.py"])
    try:
        assert process(server.python, SHOWN) == "True ['-c']\n"
    finally:
        server.close()
    assert process(server.python, SHOWN) == "False ['-c']\n", "the server has ended"


def test_its_processes_share_the_server_of_a_program() -> None:
    server = Collected(["tests/test_words.py"])
    try:
        assert [process(server.python, FORKS) for _ in range(2)] == ["0 [False]\n"] * 2
    finally:
        server.close()


def test_without_a_server_it_is_executed(tmp_path: Path) -> None:
    assert process(f"{sys.executable} {FORKED_WORKER} {tmp_path / 'none'}", SHOWN) == "False ['-c']\n"


def test_files_that_one_process_takes_together_are_there() -> None:
    assert not [file for file in UNITS if not Path(file).exists()]
