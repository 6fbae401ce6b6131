"""Ids by which repeated messages are known: whose they are, whether others can foresee them, and who sees them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from enmasse.aio.client import Client, ClientReceiver, ClientSender
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.codec.types import Symbol
from enmasse.amqp.messages.message import Message
from enmasse.amqp.termini import SENDER
from enmasse.identity import senders
from enmasse.identity.annotations import RETAINED_BY
from enmasse.identity.principal import Principal
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import NONE, V5, V311, Properties, PubAck, PubComp, Publish, PubRec, PubRel
from enmasse.testing import Suite, wait_for
from tests.kit.marks import first_soon
from tests.kit.running import asyncio_test
from tests.system.amqp_users import PATIENCE, Plain, client
from tests.system.mqtt_users import Device
from tests.system.seeing import kill, wait_process
from tests.system.users import allow, entry, with_users
from tests.upgrade.content import enmasse

TOPIC, QUEUE = "small-persisted-topic", "small-persisted-queue"
ADDRESSES = {
    "jobs": {"type": "queue", "flavor": QUEUE},
    "unique": {"type": "queue", "flavor": QUEUE, "duplicates": "message-id"},
    "fleeting": {"type": "queue", "flavor": "vanilla-queue"},
    "news": {"type": "topic", "flavor": TOPIC},
    "passing": {"type": "topic", "flavor": "vanilla-topic"},
    "chat": {"type": "multicast"},
    "tight": {"type": "queue", "flavor": QUEUE, "maxSize": "16Ki", "fullPolicy": "FAIL"},
    "close": {"type": "topic", "flavor": TOPIC, "maxSize": "16Ki", "fullPolicy": "FAIL"},
    "rest": {"type": "topic", "flavor": TOPIC, "mqttDefault": True},
}
NAMES = ["alice", "bob", "eve"]
USERS = {name: entry(f"pw-{name}", allow("#", "$subctrl", "$sub/#")) for name in NAMES}
STORING = ["jobs", "unique", "fleeting", "news/x", "passing/x"]
DUPLICATE_ID = "_AMQ_DUPL_ID"
VERSIONS = pytest.mark.parametrize("version", [V311, V5])


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with with_users(tmp_path_factory.mktemp("senders"), ADDRESSES, USERS, options=()) as found:
        yield found


def amqp(suite: Suite, name: str) -> Client:
    return client(5672 + suite.offset, Plain(name, f"pw-{name}"))


def marked(address: str, body: str, id: Any) -> Message:
    named: dict[str, Any] = {"message_id": id} if address == "unique" else {}
    if not named:
        named["application_properties"] = {DUPLICATE_ID: id}
    return Message(body, to=address, durable=True, **named)


async def send(sender: ClientSender, *messages: Message) -> None:
    """Send at once, and wait until all are accepted."""
    outcomes = await asyncio.gather(*(sender.send(each, timeout=PATIENCE) for each in messages))
    assert all(each is ACCEPTED for each in outcomes)


async def bodies(receiver: ClientReceiver, last: str = "last") -> list[Any]:
    """Return what comes up to a message, which is accepted too."""
    found: list[Any] = []
    while last not in found:
        delivery = await receiver.receive(PATIENCE)
        found.append(delivery.message.body)
        await delivery.accept()
    return found[:-1]


@pytest.mark.parametrize(
    ("address", "relayed"),
    [
        *((address, False) for address in STORING),
        (STORING[0], True),
        *(pytest.param(address, True, marks=pytest.mark.slow) for address in STORING[1:]),
    ],
)
@asyncio_test
async def test_an_id_that_another_user_has_used_up_is_free(suite: Suite, address: str, relayed: bool) -> None:
    """One by one, and many at a time of both."""
    target = None if relayed else address
    first = f"{address}.{relayed}"
    ids = [f"{address}.{relayed}.{n}" for n in range(300)]
    async with amqp(suite, "alice") as a, amqp(suite, "bob") as b, amqp(suite, "eve") as e:
        receiver = await e.receiver(address)
        alice, bob = await a.sender(target), await b.sender(target)
        await send(bob, marked(address, "bob", first))
        await send(alice, marked(address, "alice", first))
        await send(alice, marked(address, "again", first))
        await asyncio.gather(*(
            send(sender, *(marked(address, f"{name}{id}", id) for id in ids))
            for sender, name in ((alice, "alice"), (bob, "bob"), (alice, "again"))
        ))  # fmt: skip
        await send(alice, Message("last", to=address, durable=True))
        found = await bodies(receiver)
    wanted = ["bob", "alice", *(f"{name}{id}" for id in ids for name in ("alice", "bob"))]
    assert sorted(found) == sorted(wanted)


@pytest.mark.slow  # tests/broker/test_sessions.py has the rule with a smaller number
@pytest.mark.parametrize("address", ["jobs", "fleeting"])
@asyncio_test
async def test_a_flood_of_ids_pushes_out_those_of_nobody_else(suite: Suite, address: str) -> None:
    async with amqp(suite, "alice") as a, amqp(suite, "bob") as b:
        alice, bob = await a.sender(address), await b.sender(address)
        receiver = await a.receiver(address)
        await send(alice, marked(address, "alice", "kept"))
        flood = asyncio.create_task(send(bob, *(marked(address, "", f"flood {n}") for n in range(20_001))))
        found: list[Any] = []
        while len(found) < 20_002:
            delivery = await receiver.receive(PATIENCE)
            found.append(delivery.message.body)
            await delivery.accept()
        await flood
        await send(alice, marked(address, "again", "kept"))
        await send(bob, marked(address, "own", "flood 0"))  # the oldest of more than 20,000
        await send(alice, Message("last", durable=True))
        assert await bodies(receiver) == ["own"]


@pytest.mark.parametrize("stated", [senders.of_user(Principal("alice")), senders.SERVICE, True])
@pytest.mark.parametrize("address", ["jobs", "news/x", None])
@asyncio_test
async def test_what_a_client_states_of_the_sender_counts_for_nothing(
    suite: Suite, address: str | None, stated: Any
) -> None:
    to = address or "news/y"
    id = f"{address}{stated!r}"
    service = f"{senders.of_user(Principal('alice'))[1:].hex()}:{id}"
    async with amqp(suite, "alice") as a, amqp(suite, "eve") as e:
        receiver = await a.receiver(to)
        evil = await e.sender(address, properties={Symbol(SENDER): stated})
        alice = await a.sender(address)
        for each in (id, service):
            tag = each.encode()[:8] + senders.of_user(Principal("alice"))
            await evil.send(marked(to, "eve", each), tag=tag, timeout=PATIENCE)
        await send(alice, marked(to, "alice", id), Message("last", to=to, durable=True))
        assert await bodies(receiver) == ["eve", "eve", "alice"]


def once(device: Device, topic: str, payload: bytes, packet_id: int, properties: Any = NONE) -> None:
    """Publish with QoS 2, up to PUBCOMP."""
    device.send(Publish(topic, payload, 2, False, packet_id=packet_id, properties=properties))
    answer = device._next(PubRec)
    assert answer.reason < 0x80
    device.send(PubRel(packet_id))
    device._next(PubComp)


def guesses(seen: Sequence[Message]) -> set[Any]:
    """What a receiver can make of the messages of one sender, to use up the ids of its next ones."""
    found: set[Any] = set()
    for message in seen:
        for id in (message.message_id, *message.application_properties.values()):
            found.add(id)
            text = str(id)
            parts = text.replace(":", ".").split(".")
            for at, part in enumerate(parts):
                if part.isdecimal():
                    found |= {text.replace(f".{part}.", f".{int(part) + n}.") for n in range(1, 20)}
                    found |= {".".join([*parts[:at], str(int(part) + n), *parts[at + 1 :]]) for n in range(1, 20)}
    return found - {None}


@VERSIONS
@pytest.mark.parametrize("address", ["jobs", "news/x", "fleeting", "passing/x", "chat"])
@asyncio_test
async def test_a_receiver_neither_sees_nor_foresees_the_ids_of_a_publisher(
    suite: Suite, address: str, version: int
) -> None:
    """The attack: the next ids are computed and used up. The same payload, so that nothing else differs."""
    async with amqp(suite, "eve") as e:
        receiver = await e.receiver(address)
        with Device(suite.mqtt_port, f"device-{version}", "alice", "pw-alice", version=version) as device:
            await asyncio.to_thread(device.connected)
            seen = []
            for n in range(3):
                published = asyncio.create_task(asyncio.to_thread(once, device, address, b"open", n + 1))
                delivery = await receiver.receive(PATIENCE)
                seen.append(delivery.message)
                await delivery.accept()
                await published
            assert [each.application_properties for each in seen] == [{}] * 3
            assert len({each.message_id for each in seen}) == 3
            if address == "chat":
                return
            evil = await e.sender(address)
            used = sorted(map(str, guesses(seen)))
            await send(evil, *(marked("", "used up", id) for id in used))
            await asyncio.to_thread(once, device, address, b"open", 4)
            await send(evil, Message("last", durable=True))
            assert (await bodies(receiver)).count(b"open") == 1


@pytest.mark.parametrize("qos", first_soon([1, 0, 2]))
@VERSIONS
@asyncio_test
async def test_a_seal_of_a_retained_message_stays_inside(suite: Suite, version: int, qos: int) -> None:
    """It reaches the subscription service, which knows the user; neither receivers at that time nor later ones have it,
    so that they could state it again."""
    topic, body = f"news/sealed-{version}-{qos}", b"state"
    async with amqp(suite, "eve") as e:
        live = await e.receiver(topic)
        with Device(suite.mqtt_port, f"sealing-{version}-{qos}", "alice", "pw-alice", version=version) as device:
            await asyncio.to_thread(device.connected)
            if qos == 2:
                await asyncio.to_thread(device.publish_once, topic, body)
            else:
                await asyncio.to_thread(device.publish, topic, body, qos, True)
        first = await live.receive(PATIENCE)
        assert (first.message.body, first.message.annotations["x-opt-retain-message"]) == (body, True)
        assert RETAINED_BY not in first.message.annotations
        sender, replies = await e.sender("$subctrl"), await e.receiver(None, dynamic=True)
        request = Message([topic], subject="subscribe", correlation_id=topic, reply_to=replies.address)
        assert await sender.send(request, timeout=PATIENCE) is ACCEPTED
        answer = (await replies.receive(PATIENCE)).message
        later = await e.receiver(str(answer.application_properties["addresses"]))
        copy = (await later.receive(PATIENCE)).message
        assert (copy.body, copy.annotations["x-opt-retained-for"]) == (body, topic)
        assert RETAINED_BY not in copy.annotations and DUPLICATE_ID not in copy.application_properties
    listed = json.loads(await asyncio.to_thread(enmasse, suite, "retained", "list", "--json"))
    assert [one["user"] for one in listed["retained"] if one["topic"] == topic] == ["alice"]


@pytest.mark.parametrize("qos", [1, 2])
@VERSIONS
def test_a_retained_message_counts_for_whoever_subscribes_after_its_acknowledgement(
    suite: Suite, version: int, qos: int
) -> None:
    """Although the subscription service is stopped when it is acknowledged, and killed then."""
    topic = f"news/kept-{version}-{qos}"
    name, pid = next((one["name"], one["pid"]) for one in suite.status()["components"] if one["kind"] == "subserv")
    with Device(suite.mqtt_port, f"publisher-{topic[5:]}", "alice", "pw-alice", version=version) as publisher:
        publisher.connected()
        if qos == 1:
            os.kill(pid, signal.SIGSTOP)
            assert publisher.publish(topic, b"state", 1, True) < 0x80
        else:  # whose packet id the service stores
            publisher.publish_once(topic, b"state")
        kill(suite, name)
    wait_process(suite, name, pid)

    def subscribed() -> bytes | None:
        with Device(suite.mqtt_port, f"subscriber-{topic[5:]}", "bob", "pw-bob", version=version) as subscriber:
            if subscriber.connected().answer.reason or subscriber.subscribe(topic) != [1]:
                return None
            return subscriber.receive()

    assert wait_for("a subscription", subscribed) == b"state"


async def taken(receiver: ClientReceiver) -> bytes:
    """Return the body of the next message, which is accepted."""
    receiver.link.grant(1)
    receiver.link.session.connection.wake()
    delivery = await receiver.receive(PATIENCE)
    await delivery.accept()
    return bytes(delivery.message.body)


@pytest.mark.parametrize("qos", [0, 1, 2])
@asyncio_test
async def test_a_user_property_is_no_id(suite: Suite, qos: int) -> None:
    """The gateway is believed what it states, so it states nothing that a client has said."""
    properties = Properties(user_properties=((DUPLICATE_ID, "same"), ("a", "1")))
    async with amqp(suite, "alice") as a:
        receiver = await a.receiver("jobs")
        with Device(suite.mqtt_port, f"named-{qos}", "alice", "pw-alice") as device:
            await asyncio.to_thread(device.connected)
            for n in range(2):
                if qos == 2:
                    await asyncio.to_thread(once, device, "jobs", b"%d" % n, n + 1, properties)
                else:
                    await asyncio.to_thread(device.publish, "jobs", b"%d" % n, qos, False, properties)
            found = [await receiver.receive(PATIENCE) for _ in range(2)]
            assert [each.message.body for each in found] == [b"0", b"1"]
            assert [each.message.application_properties for each in found] == [{"a": "1"}] * 2
            for each in found:
                await each.accept()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("address", ["tight", "close/x"])
@asyncio_test
async def test_messages_of_mqtt_3_1_1_keep_their_order_after_a_refusal(suite: Suite, address: str, qos: int) -> None:
    """The address is full: the client cannot be refused a message, so it is disconnected and sends all again."""
    root = address.partition("/")[0]
    async with amqp(suite, "eve") as e:
        receiver = await e.receiver(address)
        receiver.link.credit_window = 0
        sender = await e.sender(address)
        last = 0
        for n in range(2):
            name = f"{root}-{qos}-{n}"
            filler = Message(bytes(20_000), durable=True)
            assert await sender.send(filler, timeout=PATIENCE) is ACCEPTED
            first, last = last + 1, last + 10
            packets = [
                Publish(address, b"%d" % number, qos, False, packet_id=number - first + 1)
                for number in range(first, last + 1)
            ]
            with Device(suite.mqtt_port, name, "alice", "pw-alice", version=V311, clean=False) as device:
                await asyncio.to_thread(device.connected)
                device.send(*packets)
                await asyncio.to_thread(device.until_closed)
            found: list[int] = []
            full = await taken(receiver)
            assert len(full) == 20_000
            while await sender.send(Message(b"room", durable=True), timeout=PATIENCE) is not ACCEPTED:
                await asyncio.sleep(0)  # the broker has not seen yet that the filler was taken
            assert await taken(receiver) == b"room"
            with Device(suite.mqtt_port, name, "alice", "pw-alice", version=V311, clean=False) as device:
                await asyncio.to_thread(device.connected)
                device.send(*(replace(each, dup=True) for each in packets))
                while not found or found[-1] != last:
                    found.append(int(await taken(receiver)))
            assert list(dict.fromkeys(found)) == list(range(first, last + 1)), f"round {n}"
            if qos == 2:
                assert len(found) == 10


@pytest.mark.parametrize("topic", ["$SYS/broker/uptime"])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
@VERSIONS
def test_no_client_publishes_below_sys(suite: Suite, version: int, qos: int, retain: bool, topic: str) -> None:
    with Device(suite.mqtt_port, "forger", "alice", "pw-alice", version=version) as device:
        device.connected()
        device.send(Publish(topic, b"x", qos, retain, packet_id=1 if qos else 0))
        if qos and version == V5:
            assert device._next(PubAck if qos == 1 else PubRec).reason >= 0x80
        elif qos:
            assert device.until_closed() in (None, reasons.NOT_AUTHORIZED)
