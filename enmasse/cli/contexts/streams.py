"""Streams of the console that a command follows: merged rows, and a new stream after one that has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from enmasse.cli.contexts.api_problems import Lost
from enmasse.cli.contexts.console import Console, api

ATTEMPTS, PAUSE = 20, 1.0
"""New streams that are tried after a loss, and seconds between two of them: a console that died is back by then."""
END = "end"
"""The last event of a stream that the console ends."""


def follow(there: Console, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the events of a stream: `snapshot` with all rows, then each `change`. Where the stream ends, because the
    login has expired, rights have changed or the console was restarted, another one begins, with a snapshot. Raises
    Lost."""
    path = api(where)
    failures = ATTEMPTS  # the first stream has no second attempt
    while True:
        try:
            for kind, data in there.events(path):
                failures = 0
                if kind != END:
                    yield kind, data
        except Lost as error:
            failures += 1
            if failures > ATTEMPTS or error.final:
                raise
        time.sleep(PAUSE)


class MergedRows:
    """The rows of a stream, by `key`."""

    def __init__(self, key: str) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.complete = False
        """A whole snapshot has come."""
        self._key = key

    def take(self, kind: str, data: Any) -> None:
        """Take an event."""
        if kind == "snapshot":
            self.rows.clear()
        for row in data["items"]:
            self.rows[row[self._key]] = row
        for key in data["removed"]:
            self.rows.pop(key, None)
        if not data["more"]:
            self.complete = True
