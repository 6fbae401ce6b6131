"""The reconcile loop of one managed thing.

It works as controllers of Kubernetes do: an event only names the keys that may differ, the work itself compares the
desired with the actual state. So a lost, doubled or late event does no harm, one changed key costs work for one key,
and a sweep behind all other work finds what nobody has reported.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from enmasse import log
from enmasse.backoff import Backoff

BATCH = 500
"""Keys whose operations are under way together."""
RETRY_FIRST, RETRY_LAST = 0.25, 5.0
"""Seconds until everything is read again after an error."""
REFUSED_FIRST, REFUSED_LAST = 0.25, 30.0
"""Seconds until refused keys are tried again."""
NOW, NEVER = 0.0, math.inf

K = TypeVar("K", bound=Hashable)


class Step(NamedTuple):
    """Work that only some controllers have. It comes after changed keys and before retries and the sweep.

    `due()`: when it is to run, in seconds of the loop's clock; NOW, or NEVER while there is nothing to do.
    """

    due: Callable[[], float]
    run: Callable[[], Awaitable[None]]


class Managed(Protocol[K]):
    """What a reconciler works on. Methods may raise one of the reconciler's `errors`: what was done is then unknown,
    and everything begins anew with `open` and `read`.
    """

    @property
    def is_gone(self) -> bool:
        """It cannot be reached any more by this conversation: the reconciler ends."""

    async def open(self) -> None:
        """Begins a conversation."""

    async def read(self) -> None:
        """Reads everything, and queues (`Reconciler.queue`) the keys whose actual state may not be as desired."""

    async def apply(self, keys: Sequence[K]) -> Mapping[K, str]:
        """Brings about what is desired now of these keys: creates, changes, deletes. Gives what was refused, and why.

        It deletes nothing before every source of the desired state is complete (`Sources`).
        """

    async def verify(self, keys: Collection[K]) -> Mapping[K, str]:
        """Reads back what was applied. Returns the keys that differ from the desired state, with the reason."""

    async def reread(self, keys: Collection[K]) -> Iterable[K]:
        """Reads the actual state of refused keys again; returns those to apply again."""

    async def sweep(self) -> float:
        """Reads everything, or the next part of it, and queues what differs. Returns seconds until the next sweep."""

    def failed(self, error: Exception) -> None:
        """The conversation failed; it is opened again after a back-off."""


class Reconciler(Generic[K]):
    """One turn does the first of these that is due: read everything, apply changed keys (at most `batch`), verify them,
    the further `steps` in their order, retry what was refused, sweep. Then it waits for the next.

    `changed(keys)` and `lost(keys)` are called after a turn with what `news` and `missing` have gathered in it: keys
    whose state has to be judged anew, and keys of which something was there and is not any more. `retry_last`: seconds
    until refused keys are tried again at most (REFUSED_LAST).
    """

    def __init__(
        self,
        managed: Managed[K],
        *,
        changed: Callable[[Collection[K]], None],
        lost: Callable[[Collection[K]], None],
        steps: Sequence[Step] = (),
        errors: tuple[type[Exception], ...] = (OSError,),
        batch: int = BATCH,
        retry_last: float | None = None,
        logger: log.Log | None = None,
    ) -> None:
        self.refused: dict[K, str] = {}
        """Key → why it could not be applied. Always the same object."""
        self._managed = managed
        self._changed = changed
        self._lost = lost
        self._errors = errors
        self._batch = batch
        self._log = logger if logger is not None else log.get()
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._full = True
        self._reading = False
        self._queue: dict[K, None] = {}
        self._at_work: frozenset[K] = frozenset()
        self._applied: set[K] = set()
        self._news: set[K] = set()
        self._has_news = False
        self._missing: set[K] = set()
        self._retry_at = NEVER
        self._refused_backoff = Backoff(REFUSED_FIRST, retry_last or REFUSED_LAST)
        self._sweep_at = NOW
        self._steps = (
            Step(lambda: NOW if self._full else NEVER, self._read),
            Step(lambda: NOW if self._queue else NEVER, self._apply),
            Step(lambda: NOW if self._applied else NEVER, self._verify),
            *steps,
            Step(lambda: self._retry_at if self.refused else NEVER, self._retry),
            Step(lambda: self._sweep_at, self._sweep),
        )

    # what others call

    def queue(self, keys: Iterable[K]) -> None:
        """The desired or the actual state of these keys may have changed."""
        self._queue.update(dict.fromkeys(keys))
        self._wake.set()

    def drop(self, key: K) -> None:
        """There is nothing to do about this key any more."""
        self._queue.pop(key, None)

    def read_again(self) -> None:
        """Everything may have changed."""
        self._full = True
        self._wake.set()

    def wake(self) -> None:
        """A step may be due earlier than it was."""
        self._wake.set()

    def is_reading(self) -> bool:
        """Everything is being read, or about to be."""
        return self._full or self._reading

    def is_pending(self, key: K) -> bool:
        """Whether something is yet to be applied of this key."""
        return key in self._queue or key in self._at_work

    def is_unverified(self, key: K) -> bool:
        """Whether it was applied and not read back yet."""
        return key in self._applied

    # what the managed thing calls

    def news(self, keys: Iterable[K]) -> None:
        """The state of these has to be judged anew after this turn; without keys, that of the managed thing itself."""
        self._has_news = True
        self._news.update(keys)

    def missing(self, keys: Iterable[K]) -> None:
        """Something of these was there, is desired, and is gone or altered."""
        self._missing.update(keys)

    def refuse(self, refused: Mapping[K, str]) -> None:
        """These could not be applied; they are tried again later."""
        if refused:
            if not self.refused:
                self._log.warning(
                    "reconcile.changes.refused", reason=next(iter(refused.values()))[:300], keys=len(refused)
                )
                self._retry_at = self._loop.time() + self._refused_backoff.wait()
            self.refused.update(refused)
            self.news(refused)

    def forget_refused(self) -> None:
        """What was refused counts no more: another conversation begins."""
        if self.refused:
            self.news(self.refused)
        self.refused.clear()
        self._retry_at = NEVER

    # the loop

    async def run(self) -> None:
        """Works until the managed thing is gone, or it is cancelled."""
        managed = self._managed
        backoff = Backoff(RETRY_FIRST, RETRY_LAST)
        self._full = True
        while not managed.is_gone:
            try:
                await managed.open()
                while True:
                    await self.turn()
                    backoff.reset()
            except self._errors as error:
                if managed.is_gone:
                    return
                # What the last operations did is unknown, so the retry begins with reading everything.
                wait = backoff.wait()
                self._log.warning("reconcile.round.failed", reason=str(error)[:300], seconds=wait)
                self._full = True
                managed.failed(error)
                self._flush()
                await asyncio.sleep(wait)

    async def turn(self) -> None:
        """The first step that is due, or waiting until one is."""
        now = self._loop.time()
        first = NEVER
        for step in self._steps:
            due = step.due()
            if due <= now:
                await step.run()
                break
            first = min(first, due)
        else:
            await self._wait(first - now)
        self._flush()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds if seconds < NEVER else None):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _flush(self) -> None:
        if self._missing:
            missing, self._missing = self._missing, set()
            self._lost(missing)
        if self._has_news:
            self._has_news = False
            news, self._news = self._news, set()
            self._changed(news)

    async def _read(self) -> None:
        self._full, self._reading = False, True
        self._applied.clear()
        try:
            await self._managed.read()
        finally:
            self._reading = False

    async def _apply(self) -> None:
        keys = []
        for key in self._queue:
            keys.append(key)
            if len(keys) == self._batch:
                break
        for key in keys:
            del self._queue[key]
        self._at_work = frozenset(keys)
        try:
            refused = await self._managed.apply(keys)
        except BaseException:
            self._queue.update(dict.fromkeys(keys))
            raise
        finally:
            self._at_work = frozenset()
        self._applied.update(key for key in keys if key not in refused)
        self._settle(keys, refused)

    async def _verify(self) -> None:
        keys = frozenset(self._applied)
        refused = await self._managed.verify(keys)
        self._applied -= keys
        self._settle(keys, refused)

    def _settle(self, keys: Iterable[K], refused: Mapping[K, str]) -> None:
        if self.refused:
            for key in keys:
                if key not in refused and self.refused.pop(key, None) is not None:
                    self.news((key,))
        self.refuse(refused)

    async def _retry(self) -> None:
        keys = list(self.refused)
        self.forget_refused()
        self.queue(await self._managed.reread(keys))

    async def _sweep(self) -> None:
        seconds = await self._managed.sweep()
        self._sweep_at = self._loop.time() + seconds
        if not self.refused:
            self._refused_backoff.reset()
