"""Sessions and retained messages of an address space have the limits of its plan; other spaces are not concerned."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.identity.annotations import ORIGINAL_ADDRESS
from enmasse.identity.space_plans import SpacePlans
from enmasse.model.feeds import ReachedSpace
from enmasse.model.names import LocalName, full_name
from enmasse.model.sessions import ByFilter
from enmasse.model.tenants.plans import SpaceLimits
from enmasse.model.topic_map import TopicMaps
from services.subserv.retained.retained_messages import RetainedMessages
from services.subserv.retained.tree import Retained
from services.subserv.sessions.clients import QUOTA
from services.subserv.views import Views
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.subserv.harness import Gateway, RequestError, World, world
from tests.subserv.test_copies import ToyStore


async def refusal(gateway: Gateway, client: str) -> str:
    """Return why a session is refused; empty if it is open now."""
    try:
        await gateway.open(client)
    except RequestError as refused:
        assert refused.failure["reason"] == QUOTA
        return str(refused.failure["description"])
    return ""


async def put_in_force(w: World, sessions: int, gateway: Gateway) -> None:
    """Put a plan in force for the space `shop`; another one has none."""
    limited = {"plan": "small", "limits": {"sessions": sessions}}
    w.configserv.publish("permissions", {"anonymous": True, "users": {}, "spaces": {"shop": limited, "lab": {}}})
    await until(lambda: w.configserv.used.get("sessions/shop", 0) > 0, "it has taken the plan, and reports")


@asyncio_test
async def test_sessions_of_a_space_are_as_many_as_its_plan_states(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gateways = [await w.gateway("gw-0"), await w.gateway("gw-1")]
        await gateways[0].open("~eve@shop/first")
        await put_in_force(w, 5, gateways[0])
        # thrice as many as there is room for, at once, by several users over both gateways
        asked = [(gateways[n % 2], f"~user{n % 3}@shop/c{n}") for n in range(15)]
        answers = await asyncio.gather(*(refusal(*each) for each in asked))
        assert answers.count("") == 4
        assert {*answers} == {
            "",
            "5 of 5 MQTT sessions of the plan 'small' are used: end one of them, or ask for another plan of the space",
        }
        for number in range(10):
            assert not await refusal(gateways[0], f"~eve@lab/c{number}")
            assert not await refusal(gateways[0], f"~eve/c{number}")
        assert not await refusal(gateways[0], "~eve@shop/first")  # one that exists
        await until(lambda: w.configserv.used == {"sessions/shop": 5}, "what is used is reported")

        await w.restart()
        for gateway in gateways:
            await gateway.come_again()
        await until(lambda: w.configserv.used == {"sessions/shop": 5}, "it is counted again")
        assert await refusal(gateways[1], "~eve@shop/more")
        await gateways[0].close("~eve@shop/first", expiry=0)
        assert not await refusal(gateways[1], "~eve@shop/more")
        await put_in_force(w, 2, gateways[0])
        open_ = [client for (_, client), answer in zip(asked, answers, strict=True) if not answer]
        assert not await refusal(gateways[0], open_[0]), "a smaller plan ends none"


def test_a_list_of_all_spaces_has_of_each_as_many_rows() -> None:
    """One space with more retained messages than are listed hides none of another."""
    retained = RetainedMessages(ToyStore())
    index = retained.index
    for number in range(20):
        index.put(Retained(f"!!lab/news/{number}", "b1", number, 1, 0, 0, 0))
    for number in (30, 31):
        index.put(Retained(f"!!shop/news/{number}", "b1", number, 1, 0, 0, 0))
        index.put(Retained(f"news/{number}", "b1", number + 10, 1, 0, 0, 0))
    desired, permits = SimpleNamespace(topics=TopicMaps({})), SimpleNamespace(refusal=lambda entry, now: "")
    service: Any = SimpleNamespace(retained=retained, desired=desired, permits=permits)
    views = Views(service)
    found = views.retained(ByFilter(limit=8, everywhere=True))
    assert found.total == 24 and [row.name for row in found.retained] == [
        "!!lab/news/0", "!!shop/news/30", "news/30", "!!lab/news/1", "!!shop/news/31", "news/31", "!!lab/news/2",
        "!!lab/news/3",
    ]  # fmt: skip
    assert {row.name for row in views.retained(ByFilter(filter="!!shop/#")).retained} == {
        "!!shop/news/30",
        "!!shop/news/31",
    }
    assert {row.name for row in views.retained(ByFilter()).retained} == {"news/30", "news/31"}


def test_retained_messages_of_a_space_are_as_many_as_its_plan_states() -> None:
    plans = SpacePlans()
    retained = RetainedMessages(ToyStore(), plans)

    def message(space: str, name: str, body: bytes = b"x") -> bytes:
        wire = full_name(space, LocalName(name))
        annotations = {Symbol("x-opt-retain-message"): True, Symbol(ORIGINAL_ADDRESS): wire}
        return bytes(Message(body, to=name, annotations=annotations).encode())

    async def run() -> None:
        plans.configure({"shop": ReachedSpace(plan="small", limits=SpaceLimits(retained=4))})
        index = retained.index
        await retained.take("b1", [(n, message("shop", f"news/{n}")) for n in range(6)])
        await retained.take("b2", [(n, message("shop", f"more/{n}")) for n in range(6)])
        assert (index.room.of_space("shop"), retained.refused) == (4, 8)
        before = index.get("!!shop/news/0")
        await retained.take("b1", [(7, message("shop", "news/0", b"newer"))])
        assert index.get("!!shop/news/0") not in (None, before)
        for space in ("lab", "default"):
            await retained.take("b1", [(n, message(space, f"news/{n}")) for n in range(20)])
        assert (index.room.of_space("lab"), index.count) == (20, 44)
        # an empty one makes room within the same portion
        await retained.take("b1", [(8, message("shop", "news/1", b"")), (9, message("shop", "news/9"))])
        assert index.get("!!shop/news/9") is not None and index.room.of_space("shop") == 4
        plans.configure({"shop": ReachedSpace(plan="small", limits=SpaceLimits(retained=1))})
        await retained.take("b1", [(10, message("shop", "news/10"))])
        assert index.room.of_space("shop") == 4 and index.get("!!shop/news/10") is None

    asyncio.run(run())
