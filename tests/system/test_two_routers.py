"""Two routers of a suite share the port for clients: whatever a client uses, it does not matter which one it is at."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enmasse import __version__
from enmasse.aio.client import Client, ClientReceiver, connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED, Rejected, Target
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.cli.contexts import console
from enmasse.mqtt.packets import Will
from enmasse.testing import Suite, running, wait_for
from tests.kit.running import asyncio_test
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import DEADLINE, until
from tests.system.mqtt_devices import exactly_once
from tests.system.mqtt_users import Device
from tests.system.seeing import component, find, kill, wait_again
from tests.system.test_kill import Flow
from tests.system.users import allow, entry

ROUTERS = ("router-0", "router-1")
TOPIC, QUEUE = "small-persisted-topic", "small-persisted-queue"
ADDRESSES = {
    "orders": {"type": "queue", "flavor": QUEUE},
    "counted": {"type": "queue", "flavor": QUEUE},
    "news": {"type": "topic", "flavor": TOPIC},
    "direct": {"type": "anycast"},
    "cast": {"type": "anycast"},
    "tally": {"type": "anycast"},
    "all": {"type": "multicast"},
}
OPTIONS = ("--routers", "2", "--gateways", "2")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with running(tmp_path_factory.mktemp("two"), ADDRESSES, options=OPTIONS) as found:
        found.up()
        yield found
        assert found.down() == 0


@asynccontextmanager
async def at(suite: Suite, router: str, **more: Any) -> AsyncIterator[Client]:
    """Connect to the port of all routers until this one has the connection."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                client = await connect(suite.url, timeout=DEADLINE, **more).open(DEADLINE)
            except AmqpError as error:  # connections that were at the other router count for a moment
                if error.condition != "amqp:resource-limit-exceeded":
                    raise
                continue
            opened = client.connection.remote_open
            if opened is not None and opened.container_id == router:
                break
            await client.close()
    try:
        yield client
    finally:
        await client.close()


async def send(client: Client, address: str, *bodies: str, **more: Any) -> None:
    sender = await client.sender(address, timeout=DEADLINE)
    for body in bodies:
        assert await sender.send(Message(body, durable=True, **more), timeout=DEADLINE) == ACCEPTED
    await sender.close()


