"""Messages of every type, a thousand a second, while a router is lost: what was accepted comes, and as promised."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from enmasse.aio.client import Client, ClientReceiver, ClientSender
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.testing import wait_for
from tests.kit.waiting import DEADLINE, until
from tests.system.mqtt_devices import PATIENCE, check, publishing
from tests.system.roaming import Longest, Roamer

KINDS = {"anycast": "direct", "multicast": "all", "queue": "orders", "topic": "news/a"}
RATE = 250.0
"""Messages a second of each type."""
SOME, COUNT = 300, 1500
"""Accepted messages of each type before the harm, and altogether."""
WINDOW = 50
ROUTERS = ("router-0", "router-1", "router-2")
INTERVAL = 0.01
"""Seconds between two MQTT messages."""


class Flow:
    """Messages of one address: `sent`, `came`: number → how often; `longest`: between two accepted ones."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sent: Counter[int] = Counter()
        self.came: Counter[int] = Counter()
        self.accepted: set[int] = set()
        self.longest = Longest()

    async def send(self, sender: ClientSender) -> None:
        """Send each message until it is accepted, with a window of them under way."""
        loop = asyncio.get_running_loop()
        begun, numbers = loop.time(), iter(range(COUNT))

        async def work() -> None:
            for number in numbers:
                await asyncio.sleep(begun + number / RATE - loop.time())  # limit: until it is due
                while number not in self.accepted:
                    self.sent[number] += 1
                    if await sender.send(Message(number, durable=True), timeout=DEADLINE) == ACCEPTED:
                        self.accepted.add(number)
                self.longest.note()

        await asyncio.gather(*(work() for _ in range(WINDOW)))

    def is_complete(self) -> bool:
        """Return True if everything that was accepted has come."""
        return self.came.keys() >= self.accepted

    async def receive(self, receiver: ClientReceiver) -> None:
        """Accept what comes until the connection ends."""
        with contextlib.suppress(AmqpError, ConnectionError):
            while True:
                delivery = await receiver.receive(None)
                self.came[delivery.message.body] += 1
                await delivery.accept()


async def flow_while(name: str, clients: Sequence[Client], harm: AbstractContextManager[None]) -> None:
    """Send from the first client to receivers of the second one and of the third, whose router is lost, and check what
    comes."""
    sending, other, lost = clients
    flows = {kind: Flow(address) for kind, address in KINDS.items()}
    tasks = []
    for kind, flow in flows.items():
        for client in (other, lost):
            receiver = await client.receiver(flow.address, credit=100, timeout=DEADLINE)
            counted = flow if client is other or kind in ("anycast", "queue") else Flow(flow.address)
            tasks.append(asyncio.create_task(counted.receive(receiver)))
    senders = [await sending.sender(flow.address, timeout=DEADLINE) for flow in flows.values()]
    work = [asyncio.create_task(flow.send(each)) for flow, each in zip(flows.values(), senders, strict=True)]
    await until(lambda: all(len(flow.accepted) >= SOME for flow in flows.values()), "messages are accepted")
    with harm:
        await asyncio.gather(*work)
    for flow in flows.values():
        await until(flow.is_complete, f"all of {flow.address} has come")
    for task in tasks:
        task.cancel()
    for kind, flow in flows.items():
        print(f"{name} {kind}: {flow.longest.seconds:.2f} s, {flow.sent.total() - COUNT} sent again")
    anycast = flows["anycast"]
    assert anycast.came <= anycast.sent, "only what was sent again comes again"


def once_while(publisher: Roamer, reader: Roamer, harms: Iterable[tuple[str, AbstractContextManager[None]]]) -> None:
    """Publish with QoS 2 from one device to the other while one harm, with its name, comes after the other; each
    message comes once. The sessions of both end."""
    try:
        for device in (publisher, reader):
            device.connect()
        reader.subscribe("news/+/state", 2)
        with publishing([publisher], "news", INTERVAL) as (work,):
            wait_for("messages arrive", lambda: len(reader.got) > SOME, PATIENCE)
            for name, harm in harms:
                before = len(reader.got)
                gaps = {"acknowledged": publisher.acked, "came": reader.came}
                for gap in gaps.values():
                    gap.reset()
                with harm:
                    wait_for("messages arrive", lambda before=before: len(reader.got) > before + SOME, PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
                print(f"{name} QoS 2: {', '.join(f'{what} {gap.seconds:.2f} s' for what, gap in gaps.items())}")
        sent = Counter(work.sent)
        wait_for("all is acknowledged", lambda: len(publisher.acknowledged) == len(sent), PATIENCE)
        wait_for("all has come", lambda: reader.got.keys() >= sent.keys(), PATIENCE)
        check(reader, sent, [publisher])
    finally:
        for device in (publisher, reader):
            device.end()
