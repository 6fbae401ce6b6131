"""The forced addresses: they may be deleted together with their messages, for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from enmasse.model.names import AddressName
from services.configserv.address_phases import Merger
from services.configserv.state.store import Store

IDLE = 60.0
"""Seconds after which an address that is Active and was not changed is no longer forced: it must not lose its messages
by a later change that the order was not made for."""
LOOK = 2.0
MAX_FORCED = 100_000


class Forced:
    """Forced addresses, kept on disk until they are deleted, or Active again."""

    def __init__(self, store: Store, merger: Merger, reporters: Collection[str], changed: Callable[[], None]) -> None:
        self._store = store
        self._merger = merger
        self._reporters = reporters
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self.names = store.forced()
        """Forced addresses for the controllers. An order counts, and is fulfilled, once that is saved: a crash must not
        repeat it, or an address of the same name could lose its messages."""
        self._since: dict[AddressName, float] = dict.fromkeys(self.names, self._loop.time())
        self._busy: set[AddressName] = set()
        """Addresses that have left Active since they were forced."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._watch()

    def add(self, names: Iterable[AddressName]) -> asyncio.Future[None]:
        """Let controllers delete these addresses with their messages. Return a future that is done when this is saved,
        or cannot be."""
        now = self._loop.time()
        for name in names:
            if len(self._since) < MAX_FORCED:
                self._since[name] = now
        saved: asyncio.Future[None] = self._loop.create_future()
        self._save(lambda: saved.set_result(None))
        self.check()
        self._watch()
        return saved

    def check(self) -> None:
        """Drop addresses whose order is fulfilled or too old."""
        if not self._since:
            return
        now = self._loop.time()
        known = all(reporter in self._merger.reporting() for reporter in self._reporters)
        done = []
        for name, since in self._since.items():
            phase = self._merger.phase(name)
            if phase is None:
                if known and (name in self._busy or now - since > LOOK):
                    done.append(name)
            elif phase != "Active":
                self._busy.add(name)
            elif name in self._busy or now - since > IDLE:
                done.append(name)
        if done:
            for name in done:
                del self._since[name]
                self._busy.discard(name)
            self._save()

    def close(self) -> None:
        """Stop the timer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        if self._timer is None and self._since:
            self._timer = self._loop.call_later(LOOK, self._look)

    def _look(self) -> None:
        self._timer = None
        self.check()
        self._watch()

    def _save(self, saved: Callable[[], None] = lambda: None) -> None:
        names = list(self._since)

        def done() -> None:
            self._publish(names)
            saved()

        self._store.save_forced(names, done)

    def _publish(self, names: list[AddressName]) -> None:
        changed, self.names = names != self.names, names
        if changed and not self._closed:
            self._changed()
