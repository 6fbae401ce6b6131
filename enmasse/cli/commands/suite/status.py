"""`enmasse status`: is the running suite ready?"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import click

from enmasse.cli.common import FAILED, OK, UNREACHABLE, Seconds, end, port_offset, report, say
from enmasse.cli.configuration import cluster
from enmasse.cli.contexts.contexts import in_force

POLL_SECONDS, CLUSTER_POLL_SECONDS = 0.05, 1.0
WATCH_SECONDS = 1.0
"""Between two looks of --watch."""
BROKERS = "brokers.json"
FILES = ("addresses.json", "flavors.json", BROKERS, "users.json", "issuers.json")
BEGIN_SECONDS = 5.0
"""In which --wait expects an `enmasse up` that was begun just now, and is no process yet."""
_UP = re.compile(r"(?:^|[ /])enmasse up(?: |$)")
_OFFSET = re.compile(r" --port[-_]offset[ =](\d+)")
_OFFSET_OF_ENVIRONMENT = re.compile(r"(?:^|\0)ENMASSE_PORT_OFFSET=(\d+)")
_OF_FILE = re.compile(r" --(?:options|config)[ =]")
MOST = 20
"""Lines about what is missing."""
NOBODY_MAKES_BROKERS = (
    f"{BROKERS} was there when the suite started, so no storage controller runs to make the brokers now:"
    " put the file back, or restart `enmasse up`"
)
Hashes = dict[str, str | None]
"""File → SHA-256 in hex of what is in it; None: nothing may be applied under this name."""
EMPTY: dict[str, Any] = {
    "schema": 1, "ready": False, "settled": False, "degraded": [], "config": {}, "components": [], "addresses": [],
    "errors": [], "ca": None, "insecure": [], "certificates": [], "listeners": [],
}  # fmt: skip


@click.command(name="status", short_help="Show whether the running suite is ready.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, also if no suite is running.")
@click.option("--wait", "wait", type=Seconds(), metavar="SECONDS",
              help="Wait until the current files are applied and everything is ready, at most SECONDS.")  # fmt: skip
@click.option("--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@port_offset
@cluster.options
def command(as_json: bool, wait: float | None, watch: bool, offset: int, place: cluster.Place | None) -> None:
    """Show whether the running suite is ready; with --namespace, an installation in a Kubernetes cluster.

    --wait waits for a suite that is starting too, and gives up after 5 s in which none runs or starts.

    Exit status 0: ready. 1: not ready. 4: no suite is running.
    """
    if watch:
        if wait is not None:
            raise click.UsageError("--watch does not end: leave out --wait")
        _watch(offset, place, as_json=as_json)
    status, problem = fetch(offset, wait) if place is None else _fetch_cluster(place, wait)
    _show(status, problem, _own(offset, place), as_json=as_json)
    if status is None and place is None:
        end("suite.http.unreachable", problem[0], UNREACHABLE)
    if status is None:
        end("cluster.api.failed", problem[0], UNREACHABLE)
    if problem:
        end("suite.status.not-ready", "\n".join([*problem[1:], problem[0]]))
    sys.exit(OK if status["ready"] else FAILED)


def _show(status: dict[str, Any] | None, problem: list[str], offset: int | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(status if status is not None else EMPTY))
    elif status is not None:
        from enmasse.cli.output.tables import print_status

        print_status(status, offset, problem[1:])


def _own(offset: int, place: cluster.Place | None) -> int | None:
    """Return the offset of the suite on this machine; None if the status is of another one."""
    return None if place is not None or in_force() is not None else offset


def _watch(offset: int, place: cluster.Place | None, *, as_json: bool) -> NoReturn:
    """Show the status whenever it changes: on a terminal in place of the one before, otherwise below it."""
    shown: Any = None
    in_place = not as_json and sys.stdout.isatty()
    while True:
        status, problem = fetch(offset, None) if place is None else _fetch_cluster(place, None)
        if (status, problem) != shown or in_place:  # ages change
            if in_place:
                click.clear()
            elif shown is not None and not as_json:
                click.echo()
            _show(status, problem, _own(offset, place), as_json=as_json)
            if status is None and not as_json:
                say(problem[0])
            shown = status, problem
        time.sleep(WATCH_SECONDS)


def fetch(offset: int, wait: float | None) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the status of a suite, or None if none runs, and lines about what is wrong.

    With `wait`: of the moment when it is ready with its current files, at the latest after `wait` seconds.
    """
    from enmasse.cli.contexts.http import ANSWER_SECONDS, NothingListens, NotRunning, get_status, suite_info

    if in_force() is not None:
        return _fetch_console(offset, wait)
    if wait is None:
        try:
            return get_status(offset), []
        except NotRunning as error:
            return None, [str(error)]
    deadline = time.monotonic() + wait
    seen = time.monotonic()
    hashes: Hashes | None = None
    told = False
    while True:
        left = deadline - time.monotonic()
        patience = max(ANSWER_SECONDS, left)  # a suite that answers late is running, too
        try:
            if hashes is None:
                hashes = file_hashes(Path(suite_info(offset)["config_dir"]))
            brief = get_status(offset, patience, brief=True)
            if (_settled(brief) and not missing_files(hashes, brief)) or left <= 0:
                status = get_status(offset, patience)  # of a moment later: it is judged, not the one before
                problem = _missing(hashes, status)
                if _settled(status, late=left <= 0) and not problem:
                    return status, []
                if left <= 0:
                    return status, [f"not ready after {wait:g} s", *problem, *_reasons(status)]
        except NotRunning as error:
            if not isinstance(error, NothingListens):
                seen = time.monotonic()
            elif left > 0 and time.monotonic() - seen > BEGIN_SECONDS and _is_starting(offset):
                seen = time.monotonic()
                if not told:
                    told = True
                    report(f"an `enmasse up` is starting; waiting for it for up to {left:.0f} s more")
            if left <= 0 or time.monotonic() - seen > BEGIN_SECONDS:
                return None, [str(error)]
        else:
            seen = time.monotonic()
        time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def _is_starting(offset: int) -> bool:
    """Return whether an `enmasse up` with this port offset is a process of this machine: it may be about to listen."""
    for process in Path("/proc").glob("[0-9]*"):
        words = _text(process / "cmdline").replace("\0", " ")
        if _UP.search(words) and _offset_of(words, process) in (offset, None):
            return True
    return False


def _offset_of(words: str, process: Path) -> int | None:
    """Return the port offset of an `enmasse up`; None: it may stand in a file of options."""
    stated = _OFFSET.search(words) or _OFFSET_OF_ENVIRONMENT.search(_text(process / "environ"))
    if stated is None:
        return None if _OF_FILE.search(words) else 0
    return int(stated[1])


def _text(file: Path) -> str:
    """Return a file of a process; empty if the process has ended, or is another user's."""
    try:
        return os.fsdecode(file.read_bytes())
    except OSError:
        return ""


def _settled(status: dict[str, Any], *, late: bool = False) -> bool:
    """Return whether nothing is awaited, `late`: or only what is a warning. An older suite knows no warnings."""
    return bool(status["ready"] if late else status.get("settled", status["ready"]))


def _fetch_console(offset: int, wait: float | None) -> tuple[dict[str, Any] | None, list[str]]:
    """As `fetch`, of the suite of a context. Its files are not here: they are what is in force."""
    from enmasse.cli.contexts.api_problems import refused
    from enmasse.cli.contexts.console import console

    deadline = time.monotonic() + (wait or 0.0)
    there = console(offset)
    while True:
        code, status = there.request("GET", "/api/status")
        if code >= 400 or not isinstance(status, dict):
            refused(code, status)
        left = deadline - time.monotonic()
        if wait is None or _settled(status, late=left <= 0):
            return status, []
        if left <= 0:
            return status, [f"not ready after {wait:g} s", *_reasons(status)]
        time.sleep(min(CLUSTER_POLL_SECONDS, max(0.0, left)))


def _fetch_cluster(place: cluster.Place, wait: float | None) -> tuple[dict[str, Any] | None, list[str]]:
    """As `fetch`, of an installation in a cluster."""
    deadline = time.monotonic() + (wait or 0.0)
    while True:
        left = deadline - time.monotonic()
        try:
            there = cluster.Installation(place)
            hashes = there.hashes() if wait is not None else {}
            status = there.status()
            problem = _missing(hashes, status)
            if wait is None or (_settled(status, late=left <= 0) and not problem):
                return status, []
            if left <= 0:
                return status, [f"not ready after {wait:g} s", *problem, *_reasons(status)]
        except cluster.Unreachable as error:
            if left <= 0:
                return None, [str(error)]
        time.sleep(min(CLUSTER_POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def _missing(hashes: Hashes, status: dict[str, Any]) -> list[str]:
    missing = missing_files(hashes, status)
    if not missing:
        return []
    names = [f"{name} (its removal)" if hashes[name] is None else name for name in missing]
    # The reason may be in the message of something that is ready.
    notes = [f"address {a['name']}: {a['message']}" for a in status["addresses"] if a["ready"] and a.get("message")]
    notes += [f"{c['name']}: {c['detail']}" for c in status["components"] if c["ready"] and c["detail"]]
    if hashes.get(BROKERS, "") is None and all(c["kind"] != "storage_controller" for c in status["components"]):
        notes.insert(0, NOBODY_MAKES_BROKERS)
    return [f"not applied yet: {', '.join(names)}", *notes[:MOST]]


def file_hashes(folder: Path) -> Hashes:
    """Return the expected hash of each configuration file. A file that cannot be read is left out: it cannot be
    applied."""
    from enmasse.storage.files import read_file

    hashes: Hashes = {}
    for name in FILES:
        try:
            hashes[name] = hashlib.sha256(read_file(folder / name)).hexdigest()
        except FileNotFoundError:
            if name == BROKERS:  # the others cannot be taken away: what applied before stays
                hashes[name] = None
        except OSError:
            continue
    return hashes


def missing_files(wanted: Hashes, status: dict[str, Any]) -> list[str]:
    """Return the names of files whose expected content is not applied."""
    return [name for name, digest in wanted.items() if status["config"].get(name) != digest]


def _reasons(status: dict[str, Any]) -> list[str]:
    from enmasse.supervisor.error_lines import error_lines
    from enmasse.text import printable

    lines = [f"{c['name']}: {c['detail'] or 'not ready'}" for c in status["components"] if not c["ready"]]
    lines += [
        f"address {a['name']}: {a['phase']}: {a.get('message') or ''}" for a in status["addresses"] if not a["ready"]
    ]
    lines += error_lines(status["errors"])
    more = [f"… and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return [*map(printable, lines[:MOST]), *more]
