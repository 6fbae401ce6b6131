"""subserv as a process beside a real router and real brokers; a toy gateway; clients on Proton."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import proton

from enmasse.control import (
    Artemis,
    ControlConnection,
    ControlError,
    ControlReceiver,
    Delivery,
    LinkClosed,
    Outcome,
    connect,
)
from enmasse.model import sessions as wire
from enmasse.testing import free_port
from tests.broker.harness import BrokerProcess
from tests.kit.processes import Process, Program, service, start_service
from tests.kit.waiting import DEADLINE, until
from tests.ragent.doubles import FakeConfigserv
from tests.router.harness import RouterProcess

ENTITIES: list[list[Any]] = [
    ["linkRoute", {"name": "subctrl", "prefix": "$subctrl", "direction": "in", "containerId": "subscription-service"}],
    ["address", {"name": "control", "prefix": "$mqtt/control", "distribution": "balanced"}],
    ["linkRoute", {"name": "in", "prefix": "$mqtt/sessions", "direction": "in", "containerId": "subscription-service"}],
    [
        "linkRoute",
        {"name": "out", "prefix": "$mqtt/sessions", "direction": "out", "containerId": "subscription-service"},
    ],
]
TOPICS = {"news": {"type": "topic", "flavor": "t"}, "alarms": {"type": "topic", "flavor": "t"}}
OTHERS = {"cast": {"type": "multicast"}, "jobs": {"type": "queue", "flavor": "q"}}


SUITE = re.compile(r"@[0-9a-f]{12}")
"""The suite's id in the names of queues and diverts."""


