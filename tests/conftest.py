"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from xdist.scheduler import LoadScopeScheduling

from enmasse import testing
from enmasse.logs import log
from tests.by_file import ByFile
from tests.kit.collected import Collected
from tests.kit.containers import share_tls
from tests.kit.processes import ForkedCommands

OF_TESTS = ("ENMASSE_FUZZ_", "ENMASSE_NODE_", "ENMASSE_PICTURES", "ENMASSE_TEST_")
"""What tests read themselves. Others are options of commands, ENMASSE_PORT_OFFSET for example, which each test
chooses."""
for name in [name for name in os.environ if name.startswith("ENMASSE_") and not name.startswith(OF_TESTS)]:
    del os.environ[name]
share_tls()
testing.commands = ForkedCommands()
gc.disable()  # until all tests are collected: that makes a lot, and no garbage

# Under nohup the processes that tests start would ignore a hang-up as this one does. A handler is no child's.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
# Started in the background by a shell, they would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test asserts a duration: an example that takes long was one on a loaded machine. Without `explain`: what that does
# to an example that fails took minutes there, and the limit of the test ended the whole run before it was shown.
settings.register_profile(
    "exploring",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
# The same examples in every run: they follow from the test's source alone.
settings.register_profile("repeating", settings.get_profile("exploring"), derandomize=True, database=None)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "exploring")
settings.load_profile(PROFILE)
if settings.get_profile(PROFILE).derandomize:
    # Examples contain constants of our modules that are imported: with `-n`, those of the tests that ran before.
    providers._get_local_constants = Constants

FIRST = (
    "tests/spark/", "tests/system/", "tests/console/", "tests/conformance/", "tests/contract/", "tests/tenants/",
    "tests/router/test_st", "tests/router/test_fairness", "tests/cli/", "tests/broker/", "tests/subserv/test_killed",
    "tests/subserv/test_brokers", "tests/mqtt_lwt/test_killed",
    "tests/kubernetes/test_release", "tests/kubernetes/test_users", "tests/kubernetes/test_chart_installed",
    "tests/kubernetes/test_identity",
)  # fmt: skip
"""What takes longest begins first, so that no worker is left alone with it in the end."""
LAST = ("tests/interop/test_matrix", "tests/interop/test_jms", "tests/interop/")
"""In `make test` their clients are being built meanwhile. What takes longest begins first here, too."""
NICE = 5
PROGRAMS = ("qdrouterd", "openssl", "promtool", "prometheus", "ip")
"""What tests with the mark `needs` run: not every machine has it, for example because no package does. `ip` makes
network namespaces, as root."""
ON_DEMAND = tuple(Path(__file__).parent / name for name in ("kubernetes", "kubernetes/on_node", "images"))
"""Run only if the command names them: what they stand on takes minutes to build, or needs root."""


FEWEST = 10
"""Examples of a property test at least, unless it asks for fewer."""


class Failures:
    """With `-n`: a failed test is named at once; what it said stands at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.config.get_terminal_writer().line(f"\n{report.when} of {report.nodeid} failed", red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "share of the examples that a property test asks for; `make test-slow` has them all"
    parser.addoption("--examples", type=float, default=1.0, metavar="SHARE", help=what)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--examples") < 1:
        providers._get_local_constants = Constants  # to look for them in all our modules takes each process a second
    if getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Failures(config))


def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """With `-n`: all processes are forked from one that has imported the tests."""
    if sys.platform == "linux" and "coverage" not in sys.modules:
        collected = Collected(config.args)
        config.add_cleanup(collected.close)
        for spec in specs:
            spec.python = collected.python


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path not in ON_DEMAND:
        return None
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(one.is_relative_to(collection_path) for one in named) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lacking = [item for item in items if any(not _is_there(mark.args[0]) for mark in item.iter_markers("needs"))]
    if lacking:
        items[:] = [item for item in items if item not in lacking]
        config.hook.pytest_deselected(items=lacking)

    if (share := config.getoption("--examples")) < 1:
        for test in {test for item in items if (test := _property(item)) is not None}:
            name = "settings" if isinstance(test, type) else "_hypothesis_internal_use_settings"
            asked: settings = getattr(test, name)
            fewer = min(asked.max_examples, max(FEWEST, round(asked.max_examples * share)))
            setattr(test, name, settings(asked, max_examples=fewer))

    last = LAST if "not slow" in config.option.markexpr else ()

    def rank(item: pytest.Item) -> int:
        late = next((at for at, prefix in enumerate(last, 1) if item.nodeid.startswith(prefix)), 0)
        return late or next((at for at, prefix in enumerate(FIRST, -len(FIRST)) if item.nodeid.startswith(prefix)), 0)

    items.sort(key=rank)


def _property(item: pytest.Item) -> Any:
    """Return the function, or the class of a state machine, that has the settings of a property test; else None."""
    if not isinstance(item, pytest.Function) or not is_hypothesis_test(item.obj):
        return None
    return item.cls if hasattr(item.obj, "_hypothesis_state_machine_class") else getattr(item.obj, "__func__", item.obj)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The collector need not look again and again at thousands of tests, which stay."""
    gc.freeze()
    gc.enable()


def _is_there(program: str) -> bool:
    assert program in PROGRAMS, program
    return shutil.which(program) is not None and (program != "ip" or os.geteuid() == 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for program in PROGRAMS:
        if not _is_there(program):
            why = "not on PATH, or not run by root" if program == "ip" else "not on PATH"
            terminalreporter.write_line(f"left out, because {program} is {why}: all tests of {program}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """With `-n`: beside Spark, which gives its Python workers ten seconds to start, everything else yields."""
    if hasattr(item.config, "workerinput") and not item.nodeid.startswith("tests/spark/") and os.nice(0) < NICE:
        os.nice(NICE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """A test must not leave the log to itself: others in this process find what is logged in their own stderr."""
    yield
    assert log._writer is None and log._stream is None, "use tests.kit.logs.logged instead of log.setup"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return ByFile(config, log)
