"""`enmasse top`: rates of addresses and connections, live, from the streams of the console."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from typing import Any

import click

from enmasse.cli.common import port_offset
from enmasse.cli.contexts.api_problems import Lost, lost
from enmasse.cli.contexts.console import API, Console, console
from enmasse.cli.contexts.streams import MergedRows, follow
from enmasse.cli.output.tables import age, routes_text, table

STEP = 1.0
"""Seconds between two pictures."""
SETTLED = 3.0
"""Seconds of --once: the console makes rates of what it has seen since its first request."""
PARTS = {"addresses": "name", "connections": "id", "routers": "name"}
"""Resource → the key of its rows."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K\n", "\x1b[J"


@click.command(name="top", short_help="Show rates of addresses and connections, live.")
@click.option("--once", is_flag=True, help="Show them once, after 3 seconds of counting.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout, each second.")
@port_offset
def command(once: bool, as_json: bool, offset: int) -> None:
    """Show the rates of addresses and connections, the busiest first, until q or Ctrl-C; of several routers these, too.

    Exit status 0: ended. 1: refused. 4: no suite is running, or its console does not answer.
    """
    if not (once or as_json) and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("It draws on a terminal; elsewhere add --once or --json.")
    there = console(offset)
    there.request("GET", f"{API}me")  # logs in, if the console wants that
    streams = Streams(there)
    try:
        if once:
            streams.wait(time.monotonic() + SETTLED)
            _print(streams, as_json)
        elif as_json:
            while True:
                streams.wait(time.monotonic() + STEP)
                _print(streams, as_json)
        else:
            with _screen():
                _draw_until_q(streams)
            click.echo(summary(streams))
    except Lost as error:
        lost(error)


class Streams:
    """The rows of both streams, which two threads bring up to date."""

    def __init__(self, there: Console) -> None:
        self._there = there
        self._lock = threading.Condition()
        self._parts = {name: MergedRows(key) for name, key in PARTS.items()}
        self._lost: Lost | None = None
        for name in PARTS:
            threading.Thread(target=self._follow, args=(name,), daemon=True).start()

    def _follow(self, name: str) -> None:
        try:
            for kind, data in follow(self._there, f"{name}?watch=1"):
                with self._lock:
                    self._parts[name].take(kind, data)
                    self._lock.notify_all()
        except Lost as error:
            with self._lock:
                if (
                    name == "routers" and not self._parts[name].complete
                ):  # no address space has them, nor an older suite
                    self._parts[name].complete = True
                else:
                    self._lost = error
                self._lock.notify_all()

    def wait(self, until: float) -> None:
        """Wait until a time, and until everything is there. Raises Lost."""
        with self._lock:
            while True:
                if self._lost is not None:
                    raise self._lost
                left = until - time.monotonic()
                if left <= 0 and all(part.complete for part in self._parts.values()):
                    return
                self._lock.wait(max(left, 0.0) or None)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a resource, the busiest first. Raises Lost."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            found = list(self._parts[name].rows.values())
        key = PARTS[name]
        return sorted(found, key=lambda row: (-_busy(row), row[key]))


def _rates(row: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = row["stats"]["rates"] if "stats" in row else row["rates"]
    return found


def _busy(row: dict[str, Any]) -> float:
    rates = _rates(row)
    return rates["in"] + rates["out"]


def summary(streams: Streams) -> str:
    """Return the sums in a line."""
    addresses, connections = streams.rows("addresses"), streams.rows("connections")
    rates = [_rates(row) for row in addresses]
    held = sum(row["stats"]["messages"] or 0 for row in addresses)
    return (
        f"in {_rate(sum(each['in'] for each in rates))}/s, out {_rate(sum(each['out'] for each in rates))}/s, "
        f"{held} stored; {len(addresses)} addresses, {len(connections)} connections"
    )


def lines(streams: Streams, columns: int | None, most: int | None) -> Iterator[str]:
    """Yield the lines of the picture: `columns` wide and `most` lines at most, None: as many as there are."""
    addresses, connections, routers = (streams.rows(name) for name in PARTS)
    yield summary(streams)
    room = None if most is None else max(most - 5, 2)  # the summary, two empty lines, two lines of titles
    if any(row["routes"] for row in routers):
        yield ""
        titles = ("router", "version", "in/s", "out/s", "connections", "links", "reaches")
        yield from table(titles, [_router(row) for row in routers], columns)
        room = None if room is None else max(room - len(routers) - 2, 2)
    shown = len(addresses) if room is None else min(len(addresses), max(room // 2, room - len(connections)))
    yield ""
    yield from table(
        ("address", "in/s", "out/s", "messages", "consumers", "producers", "rejected/s", "oldest"),
        [_address(row) for row in addresses[:shown]],
        columns,
    )
    yield ""
    yield from table(
        ("connection", "client", "user", "protocol", "in/s", "out/s", "links", "for"),
        [_connection(row) for row in connections[: None if room is None else room - shown]],
        columns,
    )


def _router(row: dict[str, Any]) -> tuple[Any, ...]:
    rates = row["rates"]
    return (
        row["name"], row["version"], _rate(rates["in"]), _rate(rates["out"]), row["connections"], row["links"],
        routes_text({each["name"]: each for each in row["routes"]}),
    )  # fmt: skip


def _address(row: dict[str, Any]) -> tuple[Any, ...]:
    stats = row["stats"]
    rates = stats["rates"]
    rejected = _rate(rates["rejected"]) if rates["rejected"] else None
    oldest = None if stats["oldest"] is None else f"{stats['oldest']:.0f}s"
    return (
        row["name"], _rate(rates["in"]), _rate(rates["out"]), stats["messages"], stats["consumers"], stats["producers"],
        rejected, oldest,
    )  # fmt: skip


def _connection(row: dict[str, Any]) -> tuple[Any, ...]:
    rates = row["rates"]
    return (
        row["id"], row["container"], row["user"], row["protocol"], _rate(rates["in"]), _rate(rates["out"]),
        row["links"], age(row["since"] or ""),
    )  # fmt: skip


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"


def _print(streams: Streams, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({name: streams.rows(name) for name in PARTS}))
        return
    for line in lines(streams, None, None):
        click.echo(line)


def _draw_until_q(streams: Streams) -> None:
    """Draw each second, until the key q."""
    streams.wait(0.0)
    while True:
        size = shutil.get_terminal_size()
        shown = [*lines(streams, size.columns, size.lines - 2), "", click.style("q or Ctrl-C ends", dim=True)]
        click.echo(_HOME + "".join(line + _REST_OF_LINE for line in shown[:-1]) + shown[-1] + _REST, nl=False)
        if select.select([sys.stdin], [], [], STEP)[0] and os.read(sys.stdin.fileno(), 1024)[:1].lower() in (b"q", b""):
            return


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    """Use the terminal's second screen, without a cursor, and get keys at once; restored at the end."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        click.echo(_ENTER, nl=False)
        yield
    finally:
        click.echo(_LEAVE, nl=False)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
