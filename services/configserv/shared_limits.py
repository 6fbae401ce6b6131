"""Use of the limits of address spaces, by the reports of processes, and the shares of these in each limit
(target and feed `usage`, docs/contracts.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from enmasse.control import ControlConnection, ControlLink, Delivery, jsonmessage
from enmasse.model import feeds
from enmasse.model.tenants.plans import SpaceLimits
from enmasse.model.tenants.shares import CONNECTIONS, CONNECTS, RATES, STATED, SharedLimit, Use
from services.configserv.reports import LinkPair, read_or_reject

ADDRESS: Final = "usage"
SUBJECT: Final = "enmasse.usage"
INTERVAL: Final = 1.0
"""Seconds after which limits are split again of which the use has changed, and the status shows it."""
WINDOW: Final = 4


class _Process(LinkPair):
    """The links of a connection. `due`: limits whose share it has to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = self.number = 0
        self.due: set[str] = set()
        self.keys: set[str] = set()


class SharedLimits:
    """Uses by limit and process. `changed`: called when what spaces use is another number, at most each INTERVAL."""

    def __init__(self, changed: Callable[[], None], ended: Callable[[str, Mapping[str, str]], None]) -> None:
        """`ended(role, removals)`: a process of this role has nothing left of these."""
        self._changed = changed
        self._ended = ended
        self._spaces: Mapping[str, feeds.ReachedSpace] = {}
        self._users: Mapping[str, int] = {}
        self._processes: dict[ControlConnection, _Process] = {}
        self._limits: dict[str, SharedLimit[_Process]] = {}
        self._later: set[str] = set()
        """Limits to be split when the interval ends."""
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def configure(self, spaces: Mapping[str, feeds.ReachedSpace], users: Mapping[str, int]) -> None:
        """Take other spaces, plans or limits. `users`: how many each space has."""
        if users != self._users:
            self._users = users
            self._start_timer()
        if spaces == self._spaces:
            return
        self._spaces = spaces
        self._split(self._limits)
        self._flush()

    def of_spaces(self) -> dict[str, feeds.SpaceUse]:
        """Return what each space uses."""
        found = {
            name: feeds.SpaceUse(plan=space.plan, limits=space.limits, used={"users": self._users.get(name, 0)})
            for name, space in self._spaces.items()
        }
        for key, shared in self._limits.items():
            name, _, space = key.partition("/")
            if space in found:
                found[space].used[name] = shared.used
        return found

    # links

    def attach(self, link: ControlLink) -> None:
        """Serve a link that has been admitted."""
        process = self._processes.setdefault(link.connection, _Process())
        process.attach(
            link,
            ADDRESS,
            window=WINDOW,
            take=lambda delivery: self._take(process, delivery),
            pump=lambda: self._answer(process),
            gone=self._forget,
        )

    def _forget(self, connection: ControlConnection) -> None:
        """A process has ended, or has lost its connection: others may have its shares."""
        process = self._processes.pop(connection, None)
        if process is not None:
            for key in process.keys:
                self._remove(process, key)
            self._flush()

    def _take(self, process: _Process, delivery: Delivery) -> None:
        report = read_or_reject(delivery, feeds.UsageReport)
        if report is None:
            return
        process.seen = report.number
        for key in report.removed:
            if key in process.keys:
                process.keys.discard(key)
                self._remove(process, key)
        for key, use in report.uses.items():
            self._put(process, key, use, report.seen)
        self._flush()
        if report.ended:
            identity = delivery.link.connection.identity
            self._ended(report.role if identity is None else identity.role, report.ended)
        delivery.accept()

    # shares

    def _put(self, process: _Process, key: str, use: Use, seen: int) -> None:
        shared, name = self._limits.get(key), key.partition("/")[0]
        if shared is None:
            shared = self._limits[key] = SharedLimit(rate=name in (*RATES, CONNECTS))
        process.keys.add(key)
        limit = use.limit if name in STATED else self._limit(key)
        self._tell(key, shared.report(process, use, seen, limit))
        self._soon(key)

    def _remove(self, process: _Process, key: str) -> None:
        process.due.discard(key)
        shared = self._limits.get(key)
        if shared is not None:
            self._tell(key, shared.remove(process, self._limit(key)))
            if not shared.parts:
                del self._limits[key]
        self._soon(key)

    def _split(self, keys: Iterable[str]) -> None:
        for key in keys:
            limit, shared = self._limit(key), self._limits.get(key)
            if limit is not None and shared is not None:
                self._tell(key, shared.split(limit))

    def _tell(self, key: str, processes: set[_Process]) -> None:
        for process in processes:
            process.due.add(key)

    def _limit(self, key: str) -> int | None:
        name, _, rest = key.partition("/")
        space, _, user = rest.partition("/")
        if name in STATED:
            shared = self._limits.get(key)
            return None if shared is None else shared.stated
        found = self._spaces.get(space)
        if found is None:
            return None
        if name == CONNECTIONS:
            return found.limits.connections_per_user if user else found.limits.connections
        return limits_of(found.limits).get(name) if name in RATES else None

    def _flush(self) -> None:
        for process in self._processes.values():
            self._answer(process)

    def _answer(self, process: _Process) -> None:
        sender = process.answers
        if not process.due or sender is None or sender.credit <= 0:
            return
        shares = {}
        for key in process.due:
            shared = self._limits.get(key)
            part = None if shared is None else shared.parts.get(process)
            if shared is not None and part is not None:
                part.sent = process.number + 1
                shares[key] = feeds.Share(part.given, shared.used)
        process.due.clear()
        process.number += 1
        body = feeds.Shares(number=process.number, seen=process.seen, shares=shares)
        sender.send(jsonmessage.encode(SUBJECT, msgspec.json.encode(body)), settled=True)

    def _soon(self, key: str) -> None:
        self._later.add(key)
        self._start_timer()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._tick)

    def _tick(self) -> None:
        self._timer = None
        later, self._later = self._later, set()
        self._split(later)
        self._flush()
        self._changed()


def limits_of(limits: SpaceLimits) -> dict[str, int]:
    """Return the limits that are numbers, by their names in plans.json."""
    return {name: limit for name, limit in msgspec.to_builtins(limits).items() if isinstance(limit, int)}
