"""The loop that keeps a connection: what it does after a loss, a refusal, an error that nobody foresaw, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from enmasse.network.backoff import ReconnectBackoff, Waits
from enmasse.network.reconnect import keep_connected
from tests.kit.waiting import until


class Owner:
    """Connects as `script` says, one word for each attempt, and writes down what happens."""

    def __init__(self, *script: str) -> None:
        self.script = list(script)
        self.events: list[str] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[str]:
        word = self.script.pop(0)
        if word == "refused":
            raise ConnectionRefusedError(word)
        self.events.append("open")
        try:
            yield word
        finally:
            self.events.append("closed")

    async def session(self, word: str) -> None:
        self.events.append(f"session {word}")
        if word == "lost":
            raise ConnectionResetError(word)
        if word == "broken":
            raise KeyError(word)
        if word == "stays":
            await asyncio.Event().wait()
        if word == "unwinds":
            try:
                await asyncio.Event().wait()
            finally:
                raise ConnectionResetError(word)

    async def failed(self, error: Exception) -> None:
        self.events.append(f"failed {error}")
        if not self.script:
            raise RuntimeError("no more of it")

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = ReconnectBackoff(loop.time(), Waits(0.001, 0.01, short=0.002))
        await keep_connected(
            self.connect, self.session, self.failed, failures=(OSError,), backoff=backoff, now=loop.time
        )


def test_a_session_runs_on_each_new_connection_until_the_owner_has_had_enough() -> None:
    owner = Owner("refused", "lost", "ends", "refused")
    with pytest.raises(RuntimeError, match="no more"):
        asyncio.run(owner.run())
    assert owner.events == [
        "failed refused", "open", "session lost", "closed", "failed lost", "open", "session ends", "closed",
        "failed refused",
    ]  # fmt: skip


def test_what_nobody_foresaw_is_not_hidden_and_closes_the_connection() -> None:
    owner = Owner("broken", "ends")
    with pytest.raises(KeyError):
        asyncio.run(owner.run())
    assert owner.events == ["open", "session broken", "closed"]


def test_the_connection_is_closed_where_the_loop_is_cancelled() -> None:
    async def main() -> list[str]:
        owner = Owner("stays")
        task = asyncio.create_task(owner.run())
        await until(lambda: "session stays" in owner.events)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return owner.events

    assert asyncio.run(main()) == ["open", "session stays", "closed"]


def test_a_cancelled_loop_ends_also_where_the_session_ends_with_a_failure() -> None:
    async def main() -> Owner:
        owner = Owner("unwinds", "stays")
        task = asyncio.create_task(owner.run())
        await until(lambda: "session unwinds" in owner.events)
        task.cancel()
        await until(lambda: task.done() or len(owner.script) == 0)
        assert task.cancelled()
        return owner

    assert asyncio.run(main()).events == ["open", "session unwinds", "closed"]
