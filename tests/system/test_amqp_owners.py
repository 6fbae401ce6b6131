"""What an AMQP client has made is reached by its user only, whatever another user states as container-id, link name or
address."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.aio.client import Client
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.testing import Suite
from tests.kit.marks import first_soon
from tests.kit.running import asyncio_test
from tests.system.amqp_users import PATIENCE, Scram, client
from tests.system.users import allow, apply, entry, with_users

REFUSED = "amqp:unauthorized-access"
ADDRESSES = {"news": {"type": "topic", "flavor": "small-persisted-topic"}}
ANYTHING = allow("#", operations=["send", "recv"])
USERS: dict[str, Any] = {
    "alice": entry("pw-a", allow("news")),
    "bob": entry("pw-b", ANYTHING, allow("other", operations=["manage"])),
    "alice/c1": entry("pw-s", ANYTHING),
    "~alice": entry("pw-t", ANYTHING),
    "anonymous": {"permissions": [ANYTHING]},
}
OTHERS = {"bob": "pw-b", "alice/c1": "pw-s", "~alice": "pw-t", "anonymous": ""}
CONTAINER, LINK = "c1", "sub"
QUEUE = "~alice/c1.sub"
"""The name of alice's subscription at the embedded broker."""
CONTAINERS = ["c1", "~alice/c1", "~alice%2Fc1", "~/~alice/c1", "alice/c1", "c1@~alice", "~", "sub@~alice/c1", "~alice/"]
LINKS = [
    "sub", "sub@c1", "sub@~alice/c1", "sub@~alice%2Fc1", "sub%40~alice/c1", "~alice/c1.sub", "sub|1", "c1.sub",
    "/c1.sub", "sub:global", "sub:shared-volatile", "relay.x@~alice/c1",
]  # fmt: skip
PREFIXES = [
    "news::",
    "/news::",
    "amqp:/news::",
    "amqp://h/news::",
    "news/::",
    "::",
    "news/x::",
    "_topo/0/router-0/news::",
]
QUEUES = [QUEUE, "~alice%2Fc1.sub", "sub@~alice/c1", "sub@c1", "sub", "*", "#"]
SOURCES = [f"{prefix}{queue}" for prefix in PREFIXES for queue in QUEUES]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with with_users(tmp_path_factory.mktemp("owners"), ADDRESSES, USERS) as found:
        apply(found, USERS)
        yield found


def of(suite: Suite, user: str, container: str = CONTAINER, **more: Any) -> Client:
    mechanism = None if user == "anonymous" else Scram(user, {"alice": "pw-a", **OTHERS}[user])
    return client(5672 + suite.offset, mechanism, container_id=container, **more)


async def received(suite: Suite, sent: list[str]) -> None:
    """Assert that alice's subscription has these messages."""
    async with of(suite, "alice") as alice:
        mine = await alice.receiver("news", durable_name=LINK, timeout=PATIENCE)
        for body in sent:
            delivery = await mine.receive(PATIENCE)
            assert delivery.message.body == body
            await delivery.accept()
        await mine.detach()


@asyncio_test
async def test_no_address_leads_to_the_subscription_of_another_user(suite: Suite) -> None:
    async with of(suite, "alice") as alice, of(suite, "bob") as bob:
        mine = await alice.receiver("news", durable_name=LINK, timeout=PATIENCE)
        for source in SOURCES:
            for capabilities in ((), ("queue",)):
                with pytest.raises(AmqpError) as refused:
                    await bob.receiver(source, capabilities=capabilities, timeout=PATIENCE)
                assert refused.value.condition in (REFUSED, "amqp:not-found"), source
            with pytest.raises(AmqpError):
                await bob.sender(source, timeout=PATIENCE)
        await (await bob.sender("news", timeout=PATIENCE)).send(Message(body="one", durable=True), timeout=PATIENCE)
        await mine.detach()
    await received(suite, ["one"])


