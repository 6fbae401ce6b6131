"""The cases of exit statuses, and what cases of several groups need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.running import Up, enmasse

Case = Callable[[Path], int]
CASES: dict[tuple[str, int], list[Case]] = {}


def case(command: str, status: int) -> Callable[[Case], Case]:
    """A way to get this status of that command. It returns the one it got."""

    def add(function: Case) -> Case:
        CASES.setdefault((command, status), []).append(function)
        return function

    return add


def configuration(folder: Path) -> Path:
    config = folder / "config"
    config.mkdir()
    (config / "addresses.json").write_text('{"a": {"type": "anycast"}}')
    (config / "flavors.json").write_text("{}")
    (config / "users.json").write_text('{"alice": {}}')
    (folder / "stored" / "logs").mkdir(parents=True)
    (folder / "stored" / "logs" / "a.log").write_text("line\n")
    (folder / "stored" / "format.json").write_text('{"format": 1}')
    return config


@contextmanager
def running(folder: Path) -> Iterator[Up]:
    """A suite of stand-ins that is ready."""
    with Up(configuration(folder), folder / "data", fake=True) as up:
        up.feed()
        yield up.until_ready()


def of(*arguments: object) -> int:
    """The status of a command to which nothing odd happens."""
    done = enmasse(*map(str, arguments))
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode
