"""The engine of a store in Redis: a hash for each table, a MULTI/EXEC for each transaction.

It is used only while the server writes each command to its append-only file before it answers (appendonly yes,
appendfsync always: https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/). Every transaction asks
for these settings again, in itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ExecAbortError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from enmasse.stores.storage_engine import EngineError, Page, Tables

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0
"""Seconds for the server to answer; then the connection is closed, and the outcome of the request is unknown."""
_PAGE_ENTRIES = 128
_SCHEMA = b"1"
_REQUIRED = {"appendonly": "yes", "appendfsync": "always"}

R = TypeVar("R")


class RedisEngine:
    """`url`, `prefix`, `password_file`: see RedisSettings. Its keys are `<prefix>:<table>`; `<prefix>:store` has the
    store's name."""

    def __init__(self, url: str, prefix: str, password_file: str = "") -> None:
        parts = urlsplit(url)
        where = parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}{parts.path}"
        self.place = f"redis {where} ({prefix})"
        self._url = url
        self._prefix = prefix
        self._password_file = password_file
        self._client: Any = None  # redis' own types know str or bytes, not which of them
        redis.asyncio.connection.parse_url(url)  # raises ValueError

    async def open(self) -> bytes:
        """Connect; see Engine.open."""
        await self._drop()
        self._client = redis.asyncio.Redis.from_url(
            self._url,
            password=self._password(),
            single_connection_client=True,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),  # who repeats, and what, is the store's to say
        )
        return await self._told(self._inspect(self._client))

    async def check(self) -> None:
        """See Engine.check."""
        await self.commit({})

    async def commit(self, tables: Tables) -> None:
        """See Engine.commit."""
        await self._told(self._transaction(self._used(), tables))

    async def get(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """See Engine.get."""
        values: list[bytes | None] = await self._told(self._used().hmget(self._name(table), keys))
        return values

    async def page(self, table: str, after: bytes) -> Page:
        """See Engine.page."""
        scan = self._used().hscan(self._name(table), int(after or b"0"), count=_PAGE_ENTRIES)
        cursor, entries = await self._told(scan)
        return Page(list(entries.items()), str(cursor).encode() if cursor else None)

    async def close(self) -> None:
        """See Engine.close."""
        await self._drop()

    def _password(self) -> str | None:
        if not self._password_file:
            return None  # or the one in the URL
        try:
            with open(self._password_file, encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise EngineError(f"{self.place}: the file with its password cannot be read: {error}") from None

    def _name(self, table: str) -> str:
        return f"{self._prefix}:{table}"

    def _used(self) -> Any:
        if self._client is None:
            raise EngineError(f"{self.place}: is closed")
        return self._client

    async def _inspect(self, client: Any) -> bytes:
        """Whether a write would be safe there. Gives the store's name, made with the first write."""
        replication: dict[str, Any] = await client.info("replication")
        if replication.get("role") != "master":
            raise EngineError(f"{self.place}: it is a replica, which takes no writes; give the primary's url")
        self._demand({**await client.config_get("appendonly"), **await client.config_get("appendfsync")})
        memory = {**await client.config_get("maxmemory"), **await client.config_get("maxmemory-policy")}
        if memory.get("maxmemory") != "0" and str(memory.get("maxmemory-policy")).startswith("allkeys"):
            raise EngineError(
                f"{self.place}: not durable: maxmemory-policy {memory['maxmemory-policy']} removes what is stored; "
                "set maxmemory-policy noeviction"
            )
        fresh = b"%s %s" % (_SCHEMA, os.urandom(8).hex().encode())
        await client.set(self._name("store"), fresh, nx=True)
        name: bytes = await client.get(self._name("store"))
        if not name.startswith(_SCHEMA + b" "):
            raise EngineError(f"{self.place}: a newer release wrote it (schema {name[:8]!r}); use that one")
        return name

    def _demand(self, settings: dict[str, str]) -> None:
        wrong = [f"{name} is {settings.get(name)}" for name, value in _REQUIRED.items() if settings.get(name) != value]
        if wrong:
            raise EngineError(
                f"{self.place}: not durable: {', '.join(wrong)}; set appendonly yes and appendfsync always in its "
                "configuration"
            )

    async def _transaction(self, client: Any, tables: Tables) -> None:
        async with client.pipeline(transaction=True) as pipeline:
            for table, entries in tables.items():
                put = {key: value for key, value in entries.items() if value is not None}
                gone = [key for key, value in entries.items() if value is None]
                if put:
                    pipeline.hset(self._name(table), mapping=put)
                if gone:
                    pipeline.hdel(self._name(table), *gone)
            pipeline.get(self._name("store"))
            for name in _REQUIRED:
                pipeline.config_get(name)
            results = await pipeline.execute()
        *_, marker, first, second = results
        self._demand({**first, **second})
        if marker is None:
            raise EngineError(f"{self.place}: its keys have been deleted")

    async def _told(self, work: Awaitable[R]) -> R:
        """Return the result of `work`. Raises EngineError for every error of Redis."""
        try:
            return await work
        except (OutOfMemoryError, ReadOnlyError, ExecAbortError) as error:
            full = isinstance(error, OutOfMemoryError) or "OOM" in str(error)
            reason = f"{self.place}: it refuses writes: {error}; see its log"
            raise EngineError(reason, undone=True, full=full) from None
        except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
            raise EngineError(
                f"{self.place}: {error}; give a user and password that may use all keys of the prefix, "
                "CONFIG GET and INFO"
            ) from None
        except BusyLoadingError as error:
            raise EngineError(f"{self.place}: it is starting: {error}") from None
        except ResponseError as error:
            raise EngineError(f"{self.place}: {error}; see its log") from None
        except (RedisError, OSError) as error:
            raise EngineError(f"{self.place}: it does not answer: {error}; start it, or correct the url") from None

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(RedisError, OSError):
                await client.aclose()
