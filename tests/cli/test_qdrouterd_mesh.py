"""Several Qpid Dispatch routers in one suite: what passes between them, and how their mesh heals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.aio.client import Client, ClientReceiver, connect
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from tests.cli.running import Up, enmasse, wait_for
from tests.kit.waiting import DEADLINE

pytestmark = pytest.mark.needs("qdrouterd")
OPTIONS = ("--without", "mqtt", "--router", "qdrouterd")
LIMIT = DEADLINE


@pytest.fixture
def up(config: Path, tmp_path: Path) -> Iterator[Up]:
    with Up(config, tmp_path / "data", fake=False, options=OPTIONS) as up:
        up.until_ready()
        scale(up, 3)
        yield up


def scale(up: Up, count: int) -> None:
    """Scales the routers, and waits until each has a connection with each other."""
    scaled = enmasse("scale", f"router={count}", "--port-offset", up.offset)
    assert scaled.returncode == 0, scaled.stderr
    meshed(up, count)


def meshed(up: Up, count: int) -> None:
    names = [f"router-{number}" for number in range(count)]
    wanted = {name: ", ".join(other for other in names if other != name) for name in names}

    def shown() -> bool:
        status = up.status()
        details = {c["name"]: c["detail"] for c in status["components"] if c["kind"] == "router"}
        routers = {name: detail.partition("; neighbours: ")[2] for name, detail in details.items()}
        return bool(status["ready"]) and routers == wanted

    wait_for(shown, what=f"a mesh of {count}; {up.try_status()}")


async def client(up: Up, stack: contextlib.AsyncExitStack, router: int) -> Client:
    return await stack.enter_async_context(connect(f"amqp://{up.component(f'router-{router}')['endpoints']['amqp']}"))


async def takes(receiver: ClientReceiver, body: str) -> None:
    delivery = await receiver.receive(LIMIT)
    assert delivery.message.body == body
    await delivery.accept()


async def passes(sender: Client, receivers: list[Client], address: str) -> None:
    """What one sends all the others get; it is sent again while it is known not to have reached anybody."""
    receiving = [await each.receiver(address) for each in receivers]
    sending = await sender.sender(address)
    await sending.wait_credit(LIMIT)
    sent = asyncio.ensure_future(sending.send(Message(address), timeout=LIMIT))
    for each in receiving:
        await takes(each, address)
    assert (await sent) == ACCEPTED
    for link in (sending, *receiving):
        await link.close()


async def everything_passes(up: Up) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [await client(up, stack, number) for number in range(3)]
        await passes(clients[0], [clients[2]], "anycast")
        await passes(clients[2], [clients[1]], "myqueue")
        await passes(clients[1], clients[:2], "mytopic")
        replies = await clients[2].receiver(None, dynamic=True)
        assert replies.link.remote_source.address.startswith("amqp:/_topo/0/router-2/")
        await passes_to(clients[0], replies)


async def passes_to(sender: Client, replies: ClientReceiver) -> None:
    sending = await sender.sender(replies.link.remote_source.address)
    assert await asyncio.gather(sending.send(Message("a reply"), timeout=LIMIT), takes(replies, "a reply"))


async def spreads(up: Up) -> None:
    """Receivers on each router get what is sent on one, as soon as that has heard of them."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [await client(up, stack, number) for number in range(3)]
        receiving = [await each.receiver("broadcast") for each in clients]
        sending = await clients[0].sender("broadcast")
        waiting = set(receiving)
        while waiting:
            for receiver in receiving:
                receiver.grant(1)
            sent = asyncio.ensure_future(sending.send(Message("all"), timeout=LIMIT))
            while not sent.done():
                # pause: until it looks again
                await asyncio.sleep(0.01)
                for receiver in receiving:
                    while (delivery := receiver.receive_nowait()) is not None:
                        waiting.discard(receiver)
                        await delivery.accept()
            assert sent.result() == ACCEPTED


def test_what_passes_and_what_heals(up: Up) -> None:
    asyncio.run(everything_passes(up))
    asyncio.run(spreads(up))

    first = up.pids()["router-0"]
    os.kill(first, signal.SIGKILL)  # the one that the others dial
    wait_for(lambda: up.runs("router-0", after=first))
    meshed(up, 3)
    asyncio.run(everything_passes(up))

    last = up.pids()["router-2"]
    agent = up.pids()["ragent"]
    os.kill(last, signal.SIGKILL)
    os.kill(agent, signal.SIGKILL)  # nobody who remembers
    wait_for(lambda: up.runs("router-2", after=last) and up.runs("ragent", after=agent))
    meshed(up, 3)
    asyncio.run(everything_passes(up))

    scale(up, 2)
    scale(up, 3)
    asyncio.run(everything_passes(up))
