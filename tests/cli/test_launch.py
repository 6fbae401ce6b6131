"""How `enmasse up` starts processes: forked by a server that has imported them, or executed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from enmasse.engines.program import ChildHealth, HealthProbe, Spec
from enmasse.supervisor.children import launch, os_process
from enmasse.supervisor.children.child import Child, Silence
from enmasse.supervisor.children.launch import PYTHON_MODULE, ForkServer, Process
from tests.cli.running import alive, wait_for
from tests.kit.running import asyncio_test
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
FAKE, BROKEN = "tests.cli.fakes.forked", "tests.cli.fakes.broken"


@pytest.fixture(autouse=True)
def found_by_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@contextlib.asynccontextmanager
async def server(*modules: str) -> AsyncIterator[ForkServer]:
    forks = ForkServer(modules or (FAKE, BROKEN))
    try:
        yield forks
    finally:
        await forks.close()


class Started:
    """A launched process and the file of its output."""

    def __init__(self, process: Process, log: Path) -> None:
        self.process, self.log = process, log

    async def about(self) -> dict[str, Any]:
        """What the program wrote of itself."""
        await until(lambda: b"\n" in self.log.read_bytes(), "the program wrote its line")
        found: dict[str, Any] = json.loads(self.log.read_text().splitlines()[0])
        return found


async def start(forks: ForkServer, log: Path, *words: str) -> Started:
    with log.open("ab") as output:
        return Started(await forks.launch([*PYTHON_MODULE, *words], output.fileno()), log)


def pid_of_server(forks: ForkServer) -> int:
    found = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "enmasse.supervisor.children.forkserver"],
        capture_output=True,
        text=True,
    )
    (pid,) = found.stdout.split()
    return int(pid)


@asyncio_test
async def test_a_forked_process_is_a_child_like_an_executed_one(tmp_path: Path) -> None:
    async with server() as forks:
        forked = await start(forks, tmp_path / "forked", FAKE, "wait", "more words")
        executed = await start(ForkServer(()), tmp_path / "executed", FAKE, "wait", "more words")
        about, like = await forked.about(), await executed.about()
        assert about["imported_by"] == pid_of_server(forks) != about["pid"]
        assert like["imported_by"] == like["pid"]
        for each in (about, like):
            assert each["evaluated_by"] == [each["imported_by"]]
        for key in ("parent", "arguments", "input"):
            assert about[key] == like[key], key
        assert len(about["files"]) == len(like["files"]) + 1  # to the server, which it tells what it imports
        assert about["umask"] == 0o077
        assert about["parent"] == os.getpid()
        for each in (about, like):
            assert each["pid"] == each["group"]
        assert forked.process.pid == about["pid"]
        commands = [Path(f"/proc/{each['pid']}/cmdline").read_bytes().strip(b"\0") for each in (about, like)]
        assert commands[0] == commands[1].replace(b"\0", b" ")
        for started in (forked, executed):
            assert started.process.returncode is None
            started.process.send_signal(signal.SIGTERM)
            assert await started.process.wait() == -signal.SIGTERM == started.process.returncode
            with contextlib.suppress(ProcessLookupError):  # asyncio's own says nothing
                started.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(("words", "status"), [(["exit", "0"], 0), (["exit", "7"], 7), (["raise"], 1), (["end"], 0)])
@asyncio_test
async def test_the_status_of_a_forked_process(words: list[str], status: int, tmp_path: Path) -> None:
    async with server() as forks:
        started = await start(forks, tmp_path / "log", FAKE, *words)
        assert await started.process.wait() == status
        assert ("RuntimeError: the end of the program" in started.log.read_text()) == (status == 1)
        assert not alive(started.process.pid)  # no zombie is left either


@asyncio_test
async def test_the_log_of_a_service_that_cannot_be_imported_has_the_reason(tmp_path: Path) -> None:
    async with server() as forks:
        started = await start(forks, tmp_path / "log", BROKEN)
        assert await started.process.wait() == 1
        assert "RuntimeError: this module cannot be imported" in started.log.read_text()
        assert await (await start(forks, tmp_path / "other", FAKE, "exit", "3")).process.wait() == 3


@asyncio_test
async def test_processes_outlive_their_fork_server_and_the_next_launch_has_another(tmp_path: Path) -> None:
    async with server() as forks:
        first = await start(forks, tmp_path / "first", FAKE, "wait")
        killed = pid_of_server(forks)
        os.kill(killed, signal.SIGKILL)
        await until(lambda: not alive(killed), "the server is gone")
        second = await start(forks, tmp_path / "second", FAKE, "wait")  # executed, because the server has gone
        assert (await second.about())["imported_by"] == second.process.pid
        third = await start(forks, tmp_path / "third", FAKE, "wait")
        assert (await third.about())["imported_by"] == pid_of_server(forks)
        for started in (first, second, third):
            assert started.process.returncode is None and alive(started.process.pid)
            started.process.send_signal(signal.SIGKILL)
            assert await started.process.wait() == -signal.SIGKILL


@asyncio_test
async def test_a_cancelled_launch_does_not_give_its_process_to_the_next_caller(tmp_path: Path) -> None:
    async with server() as forks:
        given_up = asyncio.create_task(start(forks, tmp_path / "given-up", FAKE, "wait"))
        while not await asyncio.sleep(0, forks._socket):  # until the request has been sent to a server that imports
            pass
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert given_up.cancelled()
        started = await start(forks, tmp_path / "log", FAKE, "wait", "mine")
        assert (await started.about())["arguments"] == ["wait", "mine"]
        assert (await started.about())["pid"] == started.process.pid
        started.process.send_signal(signal.SIGKILL)
        await started.process.wait()


@asyncio_test
async def test_many_at_once_get_their_own_processes(tmp_path: Path) -> None:
    async with server() as forks:
        logs = [tmp_path / str(number) for number in range(30)]
        many = await asyncio.gather(*(start(forks, log, FAKE, "exit", log.name) for log in logs))
        assert [await started.process.wait() for started in many] == list(range(30))


@asyncio_test
async def test_other_commands_are_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server("services.of-another-suite") as forks:
        started = await start(forks, tmp_path / "log", FAKE, "wait")
        assert (await started.about())["imported_by"] == started.process.pid
        started.process.send_signal(signal.SIGKILL)
        assert await started.process.wait() == -signal.SIGKILL
    monkeypatch.setattr(launch, "CAN_FORK", False)  # as on a system without subreapers
    async with server() as forks:
        started = await start(forks, tmp_path / "log", FAKE, "exit", "5")
        assert await started.process.wait() == 5


@asyncio_test
async def test_what_a_process_imports_late_the_next_one_has_from_its_beginning(tmp_path: Path) -> None:
    """A module of services only, whatever a process states."""
    async with server() as forks:
        for late, taken in ((f"{FAKE}.late", True), ("tests.cli.running", False)):
            first = await start(forks, tmp_path / f"{late}-1", FAKE, "late", late)
            await first.process.wait()
            assert json.loads(first.log.read_text().splitlines()[1])["before"] == ""
            second = await start(forks, tmp_path / f"{late}-2", FAKE, "late", late)
            await second.process.wait()
            found = json.loads(second.log.read_text().splitlines()[1])
            assert found["before"] == (late if taken else "")
            assert not taken or found["imported_by"] == pid_of_server(forks)


CLIENT = """
import asyncio, os, sys
from pathlib import Path
from enmasse.supervisor.children.launch import PYTHON_MODULE, ForkServer