async def bodies(receiver: ClientReceiver, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        delivery = await receiver.receive(DEADLINE)
        await delivery.accept()
        found.append(delivery.message.body)
    return found


async def exchanged(sending: Client, receiver: ClientReceiver, address: str, *words: str) -> list[Any]:
    """Send messages, and return what has come: a receiver's outcome is the sender's."""
    sent = asyncio.create_task(send(sending, address, *words))
    found = await bodies(receiver, len(words))
    await sent
    return found


@asyncio_test
async def test_messages_reach_receivers_at_the_other_router(suite: Suite) -> None:
    """Of each type of address; a message of a multicast address and of a topic reaches each, any other one."""
    for number, (of_sender, of_receiver) in enumerate((ROUTERS, ROUTERS[::-1])):
        async with at(suite, of_sender) as sending, at(suite, of_receiver) as receiving:
            for address in ("direct", "all", "news/a", "orders"):
                receiver = await receiving.receiver(address, timeout=DEADLINE)
                words = [f"{address} {number} {each}" for each in range(5)]
                assert await exchanged(sending, receiver, address, *words) == words
                await receiver.close()
            everywhere = [await each.receiver("all", timeout=DEADLINE) for each in (sending, receiving, receiving)]
            await until(lambda: consumers(suite, "all") == 3, "all receivers are counted")
            places = {of_sender: 1, of_receiver: 2}
            await until(lambda: asyncio.to_thread(shows_places, suite, "all", places), "shown where they are")
            sent = asyncio.create_task(send(sending, "all", "to each", "last"))
            assert await asyncio.gather(*(bodies(each, 2) for each in everywhere)) == [["to each", "last"]] * 3
            await sent


def shows_places(suite: Suite, address: str, places: dict[str, int]) -> bool:
    offset = ("--port-offset", str(suite.offset), "--json")
    shown = suite.command("address", "show", address, *offset)
    return bool(json.loads(shown.stdout)["receivers"] == places)


def test_each_router_shows_how_it_reaches_the_other(suite: Suite) -> None:
    """In the status, in the API, which has its version too, in `top` and in the metrics."""
    for router, other in (ROUTERS, ROUTERS[::-1]):
        wait_for("the routes", partial(reaches, suite, router, other))
        assert component(suite, router)["routes"] == {other: {"cost": 1, "next": other}}
    shown = suite.command("top", "--once", "--port-offset", str(suite.offset)).stdout
    assert f"{ROUTERS[1]} (cost 1)" in shown and f"{ROUTERS[0]} (cost 1)" in shown
    request = urllib.request.Request(f"http://127.0.0.1:{8079 + suite.offset}/metrics", headers=suite.operator_headers)
    with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
        lines = answer.read().decode().splitlines()
    for router, other in (ROUTERS, ROUTERS[::-1]):
        assert f'enmasse_router_neighbours{{process="{router}"}} 1.0' in lines
        assert f'enmasse_router_path_cost{{process="{router}",router="{other}"}} 1.0' in lines
    busy = [line for line in lines if line.startswith("enmasse_loop_busy_seconds_total{")]
    assert busy and all(float(line.rpartition(" ")[2]) > 0 for line in busy)


def reaches(suite: Suite, router: str, other: str) -> bool:
    shown = console.ask(suite.offset, "GET", f"routers/{router}")
    route = {"name": other, "cost": 1, "next": other, "path": [other]}
    return bool((shown["version"], shown["routes"]) == (__version__, [route]))


def consumers(suite: Suite, address: str) -> int:
    found = find(suite, address)
    return -1 if found is None else found["consumers"]


@asyncio_test
async def test_what_brokers_do_is_at_each_router(suite: Suite) -> None:
    """Selecting, browsing, and a durable subscription that is attached at one router, then at the other."""
    for first, second in (ROUTERS, ROUTERS[::-1]):
        async with at(suite, first, container_id="reader") as here, at(suite, second) as there:
            await send(here, "orders", "red", application_properties={"colour": "red"})
            await send(here, "orders", "blue", application_properties={"colour": "blue"})
            browser = await there.receiver("orders", browse=True, timeout=DEADLINE)
            assert await bodies(browser, 2) == ["red", "blue"]
            await browser.close()
            chosen = await there.receiver("orders", selector="colour = 'blue'", timeout=DEADLINE)
            assert await bodies(chosen, 1) == ["blue"]
            await chosen.close()
            rest = await there.receiver("orders", timeout=DEADLINE)
            assert await bodies(rest, 1) == ["red"]
            await rest.close()
            durable = await here.receiver("news", durable_name="kept", timeout=DEADLINE)
            await durable.detach()
            await send(there, "news", "while it was away")
        async with at(suite, second, container_id="reader") as there:
            durable = await there.receiver("news", durable_name="kept", timeout=DEADLINE)
            assert await bodies(durable, 1) == ["while it was away"]
            await durable.detach()
            durable = await there.subscription("kept", timeout=DEADLINE)
            await durable.close()


@asyncio_test
async def test_replies_and_requests_to_services(suite: Suite) -> None:
    """A reply to a temporary address comes to the requester's router; the control address of subscriptions answers at
    both."""
    conditions = set()
    for of_requester, of_responder in (ROUTERS, ROUTERS[::-1]):
        async with at(suite, of_requester) as asking, at(suite, of_responder) as answering:
            service = await answering.receiver("direct", timeout=DEADLINE)

            async def answer(service: ClientReceiver = service, answering: Client = answering) -> None:
                delivery = await service.receive(DEADLINE)
                await delivery.accept()
                asked = delivery.message
                sender = await answering.sender(None, timeout=DEADLINE)
                reply = Message(f"{asked.body}!", to=asked.reply_to, correlation_id=asked.correlation_id)
                assert await sender.send(reply, timeout=DEADLINE) == ACCEPTED

            task = asyncio.create_task(answer())
            assert (await asking.request(Message("who"), "direct", timeout=DEADLINE)).body == "who!"
            await task
            name = f"by-{of_requester}"
            control = await asking.sender("$subctrl", timeout=DEADLINE)
            relay = await asking.sender(None, timeout=DEADLINE)
            without = Message("news", to="$subctrl", subject="subscribe", correlation_id=name)
            outcome = await relay.send(without, timeout=DEADLINE)
            assert isinstance(outcome, Rejected) and outcome.error, "its user would not be known"
            conditions.add(outcome.error.condition)
            subscribe = Message("news", subject="subscribe", correlation_id=name)
            assert await control.send(subscribe, timeout=DEADLINE) == ACCEPTED
            replies = await asking.receiver(None, dynamic=True, timeout=DEADLINE)
            ask = Message(None, subject="list", correlation_id=name, reply_to=replies.address)
            assert await control.send(ask, timeout=DEADLINE) == ACCEPTED
            listed = (await replies.receive(DEADLINE)).message
            place = str((listed.application_properties or {})["addresses"])
            kept = await answering.receiver(place, timeout=DEADLINE)
            await send(asking, "news", name)
            assert await bodies(kept, 1) == [name]
            await kept.close()
            close = Message(None, subject="close", correlation_id=name)
            assert await control.send(close, timeout=DEADLINE) == ACCEPTED
    # At the router of the service, and over a hop, where gateways send it again: a broker may connect.
    assert conditions == {"amqp:not-implemented", "qd:no-route-to-dest"}


@asyncio_test
async def test_temporary_queues_as_jms_makes_them(suite: Suite) -> None:
    """A client at the other router sends to them, with and without a link of their own, until their maker goes."""
    for of_maker, of_sender in (ROUTERS, ROUTERS[::-1]):
        async with at(suite, of_maker) as making, at(suite, of_sender) as sending:
            target = Target(dynamic=True, capabilities=(Symbol("temporary-queue"),))
            maker = await making.sender(None, target=target, timeout=DEADLINE)
            answered = maker.link.remote_target
            assert isinstance(answered, Target) and answered.address is not None
            by_source = await making.receiver(None, dynamic=True, capabilities=("temporary-queue",), timeout=DEADLINE)
            by_target = await making.receiver(answered.address, timeout=DEADLINE)
            for receiver in (by_source, by_target):
                address = str(receiver.address)
                assert await exchanged(sending, receiver, address, "by a link") == ["by a link"]
                relay = await sending.sender(None, timeout=DEADLINE)
                sent = asyncio.create_task(relay.send(Message("without", to=address), timeout=DEADLINE))
                assert await bodies(receiver, 1) == ["without"]
                assert await sent == ACCEPTED
            left = await sending.sender(answered.address, timeout=DEADLINE)
            await by_target.close()
            await maker.close()
            await until(partial(getattr, left, "closed"), "the sender's link has ended")


def own_port(suite: Suite, gateway: str) -> int:
    settings = json.loads((suite.data / "run" / f"{gateway}.json").read_text())
    return int(next(each["port"] for each in settings["listeners"] if not each["shared"]))


def shown(suite: Suite, *command: str) -> Any:
    """Return what a command of the command line prints as JSON."""
    done = suite.command(*command, "--json", "--port-offset", str(suite.offset))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_gateways_are_at_different_routers_and_serve_each_other(suite: Suite) -> None:
    """Also with wills, and an anycast address."""
    first, second = (own_port(suite, f"mqtt_gateway-{number}") for number in (0, 1))
    of_gateways = [
        row["component"]
        for row in shown(suite, "connection", "list", "--inside")["items"]
        if row["container"].startswith("mqtt_gateway-") and row["component"] in ROUTERS
    ]
    assert set(of_gateways) == set(ROUTERS)
    for of_publisher, of_reader in ((first, second), (second, first)):
        will = Will("news/wills", b"gone", 1, False)
        publisher = Device(of_publisher, f"publisher-{of_reader}", None, None, will=will).connected()
        reader = Device(of_reader, f"reader-{of_reader}", None, None).connected()
        assert reader.subscribe("news/#", "cast/#", qos=1) == [1, 1]
        publisher.publish("news/a", b"0", qos=0)
        assert publisher.publish("news/a", b"1", qos=1) == 0
        publisher.publish_once("news/kept", b"2")
        publisher.publish("cast", b"any", qos=0)
        publisher.lose()
        assert sorted(reader.receive() for _ in range(5)) == [b"0", b"1", b"2", b"any", b"gone"]
        reader.publish("news/kept", b"", qos=1, retain=True)
        reader.close()


@asyncio_test
async def test_each_message_and_connection_is_counted_once(suite: Suite) -> None:
    """Although both routers, and for a queue a broker, have seen the message."""
    async with at(suite, "router-0", container_id="counted-0") as here, at(suite, "router-1") as there:
        for address in ("tally", "counted"):
            receiver = await there.receiver(address, timeout=DEADLINE)
            words = list(map(str, range(10)))
            assert await exchanged(here, receiver, address, *words) == words
            await until(partial(counted, suite, address), f"{address}: 10 in, 10 out, one consumer")
            await receiver.close()
        rows = shown(suite, "connection", "list")["items"]
        assert [row["component"] for row in rows if row["container"] == "counted-0"] == ["router-0"]


def counted(suite: Suite, address: str) -> bool:
    """Return whether 10 messages have come and gone, and there is a consumer."""
    found = console.ask(suite.offset, "GET", f"addresses/{address}")["stats"]
    return (found["totals"]["in"], found["totals"]["out"], found["producers"], found["consumers"]) == (10, 10, 0, 1)


@pytest.mark.parametrize("victim", ["router-1", pytest.param("router-0", marks=pytest.mark.slow)])
def test_killing_a_router_under_load_loses_nothing(suite: Suite, victim: str) -> None:
    """Its clients connect again, to the other one, and the network is whole afterwards."""
    flow = Flow(suite)
    flow.wait_some()
    pid = kill(suite, victim)
    flow.wait_some()
    wait_again(suite, victim, pid)
    flow.finish()
    flow.check_counts(kills=1)
    wait_for("both routers are neighbours", lambda: "2 routers" in component(suite, "ragent")["detail"])


@pytest.mark.slow
def test_mqtt_clients_have_everything_once_while_both_routers_are_killed(suite: Suite) -> None:
    exactly_once(suite, "news", lambda name: kill(suite, name), more=("router-1",))


FILES = {
    "users.json": {"alice": entry("pw", allow("direct")), "bob": entry("pw")},
    "plans.json": {"small": {"kind": "space", "limits": {"connections": 2}}},
    "spaces.json": {"shop": {"plan": "small"}},
    "spaces/shop/addresses.json": {"direct": {"type": "anycast"}},
    "spaces/shop/users.json": {"clerk": entry("pw", allow("#"))},
}


@pytest.mark.slow
@asyncio_test
async def test_rights_and_limits_hold_at_each_router(tmp_path: Path) -> None:
    """Connections of a plan are those of the suite: two routers do not let in twice as many."""
    options = ("--routers", "2", "--without", "mqtt")
    with running_with_spaces(tmp_path, FILES, addresses=ADDRESSES, options=options) as suite:
        suite.up()
        for router in ROUTERS:
            async with (
                at(suite, router, user="alice", password="pw") as alice,
                at(suite, router, user="bob", password="pw") as bob,
            ):
                await (await alice.receiver("direct", timeout=DEADLINE)).close()
                for client, address in ((alice, "cast"), (alice, "$management"), (bob, "direct")):
                    for attach in (client.sender, client.receiver):
                        with pytest.raises(AmqpError) as refused:
                            await attach(address, timeout=DEADLINE)
                        assert refused.value.condition == "amqp:unauthorized-access"
        clerk: dict[str, Any] = {"user": "clerk@shop", "password": "pw"}
        async with at(suite, "router-0", **clerk) as first, at(suite, "router-1", **clerk) as second:
            receiver = await second.receiver("direct", timeout=DEADLINE)
            assert await exchanged(first, receiver, "direct", "of a tenant") == ["of a tenant"]
            for _ in range(8):  # by chance at both
                with pytest.raises(AmqpError) as refused:
                    await connect(suite.url, timeout=DEADLINE, **clerk).open(DEADLINE)
                assert refused.value.condition == "amqp:resource-limit-exceeded"
        assert suite.down() == 0
