"""Limits of a space's plan at two gateways: what they refuse together, and what they read later."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from proton import ConnectionException

from enmasse.aio.client import connect
from enmasse.amqp.messages.message import Message
from enmasse.amqp.termini import SPACE
from enmasse.model.mqtt_limits import Limits
from enmasse.mqtt import reasons
from enmasse.mqtt.packets import (
    V5,
    V311,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    Publish,
    Will,
)
from services.mqtt_gateway.amqp.backend import AmqpBackend
from services.mqtt_gateway.gateway import Gateway
from services.mqtt_gateway.network.listeners import ListenerSettings
from tests.kit.running import Listening, server
from tests.kit.waiting import until, wait_for
from tests.mqtt_gateway.environment import Router, environment
from tests.mqtt_gateway.live import Raw
from tests.router.tenants import Installation

SPACES = ("one", "two", "three")
BURSTS = 1500
"""Messages that a router reads before it knows that they are too many."""


class World(NamedTuple):
    """An installation, and the ports and backends of its gateways. `wills`: what the last-will service was told."""

    installation: Installation
    ports: list[int]
    backends: list[AmqpBackend]
    wills: list[tuple[str, str]]

    def client(self, gateway: int, space: str = "one", user: str = "alice", version: int = V5, **more: Any) -> Raw:
        """Connect a client; its CONNACK is still to be read."""
        found = Raw(self.ports[gateway], version)
        name = more.pop("client_id", f"{gateway}-{space}-{user}-{found.socket.getsockname()[1]}")
        found.send(Connect(name, version=version, username=f"{user}@{space}", password=b"pw", **more))
        return found

    def connected(self, *which: Any, **more: Any) -> Raw:
        """Connect a client that is accepted."""
        found = self.client(*which, **more)
        assert found.next(ConnAck).reason == 0
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("spaces")
    router = Router(
        tmp_path_factory.mktemp("router"),
        [["address", {"name": s, "pattern": f"!!{s}/news", "distribution": "multicast"}] for s in SPACES],
    )
    router.start()
    with contextlib.ExitStack() as stack:
        stack.callback(router.kill)
        made = stack.enter_context(Installation(folder, {"news": {"type": "multicast"}}))
        ports: list[int] = []
        backends: list[AmqpBackend] = []
        wills: list[tuple[str, str]] = []

        async def serve(listening: Listening) -> None:
            async with environment(router, made.configserv) as found, contextlib.AsyncExitStack() as ends:
                found.wills.log = wills
                for name in ("g1", "g2"):
                    backend = await found.backend(name, authserv=("127.0.0.1", made.authserv.port))
                    backends.append(backend)
                    gateway = Gateway(Limits(), backend)
                    await gateway.listen([ListenerSettings(kind="mqtt", host="127.0.0.1", port=0)])
                    ends.push_async_callback(gateway.close)
                    ports.append(int(gateway.listeners.ports.endpoints["mqtt"].rpartition(":")[2]))
                client = await ends.enter_async_context(connect(host="127.0.0.1", port=router.services))
                for space in SPACES:
                    drain = await client.receiver(f"!!{space}/news", credit=1000)
                    task = asyncio.ensure_future(_drain(drain))
                    ends.callback(task.cancel)
                await listening(ports[0])

        stack.enter_context(server(serve))
        yield World(made, ports, backends, wills)


async def _drain(receiver: Any) -> None:
    while True:
        await (await receiver.receive()).accept()


@pytest.fixture
def world(running: World) -> Iterator[World]:
    """Without clients."""
    wait_for(
        lambda: not any(running.installation.used(each).get("connections", 0) for each in SPACES),
        "the clients of the test before are gone",
    )
    yield running


def test_messages_of_each_space_take_the_turns_of_its_own_connection_to_the_router(world: World) -> None:
    """The default space has the one that is always there, which takes turns of its own."""
    with contextlib.ExitStack() as stack:
        for space in ("two", "three"):
            stack.enter_context(world.connected(0, space))
        tenants = world.backends[0].bridge.hub.turns.tenants
        assert {name: each.connections for name, each in tenants.items() if name != "one"} == {"two": 1, "three": 1}
        opened = [each.open_fields for each in world.backends[0].bridge.hub.connections]
        stated = [(each.container_id, (each.properties or {}).get(SPACE)) for each in opened]
        assert {("g1", None), ("g1@two", "two"), ("g1@three", "three")} <= set(stated)


@pytest.mark.parametrize(("version", "code"), [(V5, reasons.QUOTA_EXCEEDED), (V311, 3)])
def test_two_gateways_let_in_what_the_plan_states(world: World, version: int, code: int) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(5):
            user = "alice" if number < 3 else "bob"
            stack.enter_context(world.connected(number % 2, "one", user, version=version))
        for gateway in (0, 1):
            with world.client(gateway, "one", "bob", version) as refused:
                answer = refused.next(ConnAck)
                assert answer.reason == code
                if version == V5:
                    assert "5 of 5 connections of the plan 'small' are used" in (answer.properties.reason_string or "")
        stack.enter_context(world.connected(0, "two"))


@pytest.mark.parametrize(("version", "code"), [(V5, reasons.QUOTA_EXCEEDED), (V311, 3)])
def test_a_user_has_what_the_plan_gives_a_user_over_both_gateways(world: World, version: int, code: int) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(3):
            stack.enter_context(world.connected(number % 2, version=version, client_id=f"c{number}"))
        for gateway in (0, 1):
            with world.client(gateway, version=version) as refused:
                assert refused.next(ConnAck).reason == code
        # the client that is there already is taken over, not counted twice
        stack.enter_context(world.connected(0, version=version, client_id="c0"))
        stack.enter_context(world.connected(1, "one", "bob", version))


def test_a_client_that_comes_back_at_the_other_gateway_takes_its_own_place(world: World) -> None:
    """The gateway that has its former connection does not know that this one is half-open."""
    with contextlib.ExitStack() as stack:
        former = [stack.enter_context(world.connected(0, client_id=f"c{number}")) for number in range(3)]
        stack.enter_context(world.connected(1, client_id="c0"))
        (end,) = former[0].until_closed()
        assert isinstance(end, Disconnect) and end.reason == reasons.SESSION_TAKEN_OVER
        with world.client(1, client_id="c3") as other:
            assert other.next(ConnAck).reason == reasons.QUOTA_EXCEEDED
        stack.enter_context(world.connected(0, client_id="c0"))


def test_the_will_of_a_client_is_published_that_has_no_place_where_it_comes_back(world: World) -> None:
    """It is connected nowhere then: its former connection has made way."""
    with contextlib.ExitStack() as stack:
        will = Will("news", b"gone", 1, properties=Properties(will_delay=60))
        world.installation.plans(connections=3)
        wait_for(lambda: world.installation.space("three")["limits"] == {"connections": 3}, "the plan is in force")
        for number in range(3):
            stack.enter_context(world.connected(0, "three", client_id=f"c{number}", will=will))
        world.installation.plans(connections=1)
        wait_for(lambda: world.installation.space("three")["limits"] == {"connections": 1}, "the plan is in force")
        with world.client(1, "three", client_id="c0") as back:
            assert back.next(ConnAck).reason == reasons.QUOTA_EXCEEDED
        wait_for(lambda: ("will-publish", "~alice@three/c0") in world.wills, "its will is decided upon")


def test_a_users_own_limit_holds_for_all_gateways_and_routers_together(world: World) -> None:
    made = world.installation
    with contextlib.ExitStack() as stack:
        stack.enter_context(world.connected(0, "two", client_id="c0"))
        stack.enter_context(contextlib.closing(made.connect(0, space="two")))
        made.limit_users("two", connections=2)
        for front in (0, 1):
            wait_for(lambda front=front: "alice has 2 of 2" in _refused(made, front), "the limit is in force")  # type: ignore[misc]  # mypy infers no type of a lambda's default
        for gateway in (0, 1):
            with world.client(gateway, "two") as refused:
                answer = refused.next(ConnAck)
                assert answer.reason == reasons.QUOTA_EXCEEDED
                assert "alice has 2 of 2 connections: close one of them" in (answer.properties.reason_string or "")
        stack.enter_context(world.connected(1, "two", client_id="c0"))  # in its own place
        stack.enter_context(world.connected(1, "two", "bob"))
        stack.callback(made.limit_users, "two")


def _refused(made: Installation, front: int) -> str:
    """Return why a user of the space two is refused at a router; empty: it is not."""
    try:
        made.connect(front, space="two").close()
    except ConnectionException as refusal:
        return str(refusal)
    return ""


@pytest.mark.parametrize("version", [V5, V311])
def test_a_larger_message_than_the_plan_allows_ends_the_connection(world: World, version: int) -> None:
    """The plan allows 1000 bytes; packets of 1 KiB are taken of every client. Another space has no limit."""
    large = Publish("news", b"x" * 1000, 1, packet_id=7)
    with world.client(0, version=version) as client, world.connected(0, "two", version=version) as other:
        answer = client.next(ConnAck)
        assert answer.reason == 0
        if version == V5:
            assert answer.properties.maximum_packet_size == 1024
        client.send(Publish("news", b"x" * 900, 1, packet_id=1))
        assert client.next(PubAck).packet_id == 1
        client.send(large)
        ends = client.until_closed()
        if version == V5:
            (end,) = ends
            assert isinstance(end, Disconnect) and end.reason == reasons.PACKET_TOO_LARGE
            assert "has 1004 bytes, the plan 'small' allows 1000" in (end.properties.reason_string or "")
        other.send(large)
        assert other.next(PubAck).packet_id == 7


def test_a_will_has_the_size_of_a_message(world: World) -> None:
    with world.client(0, will=Will("news", b"x" * 1000, 1)) as client:
        assert client.next(ConnAck).reason == reasons.PACKET_TOO_LARGE
    world.connected(0, will=Will("news", b"x" * 900, 1)).socket.close()


class Flood:
    """A client that publishes as fast as it may, in a thread. `acknowledged`: messages that were."""

    def __init__(self, client: Raw) -> None:
        self.acknowledged = 0
        self._client = client
        self._stopped = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, AssertionError):
            self._send()

    def _send(self) -> None:
        window, packet_id = 0, 0
        while not self._stopped:
            while window < 100:
                packet_id = packet_id % 60000 + 1
                self._client.send(Publish("news", b"x", 1, packet_id=packet_id))
                window += 1
            self._client.next(PubAck)
            window -= 1
            self.acknowledged += 1

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stopped = True
        self._client.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()


def test_a_rate_counts_for_gateways_and_routers_together(world: World) -> None:
    """Two gateways and a router let through the rate of the plan, not thrice of it, and end no connection; a client
    that sends nothing is served meanwhile, and so is another space."""
    rate = 1000
    world.installation.plans(messagesPerSecond=rate)
    wait_for(lambda: "messagesPerSecond" in world.installation.space("three")["limits"], "the plan is in force")
    with contextlib.ExitStack() as stack:
        silent, other = (stack.enter_context(world.connected(0, space)) for space in ("three", "two"))
        floods = [Flood(stack.enter_context(world.connected(gateway, "three"))) for gateway in (0, 1)]
        for each in floods:
            stack.callback(each.stop)
        seconds, messages = asyncio.run(_watched(world, floods, silent, other, rate))
    assert messages <= BURSTS + 1.5 * rate * seconds, (seconds, messages)


async def _watched(world: World, floods: list[Flood], silent: Raw, other: Raw, rate: int) -> tuple[float, int]:
    """Return in how many seconds how many messages pass while a router is flooded too."""
    at_router = 0

    async def flood() -> None:
        nonlocal at_router
        port = world.installation.fronts[0].users
        async with connect(host="127.0.0.1", port=port, user="alice@three", password="pw") as client:
            receiver = await client.receiver("news", credit=1000)
            sender = await client.sender("news")
            while True:
                while sender.credit:
                    sender.send_nowait(Message("x"))
                for delivery in receiver.receive_all(1000):
                    at_router += 1
                    await delivery.accept()
                await asyncio.sleep(0.001)  # limit: lets the other tasks run

    router = asyncio.ensure_future(flood())

    def passed() -> int:
        assert not router.done() and all(each.lives for each in floods)
        return at_router + sum(each.acknowledged for each in floods)

    def has_passed(goal: int) -> bool:
        return passed() > goal

    await asyncio.to_thread(
        wait_for, lambda: "messagesPerSecond" in world.installation.used("three"), "the plan is known"
    )
    sent = passed()
    await until(lambda: passed() > sent + 2 * rate, "all send")
    before, begun = passed(), time.monotonic()
    for number in range(1, 7):
        silent.send(PingReq())
        await asyncio.to_thread(silent.next, PingResp)
        for packet_id in range(1, 101):
            other.send(Publish("news", b"x", 1, packet_id=packet_id))
            await asyncio.to_thread(other.next, PubAck)
        await until(partial(has_passed, before + number * rate), "they go on")
    found = time.monotonic() - begun, passed() - before
    router.cancel()
    return found