async def main():
    forks = ForkServer([sys.argv[1]])
    with open(os.devnull, "wb") as output:
        pids = [(await forks.launch([*PYTHON_MODULE, sys.argv[1], "wait"], output.fileno())).pid for _ in range(3)]
    print(*pids, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_forked_processes_and_their_server_end_with_a_killed_client() -> None:
    with subprocess.Popen([sys.executable, "-c", CLIENT, FAKE], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        pids = [int(word) for word in client.stdout.readline().split()]
        children = Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split()
        try:
            assert len(pids) == 3 and len(children) == 4 and all(alive(pid) for pid in pids)
        finally:
            client.kill()
    wait_for(lambda: not any(alive(int(pid)) for pid in children), "all are gone")


class Silent:
    """A probe whose end takes until `over`, as that of a probe that waits for its last answer."""

    def __init__(self) -> None:
        self.asked, self.ending, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def ask(self) -> ChildHealth:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ending.set()
            await self.over.wait()
        raise AssertionError

    def close(self) -> None:
        pass


class Sleeping:
    """A program that runs until it is killed."""

    def __init__(self, probe: Silent | None = None) -> None:
        self._probe = probe or Silent()

    def prepare(self, spec: Spec, folder: Path) -> list[str]:
        return ["sleep", "600"]

    def probe(self, spec: Spec) -> HealthProbe:
        return self._probe


@asyncio_test
async def test_a_child_that_is_cancelled_while_its_probe_ends_is_not_started_again(tmp_path: Path) -> None:
    probe = Silent()
    started: list[Process] = []

    async def starting(command: Sequence[str], output: int) -> Process:
        started.append(await launch.execute(command, output))
        return started[-1]

    spec = Spec("s", "s", {})
    child = Child(
        spec, Sleeping(probe), starting, tmp_path, tmp_path, lambda: None, lambda: None, lambda line: None
    )  # fmt: skip
    child.start()
    task = child._task
    assert task is not None
    await probe.asked.wait()
    os.kill(started[0].pid, signal.SIGKILL)
    await probe.ending.wait()
    task.cancel()
    probe.over.set()
    await until(lambda: task.done() or len(started) > 1)
    child.kill()
    assert task.cancelled() and len(started) == 1


class Scripted:
    """Probe that gives these answers, the last one again and again."""

    def __init__(self, *answers: ChildHealth) -> None:
        self._answers = list(answers)

    async def ask(self) -> ChildHealth:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def close(self) -> None:
        pass


READY, SILENT, STARTING = ChildHealth(True, ""), ChildHealth(False, "", hung=True), ChildHealth(False, "starting")


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [
        ((READY, *[SILENT] * 20), 19),
        ((STARTING, *[SILENT] * 20), 0),  # it may be reading its store
        ((READY, *[SILENT] * 20, STARTING, SILENT), 0),
        ((READY, SILENT, SILENT), 0),  # the machine may have been stopped between the two
    ],
)
def test_silence_counts_from_the_first_question_after_it_was_ready(
    answers: tuple[ChildHealth, ...], seconds: float
) -> None:
    at = [0.0]
    silence = Silence(lambda: at[0])
    for each in answers:
        at[0] += 1
        found = silence.note(each)
    assert found == silence.seconds == seconds


@asyncio_test
async def test_a_process_that_was_ready_and_answers_no_longer_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enmasse.supervisor.children.child.HUNG", 0.1)
    monkeypatch.setattr("enmasse.supervisor.children.child.POLL_READY", 0.05)
    started: list[Process] = []

    async def starting(command: Sequence[str], output: int) -> Process:
        started.append(await launch.execute(command, output))
        return started[-1]

    class Program(Sleeping):
        def probe(self, spec: Spec) -> HealthProbe:
            return Scripted(READY, SILENT)

    child = Child(
        Spec("s", "s", {}), Program(), starting, tmp_path, tmp_path, lambda: None, lambda: None, lambda line: None
    )  # fmt: skip
    child.start()
    await until(lambda: child.restarts >= 1 and len(started) >= 2)
    child.kill()
    await child.stop(1)
    assert started[0].returncode == -signal.SIGKILL


@asyncio_test
@pytest.mark.parametrize(
    ("kind", "killed"),
    [("router", True), ("broker", True), ("mqtt_gateway", True), ("authserv", True), ("ragent", False)],
)
async def test_a_stopped_process_for_which_clients_wait_is_killed_and_started_again(
    tmp_path: Path, kind: str, killed: bool
) -> None:
    class Program(Sleeping):
        def probe(self, spec: Spec) -> HealthProbe:
            return Scripted(READY)

    spec = Spec("s", kind, {})
    child = Child(
        spec, Program(), launch.execute, tmp_path, tmp_path, lambda: None, lambda: None, lambda line: None
    )  # fmt: skip
    child.start()
    await until(lambda: child.pid is not None)
    pid = child.pid
    assert pid is not None
    child.look(0.0)
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: os_process.is_stopped(pid))
    child.look(1.0)
    child.look(1.4)
    os.kill(pid, signal.SIGCONT)
    await until(lambda: not os_process.is_stopped(pid))
    child.look(2.0)  # it went on meanwhile
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: os_process.is_stopped(pid))
    child.look(3.0)
    child.look(3.5)
    if killed:
        await until(lambda: child.restarts == 1 and child.pid not in (None, pid))
    else:
        assert child.is_alive()
    child.kill()
    await child.stop(1)


