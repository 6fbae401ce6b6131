"""SIGKILL of subserv between every two steps of a client's life, and everything is counted.

A client opens, subscribes where retained messages are, exchanges packet ids, changes its subscription, closes, comes
back, ends. At each step that others can see subserv dies once; the gateway asks again what was not answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from enmasse.control import LinkClosed
from tests.kit.processes import Program
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.redis_server import RedisServer
from tests.subserv.harness import SUBSERV, SUITE, Gateway, RequestError, World, world

QUEUE = "$sub/b1/mqtt.c"
SHARED = "$sub/b1/share.g.1"
MESSAGE = "AAEC"
"""Base64."""


class Killed(Exception):
    """Subserv has died."""


class Life:
    """One client's life with a death in it."""

    def __init__(self, w: World, gateway: Gateway, death: int) -> None:
        self.w, self.gateway, self.death = w, gateway, death
        self.died = False
        self.keys = (f"{death}.3", f"{death}.4")  # which no earlier life has had

    async def ask(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until it is answered. The gateway's links end with subserv, or with its connection to a late router."""
        while True:
            try:
                return await self.unless_killed(operation)
            except LinkClosed:
                with contextlib.suppress(Killed):
                    await self.unless_killed(self.gateway.come_again)
            except Killed:
                await self.revive()

    async def unless_killed(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        process = self.w.process
        assert process is not None
        work = asyncio.ensure_future(operation())
        while not work.done() and process.poll() is None:
            await asyncio.wait([work], timeout=0.02)
        if work.done():
            return work.result()
        work.cancel()
        raise Killed

    async def revive(self) -> None:
        self.died = True
        (self.w.folder / "armed").unlink(missing_ok=True)
        self.w.launch()
        await self.w.ready()
        await self.gateway.come_again()

    async def live(self) -> None:
        w, gateway = self.w, self.gateway
        (w.folder / "armed").write_text(str(self.death))
        await self.ask(lambda: gateway.open("c"))
        await self.subscribe({"filter": "news/+", "retain_handling": 1})
        await w.publish_to("news/a", b"live")
        await self.packets(["in", 1, "d1"], ["out", 1, "00", QUEUE], ["out", 2, "01", QUEUE])
        await self.packets(["out", 3, self.keys[0], SHARED, MESSAGE], ["out", 4, self.keys[1], SHARED, MESSAGE])
        await self.packets(["rel", 1], ["in", 2, "d2"], ["in-", 1], ["out-", 2], ["rel", 4], ["end", 4])
        kept = {"filter": "news/kept", "retain_handling": 1}
        await self.subscribe(kept, {"filter": "news/+", "qos": 2, "retain_handling": 1})
        await self.ask(lambda: gateway.unsubscribe("c", "news/kept"))
        await w.publish_to("news/kept", b"kept 2", retain=True)
        await self.other()
        await self.close(sent=[[5, 1, "05", QUEUE]])
        opened = await self.ask(lambda: gateway.open("c"))
        assert opened["present"] and opened["received"] == [[2, "d2"]]
        assert opened["sent"] == [
            [1, 2, "00", QUEUE, "released", ""],
            [3, 2, self.keys[0], SHARED, "published", MESSAGE],
            [5, 1, "05", QUEUE, "published", ""],
        ]
        await self.nobody_else()
        assert opened["subscriptions"] == [{"filter": "news/+", "qos": 2, "retain_handling": 1}]
        assert [SUITE.sub("", source["address"]) for source in opened["sources"]] == [QUEUE]
        await self.subscribe("alarms")
        depth = await w.depth(QUEUE)
        assert depth is not None
        found = [(m.body, (m.annotations or {}).get("x-opt-retained-for")) for m in await w.take(QUEUE, depth)]
        copies = [(b"kept", "news/+"), (b"kept", "news/kept")]  # for each filter when it was new, and only then
        assert found == [*copies, (b"live", None), (b"kept 2", None)]
        await self.close(expiry=0)
        (w.folder / "armed").unlink(missing_ok=True)
        await until(w.nothing)
        opened = await self.ask(lambda: gateway.open("c"))
        assert not opened["present"] and not opened["received"] and not opened["sent"]
        await self.nobody_else()
        await self.close(expiry=0)
        await w.publish_to("news/kept", b"kept", retain=True)

    async def nobody_else(self) -> None:
        """What a session has of a shared subscription, or had, no other one gets."""
        opened = await self.ask(lambda: self.gateway.open("e"))
        changes = [["e", opened["epoch"], "out", 1, key, SHARED, MESSAGE] for key in self.keys]
        for change in changes:
            reply = await self.ask(lambda change=change: self.gateway.ask("packets", {"changes": [change]}))  # type: ignore[misc]  # mypy infers no type of a lambda's default
            assert reply["taken"] == [["e", 1]]
        await self.close("e", expiry=0)

    async def other(self) -> None:
        """Who subscribes after a retained message was acknowledged sees it, once."""
        await self.ask(lambda: self.gateway.open("d"))
        await self.subscribe({"filter": "news/kept", "retain_handling": 1}, client="d")
        queue = "$sub/b1/mqtt.d"
        assert await self.w.depth(queue) == 1
        assert [m.body for m in await self.w.take(queue, 1)] == [b"kept 2"]
        await self.close("d", expiry=0)

    async def subscribe(self, *filters: str | dict[str, Any], client: str = "c") -> None:
        reply = await self.ask(lambda: self.gateway.subscribe(client, *filters))
        assert set(reply["codes"]) <= {1, 2}, reply

    async def packets(self, *changes: list[Any]) -> None:
        epoch = self.gateway.epochs["c"]
        await self.ask(lambda: self.gateway.packets(*(["c", epoch, *change] for change in changes)))

    async def close(self, client: str = "c", **more: Any) -> None:
        body = {"client": client, "epoch": self.gateway.epochs[client], **more}
        with contextlib.suppress(RequestError):  # it was closed, and the answer lost
            await self.ask(lambda: self.gateway.ask("close", body))
        self.gateway.epochs.pop(client, None)


async def lives(folder: Path, store: dict[str, Any] | None, every: int) -> None:
    """One life for each `every`-th step, from a random one on, until one ends before its step comes."""
    program = Program(("-m", "tests.subserv.killed", str(folder)), SUBSERV.imports)
    async with world(folder, store=store, program=program) as w:
        gateway = await w.gateway()
        await w.publish_to("news/kept", b"kept", retain=True)
        death = random.randint(1, every)
        while True:
            life = Life(w, gateway, death)
            try:
                await life.live()
            except BaseException as error:
                error.add_note(f"killed at step {death}")
                raise
            if not life.died:
                break
            death += every
        assert death > 50
        await until(lambda: w.health()["ready"], "no queue counts as unknown after a kill")


@asyncio_test
async def test_at_each_step(tmp_path: Path) -> None:
    await lives(tmp_path, None, 15)


@asyncio_test
@pytest.mark.slow
async def test_with_redis(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis")
    try:
        await lives(tmp_path, {"kind": "redis", "url": server.url}, 20)
    finally:
        server.kill()
