"""Runs pytest, and once more what failed, alone and in one process: `FLAKY=FILE python -m tests.again PYTEST ARGUMENT…`

A test that passes then is flaky: it is added to FILE, and the status is 0. Nothing runs again if files could not be
collected, if tests have no result (a run that was broken off), or if more than MOST failed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.contained import run

MOST = 30
"""Failures of which a defect is more likely the cause than the load of the machine."""
LIMIT = 900
"""Seconds after which the second run begins no further test."""
RESULTS = "ENMASSE_TEST_RESULTS"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """As a plugin of pytest: write down the results of the run."""
    if hasattr(config, "workerinput") or RESULTS not in os.environ:
        return
    session: Any = terminalreporter._session
    reports = [(kind, report) for kind, some in terminalreporter.stats.items() for report in some]
    tests = [(kind, report.nodeid) for kind, report in reports if isinstance(report, pytest.TestReport)]
    failed = list(dict.fromkeys(test for kind, test in tests if kind in ("failed", "error")))
    results = {
        "failed": failed,
        "passed": [test for kind, test in tests if kind == "passed" and test not in failed],
        "whole": len({test for _, test in tests}) == session.testscollected
        and not any(isinstance(report, pytest.CollectReport) and report.failed for _, report in reports),
    }
    Path(os.environ[RESULTS]).write_text(json.dumps(results))


def results_of(command: list[str]) -> tuple[int, dict[str, Any]]:
    """Run pytest: its status, and its results, which are empty if it was killed."""
    with tempfile.NamedTemporaryFile(prefix="enmasse-results-") as file:
        os.environ[RESULTS] = file.name
        status = run([*command, "-p", "tests.again"])
        return status, json.loads(file.read() or "{}")


def main(command: list[str], flaky: Path) -> int:
    status, first = results_of(command)
    if status != pytest.ExitCode.TESTS_FAILED or not first.get("whole") or not first["failed"]:
        return status
    failed = first["failed"]
    if len(failed) > MOST:
        print(f"\n{len(failed)} tests failed; only up to {MOST} are run again")
        return status
    print(f"\nOnce more, alone and in one process: {len(failed)} that failed", flush=True)
    status, second = results_of([command[0], f"--session-timeout={LIMIT}", *failed])
    passed = set(second.get("passed", ()))
    for test in failed:
        print(f"failed, then {'passed alone' if test in passed else 'did not pass alone'}: {test}", flush=True)
    with flaky.open("a") as file:
        file.writelines(f"{test}\n" for test in failed if test in passed)
    return 0 if passed.issuperset(failed) else status or pytest.ExitCode.TESTS_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(os.environ["FLAKY"])))
