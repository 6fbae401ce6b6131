"""`enmasse up` as operators start it: from scripts, under nohup, with streams closed, few open files, odd names."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.cli.contexts.http import NotRunning, get_status
from tests.cli.running import ENMASSE, enmasse, free_offset, wait_for
from tests.kit.waiting import DEADLINE


class Started:
    """A suite that a shell has started: `before` are commands before it, `streams` its redirections."""

    def __init__(
        self,
        config: Path | str,
        data: Path | str,
        *,
        before: str = "",
        streams: str = "",
        folder: Path | None = None,
        env: dict[str, str] | None = None,
        without: tuple[str, ...] = ("--without", "mqtt"),
    ) -> None:
        self.offset = free_offset()
        options = ["--config", str(config), "--data", str(data), "--port-offset", str(self.offset), *without]
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'{before} exec "$@" {streams}', "sh", ENMASSE, "up", *options],
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return enmasse(*arguments, "--port-offset", self.offset)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()
        with contextlib.suppress(NotRunning):
            return bool(get_status(self.offset)["ready"])
        return False

    def end(self) -> str:
        """Ends it as it should end; what it has said on stderr."""
        self.process.terminate()
        _, errors = self.process.communicate(timeout=DEADLINE)
        assert self.process.returncode == 0, errors
        assert "Traceback" not in errors
        # On a slow machine the start takes its time, and what it waits for is told.
        return "".join(line for line in errors.splitlines(True) if not line.startswith("still waiting for "))


@contextlib.contextmanager
def ready(config: Path | str, data: Path | str, **how: object) -> Iterator[Started]:
    started = Started(config, data, **how)  # type: ignore[arg-type]  # keyword arguments of several types
    try:
        wait_for(started.is_ready, "the suite to be ready", seconds=DEADLINE)
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
            started.process.communicate()


@pytest.mark.parametrize(
    "streams",
    [
        "<&- >&- 2>&-",
        *(pytest.param(streams, marks=pytest.mark.slow) for streams in (">/dev/full", ">&-", "| head -1 >/dev/null")),
    ],
)
def test_streams_that_take_nothing(streams: str, config: Path, tmp_path: Path) -> None:
    """Nor does what is closed become the lock file or a socket, into which somebody's last words would go."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    before = ""
    if streams.startswith("|"):
        before, streams = f"mkfifo '{tmp_path}/pipe'; (head -1 <'{tmp_path}/pipe') >/dev/null &", f">'{tmp_path}/pipe'"
    with ready(config, tmp_path / "data", before=before, streams=streams, env=env) as suite:
        holder = (tmp_path / "data" / "lock").read_text()
        assert holder == f"{suite.process.pid}\n"
        for descriptor in range(3):
            at = os.readlink(f"/proc/{suite.process.pid}/fd/{descriptor}")
            assert at.startswith(("/dev/", "pipe:", f"{tmp_path}/pipe")), at
        assert suite.end() == ""


def test_under_nohup_and_with_few_open_files(config: Path, tmp_path: Path) -> None:
    with ready(config, tmp_path / "data", before="trap '' HUP; ulimit -n 256;") as suite:
        suite.process.send_signal(signal.SIGHUP)
        assert suite.cli("send", "myqueue", "x", "--timeout", "60").returncode == 0
        wait_for(suite.is_ready, what="the suite to be ready still")
        assert "a process may have only 256 open files here" in suite.end()


@pytest.mark.slow  # test_under_nohup_and_with_few_open_files, and test_files.py
def test_odd_names_relative_and_nothing_in_the_environment(config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mit Leerzeichen, \N{CJK UNIFIED IDEOGRAPH-65E5}\N{CJK UNIFIED IDEOGRAPH-672C}"
    folder.mkdir()
    options = {
        "folder": folder,
        "env": {"LC_ALL": "C", "PATH": "/bin:/usr/bin"},
        "before": "ulimit -Sn 256;",
        "without": (),  # the stores of MQTT have their files there, too
    }
    with ready("../config", "d\N{LATIN SMALL LETTER A WITH DIAERESIS} ta", **options) as suite:
        assert suite.cli("send", "myqueue", "stored", "--timeout", "60").returncode == 0
        children = Path(f"/proc/{suite.process.pid}/task/{suite.process.pid}/children").read_text().split()
        for pid in children:
            limits = Path(f"/proc/{pid}/limits").read_text()
            soft, hard = next(line.split()[3:5] for line in limits.splitlines() if line.startswith("Max open files"))
            assert soft == hard
        assert suite.end() == ""
    with ready("../config", "d\N{LATIN SMALL LETTER A WITH DIAERESIS} ta", **options) as suite:
        assert suite.cli("receive", "myqueue", "--count", "1", "--timeout", "60").stdout == "stored\n"
        assert suite.end() == ""
    assert sorted(path.name for path in folder.iterdir()) == ["d\N{LATIN SMALL LETTER A WITH DIAERESIS} ta"]


def test_the_end_of_the_start_where_little_can_be_shown(config: Path, tmp_path: Path) -> None:
    """The current directory is gone, and the terminal cannot show the name of the data directory."""
    gone, out, data = tmp_path / "gone", tmp_path / "out", tmp_path / "d\N{LATIN SMALL LETTER A WITH DIAERESIS}ta"
    before = f"mkdir '{gone}'; cd '{gone}'; rmdir '{gone}';"
    env = {"PYTHONIOENCODING": "ascii:strict", "PATH": "/bin:/usr/bin"}
    with ready(config, data, before=before, streams=f">'{out}'", env=env) as suite:
        wait_for(lambda: "address add" in out.read_text(), what="the last line")
        lines = out.read_text().splitlines()
        assert lines[lines.index("EnMasse is ready") + 2].endswith(f"amqp://127.0.0.1:{5672 + suite.offset}")
        assert f"  {ENMASSE} status --port-offset {suite.offset}" in lines
        assert suite.end() == ""