class RequestError(Exception):
    def __init__(self, failure: dict[str, Any]) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Gateway:
    """What a gateway does on `$mqtt/sessions`, and nothing else."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.epochs: dict[str, int] = {}
        self.obeys = True
        """Closes what is taken over."""
        self._world = world
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def attach(self) -> Gateway:
        world = self._world
        self.connection = await connect("127.0.0.1", world.router.container_port, container=self.name)
        await until(self._attached, "the links to be taken")
        return self

    async def _attached(self) -> bool:
        self._sender = self.connection.sender(wire.ADDRESS, name=self.name)
        self._receiver = self.connection.receiver(wire.ADDRESS, name=self.name, window=1000)
        self._receiver.on_message = self._on_message
        try:
            await self._sender.opened()
            await self._receiver.opened()
        except Exception:
            for link in (self._sender, self._receiver):
                link.close()
            return False
        self._sender.on_closed = self._receiver.on_closed = self._lost
        return True

    def _lost(self, error: LinkClosed) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()

    async def hello(self) -> list[str]:
        reply = await self.ask("hello", {"gateway": self.name, "sessions": list(self.epochs.items())})
        stale: list[str] = reply["stale"]
        return stale

    async def come_again(self) -> list[str]:
        """Its links went with subserv, or it was killed: attaches until it is greeted. Gives what is stale."""
        while True:
            self.kill()
            await self.attach()
            with contextlib.suppress(ControlError):
                return await self.hello()

    async def ask(self, subject: str, body: Any) -> dict[str, Any]:
        number = str(next(self._numbers))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        text = msgspec.json.encode(body).decode()
        self._sender.send(proton.Message(subject=subject, correlation_id=number, body=text), settled=False)
        async with asyncio.timeout(DEADLINE):
            return await future

    def _on_message(self, delivery: Delivery) -> None:
        message = delivery.message
        body = json.loads(message.body)
        delivery.accept()
        future = self._waiting.pop(message.correlation_id, None) if message.correlation_id else None
        if future is None:
            self.commands.append((message.subject, body))
            if message.subject == "takeover" and self.obeys:
                self.epochs.pop(body["client"], None)
                self._sender.send(
                    proton.Message(subject="close", correlation_id="-", body=json.dumps(body)), settled=False
                )
        elif message.subject == "error":
            future.set_exception(RequestError(body))
        else:
            future.set_result(body)

    async def open(self, client: str, *, clean: bool = False, expiry: int = wire.NEVER, **more: Any) -> dict[str, Any]:
        body = {"client": client, "gateway": self.name, "clean": clean, "expiry": expiry, "protocol": 5, **more}
        reply = await self.ask("open", body)
        self.epochs[client] = reply["epoch"]
        return reply

    async def subscribe(self, client: str, *filters: str | dict[str, Any]) -> dict[str, Any]:
        asked = [{"filter": each, "qos": 1} if isinstance(each, str) else {"qos": 1, **each} for each in filters]
        return await self.ask("subscribe", {"client": client, "epoch": self.epochs[client], "subscriptions": asked})

    async def unsubscribe(self, client: str, *filters: str) -> dict[str, Any]:
        return await self.ask("unsubscribe", {"client": client, "epoch": self.epochs[client], "filters": list(filters)})

    async def close(self, client: str, **more: Any) -> None:
        await self.ask("close", {"client": client, "epoch": self.epochs.pop(client), **more})

    async def packets(self, *changes: list[Any]) -> list[str]:
        reply = await self.ask("packets", {"changes": list(changes)})
        stale: list[str] = reply["stale"]
        return stale

    def kill(self) -> None:
        self.connection.abort()


def _plain(message: proton.Message) -> proton.Message:
    if isinstance(message.body, memoryview):
        message.body = bytes(message.body)
    return message


SUBSERV = service("subserv")


class World:
    """A router, brokers, a configuration service, subserv."""

    def __init__(self, folder: Path, store: dict[str, Any] | None, program: Program = SUBSERV) -> None:
        self.folder = folder
        self.program = program
        self.configserv = FakeConfigserv()
        self.brokers: dict[str, BrokerProcess] = {}
        self.router: RouterProcess
        self.process: Process | None = None
        self.store = store or {"kind": "sqlite", "path": str(folder / "subserv.db")}
        self.addresses: dict[str, Any] = {**TOPICS, **OTHERS}
        self.homes = {"news": "b1", "alarms": "b1", "jobs": "b1"}
        self.by_hand: dict[str, dict[str, Any]] = {}
        """Name → host and port of further brokers, which have what they are to have."""
        self.health_port = free_port()
        self._connections: dict[str, ControlConnection] = {}
        self._managed: dict[str, tuple[ControlConnection, Artemis]] = {}

    async def start(self, brokers: int = 1) -> None:
        self.router = await asyncio.to_thread(RouterProcess, ENTITIES)
        for number in range(1, brokers + 1):
            directory = self.folder / f"b{number}"
            directory.mkdir()
            self.brokers[f"b{number}"] = await asyncio.to_thread(BrokerProcess(directory).start)
        self.configserv_port = await self.configserv.start()
        await self.publish()
        self.launch()
        await self.ready()

    async def publish(self) -> None:
        """Addresses, and placements; the topics are on their brokers."""
        for name, home in self.homes.items():
            if home in self.by_hand:
                continue
            kind = "ANYCAST" if self.addresses[name]["type"] == "queue" else "MULTICAST"
            with contextlib.suppress(Exception):
                await (await self.manage(home)).invoke("broker", "createAddress", name, kind)
        self.configserv.addresses(self.addresses)
        where = {name: {"host": "127.0.0.1", "port": broker.port} for name, broker in self.brokers.items()}
        placed = {name: [{"broker": home, "type": self.addresses[name]["type"]}] for name, home in self.homes.items()}
        self.configserv.place(placed, where | self.by_hand)

    def launch(self) -> None:
        config = self.folder / "subserv.json"
        settings = {
            "name": "subserv",
            "health": f"127.0.0.1:{self.health_port}",
            "router": f"127.0.0.1:{self.router.container_port}",
            "configserv": f"127.0.0.1:{self.configserv_port}",
            "store": self.store,
        }
        config.write_text(json.dumps(settings))
        self.process = start_service(self.program, config)

    async def ready(self) -> None:
        """Everything is served, all brokers included; or it has ended."""
        process = self.process
        assert process is not None
        await until(
            lambda: process.poll() is not None or re.match(r"\d+ session", self.health().get("detail", "")),
            "subserv is ready",
        )

    def health(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=DEADLINE) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except OSError:
            return {}

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    async def restart(self) -> None:
        """After SIGKILL."""
        self.kill()
        self.launch()
        await self.ready()

    async def gateway(self, name: str = "gw-0") -> Gateway:
        made = await Gateway(self, name).attach()
        await made.hello()
        return made

    async def connection(self, broker: str = "b1") -> ControlConnection:
        found = self._connections.get(broker)
        if found is None or found.is_gone:
            found = await connect("127.0.0.1", self.brokers[broker].port, container=f"test-{broker}")
            self._connections[broker] = found
        return found

    async def manage(self, broker: str = "b1") -> Artemis:
        """The same one as long as the connection lives: a connection has so many links, and no more."""
        connection = await self.connection(broker)
        found = self._managed.get(broker)
        if found is None or found[0] is not connection:
            found = self._managed[broker] = connection, await Artemis(connection).opened()
        return found[1]

    async def publish_to(
        self, name: str, body: bytes, *, retain: bool = False, broker: str = "b1", **more: Any
    ) -> Outcome:
        """As a gateway does it."""
        sender = (await self.connection(broker)).sender(name)
        message = proton.Message(address=name, body=body, durable=True, inferred=True, **more)
        message.annotations = {proton.symbol("x-opt-mqtt-qos"): 1}
        if retain:
            message.annotations[proton.symbol("x-opt-retain-message")] = True
        outcome = await sender.deliver(message)
        sender.close()
        assert outcome.accepted, outcome
        return outcome

    async def take(self, address: str, count: int) -> list[proton.Message]:
        """The first so many messages of a session's queue; they are taken away."""
        address, broker = await self._full(address), address.split("/")[1]
        receiver = (await self.connection(broker)).receiver(address, window=max(1, count))
        found: list[Any] = []
        async with asyncio.timeout(DEADLINE):
            while len(found) < count:
                delivery = await anext(receiver)
                found.append(_plain(delivery.message))
                delivery.accept()
        receiver.close()
        management = await self.manage(broker)

        async def stored() -> bool:
            return not await management.attribute(f"queue.{address}", "deliveringCount")

        await until(stored, "the broker has stored what was accepted")
        return found

    async def depth(self, address: str) -> int | None:
        """Messages in a queue; None: there is no such queue."""
        management = await self.manage(address.split("/")[1])
        address = await self._full(address)
        try:
            return int(await management.attribute(f"queue.{address}", "messageCount"))
        except Exception:
            return None

    async def _full(self, address: str) -> str:
        """The address of a queue with the suite's id, which tests leave out."""
        return address if "@" in address else f"{address}@{await self.suite(address.split('/')[1])}"

    async def queues(self, broker: str = "b1") -> list[str]:
        """Names of subscribers' queues, without the suite's id."""
        names = await (await self.manage(broker)).invoke("broker", "getQueueNames")
        return sorted(SUITE.sub("", name) for name in names if name.startswith("$sub/") and "/retained" not in name)

    async def diverts(self, broker: str = "b1") -> list[str]:
        """Names of the diverts to subscribers, without the suite's id."""
        names = await (await self.manage(broker)).invoke("broker", "getDivertNames")
        return sorted(SUITE.sub("", name) for name in names if not name.startswith("retained"))

    async def suite(self, broker: str = "b1") -> str:
        """The suite's id, as it is in the name of the feed."""
        names = await (await self.manage(broker)).invoke("broker", "getQueueNames")
        (feed,) = (name for name in names if "/retained.feed@" in name)
        return str(feed.partition("@")[2])

    async def no_queues(self, broker: str = "b1") -> bool:
        return not await self.queues(broker)

    async def nothing(self) -> bool:
        """Nothing is left of sessions."""
        return not await self.queues() and not await self.diverts()

    async def stop(self) -> None:
        for connection in self._connections.values():
            connection.abort()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            await asyncio.to_thread(self.process.wait, 60)
        await self.configserv.stop()
        for broker in self.brokers.values():
            if broker.process is not None and broker.process.poll() is None:
                broker.kill()
        self.router.stop()


@contextlib.asynccontextmanager
async def world(
    folder: Path,
    brokers: int = 1,
    store: dict[str, Any] | None = None,
    program: Program = SUBSERV,
) -> AsyncIterator[World]:
    made = World(folder, store, program)
    try:
        await made.start(brokers)
        yield made
    finally:
        await made.stop()


__all__ = ["ControlReceiver", "Gateway", "RequestError", "World", "world"]
