"""Work over many messages, done in portions, between which all other clients are served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

from enmasse.logs import log
from enmasse.network.fair_turns import InTurn
from services.broker.core import errors
from services.broker.core.turn_shares import Share

_log = log.get()
T = TypeVar("T")

Work = Generator[int, None, T]
"""Yields after each portion: the number of messages it dealt with. Between two portions anything may have changed."""

MOST, MOST_OF_CLIENT = 48, 32  # jobs for clients at a time: a console has 32 at most, half of them looks
PORTION = 50  # messages that a job reads, or moves, before others have their turn
FILTERED = 4  # and those that it asks a filter about
MANY = 1000  # and those that it only removes, or puts back in their places
AT_ONCE = 200  # messages that a job deals with before others have their turn


class _Job:
    __slots__ = ("done", "key", "tenant", "work")

    def __init__(
        self, work: Work[Any], done: Callable[[Any, Exception | None], None], key: Hashable, tenant: str | None
    ) -> None:
        self.work = work
        self.done = done
        self.key = key
        self.tenant = tenant


class Jobs:
    """Jobs that are under way take turns by address space, a portion each. A small one is finished where it is
    begun."""

    def __init__(self, held_up: Callable[[], bool], share: Share) -> None:
        """`held_up`: whether jobs have to wait, because of what they add to; `wake` is to be called afterwards.
        `share`: of a turn, for what is finished where it is begun."""
        self._held_up = held_up
        self._share = share
        self.on_work: Callable[[], None] = _nothing
        """Set by the owner: `run` is to be called in a later turn."""
        self._jobs: InTurn[_Job] = InTurn()
        self._keys: set[Hashable] = set()
        self._asked: Counter[str] = Counter()  # jobs for clients, by client
        self._woken = False  # `on_work` was called, and `run` not yet

    def __len__(self) -> int:
        return len(self._jobs)

    def ask(self, work: Work[T], done: Callable[[T | None, Exception | None], None], client: str) -> None:
        """Begin work for a client; `done` is called with its result or its exception. It is refused while MOST are
        under way, or MOST_OF_CLIENT of this client."""
        whole, mine = self._asked.total() >= MOST, self._asked[client] >= MOST_OF_CLIENT
        if whole or mine:
            work.close()
            done(None, errors.too_many_jobs(f"{MOST}" if whole else f"{MOST_OF_CLIENT} of {client}"))
            return
        self._asked[client] += 1

        def finished(result: T | None, error: Exception | None) -> None:
            self._asked[client] -= 1
            if not self._asked[client]:
                del self._asked[client]
            done(result, error)

        self._begin(_Job(work, finished, None, None))

    def start(self, key: Hashable, work: Callable[[], Work[Any]], tenant: str | None, *, at_once: bool = True) -> None:
        """Work of the broker's own, unless some with this key is under way. `tenant`: whose turns it takes; `at_once`:
        a small job is finished here."""
        if key in self._keys:
            return
        self._keys.add(key)

        def finished(_: object, error: Exception | None) -> None:
            self._keys.discard(key)
            if error is not None:
                _log.error("broker.job.failed", key=str(key), exc_info=error)

        self._begin(_Job(work(), finished, key, tenant), at_once=at_once)

    def _begin(self, job: _Job, *, at_once: bool = True) -> None:
        dealt, spent = 0, self._share()
        while at_once and dealt < AT_ONCE and not spent() and not self._held_up():
            portion = self._step(job)
            if portion is None:
                return
            dealt += max(1, portion)
        self._jobs.add(job.tenant, job)
        self.wake()

    def wake(self) -> None:
        """Ask for a turn if there is work."""
        if self._jobs and not self._woken:
            self._woken = True
            self.on_work()

    def run(self, spent: Callable[[], bool]) -> None:
        """Run one portion after the other until `spent` (the turn's share of time, or of portions) or until nothing is
        left to be done."""
        self._woken = False
        jobs = self._jobs
        while jobs and not self._held_up():
            job = jobs.take()
            if self._step(job) is not None:
                jobs.add(job.tenant, job)
            if spent():
                break
        if not self._held_up():
            self.wake()

    def _step(self, job: _Job) -> int | None:
        """Do one portion of a job. Return how many messages it was; None: the job is finished."""
        try:
            return next(job.work)
        except StopIteration as end:
            result, error = end.value, None
        except Exception as failure:
            result, error = None, failure
        job.done(result, error)
        return None


def _nothing() -> None:
    pass
