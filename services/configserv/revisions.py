"""Revisions that each reporter has seen, and the files that are therefore applied. No sockets, no clock.

Each change of a feed is a new revision; all feeds share one counter. A snapshot carries the revision of its content. A
report carries, for each feed, the revision of the newest snapshot that it takes into account.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping

from enmasse.model.configuration import ADDRESSES, BROKERS, FILES, FLAVORS, ISSUERS, PLANS, SPACES, USERS
from enmasse.model.tenants.spaces import split_file

EVERYTHING = sys.maxsize
ABSENT = -1
_FEEDS = {
    ADDRESSES: "addresses",
    FLAVORS: "flavors",
    BROKERS: "placements",
    USERS: "users",
    ISSUERS: "users",
    SPACES: "addresses",
    PLANS: "addresses",
}
"""File → the feed made from it, of each address space. (A change of a flavor may change other feeds too, later.)"""


class Revisions:
    """The newest revision, how far each reporter is, and `config`: file → SHA-256 (hex) of what is applied.

    A file is applied when each of `reporters` has seen the feed made from it and has nothing pending for that feed.
    """

    def __init__(self, reporters: Iterable[str]) -> None:
        self.number = 0
        self.config: dict[str, str] = {}
        self._reporters = tuple(reporters)
        self._feeds: dict[str, int] = {}
        """Feed → revision of its content; feeds without content are missing."""
        self._seen: dict[str, Mapping[str, int]] = {}
        self._pending: dict[str, Mapping[str, str]] = {}
        self._horizons: dict[str, int] = {}
        self._files: dict[str, tuple[str | None, int]] = {}
        """File → SHA-256 of what was read last (None: there is no such file), and the revision it is in."""

    def of(self, feed: str) -> int:
        """Revision of the feed's content; 0 if it has none."""
        return self._feeds.get(feed, 0)

    def change(self, feeds: Collection[str]) -> None:
        """Give the changed content of these feeds a new revision."""
        if feeds:
            self.number += 1
            self._feeds.update(dict.fromkeys(feeds, self.number))
            self._look()

    def lose(self, feed: str) -> None:
        """Drop the feed's content, until another source delivers one."""
        self._feeds.pop(feed, None)
        self._look()

    # reporters

    def report(self, reporter: str, seen: Mapping[str, int] | None, pending: Mapping[str, str]) -> bool:
        """Enters what a reporter has seen and what is pending there. Returns whether its horizon has grown.

        `seen` None: the reporter does not state it; all that it reports counts as up to date.
        """
        self._seen[reporter] = seen if seen is not None else {}
        self._pending[reporter] = pending
        before = self.horizon(reporter)
        self._horizons[reporter] = self._horizon(reporter)
        return self._horizons[reporter] > before

    def forget(self, reporter: str) -> None:
        """Drop a disconnected reporter."""
        for known in (self._seen, self._pending, self._horizons):
            known.pop(reporter, None)

    def horizon(self, reporter: str) -> int:
        """Newest revision up to which the reporter has seen everything; ABSENT if it is not connected."""
        return self._horizons.get(reporter, ABSENT)

    @property
    def floor(self) -> int:
        """Newest revision up to which every required reporter has seen everything."""
        return min((self.horizon(reporter) for reporter in self._reporters), default=EVERYTHING)

    def _look(self) -> None:
        for reporter in self._horizons:
            self._horizons[reporter] = self._horizon(reporter)

    def _horizon(self, reporter: str) -> int:
        # A feed whose newest snapshot it has seen does not limit the horizon, however old that snapshot is.
        seen = self._seen[reporter]
        return min((at for feed, at in seen.items() if at < self._feeds.get(feed, 0)), default=EVERYTHING)

    # files

    def read(self, files: Mapping[str, str]) -> None:
        """Record that the files (file → SHA-256) were read, after `change` was called for the feeds they changed."""
        for file in {**dict.fromkeys(FILES), **self._files, **files}:
            new, (before, _) = files.get(file), self._files.get(file, (None, 0))
            if new == before:
                continue
            if new == self.config.get(file):
                # Changed back: until the reporters confirm that, the content in between may be in force.
                self._forget(file, before)
            self._files[file] = new, self.number

    def _forget(self, file: str, between: str | None) -> None:
        if file in self.config:
            del self.config[file]
        elif between is not None:
            self.config[file] = between

    def settle(self) -> bool:
        """Enters in `config` the files that are applied now. Returns whether `config` has changed."""
        news = False
        for file, (content, revision) in self._files.items():
            if content == self.config.get(file) or not self._is_applied(file, content, revision):
                continue
            news = True
            if content is None:
                del self.config[file]
            else:
                self.config[file] = content
        return news

    def _is_applied(self, file: str, content: str | None, revision: int) -> bool:
        feed = _FEEDS[split_file(file).file]
        if content is None and feed not in self._feeds:
            return False  # the file is gone, but its content stays in force until another source delivers
        return all(
            self.horizon(reporter) >= revision and feed not in self._pending[reporter] for reporter in self._reporters
        )
