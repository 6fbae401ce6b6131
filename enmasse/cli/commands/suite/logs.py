"""`enmasse logs`: the log files of a suite, as lines for people."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from enmasse.cli.common import end, port_offset, put
from enmasse.cli.contexts.contexts import refuse
from enmasse.cli.contexts.folders import data_folder
from enmasse.text import did_you_mean, named_as

POLL_SECONDS = 0.2
PIECE = 1 << 16
BROKER = "broker"
_FIRST = ("timestamp", "level", "event")
_ITSELF = ("service", "component")


@click.command(name="logs", short_help="Show the logs of the suite.")
@click.argument("components", metavar="[COMPONENT]...", nargs=-1)
@click.option("-f", "--follow", is_flag=True, help="Show new lines too, until Ctrl-C.")
@click.option("-n", "--lines", "count", type=click.IntRange(0), default=100, show_default=True, metavar="N",
              help="Begin with the last N lines of each log.")  # fmt: skip
@click.option("--data", "data", type=click.Path(path_type=Path), metavar="DIR",
              help="Data folder of a suite that does not run.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Lines of JSON, unchanged.")
@port_offset
def command(
    components: tuple[str, ...], follow: bool, count: int, data: Path | None, as_json: bool, offset: int
) -> None:
    """Show the logs of the suite, in the order of time: of all components, or of each COMPONENT, such as `router`,
    `broker` or `mqtt_gateway-1`; `enmasse` is the supervisor, `audit` the audit log.
    """
    folder = _folder(data, offset) / "logs"
    names = _names(folder, components)
    tails = {name: Tail(folder / f"{name}.log", count) for name in names}
    show = (lambda name, line: line) if as_json else shown
    for name, line in sorted(
        ((name, line) for name, tail in tails.items() for line in tail.last()), key=lambda each: _time(each[1])
    ):
        put(show(name, line))
    while follow:
        for name in _names(folder, components):
            tail = tails.get(name)
            if tail is None:  # of a component that was started meanwhile
                tail = tails[name] = Tail(folder / f"{name}.log", 0, from_start=True)
            for line in tail.more():
                put(show(name, line))
        time.sleep(POLL_SECONDS)


def _folder(data: Path | None, offset: int) -> Path:
    from enmasse.cli.contexts.http import NotRunning, suite_info

    refuse("it reads files of this machine")  # also if the environment names a folder
    if data is not None:
        return data
    try:
        return Path(suite_info(offset)["data_dir"])
    except NotRunning:
        return data_folder(offset)


def _names(folder: Path, wanted: tuple[str, ...]) -> list[str]:
    """Return the names of logs. Each one wanted may also be the kind of several: `router` of `router-1`, or `broker`
    of all brokers, which are called after their flavors."""
    try:
        known = sorted(path.name.removesuffix(".log") for path in folder.iterdir() if path.name.endswith(".log"))
    except OSError as error:
        end(
            "suite.logs.not-readable",
            f"{folder}: {error.strerror}. Name the data folder of a suite that does not run with --data DIR.",
        )
    if not wanted:
        return [name for name in known if name != "audit"]
    found = []
    kinds = [name.rpartition("-")[0] for name in known]
    brokers = {path.stem for path in (folder.parent / "desired").glob("*.json")}
    for given in wanted:
        word = named_as(given, [*known, *kinds])
        matching = [name for name in known if name == word or name.startswith(f"{word}-")]
        if word == BROKER:
            matching += [name for name in known if name in brokers]
        if not matching:
            text = f"{folder}: there is no log of {word!r}; there are {', '.join(known)}.{did_you_mean(word, known)}"
            end("suite.logs.missing", text)
        found += matching
    return list(dict.fromkeys(found))


class Tail:
    """Lines of a file that grows and may be replaced or emptied."""

    def __init__(self, path: Path, count: int, *, from_start: bool = False) -> None:
        self._path = path
        self._count = count
        self._position = 0
        self._inode = -1
        self._rest = b""
        if from_start:
            self._open()

    def _open(self) -> Any:
        try:
            stream = self._path.open("rb")
        except OSError:  # not there now, or not of this user
            return None
        import os

        found = os.fstat(stream.fileno())
        if found.st_ino != self._inode or found.st_size < self._position:
            self._inode, self._position, self._rest = found.st_ino, 0, b""
        return stream

    def last(self) -> list[str]:
        """Return the last lines, and note the end of the file."""
        lines: deque[str] = deque(maxlen=self._count)
        lines.extend(self.more())
        return list(lines)

    def more(self) -> Iterator[str]:
        """Yield the whole lines since the last call."""
        stream = self._open()
        if stream is None:
            return
        with stream:
            stream.seek(self._position)
            while piece := stream.read(PIECE):
                self._position += len(piece)
                *lines, self._rest = (self._rest + piece).split(b"\n")
                for line in lines:
                    yield line.decode("utf-8", "replace")


def _time(line: str) -> str:
    """Return the time of a line; it sorts as text. Lines without one come first."""
    found = _fields(line)
    return str(found.get("timestamp") or found.get("at") or "")


def _fields(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def shown(name: str, line: str) -> str:
    """Return time, component, level, event and fields of a line of JSON; another line after the component's name.

    A field that only repeats the component's name is left out; `component` of the supervisor's events is another one.
    """
    from enmasse.text import printable

    found = _fields(line)
    if "event" not in found:
        return f"{name}: {printable(line)}"
    when = str(found.get("timestamp", ""))[11:23]
    facts = [
        f"{key}={_fact(value)}"
        for key, value in found.items()
        if key not in _FIRST and not (key in _ITSELF and value == name)
    ]
    text = " ".join([when, name, str(found.get("level", "")), str(found["event"]), *facts])
    return printable(text)


def _fact(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=') else text
