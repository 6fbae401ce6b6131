"""Sessions, subscriptions and retained messages of a user leave room for those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.identity.annotations import ORIGINAL_ADDRESS, RETAINED_BY
from enmasse.identity.authors import Author
from enmasse.identity.seals import Seal, new_key
from enmasse.identity.shared_room import SharedRoom
from enmasse.model.names import DEFAULT_SPACE, LocalName, full_name
from services.subserv.retained import retained_messages
from services.subserv.retained.retained_messages import RetainedMessages
from services.subserv.sessions.clients import QUOTA
from tests.kit.processes import Program
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE
from tests.subserv.harness import SUBSERV, RequestError, world
from tests.subserv.test_copies import ToyStore
from tests.subserv.test_subctrl import Client, until_known


async def fill(add: Callable[[int], Awaitable[bool]]) -> int:
    """Add until it is refused; return how often it was not."""
    number = 0
    while await add(number):
        number += 1
        assert number < 100
    return number


NARROW = Program(("-m", "tests.subserv.narrow"), SUBSERV.imports)


@pytest.mark.parametrize("user", ["~eve/", "~eve@shop/", ""], ids=["user", "user in a space", "anonymous"])
@asyncio_test
async def test_sessions_and_subscriptions_of_a_user_leave_room(user: str, tmp_path: Path) -> None:
    async with world(tmp_path, program=NARROW) as w:
        gateway = await w.gateway()

        async def opened(client: str) -> bool:
            try:
                await gateway.open(client)
            except RequestError as refused:
                assert refused.failure["reason"] == QUOTA and "end some" in refused.failure["description"]
                return False
            return True

        async def codes(client: str, *filters: str) -> list[int]:
            found: list[int] = (await gateway.subscribe(client, *filters))["codes"]
            return found

        if "@" in user:
            w.addresses["!!shop/news"], w.homes["!!shop/news"] = w.addresses["news"], w.homes["news"]
            await w.publish()
        assert await fill(lambda number: opened(f"{user}c{number}")) == 4
        async with asyncio.timeout(DEADLINE):
            while (await codes(f"{user}c0", "news/0")) != [1]:
                pass  # its addresses are not known yet
        assert await opened(f"{user}c0")  # one that exists
        assert await fill(lambda number: opened(f"~bob/c{number}")) == 2

        filters = [f"news/{number}" for number in range(9)]
        assert await codes(f"{user}c0", *filters[:3]) == [1] * 3
        assert await codes(f"{user}c1", *filters) == [1] + [QUOTA] * 8
        assert await codes(f"{user}c0", *filters[:3]) == [1] * 3  # those that exist
        assert await codes("~bob/c0", *filters) == [1] * 2 + [QUOTA] * 7
        await gateway.unsubscribe(f"{user}c0", *filters[:2])
        assert await codes(f"{user}c1", "news/8") == [1]

        await w.restart()
        await gateway.come_again()
        assert not await opened(f"{user}c4")
        assert await codes(f"{user}c1", *filters[1:]) == [QUOTA] * 7 + [1]
        for number in range(4):
            await gateway.close(f"{user}c{number}", expiry=0)
        assert await fill(lambda number: opened(f"{user}d{number}")) == 3
        assert await codes(f"{user}d0", *filters) == [1] * 3 + [QUOTA] * 6


@asyncio_test
async def test_subscriptions_over_subctrl_leave_room(tmp_path: Path) -> None:
    async with world(tmp_path, program=NARROW) as w:
        client = await Client().start(w)
        w.configserv.publish("permissions", {"anonymous": True, "users": {}})
        await until_known(client)

        async def subscribed(number: int) -> bool:
            outcome = await client.ask("subscribe", f"s{number}", "news/a")
            assert outcome.accepted or "others need the room" in (outcome.description or "")
            return outcome.accepted

        assert await fill(subscribed) == 4
        await w.restart()
        client = await Client().start(w)
        assert await subscribed(0) and not await subscribed(4)
        assert (await client.ask("close", "s0")).accepted
        assert await subscribed(9)


BY: list[Author | None] = [Author("eve"), Author("eve", ("staff",)), Author("eve", space="shop"), None]


@pytest.mark.parametrize("eve", BY, ids=["user", "by token", "in a space", "not stated"])
@pytest.mark.parametrize("what", ["MAX_MESSAGES", "MAX_BYTES"])
def test_retained_messages_of_a_user_leave_room(eve: Author | None, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_messages, what, 8 if what == "MAX_MESSAGES" else 8 * 1000)
    retained = RetainedMessages(ToyStore())
    retained.key = new_key()
    seal = Seal(retained.key)

    async def kept(author: Author | None, name: str, size: int = 900) -> bool:
        message = Message(b"x" * size, to=name, annotations={Symbol("x-opt-retain-message"): True})
        if author is not None:
            sealed = seal.make(author, name, b"x" * size)
            message.annotations = {**(message.annotations or {}), Symbol(RETAINED_BY): sealed}
            if author.space != DEFAULT_SPACE:
                name = full_name(author.space, LocalName(name))
                message.annotations[Symbol(ORIGINAL_ADDRESS)] = name
        await retained.take("b", [(1, bytes(message.encode()))])
        found = retained.index.get(name)
        assert found is None or found.author == author
        return found is not None

    async def run() -> None:
        assert await fill(lambda number: kept(eve, f"eve/{number}")) in (4, 5)
        assert await kept(eve, "eve/0")  # in place of the one before
        assert await fill(lambda number: kept(Author("bob"), f"bob/{number}")) in (1, 2, 3)
        assert await fill(lambda number: kept(eve, f"eve/more/{number}")) == 0
        assert retained.refused == 3
        assert await kept(eve, "eve/0", 1)

    asyncio.run(run())


def test_nothing_is_kept_of_a_user_that_has_nothing() -> None:
    room = SharedRoom()
    room.add("eve")
    room.add("eve", -1)
    assert (room.used, room.of("eve"), room._of_users) == (0, 0, {})
