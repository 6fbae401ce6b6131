"""Jobs: work on many messages, which continues after the answer to its request."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal

from enmasse.api.types import Job
from enmasse.process import runner
from services.console.door.access import Caller
from services.console.door.under_way import Shares
from services.console.errors import RequestError, failed
from services.console.following.traffic import moment

KEPT = 1000
"""Jobs that are remembered, the newest."""
MOST, MOST_OF_CALLER = 16, 4
"""Jobs under way at a time, of all callers and of one."""
AT_ONCE = 0.5
"""Seconds in which a job may end before its request is answered."""


class Running:
    """A job, as its work sees it. `done`: messages so far, set by the work; it ends soon when `stopped`."""

    def __init__(self, first: Job) -> None:
        self.done = 0
        self.stopped = False
        self.error: RequestError | None = None
        self.task: asyncio.Task[None] | None = None
        self.first = first
        self._ended = False

    @property
    def is_running(self) -> bool:
        """Whether the work continues."""
        return not self._ended

    def end(self) -> None:
        """Note that the work has ended."""
        self._ended = True

    @property
    def now(self) -> Job:
        """Return its present state."""
        job = self.first
        state: Literal["running", "done", "failed", "cancelled"] = "running"
        if not self.is_running:
            state = "failed" if self.error is not None else "cancelled" if self.stopped else "done"
        total = None if job.total is None else max(job.total, self.done)  # depths are a second old
        detail = "" if self.error is None else self.error.detail
        return Job(
            id=job.id, address=job.address, operation=job.operation, state=state,
            done=self.done, total=total, detail=detail, user=job.user, started=job.started,
        )  # fmt: skip


class Jobs:
    """The jobs of this console. They end with it: what a broker has done by then stays done."""

    def __init__(self) -> None:
        self._jobs: dict[str, Running] = {}
        self._under_way = Shares("jobs under way", MOST, MOST_OF_CALLER)

    def all(self) -> list[Running]:
        """Return the jobs, oldest first."""
        return list(self._jobs.values())

    def get(self, id: str) -> Running | None:
        """Return a job."""
        return self._jobs.get(id)

    async def begin(
        self,
        caller: Caller,
        job: Job,
        work: Callable[[Running], Awaitable[None]],
        ended: Callable[[Job], None],
    ) -> Running:
        """Begin work of a caller, and wait a moment for its end. `job` gets its id here. Raises RequestError if there
        are too many under way, or if it failed before it did anything."""
        end = self._under_way.begin(caller)
        id = secrets.token_hex(8)  # not counted: others must not see how many there are
        running = Running(
            Job(
                id=id, address=job.address, operation=job.operation, state="running", total=job.total, user=job.user,
                started=moment(time.time()) or "",
            )
        )  # fmt: skip
        self._jobs[id] = running
        while len(self._jobs) > KEPT:
            self._forget()
        running.task = runner.spawn(self._run(running, work, ended, end), "job")
        await asyncio.wait([running.task], timeout=AT_ONCE)
        if running.error is not None and not running.done:
            raise running.error
        return running

    def _forget(self) -> None:
        """Forget the oldest job that has ended, of the user that has most of these."""
        over = {key: each.first.user for key, each in self._jobs.items() if not each.is_running}
        ((user, _),) = Counter(over.values()).most_common(1)
        del self._jobs[next(key for key, each in over.items() if each == user)]

    async def _run(
        self,
        running: Running,
        work: Callable[[Running], Awaitable[None]],
        ended: Callable[[Job], None],
        end: Callable[[], None],
    ) -> None:
        try:
            await work(running)
        except asyncio.CancelledError:  # the console ends
            running.stopped = True
            raise
        except RequestError as error:
            running.error = error
        except Exception:
            running.error = failed(running.first.operation)
        finally:
            running.end()
            end()
            ended(running.now)

    async def close(self) -> None:
        """Stop all."""
        tasks = [each.task for each in self._jobs.values() if each.task is not None and not each.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
