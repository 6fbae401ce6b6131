"""What tests cost: `pytest -p tests.cost tests/FOLDER` shows the processor time of the dearest ones and the sum.

It counts the process of pytest and every one below it, also those that still run. On a machine that does other things
the same work takes up to twice as much.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

import psutil
import pytest

from tests.kit import processes

SHOWN = 20
costs: dict[str, float] = {}
"""Seconds by test, with the fixtures that were made for it."""


def spent() -> float:
    """Seconds of processor time so far, of this process and those below it."""
    total = sum(os.times()[:4])
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            total += sum(process.cpu_times()[:4])
    return total


def pytest_configure() -> None:
    processes.own_servers()


_before = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_before] = spent()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        item.user_properties.append(("cost", spent() - item.stash[_before]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """With `-n` this process collects what its workers report."""
    if report.when == "teardown":
        costs[report.nodeid] = float(str(dict(report.user_properties)["cost"]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section(f"{sum(costs.values()):.0f} s of processor time")
    for name, cost in sorted(costs.items(), key=lambda entry: -entry[1])[:SHOWN]:
        terminalreporter.line(f"{cost:7.1f} s {name}")
