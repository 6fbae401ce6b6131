"""Retained messages of users: given to new subscriptions only while their user may send there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import proton

from enmasse.identity.annotations import RETAINED_BY
from enmasse.identity.authors import Author
from enmasse.identity.seals import Seal, new_key
from enmasse.model.feeds import GrantedUser, Permissions
from enmasse.model.users import Permission
from services.subserv.permits import SKEW, Permits
from services.subserv.retained.tree import Retained
from tests.kit.running import asyncio_test
from tests.kit.waiting import until
from tests.subserv.harness import Gateway, World, world
from tests.subserv.test_retained_messages import copies, subscribed
from tests.subserv.test_subctrl import Client

ANNOTATION = proton.symbol(RETAINED_BY)


def may_send(*addresses: str) -> GrantedUser:
    return GrantedUser(permissions=(Permission(effect="allow", operations=("send",), addresses=addresses),))


def put_in_force(w: World, users: dict[str, GrantedUser] | None) -> None:
    """None: there are no users."""
    body = Permissions(anonymous=users is None, users=users or {})
    w.configserv.publish("permissions", msgspec.to_builtins(body))


async def seal_of(gateway: Gateway) -> Seal:
    reply = await gateway.ask("hello", {"gateway": gateway.name, "sessions": list(gateway.epochs.items())})
    return Seal.of_text(reply["seal"])


async def retain(w: World, name: str, body: bytes, seal: bytes | None) -> None:
    sender = (await w.connection()).sender(name)
    message = proton.Message(address=name, body=body, durable=True, inferred=True)
    message.annotations = {proton.symbol("x-opt-mqtt-qos"): 1, proton.symbol("x-opt-retain-message"): True}
    if seal is not None:
        message.annotations[ANNOTATION] = seal
    assert (await sender.deliver(message)).accepted
    sender.close()


async def listed(w: World) -> dict[str, tuple[str, str]]:
    """Topic → user, and why it is withheld."""
    client = await Client().start(w)
    found = await client.show("retained", filter="#")
    return {row["topic"]: (row["user"], row["withheld"]) for row in found["retained"]}


def test_a_new_message_is_not_withheld() -> None:
    """Its gateway may know permissions that are newer than those known here."""
    found = Permits()
    entry = Retained("news/1", "b", 1, 1, 1, 1_000_000, 0, 0, Author("alice"))
    assert found.refusal(entry, 1_000_000 + SKEW - 1) == ""
    assert found.refusal(entry, 1_000_000 + SKEW) == "there is no user alice"


@asyncio_test
async def test_users_of_retained_messages(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        put_in_force(w, {"alice": may_send("news/#"), "bob": may_send("news/#")})
        gateway = await w.gateway()
        seal = await seal_of(gateway)
        others = {
            "unstated": None,
            "forged": Seal(new_key()).make(Author("alice"), "news/forged", b"x"),
            "moved": seal.make(Author("alice"), "news/elsewhere", b"x"),
            "changed": seal.make(Author("alice"), "news/changed", b"y"),
            "no-seal": b"alice",
        }
        await retain(w, "news/alice", b"x", seal.make(Author("alice"), "news/alice", b"x"))
        await retain(w, "news/bob", b"x", seal.make(Author("bob"), "news/bob", b"x"))
        for name, made in others.items():
            await retain(w, f"news/{name}", b"x", made)
        everything = ["news/alice", "news/bob", *(f"news/{name}" for name in others)]
        found = await w.take(await subscribed(w, gateway, "all", "news/#"), len(everything))
        assert [name for name, _, _ in copies(found)] == everything
        assert all(ANNOTATION not in message.annotations for message in found)

        put_in_force(w, {"alice": may_send("alarms"), "bob": may_send("news/#")})
        for number in range(2):
            await _given(w, gateway, f"some-{number}", everything[1:])
            shown = await listed(w)
            assert shown["news/alice"] == ("alice", "user alice may not send to news/alice")
            assert shown["news/bob"] == ("bob", "")
            assert {shown[f"news/{name}"] for name in others} == {("", "")}
            await w.restart()  # SIGKILL: key and users are stored
            await gateway.come_again()

        put_in_force(w, {"alice": may_send("news/#")})
        await _given(w, gateway, "returned", [each for each in everything if each != "news/bob"])
        assert (await listed(w))["news/bob"] == ("bob", "there is no user bob")
        assert (await seal_of(gateway)).make(Author("x"), "a", b"") == seal.make(Author("x"), "a", b"")

        _as_an_earlier_version_wrote_them(tmp_path, w)
        w.launch()
        await w.ready()
        await gateway.come_again()
        await _given(w, gateway, "earlier", everything)


async def _given(w: World, gateway: Gateway, client: str, names: list[str]) -> None:
    """Subscribe until exactly these are given: the messages are new for some time."""
    number = 0

    async def given() -> bool:
        nonlocal number
        number += 1
        address = await subscribed(w, gateway, f"{client}-{number}", "news/#")
        found = await w.take(address, await w.depth(address) or 0)
        return [name for name, _, _ in copies(found)] == names

    await until(given, f"{names} are given")


def _as_an_earlier_version_wrote_them(folder: Path, w: World) -> None:
    w.kill()
    with sqlite3.connect(folder / "subserv.db") as connection:
        rows = connection.execute("SELECT key, value FROM entries WHERE tab = 'subserv-retained'").fetchall()
        assert rows
        for key, value in rows:
            earlier = msgspec.msgpack.encode(msgspec.msgpack.decode(value)[:6])
            connection.execute(
                "UPDATE entries SET value = ? WHERE tab = 'subserv-retained' AND key = ?", (earlier, key)
            )
    connection.close()


@asyncio_test
async def test_without_permissions_nothing_of_users_is_given(tmp_path: Path) -> None:
    """The configuration service does not answer yet: the subscription is refused, to be tried again."""
    async with world(tmp_path) as w:
        gateway = await w.gateway()
        seal = await seal_of(gateway)
        await retain(w, "news/unstated", b"x", None)
        await subscribed(w, gateway, "first", "news/#")
        await retain(w, "news/alice", b"x", seal.make(Author("alice"), "news/alice", b"x"))
        await gateway.open("refused")
        reply = await gateway.subscribe("refused", "news/#")
        assert reply["codes"] == [0x83]
        assert "permissions" in reply["reasons"][0]
        put_in_force(w, None)
        await _given(w, gateway, "now", ["news/unstated", "news/alice"])
