"""Stored subscriptions of users that are removed, or may no longer receive what they match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from enmasse.model.feeds import GrantedUser, Permissions
from enmasse.model.users import Permission
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.subserv.harness import World, world
from tests.subserv.test_retained_users import put_in_force


def may_receive(*addresses: str, groups: tuple[str, ...] = ()) -> GrantedUser:
    allowed = (Permission(effect="allow", operations=("recv",), addresses=addresses),) if addresses else ()
    return GrantedUser(permissions=allowed, groups=groups)


@asyncio_test
async def test_a_session_gets_nothing_of_a_time_without_user_or_right(tmp_path: Path) -> None:
    """The user comes again, and the right is given back, before the session is resumed; the rest of it stays."""
    everything = {
        "gone": may_receive("news/#", "alarms"),
        "less": may_receive("news/#", "alarms"),
        "same": may_receive("news/#"),
        "@staff": may_receive("news/#"),
        "@guests": may_receive("alarms"),
    }
    clients = {
        "~gone/c": ["alarms", "news/a", "$share/g/news/b"],
        "~less/c": ["alarms", "news/a", "$share/g/news/b"],
        "~same/c": ["news/a"],
        "~staff-by-token/c": ["news/a"],
        "~guest-by-token/c": ["alarms"],
        "of-earlier": ["news/a"],
    }
    groups = {"~staff-by-token/c": ["staff"], "~guest-by-token/c": ["guests"]}
    async with world(tmp_path) as w:
        put_in_force(w, everything)
        gateway = await w.gateway()
        for client, filters in clients.items():
            await gateway.open(client, groups=groups.get(client))
            await gateway.subscribe(client, *filters)
            if client != "~less/c":
                await gateway.close(client)
        before = await w.diverts()
        await w.restart()
        await gateway.come_again()
        assert await w.diverts() == before

        less = {**everything, "less": may_receive("alarms")}
        del less["gone"], less["@guests"]
        put_in_force(w, less)
        left = {
            "mqtt.of-earlier|news/a",
            "mqtt.~less%2Fc|alarms",
            "mqtt.~same%2Fc|news/a",
            "mqtt.~staff-by-token%2Fc|news/a",
        }

        async def ended() -> bool:
            return set(await w.diverts()) == left

        await until(ended, "the bindings have ended")
        await until(lambda: ("disconnect", 0x87) in [(name, body.get("reason")) for name, body in gateway.commands])
        for name in ("news/a", "news/b", "alarms"):
            await w.publish_to(name, b"meanwhile")
        put_in_force(w, everything)
        for client, kept in (
            ("~gone/c", []),
            ("~less/c", ["alarms"]),
            ("~same/c", ["news/a"]),
            ("~staff-by-token/c", ["news/a"]),
            ("~guest-by-token/c", []),
            ("of-earlier", ["news/a"]),
        ):
            reply = await gateway.open(client, groups=groups.get(client))
            assert reply["present"], client
            assert [each["filter"] for each in reply["subscriptions"]] == kept, client
            for source in reply["sources"]:
                assert (await w.depth(source["address"]) or 0) == len(kept), client


@asyncio_test
async def test_durable_subscriptions_of_amqp_clients_go_with_their_user(tmp_path: Path) -> None:
    """Not those of others, nor while there are no users, or users by tokens, of whom nothing is known."""
    kept = ["c.sub", "~here/c.sub", "~/~gone/c.sub"]
    gone = ["~gone/c.sub", "~gone/x:global", "%1.~gone/c.other"]
    everyone = {"gone": may_receive("news"), "here": may_receive()}
    async with world(tmp_path) as w:
        broker = await w.manage()
        for name in (*kept, *gone):
            await broker.invoke("broker", "createQueue", "news", "MULTICAST", name, None, True, -1, False, True)

        async def names() -> set[str]:
            return set(await broker.invoke("broker", "getQueueNames"))

        gateway = await w.gateway()
        reviews = (
            (everyone, False, {*kept, *gone}),
            ({"here": may_receive()}, True, {*kept, *gone}),
            ({"here": may_receive()}, False, set(kept)),
        )
        for number, (users, tokens, left) in enumerate(reviews):
            await gateway.open(f"~marker{number}/c")
            await gateway.subscribe(f"~marker{number}/c", "news/a")  # of a user that there is not
            body = Permissions(users=users, tokens=tokens)
            w.configserv.publish("permissions", msgspec.to_builtins(body))
            await until(lambda: no_diverts(w))
            if not set(gone) <= left:
                await until(lambda: has_gone(names, gone))
            assert {*kept, *gone} & await names() == left


async def no_diverts(w: World) -> bool:
    return not [each for each in await w.diverts() if "marker" in each]


async def has_gone(names: Callable[[], Awaitable[set[str]]], gone: list[str]) -> bool:
    return not set(gone) & await names()