@pytest.mark.parametrize("user", first_soon(OTHERS))
@asyncio_test
async def test_no_container_or_link_name_leads_to_the_subscription_of_another_user(suite: Suite, user: str) -> None:
    """By recovery, and by making a subscription of the same name."""
    async with of(suite, "alice") as alice:
        mine = await alice.receiver("news", durable_name=LINK, timeout=PATIENCE)
        for container in CONTAINERS:
            async with of(suite, user, container) as other:
                for link in LINKS:
                    with pytest.raises(AmqpError, match="not-found"):
                        await other.subscription(link, timeout=PATIENCE)
                    theirs = await other.receiver("news", durable_name=link, timeout=PATIENCE)
                    await theirs.close()
        assert not mine.closed
        async with of(suite, user) as other:
            sender = await other.sender("news", timeout=PATIENCE)
            await sender.send(Message(body=user, durable=True), timeout=PATIENCE)
        await mine.detach()
    await received(suite, [user])


@asyncio_test
async def test_shared_subscriptions_belong_to_a_user_too(suite: Suite) -> None:
    for capabilities in (("shared",), ("shared", "global"), ("global",)):
        more: dict[str, Any] = {"durable_name": "both", "capabilities": capabilities, "timeout": PATIENCE}
        async with of(suite, "alice") as alice, of(suite, "bob") as bob, of(suite, "anonymous") as nobody:
            links = [await each.receiver("news", **more) for each in (alice, bob, nobody)]
            sender = await bob.sender("news", timeout=PATIENCE)
            for body in ("first", "second"):
                assert await sender.send(Message(body=body, durable=True), timeout=PATIENCE) is ACCEPTED
            for link in links:
                for body in ("first", "second"):
                    delivery = await link.receive(PATIENCE)
                    assert delivery.message.body == body, capabilities
                    await delivery.accept()
            for link in links:
                await link.close()


@asyncio_test
async def test_links_of_one_name_and_container_do_not_steal_from_each_other(suite: Suite) -> None:
    async with of(suite, "alice") as alice, of(suite, "bob") as bob:
        mine = [await alice.receiver("news", name="same", timeout=PATIENCE), await alice.sender("news", name="same")]
        own = await alice.receiver(None, dynamic=True, name="reply", timeout=PATIENCE)
        theirs = [await bob.receiver("news", name="same", timeout=PATIENCE), await bob.sender("news", name="same")]
        await bob.receiver(None, dynamic=True, name="reply", timeout=PATIENCE)
        for capabilities in itertools.chain([()], [("queue",), ("temporary-queue",)]):
            with pytest.raises(AmqpError, match=REFUSED):
                await bob.receiver(own.address, capabilities=capabilities, timeout=PATIENCE)
        assert not any(link.closed for link in (*mine, own, *theirs))


@asyncio_test
async def test_the_bare_name_of_a_queue_leads_to_nobodys_subscription(suite: Suite) -> None:
    """A client of any user chooses the name by its container-id; it may also be that of a level of the topic."""
    for user in ("alice", "anonymous"):
        prefix = "" if user == "anonymous" else f"~{user}/"
        async with of(suite, user, "news/x") as one, of(suite, "bob") as bob, of(suite, "alice", "own") as alice:
            mine = await one.receiver("news", durable_name="y", timeout=PATIENCE)
            for name in (f"{prefix}news/x.y", "news/x.y", "news/x/y"):
                for other in (bob, alice):
                    for capabilities in ((), ("queue",), ("topic",)):
                        with contextlib.suppress(AmqpError):
                            theirs = await other.receiver(name, capabilities=capabilities, timeout=PATIENCE)
                            assert name.startswith("news/x")
                            sent = await bob.sender(name, timeout=PATIENCE)
                            assert await sent.send(Message(body="level", durable=True), timeout=PATIENCE) is ACCEPTED
                            assert (await theirs.receive(PATIENCE)).message.body == "level"
                            await theirs.close()
            sender = await bob.sender("news", timeout=PATIENCE)
            await sender.send(Message(body="kept", durable=True), timeout=PATIENCE)
            delivery = await mine.receive(PATIENCE)
            assert delivery.message.body == "kept"
            await delivery.release()
            await mine.detach()
            again = await one.receiver("news", durable_name="y", timeout=PATIENCE)
            assert (await again.receive(PATIENCE)).message.body == "kept"
            await again.close()
