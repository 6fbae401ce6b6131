"""The suite with its console in use against without: durable messages of 1 KiB from client to client through a queue.

In use: a page is open (its streams of addresses, connections, links and events are read), and `/metrics` is scraped
every five seconds, three times as often as the chart has it. The same suite is measured in turn with and without:
without, nothing is asked of the console, which then does nothing.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from benchmarks.harness import load, side_by_side
from benchmarks.suite import COMMON, FLAVOR, SuiteServer
from enmasse.testing import Suite, running

STREAMS = ("addresses", "connections", "links", "events", "components")
ADDRESSES = 1000
AIM = 0.98
SECONDS = 30.0
EVERY = 5.0
"""Seconds between two scrapes."""


@contextlib.contextmanager
def looked_at(suite: Suite) -> Iterator[None]:
    """Keep a page open, and scrape."""
    ended = threading.Event()
    streams = [_opened(suite, path) for path in STREAMS]
    threads = [threading.Thread(target=_read, args=(each,)) for each in streams]
    threads.append(threading.Thread(target=_scrape, args=(suite, ended)))
    for thread in threads:
        thread.start()
    time.sleep(3)  # for the snapshots
    try:
        yield
    finally:
        ended.set()
        for each in streams:
            each.sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _opened(suite: Suite, path: str) -> HTTPConnection:
    connection = HTTPConnection("127.0.0.1", 8080 + suite.offset, timeout=SECONDS)
    connection.connect()
    connection.request("GET", f"/api/v1/{path}?watch=1", headers=suite.operator_headers)
    return connection


def _read(connection: HTTPConnection) -> None:
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    with contextlib.suppress(OSError, HTTPException):
        while answer.readline():
            pass
    connection.close()


def _scrape(suite: Suite, ended: threading.Event) -> None:
    while True:
        connection = HTTPConnection("127.0.0.1", 8080 + suite.offset, timeout=SECONDS)
        with contextlib.suppress(OSError, HTTPException):
            connection.request("GET", "/metrics", headers=suite.operator_headers)
            connection.getresponse().read()
        connection.close()
        if ended.wait(EVERY):
            return


def main(rounds: int = 7, count: int = 150_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        addresses = {f"idle/{number}": {"type": "queue", "flavor": "bench"} for number in range(ADDRESSES)}
        addresses["bench"] = {"type": "queue", "flavor": "bench"}
        with running(Path(folder), addresses, {"bench": FLAVOR}) as suite:
            suite.up()
            suite.wait_ready()
            server = SuiteServer("a suite", suite)
            options = [*COMMON, "--window", "500"]
            load(server, ["bench"], options, count // 4)

            def used() -> dict[str, Any]:
                with looked_at(suite):
                    return load(server, ["bench"], options, count)

            side_by_side(
                f"suite of {ADDRESSES:,} addresses, 1 producer and 1 consumer, pipelined: a page open and metrics "
                "scraped, against without",
                rounds,
                used,
                lambda: load(server, ["bench"], options, count),
                "rate",
                AIM,
                ("in use", "not in use"),
            )


if __name__ == "__main__":
    main()
