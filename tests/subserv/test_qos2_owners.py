"""Messages of QoS 2 from shared subscriptions: one session's each (v5 4.8.2)."""

from __future__ import annotations

import base64
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from enmasse.model.sessions import MOST_HELD
from services.subserv.sessions import qos2_owners
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.subserv.harness import Gateway, World, world

MESSAGE = base64.b64encode(b"a message").decode()


async def group(w: World) -> tuple[Gateway, str]:
    """Two sessions `a` and `b` of a shared subscription. Return their gateway, and the queue."""
    gateway = await w.gateway()
    for client in "ab":
        await gateway.open(client)
        await gateway.subscribe(client, "$share/g/news/x")
    (source,) = await w.queues()
    return gateway, source


async def offered(
    gateway: Gateway, client: str, pid: int, key: str, source: str, message: str = MESSAGE, *, late: bool = False
) -> str:
    """Return the service's verdict on `out`."""
    change = [client, gateway.epochs[client], "out", pid, key, source, message, *([True] if late else [])]
    reply = await gateway.ask("packets", {"changes": [change]})
    assert not reply["stale"]
    return next((verdict for verdict in ("taken", "left", "late") if reply[verdict] == [[client, pid]]), "held")


def metric(w: World, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{w.health_port}/metrics", timeout=DEADLINE) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@asyncio_test
@pytest.mark.slow
async def test_a_message_of_a_group_belongs_to_one_session(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gateway, source = await group(w)
        assert await offered(gateway, "a", 1, "01", source) == "held"
        assert await offered(gateway, "a", 1, "01", source) == "held"  # repeated: it was not answered
        assert await offered(gateway, "b", 7, "01", source) == "taken"
        assert await offered(gateway, "b", 7, "02", source) == "held"
        await gateway.close("a")
        await w.restart()
        await gateway.come_again()
        assert await offered(gateway, "b", 8, "01", source) == "taken"
        assert (await gateway.open("a"))["sent"] == [[1, 2, "01", source, "published", MESSAGE]]
        await gateway.packets(["a", gateway.epochs["a"], "rel", 1])
        assert await offered(gateway, "b", 8, "01", source) == "taken"
        assert metric(w, "subserv_held_bytes") == len(b"a message")
        await _ended(w, gateway, source)


@asyncio_test
async def test_a_request_whose_delivery_was_lost_is_stored_only_if_it_was_before(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gateway, source = await group(w)
        assert await offered(gateway, "a", 1, "01", source, late=True) == "late"
        assert await offered(gateway, "b", 7, "01", source) == "held"
        assert await offered(gateway, "b", 7, "01", source, late=True) == "held"
        assert await offered(gateway, "b", 7, "02", source, late=True) == "late", "another message had this id"
        assert await offered(gateway, "a", 1, "01", source, late=True) == "taken"
        await gateway.packets(["b", gateway.epochs["b"], "rel", 7, "01", source])
        await gateway.packets(["b", gateway.epochs["b"], "out-", 7])
        assert await offered(gateway, "a", 1, "01", source, late=True) == "late", "b has completed it"


async def _ended(w: World, gateway: Gateway, source: str) -> None:
    """What a session has had is remembered as long as the queue holds anything: over a restart, too."""
    await w.publish_to("news/x", b"in the queue")
    await gateway.packets(["a", gateway.epochs["a"], "end", 1])
    await gateway.close("b", expiry=0)
    await w.restart()
    await gateway.come_again()
    assert metric(w, "subserv_ended_messages") == 2
    for number, key in enumerate(("01", "02")):
        assert await offered(gateway, "a", 10 + number, key, source) == "taken"
    assert len(await w.take(source, 1)) == 1
    await until(lambda: metric(w, "subserv_ended_messages") == 0)
    await w.restart()
    assert metric(w, "subserv_ended_messages") == 0
    await gateway.come_again()
    assert await offered(gateway, "a", 10, "01", source) == "held"
    await gateway.close("a", expiry=0)


@asyncio_test
async def test_what_is_too_much_stays_with_the_broker(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gateway, source = await group(w)
        large = base64.b64encode(bytes(MOST_HELD)).decode()
        answers = [await offered(gateway, "a", n, f"{n:02}", source, large) for n in range(1, 11)]
        room = qos2_owners.MOST_OF_SESSION // MOST_HELD
        assert answers == ["held"] * room + ["left"] * (10 - room)
        opened = await _reopened(gateway, "a")
        assert [bool(each[5]) for each in opened["sent"]] == [True] * room + [False] * (10 - room)
        assert await offered(gateway, "b", 1, "10", source) == "held"  # it came again, to another member
        epoch = gateway.epochs["a"]
        await gateway.packets(["a", epoch, "rel", 9])
        assert await offered(gateway, "b", 2, "09", source) == "taken"
        await gateway.packets(*(["a", epoch, "out-", n] for n in range(1, 11)))
        assert metric(w, "subserv_held_bytes") == len(b"a message")
        assert await offered(gateway, "a", 1, "11", source, large) == "held"
        for client in "ab":
            await gateway.close(client, expiry=0)
        assert metric(w, "subserv_held_bytes") == 0


async def _reopened(gateway: Gateway, client: str) -> dict[str, Any]:
    await gateway.close(client)
    return await gateway.open(client)
