"""A suite with two address spaces beside the default one: equal names of addresses and users, and one name in each that
is nowhere else. Clients of every kind stay connected for all cells."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from enmasse.aio.client import Client, ClientReceiver, connect
from enmasse.amqp.codec.errors import AmqpError
from enmasse.amqp.codec.performatives import ACCEPTED
from enmasse.amqp.messages.message import Message
from enmasse.testing import Suite, free_port
from tests.kit.spaces import running_with_spaces
from tests.kit.waiting import DEADLINE, wait_for
from tests.system.conftest import QUEUE, TOPIC
from tests.system.users import allow, entry

ALL = ("default", "zzone", "zztwo")
NOBODYS = "zznil"
"""A space that there is not; its name is as long as the others."""
PASSWORD = "the same"
FEEDER = "feeder"
"""A user of each space, who is the other end of what the others do."""
ADDRESSES: dict[str, Any] = {
    "jobs": {"type": "queue", "flavor": QUEUE},
    "news": {"type": "topic", "flavor": TOPIC},
    "direct": {"type": "anycast"},
    "cast": {"type": "multicast"},
}
Get = Callable[[], Awaitable[str]]
"""Returns the text of the next message."""


class Reply(NamedTuple):
    """An address to which replies are sent, with these fields, and the receiver there."""

    address: str | None
    fields: dict[str, Any]
    get: Get


def mark(space: str) -> str:
    """Return how names begin that are in this space only."""
    return "zzdefault" if space == "default" else space


class Who(NamedTuple):
    """A client: of this space, or the operator in it."""

    space: str
    role: str

    @property
    def name(self) -> str | None:
        """Return the user; None: it has none."""
        return {"user": "alice", "administrator": "boss", FEEDER: FEEDER}.get(self.role)

    @property
    def login(self) -> str | None:
        """Return how it states its user."""
        return self.name if self.name is None or self.space == "default" else f"{self.name}@{self.space}"

    @property
    def password(self) -> str | None:
        return None if self.name is None else PASSWORD

    @property
    def oversees(self) -> bool:
        """Return whether it is an operator of all spaces, as administrators of the default space are."""
        return self.role == "operator" or self == ("default", "administrator")


def _users(space: str) -> dict[str, Any]:
    everything = allow("#", "$SYS/#", "$subctrl", "$lwt", "$sub/#")
    view, manage = (allow("#", operations=(each,)) for each in ("view", "manage"))
    return {
        "alice": entry(PASSWORD, everything, view),
        "boss": entry(PASSWORD, everything, view, manage),
        FEEDER: entry(PASSWORD, everything),
        f"{mark(space)}-user": entry(PASSWORD),
        "anonymous": {"permissions": [everything]},
    }


class Tenants:
    """`suite`, and the port of each listener that has clients of one space: (protocol, space) → port."""

    def __init__(self, suite: Suite, ports: dict[tuple[str, str], int]) -> None:
        self.suite = suite
        self.ports = ports
        self._feeders: dict[str, Client] = {}

    async def feeder(self, space: str) -> Client:
        if space not in self._feeders:
            self._feeders[space] = await self.amqp(Who(space, FEEDER), container_id="feeder").open(DEADLINE)
        return self._feeders[space]

    def amqp(self, who: Who, *, port: int = 0, **more: Any) -> Client:
        """Return an AMQP client that is not connected yet."""
        if who.role == "operator":
            port, more["credential"] = 5673 + self.suite.offset, self.suite.operator
        else:
            more |= {"user": who.login, "password": who.password}
        if who.name is None and who.space != "default":
            more["hostname"] = who.space
        return connect(host="127.0.0.1", port=port or 5672 + self.suite.offset, timeout=DEADLINE, **more)

    async def feed(self, space: str, name: str, text: str, **fields: Any) -> None:
        sender = await (await self.feeder(space)).sender(name, name="feed", timeout=DEADLINE)
        outcome = await sender.send(Message(text.encode(), durable=True, **fields), timeout=DEADLINE)
        assert outcome is ACCEPTED, outcome
        await sender.close()

    @contextlib.asynccontextmanager
    async def reading(self, name: str) -> AsyncIterator[dict[str, Get]]:
        """Receive in each space as the feeder, and accept at once."""
        async with contextlib.AsyncExitStack() as stack:
            found: dict[str, Get] = {}
            for space in ALL:
                receiver = await (await self.feeder(space)).receiver(name, name="read", timeout=DEADLINE)
                stack.push_async_callback(receiver.close, DEADLINE)
                texts: asyncio.Queue[str] = asyncio.Queue()
                task = asyncio.create_task(_read(receiver, texts))
                stack.callback(task.cancel)
                found[space] = texts.get
            yield found

    @contextlib.asynccontextmanager
    async def service(self, space: str) -> AsyncIterator[Callable[[Get], Awaitable[Reply]]]:
        """Take one request at `direct`; the function returns where it wants its reply, which this function gets."""
        receiver = await (await self.feeder(space)).receiver("direct", name="serves", timeout=DEADLINE)

        async def replying(get: Get) -> Reply:
            delivery = await receiver.receive(DEADLINE)
            request = delivery.message
            await delivery.accept()
            await receiver.close(DEADLINE)
            correlation = request.correlation_id or request.message_id
            return Reply(request.reply_to, {"correlation_id": correlation}, get)

        yield replying

    async def close(self) -> None:
        """Close the feeders; they connect again when they are needed."""
        feeders, self._feeders = self._feeders, {}
        for each in feeders.values():
            with contextlib.suppress(AmqpError):
                await each.close()


async def _read(receiver: ClientReceiver, texts: asyncio.Queue[str]) -> None:
    get = taking(receiver)
    while True:
        texts.put_nowait(await get())


def taking(receiver: ClientReceiver) -> Get:
    """Return a function that accepts the next message."""

    async def get() -> str:
        delivery = await receiver.receive(DEADLINE)
        found = delivery.message
        await delivery.accept()
        assert "!!" not in f"{found.to}{found.reply_to}{found.annotations}"
        return text_of(found.body)

    return get


def text_of(body: Any) -> str:
    return bytes(body).decode() if isinstance(body, bytes | bytearray | memoryview) else str(body)


BROKERED: dict[str, Any] = {
    name: {"type": {"anycast": "queue", "multicast": "topic"}.get(each["type"], each["type"])}
    for name, each in ADDRESSES.items()
}
"""The same addresses of brokered spaces, which have queues and topics only."""
LISTENING = tuple((protocol, space) for protocol in ("mqtt", "ws") for space in ALL[1:])
"""Listeners of one space: MQTT clients without a user have no other way to mean a space."""


@contextlib.contextmanager
def running_tenants(folder: Path, *, brokered: bool = False) -> Iterator[Tenants]:
    """Run the suite as long as the block. `brokered`: so are the spaces beside the default one."""
    ports = {each: free_port() for each in LISTENING}
    listen = [f"--listen={protocol}=127.0.0.1:{port}@{space}" for (protocol, space), port in ports.items()]
    files: dict[str, Any] = {
        "spaces.json": dict.fromkeys(ALL[1:], {"type": "brokered", "flavor": QUEUE} if brokered else {})
    }
    options = ("--with", "http", "--with", "stomp", "--with", "coap", *listen)
    with running_with_spaces(folder, files, addresses=ADDRESSES, options=options) as suite:
        for space in ALL:
            config = suite.config if space == "default" else suite.config / "spaces" / space
            config.mkdir(parents=True, exist_ok=True)
            addresses = BROKERED if brokered and space != "default" else ADDRESSES
            own = {f"{mark(space)}-own": addresses["jobs"]}
            (config / "addresses.json").write_text(json.dumps({**addresses, **own}))
            (config / "users.json").write_text(json.dumps(_users(space)))
            (config / "users.json").chmod(0o600)
        suite.up()
        for space in ALL:
            wait_for(partial(_ready, suite, "" if space == "default" else f"!!{space}/"), f"the addresses of {space}")
        yield Tenants(suite, ports)
        assert suite.down() == 0


def _ready(suite: Suite, prefix: str) -> bool:
    rows = {row["name"]: row["ready"] for row in suite.status()["addresses"]}
    return all(rows.get(f"{prefix}{name}") for name in ADDRESSES)