@asyncio_test
async def test_a_request_for_the_status_asks_a_child_that_was_asked_some_time_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health checks of a process that is ready are rare."""
    monkeypatch.setattr("enmasse.supervisor.children.child.POLL_READY", 600.0)
    monkeypatch.setattr("enmasse.supervisor.children.child.FRESH", 0.0)
    lost = ChildHealth(False, "the router is not reached")

    class Program(Sleeping):
        def probe(self, spec: Spec) -> HealthProbe:
            return Scripted(READY, lost)

    child = Child(
        Spec("s", "s", {}), Program(), launch.execute, tmp_path, tmp_path, lambda: None, lambda: None, lambda line: None
    )  # fmt: skip
    child.start()
    await until(lambda: child.ready)
    await child.refresh()
    assert not child.ready and child.detail == lost.detail
    child.kill()
    await child.stop(1)
    await child.refresh()  # of a process that has ended nothing is asked


def test_a_process_that_leaves_before_it_was_ready_is_shown_as_leaving(tmp_path: Path) -> None:
    spec = Spec("s", "s", {})
    child = Child(
        spec, Sleeping(), launch.execute, tmp_path, tmp_path, lambda: None, lambda: None, lambda line: None
    )  # fmt: skip
    child.leaving, child.detail = True, "starting"
    assert child.component()["detail"] == "leaving"
    child.detail = "leaving, 96 of 120 connections"
    assert child.component()["detail"] == child.detail
