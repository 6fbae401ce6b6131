"""Plugin of pytest: `-n N` runs the tests in N processes that are forked when all tests are collected.

Each process takes whole files, or what `pytest_scope` names otherwise, in the order of collection. Importing and
collecting all tests takes about ten seconds of a processor: processes that are forked need not do it again, and share
its memory. A process that ends while a test runs fails that test; another one takes the tests after it.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
import warnings
from collections import deque
from itertools import zip_longest
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

Scope = list[int]
"""Tests that one process runs, one after the other: positions in `session.items`."""


class Hooks:
    @pytest.hookspec(firstresult=True)
    def pytest_scope(self, nodeid: str) -> str | None:
        """Return the name of the tests that share a process with this one, if that is not the file."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("forks")
    group._addoption("-n", "--numprocesses", type=int, default=0, metavar="N", help="run the tests in N processes")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.numprocesses and not config.option.collectonly:
        config.pluginmanager.register(Forks(config.option.numprocesses))


class Process:
    """A forked process. `taken`: tests that it has still to run; `current`: the one that runs."""

    def __init__(self, pid: int, pipe: Connection) -> None:
        self.pid = pid
        self.pipe = pipe
        self.taken: deque[int] = deque()
        self.current: int | None = None


class Forks:
    """The process that collects."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: dict[Connection, Process] = {}
        self._left: deque[Scope] = deque()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Hand out the tests, and report what the processes report."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None  # pytest itself says so
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one folder for all processes
        self._left.extend(_scopes(session))
        for _ in range(min(self._count, len(self._left))):
            self._fork(session)
        while self._processes:
            for pipe in wait(list(self._processes)):
                assert isinstance(pipe, Connection)
                self._hear(session, self._processes[pipe])
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _fork(self, session: pytest.Session) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            for pipe in (ours, *self._processes):
                pipe.close()
            Worker(session, theirs).run()
        theirs.close()
        self._processes[ours] = Process(pid, ours)

    def _hear(self, session: pytest.Session, process: Process) -> None:
        hook = session.config.hook
        kind, content = _received(process.pipe)
        if kind == "end":
            self._ended(session, process)
        elif kind == "next":
            stops = session.shouldfail or session.shouldstop
            found = self._left.popleft() if self._left and not stops else None
            process.taken.extend(found or ())
            process.pipe.send(found)
        elif kind == "begins":
            process.current = process.taken.popleft()
        elif kind == "ends":
            process.current = None
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=session.config, data=content)
            hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=content)

    def _ended(self, session: pytest.Session, process: Process) -> None:
        """Fail the test that ran as a process ended, and let another process take those after it."""
        del self._processes[process.pipe]
        process.pipe.close()
        status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if process.current is not None:
            item = session.items[process.current]
            said = f"the process that ran this test ended: {f'signal {-status}' if status < 0 else f'status {status}'}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
            session.config.hook.pytest_runtest_logreport(report=report)
        elif not status:
            return
        if process.taken:
            self._left.appendleft(list(process.taken))
        if self._left and not (session.shouldfail or session.shouldstop):
            self._fork(session)


class Worker:
    """A process that runs tests."""

    def __init__(self, session: pytest.Session, pipe: Connection) -> None:
        self._session = session
        self._pipe = pipe
        self._runner: Any = session.config.pluginmanager.getplugin("runner")

    def run(self) -> None:
        """Run tests until there are no more, and end this process."""
        status = 1
        try:
            config = self._session.config
            config.workerinput = {}  # type: ignore[attr-defined]  # by which plugins know a process that runs tests only
            random.seed()  # else all would look for the same free ports
            capture: Any = config.pluginmanager.getplugin("capturemanager")
            capture.stop_global_capturing()  # its files are those of all
            capture.start_global_capturing()
            capture.suspend_global_capture()
            config.pluginmanager.register(self)
            self._run()
            status = 0
        except KeyboardInterrupt:
            status = 130
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            try:
                self._runner.pytest_sessionfinish(self._session)  # fixtures that an interrupted test has left
            finally:
                os._exit(status)

    def _run(self) -> None:
        items, taken = self._session.items, self._next()
        while taken is not None:
            upcoming = None
            for number, after in zip_longest(taken, taken[1:]):
                if after is None:
                    upcoming = self._next()
                    after = upcoming[0] if upcoming else None
                item = items[number]
                self._pipe.send(("begins", None))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None if after is None else items[after])
                self._pipe.send(("ends", None))
            taken = upcoming

    def _next(self) -> Scope | None:
        self._pipe.send(("next", None))
        found: Scope | None = self._pipe.recv()
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test as pytest does, and send the reports in place of showing them."""
        for report in self._runner.runtestprotocol(item, log=False, nextitem=nextitem):
            data = item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
            self._pipe.send(("report", data))
        return True

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        """Send a warning."""
        category, file, line = warning_message.category, warning_message.filename, warning_message.lineno
        plain = warnings.WarningMessage(str(warning_message.message), category, file, line)
        given = {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location}
        self._pipe.send(("warning", given))


def _received(pipe: Connection) -> tuple[str, Any]:
    try:
        found: tuple[str, Any] = pipe.recv()
    except (EOFError, ConnectionError):
        return "end", None
    return found


def _scopes(session: pytest.Session) -> list[Scope]:
    """Return the tests by scope, in the order of the first one of each."""
    found: dict[str, Scope] = {}
    for number, item in enumerate(session.items):
        name = session.config.hook.pytest_scope(nodeid=item.nodeid) or item.nodeid.partition("::")[0]
        found.setdefault(name, []).append(number)
    return list(found.values())
