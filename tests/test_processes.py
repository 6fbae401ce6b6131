"""Starting programs as processes (tests/kit/processes.py): a forked one behaves as an executed one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processes import Forked, Process, Program, run, start
from tests.kit.waiting import DEADLINE, wait_for

SHOWS = """
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), os.environ.get("SHOWN"), sys.stdin.read()]))
print("wrong", file=sys.stderr)
sys.exit(7)
"""
WAITS = """
import pathlib, signal, sys
pathlib.Path(sys.argv[1]).touch()
signal.pause()
"""
ENDS = """
import atexit, sys, threading
from enmasse.process import startup
going = threading.Event()
atexit.register(print, "atexit", end="")
threading.Thread(target=lambda: going.wait() and print("thread", end=" ")).start()
threading.Timer(0.05, going.set).start()
startup.end(5)
"""


@pytest.fixture(params=["forked", "executed"] if sys.platform == "linux" else ["executed"])
def imports(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return ("json",) if request.param == "forked" else ()


def written(folder: Path, text: str, imports: tuple[str, ...]) -> Program:
    (folder / "program.py").write_text(text)
    return Program((str(folder / "program.py"),), imports)


def waiting(folder: Path, imports: tuple[str, ...]) -> Process:
    """Start a program that waits for a signal."""
    begun = folder / "begun"
    process = start(written(folder, WAITS, imports), begun)
    wait_for(begun.exists, "the program runs")
    return process


def test_arguments_streams_environment_and_status(tmp_path: Path, imports: tuple[str, ...]) -> None:
    program = written(tmp_path, SHOWS, imports)
    done = run(program, "a", "b c", input="given", environment={"SHOWN": "x"})
    expected = f'[["{tmp_path}/program.py", "a", "b c"], "{os.getcwd()}", "x", "given"]\n'
    assert (done.returncode, done.stdout, done.stderr) == (7, expected, "wrong\n")


def test_the_end_of_a_service_waits_for_threads_and_writes_everything(tmp_path: Path, imports: tuple[str, ...]) -> None:
    done = run(written(tmp_path, ENDS, imports))
    assert (done.returncode, done.stdout, done.stderr) == (5, "thread atexit", "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_signals_end_it(tmp_path: Path, imports: tuple[str, ...], number: signal.Signals) -> None:
    process = waiting(tmp_path, imports)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(number)
    assert process.wait(DEADLINE) == -number == process.poll()
    process.kill()  # without effect


def test_a_program_with_other_variables_of_the_interpreter_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    process = waiting(tmp_path, ("json",))
    process.kill()
    assert not isinstance(process, Forked)
    assert process.wait(DEADLINE) == -signal.SIGKILL
