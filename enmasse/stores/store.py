"""A store as services use it: gathers writes into transactions, keeps its engine open, says how it is."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from enmasse.logs import log
from enmasse.network.backoff import SOON_AGAIN, Backoff
from enmasse.process import runner
from enmasse.stores.storage_engine import Change, Engine, EngineError, Tables

PATIENCE = 5.0
"""Seconds a write waits for a store that cannot be used, before it fails."""
MAX_VALUE = 64 * 1024 * 1024
"""Bytes of a value."""
MAX_KEY = 64 * 1024
"""Bytes of a key in UTF-8."""
MAX_WAITING = 256 * 1024 * 1024
"""Bytes of keys and values that wait to be written; a write beyond fails."""
COMMIT_CHANGES = 4096
COMMIT_BYTES = 8 * 1024 * 1024
"""Limits of a transaction: it takes no further write when it has this many changes or bytes."""
CHECK = 1.0
"""Seconds between two checks of the engine."""

T = TypeVar("T")


class StoreError(Exception):
    """Failed write or read; nothing was written. States the reason, the place, and what to do."""


class StoreFull(StoreError):
    """Failed write because there is no space; writes fail at once until there is."""


class StoreState(NamedTuple):
    """Whether the store can be used, and where it is, or why it cannot."""

    ready: bool
    detail: str


class _Write:
    __slots__ = ("changes", "done", "since", "size")

    def __init__(
        self, changes: list[tuple[str, bytes, bytes | None]], size: int, done: asyncio.Future[None], since: float
    ) -> None:
        self.changes, self.size, self.done, self.since = changes, size, done, since


class Store:
    """Tables of key (text) → value (bytes). `start` it in the event loop that uses it.

    Writes are committed in the order of the calls. Those of one turn of the loop, and those that come while a
    transaction is being committed, go into one transaction.

    If the engine breaks in the middle of a transaction, so that its outcome is unknown, the same transaction is
    repeated before any other, until it has succeeded: its writes wait meanwhile, and fail only if the process ends.
    """

    def __init__(self, engine: Engine, patience: float = PATIENCE) -> None:
        self.state = StoreState(False, f"{engine.place}: is being opened")
        self.on_state: Callable[[StoreState], None] | None = None
        """Called when `state.ready` has changed."""
        self.commits = self.changes = self.failures = 0
        """Transactions committed, changes in them, and times that the engine failed."""
        self._engine = engine
        self._patience = patience
        self._waiting: deque[_Write] = deque()
        self._waiting_bytes = 0
        self._unfinished: list[_Write] = []
        """Writes of a transaction that is under way, or whose outcome is unknown."""
        self._work = asyncio.Event()
        self._usable = asyncio.Event()
        self._turn = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False
        self._name = b""
        """Name of the tables, since they were first opened."""
        self._check_at = 0.0
        self._full = False
        """The engine could not be used the last time because there is no space."""
        self._broken: Exception | None = None
        """Error that a reader has found."""

    def start(self) -> None:
        """Open it in the background, and again after each failure."""
        self._keeper = runner.spawn(self._keep(), "store")

    async def ready(self) -> None:
        """Wait until it can be used."""
        await self._usable.wait()

    @property
    def identity(self) -> str:
        """Id of the tables, made with them: the same after a restart and in a backup. `ready` before."""
        return hashlib.sha256(self._name).hexdigest()[:12]

    @property
    def waiting(self) -> int:
        """Writes that have no outcome yet."""
        return len(self._waiting) + len(self._unfinished)

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        """Write all of these changes or none; they are durable when the future is done. Its exception, if any, is
        StoreError.

        Raises ValueError for a key that is no text (a lone surrogate), and for a key or value that is too large.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        encoded: list[tuple[str, bytes, bytes | None]] = []
        size = 0
        for table, key, value in changes:
            name = _key(key)
            if value is not None and len(value) > MAX_VALUE:
                raise ValueError(f"a value has at most {MAX_VALUE} bytes; this one has {len(value)}")
            size += len(name) + (len(value) if value is not None else 0)
            encoded.append((table, name, value))
        if self._closed:
            done.set_exception(StoreError(f"{self._engine.place}: is closed"))
        elif self._waiting_bytes + size > MAX_WAITING:
            done.set_exception(StoreError(f"{self._engine.place}: too much waits to be written"))
        elif not encoded:
            done.set_result(None)
        elif self._full and not self.state.ready:
            done.set_exception(StoreFull(self.state.detail))
        else:
            self._waiting.append(_Write(encoded, size, done, loop.time()))
            self._waiting_bytes += size
            self._work.set()
        return done

    async def get(self, table: str, key: str) -> bytes | None:
        """Return the value as of the last completed write, or None. Raises StoreError, ValueError."""
        (value,) = await self.get_many(table, [key])
        return value

    async def get_many(self, table: str, keys: Sequence[str]) -> list[bytes | None]:
        """As `get`, for several keys in one go: few enough that their values fit into memory."""
        names = [_key(key) for key in keys]
        return await self._read(partial(self._engine.get, table, names)) if names else []

    async def scan(self, table: str) -> AsyncIterator[tuple[str, bytes]]:
        """Every entry, in no order. One that is written meanwhile may come twice. Raises StoreError."""
        after: bytes | None = b""
        while after is not None:
            entries, after = await self._read(partial(self._engine.page, table, after))
            for key, value in entries:
                yield key.decode(), value

    async def close(self) -> None:
        """Write what waits, if the engine can be used, and close the engine."""
        if self._closed:
            return
        self._closed = True
        if self.state.ready and self.waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    await asyncio.wait([write.done for write in (*self._unfinished, *self._waiting)])
        if self._keeper is not None:
            while not self._keeper.done():  # redis-py may swallow a cancellation
                self._keeper.cancel()
                await asyncio.wait([self._keeper], timeout=0.1)
        async with self._turn:
            await self._engine.close()
        self.state = StoreState(False, f"{self._engine.place}: is closed")
        self._usable.clear()
        self._fail([*self._unfinished, *self._take_all()], StoreError("the process ends"))
        self._unfinished = []

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            if not self.state.ready:
                raise StoreError(self.state.detail)
            try:
                return await read()
            except Exception as error:
                self._broken = error
                self._work.set()
                raise StoreError(self._explained(error)) from None

    # the keeper: opens, commits, checks

    async def _keep(self) -> None:
        backoff = Backoff(SOON_AGAIN)
        while True:
            try:
                await self._open()
                if self._unfinished:
                    await self._commit()
                self._set(True, self._engine.place)
                backoff.reset()
                while True:
                    await self._serve()
            except Exception as error:
                self.failures += 1
                self._full = isinstance(error, EngineError) and error.full
                self._set(False, self._explained(error))
            if self._full:
                self._fail(self._take_all(), StoreFull(self.state.detail))
            wait = backoff.wait()
            await asyncio.sleep(wait)
            self._expire(asyncio.get_running_loop().time() - self._patience)

    async def _open(self) -> None:
        async with self._turn:
            name = await self._engine.open()
        if self._name and name != self._name:
            raise EngineError(
                f"{self._engine.place}: what it held is gone, other tables are there; bring them back, or restart this "
                "service to go on without"
            )
        self._name, self._broken = name, None
        self._check_at = asyncio.get_running_loop().time() + CHECK

    async def _serve(self) -> None:
        """Commit one transaction, if writes wait; check the engine when it is time to."""
        loop = asyncio.get_running_loop()
        if self._broken is not None:
            error, self._broken = self._broken, None
            raise error
        if not self._waiting:
            self._work.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._check_at):
                    await self._work.wait()
        if self._waiting:
            self._take()
            await self._commit()
        if loop.time() >= self._check_at:
            async with self._turn:
                await self._engine.check()
            self._check_at = loop.time() + CHECK

    def _take(self) -> None:
        """Take waiting writes into the next transaction, up to its limits."""
        changes = size = 0
        taken = self._unfinished
        while self._waiting and changes < COMMIT_CHANGES and size < COMMIT_BYTES:
            write = self._waiting.popleft()
            changes += len(write.changes)
            size += write.size
            taken.append(write)
        self._waiting_bytes -= size

    async def _commit(self) -> None:
        tables: Tables = {}
        for write in self._unfinished:
            for table, key, value in write.changes:
                tables.setdefault(table, {})[key] = value
        try:
            async with self._turn:
                await self._engine.commit(tables)
        except Exception as error:
            if not isinstance(error, EngineError) or error.undone:
                failed, self._unfinished = self._unfinished, []
                kind = StoreFull if isinstance(error, EngineError) and error.full else StoreError
                self._fail(failed, kind(self._explained(error)))
            raise
        written, self._unfinished = self._unfinished, []
        self.commits += 1
        self.changes += sum(map(len, tables.values()))
        for write in written:
            if not write.done.done():
                write.done.set_result(None)

    def _set(self, ready: bool, detail: str) -> None:
        before, self.state = self.state, StoreState(ready, detail)
        if ready == before.ready and detail == before.detail:
            return
        if ready:
            log.get().info("store.connection.opened", store=detail)
            self._usable.set()
        else:
            log.get().error("store.connection.failed", reason=detail)
            self._usable.clear()
        if ready != before.ready and self.on_state is not None:
            self.on_state(self.state)

    def _explained(self, error: Exception) -> str:
        """Return the reason that callers and health get; an error that no engine has foreseen is logged as well."""
        if isinstance(error, EngineError):
            return str(error)
        log.get().error("store.engine.failed", store=self._engine.place, exc_info=error)
        return f"{self._engine.place}: unexpected error ({error!r:.200}); the service's log has the details"

    def _expire(self, before: float) -> None:
        """Fail writes that have waited too long for an engine; they were not begun."""
        late: list[_Write] = []
        while self._waiting and self._waiting[0].since <= before:
            late.append(self._waiting.popleft())
            self._waiting_bytes -= late[-1].size
        self._fail(late, StoreError(self.state.detail))

    def _take_all(self) -> list[_Write]:
        taken = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return taken

    def _fail(self, writes: list[_Write], error: StoreError) -> None:
        for write in writes:
            if not write.done.done():
                write.done.set_exception(type(error)(*error.args))
                write.done.exception()  # seen: the caller may be gone


def _key(key: str) -> bytes:
    try:
        name = key.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a key must be text that UTF-8 can hold: {key!r}"[:200]) from None
    if not 0 < len(name) <= MAX_KEY:
        raise ValueError(f"a key has 1 to {MAX_KEY} bytes; this one has {len(name)}")
    return name
