"""Each router of a suite in turn is killed, or stopped (then the suite kills it), under a thousand messages a second of
every type, and MQTT of QoS 2 by two gateways: nothing acknowledged is lost, and nothing comes twice where once is
promised. The tests print the longest gap of each client (`pytest -s`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

from enmasse.aio.client import Client, ClientReceiver, ClientSender
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.testing import Suite, running, wait_for
from tests.kit.running import asyncio_test
from tests.kit.waiting import DEADLINE, until
from tests.system.mqtt_devices import PATIENCE, check, publishing
from tests.system.roaming import Longest, Roamer
from tests.system.seeing import component
from tests.system.test_two_routers import ADDRESSES, at, own_port

ROUTERS = ("router-0", "router-1", "router-2")
KINDS = {"anycast": "direct", "multicast": "all", "queue": "orders", "topic": "news/a"}
RATE = 250.0
"""Messages a second of each type."""
SOME, COUNT = 300, 1500
"""Accepted messages of each type before the harm, and altogether."""
WINDOW = 50
INTERVAL = 0.01
"""Seconds between two MQTT messages."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    options = ("--routers", "3", "--gateways", "2")
    with running(tmp_path_factory.mktemp("three"), ADDRESSES, options=options) as found:
        found.up()
        yield found
        assert found.down() == 0


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


@contextmanager
def harmed(suite: Suite, name: str, harm: signal.Signals) -> Iterator[None]:
    """Kill or stop a process; one that is stopped goes on after the block."""
    pid = component(suite, name)["pid"]
    os.kill(pid, harm)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("victim", ROUTERS)
@asyncio_test
async def test_a_lost_router_costs_no_message(suite: Suite, victim: str, harm: signal.Signals) -> None:
    """Receivers are at the victim and at another router, the sender is at the third one."""
    of_sender, other = (name for name in ROUTERS if name != victim)
    flows = {kind: Flow(address) for kind, address in KINDS.items()}
    await until(lambda: asyncio.to_thread(is_whole, suite), "all routers are neighbours")
    async with AsyncExitStack() as stack:
        clients: dict[str, Client] = {
            name: await stack.enter_async_context(at(suite, name)) for name in (of_sender, other, victim)
        }
        tasks, sending = [], []
        for kind, flow in flows.items():
            for name in (other, victim):
                receiver = await clients[name].receiver(flow.address, credit=100, timeout=DEADLINE)
                counted = flow if name == other or kind in ("anycast", "queue") else Flow(flow.address)
                tasks.append(asyncio.create_task(counted.receive(receiver)))
        for flow in flows.values():
            sending.append(asyncio.create_task(flow.send(await clients[of_sender].sender(flow.address))))
        await until(lambda: all(len(flow.accepted) >= SOME for flow in flows.values()), "messages are accepted")
        with harmed(suite, victim, harm):
            await asyncio.gather(*sending)
        for flow in flows.values():
            await until(flow.is_complete, f"all of {flow.address} has come")
        for task in tasks:
            task.cancel()
    for kind, flow in flows.items():
        print(f"{harm.name} {victim} {kind}: {flow.longest.seconds:.2f} s, {flow.sent.total() - COUNT} sent again")
    anycast = flows["anycast"]
    assert anycast.came <= anycast.sent, "only what was sent again comes again"


@pytest.mark.slow
@pytest.mark.parametrize("harm", [signal.SIGSTOP, signal.SIGKILL])
def test_mqtt_clients_have_everything_once_while_each_router_is_lost(suite: Suite, harm: signal.Signals) -> None:
    publisher, reader = (
        Roamer(f"{harm.name}-{number}", own_port(suite, f"mqtt_gateway-{number}")) for number in range(2)
    )
    try:
        for device in (publisher, reader):
            device.connect()
        reader.subscribe("news/+/state", 2)
        with publishing([publisher], "news", INTERVAL) as (work,):
            wait_for("messages arrive", lambda: len(reader.got) > SOME, PATIENCE)
            for victim in ROUTERS:
                before = len(reader.got)
                publisher.acked.reset()
                with harmed(suite, victim, harm):
                    wait_for("messages arrive", lambda before=before: len(reader.got) > before + SOME, PATIENCE)  # type: ignore[misc]  # mypy infers no type of a lambda's default
                print(f"{harm.name} {victim} QoS 2: {publisher.acked.seconds:.2f} s")
                wait_for("all routers are neighbours", lambda: is_whole(suite), PATIENCE)
        sent = Counter(work.sent)
        wait_for("all is acknowledged", lambda: len(publisher.acknowledged) == len(sent), PATIENCE)
        wait_for("all has come", lambda: reader.got.keys() >= sent.keys(), PATIENCE)
        check(reader, sent, [publisher])
    finally:
        for device in (publisher, reader):
            device.end()


def is_whole(suite: Suite) -> bool:
    return all(component(suite, name)["routes"].keys() == set(ROUTERS) - {name} for name in ROUTERS)
