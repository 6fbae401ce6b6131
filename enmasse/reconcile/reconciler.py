"""The reconcile loop of one managed thing.

It works like a Kubernetes controller: an event only names the keys that may differ; the work compares the desired with
the actual state. So a lost, repeated or late event does no harm, one changed key costs work for one key, and a sweep in
the background finds differences for which no event came.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from enmasse.logs import log
from enmasse.network.backoff import AGAIN, REFUSED, Backoff, Waits

BATCH = 500
"""Number of keys whose operations are under way together."""
NOW, NEVER = 0.0, math.inf

K = TypeVar("K", bound=Hashable)


class Step(NamedTuple):
    """Additional work of some controllers, run after changed keys and before retries and the sweep.

    `due()`: time of the next run in seconds of the loop's clock; NOW, or NEVER while there is nothing to do.
    """

    due: Callable[[], float]
    run: Callable[[], Awaitable[None]]


class Managed(Protocol[K]):
    """Interface of the object that a reconciler manages. Methods may raise one of the reconciler's `errors`: the
    outcome is then unknown, and the reconciler starts over with `open` and `read`.
    """

    @property
    def is_gone(self) -> bool:
        """True once this conversation can no longer reach the object: the reconciler ends."""

    async def open(self) -> None:
        """Start a conversation."""

    async def read(self) -> None:
        """Read everything, and queue (`Reconciler.queue`) the keys whose actual state may differ from the desired."""

    async def apply(self, keys: Sequence[K]) -> Mapping[K, str]:
        """Apply the current desired state of these keys: create, change, delete. Return key → reason of each refusal.

        Must not delete anything before every source of the desired state is complete (`Sources`).
        """

    async def verify(self, keys: Collection[K]) -> Mapping[K, str]:
        """Read back the applied keys. Return those that differ from the desired state, with the reason."""

    async def reread(self, keys: Collection[K]) -> Iterable[K]:
        """Read the actual state of refused keys again. Return those to apply again."""

    async def sweep(self) -> float:
        """Read everything or the next part of it; queue keys that differ. Return the seconds until the next sweep."""

    def failed(self, error: Exception) -> None:
        """Handle a failed conversation; it is opened again after a back-off."""


class Reconciler(Generic[K]):
    """The reconcile loop. A turn does the first of these that is due: read everything, apply changed keys (at most
    `batch`), verify them, run the further `steps` in their order, retry refused keys, sweep.

    `changed(keys)` and `lost(keys)` are called after a turn with the keys that `news` and `missing` gathered in it:
    keys whose state has to be evaluated again, and keys of which a part has disappeared. `refused_waits`: until refused
    keys are tried again.
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
        refused_waits: Waits = REFUSED,
        logger: log.Log | None = None,
    ) -> None:
        self.refused: dict[K, str] = {}
        """Key → reason of the refusal. Always the same object."""
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
        self._refused_backoff = Backoff(refused_waits)
        self._sweep_at = NOW
        self._steps = (
            Step(lambda: NOW if self._full else NEVER, self._read),
            Step(lambda: NOW if self._queue else NEVER, self._apply),
            Step(lambda: NOW if self._applied else NEVER, self._verify),
            *steps,
            Step(lambda: self._retry_at if self.refused else NEVER, self._retry),
            Step(lambda: self._sweep_at, self._sweep),
        )

    # called by other objects

    def queue(self, keys: Iterable[K]) -> None:
        """Queue keys whose desired or actual state may have changed."""
        self._queue.update(dict.fromkeys(keys))
        self._wake.set()

    def drop(self, key: K) -> None:
        """Remove a key that needs no further work."""
        self._queue.pop(key, None)

    def read_again(self) -> None:
        """Read everything again, because anything may have changed."""
        self._full = True
        self._wake.set()

    def wake(self) -> None:
        """Recompute when the next step is due."""
        self._wake.set()

    def is_reading(self) -> bool:
        """Return True if everything is being read or about to be read."""
        return self._full or self._reading

    def is_pending(self, key: K) -> bool:
        """Return True if the key is still to be applied."""
        return key in self._queue or key in self._at_work

    def is_unverified(self, key: K) -> bool:
        """Return True if the key was applied and not read back yet."""
        return key in self._applied

    # called by the managed object

    def news(self, keys: Iterable[K]) -> None:
        """Report after this turn a changed state of these keys; without keys, of the managed object itself."""
        self._has_news = True
        self._news.update(keys)

    def missing(self, keys: Iterable[K]) -> None:
        """Report that a desired, existing part of these keys has disappeared or was altered."""
        self._missing.update(keys)

    def refuse(self, refused: Mapping[K, str]) -> None:
        """Record refused keys; they are tried again later."""
        if refused:
            if not self.refused:
                self._log.warning(
                    "reconcile.changes.refused", reason=next(iter(refused.values()))[:300], keys=len(refused)
                )
                self._retry_at = self._loop.time() + self._refused_backoff.wait()
            self.refused.update(refused)
            self.news(refused)

    def forget_refused(self) -> None:
        """Forget earlier refusals, because another conversation starts."""
        if self.refused:
            self.news(self.refused)
        self.refused.clear()
        self._retry_at = NEVER

    # the loop

    async def run(self) -> None:
        """Run until the managed object is gone, or until cancelled."""
        managed = self._managed
        backoff = Backoff(AGAIN)
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
                # The outcome of the last operations is unknown, so the retry begins by reading everything.
                wait = backoff.wait()
                self._log.warning("reconcile.round.failed", reason=str(error)[:300], seconds=wait)
                self._full = True
                managed.failed(error)
                self._flush()
                await asyncio.sleep(wait)

    async def turn(self) -> None:
        """Run the first step that is due, or wait until one is."""
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
